//! Sums over all segments, sharded by thread.

use crossbeam_utils::CachePadded;
use shoal_base::shard::{SHARDS, shard};
use shoal_base::sync::AtomicI64;
use std::sync::atomic::Ordering;

/// Amounts added by the threads of a shard.
#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) live: AtomicI64,
    pub(crate) pinned: AtomicI64,
}

/// Sums over all segments.
pub(crate) struct Totals(Box<[CachePadded<Shard>]>);

impl Default for Totals {
    fn default() -> Totals {
        Totals((0..SHARDS).map(|_| CachePadded::default()).collect())
    }
}

impl Totals {
    #[inline]
    pub(crate) fn live(&self, by: i64) {
        self.0[shard()].live.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn pinned(&self, by: i64) {
        self.0[shard()].pinned.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn sum(&self, of: impl Fn(&Shard) -> &AtomicI64) -> u64 {
        let sum: i64 = self.0.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum();
        sum.max(0) as u64
    }

    /// Sets the live bytes. Must be called while nothing is counted.
    pub(crate) fn set_live(&self, bytes: i64) {
        self.0.iter().for_each(|shard| shard.live.store(0, Ordering::Relaxed));
        self.0[0].live.store(bytes, Ordering::Relaxed);
    }
}

/// Free bytes in open segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    /// In the segment of the metadata stream.
    pub meta: u64,
    /// In the segments of the data streams.
    pub data: u64,
}
