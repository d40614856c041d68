//! How a thread waits for the next request of the device: it looks, sleeps in the kernel, or is
//! parked while another thread does that.

use crate::look::{Look, Looking, Step};
use crate::preemptions::preemptions;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno as Os;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

/// Requests that a thread has found waiting, one after another, when it calls another thread.
const BACKLOG: u32 = 8;

/// A place from which requests are read.
pub(super) struct Place {
    pub device: Arc<OwnedFd>,
    pub buffer: Vec<u8>,
    /// A read of it waits for a request. `None`: as the server before this one has left it.
    waits: Option<bool>,
}

impl Place {
    pub(super) fn new(device: OwnedFd, buffer: Vec<u8>) -> Place {
        Place { device: Arc::new(device), buffer, waits: None }
    }

    /// Has reads wait for a request, or not.
    #[inline]
    fn wait(&mut self, waits: bool) -> Result<(), Os> {
        if self.waits != Some(waits) {
            let mut flags = fcntl_getfl(&self.device)?;
            flags.set(OFlags::NONBLOCK, !waits);
            fcntl_setfl(&self.device, flags)?;
            self.waits = Some(waits);
        }
        Ok(())
    }

    /// Waits until there is something to read.
    fn sleep(&self) {
        // What it could say a read says, too.
        let _ = poll(&mut [PollFd::new(&self.device, PollFlags::IN)], None);
    }

    fn read(&mut self) -> Result<usize, Os> {
        rustix::io::read(&self.device, &mut self.buffer[..])
    }
}

/// The waits of a thread.
pub(super) struct Waiter {
    look: Look,
    /// Requests that it has found waiting, one after another.
    found: u32,
}

impl Waiter {
    pub(super) fn new(looking: &Looking) -> Waiter {
        Waiter { look: Look::new(looking.is_on()), found: 0 }
    }

    /// Waits for the next request, and reads it.
    #[inline]
    pub(super) fn next(&mut self, looking: &Looking, place: &mut Place) -> Result<usize, Os> {
        let mut watches = false;
        let outcome = self.watch(looking, place, &mut watches);
        if watches {
            looking.watch.end();
        }
        match outcome {
            Ok(Some(filled)) => {
                self.took(looking);
                Ok(filled)
            }
            Ok(None) => self.sleep(looking, place),
            Err(os) => Err(os),
        }
    }

    /// Reads the next request as one of several threads, of which one looks. `None`: nobody looks.
    #[inline]
    fn watch(
        &mut self,
        looking: &Looking,
        place: &mut Place,
        watches: &mut bool,
    ) -> Result<Option<usize>, Os> {
        while looking.is_on() {
            let sleeps = !self.look.pays() && (*watches || looking.watch.begin());
            if sleeps {
                *watches = true;
                self.look.sleeps(Instant::now());
            }
            place.wait(sleeps)?;
            match place.read() {
                Err(Os::AGAIN) => {}
                outcome => return outcome.map(Some),
            }
            if !*watches && !looking.watch.begin() {
                self.look.pause();
                if !looking.watch.park() {
                    break;
                }
                continue;
            }
            *watches = true;
            let now = Instant::now();
            match self.look.step(now, preemptions) {
                Step::Look => std::hint::spin_loop(),
                Step::Sleep => {
                    self.look.sleeps(now);
                    place.sleep();
                }
                Step::Rest => looking.rest(now),
            }
        }
        Ok(None)
    }

    /// Records that a request was taken.
    #[inline]
    fn took(&mut self, looking: &Looking) {
        looking.watch.took();
        let Some(waited) = self.look.found() else {
            self.found += 1;
            if self.found == BACKLOG {
                self.found = 0;
                looking.watch.relieve();
            }
            return;
        };
        self.found = 0;
        looking.count(&waited);
        if waited.is_in_the_way {
            looking.rest(Instant::now());
        }
    }

    /// Sleeps in the kernel until the next request, and reads it: nobody looks.
    fn sleep(&mut self, looking: &Looking, place: &mut Place) -> Result<usize, Os> {
        self.look.pause();
        place.wait(true)?;
        let outcome = place.read();
        match outcome {
            Ok(_) if looking.begins_again() => self.look = Look::new(true),
            // Another thread shares the descriptor, and looks.
            Err(Os::AGAIN) => place.sleep(),
            _ => {}
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use crate::mount::Mount;
    use crate::mount::options::MountOptions;
    use crate::protocol::reply::put;
    use crate::protocol::wire::{AttrOut, FuseAttr};
    use crate::protocol::{Errno, Opcode, Reply, Request};
    use crate::service::Serve;
    use std::sync::{Arc, Condvar, Mutex};
    use std::time::Duration;

    /// A server without files. The lookup of `first` is answered when `second` was looked up.
    struct Meeting(Arc<Shared>);

    #[derive(Default)]
    struct Shared {
        second: Mutex<bool>,
        comes: Condvar,
    }

    impl Serve for Meeting {
        type Shared = Shared;

        fn new(shared: Arc<Shared>) -> Meeting {
            Meeting(shared)
        }

        fn handle(&mut self, request: &mut Request<'_>) -> Reply {
            let attr = FuseAttr { ino: 1, mode: 0o040_755, nlink: 2, ..FuseAttr::default() };
            match (request.opcode, request.name()) {
                (Some(op), _) if op.is_silent() => Reply::Silent,
                (Some(Opcode::Getattr), _) => {
                    let out = AttrOut { attr, ..AttrOut::default() };
                    put(request.body(), 0, &out).map_or_else(Reply::Error, Reply::Body)
                }
                (Some(Opcode::Lookup), Ok(b"first")) => {
                    let second = self.0.second.lock().unwrap();
                    let limit = Duration::from_secs(300);
                    let came = self.0.comes.wait_timeout_while(second, limit, |came| !*came);
                    Reply::Error(if came.unwrap().1.timed_out() {
                        Errno::EIO
                    } else {
                        Errno::ENOENT
                    })
                }
                (Some(Opcode::Lookup), Ok(b"second")) => {
                    *self.0.second.lock().unwrap() = true;
                    self.0.comes.notify_all();
                    Reply::Error(Errno::ENOENT)
                }
                _ => Reply::Error(Errno::ENOENT),
            }
        }

        fn undo(&self, _: Option<Opcode>, _: &mut [u8]) {}
    }

    /// While the thread that has looked is at a request that lasts, another one answers.
    #[test]
    fn a_request_that_lasts_keeps_no_other_one_waiting() {
        if !shoal_skip::can_mount() {
            return;
        }
        for list in ["io_uring=off,threads=2", "io_uring=off,threads=2,no_busy_poll"] {
            let dir = std::env::temp_dir().join(format!("shoal-meeting-{}", std::process::id()));
            std::fs::create_dir(&dir).unwrap();
            let options = MountOptions::parse(list).unwrap();
            let mount = Mount::serving::<Meeting>(Arc::default(), &dir, "meeting", &options);
            let mount = mount.unwrap();
            let missing = |name: &str| {
                let error = std::fs::symlink_metadata(dir.join(name)).unwrap_err();
                assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{name}, {list}");
            };
            // It looks now, and the others are parked.
            (0..2000).for_each(|n| missing(&n.to_string()));
            std::thread::scope(|scope| {
                scope.spawn(|| missing("first"));
                scope.spawn(|| missing("second"));
            });
            crate::mount::unmount_dir(&dir, false).unwrap();
            mount.wait();
            std::fs::remove_dir(&dir).unwrap();
        }
    }
}
