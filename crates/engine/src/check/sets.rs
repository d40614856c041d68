//! Sets of names and of parent pointers, as sums of hashes (`cross.rs` compares them).

use shoal_base::{Ino, checksum::hash128};
use shoal_format::attr::Link;

/// Seed of the hashes; `None` if the system had no random bytes.
#[derive(Clone, Copy)]
pub(super) struct Seed(Option<u64>);

impl Seed {
    pub(super) fn new() -> Seed {
        let mut seed = [0; 8];
        let random = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        Seed(random.is_ok().then(|| u64::from_le_bytes(seed)))
    }

    /// Returns whether the seed is unpredictable. If it is not, sums are compared nevertheless.
    pub(super) fn is_random(self) -> bool {
        self.0.is_some()
    }

    pub(super) fn hash(self, buffer: &mut Vec<u8>, link: Link, name: &[u8], child: Ino) -> u128 {
        buffer.clear();
        buffer.extend_from_slice(&link.dir.0.to_le_bytes());
        buffer.extend_from_slice(&link.generation.to_le_bytes());
        buffer.extend_from_slice(&child.0.to_le_bytes());
        buffer.extend_from_slice(name);
        hash128(self.0.unwrap_or(0), buffer)
    }
}

/// A set of names or of parent pointers, as its size and the sum of its members' hashes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Set(u64, u128);

impl Set {
    /// The set of one member.
    pub(super) fn one(hash: u128) -> Set {
        Set(1, hash)
    }

    pub(super) fn add(&mut self, other: Set) {
        *self = Set(self.0 + other.0, self.1.wrapping_add(other.1));
    }

    /// Number of members.
    pub(super) fn count(self) -> u64 {
        self.0
    }
}
