//! Compares names and parent pointers as sets: each name must have a parent pointer and vice versa.
//!
//! Problem: looking up the pointer of every name, and the name of every pointer, reads inodes in
//! the order of names and names in the order of inodes.
//!
//! Rule: both sides are read in their own order. A name adds the hash of (directory, its
//! generation, name, child) to one sum, a pointer adds the same to another.
//!
//! Proof: equal sets have equal sums. Unequal ones have equal sums of 128 bits only by chance: the
//! hash has a random seed for each run, so no volume can be prepared for it. If the sums differ, or
//! the volume has any other problem, names and pointers are looked up one by one to find the
//! differences.

use super::sets::Set;
use super::work::Worker;
use super::{Check, is_dying};
use crate::xattr::Side;
use shoal_base::Ino;
use shoal_format::attr::Link;
use shoal_format::inode::Inode;

impl Worker<'_> {
    /// Adds a name of an inode to its set.
    pub(super) fn add_name(&mut self, link: Link, name: &[u8], child: Ino) {
        let hash = self.seed.hash(&mut self.buffer, link, name, child);
        self.found.names.add(Set::one(hash));
    }

    /// Returns the number of parent pointers that an inode should have.
    pub(super) fn pointers_wanted(&self, ino: Ino, inode: &Inode) -> usize {
        match inode.core.is_dir() {
            _ if !self.volume.0.parents || ino == Ino::ROOT || inode.core.nlink == 0 => 0,
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
        let read = self.volume.xattrs().each_attr(ino, inode, Side::Parents, &mut |attr| {
            count += 1;
            match attr.link(ino.root()) {
                Some(link) => found.pointers.add(Set::one(seed.hash(buffer, link, attr.name, ino))),
                None => found.doubt = true,
            }
            Ok(true)
        });
        self.found.doubt |= read.is_err() || count != self.pointers_wanted(ino, inode);
    }
}

impl Check<'_> {
    /// Returns whether names and parent pointers must be looked up one by one. Valid once both have
    /// been read.
    pub(super) fn is_doubtful(&self) -> bool {
        let sum = &self.sum;
        let differ = self.volume.0.parents && sum.names != sum.pointers;
        differ || sum.doubt || sum.broken || !sum.report.problems.is_empty()
    }
}
