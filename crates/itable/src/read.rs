//! Sequential reads of inode blocks that bypass the table's cache: for checks.
//!
//! Problem: loading a block into the cache costs a read, 32 locks, a place in the array and the
//! eviction of another block, and a check uses none of it twice.
//!
//! Rule: a block in memory is visited there, because it may be newer than the one on the device.
//! All others are read in runs of adjacent blocks, decoded, visited and dropped.

use crate::block::InodeBlock;
use crate::runs::{GAP, Run, end_of};
use crate::table::{InodeTable, decode_imap};
use shoal_base::counters::Counter;
use shoal_base::limits::{INODE_BLOCKS_MAX, INODES_PER_BLOCK};
use shoal_base::{Error, Ino, Result};
use shoal_format::Ptr;
use shoal_format::inode::Inode;
use shoal_tree::{Key, Part};
use std::ops::Range;

/// Maximum length of a read, in bytes.
const RUN: u64 = 1 << 20;
/// Callbacks of [`InodeTable::read_part`].
pub trait Visitor {
    /// Called for each `imap` entry: block number and pointer.
    fn entry(&mut self, number: u64, ptr: Ptr);
    /// Called for blocks whose `imap` entries are unreadable.
    fn lost(&mut self, numbers: Range<u64>, error: Error);
    /// Called for each readable block, ascending, before its inodes.
    fn block(&mut self, number: u64);
    /// Called for each inode in use.
    fn inode(&mut self, ino: Ino, inode: &Inode) -> Result<()>;
    /// Called for each unreadable block.
    fn unreadable(&mut self, number: u64, error: Error);
}

impl InodeTable {
    /// Visits the blocks that a part of `imap` points to, and those with numbers in its range that
    /// are only in memory. Nothing may change meanwhile.
    pub fn read_part(&self, part: &Part, visitor: &mut dyn Visitor) -> Result<()> {
        let (mut blocks, mut lost, mut broken) = (Vec::new(), Vec::new(), Vec::new());
        let mut entry = |key: Key, value: &[u8]| {
            match decode_imap(value) {
                Some((ptr, _)) if key.lo == 0 && key.hi < INODE_BLOCKS_MAX => {
                    visitor.entry(key.hi, ptr);
                    blocks.push((key.hi, ptr));
                }
                _ => broken.push(key.hi),
            }
            Ok(())
        };
        let mut unread = |error, low: Key, high: Key| lost.push((error, low.hi..high.hi));
        self.imap.for_each_readable(part.low, part.high, &mut entry, &mut unread)?;
        lost.into_iter().for_each(|(error, range)| visitor.lost(range, error));
        for number in broken {
            let object = format!("imap entry of block {number}");
            let error = Error::corrupt(object, None, "not a block's number, pointer and mask");
            visitor.lost(number..number.saturating_add(1), error);
        }
        let first = part.low.hi.saturating_add(u64::from(part.low.lo > 0));
        let here = self.blocks.range(first..).map(|(number, _)| number);
        let here = here.take_while(|number| Key::new(*number, 0) < part.high);
        blocks.extend(here.map(|number| (number, Ptr::NULL)));
        blocks.sort_by_key(|(number, _)| *number);
        blocks.dedup_by_key(|(number, _)| *number);
        self.announce(&blocks);
        self.read_blocks(&blocks, visitor)
    }

    /// Tells the device which blocks will be read.
    fn announce(&self, blocks: &[(u64, Ptr)]) {
        let mut span = 0..0;
        for (_, ptr) in blocks.iter().filter(|(_, ptr)| self.may_be_at(*ptr)) {
            if ptr.addr.0 < span.end || ptr.addr.0 - span.end > GAP {
                self.config.device.will_read(span.start, span.end - span.start);
                span = ptr.addr.0..ptr.addr.0;
            }
            span.end = end_of(*ptr);
        }
        self.config.device.will_read(span.start, span.end - span.start);
    }

    fn read_blocks(&self, blocks: &[(u64, Ptr)], visitor: &mut dyn Visitor) -> Result<()> {
        let (mut run, mut raw) = (Run::default(), Vec::new());
        for (number, ptr) in blocks {
            if let Some(block) = self.blocks.get(*number) {
                self.read_run(&mut run, &mut raw, visitor)?;
                self.visit_in_memory(&block, visitor)?;
            } else {
                let apart = !self.may_be_at(*ptr) || !run.takes(*ptr, RUN);
                if apart {
                    self.read_run(&mut run, &mut raw, visitor)?;
                }
                run.blocks.push((*number, *ptr));
                if !self.may_be_at(*ptr) {
                    self.read_run(&mut run, &mut raw, visitor)?;
                }
            }
        }
        self.read_run(&mut run, &mut raw, visitor)
    }

    /// Reads a run in one call or, if that fails, block by block.
    fn read_run(&self, run: &mut Run, raw: &mut Vec<u8>, visitor: &mut dyn Visitor) -> Result<()> {
        let blocks = &mut run.blocks;
        let together = match &blocks[..] {
            [] | [_] => false,
            [(_, first), .., (_, last)] => {
                let len = (end_of(*last) - first.addr.0) as usize;
                // Never shrinks, so that only new bytes are zeroed.
                raw.resize(raw.len().max(len), 0);
                match self.config.device.read_at(&mut raw[..len], first.addr.0) {
                    Err(e) if e.is_damage() => false,
                    read => read.map(|()| true)?,
                }
            }
        };
        let start = blocks.first().map_or(0, |(_, ptr)| ptr.addr.0);
        for (number, ptr) in blocks.drain(..) {
            let decoded = match together {
                true => {
                    let at = (ptr.addr.0 - start) as usize;
                    self.config.counters.add(Counter::InodeBlockReads, 1);
                    self.decode_read(number, ptr, &raw[at..at + ptr.len as usize])
                }
                false => self.read_block(number, ptr),
            };
            match decoded {
                Ok(inodes) => {
                    visitor.block(number);
                    let first = self.block_id(number).first.0;
                    for (inode, ino) in inodes.iter().zip(first..) {
                        if inode.core.in_use() {
                            visitor.inode(Ino(ino), inode)?;
                        }
                    }
                }
                Err(e) if e.is_damage() => visitor.unreadable(number, e),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn visit_in_memory(&self, block: &InodeBlock, visitor: &mut dyn Visitor) -> Result<()> {
        visitor.block(block.number);
        let first = self.block_id(block.number).first.0;
        for slot in 0..INODES_PER_BLOCK {
            let locked = block.slots[slot].read();
            // Unlinked but open: as far as the volume goes, it is free.
            if locked.inode.core.in_use() && !block.is_detached(slot) {
                visitor.inode(Ino(first + slot as u64), &locked.inode)?;
            }
        }
        Ok(())
    }
}
