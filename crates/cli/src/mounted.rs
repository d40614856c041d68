//! Mounted volumes, for the commands that ask their servers.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use shoal::raw::{Code, Error};
use shoal_fuse::is_in_mount;

use crate::failure::{Failure, Reason, Result};
use crate::session::{Access, Session};
use crate::text::printable;

/// Message for a path that is in no mount of Shoal.
pub(crate) const NOT_OURS: &str =
    "is not in a mounted Shoal volume (in one that is not mounted write VOLUME:/path)";

/// Opens a file or directory to ask through it.
pub(crate) fn open_at(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a directory of a mount, and makes calls through it.
pub(crate) fn session(dir: &Path) -> Result<Session> {
    let opened =
        open_at(dir).map_err(|error| Failure::usage(dir.display(), Reason::from(error)))?;
    if !is_in_mount(&opened) {
        let what = "is not in a mounted Shoal volume (name its file or device, or where it is \
                    mounted)";
        return Err(Failure::usage(dir.display(), what));
    }
    Ok(Session::through(opened, dir))
}

/// Works as [`Session::with`] on a volume, or on the mount that a directory is in.
pub(crate) fn at<T>(
    place: &Path,
    access: Access,
    work: impl FnOnce(&Session) -> Result<T>,
) -> Result<T> {
    match place.is_dir() {
        true => work(&session(place)?),
        false => Session::with(place, access, work),
    }
}

/// Failure of a call about the volume or the mount as a whole.
pub(crate) fn failed(session: &Session, error: &Error) -> Failure {
    match session.path.is_dir() {
        true => refused(&session.path, error),
        false => Failure::volume(session.path.display(), error),
    }
}

/// Asks the server of the mount that `dir` is in.
pub(crate) fn ask<T>(
    dir: &Path,
    question: impl FnOnce(&Session) -> shoal::raw::Result<T>,
) -> Result<T> {
    question(&session(dir)?).map_err(|error| refused(dir, &error))
}

/// Failure of a mount that has refused to answer, with the remedy.
pub(crate) fn refused(dir: &Path, error: &Error) -> Failure {
    let object = printable(dir.as_os_str().as_bytes()).into_owned();
    match error.code() {
        Code::NotPermitted => {
            let what = format!("{error} (ask as root, or as the user who mounted it)");
            Failure::failed(object, what)
        }
        _ => Failure::failed(object, error),
    }
}
