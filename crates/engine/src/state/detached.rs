//! Number of inodes that are unlinked but open, and in memory only (`orphans.rs`).

use crossbeam_utils::CachePadded;
use shoal_base::shard::{SHARDS, shard};
use shoal_base::sync::AtomicU64;
use std::sync::atomic::Ordering;

/// Number of inodes that are unlinked but open, and in memory only. One counter per thread shard,
/// so that threads do not share a cache line; each shard has a limit.
pub(crate) struct Detached {
    shards: Box<[CachePadded<AtomicU64>]>,
    inodes_max: u64,
}

impl Detached {
    /// Sets the limit by the memory: an inode may keep a block of 32, about 8 KiB. None may be
    /// there if references `outlive` the process.
    pub(crate) fn new(cache_bytes: u64, outlive: bool) -> Detached {
        Detached {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            inodes_max: match outlive {
                false => (cache_bytes / (64 << 10)).clamp(16, 1 << 16),
                true => 0,
            },
        }
    }
    /// Counts one more, unless the limit is reached.
    pub(crate) fn add(&self) -> Option<u8> {
        let here = shard();
        let room = self.shards[here].load(Ordering::Relaxed) < self.inodes_max;
        room.then(|| {
            self.shards[here].fetch_add(1, Ordering::Relaxed);
            here as u8
        })
    }
    pub(crate) fn sub(&self, shard: u8) {
        self.shards[shard as usize].fetch_sub(1, Ordering::Relaxed);
    }
    /// Returns the sum of all shards.
    pub(crate) fn len(&self) -> u64 {
        self.shards.iter().map(|shard| shard.load(Ordering::Relaxed)).sum()
    }
}
