//! Areas that the last scrub could not read.

use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Ino, RootId};
use shoal_format::root::RootRecord;
use std::collections::HashSet;
use std::ops::Range;

/// Unreadable inodes, whose names the scrub reports later: their own parent pointers are lost.
#[derive(Default, Debug)]
pub(crate) struct Unread {
    /// Ranges of inode block numbers, with their subvolume.
    pub blocks: Vec<(RootId, Range<u64>)>,
    /// Inodes whose attributes are lost.
    pub attrs: HashSet<Ino>,
    /// The root page that was read last: checkpoint and number of the page, and its records.
    pub page: Option<((u64, usize), Vec<RootRecord>)>,
}

impl Unread {
    /// Returns the unreadable part of an inode, if there is one.
    pub(crate) fn of(&self, ino: Ino) -> Option<&'static str> {
        let number = ino.index() / INODES_PER_BLOCK as u64;
        let mut blocks = self.blocks.iter();
        match blocks.any(|(root, range)| *root == ino.root() && range.contains(&number)) {
            true => Some("inode"),
            false => self.attrs.contains(&ino).then_some("attributes of inode"),
        }
    }
}
