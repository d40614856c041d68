//! Assigns each thread a small number, by which counters, allocators and orphan slots are sharded
//! so that threads do not write to each other's cache lines.

pub use crate::sync::{SHARDS, set_shard, shard};

/// Spreads a number over 64 bits (Fibonacci hashing), to choose a shard or a bucket by key.
#[inline]
pub fn spread(key: u64) -> u64 {
    let x = key.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    x ^ (x >> 32)
}
