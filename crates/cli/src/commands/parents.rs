//! `shoal path` and `shoal parents`: the names of files, by their parent pointers. A volume that is
//! not mounted is opened; a mounted one is asked through its mount.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Stat, fstat, statat};
use shoal::raw::{Code, Ino};
use shoal_fuse::is_in_mount;
use shoal_session::{HardLink, HardLinks, Node};

use crate::args::{ParentsArgs, PathArgs};
use crate::failure::{Failure, Reason, Result};
use crate::json::Object;
use crate::location::{Location, Place, split_last};
use crate::mounted::{self, NOT_OURS, open_at};
use crate::output::Out;
use crate::progress::Progress;
use crate::session::{Access, Session, Sessions};
use crate::text::printable;

/// Message for an inode number without an inode.
const NO_INODE: &str = "there is no such inode";

/// Prints the paths of inodes.
pub(crate) fn path(args: &PathArgs) -> Result<u8> {
    mounted::at(&args.volume, Access::Read, |session| {
        paths(args, &mut |ino| {
            Ok(session.calls().all_links(&session.reader(), Node::TOP, Some(ino))?)
        })
    })
}

fn paths(args: &PathArgs, ask: &mut dyn FnMut(Ino) -> Result<HardLinks, Reason>) -> Result<u8> {
    let mut out = Out::new();
    let mut progress = Progress::counting();
    for ino in &args.inodes {
        let object = || format!("inode {ino} of {}", args.volume.display());
        match ask(Ino(*ino)) {
            Ok(names) if names.links.is_empty() => {
                progress.failure(object(), "has no name (it is only still open)");
            }
            Ok(names) if args.json => out.json(json_paths(&names))?,
            Ok(names) => {
                for link in &names.links {
                    if args.inodes.len() > 1 {
                        out.bytes(format!("{ino}\t").as_bytes())?;
                    }
                    if args.null {
                        out.bytes(&link.path)?;
                        out.bytes(b"\0")?;
                    } else {
                        out.name(&link.path)?;
                        out.line("")?;
                    }
                }
            }
            Err(reason) => refuse(&mut progress, object(), &args.volume, &reason)?,
        }
    }
    out.flush()?;
    Ok(progress.finish())
}

/// Shows each hard link of files.
pub(crate) fn parents(args: &ParentsArgs) -> Result<u8> {
    Sessions::run(Access::Read, |sessions| {
        let mut out = Out::new();
        let mut progress = Progress::counting();
        for place in &args.places {
            let (label, whole, names) = match Place::parse(place) {
                Place::Local(path) => {
                    let label = printable(path.as_os_str().as_bytes()).into_owned();
                    (label, path.clone(), of_local(&path))
                }
                Place::Volume(location) => {
                    let session = sessions.get(&location)?;
                    let names = of_location(&session, &location);
                    (location.label(), location.volume, names)
                }
            };
            match names {
                Ok(names) => show(&mut out, &names, args.json)?,
                Err(reason) => refuse(&mut progress, label, &whole, &reason)?,
            }
        }
        out.flush()?;
        Ok(progress.finish())
    })
}

fn show(out: &mut Out, names: &HardLinks, json: bool) -> Result<()> {
    // The only path of the top is not a name.
    for link in names.links.iter().filter(|_| !names.is_top) {
        let name = split_last(&link.path).name;
        if json {
            out.json(json_link(names, link, name))?;
            continue;
        }
        out.bytes(format!("{}\t{}\t", link.dir.0, link.generation.0).as_bytes())?;
        out.name(name)?;
        out.bytes(b"\t")?;
        out.name(&link.path)?;
        out.line("")?;
    }
    Ok(())
}

/// Reports why one file cannot be shown; fails if no other can be shown either.
fn refuse(
    progress: &mut Progress,
    object: impl std::fmt::Display,
    whole: &Path,
    reason: &Reason,
) -> Result<()> {
    let whole = printable(whole.as_os_str().as_bytes());
    if reason.is(Code::NotSupported) {
        let what = "has no parent pointers (it was made by mkfs --parent off)";
        return Err(Failure::usage(whole, what));
    }
    if matches!(reason, Reason::Text(text) if text == NOT_OURS) {
        return Err(Failure::usage(whole, NOT_OURS));
    }
    if reason.is(Code::Stale) {
        progress.failure(object, NO_INODE);
    } else if reason.is(Code::NotPermitted) {
        progress.failure(object, format!("{reason} (ask as root, or as the user who mounted it)"));
    } else {
        progress.failure(object, reason);
    }
    Ok(())
}

fn of_location(session: &Session, location: &Location) -> Result<HardLinks, Reason> {
    let found = session.find(&location.path, false)?;
    Ok(session.calls().all_links(&session.reader(), Node::TOP, Some(found.ino))?)
}

/// Returns the names of a file in a mount. If it cannot be opened, such as a symlink, its directory
/// is asked.
fn of_local(path: &Path) -> Result<HardLinks, Reason> {
    let found = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?;
    let is_dir = rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir();
    let dir = if is_dir { None } else { directory_of(path, &found) };
    let (opened, ino) = match dir {
        Some(dir) => (dir, Some(Ino(found.st_ino))),
        None => (open_at(path)?, None),
    };
    if !is_in_mount(&opened) {
        return Err(Reason::Text(NOT_OURS.into()));
    }
    let session = Session::through(opened, path);
    Ok(session.calls().all_links(&session.who, Node::TOP, ino)?)
}

/// Opens the directory that holds a file, if it is of the same mount.
fn directory_of(path: &Path, file: &Stat) -> Option<OwnedFd> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let opened = open_at(dir).ok()?;
    let same = fstat(&opened).is_ok_and(|dir| dir.st_dev == file.st_dev);
    same.then_some(opened)
}

fn json_paths(names: &HardLinks) -> Object {
    Object::new()
        .put("ino", names.ino.0)
        .put("generation", names.generation.0)
        .put_names("paths", names.links.iter().map(|link| link.path.as_slice()))
}

fn json_link(names: &HardLinks, link: &HardLink, name: &[u8]) -> Object {
    Object::new()
        .put("ino", names.ino.0)
        .put("generation", names.generation.0)
        .put("parent", link.dir.0)
        .put("parent_generation", link.generation.0)
        .put_name("name", name)
        .put_name("path", &link.path)
}
