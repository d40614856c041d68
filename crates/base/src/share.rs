//! Two caches that share one budget of memory, half each. A cache may have to hold more than its
//! half, because what is dirty cannot leave; then the other one gives way by as much, so that
//! together they stay within the budget.

use crate::sync::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// A cache's share of the budget, and what it holds.
pub struct Share {
    limit: usize,
    used: AtomicUsize,
    other: OnceLock<Arc<Share>>,
}

impl Share {
    /// A share of `limit` bytes, alone until [`Share::join`].
    pub fn new(limit: usize) -> Arc<Share> {
        Arc::new(Share { limit, used: AtomicUsize::new(0), other: OnceLock::new() })
    }

    /// From now on each of the two gives way when the other one holds more than its own.
    pub fn join(self: &Arc<Share>, other: &Arc<Share>) {
        let _first = self.other.set(other.clone());
        let _first = other.other.set(self.clone());
    }

    /// Bytes that may be held as long as the other one keeps to its share.
    pub fn limit(&self) -> usize {
        self.limit
    }
    /// Bytes that are held.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }
    /// So many bytes more are held.
    #[inline]
    pub fn add(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }
    /// So many bytes are held no more.
    #[inline]
    pub fn sub(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Whether more is held than may be: what can leave memory shall. A quarter of the share is
    /// left in any case, or what was just read would be gone before it is used.
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

#[cfg(all(test, not(shoal_shuttle)))]
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
