//! The memory that the inode tables of a volume share: what their blocks take, and how much of it
//! has still to be written.
//!
//! What counts is what is held: the slots of a block, the forks of its inodes as the allocator
//! rounds them, and versions kept aside for a checkpoint. A block of small files takes 8 KiB, one
//! of inodes of 2 KiB full of attributes takes 75 KiB; a count of blocks would mean either.
//!
//! A block counts its own bytes ([`BlockBytes`]), whenever a fork changes. The sums of the volume
//! are shared by all threads, so they are not touched each time: a block has bytes in them ahead,
//! up to a multiple of [`STEP`], and gives bytes back when two steps are too many. Empty slots and
//! the next multiple leave room for the forks of 32 small files, so those are made and removed
//! without touching a sum. A dirty block counts with all its bytes.
//!
//! What a checkpoint has to write is another sum, by which space is kept free: dirty blocks at
//! their longest. That leaves room for nodes of `imap`, which nobody counts before.

use crate::sync::{AtomicUsize, Mutex};
use crate::table::InodeTable;
use shoal_base::Epoch;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::share::Share;
use shoal_format::inode::{CORE, Inode};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Bytes in which sums are counted.
const STEP: usize = 4096;
/// Bytes of a block of small files: for one of them an entry may be listed.
const SMALL_BLOCK: u64 = 8 * 1024;

/// Bytes that the allocator takes for so many.
const fn allocated(len: usize) -> usize {
    match len {
        0 => 0,
        1..=24 => 32,
        len => (len + 8).next_multiple_of(16),
    }
}

/// Bytes that an inode takes beside its slot.
pub(crate) fn forks_of(inode: &Inode) -> usize {
    allocated(inode.data.len()) + allocated(inode.attr.len())
}

/// Bytes that a version of an inode takes that is kept aside.
pub(crate) fn kept_aside(inode: &Inode) -> usize {
    allocated(size_of::<Inode>()) + forks_of(inode)
}

fn in_steps(bytes: usize) -> usize {
    bytes.next_multiple_of(STEP)
}

/// What a block takes in memory, and how much of that is counted as dirty in even and odd epochs.
pub(crate) struct BlockBytes {
    held: AtomicUsize,
    /// What the budget counts for it.
    counted: AtomicUsize,
    dirty: [AtomicUsize; 2],
    budget: Arc<Budget>,
}

impl BlockBytes {
    /// Of a block that is not yet in a table.
    pub fn new(held: usize, budget: Arc<Budget>) -> BlockBytes {
        let counted = AtomicUsize::new(in_steps(held));
        BlockBytes { held: AtomicUsize::new(held), counted, dirty: Default::default(), budget }
    }
    /// What the budget counts for it.
    pub fn counted(&self) -> usize {
        self.counted.load(Ordering::Relaxed)
    }
    #[cfg(test)]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
    #[cfg(test)]
    pub fn counted_dirty(&self) -> usize {
        self.dirty.iter().map(|dirty| dirty.load(Ordering::Relaxed)).sum()
    }
    /// It takes `after` bytes where it took `before`, by a change of this epoch if there is one
    /// that has still to be written. An inode is unlocked behind the gate, perhaps after its block
    /// was written: then up to a step stays counted as dirty until the block is written again.
    #[inline]
    pub fn changed(&self, before: usize, after: usize, epoch: Option<Epoch>) {
        if before == after {
            return;
        }
        let by = after.wrapping_sub(before);
        let held = self.held.fetch_add(by, Ordering::Relaxed).wrapping_add(by);
        let counted = self.counted();
        if held > counted || in_steps(held) + STEP < counted {
            self.recount(counted, in_steps(held), epoch);
        }
    }
    /// Changes what the budget counts, unless somebody else just does: who unlocks an inode of the
    /// block next looks again.
    #[cold]
    fn recount(&self, was: usize, now: usize, epoch: Option<Epoch>) {
        let order = Ordering::Relaxed;
        if self.counted.compare_exchange(was, now, order, order).is_err() {
            return;
        }
        let by = now.wrapping_sub(was);
        self.budget.share.add(by);
        if let Some(epoch) = epoch {
            self.dirtied_by(by, epoch);
        }
        // Forks may grow though no block comes into memory.
        if self.budget.is_over()
            && let Some(table) = self.budget.next_table()
        {
            table.shrink();
        }
    }
    /// All of it has to be written by the checkpoint of `epoch`.
    pub fn dirtied(&self, epoch: Epoch) {
        self.budget.dirty_blocks[epoch as usize % 2].fetch_add(1, Ordering::Relaxed);
        self.dirtied_by(self.counted(), epoch);
    }
    fn dirtied_by(&self, bytes: usize, epoch: Epoch) {
        let parity = epoch as usize % 2;
        self.dirty[parity].fetch_add(bytes, Ordering::Relaxed);
        self.budget.dirty[parity].fetch_add(bytes, Ordering::Relaxed);
    }
    /// The checkpoint of an even or odd epoch has written it, or need not.
    pub fn cleaned(&self, parity: usize) {
        self.budget.dirty_blocks[parity].fetch_sub(1, Ordering::Relaxed);
        self.forget_dirty(parity);
    }
    fn forget_dirty(&self, parity: usize) {
        let dirty = self.dirty[parity].swap(0, Ordering::Relaxed);
        self.budget.dirty[parity].fetch_sub(dirty, Ordering::Relaxed);
    }
    /// It comes into a table: to be called before anybody can find it there.
    pub fn loaded(&self) {
        self.budget.share.add(self.counted());
    }
    /// It has left it.
    pub fn dropped(&self) {
        self.budget.share.sub(self.counted());
        self.forget_dirty(0);
        self.forget_dirty(1);
    }
}

