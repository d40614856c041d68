//! Client of a mount: finds its server, syncs, remounts and unmounts it, traces its requests, and
//! makes calls through an open file ([`calls_by`]).

mod facts;
mod observe;
mod processes;
mod unmount;

pub use facts::{facts_of, remount, remount_read_only};
pub use observe::{Traced, Tracer};
pub use processes::{OtherMount, ServerProcess, servers_without_asking};
pub use unmount::{
    Server, Unmount, Unmounted, unmount, unmount_and_wait, unmount_by_force, unmount_lazy,
};

use crate::mount::{code_of, refused, unmount_dir};
use crate::protocol::flags::{IOCTL_CALL, IOCTL_SERVER_PID, IOCTL_SYNC};
use crate::table;
use rustix::fs::{AtFlags, Mode, OFlags, StatVfsMountFlags, StatxFlags, fstatvfs, makedev, statx};
use rustix::io::Errno as Os;
use shoal::raw::{Code, Error, Result};
use shoal_session::page::{ByPage, PAGE, Question};
use shoal_session::{Calls, Remote};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Message for a file of no mount.
const NOT_OURS: &str = "not in a mounted Shoal volume";

/// Returns whether a Shoal volume is mounted on `dir` (and not somewhere below or above it).
pub fn is_mounted(dir: &Path) -> bool {
    find(dir).is_ok()
}

/// Returns the mounted volumes: where, and the source.
pub fn mounts() -> io::Result<Vec<(PathBuf, OsString)>> {
    Ok(table::ours()?.into_iter().map(|entry| (entry.dir, entry.source)).collect())
}

/// Returns the mount of Shoal that a path is in: its directory and source.
pub fn mount_above(path: &Path) -> io::Result<Option<(PathBuf, OsString)>> {
    let path = table::canonical(path)?;
    let above = mounts()?.into_iter().filter(|(dir, _)| path.starts_with(dir));
    Ok(above.max_by_key(|(dir, _)| dir.as_os_str().len()))
}

/// Returns the process that serves the mount on `dir`; `None`: there is no such mount, or it does
/// not answer.
pub fn server_pid(dir: &Path) -> Option<u32> {
    let dir = find(dir).ok()?;
    open_dir(&dir).and_then(ask_pid).ok()
}

/// Makes everything acknowledged so far durable on the volume mounted on or above `dir`.
pub fn sync(dir: &Path) -> Result<()> {
    let what = format!("cannot sync {}", dir.display());
    let opened = open_dir(dir).map_err(|error| refused(code_of(&error), &what, &error))?;
    // SAFETY: the ioctl has no argument.
    let request = unsafe { rustix::ioctl::NoArg::<IOCTL_SYNC>::new() };
    // SAFETY: as above; it touches no memory of ours.
    match unsafe { rustix::ioctl::ioctl(&opened, request) } {
        Ok(()) => Ok(()),
        Err(Os::NOTTY | Os::INVAL | Os::NOSYS | Os::OPNOTSUPP) => {
            Err(Error::refused(Code::Invalid, format!("{what}: {NOT_OURS}")))
        }
        Err(os) => Err(refused(code_of(&os.into()), &what, &os.into())),
    }
}

/// The page of a call, as the kernel copies it.
#[repr(C, align(8))]
struct Page([u8; PAGE]);

/// Returns calls about the mount that an open file is in, and about that file
/// ([`shoal_session::page`]): made through the file, wherever the mount's socket is, for the user
/// who makes them.
///
/// Besides its own errors each returns `EINVAL` when the file is in no mount of Shoal,
/// `EOPNOTSUPP` when its server is of another version, and `EROFS` for a change by a file that was
/// opened in a read-only view of the mount.
pub fn calls_by(opened: OwnedFd) -> Arc<dyn Calls> {
    Arc::new(Remote(ByPage(move |page: &mut [u8; PAGE]| carry(&opened, page))))
}

fn carry(opened: &OwnedFd, page: &mut [u8; PAGE]) -> Result<()> {
    // The server does not know of a read-only view.
    if Question::parse(page)?.is_some_and(|question| question.may_change())
        && is_read_only_view(opened).map_err(|error| code_of(&error))?
    {
        return Err(Code::ReadOnly.into());
    }
    let mut carried = Page(*page);
    // SAFETY: the ioctl reads and writes as many bytes as its number says: a page's.
    let request = unsafe { rustix::ioctl::Updater::<IOCTL_CALL, Page>::new(&mut carried) };
    // SAFETY: as above.
    match unsafe { rustix::ioctl::ioctl(opened, request) } {
        Ok(()) => {
            *page = carried.0;
            Ok(())
        }
        Err(Os::NOTTY) => Err(Error::refused(Code::Invalid, NOT_OURS)),
        Err(Os::PROTONOSUPPORT) => Err(Error::refused(
            Code::NotSupported,
            "another version of shoal serves it: mount it again",
        )),
        Err(os) => Err(code_of(&os.into()).into()),
    }
}

