//! Mounts for tests of control files, and the control files of directories.

use super::*;
use rustix::fs::OFlags;
use rustix::io::Errno;
use shoal_fuse::ControlFile;
use std::path::Path;

/// Options of mounts in which OPEN is and is not sent, and each side checks permissions.
pub(crate) const ALL: [&str; 4] =
    ["allow_other", "allow_other,open", "allow_other,no_default_permissions", ""];

/// Runs a test on a mount with each of the options.
pub(crate) fn each(options: &[&str], test: impl Fn(&mut TestMount)) {
    for options in options {
        let Some(mut m) = mount_only(options) else { return };
        chmod(&m.dir, 0o755);
        test(&mut m);
    }
}

/// Opens the control file of a directory.
pub(crate) fn control(dir: &Path) -> Res<ControlFile> {
    let dir = open(dir, OFlags::PATH | OFlags::DIRECTORY)?;
    ControlFile::open(dir).map_err(errno)
}

/// Returns the error number of a system call's failure.
pub(crate) fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap()
}
