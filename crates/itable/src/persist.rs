//! Writing inode blocks back. A checkpoint visits the blocks marked as changed in its epoch, in
//! inode order, writes them as they were at its end, and enters their new addresses in `imap`.

use crate::block::{DIRTY, InodeBlock, WRITING};
use crate::sync::Mutex;
use crate::sync::crew::{Steps, in_order};
use crate::table::{DIRTY_MARK, InodeTable, decode_imap};
use shoal_base::invariant;
use shoal_base::limits::ALIGN;
use shoal_base::planted::{self, Defect};
use shoal_base::{Addr, Code, Epoch, Result};
use shoal_format::inode::{ImapEntry, Inode, encode_block, stamp_block};
use shoal_format::{Coding, Compression, Ptr};
use shoal_tree::{Key, NodeWriter, Placed};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Maximum number of blocks that a thread encodes and writes at once: about 600 KiB of small files.
const PIECE: usize = if cfg!(any(test, feature = "scheduled")) { 2 } else { 128 };

/// Bytes of blocks in memory at which a piece is complete, whatever their number.
const PIECE_BYTES: usize = 1 << 20;

/// Blocks that a checkpoint has written, until they can be read back.
pub struct Written {
    epoch: Epoch,
    blocks: Vec<Arc<InodeBlock>>,
}

impl InodeTable {
    /// Writes the blocks changed in `epoch`, in which no transaction runs any more, and `imap`.
    /// Returns the root of `imap`. [`InodeTable::finish`] must be called once the writer's bytes
    /// are on the device.
    ///
    /// Threads encode and write pieces of the table; addresses are allocated in inode order.
    pub fn checkpoint(&self, epoch: Epoch, writer: &mut dyn NodeWriter) -> Result<(Ptr, Written)> {
        let mut from = 0;
        let mut next = || self.next_dirty(&mut from, epoch);
        let mut first = next();
        // Fewer blocks are not worth a thread.
        let helpers = writer.helpers().filter(|_| first.as_ref().is_some_and(|p| p.is_whole()));
        let how = writer.compression();
        let (blocks, sink) = (Mutex::new(Vec::new()), Mutex::new(&mut *writer));
        let steps = Steps {
            take: || first.take().or_else(&mut next),
            prepare: |blocks: Blocks| Ok(self.encode(blocks, how, epoch)),
            place: |piece: &mut Piece| {
                let mut writer = sink.lock();
                if helpers.is_some() {
                    writer.align()?;
                }
                piece.place(&mut **writer)
            },
            finish: |mut piece: Piece| {
                piece.stamp(epoch);
                match &helpers {
                    Some(helpers) => helpers.write_runs(&piece.raw, &piece.placed)?,
                    None => piece.write(&mut **sink.lock())?,
                }
                self.enter_addresses(&piece, epoch)?;
                blocks.lock().append(&mut piece.blocks);
                Ok(())
            },
        };
        in_order(helpers.as_ref().map_or(1, |helpers| helpers.threads), steps)?;
        if helpers.is_some() {
            writer.align()?;
        }
        for (low, level, addr) in self.imap_moves.lock().drain(..) {
            self.imap.rewrite(low, level, addr, epoch)?;
        }
        let root = self.imap.checkpoint(epoch, writer)?;
        let blocks = std::mem::take(&mut *blocks.lock());
        Ok((root, Written { epoch, blocks }))
    }

    /// Returns the next blocks from `from` on that the checkpoint of `epoch` must write.
    fn next_dirty(&self, from: &mut u64, epoch: Epoch) -> Option<Blocks> {
        let mark = DIRTY_MARK[epoch as usize % 2];
        let mut blocks = Blocks::default();
        while !blocks.is_whole()
            && let Some((number, block)) = self.blocks.next_marked(*from, mark)
        {
            *from = number + 1;
            blocks.bytes += block.bytes.counted();
            blocks.blocks.push(block);
        }
        (!blocks.blocks.is_empty()).then_some(blocks)
    }

    /// Encodes blocks as they were at the end of `epoch`, in sequence.
    fn encode(&self, blocks: Blocks, how: Compression, epoch: Epoch) -> Piece {
        let mut piece = Piece::default();
        for block in blocks.blocks {
            block.flags.fetch_or(WRITING, Ordering::AcqRel);
            let start = piece.raw.len();
            let (coding, free) = self.capture(&block, how, epoch, &mut piece.raw);
            if planted::is(Defect::BlockNotWritten) && block.number % 2 == 1 {
                self.blocks.clear_mark(block.number, DIRTY_MARK[epoch as usize % 2]);
                block.flags.fetch_and(!(DIRTY[epoch as usize % 2] | WRITING), Ordering::AcqRel);
                piece.raw.truncate(start);
                continue;
            }
            block.flags.fetch_and(!DIRTY[epoch as usize % 2], Ordering::AcqRel);
            let len = piece.raw.len() - start;
            piece.raw.resize((start + len).next_multiple_of(ALIGN), 0);
            piece.placed.push(Placed { addr: Addr(0), start, len });
            piece.codings.push(coding);
            piece.free.push(free);
            piece.blocks.push(block);
        }
        piece
    }

