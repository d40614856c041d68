//! Writing inode blocks back: a checkpoint goes from one block marked as changed in its epoch to
//! the next, which is in inode order, writes them as they were at its end, and enters their new
//! addresses in `imap`.

use crate::block::{DIRTY, InodeBlock, WRITING};
use crate::table::{DIRTY_MARK, InodeTable, decode_imap};
use shoal_base::invariant;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::planted::{self, Defect};
use shoal_base::{Addr, Code, Epoch, Result, checksum};
use shoal_format::Ptr;
use shoal_format::bytes::Put;
use shoal_format::inode::{Inode, block_len, encode_block};
use shoal_tree::{Key, NodeWriter};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Blocks that a checkpoint has written, until they can be read back.
pub struct Written {
    blocks: Vec<Arc<InodeBlock>>,
}

impl InodeTable {
    /// Writes the blocks changed in `epoch`, in which no transaction runs any more, and `imap`.
    /// Returns the root of `imap`; call [`InodeTable::finish`] once the writer's bytes are on the
    /// device.
    pub fn checkpoint(&self, epoch: Epoch, writer: &mut dyn NodeWriter) -> Result<(Ptr, Written)> {
        let mark = DIRTY_MARK[epoch as usize % 2];
        let mut blocks = Vec::new();
        let mut raw = Vec::new();
        let mut slots: [Vec<u8>; INODES_PER_BLOCK] = Default::default();
        for (number, block) in self.blocks.range_marked(.., mark) {
            block.flags.fetch_or(WRITING, Ordering::AcqRel);
            let free = capture(&block, epoch, &mut slots);
            self.blocks.clear_mark(number, mark);
            if planted::is(Defect::BlockNotWritten) && number % 2 == 1 {
                block.flags.fetch_and(!(DIRTY[epoch as usize % 2] | WRITING), Ordering::AcqRel);
                continue;
            }
            block.flags.fetch_and(!DIRTY[epoch as usize % 2], Ordering::AcqRel);
            let len = block_len(slots.iter().map(Vec::len).sum());
            let addr = writer.alloc(len)?;
            raw.clear();
            encode_block(self.block_id(block.number), addr, epoch, &slots, &mut raw);
            let ptr = Ptr { addr, len: len as u32, checksum: checksum(&raw) };
            writer.write(addr, &raw)?;
            let before = std::mem::replace(&mut *block.disk.lock(), ptr);
            writer.retire(before);
            let mut value = Vec::with_capacity(Ptr::SIZE + 4);
            ptr.encode(&mut value);
            value.put_u32(free);
            self.imap.put(Key::new(block.number, 0), &value, epoch)?;
            blocks.push(block);
        }
        for (low, level, addr) in self.imap_moves.lock().drain(..) {
            self.imap.rewrite(low, level, addr, epoch)?;
        }
        let root = self.imap.checkpoint(epoch, writer)?;
        Ok((root, Written { blocks }))
    }

    /// What `checkpoint` wrote can be read back: the blocks may leave memory.
    pub fn finish(&self, written: Written) {
        self.config.budget.cleaned(written.blocks.len());
        for block in written.blocks {
            block.flags.fetch_and(!WRITING, Ordering::AcqRel);
            self.note_clean(&block);
        }
    }
}

impl InodeTable {
    /// For the checkpoint of `epoch`: nothing is left in this table, none of whose inodes is in
    /// use. What its blocks took on the device is retired, and numbers are given out from the start
    /// again: inodes made there need a generation that none had before.
    pub fn vacate(&self, epoch: Epoch, writer: &mut dyn NodeWriter) -> Result<()> {
        self.imap_moves.lock().clear();
        self.imap.delete_range(Key::MIN, Key::MAX, epoch, &mut |_, value| {
            if let Some((ptr, _)) = decode_imap(value) {
                writer.retire(ptr);
            }
        })?;
        self.forget_numbers();
        for (number, block) in self.blocks.iter() {
            let dirty = DIRTY_MARK.iter().filter(|mark| self.blocks.has_mark(number, **mark));
            self.config.budget.cleaned(dirty.count());
            if self.blocks.remove_if(number, &block) {
                self.config.budget.dropped(1);
            }
        }
        Ok(())
    }
}

/// Encodes a block's inodes as they were at the end of `epoch`; returns the mask of free slots.
fn capture(block: &InodeBlock, epoch: Epoch, slots: &mut [Vec<u8>; INODES_PER_BLOCK]) -> u32 {
    let mut free = 0;
    for (i, (cell, out)) in block.slots.iter().zip(slots.iter_mut()).enumerate() {
        out.clear();
        let mut slot = cell.write();
        let old = slot.old.take();
        let freed;
        let inode = match &old {
            Some(old) if slot.epoch > epoch => old,
            _ => {
                invariant!(slot.epoch <= epoch, "inode was changed and not kept aside");
                match block.is_detached(i) && !planted::is(Defect::DetachedWritten) {
                    true => {
                        freed = Inode::free(slot.inode.core.generation);
                        &freed
                    }
                    false => &slot.inode,
                }
            }
        };
        inode.encode(out);
        free |= u32::from(!inode.core.in_use()) << i;
    }
    free
}

impl InodeTable {
    /// For the cleaner: the block, if it is still at `addr`, is written elsewhere by the checkpoint
    /// of `epoch`, the current one.
    pub fn rewrite_block(&self, number: u64, addr: Addr, epoch: Epoch) -> Result<()> {
        let block = match self.block(number) {
            Ok(block) => block,
            Err(e) if e.is(Code::Stale) => return Ok(()),
            Err(e) => return Err(e),
        };
        if block.disk.lock().addr == addr {
            let bit = DIRTY[epoch as usize % 2];
            if block.flags.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
                self.dirtied(&block, epoch);
            }
        }
        Ok(())
    }

    /// For the cleaner: an `imap` node, if it is still at `addr`, is written elsewhere by the next
    /// checkpoint, which alone changes `imap`.
    pub fn rewrite_imap_node(&self, low: Key, level: u8, addr: Addr) {
        self.imap_moves.lock().push((low, level, addr));
        self.imap.mark_root_for_next();
    }
}
