//! The memory shared by the inode tables of a volume: the bytes of their blocks, and how many of
//! them must still be written.
//!
//! All memory is counted: the slots of a block, the forks of its inodes as rounded by the
//! allocator, and versions kept for a checkpoint. The slots take about 8 KiB. With its forks, a
//! block of small files takes 11 KiB, one of 2 KiB inodes full of attributes 75 KiB, so counting
//! blocks would not do.
//!
//! A block counts its own bytes ([`BlockBytes`]) whenever a fork changes. All threads share the
//! sums of the volume, so these are not updated each time: a block holds bytes in advance, up to a
//! multiple of [`STEP`], and returns some when it holds more than two steps too many. The rounding
//! leaves room for the forks of 32 small files, so those are made and removed without touching a
//! sum. A dirty block counts with all its bytes.
//!
//! A separate sum estimates the writes of a checkpoint, for which space is kept free: dirty blocks
//! at their maximum length. That leaves room for nodes of `imap`, which are not counted in advance.

use crate::projects::Projects;
use crate::sync::{AtomicUsize, Mutex};
use shoal_base::Epoch;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::share::Share;
use shoal_format::inode::{CORE, Inode};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Unit of the sums, in bytes.
const STEP: usize = 4096;

/// Bytes that the allocator uses for `len`.
const fn allocated(len: usize) -> usize {
    match len {
        0 => 0,
        1..=24 => 32,
        len => (len + 8).next_multiple_of(16),
    }
}

/// Bytes of an inode's forks.
pub(crate) fn forks_of(inode: &Inode) -> usize {
    allocated(inode.data.len()) + allocated(inode.attr.len())
}

/// Bytes of a kept version of an inode.
pub(crate) fn kept_aside(inode: &Inode) -> usize {
    allocated(size_of::<Inode>()) + forks_of(inode)
}

pub(crate) fn in_steps(bytes: usize) -> usize {
    bytes.next_multiple_of(STEP)
}

/// Bytes of a block in memory, and how many of them count as dirty in even and odd epochs.
pub(crate) struct BlockBytes {
    held: AtomicUsize,
    /// Bytes counted in the budget.
    counted: AtomicUsize,
    dirty: [AtomicUsize; 2],
    budget: Arc<Budget>,
}

impl BlockBytes {
    /// Makes the count of a block that is not in a table yet.
    pub(crate) fn new(held: usize, budget: Arc<Budget>) -> BlockBytes {
        let counted = AtomicUsize::new(in_steps(held));
        BlockBytes { held: AtomicUsize::new(held), counted, dirty: Default::default(), budget }
    }
    /// Bytes counted in the budget.
    pub(crate) fn counted(&self) -> usize {
        self.counted.load(Ordering::Relaxed)
    }
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }
    #[cfg(test)]
    pub(crate) fn counted_dirty(&self) -> usize {
        self.dirty.iter().map(|dirty| dirty.load(Ordering::Relaxed)).sum()
    }
    /// Accounts for a change from `before` to `after` bytes, by a change of this epoch if there is
    /// one that must still be written. Inodes are unlocked outside the transaction, possibly after
    /// their block was written; then up to a step stays counted as dirty until the block is written
    /// again.
    #[inline]
    pub(crate) fn changed(&self, before: usize, after: usize, epoch: Option<Epoch>) {
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
    /// Changes the bytes counted in the budget, unless another thread is doing so; the next unlock
    /// of an inode of the block checks again.
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
        // Forks may grow although no block is loaded.
        if self.budget.is_over()
            && let Some(table) = self.budget.next_table()
        {
            table.shrink();
        }
    }
    /// Use of the projects of the volume.
    #[inline]
    pub(crate) fn projects(&self) -> &Projects {
        &self.budget.projects
    }
    /// Marks all of it as to be written by the checkpoint of `epoch`.
    pub(crate) fn dirtied(&self, epoch: Epoch) {
        self.budget.dirty_blocks[epoch as usize % 2].fetch_add(1, Ordering::Relaxed);
        self.dirtied_by(self.counted(), epoch);
    }
    fn dirtied_by(&self, bytes: usize, epoch: Epoch) {
        let parity = epoch as usize % 2;
        self.dirty[parity].fetch_add(bytes, Ordering::Relaxed);
        self.budget.dirty[parity].fetch_add(bytes, Ordering::Relaxed);
    }
    /// Notes that the checkpoint of an even or odd epoch has written it, or need not.
    pub(crate) fn cleaned(&self, parity: usize) {
        self.budget.dirty_blocks[parity].fetch_sub(1, Ordering::Relaxed);
        self.forget_dirty(parity);
    }
    fn forget_dirty(&self, parity: usize) {
        let dirty = self.dirty[parity].swap(0, Ordering::Relaxed);
        self.budget.dirty[parity].fetch_sub(dirty, Ordering::Relaxed);
    }
    /// Adds it to the budget. Must be called before other threads can find the block in the table.
    pub(crate) fn loaded(&self) {
        self.budget.share.add(self.counted());
    }
    /// Removes it from the budget.
    pub(crate) fn dropped(&self) {
        self.budget.share.sub(self.counted());
        self.forget_dirty(0);
        self.forget_dirty(1);
    }
}

