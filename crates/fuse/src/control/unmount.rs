//! Unmounting, and the wait for the server's end.
//!
//! Problem: a server ends when the *last* mount of its connection is gone, and there may be others:
//! a bind mount, another mount namespace, a container. A wait for the server's end then never ends.
//! Rule: after the unmount the kernel says whether the filesystem itself is gone, by an
//! event for a watch on the mount point (`IN_UNMOUNT`); it is queued before the unmount returns. A
//! watch keeps nothing mounted. Where none can be had, the mounts that `/proc` shows decide.

use super::processes::{OtherMount, holders, may_serve, mounts_of, stopped_of};
use super::{ask_pid, find, take_down};
use crate::mount::{kernel, refused};
use crate::table::{self, MountEntry};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno as Os;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use shoal::raw::{Code, Result};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for the event of a filesystem that is gone. The kernel queues it in time; a kernel
/// that defers it must not be taken for one that has other mounts.
const EVENT_MAX: Duration = Duration::from_secs(1);
/// Time after which a server that does not end is looked at.
const SLOW: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Pause between two looks for the event.
const PAUSE: Duration = Duration::from_millis(10);

/// The server of a mount, as far as it can be found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// This process, as the mount has told.
    Process(u32),
    /// It has ended, and no other one serves the mount.
    Ended,
    /// The mount could not be asked: it is of a fifo, or the caller may not read it.
    Unknown,
}

/// Result of an unmount.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Unmounted {
    /// The server has released the volume, or ended otherwise, as far as it could be watched.
    Ended,
    /// This mount is gone; the server goes on, because of other mounts. These are known.
    Elsewhere(Vec<OtherMount>),
}

/// An unmount that has not begun: the mount can still be asked for its server.
#[derive(Debug)]
pub struct Unmount {
    entry: MountEntry,
    server: Server,
    /// Tells the end of the filesystem.
    watch: Option<OwnedFd>,
    /// The server's processes: their numbers, and descriptors, since a number may be used again.
    processes: Vec<(u32, OwnedFd)>,
}

impl Unmount {
    /// Finds the server of the mount on `dir`: a directory, or a file that is a bind mount.
    pub fn prepare(dir: &Path) -> Result<Unmount> {
        let path = find(dir)?;
        let entry = table::mount_at(&path).ok().flatten();
        let entry = entry.ok_or_else(|| refused(Code::Invalid, "unmount", &Os::INVAL.into()))?;
        let server = server_at(&entry);
        let known = match server {
            Server::Process(pid) if may_serve(pid) => vec![pid],
            // Its number is one of another pid namespace.
            Server::Process(_) | Server::Unknown => holders(&entry).collect(),
            Server::Ended => Vec::new(),
        };
        let others = known.into_iter().filter(|pid| *pid != std::process::id());
        let watch = watch_filesystem(&entry.dir).ok();
        let processes = others.filter_map(|pid| Some((pid, watch_process(pid)?))).collect();
        Ok(Unmount { entry, server, watch, processes })
    }

    /// Returns the server.
    pub fn server(&self) -> Server {
        self.server
    }

    /// Returns the server's processes that are seen here, without this one.
    pub fn seen(&self) -> Vec<u32> {
        self.processes.iter().map(|(pid, _)| *pid).collect()
    }

    /// Unmounts. Unless other mounts remain, it returns when the server has ended: everything is
    /// on disk then, and the volume can be opened again.
    ///
    /// If a process of the server is stopped by a signal, `stopped` is called with its number after
    /// about a second, and the wait goes on.
    pub fn run(self, stopped: impl Fn(u32)) -> Result<Unmounted> {
        take_down(&self.entry.dir, false)?;
        if let Some(others) = self.remaining() {
            return Ok(Unmounted::Elsewhere(others));
        }
        for (pid, process) in &self.processes {
            wait_for_end(process, || stopped_of(*pid).into_iter().for_each(&stopped))
                .map_err(|error| refused(Code::Io, "cannot wait for the server's end", &error))?;
        }
        Ok(Unmounted::Ended)
    }

