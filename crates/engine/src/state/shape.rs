//! Sequence counter of directory renames: two counters by which a walk from a file to its ancestors
//! detects a concurrent rename of a directory. Renames of files do not change them.

use shoal_base::sync::{AtomicU64, fence};
use std::sync::atomic::Ordering;

/// Number of directory renames begun and ended.
#[derive(Default)]
pub(crate) struct Shape {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A directory rename in progress, until it is dropped.
pub(crate) struct Change<'s>(&'s Shape);

impl Shape {
    /// Begins a directory rename. Must be called before its first change.
    pub(crate) fn change(&self) -> Change<'_> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Change(self)
    }
    /// Returns a stamp for [`Shape::is_still`]; `None` if a directory is being renamed.
    #[inline]
    pub(crate) fn quiet(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::SeqCst);
        (self.begun.load(Ordering::SeqCst) == ended).then_some(ended)
    }
    /// Returns whether no rename has begun since `stamp`.
    #[inline]
    pub(crate) fn is_still(&self, stamp: u64) -> bool {
        fence(Ordering::SeqCst);
        self.begun.load(Ordering::SeqCst) == stamp
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_seen_before_during_and_after() {
        let shape = Shape::default();
        let before = shape.quiet().unwrap();
        let change = shape.change();
        assert!(shape.quiet().is_none() && !shape.is_still(before));
        drop(change);
        assert!(!shape.is_still(before));
        let after = shape.quiet().unwrap();
        assert!(shape.is_still(after));
    }
}