fn is_read_only_view(opened: &OwnedFd) -> io::Result<bool> {
    Ok(fstatvfs(opened)?.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// A place in a mount of Shoal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MountPlace {
    /// Number of the mount's filesystem (`st_dev`).
    pub device: u64,
    /// Path from the top of the mount; empty for the top. `None`: it cannot be told, or the mount
    /// shows other owners here than it has.
    pub path: Option<Vec<u8>>,
    /// Nothing may be changed by this path.
    pub is_read_only: bool,
}

/// Returns the place of an open file or directory, also of one that was opened by `O_PATH`. `None`:
/// it is in no mount of Shoal. The server is not asked.
///
/// # Errors
/// Those of `statx`, and of reading `/proc`.
pub fn place_of(opened: impl AsFd) -> io::Result<Option<MountPlace>> {
    let found = statx(&opened, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE)?;
    let (major, minor) = (found.stx_dev_major, found.stx_dev_minor);
    let mounts = table::of_device(major, minor)?;
    if mounts.is_empty() {
        return Ok(None);
    }
    let link = format!("/proc/self/fd/{}", opened.as_fd().as_raw_fd());
    let found = std::fs::read_link(link).ok().and_then(|path| {
        let above = mounts.iter().filter(|mount| path.starts_with(&mount.dir));
        let mount = above.max_by_key(|mount| mount.dir.as_os_str().len())?;
        let below = mount.root.join(path.strip_prefix(&mount.dir).ok()?);
        let below = below.strip_prefix("/").unwrap_or(&below).as_os_str().as_bytes().to_vec();
        Some(((!mount.is_mapped).then_some(below), mount.is_read_only_here))
    });
    let (path, is_read_only) = found.unwrap_or((None, true));
    Ok(Some(MountPlace { device: makedev(major, minor), path, is_read_only }))
}

/// Returns whether an open file is in a mount of Shoal.
pub fn is_in_mount(opened: impl AsFd) -> bool {
    ask_pid(opened).is_ok()
}

/// Returns the path of `dir` in the list of mounts, if a Shoal volume is mounted there.
fn find(dir: &Path) -> Result<PathBuf> {
    let shown = dir.display();
    let path = table::canonical(dir)
        .map_err(|error| refused(code_of(&error), &shown.to_string(), &error))?;
    match table::mount_at(&path) {
        Ok(Some(entry)) if entry.fs_type == table::FS_TYPE => Ok(path),
        _ => {
            Err(Error::refused(Code::Invalid, format!("{shown}: no Shoal volume is mounted there")))
        }
    }
}

fn open_dir(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(dir, flags, Mode::empty())?)
}

fn ask_pid(opened: impl AsFd) -> io::Result<u32> {
    // SAFETY: the ioctl writes a u32 through its pointer argument, which is what a getter passes.
    let request = unsafe { rustix::ioctl::Getter::<IOCTL_SERVER_PID, u32>::new() };
    // SAFETY: as above.
    Ok(unsafe { rustix::ioctl::ioctl(&opened, request)? })
}

/// Time for which files in a mount must be in use before it counts as busy. A program that looks
/// through the files of all processes refers to each for an instant.
const BUSY_FOR: Duration = Duration::from_millis(200);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

fn is_busy(error: &io::Error) -> bool {
    Os::from_io_error(error) == Some(Os::BUSY)
}

fn take_down(dir: &Path, lazy: bool) -> Result<()> {
    let what = format!("cannot unmount {}", dir.display());
    let begun = Instant::now();
    let done = loop {
        match unmount_dir(dir, lazy) {
            Err(error) if is_busy(&error) && begun.elapsed() < BUSY_FOR => thread::sleep(PAUSE),
            done => break done,
        }
    };
    done.map_err(|error| match Os::from_io_error(&error) {
        Some(Os::BUSY) => {
            Error::refused(Code::Busy, format!("{what}: files or directories in it are in use"))
        }
        _ => refused(code_of(&error), &what, &error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_mount_is_refused() {
        let dir = std::env::temp_dir();
        assert!(!is_mounted(&dir));
        assert_eq!(server_pid(&dir), None);
        let text = sync(&dir).unwrap_err().to_string();
        assert!(text.contains("not in a mounted Shoal volume"), "{text}");
    }
}
