//! A memory budget that two caches share, half each. A cache may have to exceed its half, because
//! dirty objects cannot be evicted. The other cache then shrinks by as much, so that together they
//! stay within the budget.

use crate::sync::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// One cache's share of the budget, and its current use.
pub struct Share {
    limit: usize,
    used: AtomicUsize,
    other: OnceLock<Arc<Share>>,
}

impl Share {
    /// Makes a share of `limit` bytes, independent until [`Share::join`].
    pub fn new(limit: usize) -> Arc<Share> {
        Arc::new(Share { limit, used: AtomicUsize::new(0), other: OnceLock::new() })
    }

    /// Couples two shares: each shrinks when the other exceeds its limit.
    pub fn join(self: &Arc<Share>, other: &Arc<Share>) {
        let _first = self.other.set(other.clone());
        let _first = other.other.set(self.clone());
    }

    /// Bytes that may be held while the other cache stays within its share.
    pub fn limit(&self) -> usize {
        self.limit
    }
    /// Bytes held now.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
    /// Adds `bytes` to those held.
    #[inline]
    pub fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }
    /// Subtracts `bytes` from those held.
    #[inline]
    pub fn sub(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Returns whether the cache holds more than it may and must evict. A quarter of the share may
    /// always be held; otherwise an object would be evicted before its first use.
    #[inline]
    pub fn is_over(&self) -> bool {
        let used = self.used();
        used > self.limit / 4
            && used > self.limit.saturating_sub(self.other.get().map_or(0, |other| other.excess()))
    }

    fn excess(&self) -> usize {
        self.used().saturating_sub(self.limit)
    }
}

#[cfg(all(test, not(feature = "scheduled")))]
mod tests {
    use super::*;

    #[test]
    fn one_gives_way_by_what_the_other_holds_too_much() {
        let (a, b) = (Share::new(1000), Share::new(1000));
        a.add(1000);
        b.add(1500);
        assert!(!a.is_over() && b.is_over(), "alone");
        a.join(&b);
        assert!(a.is_over());
        a.sub(500);
        assert!(!a.is_over());
        b.add(4000);
        assert!(a.is_over());
        a.sub(250);
        assert!(!a.is_over(), "a quarter stays");
        b.sub(5000);
        a.add(750);
        assert!(!a.is_over() && !b.is_over());
    }
}
