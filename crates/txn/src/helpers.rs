//! The number of threads that read for listings, limited for a whole volume: many users may list
//! cold directories at a time.

use shoal_base::sync::{AtomicBool, AtomicUsize};
use std::sync::atomic::Ordering;

/// Threads that read for listings at a time, in addition to those that list. A fast device serves
/// as many reads at a time.
const HELPERS: usize = 64;

/// The threads in use.
#[derive(Default)]
pub(crate) struct Helpers {
    used: AtomicUsize,
    slow: AtomicBool,
}

impl Helpers {
    /// Returns whether the last reads were slow, so that threads are worth their start.
    pub(crate) fn is_slow(&self) -> bool {
        self.slow.load(Ordering::Relaxed)
    }

    pub(crate) fn set_slow(&self, slow: bool) {
        self.slow.store(slow, Ordering::Relaxed);
    }

    /// Reserves up to `wanted` threads, as far as others have left any.
    pub(crate) fn take(&self, wanted: usize) -> Taken<'_> {
        let mut got = 0;
        let take = |used: usize| {
            got = wanted.min(HELPERS.saturating_sub(used));
            Some(used + got)
        };
        let _ = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        Taken { helpers: self, got }
    }
}

/// Reserved threads, until this is dropped.
pub(crate) struct Taken<'h> {
    helpers: &'h Helpers,
    got: usize,
}

impl Taken<'_> {
    pub(crate) fn count(&self) -> usize {
        self.got
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.helpers.used.fetch_sub(self.got, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_never_more_than_the_limit() {
        let helpers = Helpers::default();
        let first = helpers.take(HELPERS - 3);
        let second = helpers.take(10);
        assert_eq!((first.count(), second.count(), helpers.take(1).count()), (HELPERS - 3, 3, 0));
        drop(first);
        assert_eq!(helpers.take(HELPERS).count(), HELPERS - 3);
        drop(second);
        assert_eq!(helpers.used.load(Ordering::Relaxed), 0);
    }
}
