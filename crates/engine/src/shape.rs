//! Whether directories stand still: two counters by which a walk up from a file knows that no
//! directory was renamed meanwhile. Renames of files do not touch them.

use shoal_base::sync::{AtomicU64, fence};
use std::sync::atomic::Ordering;

/// Renames of directories, begun and ended.
#[derive(Default)]
pub(crate) struct Shape {
    begun: AtomicU64,
    ended: AtomicU64,
}

/// A rename of a directory; ended when dropped.
pub(crate) struct Change<'s>(&'s Shape);

impl Shape {
    /// A directory is about to be renamed.
    pub fn change(&self) -> Change<'_> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Change(self)
    }
    /// What to ask [`Shape::is_still`] about; `None`: a directory is being renamed.
    #[inline]
    pub fn quiet(&self) -> Option<u64> {
        let ended = self.ended.load(Ordering::SeqCst);
        (self.begun.load(Ordering::SeqCst) == ended).then_some(ended)
    }
    /// Whether no rename has begun since.
    #[inline]
    pub fn is_still(&self, stamp: u64) -> bool {
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
