//! `shoal stat`.

mod format;

use std::os::unix::ffi::OsStrExt;

use shoal::raw::Attr;

use crate::accounts::Accounts;
use crate::args::StatArgs;
use crate::clock;
use crate::failure::{Failure, Reason, Result};
use crate::in_mount::InMount;
use crate::json;
use crate::location::split_last;
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Sessions};
use crate::text::{device_numbers, kind_name, mode_text, printable};
use crate::tree::{Operand, Tree};
use format::{Format, Shown};

/// Shows all attributes of files.
pub(crate) fn run(args: &StatArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let mut out = Out::new();
        let mut progress = Progress::counting();
        let accounts = Accounts::of_this_machine();
        let format = args.format.as_deref().map(Format::parse).transpose();
        let format = format.map_err(|what| Failure::usage("--format", what))?;
        for argument in &args.places {
            let place = match Operand::open(sessions, Access::Read, argument, args.dereference)? {
                Ok(place) => place,
                Err(missing) => {
                    progress.failure(missing.label, Reason::from(missing.error));
                    continue;
                }
            };
            match look(&place) {
                Ok(seen) if args.json => {
                    let (path, target) = (&place.path, seen.target.as_deref());
                    let file = json::file(path, split_last(path).name, &seen.attr, target);
                    let attributes = seen.attributes.iter().map(Vec::as_slice);
                    out.json(file.put_names("attributes", attributes))?;
                }
                Ok(seen) => match &format {
                    Some(format) => {
                        let (name, target) = (argument.as_bytes(), seen.target.as_deref());
                        let shown = Shown { name, attr: &seen.attr, target, accounts: &accounts };
                        out.text(&format.line(&shown))?;
                        out.bytes(b"\n")?;
                    }
                    None => out.line(&text(&place.label(), &seen))?,
                },
                Err(error) => progress.failure(place.label(), Reason::from(error)),
            }
        }
        out.flush()?;
        Ok(progress.finish())
    })
}

/// A file with all attributes to be shown.
struct Seen {
    attr: Attr,
    target: Option<Vec<u8>>,
    /// Names of its extended attributes.
    attributes: Vec<Vec<u8>>,
}

fn look(place: &Operand) -> shoal::raw::Result<Seen> {
    let Operand { tree, path, attr } = place;
    let target = tree.target(path, attr)?;
    let (attr, attributes) = match tree {
        Tree::Volume(start) => (*attr, start.session.xattrs(&start.real(path))?),
        Tree::Mount(mount) => {
            // System calls do not tell the generation.
            let found = mount.start().map(|start| start.look(path));
            let attr = found.transpose()?.unwrap_or(*attr);
            (attr, InMount::attribute_names(path, attr.kind)?)
        }
    };
    Ok(Seen { attr, target, attributes })
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
