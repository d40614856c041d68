//! Capabilities that the kernel has taken from files, because somebody was about to change them.
//!
//! Problem: before a privileged user writes to a file with capabilities, the kernel sends
//! REMOVEXATTR, and then a SETATTR that changes nothing. It sends the same SETATTR for a `chown` of
//! neither owner nor group, which takes set-id bits away; the write of a privileged user does not.
//!
//! Rule: the second is the one without the first. Both requests come from one thread, one after the
//! other.

use parking_lot::Mutex;
use shoal::raw::Ino;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most threads between the two requests; beyond that the oldest is forgotten.
const MAX: usize = 64;

/// Files that have lost their capabilities, with the threads that changed them.
#[derive(Default)]
pub(crate) struct Stripped {
    recent: Mutex<VecDeque<(Ino, u32)>>,
    /// Their number, to be read without the lock.
    count: AtomicUsize,
}

impl Stripped {
    /// Records that thread `tid` has removed the capabilities of a file.
    pub(crate) fn add(&self, ino: Ino, tid: u32) {
        let mut all = self.recent.lock();
        // Its last one was another call.
        all.retain(|(_, other)| *other != tid);
        if all.len() == MAX {
            all.pop_front();
        }
        all.push_back((ino, tid));
        self.count.store(all.len(), Ordering::Relaxed);
    }

    /// Returns whether the last request of thread `tid` but this one has removed the capabilities
    /// of a file, and forgets it.
    #[inline]
    pub(crate) fn take(&self, ino: Ino, tid: u32) -> bool {
        // The caller has waited for the reply to the first, which orders the two.
        self.count.load(Ordering::Relaxed) != 0 && self.find(ino, tid)
    }

    #[cold]
    fn find(&self, ino: Ino, tid: u32) -> bool {
        let mut all = self.recent.lock();
        let found = all.contains(&(ino, tid));
        all.retain(|(_, other)| *other != tid);
        self.count.store(all.len(), Ordering::Relaxed);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_once_by_the_same_thread() {
        let stripped = Stripped::default();
        stripped.add(Ino(5), 1);
        assert!(!stripped.take(Ino(5), 2));
        assert!(stripped.take(Ino(5), 1) && !stripped.take(Ino(5), 1));
        stripped.add(Ino(5), 1);
        assert!(!stripped.take(Ino(6), 1) && !stripped.take(Ino(5), 1), "another call");
        (0..MAX as u32 + 1).for_each(|tid| stripped.add(Ino(7), tid));
        assert!(!stripped.take(Ino(7), 0) && stripped.take(Ino(7), 1));
    }
}
