//! `shoal ln`.

use std::os::unix::ffi::OsStrExt;

use shoal::raw::{Code, FileKind};

use crate::args::LnArgs;
use crate::failure::{Failure, OK, Reason, Result};
use crate::location::{Location, join, split_last};
use crate::session::{Access, Session, Sessions};

/// Makes a hard or symbolic link.
pub(crate) fn run(args: &LnArgs) -> Result<u8> {
    Sessions::run(Access::Write, |sessions| {
        let link = Location::parse(&args.link);
        let session = sessions.get(&link)?;
        let target = if args.symbolic {
            args.target.as_bytes().to_vec()
        } else {
            let target = Location::parse(&args.target);
            if !std::rc::Rc::ptr_eq(&sessions.get(&target)?, &session) {
                return Err(Failure::usage(
                    target.label(),
                    "is not in the link's volume (a hard link cannot leave its volume)",
                ));
            }
            target.path
        };
        make(&session, &target, &link.path, args)
            .map_err(|reason| Failure::failed(link.label(), reason))?;
        Ok(OK)
    })
}

fn make(session: &Session, target: &[u8], link: &[u8], args: &LnArgs) -> Result<(), Reason> {
    let volume = &session.volume;
    let is_directory =
        session.find(link, true).is_ok_and(|found| found.kind == FileKind::Directory);
    let path = if is_directory { join(link, split_last(target).name) } else { link.to_vec() };
    let slot = session.slot(&path)?;
    let linked = if args.symbolic { None } else { Some(session.find(target, false)?) };
    if linked.is_some_and(|linked| linked.kind == FileKind::Directory) {
        return Err(Reason::Text("a directory cannot have a second name (use -s)".into()));
    }
    if args.force
        && let Some(old) = session.lookup(slot.dir, &slot.name)?
    {
        if linked.is_some_and(|linked| linked.ino == old.ino) {
            return Ok(());
        }
        if old.kind == FileKind::Directory {
            return Err(shoal::raw::Error::Code(Code::IsDirectory).into());
        }
        volume.namespace().unlink(&session.who, slot.dir, &slot.name)?;
    }
    match linked {
        Some(linked) if linked.ino.root() != slot.dir.root() => {
            let text = "a hard link cannot lead from one subvolume to another (use -s, or copy it)";
            return Err(Reason::Text(text.into()));
        }
        Some(linked) => volume.namespace().link(&session.who, linked.ino, slot.dir, &slot.name)?,
        None => volume.namespace().symlink(&session.who, slot.dir, &slot.name, target)?,
    };
    Ok(())
}
