//! The inodes that the kernel may know: those that it was given, and has not given back.
//!
//! Who changes the volume by another way than this mount ([`crate::doors`]) has to tell the kernel,
//! but not of what it cannot know: a notice is a system call, and takes longer than most changes.
//! References are counted, those of many inodes in one counter, by a hash of their numbers. A
//! counter that is not 0 for another one's sake costs a notice.

use shoal::raw::Ino;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Counters, of 4 bytes: with a hundred thousand inodes given, one in ten others is taken for
/// known.
const COUNTERS: u64 = 1 << 20;

/// The inodes that the kernel may know.
pub(crate) struct Known {
    given: Box<[AtomicU32]>,
    /// A server before this one has given some.
    inherited: AtomicBool,
}

impl Default for Known {
    fn default() -> Known {
        let given = std::iter::repeat_with(AtomicU32::default).take(COUNTERS as usize).collect();
        Known { given, inherited: AtomicBool::new(false) }
    }
}

impl Known {
    /// Takes all inodes for known: a server before this one may have given any.
    pub(crate) fn inherit(&self) {
        self.inherited.store(true, Ordering::SeqCst);
    }

    fn counter(&self, ino: Ino) -> &AtomicU32 {
        // Multiplicative hashing, by the golden ratio: numbers follow each other.
        let place = ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - COUNTERS.trailing_zeros());
        &self.given[place as usize]
    }

    /// Notes that the kernel is about to be given a reference to an inode. Before its attributes
    /// are read: a change that they do not show finds the note.
    #[inline]
    pub(crate) fn give(&self, ino: Ino) {
        self.counter(ino).fetch_add(1, Ordering::SeqCst);
    }

    /// Notes that it has given `n` references back, or has not got them.
    pub(crate) fn take_back(&self, ino: Ino, n: u64) {
        // Of what a server before this one has given, nothing has been counted.
        let less = |given: u32| Some(given.saturating_sub(u32::try_from(n).unwrap_or(u32::MAX)));
        let _ = self.counter(ino).fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
    }

    /// Returns whether the kernel may know an inode.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.counter(ino).load(Ordering::SeqCst) != 0 || self.inherited.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_is_known_and_little_else() {
        let known = Known::default();
        (1..10_000).for_each(|n| known.give(Ino(n)));
        assert!((1..10_000).all(|n| known.has(Ino(n))));
        let others = (1_000_000..1_010_000).filter(|n| known.has(Ino(*n))).count();
        assert!(others < 500, "{others}");
        (1..10_000).for_each(|n| known.give(Ino(n)));
        (1..10_000).for_each(|n| known.take_back(Ino(n), 1));
        assert!((1..10_000).all(|n| known.has(Ino(n))), "each was given twice");
        (1..10_000).for_each(|n| known.take_back(Ino(n), 1));
        assert!(!(1..10_000).any(|n| known.has(Ino(n))));
        known.inherit();
        assert!(known.has(Ino(1_000_001)));
    }
}
