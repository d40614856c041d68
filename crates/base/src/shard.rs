//! Every thread gets a small number of its own, by which counters, allocators and orphan slots are
//! spread so that threads do not write to each other's cache lines.

pub use crate::sync::SHARDS;
#[cfg(shoal_shuttle)]
pub use crate::sync::shard;
#[cfg(not(shoal_shuttle))]
pub use by_thread::shard;

#[cfg(not(shoal_shuttle))]
mod by_thread {
    use super::SHARDS;
    use std::cell::Cell;
    use std::sync::atomic::{AtomicUsize, Ordering};

    static NEXT: AtomicUsize = AtomicUsize::new(0);

    thread_local! {
        static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
    }

    /// The calling thread's shard, in `0..SHARDS`; the same for the thread's whole life.
    #[inline]
    pub fn shard() -> usize {
        SHARD.with(|cell| {
            let known = cell.get();
            if known != usize::MAX {
                return known;
            }
            let fresh = NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS;
            cell.set(fresh);
            fresh
        })
    }
}

/// Spreads a number over 64 bits (Fibonacci hashing); for choosing a shard or a bucket by key.
#[inline]
pub fn spread(key: u64) -> u64 {
    let x = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^ (x >> 32)
}
