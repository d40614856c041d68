//! `shoal mkdir`.

use std::os::unix::ffi::OsStrExt;

use rustix::fs::{FileType, Mode, chmod, mkdir, stat};
use rustix::io::Errno;
use shoal::raw::{Caller, Code, FileKind, SetAttr};

use crate::args::MkdirArgs;
use crate::failure::{Reason, Result};
use crate::interrupt;
use crate::location::{Location, Split, join, split_last};
use crate::progress::Progress;
use crate::session::{Access, Session, Sessions, Way};
use crate::text::printable;
use crate::tree::mounted_path;

/// Mode bits of the owner, write and search, which every directory above a new one must have.
const OWNER_WRITE_SEARCH: u32 = 0o300;

/// Makes directories.
pub(crate) fn run(args: &MkdirArgs) -> Result<u8> {
    Sessions::run(Access::Write, |sessions| {
        let mut progress = Progress::counting();
        for (done, place) in args.places.iter().enumerate() {
            interrupt::check(|| format!("{done} of {} arguments made", args.places.len()))?;
            if let Some(path) = mounted_path(place)? {
                let path = path.as_os_str().as_bytes();
                let made = match args.parents {
                    true => make_all_in_mount(path, args.mode),
                    false => make_in_mount(path, args.mode).map_err(Reason::from),
                };
                if let Err(reason) = made {
                    progress.failure(printable(path), reason);
                }
                continue;
            }
            let location = Location::parse(place);
            let session = sessions.get(&location)?;
            let result = if args.parents {
                make_all(&session, &location.path, args.mode)
            } else {
                make_one(&session, &location.path, args.mode)
            };
            if let Err(reason) = result {
                progress.failure(location.label(), reason);
            }
        }
        Ok(progress.finish())
    })
}

fn make_one(session: &Session, path: &[u8], mode: Option<u32>) -> Result<(), Reason> {
    let Split { parent, name, .. } = split_last(path);
    if name.is_empty() || name == b"." || name == b".." {
        return Err(shoal::raw::Error::Code(Code::Exists).into());
    }
    let (_, above) = session.resolve(parent, true)?;
    make(session, &join(&above, name), mode)?;
    Ok(())
}

/// Makes a directory in a mount; the umask does not change a given mode.
fn make_in_mount(path: &[u8], mode: Option<u32>) -> rustix::io::Result<()> {
    mkdir(path, Mode::from_raw_mode(mode.unwrap_or(0o777)))?;
    match mode {
        Some(mode) => chmod(path, Mode::from_raw_mode(mode)),
        None => Ok(()),
    }
}

/// Makes the directory in a mount, and those above it that are missing.
fn make_all_in_mount(path: &[u8], mode: Option<u32>) -> Result<(), Reason> {
    for at in 1..=path.len() {
        let is_end = at == path.len() || (path[at] == b'/' && path[at - 1] != b'/');
        if !is_end {
            continue;
        }
        let is_last = path[at..].iter().all(|byte| *byte == b'/');
        let made = make_in_mount(&path[..at], mode.filter(|_| is_last));
        match made {
            Ok(()) if !is_last => {
                let found = stat(&path[..at])?;
                if found.st_mode & OWNER_WRITE_SEARCH != OWNER_WRITE_SEARCH {
                    let mode = (found.st_mode & 0o7777) | OWNER_WRITE_SEARCH;
                    chmod(&path[..at], Mode::from_raw_mode(mode))?;
                }
            }
            Ok(()) => {}
            Err(error) => match stat(&path[..at]) {
                Ok(found) if FileType::from_raw_mode(found.st_mode).is_dir() => {}
                Ok(_) if is_last => return Err(error.into()),
                Ok(_) => return Err(Errno::NOTDIR.into()),
                Err(_) => return Err(error.into()),
            },
        }
    }
    Ok(())
}

/// Makes the directory and those above it that are missing.
fn make_all(session: &Session, path: &[u8], mode: Option<u32>) -> Result<(), Reason> {
    let mut way = Way::at_top(session)?;
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        let is_last = names.peek().is_none();
        let above = way.real.clone();
        match way.go(name, true) {
            Ok(found) if found.kind == FileKind::Directory => continue,
            Ok(_) if is_last => return Err(shoal::raw::Error::Code(Code::Exists).into()),
            Ok(_) => return Err(shoal::raw::Error::Code(Code::NotDirectory).into()),
            // By a symlink: that leads nowhere.
            Err(error) if error.is(Code::NotFound) && way.real != above => {
                return Err(shoal::raw::Error::Code(Code::Exists).into());
            }
            Err(error) if error.is(Code::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        let real = join(&above, name);
        let made = make(session, &real, mode.filter(|_| is_last))?;
        if !is_last && made.mode & OWNER_WRITE_SEARCH != OWNER_WRITE_SEARCH {
            let mode = Some((made.mode & 0o7777) | OWNER_WRITE_SEARCH);
            let set = SetAttr { mode, ..SetAttr::default() };
            session.set(&real, set)?;
        }
        way.go(name, false)?;
    }
    Ok(())
}

/// Makes one directory; the umask does not change a given mode.
fn make(session: &Session, path: &[u8], mode: Option<u32>) -> shoal::raw::Result<shoal::raw::Attr> {
    let umask = if mode.is_some() { 0 } else { session.who.umask };
    let who = Caller { umask, ..session.who.clone() };
    let made = session.make_dir(&who, path, mode.unwrap_or(0o777))?.attr;
    match mode {
        // mkdir takes no set-id bits from the caller, like mkdir(2).
        Some(mode) if made.mode & 0o7777 != mode => {
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            session.set(path, set)
        }
        _ => Ok(made),
    }
}
