//! The inodes that the kernel may know: those that it was given, and has not given back.
//!
//! Who changes the volume by another way than this mount ([`crate::doors`]) has to tell the kernel,
//! but not of what it cannot know: a notice is a system call, and takes longer than most changes.
//! References are counted, those of some inodes in one counter. A counter that is not 0 for another
//! one's sake costs a notice.
//!
//! Counters are made as they are used, a page of them at a time: numbers of inodes follow each
//! other, and a mount that nobody uses has none.

use shoal::raw::Ino;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};

/// Counters of a page, of 4 bytes each, and pages.
const PAGE: usize = 1024;
const PAGES: usize = 1024;

type Counters = [AtomicU32; PAGE];

/// The inodes that the kernel may know.
pub(crate) struct Known {
    given: Box<[OnceLock<Box<Counters>>]>,
    /// A server before this one has given some.
    inherited: AtomicBool,
}

impl Default for Known {
    fn default() -> Known {
        let given = std::iter::repeat_with(OnceLock::new).take(PAGES).collect();
        Known { given, inherited: AtomicBool::new(false) }
    }
}

/// Returns the page of an inode's counter, and its place there. Inodes of different subvolumes,
/// whose numbers differ in their upper bits, lie apart.
fn place(ino: Ino) -> (usize, usize) {
    let apart = (ino.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44;
    let counter = (ino.0 ^ apart) as usize;
    (counter / PAGE % PAGES, counter % PAGE)
}

impl Known {
    /// Takes all inodes for known: a server before this one may have given any.
    pub(crate) fn inherit(&self) {
        self.inherited.store(true, Ordering::SeqCst);
    }

    /// The counter of an inode, if any of its page has been used.
    fn counter(&self, ino: Ino) -> Option<&AtomicU32> {
        let (page, at) = place(ino);
        self.given[page].get().map(|counters| &counters[at])
    }

    /// Notes that the kernel is about to be given a reference to an inode. Before its attributes
    /// are read: a change that they do not show finds the note.
    #[inline]
    pub(crate) fn give(&self, ino: Ino) {
        let (page, at) = place(ino);
        let make = || Box::new([const { AtomicU32::new(0) }; PAGE]);
        self.given[page].get_or_init(make)[at].fetch_add(1, Ordering::SeqCst);
        // The page may be new: whoever changes the inode after this sees it.
        fence(Ordering::SeqCst);
    }

    /// Notes that it has given `n` references back, or has not got them.
    pub(crate) fn take_back(&self, ino: Ino, n: u64) {
        // Of what a server before this one has given, nothing has been counted.
        let less = |given: u32| Some(given.saturating_sub(u32::try_from(n).unwrap_or(u32::MAX)));
        if let Some(counter) = self.counter(ino) {
            let _ = counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less);
        }
    }

    /// Returns whether the kernel may know an inode.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        fence(Ordering::SeqCst);
        self.counter(ino).is_some_and(|counter| counter.load(Ordering::SeqCst) != 0)
            || self.inherited.load(Ordering::SeqCst)
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
