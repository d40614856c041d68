//! `shoal ln`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Stat, linkat, lstat, symlink, unlink};
use rustix::io::Errno;
use shoal::raw::{Code, FileKind};

use crate::args::LnArgs;
use crate::failure::{Failure, OK, Reason, Result};
use crate::location::{Location, join, split_last};
use crate::session::{Access, Session, Sessions};
use crate::text::printable;
use crate::tree::mounted_path;

/// Reason for a hard link that nobody may make.
const OF_DIRECTORY: &str = "a directory cannot have a second name (use -s)";

/// Makes a hard or symbolic link.
pub(crate) fn run(args: &LnArgs) -> Result<u8> {
    if let Some(link) = mounted_path(&args.link)? {
        let link = link.as_os_str().as_bytes();
        make_in_mount(link, args).map_err(|reason| Failure::failed(printable(link), reason))?;
        return Ok(OK);
    }
    Sessions::run(Access::Write, |sessions| {
        let link = Location::parse(&args.link);
        let session = sessions.get(&link)?;
        let target = if args.symbolic {
            args.target.as_bytes().to_vec()
        } else {
            let target = Location::parse(&args.target);
            if !std::sync::Arc::ptr_eq(&sessions.get(&target)?, &session) {
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

/// Makes a link in a mount.
fn make_in_mount(link: &[u8], args: &LnArgs) -> Result<(), Reason> {
    let target = args.target.as_bytes();
    let is_directory = |path: &[u8]| Path::new(OsStr::from_bytes(path)).is_dir();
    let path = match is_directory(link) {
        true => join(link, split_last(target).name),
        false => link.to_vec(),
    };
    let linked = match args.symbolic {
        true => None,
        false => Some(lstat(target)?),
    };
    if linked.as_ref().is_some_and(|it| FileType::from_raw_mode(it.st_mode).is_dir()) {
        return Err(Reason::Text(OF_DIRECTORY.into()));
    }
    if args.force
        && let Ok(old) = lstat(&path[..])
    {
        let is_same = |it: &Stat| (it.st_dev, it.st_ino) == (old.st_dev, old.st_ino);
        if linked.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        unlink(&path[..])?;
    }
    match linked {
        None => Ok(symlink(target, &path[..])?),
        Some(_) => match linkat(CWD, target, CWD, &path[..], AtFlags::empty()) {
            Err(Errno::XDEV) => {
                let text = "a hard link cannot lead from one volume or subvolume to another \
                            (use -s, or copy it)";
                Err(Reason::Text(text.into()))
            }
            linked => Ok(linked?),
        },
    }
}

fn make(session: &Session, target: &[u8], link: &[u8], args: &LnArgs) -> Result<(), Reason> {
    let is_directory =
        session.find(link, true).is_ok_and(|found| found.kind == FileKind::Directory);
    let path = if is_directory { join(link, split_last(target).name) } else { link.to_vec() };
    let slot = session.slot(&path)?;
    let linked = if args.symbolic { None } else { Some(session.place(target, false)?) };
    if linked.as_ref().is_some_and(|(linked, _)| linked.kind == FileKind::Directory) {
        return Err(Reason::Text(OF_DIRECTORY.into()));
    }
    if args.force
        && let Some(old) = session.lookup(&slot.path)?
    {
        if linked.as_ref().is_some_and(|(linked, _)| linked.ino == old.ino) {
            return Ok(());
        }
        if old.kind == FileKind::Directory {
            return Err(shoal::raw::Error::Code(Code::IsDirectory).into());
        }
        session.unlink(&slot.path)?;
    }
    match linked {
        Some((linked, _)) if linked.ino.root() != slot.dir.root() => {
            let text = "a hard link cannot lead from one subvolume to another (use -s, or copy it)";
            return Err(Reason::Text(text.into()));
        }
        Some((_, linked)) => session.link(&linked, &slot.path)?,
        None => session.symlink(&slot.path, target)?,
    };
    Ok(())
}
