//! What a program can do with a mount from outside: find its server, sync it, unmount it.

use crate::mount::{code_of, refused, table, unmount_dir};
use crate::protocol::flags::{IOCTL_SERVER_PID, IOCTL_SYNC};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Os;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use shoal::{Code, Error, Result};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Whether a Shoal volume is mounted on `dir` (and not somewhere below or above it).
pub fn is_mounted(dir: &Path) -> bool {
    find(dir).is_ok()
}

/// Process that serves the mount on `dir`; `None`: there is no such mount, or it does not answer.
pub fn server_pid(dir: &Path) -> Option<u32> {
    let dir = find(dir).ok()?;
    ask_pid(&dir).ok()
}

/// Unmounts `dir`. Returns when the kernel has let go of it; the server may still be busy writing
/// (see [`unmount_and_wait`]).
pub fn unmount(dir: &Path) -> Result<()> {
    take_down(&find(dir)?, false)
}

/// Detaches `dir` at once, also while files in it are in use; the mount ends with its last user.
pub fn unmount_lazy(dir: &Path) -> Result<()> {
    take_down(&find(dir)?, true)
}

/// Unmounts `dir` and waits until its server has ended: everything is on disk then, and the volume
/// can be opened by somebody else.
///
/// In the server's own process it does not wait, since that would be for ever: there
/// [`crate::Mount::wait`] tells when the mount has ended.
pub fn unmount_and_wait(dir: &Path) -> Result<()> {
    let dir = find(dir)?;
    // Before the mount is gone, since it is what tells us the server's number; and a descriptor
    // rather than the number, which may be somebody else's by the time we wait.
    let server = ask_pid(&dir).ok().filter(|pid| *pid != std::process::id()).and_then(watch);
    take_down(&dir, false)?;
    match server {
        Some(server) => wait_for_end(&server)
            .map_err(|error| refused(Code::Io, "cannot wait for the server's end", &error)),
        // Dead already, or in a pid namespace that we do not see.
        None => Ok(()),
    }
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
            Err(Error::refused(Code::Invalid, format!("{what}: not in a mounted Shoal volume")))
        }
        Err(os) => Err(refused(code_of(&os.into()), &what, &os.into())),
    }
}

/// The path of `dir` in the list of mounts, if a Shoal volume is mounted there.
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

fn ask_pid(dir: &Path) -> io::Result<u32> {
    let opened = open_dir(dir)?;
    // SAFETY: the ioctl writes a u32 through its pointer argument, which is what a getter passes.
    let request = unsafe { rustix::ioctl::Getter::<IOCTL_SERVER_PID, u32>::new() };
    // SAFETY: as above.
    Ok(unsafe { rustix::ioctl::ioctl(&opened, request)? })
}

/// A descriptor that tells when process `pid` ends.
fn watch(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

fn wait_for_end(process: &OwnedFd) -> io::Result<()> {
    let mut polled = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    loop {
        match poll(&mut polled, None) {
            Err(Os::INTR) => {}
            outcome => return outcome.map(drop).map_err(io::Error::from),
        }
    }
}

fn take_down(dir: &Path, lazy: bool) -> Result<()> {
    let what = format!("cannot unmount {}", dir.display());
    unmount_dir(dir, lazy).map_err(|error| match Os::from_io_error(&error) {
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
        for error in [unmount(&dir), unmount_and_wait(&dir), unmount_lazy(Path::new("/proc"))] {
            let text = error.unwrap_err().to_string();
            assert!(text.ends_with("no Shoal volume is mounted there"), "{text}");
        }
        let text = sync(&dir).unwrap_err().to_string();
        assert!(text.contains("not in a mounted Shoal volume"), "{text}");
    }
}