    /// Enters the new addresses of written blocks. Only then a block loses its mark: a reader who
    /// looks for changes finds it by the mark or, after that, by its pointer.
    fn enter_addresses(&self, piece: &Piece, epoch: Epoch) -> Result<()> {
        for ((block, ptr), free) in piece.blocks.iter().zip(&piece.ptrs).zip(&piece.free) {
            *block.disk.lock() = *ptr;
            let value = ImapEntry { ptr: *ptr, free: *free }.store();
            self.imap.put(Key::new(block.number, 0), &value, epoch)?;
            self.blocks.clear_mark(block.number, DIRTY_MARK[epoch as usize % 2]);
        }
        Ok(())
    }

    /// Notes that the blocks written by `checkpoint` can be read back, so they may be evicted.
    pub fn finish(&self, written: Written) {
        for block in written.blocks {
            block.bytes.cleaned(written.epoch as usize % 2);
            block.flags.fetch_and(!WRITING, Ordering::AcqRel);
            self.note_clean(&block);
        }
        self.make_room_of_clean();
    }
}

impl InodeTable {
    /// For the checkpoint of `epoch`: empties this table, none of whose inodes is in use. Frees the
    /// blocks on the device and restarts number allocation. Inodes made afterwards need a
    /// generation that none had before.
    pub fn vacate(&self, epoch: Epoch, writer: &mut dyn NodeWriter) -> Result<()> {
        self.imap_moves.lock().clear();
        self.imap.delete_range(Key::MIN, Key::MAX, epoch, &mut |_, value| {
            if let Some((ptr, _)) = decode_imap(value) {
                writer.retire(ptr);
            }
        })?;
        self.numbers().forget();
        for (number, block) in self.blocks.iter() {
            for (parity, mark) in DIRTY_MARK.into_iter().enumerate() {
                if self.blocks.has_mark(number, mark) {
                    block.bytes.cleaned(parity);
                }
            }
            if self.blocks.remove_if(number, &block) {
                block.bytes.dropped();
            }
        }
        Ok(())
    }
}

/// Blocks to be written together.
#[derive(Default)]
struct Blocks {
    blocks: Vec<Arc<InodeBlock>>,
    /// Their bytes in memory.
    bytes: usize,
}

impl Blocks {
    fn is_whole(&self) -> bool {
        self.blocks.len() >= PIECE || self.bytes >= PIECE_BYTES
    }
}

/// Blocks of a checkpoint that are encoded, placed and written together.
#[derive(Default)]
struct Piece {
    blocks: Vec<Arc<InodeBlock>>,
    /// Their masks of free slots.
    free: Vec<u32>,
    codings: Vec<Coding>,
    raw: Vec<u8>,
    /// Place of each block in `raw` and on the device.
    placed: Vec<Placed>,
    /// Their pointers, once they are stamped.
    ptrs: Vec<Ptr>,
}

impl Piece {
    fn place(&mut self, writer: &mut dyn NodeWriter) -> Result<()> {
        for (block, placed) in self.blocks.iter().zip(&mut self.placed) {
            placed.addr = writer.alloc(placed.len)?;
            writer.retire(*block.disk.lock());
        }
        Ok(())
    }

    fn stamp(&mut self, epoch: Epoch) {
        for (&Placed { addr, start, len }, coding) in self.placed.iter().zip(&self.codings) {
            let raw = &mut self.raw[start..start + len];
            stamp_block(raw, addr);
            self.ptrs.push(Ptr::coded(addr, epoch, raw, *coding));
        }
    }

    fn write(&self, writer: &mut dyn NodeWriter) -> Result<()> {
        self.placed.iter().try_for_each(|&Placed { addr, start, len }| {
            writer.write(addr, &self.raw[start..start + len])
        })
    }
}

impl InodeTable {
    /// Appends a block to `raw`, with its inodes as they were at the end of `epoch`. Returns its
    /// coding and the mask of free slots.
    fn capture(
        &self,
        block: &InodeBlock,
        how: Compression,
        epoch: Epoch,
        raw: &mut Vec<u8>,
    ) -> (Coding, u32) {
        let (mut free, root) = (0, self.config.root);
        let id = (self.block_id(block.number), epoch);
        let coding = encode_block(id, how, raw, |i, out| {
            let mut slot = block.slots[i].write();
            let before = slot.bytes();
            let old = slot.old.take();
            block.bytes.changed(before, slot.bytes(), None);
            let freed;
            let inode = match &old {
                Some(old) if slot.epoch > epoch => old,
                _ => {
                    invariant!(slot.epoch <= epoch, "inode was changed and not kept aside");
                    match block.is_detached(i) && !planted::is(Defect::UnlinkedWritten) {
                        true => {
                            freed = Inode::free(slot.inode.core.generation);
                            &freed
                        }
                        false => &slot.inode,
                    }
                }
            };
            inode.encode(root, out);
            free |= u32::from(!inode.core.in_use()) << i;
        });
        (coding, free)
    }
}

impl InodeTable {
    /// For the cleaner: makes the checkpoint of `epoch`, the current one, write the block elsewhere
    /// if it is still at `addr`.
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

    /// For the cleaner: makes the next checkpoint write an `imap` node elsewhere if it is still at
    /// `addr`. Only checkpoints change `imap`.
    pub fn rewrite_imap_node(&self, low: Key, level: u8, addr: Addr) {
        self.imap_moves.lock().push((low, level, addr));
        self.imap.mark_root_for_next();
    }
}