/// A user of the budget: a table.
pub(crate) trait Shrink: Send + Sync {
    /// Gives up blocks while the budget is exceeded.
    fn shrink(&self);
}

/// The memory budget of a volume's inode tables.
pub struct Budget {
    /// Limit for bytes in memory, exceeded only while that much is dirty or in use; and bytes in
    /// memory.
    share: Arc<Share>,
    /// Bytes in memory of blocks that the checkpoint of an even or odd epoch must write.
    dirty: [AtomicUsize; 2],
    /// The number of these blocks.
    dirty_blocks: [AtomicUsize; 2],
    /// Maximum bytes of one block on the device, with its entry in `imap`.
    longest: u64,
    /// Entries in the tables' lists of reusable blocks, about 32 bytes each. Limited to the number
    /// of blocks of small files that fit in the budget.
    listed: AtomicUsize,
    listed_max: usize,
    /// Bytes of a block in memory without forks, and with full ones.
    empty_block: usize,
    block_max: usize,
    /// Use of the projects that the inodes belong to.
    projects: Projects,
    /// The tables, and the index of the next one that must give up blocks for another.
    tables: Mutex<(Vec<Weak<dyn Shrink>>, usize)>,
}

impl Budget {
    /// Makes a budget of `limit` bytes for blocks of inodes of `inode_size` bytes, which take
    /// `empty_block` bytes without forks. At most `listed_max` of them are listed for reuse.
    pub(crate) fn with_limit(
        limit: usize,
        listed_max: usize,
        inode_size: u32,
        empty_block: usize,
    ) -> Arc<Budget> {
        // Both forks may have any length that fits.
        let forks = allocated(inode_size as usize - CORE) + 32;
        Arc::new(Budget {
            share: Share::new(limit),
            dirty: Default::default(),
            dirty_blocks: Default::default(),
            longest: u64::from(inode_size + 4) * INODES_PER_BLOCK as u64,
            listed: AtomicUsize::new(0),
            listed_max,
            empty_block,
            block_max: in_steps(empty_block + INODES_PER_BLOCK * forks),
            projects: Projects::default(),
            tables: Mutex::default(),
        })
    }
    /// Adds a user of this budget.
    pub(crate) fn add(&self, user: Weak<dyn Shrink>) {
        self.tables.lock().0.push(user);
    }
    /// Limit in blocks without forks.
    #[cfg(test)]
    pub(crate) fn limit_blocks(&self) -> usize {
        self.share.limit() / in_steps(self.empty_block)
    }
    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        self.listed.load(Ordering::Relaxed)
    }
    /// Use of the projects of all tables.
    #[inline]
    pub fn projects(&self) -> &Projects {
        &self.projects
    }
    /// The tables' share of the metadata memory.
    pub fn share(&self) -> &Arc<Share> {
        &self.share
    }
    /// Bytes of blocks in memory.
    pub fn used_bytes(&self) -> u64 {
        self.share.used() as u64
    }
    /// Blocks in memory, an upper limit.
    pub(crate) fn used_blocks(&self) -> usize {
        self.share.used() / self.empty_block
    }
    /// Number of blocks, of any content, that fit in memory in addition to those that must still be
    /// written.
    pub fn room_blocks(&self) -> usize {
        self.share.limit().saturating_sub(self.dirty_held() as usize) / self.block_max
    }
    /// Bytes that the next checkpoints must write, an upper limit.
    #[inline]
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_in(0) + self.dirty_in(1)
    }
    /// Bytes that the checkpoint of this epoch must write, an upper limit. It must be the current
    /// epoch or the one before.
    #[inline]
    pub fn dirty_in(&self, epoch: Epoch) -> u64 {
        self.dirty_blocks[epoch as usize % 2].load(Ordering::Relaxed) as u64 * self.longest
    }
    /// Bytes in memory that cannot be freed before the next checkpoints have written blocks.
    #[inline]
    pub fn dirty_held(&self) -> u64 {
        self.dirty_held_in(0) + self.dirty_held_in(1)
    }
    /// As [`Budget::dirty_held`], for the checkpoint of this epoch, which must be the current one
    /// or the one before.
    #[inline]
    pub fn dirty_held_in(&self, epoch: Epoch) -> u64 {
        self.dirty[epoch as usize % 2].load(Ordering::Relaxed) as u64
    }
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.share.is_over()
    }
    /// Returns whether another block may be listed for reuse.
    pub(crate) fn may_list(&self) -> bool {
        self.listed.load(Ordering::Relaxed) < self.listed_max
    }
    /// Accounts for entries added to a list or removed from it.
    pub(crate) fn relisted(&self, before: usize, after: usize) {
        if before != after {
            self.listed.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        }
    }
    /// Returns the next table that must give up blocks, if the one that needs space has none.
    /// `None` if another thread is doing that.
    pub(crate) fn next_table(&self) -> Option<Arc<dyn Shrink>> {
        let mut tables = self.tables.try_lock()?;
        let turn = tables.1;
        tables.1 = turn.wrapping_add(1);
        let count = tables.0.len().max(1);
        tables.0.get(turn % count)?.upgrade()
    }
}
