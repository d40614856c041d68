//! Counting the use of projects by visiting all inodes (`projects.rs`).

use crate::projects::{Projects, Tally};
use crate::table::InodeTable;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Code, Error, Ino, Result};
use std::ops::Range;

impl Projects {
    /// Adds the inodes of these blocks of a table to their projects, in the order of their numbers.
    /// All earlier inodes of the volume must have been counted. Changes may go on meanwhile, except
    /// that no block of the range may be used for the first time. Returns `false` as soon as `stop`
    /// returns `true`.
    ///
    /// # Errors
    /// Damage, errors of the device; `ENOMEM`. Nothing is counted twice if it is continued with the
    /// block of the error.
    pub fn count_blocks(
        &self,
        table: &InodeTable,
        blocks: &mut Range<u64>,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool> {
        while !blocks.is_empty() {
            if stop() {
                return Ok(false);
            }
            let number = blocks.start;
            match table.block(number) {
                Ok(block) => {
                    for (index, place) in (0..).zip(&block.slots) {
                        let ino = number * INODES_PER_BLOCK as u64 + index;
                        let slot = place.read();
                        let ino = Ino::new(table.config.root, ino);
                        self.count(ino, Tally::of(&slot.inode.core));
                    }
                }
                // Never used, or freed with all of its inodes.
                Err(Error::Code(Code::Stale)) => {}
                Err(e) => return Err(e),
            }
            blocks.start += 1;
        }
        Ok(true)
    }
}
