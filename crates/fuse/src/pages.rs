//! Cached pages of files, and direct writes that bypass them.
//!
//! The kernel drops the pages in the range of a direct write (`O_DIRECT`) when the write begins,
//! and, if it is a synchronous one, again when it has ended. After an asynchronous one (io_uring,
//! `libaio`) Linux 6.18 does not: whoever reads meanwhile through the page cache may be given the
//! old data, and the kernel keeps the page after the write has completed.
//!
//! So the server has the range dropped (INVAL_INODE) between a direct write and its reply. A page
//! that is being filled is locked, and the kernel waits for that lock, and so for a reply to READ:
//! the thread that delivers notices waits, never one that answers READ. The handler waits for the
//! notice, on a thread that may block, and for a limited time.
//!
//! *When no notice is needed*, which is nearly always: nobody has read the file through the page
//! cache for [`KEPT_S`], which no write exceeds from its beginning to its reply; or nobody ever
//! has, of a file that was made lately.
//!
//! **A file that is made to be written** (`O_WRONLY`, without `O_APPEND`) bypasses the page cache
//! as if by `O_DIRECT`: the reply to CREATE says so, for this descriptor alone. So its writes are
//! sent as they are. Through the page cache each that begins within a page is two requests (the
//! kernel ends one where a page is not whole), and before the first of them the kernel asks for
//! `security.capability`. What is read later is read once more than it would be, unless the end of
//! the file is within a page: then the kernel reads that in any case. Others have the file's data
//! in pages as ever.

use shoal::raw::Ino;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// Seconds after which a write that was under way during a read has completed.
const KEPT_S: u64 = 60;
/// Inodes share a slot by the low bits of their numbers. A shared one costs superfluous notices.
const SLOTS: usize = 4096;
/// Most handlers that wait for a notice at a time. A transport has more spare threads, so that some
/// are left to answer READ.
const WAITING_MAX: usize = 96;

/// Files that were read through the page cache lately.
pub(crate) struct Pages {
    start: Instant,
    /// Second of the last read of an inode of this slot, counted from 1; 0: never.
    read: Box<[AtomicU64]>,
    /// The last inode of this slot that was made to be written, and was not read since; 0: none.
    made: Box<[AtomicU64]>,
    waiting: AtomicUsize,
}

impl Default for Pages {
    fn default() -> Pages {
        let [read, made] =
            [(); 2].map(|()| std::iter::repeat_with(AtomicU64::default).take(SLOTS).collect());
        Pages { start: Instant::now(), read, made, waiting: AtomicUsize::new(0) }
    }
}

/// Permit to wait for a notice.
pub(crate) struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Pages {
    /// Records that data of `ino` is about to be read for the page cache. Must be called before the
    /// read: a write after it is sure to see the record.
    #[inline]
    pub(crate) fn are_read(&self, ino: Ino) {
        let (slot, now) = (self.slot(ino), self.now());
        // Most reads write nothing to memory that others use.
        if slot.load(SeqCst) != now {
            slot.store(now, SeqCst);
        }
        let made = self.made(ino);
        if made.load(SeqCst) == ino.0 {
            // Unless another one was made meanwhile.
            let _ = made.compare_exchange(ino.0, 0, SeqCst, SeqCst);
        }
    }

    /// Records that `ino` was made just now: the page cache has nothing of it.
    #[inline]
    pub(crate) fn is_made(&self, ino: Ino) {
        self.made(ino).store(ino.0, SeqCst);
    }

    /// Takes all files for read: by a server before this one.
    pub(crate) fn inherit(&self) {
        let now = self.now();
        self.read.iter().for_each(|slot| slot.store(now, SeqCst));
    }

    /// Returns whether the page cache may hold data of `ino` from before a write that has been
    /// made. One that has read such data had recorded that before ([`Pages::are_read`]: the time,
    /// then that it is not as it was made), so both words have it.
    #[inline]
    pub(crate) fn may_be_old(&self, ino: Ino) -> bool {
        if self.made(ino).load(SeqCst) == ino.0 {
            return false;
        }
        let read = self.slot(ino).load(SeqCst);
        read != 0 && self.now() - read.min(self.now()) <= KEPT_S
    }

    /// Returns a permit to wait for a notice; `None` if too many handlers wait.
    pub(crate) fn wait(&self) -> Option<Waiting<'_>> {
        let waiting = Waiting(&self.waiting);
        (self.waiting.fetch_add(1, SeqCst) < WAITING_MAX).then_some(waiting)
    }

    fn now(&self) -> u64 {
        self.start.elapsed().as_secs() + 1
    }

    fn slot(&self, ino: Ino) -> &AtomicU64 {
        &self.read[ino.0 as usize % SLOTS]
    }

    fn made(&self, ino: Ino) -> &AtomicU64 {
        &self.made[ino.0 as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_read_may_be_old() {
        let pages = Pages::default();
        assert!(!pages.may_be_old(Ino(5)));
        pages.are_read(Ino(5));
        assert!(pages.may_be_old(Ino(5)) && !pages.may_be_old(Ino(6)));
        pages.slot(Ino(5)).store(0, SeqCst);
        assert!(!pages.may_be_old(Ino(5)));
        // Another one of its slot was read, and it was made since.
        let other = Ino(5 + SLOTS as u64);
        pages.are_read(other);
        assert!(pages.may_be_old(Ino(5)));
        pages.is_made(Ino(5));
        assert!(!pages.may_be_old(Ino(5)) && pages.may_be_old(other));
        pages.are_read(other);
        assert!(!pages.may_be_old(Ino(5)));
        pages.are_read(Ino(5));
        assert!(pages.may_be_old(Ino(5)));
    }

    #[test]
    fn waiting_is_limited() {
        let pages = Pages::default();
        let all: Vec<_> = (0..WAITING_MAX).map(|_| pages.wait().unwrap()).collect();
        assert!(pages.wait().is_none());
        drop(all);
        assert!(pages.wait().is_some());
    }
}