    /// Returns the other mounts, perhaps none of them known; `None` if the filesystem is gone.
    fn remaining(&self) -> Option<Vec<OtherMount>> {
        let Some(watch) = &self.watch else {
            return Some(mounts_of(&self.entry.device)).filter(|others| !others.is_empty());
        };
        let begun = Instant::now();
        while !is_gone(watch) {
            let others = mounts_of(&self.entry.device);
            if !others.is_empty() || begun.elapsed() > EVENT_MAX {
                return Some(others);
            }
            std::thread::sleep(PAUSE);
        }
        None
    }
}

/// Unmounts `dir` and waits until its server has ended, unless other mounts of it remain:
/// everything is on disk then, and the volume can be opened again.
///
/// In the server's own process it does not wait, since that would be for ever: there
/// [`crate::Mount::wait`] returns when the mount has ended.
pub fn unmount_and_wait(dir: &Path) -> Result<Unmounted> {
    Unmount::prepare(dir)?.run(|_| ())
}

/// Unmounts `dir`. Returns when the kernel has detached it; the server may still be writing (see
/// [`unmount_and_wait`]).
pub fn unmount(dir: &Path) -> Result<()> {
    take_down(&find(dir)?, false)
}

/// Detaches `dir` at once, also while files in it are in use; the mount ends with its last user.
pub fn unmount_lazy(dir: &Path) -> Result<()> {
    take_down(&find(dir)?, true)
}

/// Unmounts `dir` by force: calls that wait for the server fail at once, and the server closes the
/// volume. Fails while files are in use all the same.
pub fn unmount_by_force(dir: &Path) -> Result<()> {
    let dir = find(dir)?;
    let what = format!("cannot unmount {}", dir.display());
    kernel::unmount_by_force(&dir)
        .map_err(|error| refused(crate::mount::code_of(&error), &what, &error))
}

/// Asks a mount for its server.
fn server_at(entry: &MountEntry) -> Server {
    // A file may be mounted, by a bind mount. A fifo is opened without its server.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&entry.dir, flags, Mode::empty());
    let answer = opened.map_err(io::Error::from).and_then(ask_pid);
    match answer.map_err(|error| Os::from_io_error(&error)) {
        Ok(pid) => Server::Process(pid),
        // The last: the kernel takes a dead server's rings apart in the background.
        Err(Some(Os::NOTCONN | Os::CONNABORTED | Os::CANCELED)) => Server::Ended,
        Err(_) => Server::Unknown,
    }
}

/// Watches the filesystem of a mount point.
fn watch_filesystem(dir: &Path) -> rustix::io::Result<OwnedFd> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    // The event is sent whatever else is asked for, and something must be.
    inotify::add_watch(&watch, dir, WatchFlags::DELETE_SELF)?;
    Ok(watch)
}

/// Returns whether the watched filesystem is gone.
fn is_gone(watch: &OwnedFd) -> bool {
    let mut buffer = [MaybeUninit::uninit(); 512];
    let mut events = Reader::new(watch, &mut buffer);
    while let Ok(event) = events.next() {
        if event.events().contains(ReadFlags::UNMOUNT) {
            return true;
        }
    }
    false
}

/// Returns a descriptor that becomes readable when process `pid` ends.
fn watch_process(pid: u32) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

/// Waits for the end of a process; calls `slow` once, if it takes long.
fn wait_for_end(process: &OwnedFd, slow: impl FnOnce()) -> io::Result<()> {
    let mut polled = [PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN)];
    let (mut limit, mut slow) = (Some(&SLOW), Some(slow));
    loop {
        match poll(&mut polled, limit) {
            Err(Os::INTR) => {}
            Ok(0) => {
                limit = None;
                slow.take().into_iter().for_each(|slow| slow());
            }
            outcome => return outcome.map(drop).map_err(io::Error::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_mount_is_refused() {
        let dir = std::env::temp_dir();
        let waited = unmount_and_wait(&dir).map(drop);
        for error in [unmount(&dir), waited, unmount_lazy(Path::new("/proc"))] {
            let text = error.unwrap_err().to_string();
            assert!(text.ends_with("no Shoal volume is mounted there"), "{text}");
        }
    }

    #[test]
    fn a_watch_tells_only_the_end_of_a_filesystem() {
        let dir = std::env::temp_dir().join(format!("shoal-watched-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let watch = watch_filesystem(&dir).unwrap();
        std::fs::remove_dir(&dir).unwrap();
        assert!(!is_gone(&watch), "an event of another kind");
    }
}
