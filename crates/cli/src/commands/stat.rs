//! `shoal stat`.

use shoal::Attr;

use crate::args::StatArgs;
use crate::clock;
use crate::failure::{Reason, Result};
use crate::location::{Location, split_last};
use crate::output::{JsonFile, Out, device_numbers, kind_name, mode_text, printable};
use crate::progress::Progress;
use crate::session::{Access, Session, Sessions};

/// Shows all attributes of files.
pub fn run(args: &StatArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let mut out = Out::new();
        let mut progress = Progress::counting();
        for place in &args.places {
            let location = Location::parse(place);
            let session = sessions.get(&location)?;
            match look(&session, &location, args.dereference) {
                Ok((attr, target)) if args.json => {
                    let name = split_last(&location.path).name;
                    out.json(&JsonFile::new(&location.path, name, &attr, target.as_deref()))?;
                }
                Ok((attr, target)) => {
                    out.line(&text(&location.label(), &attr, target.as_deref()))?;
                }
                Err(error) => progress.failure(location.label(), Reason::from(error)),
            }
        }
        out.flush()?;
        Ok(progress.finish())
    })
}

fn look(
    session: &Session,
    location: &Location,
    follow: bool,
) -> shoal::Result<(Attr, Option<Vec<u8>>)> {
    let attr = session.find(&location.path, follow)?;
    Ok((attr, session.target(&attr)?))
}

fn text(label: &str, attr: &Attr, target: Option<&[u8]>) -> String {
    let target = target.map(|target| format!(" -> {}", printable(target))).unwrap_or_default();
    let device = device_numbers(attr)
        .map(|[major, minor]| format!("  Device: {major}, {minor}"))
        .unwrap_or_default();
    format!(
        "  File: {label}{target}\n  \
           Type: {kind}{device}\n  \
           Size: {size}  Blocks: {blocks}  Links: {nlink}\n \
          Inode: {ino}  Generation: {generation}\n  \
           Mode: {octal:04o} ({mode})  Uid: {uid}  Gid: {gid}\n\
         Access: {atime}\n\
         Modify: {mtime}\n\
         Change: {ctime}\n \
          Birth: {btime}",
        kind = kind_name(attr.kind).replace('_', " "),
        size = attr.size,
        blocks = attr.blocks,
        nlink = attr.nlink,
        ino = attr.ino,
        generation = attr.generation.0,
        octal = attr.mode & 0o7777,
        mode = mode_text(attr),
        uid = attr.uid,
        gid = attr.gid,
        atime = clock::full(attr.atime),
        mtime = clock::full(attr.mtime),
        ctime = clock::full(attr.ctime),
        btime = clock::full(attr.btime),
    )
}
