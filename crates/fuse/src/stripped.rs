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

/// Most threads between the two requests; beyond that the oldest is forgotten.
const MAX: usize = 64;

/// Files that have lost their capabilities, with the threads that changed them.
#[derive(Default)]
pub(crate) struct Stripped(Mutex<VecDeque<(Ino, u32)>>);

impl Stripped {
    /// Records that thread `tid` has removed the capabilities of a file.
    pub(crate) fn add(&self, ino: Ino, tid: u32) {
        let mut all = self.0.lock();
        // Its last one was another call.
        all.retain(|(_, other)| *other != tid);
        if all.len() == MAX {
            all.pop_front();
        }
        all.push_back((ino, tid));
    }

    /// Returns whether thread `tid` has removed the capabilities of a file, and forgets it.
    pub(crate) fn take(&self, ino: Ino, tid: u32) -> bool {
        let mut all = self.0.lock();
        let before = all.len();
        all.retain(|other| *other != (ino, tid));
        all.len() < before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_once_by_the_same_thread() {
        let stripped = Stripped::default();
        stripped.add(Ino(5), 1);
        assert!(!stripped.take(Ino(5), 2) && !stripped.take(Ino(6), 1));
        assert!(stripped.take(Ino(5), 1) && !stripped.take(Ino(5), 1));
        (0..MAX as u32 + 1).for_each(|tid| stripped.add(Ino(7), tid));
        assert!(!stripped.take(Ino(7), 0) && stripped.take(Ino(7), 1));
    }
}
