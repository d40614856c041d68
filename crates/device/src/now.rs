//! Reads and writes of a file that do not wait for its disk (`RWF_NOWAIT`): of what the kernel has
//! in its page cache, and to that, as long as it has room.
//!
//! Not all filesystems can say whether a write would wait (ext4 cannot). There one such write is
//! made at a time, so that a disk that hangs stops one thread. For [`SLOW_FOR`] after a write that
//! took long none is tried. One that is refused says nothing of the disk: it may be the lock that
//! the journal has for a moment.

use rustix::fs::fstatfs;
use rustix::io::{Errno, ReadWriteFlags, preadv2, pwritev2};
use shoal_base::Result;
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Reads that wait, from which on others are not even tried: the kernel begins to read what it does
/// not have, and a disk that hangs takes only so many requests before the next one waits to be
/// taken.
const WAITING_MAX: u32 = 16;
/// Time for which no write is tried after one that has waited: the next one would, too, and what it
/// had allocated in the volume would be of no use.
const SLOW_FOR: Duration = Duration::from_millis(500);
/// Longest time of a write that has not waited: less than the kernel's pauses of who writes too
/// much, and more than copying the largest one.
const SLOW: Duration = Duration::from_millis(20);
/// Attempts of a write with a yield before each, and with a pause: less than a millisecond in all.
const WRITE_YIELDS: usize = 16;
const WRITE_PAUSES: usize = 8;
const WRITE_PAUSE: Duration = Duration::from_micros(50);
/// Filesystems in memory, which know no reads without waiting, and need none.
const MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// How it can be known whether a read waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// The kernel says so.
    Asked,
    /// It never does.
    InMemory,
    /// It cannot: every read may.
    Unknown,
}

/// Knowledge about the reads and writes of a file.
pub(crate) struct Now {
    way: OnceLock<Way>,
    waiting: AtomicU32,
    /// The way of writes, if it has turned out to be another one.
    writes: OnceLock<Way>,
    /// A write is under way of which nobody knows whether it waits.
    writing: AtomicBool,
    opened: Instant,
    /// Milliseconds after that until which no write is tried; 0: it is.
    slow_until: AtomicU64,
}

/// A read that may wait, until it is dropped.
pub(crate) struct Waiting<'n>(&'n Now);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Now {
    fn default() -> Now {
        Now {
            way: OnceLock::new(),
            waiting: AtomicU32::new(0),
            writes: OnceLock::new(),
            writing: AtomicBool::new(false),
            opened: Instant::now(),
            slow_until: AtomicU64::new(0),
        }
    }
}

impl Now {
    /// Notes a read that may wait.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self)
    }

    /// Reads what is there without waiting. `None`: nothing is, or nobody knows.
    pub(crate) fn read(&self, file: &File, buf: &mut [u8], at: u64) -> Option<usize> {
        let way = *self.way.get_or_init(|| way_of(file));
        if way == Way::Unknown || self.waiting.load(Ordering::Relaxed) >= WAITING_MAX {
            return None;
        }
        let flags = match way {
            Way::Asked => ReadWriteFlags::NOWAIT,
            Way::InMemory | Way::Unknown => ReadWriteFlags::empty(),
        };
        // Whatever else is wrong, the read that may wait finds out, and says so.
        preadv2(file, &mut [IoSliceMut::new(buf)], at, flags).ok()
    }

    /// Returns whether a write had to wait a moment ago.
    pub(crate) fn writes_wait(&self) -> bool {
        let until = self.slow_until.load(Ordering::Relaxed);
        until != 0 && self.opened.elapsed().as_millis() < u128::from(until)
    }

    /// Makes a write that may wait, and notes if it did.
    pub(crate) fn timed<R>(&self, write: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let written = write();
        if begun.elapsed() > SLOW {
            let until = self.opened.elapsed() + SLOW_FOR;
            self.slow_until.store(until.as_millis() as u64, Ordering::Relaxed);
        }
        written
    }

    /// Writes all of the slices without waiting, by `write` if nobody can say whether that waits.
    /// `false`: it would wait, and anything may be written.
    pub(crate) fn write(
        &self,
        file: &File,
        bufs: &[IoSlice<'_>],
        at: u64,
        write: impl FnOnce() -> Result<()>,
    ) -> Result<bool> {
        if self.writes_wait() {
            return Ok(false);
        }
        let way = self.writes.get().copied();
        let way = way.unwrap_or_else(|| *self.way.get_or_init(|| way_of(file)));
        if way == Way::Asked {
            match write_now(file, bufs, at) {
                Ok(()) => return Ok(true),
                Err(Errno::OPNOTSUPP) => {
                    self.writes.get_or_init(|| way_unasked(file));
                }
                // If something is wrong, a write that may wait finds out, and says so.
                Err(_) => return Ok(false),
            }
        }
        if self.writes.get().copied().unwrap_or(way) == Way::InMemory {
            return write().map(|()| true);
        }
        if self.writing.swap(true, Ordering::Acquire) {
            return Ok(false);
        }
        let written = write();
        self.writing.store(false, Ordering::Release);
        written.map(|()| true)
    }
}

