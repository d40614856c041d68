//! Every name has a parent pointer and every parent pointer a name: compared as sets.
//!
//! Problem: to look up the pointer of every name, and the name of every pointer, reads inodes in
//! the order of names and names in the order of inodes.
//!
//! Rule: both sides are read in their own order. A name adds the hash of (directory, its
//! generation, name, child) to one sum, a pointer the same to another.
//!
//! Proof: equal sets have equal sums. Unequal ones have equal sums of 128 bits by chance only: the
//! hash has a seed of this run, so nobody can have made a volume for it. When the sums differ, or
//! anything else is wrong with the volume, names and pointers are looked up one by one, which says
//! what is wrong.

use super::Check;
use super::names::is_dying;
use super::work::Worker;
use crate::xattr::Side;
use shoal_base::{Ino, checksum::hash128};
use shoal_format::attr::Link;
use shoal_format::inode::Inode;

/// Seed of the hashes; `None` if the system had no random bytes.
#[derive(Clone, Copy)]
pub(super) struct Seed(Option<u64>);

impl Seed {
    pub fn new() -> Seed {
        let mut seed = [0; 8];
        let random = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        Seed(random.is_ok().then(|| u64::from_le_bytes(seed)))
    }

    /// Returns whether nobody can have known the seed. Without it, sums are still compared.
    pub fn is_random(self) -> bool {
        self.0.is_some()
    }

    fn hash(self, buffer: &mut Vec<u8>, link: Link, name: &[u8], child: Ino) -> u128 {
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
    pub fn add(&mut self, other: Set) {
        *self = Set(self.0 + other.0, self.1.wrapping_add(other.1));
    }

    /// Number of members.
    pub fn count(self) -> u64 {
        self.0
    }
}

impl Worker<'_> {
    /// A name of an inode was read.
    pub(super) fn add_name(&mut self, link: Link, name: &[u8], child: Ino) {
        let hash = self.seed.hash(&mut self.buffer, link, name, child);
        self.found.names.add(Set(1, hash));
    }

    /// Parent pointers that an inode should have.
    pub(super) fn pointers_wanted(&self, ino: Ino, inode: &Inode) -> usize {
        match inode.core.is_dir() {
            _ if !self.volume.parents || ino == Ino::ROOT || inode.core.nlink == 0 => 0,
            true => 1,
            false => inode.core.nlink as usize,
        }
    }

    /// Adds the parent pointers of an inode.
    pub(super) fn add_pointers(&mut self, ino: Ino, inode: &Inode) {
        if inode.core.nlink == 0 || is_dying(self.volume, ino) {
            return;
        }
        let (mut count, seed) = (0, self.seed);
        let (found, buffer) = (&mut self.found, &mut self.buffer);
        let read = self.volume.each_attr(ino, inode, Side::Parents, &mut |attr| {
            count += 1;
            match attr.link(ino.root()) {
                Some(link) => found.pointers.add(Set(1, seed.hash(buffer, link, attr.name, ino))),
                None => found.doubt = true,
            }
            Ok(true)
        });
        self.found.doubt |= read.is_err() || count != self.pointers_wanted(ino, inode);
    }
}

impl Check<'_> {
    /// Whether names and parent pointers have to be looked up one by one. Known when both have been
    /// read.
    pub(super) fn is_doubtful(&self) -> bool {
        let sum = &self.sum;
        let differ = self.volume.parents && sum.names != sum.pointers;
        differ || sum.doubt || sum.broken || !sum.report.problems.is_empty()
    }
}
