//! The inodes that the last records before a crash have changed.
//!
//! A process that is killed may have owed others a notice of its last changes: a mount's kernel
//! keeps attributes until it is told to forget them. Its successor tells of all inodes in the last
//! records, whether they were told of or not.

use shoal_base::Ino;
use shoal_format::bytes::Reader;
use shoal_format::item::Item;
use std::collections::VecDeque;

/// Collects inodes of the newest records.
pub(crate) struct Recent {
    max: usize,
    inodes: VecDeque<Ino>,
}

impl Recent {
    /// For `max` inodes, of which some may be the same.
    pub(crate) fn new(max: usize) -> Recent {
        Recent { max, inodes: VecDeque::new() }
    }

    /// Adds the inodes of a record. Items that cannot be decoded are left to its replay.
    pub(crate) fn note(&mut self, record: &[u8]) {
        if self.max == 0 {
            return;
        }
        let mut reader = Reader::new(record);
        while !reader.is_empty()
            && let Some(item) = Item::decode(&mut reader)
        {
            match item {
                Item::Core { ino, .. }
                | Item::DataFork { ino, .. }
                | Item::AttrFork { ino, .. }
                | Item::DirTouch { ino, .. }
                | Item::Links { ino, .. }
                | Item::Moved { ino, .. }
                | Item::Free { ino, .. } => self.add(ino),
                Item::Named { dir, ref entry, .. } => {
                    self.add(dir);
                    self.add(entry.child);
                }
                Item::Unnamed { dir, .. } => self.add(dir),
                // They come with the core of the inode that they are part of.
                Item::TreePut { .. }
                | Item::TreeDel { .. }
                | Item::TreeDelRange { .. }
                // They change no attribute.
                | Item::OrphanAdd { .. }
                | Item::OrphanDel { .. }
                | Item::IntentLog { .. }
                | Item::IntentProgress { .. }
                | Item::IntentDone { .. }
                | Item::Root { .. } => {}
            }
        }
    }

    fn add(&mut self, ino: Ino) {
        if self.inodes.back() == Some(&ino) {
            return;
        }
        if self.inodes.len() == self.max {
            self.inodes.pop_front();
        }
        self.inodes.push_back(ino);
    }

    /// Returns the inodes, each once.
    pub(crate) fn inodes(self) -> Vec<Ino> {
        let mut inodes = Vec::from(self.inodes);
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(ino: Ino) -> Vec<u8> {
        let mut record = Vec::new();
        let ctime = shoal_format::inode::Stamp::default();
        Item::Links { ino, nlink: 1, ctime }.encode(&mut record);
        record
    }

    #[test]
    fn the_newest_are_kept_each_once() {
        let mut recent = Recent::new(3);
        for ino in [1, 2, 3, 3, 4, 2] {
            recent.note(&links(Ino(ino)));
        }
        assert_eq!(recent.inodes(), [Ino(2), Ino(3), Ino(4)]);
        let mut none = Recent::new(0);
        none.note(&links(Ino(1)));
        assert_eq!(none.inodes(), []);
    }
}
