//! Mounts for tests of control files, and the control files of directories.

use super::*;
use rustix::fs::OFlags;
use rustix::io::Errno;
use shoal_fuse::ControlFile;
use shoal_fuse::protocol::flags::{IOCTL_ASK, QUESTION};
use shoal_fuse::protocol::question::Question;
use std::os::fd::OwnedFd;
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

/// Opens the control file of a directory as any program can, to ask without [`ControlFile`].
pub(crate) fn raw_control(dir: &Path) -> OwnedFd {
    open(dir.join(".shoal-control"), OFlags::RDONLY | OFlags::DIRECT).unwrap()
}

/// Asks a question; the answer is read from the file.
pub(crate) fn ask(control: &OwnedFd, question: &Question) -> Res<()> {
    #[repr(C, align(8))]
    struct Page([u8; QUESTION]);
    let mut page = Page([0; QUESTION]);
    question.write(&mut page.0).unwrap();
    // SAFETY: the ioctl reads as many bytes as its number says.
    let ask = unsafe { rustix::ioctl::Updater::<IOCTL_ASK, Page>::new(&mut page) };
    // SAFETY: as above.
    unsafe { rustix::ioctl::ioctl(control, ask) }
}
