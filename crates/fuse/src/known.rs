//! The inodes that the kernel may know: roughly those that it was ever given.
//!
//! Who changes the volume by another way than this mount ([`crate::doors`]) has to tell the kernel,
//! but not of what it cannot know: a notice is a system call, and takes longer than most changes. A
//! bit for each inode, by a hash of its number, is set when the kernel is given the inode, and
//! never cleared. A set bit that means nothing costs a notice.

use shoal::raw::Ino;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bits: with a hundred thousand inodes given, one in ten others is taken for known.
const BITS: u64 = 1 << 20;

/// The inodes that the kernel may know.
pub(crate) struct Known {
    words: Box<[AtomicU64]>,
    /// A server before this one has given some.
    inherited: AtomicBool,
}

impl Default for Known {
    fn default() -> Known {
        let words = std::iter::repeat_with(AtomicU64::default).take((BITS / 64) as usize).collect();
        Known { words, inherited: AtomicBool::new(false) }
    }
}

impl Known {
    /// Takes all inodes for known: a server before this one may have given any.
    pub(crate) fn inherit(&self) {
        self.inherited.store(true, Ordering::SeqCst);
    }

    fn place(&self, ino: Ino) -> (&AtomicU64, u64) {
        // Multiplicative hashing, by the golden ratio: numbers follow each other.
        let bit = ino.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS.trailing_zeros());
        (&self.words[(bit / 64) as usize], 1 << (bit % 64))
    }

    /// Notes that the kernel is about to be given an inode. Before its attributes are read: a
    /// change that they do not show finds the note.
    #[inline]
    pub(crate) fn give(&self, ino: Ino) {
        let (word, bit) = self.place(ino);
        if word.load(Ordering::SeqCst) & bit == 0 {
            word.fetch_or(bit, Ordering::SeqCst);
        }
    }

    /// Returns whether the kernel may know an inode.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        let (word, bit) = self.place(ino);
        word.load(Ordering::SeqCst) & bit != 0 || self.inherited.load(Ordering::SeqCst)
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
        known.inherit();
        assert!(known.has(Ino(1_000_001)));
    }
}
