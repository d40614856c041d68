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
use crate::xattr::Side;
use shoal_base::{Ino, checksum::hash128};
use shoal_format::attr::Link;
use shoal_format::inode::Inode;

/// Names and parent pointers, each set as its sum.
pub(super) struct Cross {
    seed: u64,
    names: (u64, u128),
    pointers: (u64, u128),
    /// Some pointer could not be read, or their number is not that of the links.
    doubt: bool,
    buffer: Vec<u8>,
}

impl Cross {
    pub fn new() -> Cross {
        let mut seed = [0; 8];
        // Without random bytes, a set is still compared with a set.
        let random = rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty());
        let (names, pointers) = ((0, 0), (0, 0));
        let doubt = random.is_err();
        Cross { seed: u64::from_le_bytes(seed), names, pointers, doubt, buffer: Vec::new() }
    }

    fn hash(&mut self, link: Link, name: &[u8], child: Ino) -> u128 {
        self.buffer.clear();
        self.buffer.extend_from_slice(&link.dir.0.to_le_bytes());
        self.buffer.extend_from_slice(&link.generation.to_le_bytes());
        self.buffer.extend_from_slice(&child.0.to_le_bytes());
        self.buffer.extend_from_slice(name);
        hash128(self.seed, &self.buffer)
    }

    /// A name of an inode was read.
    pub fn name(&mut self, link: Link, name: &[u8], child: Ino) {
        let hash = self.hash(link, name, child);
        self.names = (self.names.0 + 1, self.names.1.wrapping_add(hash));
    }

    /// A parent pointer of an inode was read.
    fn pointer(&mut self, link: Link, name: &[u8], child: Ino) {
        let hash = self.hash(link, name, child);
        self.pointers = (self.pointers.0 + 1, self.pointers.1.wrapping_add(hash));
    }

    /// Number of parent pointers.
    pub fn pointers(&self) -> u64 {
        self.pointers.0
    }
}

impl Check<'_> {
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
        let (mut count, cross) = (0, &mut self.cross);
        let read = self.volume.each_attr(ino, inode, Side::Parents, &mut |attr| {
            count += 1;
            match attr.link() {
                Some(link) => cross.pointer(link, attr.name, ino),
                None => cross.doubt = true,
            }
            Ok(true)
        });
        self.cross.doubt |= read.is_err() || count != self.pointers_wanted(ino, inode);
    }

    /// Whether names and parent pointers have to be looked up one by one. Known when both have been
    /// read.
    pub(super) fn is_doubtful(&self) -> bool {
        let differ = self.volume.parents && self.cross.names != self.cross.pointers;
        differ || self.cross.doubt || self.broken || !self.report.problems.is_empty()
    }
}
