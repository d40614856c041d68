//! Mounted volumes, for the commands that ask their servers.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::failure::{Failure, Reason, Result};
use crate::text::printable;

/// Message for a path that is in no mount of Shoal.
pub(crate) const NOT_OURS: &str =
    "is not in a mounted Shoal volume (in one that is not mounted write VOLUME:/path)";

/// Opens a file or directory to ask through it.
pub(crate) fn open_at(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a directory of a mount.
pub(crate) fn open(dir: &Path) -> Result<OwnedFd> {
    open_at(dir).map_err(|error| Failure::usage(dir.display(), Reason::from(error)))
}

/// Asks the server of the mount that `dir` is in.
pub(crate) fn ask<T>(dir: &Path, question: impl FnOnce(&OwnedFd) -> io::Result<T>) -> Result<T> {
    question(&open(dir)?).map_err(|error| refused(dir, error))
}

/// Returns whether an error means that this is no mount of Shoal.
pub(crate) fn is_not_ours(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOTTY)
}

/// Failure of a mount that has refused to answer, with the remedy.
pub(crate) fn refused(dir: &Path, error: io::Error) -> Failure {
    let object = printable(dir.as_os_str().as_bytes()).into_owned();
    if is_not_ours(&error) {
        let what = "is not in a mounted Shoal volume (name its file or device, or where it is \
                    mounted)";
        return Failure::usage(object, what);
    }
    let remedy = match Errno::from_io_error(&error) {
        Some(Errno::PERM) => " (ask as root, or as the user who mounted it)",
        Some(Errno::PROTONOSUPPORT) => " (another version of shoal serves it: mount it again)",
        _ => return Failure::failed(object, Reason::from(error)),
    };
    Failure::failed(object, format!("{}{remedy}", Reason::from(error)))
}
