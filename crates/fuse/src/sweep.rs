//! Names below a removed tree: the kernel drops them while nobody waits.
//!
//! The kernel drops a name together with every cached name below it, one by one: for 150,000 files
//! half a second, during which it holds the lock of the directory. So the name is made to *expire*
//! first ([`Notice::Name`]), which takes no time: the next caller to use the name makes the kernel
//! look it up again, and learns that it does not exist. But that caller then drops the names below,
//! and waits. So the server is that caller itself, in the background.
//!
//! | thread | in the kernel |
//! | --- | --- |
//! | first | looks the expired name up: LOOKUP, `ENOENT`; unhashes it; drops the names below |
//! | second | does the same, finds the name unhashed, has nothing to drop, and returns |
//!
//! When one of the two has returned the name is unhashed, and no other caller finds it: the reply
//! to the removal may go out. It does not matter which of them drops the rest. Neither holds the
//! lock of the directory meanwhile, as the thread that delivers notices would.
//!
//! The look-up goes through a private copy of the mount (`open_tree`), so that an unmount does not
//! fail because the mount is in use: the connection ends when the names have been dropped. Only a
//! process that may mount can make such a copy. Without one the names are dropped by a notice that
//! nobody waits for.

use crate::apart::leave_process_table;
use crate::notices::{Notice, Notices};
use crate::table;
use parking_lot::{Condvar, Mutex};
use rustix::fs::{AtFlags, CWD, major, minor, statat};
use rustix::io::Errno as Os;
use rustix::mount::{OpenTreeFlags, open_tree};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Most trees whose names are dropped at a time; those of others are left to a notice.
const SWEEPS_MAX: usize = 8;

/// Drops names in the background.
#[derive(Default)]
pub(crate) struct Sweeper {
    place: OnceLock<Arc<Place>>,
    running: Arc<AtomicUsize>,
}

/// Mount point and identity of the mount.
struct Place {
    /// The top of the mount.
    dir: PathBuf,
    /// Its device number: there may be another mount on the same directory by then.
    device: String,
}

/// A name to be looked up, and the notice that is sent if it cannot be.
struct Sweep {
    place: Arc<Place>,
    path: PathBuf,
    notices: Arc<Notices>,
    /// Notice that drops the name and those below it.
    drop: Mutex<Option<Notice>>,
    is_unhashed: Mutex<bool>,
    returned: Condvar,
    /// Counts the sweep among those that run.
    _running: Running,
}

