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
//! cache for [`KEPT_S`], which no write exceeds from its beginning to its reply.

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
    waiting: AtomicUsize,
}

impl Default for Pages {
    fn default() -> Pages {
        let read = std::iter::repeat_with(AtomicU64::default).take(SLOTS).collect();
        Pages { start: Instant::now(), read, waiting: AtomicUsize::new(0) }
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
    }

    /// Takes all files for read: by a server before this one.
    pub(crate) fn inherit(&self) {
        let now = self.now();
        self.read.iter().for_each(|slot| slot.store(now, SeqCst));
    }

    /// Returns whether the page cache may hold data of `ino` from before a write that has been
    /// made.
    #[inline]
    pub(crate) fn may_be_old(&self, ino: Ino) -> bool {
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