/// The budget of a volume's inode tables.
pub struct Budget {
    /// Bytes that may stay in memory, more only while that much is dirty or in use; and bytes in
    /// memory.
    share: Arc<Share>,
    /// Bytes of blocks, as they are in memory, that the checkpoint of an even or odd epoch has to
    /// write.
    dirty: [AtomicUsize; 2],
    /// The number of these blocks.
    dirty_blocks: [AtomicUsize; 2],
    /// Bytes that one of them takes on the device at most, with its entry in `imap`.
    longest: u64,
    /// Entries in the tables' lists of blocks to use again, about 32 bytes each; at most as many as
    /// there may be blocks of small files in memory.
    listed: AtomicUsize,
    listed_max: usize,
    /// Bytes that a block can take in memory, with full forks.
    block_max: usize,
    /// The tables, and whose turn it is to give blocks up for another.
    tables: Mutex<(Vec<Weak<InodeTable>>, usize)>,
}

impl Budget {
    /// A budget of `bytes` for blocks of inodes of `inode_size` bytes.
    pub fn new(bytes: u64, inode_size: u32) -> Arc<Budget> {
        let listed_max = (bytes / SMALL_BLOCK).max(64);
        Budget::with_limit((listed_max * SMALL_BLOCK) as usize, listed_max as usize, inode_size)
    }
    pub(crate) fn with_limit(limit: usize, listed_max: usize, inode_size: u32) -> Arc<Budget> {
        // Both forks may be of any length that fits.
        let forks = allocated(inode_size as usize - CORE) + 32;
        Arc::new(Budget {
            share: Share::new(limit),
            dirty: Default::default(),
            dirty_blocks: Default::default(),
            longest: u64::from(inode_size + 4) * INODES_PER_BLOCK as u64,
            listed: AtomicUsize::new(0),
            listed_max,
            block_max: in_steps(crate::block::EMPTY_BYTES + INODES_PER_BLOCK * forks),
            tables: Mutex::default(),
        })
    }
    /// A table lives on this budget from now on.
    pub fn enter(&self, table: &Arc<InodeTable>) {
        self.tables.lock().0.push(Arc::downgrade(table));
    }
    /// Blocks without forks that may stay.
    #[cfg(test)]
    pub(crate) fn limit_blocks(&self) -> usize {
        self.share.limit() / in_steps(crate::block::EMPTY_BYTES)
    }
    /// A budget of so many blocks without forks.
    #[cfg(test)]
    pub(crate) fn of_blocks(blocks: usize, inode_size: u32) -> Arc<Budget> {
        let limit = blocks.saturating_mul(in_steps(crate::block::EMPTY_BYTES));
        Budget::with_limit(limit, blocks, inode_size)
    }
    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        self.listed.load(Ordering::Relaxed)
    }
    /// The share of the tables in the memory for metadata.
    pub fn share(&self) -> &Arc<Share> {
        &self.share
    }
    /// Bytes of blocks in memory.
    pub fn used_bytes(&self) -> u64 {
        self.share.used() as u64
    }
    /// Blocks in memory, at most.
    pub(crate) fn used_blocks(&self) -> usize {
        self.share.used() / crate::block::EMPTY_BYTES
    }
    /// Blocks that can be read and stay in memory beside what has still to be written, whatever is
    /// in them.
    pub fn room_blocks(&self) -> usize {
        self.share.limit().saturating_sub(self.dirty_held() as usize) / self.block_max
    }
    /// Bytes that the next checkpoints have to write, at most.
    #[inline]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_in(0) + self.dirty_in(1)
    }
    /// Bytes that the checkpoint of this epoch, the current one or the one before, has to write, at
    /// most.
    #[inline]
    pub fn dirty_in(&self, epoch: Epoch) -> u64 {
        self.dirty_blocks[epoch as usize % 2].load(Ordering::Relaxed) as u64 * self.longest
    }
    /// Bytes of memory that cannot be given up before the next checkpoints have written blocks.
    #[inline]
    pub fn dirty_held(&self) -> u64 {
        self.dirty_held_in(0) + self.dirty_held_in(1)
    }
    /// The same of the checkpoint of this epoch, the current one or the one before.
    #[inline]
    pub fn dirty_held_in(&self, epoch: Epoch) -> u64 {
        self.dirty[epoch as usize % 2].load(Ordering::Relaxed) as u64
    }
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.share.is_over()
    }
    /// Returns whether another block may be listed for use.
    pub(crate) fn may_list(&self) -> bool {
        self.listed.load(Ordering::Relaxed) < self.listed_max
    }
    /// Counts entries that came to a list or left it.
    pub(crate) fn relisted(&self, before: usize, after: usize) {
        if before != after {
            self.listed.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        }
    }
    /// The next table in turn, to give blocks up when the one that wants room has none to give.
    /// `None` when somebody else is at it.
    pub(crate) fn next_table(&self) -> Option<Arc<InodeTable>> {
        let mut tables = self.tables.try_lock()?;
        let turn = tables.1;
        tables.1 = turn.wrapping_add(1);
        let count = tables.0.len().max(1);
        tables.0.get(turn % count)?.upgrade()
    }
}