struct Running(Arc<AtomicUsize>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Sweeper {
    /// Sets the mount point. Before that, and if the mount cannot be found, names are left to
    /// notices.
    pub(crate) fn is_mounted_on(&self, dir: &Path) -> io::Result<()> {
        if let Some(entry) = table::mount_at(dir)? {
            let place = Place { dir: dir.to_owned(), device: entry.device };
            // Set once: a mount stays where it is.
            let _ = self.place.set(Arc::new(place));
        }
        Ok(())
    }

    /// Begins to drop an expired name, at `path` below the top of the mount, and the names below
    /// it. Waits until the name is unhashed, or for `at_most`. If no thread can be started, the
    /// notice `drop` does the same.
    pub(crate) fn sweep(
        &self,
        path: Option<PathBuf>,
        notices: &Arc<Notices>,
        drop: Notice,
        at_most: Duration,
    ) {
        let begun = Instant::now();
        let (Some(place), Some(path), Some(running)) = (self.place.get(), path, self.permit())
        else {
            notices.give([drop]);
            return;
        };
        let sweep = Arc::new(Sweep {
            place: place.clone(),
            path,
            notices: notices.clone(),
            drop: Mutex::new(Some(drop)),
            is_unhashed: Mutex::new(false),
            returned: Condvar::new(),
            _running: running,
        });
        let inner = sweep.clone();
        let started = Builder::new().name("shoal-sweep".to_owned()).spawn(move || inner.run());
        if let Err(error) = started {
            return sweep.leave_to_notice(&error);
        }
        let mut is_unhashed = sweep.is_unhashed.lock();
        while !*is_unhashed {
            if sweep.returned.wait_until(&mut is_unhashed, begun + at_most).timed_out() {
                break;
            }
        }
    }

    fn permit(&self) -> Option<Running> {
        let running = Running(self.running.clone());
        (self.running.fetch_add(1, SeqCst) < SWEEPS_MAX).then_some(running)
    }
}

impl Sweep {
    /// Runs the first thread.
    fn run(self: Arc<Sweep>) {
        let inner = self.clone();
        let second = Builder::new().name("shoal-sweep".to_owned());
        // Without a second thread the reply waits for the first.
        let _ = second.spawn(move || inner.look_up());
        self.look_up();
    }

    /// Looks the name up, and so makes the kernel drop it.
    fn look_up(&self) {
        // If the server is killed, this thread waits for the next one's answer: with the keeper's
        // socket it would have that wait for its end.
        let top = leave_process_table(None).and_then(|()| Ok(self.place.copy()?));
        let top = match top {
            Ok(top) => top,
            Err(error) => return self.leave_to_notice(&error),
        };
        match statat(&top, &self.path, AtFlags::SYMLINK_NOFOLLOW) {
            // It may have found a new file of that name.
            Ok(_) | Err(Os::NOENT) => self.wake(),
            Err(error) => self.leave_to_notice(&error.into()),
        }
    }

    fn leave_to_notice(&self, error: &io::Error) {
        if let Some(drop) = self.drop.lock().take() {
            tracing::debug!(%error, path = %self.path.display(), "names are dropped by a notice");
            self.notices.give([drop]);
        }
        self.wake();
    }

    fn wake(&self) {
        *self.is_unhashed.lock() = true;
        self.returned.notify_all();
    }
}

impl Place {
    /// Returns a detached copy of the mount.
    fn copy(&self) -> Result<OwnedFd, Os> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let top = open_tree(CWD, &self.dir, flags)?;
        let found = rustix::fs::fstat(&top)?.st_dev;
        match format!("{}:{}", major(found), minor(found)) == self.device {
            true => Ok(top),
            false => Err(Os::STALE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(sweeper: &Sweeper, path: Option<&str>) -> usize {
        let notices = Arc::new(Notices::default());
        notices.open(Box::new(|_| ()));
        let before = notices.give([]);
        let drop = Notice::Name { dir: 1, name: (*b"n").into(), expire: false };
        sweeper.sweep(path.map(PathBuf::from), &notices, drop, Duration::from_secs(20));
        (notices.give([]) - before) as usize
    }

    #[test]
    fn without_a_mount_the_kernel_is_told() {
        let sweeper = Sweeper::default();
        assert_eq!(told(&sweeper, Some("n")), 1);
        sweeper.is_mounted_on(Path::new("/no/such/mount")).unwrap();
        assert_eq!(told(&sweeper, Some("n")), 1);
        let place = Place { dir: "/no/such/mount".into(), device: "0:0".into() };
        assert!(sweeper.place.set(Arc::new(place)).is_ok());
        assert_eq!(told(&sweeper, None), 1);
        assert_eq!(told(&sweeper, Some("n")), 1, "once, although both threads fail");
        let place = Place { dir: "/".into(), device: "nowhere".into() };
        assert!(place.copy().is_err(), "another mount, or no right to copy it");
    }

    #[test]
    fn many_at_a_time_are_left_to_notices() {
        let sweeper = Sweeper::default();
        let permits: Vec<_> = (0..SWEEPS_MAX).map(|_| sweeper.permit().unwrap()).collect();
        assert!(sweeper.permit().is_none() && sweeper.permit().is_none());
        drop(permits);
        assert_eq!(sweeper.running.load(SeqCst), 0);
        assert!(sweeper.permit().is_some());
    }
}
