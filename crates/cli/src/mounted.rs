//! Mounted volumes, for the commands that ask one through its mount.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::failure::{Failure, Reason, Result};
use crate::output::printable;

/// What to say of a path that is nowhere in a mount of ours.
pub const NOT_OURS: &str =
    "is not in a mounted Shoal volume (in one that is not mounted write VOLUME:/path)";

/// Opens a file or directory to ask through it.
pub fn open_at(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// Opens a directory of a mount.
pub fn open(dir: &Path) -> Result<OwnedFd> {
    open_at(dir).map_err(|error| Failure::usage(dir.display(), Reason::from(error)))
}

/// Whether an error says that this is no mount of ours.
pub fn is_not_ours(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::NOTTY)
}

/// Why a mount has not answered, with what to do.
pub fn refused(dir: &Path, error: io::Error) -> Failure {
    let object = printable(dir.as_os_str().as_bytes()).into_owned();
    if is_not_ours(&error) {
        let what = "is not in a mounted Shoal volume (name its file or device, or where it is \
                    mounted)";
        return Failure::usage(object, what);
    }
    let is_permission = Errno::from_io_error(&error) == Some(Errno::PERM);
    let reason = Reason::from(error);
    match is_permission {
        true => {
            Failure::failed(object, format!("{reason} (ask as root, or as who has mounted it)"))
        }
        false => Failure::failed(object, reason),
    }
}
