//! `shoal stat`.

use shoal::Attr;

use crate::args::StatArgs;
use crate::clock;
use crate::commands::xattr;
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
                Ok(seen) if args.json => {
                    let (path, target) = (&location.path, seen.target.as_deref());
                    let file = JsonFile::new(path, split_last(path).name, &seen.attr, target);
                    out.json(&file.with_attributes(&seen.attributes))?;
                }
                Ok(seen) => out.line(&text(&location.label(), &seen))?,
                Err(error) => progress.failure(location.label(), Reason::from(error)),
            }
        }
        out.flush()?;
        Ok(progress.finish())
    })
}

/// A file with everything that is shown of it.
struct Seen {
    attr: Attr,
    target: Option<Vec<u8>>,
    /// Names of its extended attributes.
    attributes: Vec<Vec<u8>>,
}

fn look(session: &Session, location: &Location, follow: bool) -> shoal::Result<Seen> {
    let attr = session.find(&location.path, follow)?;
    let target = session.target(&attr)?;
    Ok(Seen { attr, target, attributes: xattr::names(session, attr.ino)? })
}

fn text(label: &str, seen: &Seen) -> String {
    let Seen { attr, target, attributes } = seen;
    let target = target.as_ref().map(|to| format!(" -> {}", printable(to))).unwrap_or_default();
    let device = device_numbers(attr)
        .map(|[major, minor]| format!("  Device: {major}, {minor}"))
        .unwrap_or_default();
    format!(
        "  File: {label}{target}\n  \
           Type: {kind}{device}\n  \
           Size: {size}  Blocks: {blocks}  Links: {nlink}\n \
          Inode: {ino}  Generation: {generation}\n  \
           Mode: {octal:04o} ({mode})  Uid: {uid}  Gid: {gid}\n\
         XAttrs: {attributes}\n\
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
        attributes = attributes.len(),
        atime = clock::full(attr.atime),
        mtime = clock::full(attr.mtime),
        ctime = clock::full(attr.ctime),
        btime = clock::full(attr.btime),
    )
}