/// Writes what the page cache takes at once. Tries for the time for which other writes of the file,
/// such as the journal's, have its lock.
fn write_now(file: &File, bufs: &[IoSlice<'_>], mut at: u64) -> std::result::Result<(), Errno> {
    let mut slices: Vec<IoSlice<'_>> = bufs.iter().map(|b| IoSlice::new(b)).collect();
    let mut rest = &mut slices[..];
    let mut tries = 0;
    while !rest.is_empty() {
        match pwritev2(file, rest, at, ReadWriteFlags::NOWAIT) {
            Ok(n) if n > 0 => {
                IoSlice::advance_slices(&mut rest, n);
                at += n as u64;
                continue;
            }
            Ok(_) => return Err(Errno::AGAIN),
            Err(Errno::AGAIN) if tries < WRITE_YIELDS => std::thread::yield_now(),
            Err(Errno::AGAIN) if tries < WRITE_YIELDS + WRITE_PAUSES => {
                std::thread::sleep(WRITE_PAUSE);
            }
            Err(errno) => return Err(errno),
        }
        tries += 1;
    }
    Ok(())
}

fn way_of(file: &File) -> Way {
    match preadv2(file, &mut [IoSliceMut::new(&mut [0])], 0, ReadWriteFlags::NOWAIT) {
        Ok(_) | Err(Errno::AGAIN) => Way::Asked,
        Err(_) => way_unasked(file),
    }
}

fn way_unasked(file: &File) -> Way {
    match fstatfs(file) {
        Ok(fs) if MEMORY.contains(&(fs.f_type as u32)) => Way::InMemory,
        _ => Way::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_written_just_now_is_read_without_waiting_unless_many_wait() {
        let path = std::env::temp_dir().join(format!("shoal-now-{}", std::process::id()));
        let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let now = Now::default();
        let mut buf = [0; 4096];
        if way_of(&file) == Way::Unknown {
            return shoal_skip::skipped("a filesystem that can say whether a read would wait");
        }
        assert_eq!(now.read(&file, &mut buf, 4096), Some(4096));
        assert_eq!(buf, [7; 4096]);
        assert_eq!(now.read(&file, &mut buf, 8192), Some(0), "the end");
        let waiting: Vec<_> = (0..WAITING_MAX).map(|_| now.waiting()).collect();
        assert_eq!(now.read(&file, &mut buf, 0), None);
        drop(waiting);
        assert_eq!(now.read(&file, &mut buf, 0), Some(4096));
    }

    #[test]
    fn a_write_is_not_tried_for_a_while_after_one_that_waited() {
        let file = File::open("/dev/null").unwrap();
        let slices = [IoSlice::new(b"so"), IoSlice::new(b"on")];
        let now = Now::default();
        now.writes.set(Way::InMemory).unwrap();
        assert_eq!(now.write(&file, &slices, 0, || Ok(())), Ok(true));
        now.slow_until.store(u64::MAX, Ordering::Relaxed);
        assert!(now.writes_wait());
        assert_eq!(now.write(&file, &slices, 0, || unreachable!("tried")), Ok(false));
        now.slow_until.store(0, Ordering::Relaxed);
        assert!(!now.writes_wait());
    }

    #[test]
    fn where_nobody_can_say_whether_a_write_waits_one_is_made_at_a_time() {
        let file = File::open("/dev/null").unwrap();
        let slices = [IoSlice::new(b"soon")];
        let now = Now::default();
        now.writes.set(Way::Unknown).unwrap();
        let within = || {
            assert_eq!(now.write(&file, &slices, 0, || unreachable!("a second one")), Ok(false));
            Ok(())
        };
        assert_eq!(now.write(&file, &slices, 0, within), Ok(true));
        now.timed(|| std::thread::sleep(SLOW * 2));
        assert_ne!(now.slow_until.load(Ordering::Relaxed), 0, "it took long");
    }
}
