//! The hasher of a batch's maps.

use shoal_base::shard::spread;
use std::hash::{BuildHasherDefault, Hasher};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hashes short keys in nanoseconds. Names of a batch are its caller's choice; some thousands that
/// collide cost its caller some milliseconds.
#[derive(Default)]
pub(super) struct Fast(u64);

pub(super) type Hashed = BuildHasherDefault<Fast>;

impl Hasher for Fast {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = spread(self.0 ^ n);
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}
