//! Reading the inodes of whole blocks: for calls that need the attributes of many inodes.
//!
//! Problem: finding a block takes longer than reading an inode in it. A call that reads all inodes
//! of a subvolume would find each block 32 times.
//!
//! Rule: a [`BlockView`] finds the block once. Each inode is locked for reading while it is read,
//! as by [`InodeTable::look`], and the block's use is not noted: reading all inodes once must not
//! evict the blocks that others use.

use crate::block::InodeBlock;
use crate::table::{DIRTY_MARK, InodeTable, Pinned, decode_imap};
use shoal_base::limits::{INODE_BLOCKS_MAX, INODES_PER_BLOCK};
use shoal_base::{Epoch, Error, Ino, Result};
use shoal_format::inode::Inode;
use shoal_tree::{Batch, Key};
use std::ops::Range;
use std::sync::Arc;

/// `imap` entries read at a time.
const ENTRIES: usize = 256;

/// A block in memory, for reading its inodes.
///
/// The block may be evicted meanwhile, and another copy of it read and changed. Each inode is seen
/// as it was at some moment after the view was made.
pub struct BlockView<'p> {
    block: &'p InodeBlock,
    first: Ino,
}

impl BlockView<'_> {
    /// Calls `f` with an inode of the block, whether it is in use or not, locked for reading.
    #[inline]
    pub fn look<R>(&self, ino: Ino, f: impl FnOnce(&Inode) -> R) -> R {
        f(&self.block.slots[ino.0 as usize % INODES_PER_BLOCK].read().inode)
    }

    /// Calls `each` with every inode of the block in the order of the numbers, whether it is in use
    /// or not, each locked for reading during its call.
    #[inline]
    pub fn for_each(&self, mut each: impl FnMut(Ino, &Inode)) {
        for (ino, place) in (self.first.0..).zip(&self.block.slots) {
            each(Ino(ino), &place.read().inode);
        }
    }
}

/// Bytes that a block of small files takes in memory.
const BLOCK_BYTES: u64 = 11 << 10;

impl InodeTable {
    /// Returns whether all of so many inodes, which are small files in full blocks, can be in
    /// memory at the same time.
    pub fn fits(&self, inodes: u64) -> bool {
        let blocks = inodes / INODES_PER_BLOCK as u64;
        blocks.saturating_mul(BLOCK_BYTES) <= self.config.budget.share().limit() as u64
    }

    /// Returns a view of a block; `None` if it is not in memory.
    #[inline]
    pub fn view<'p>(&self, pin: &'p Pinned<'_>, number: u64) -> Option<BlockView<'p>> {
        let first = self.block_id(number).first;
        pin.get(number).map(|block| BlockView { block, first })
    }

    /// Calls `f` with a view of a block, which is read into memory if it is not there.
    ///
    /// # Errors
    /// `ESTALE` if the block was never used; those of the device.
    pub fn with_view<R>(&self, number: u64, f: impl FnOnce(&BlockView<'_>) -> R) -> Result<R> {
        let pin = self.pin();
        if let Some(view) = self.view(&pin, number) {
            return Ok(f(&view));
        }
        drop(pin);
        let block: Arc<InodeBlock> = self.block(number)?;
        Ok(f(&BlockView { block: &block, first: self.block_id(number).first }))
    }

    /// Returns the numbers, ascending, of the blocks of a range that are in memory or on the
    /// device. A block whose inodes are in use during the whole call is among them.
    pub fn blocks_in_use(&self, range: Range<u64>) -> Result<Vec<u64>> {
        let end = range.end.min(INODE_BLOCKS_MAX);
        if range.start >= end {
            return Ok(Vec::new());
        }
        // First memory: a block that is evicted meanwhile is in `imap` by then. The reverse order
        // could miss a new block, which a checkpoint writes between the two.
        let here = self.blocks.range(range.start..end).map(|(number, _)| number);
        let mut numbers: Vec<u64> = here.collect();
        let (mut batch, mut next) = (Batch::default(), Some(Key::new(range.start, 0)));
        while let Some(from) = next {
            next = self.imap.scan(from, Key::new(end, 0), ENTRIES, &mut batch)?;
            for (key, value) in batch.iter() {
                decode_imap(value).ok_or_else(|| broken(key))?;
                numbers.push(key.hi);
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }

    /// Returns the numbers, ascending, of the blocks of a range that may have changed in epoch
    /// `since` or later. Changes that are made during the call may be missing.
    pub fn blocks_changed(&self, range: Range<u64>, since: Epoch) -> Result<Vec<u64>> {
        let end = range.end.min(INODE_BLOCKS_MAX);
        let mut numbers = Vec::new();
        // First memory: a block that a checkpoint writes meanwhile is in `imap` before it loses its
        // mark.
        for mark in DIRTY_MARK {
            let mut from = range.start;
            while let Some((number, _)) = self.blocks.next_marked(from, mark)
                && number < end
            {
                numbers.push(number);
                from = number + 1;
            }
        }
        let (mut from, end) = (Key::new(range.start, 0), Key::new(end, 0));
        while from < end {
            let young = self.imap.young(from, since)?;
            for (low, high) in young.leaves {
                let mut damaged = None;
                self.imap.look_through(low, high.min(end), &mut |key, value| match decode_imap(
                    value,
                ) {
                    Some((ptr, _)) if ptr.birth < since => {}
                    Some(_) => numbers.push(key.hi),
                    None => damaged = Some(key),
                })?;
                damaged.map_or(Ok(()), |key| Err(broken(key)))?;
            }
            from = young.until;
        }
        numbers.sort_unstable();
        numbers.dedup();
        Ok(numbers)
    }
}

fn broken(key: Key) -> Error {
    let object = format!("imap entry of block {}", key.hi);
    Error::corrupt(object, None, "not a block's pointer and mask")
}
