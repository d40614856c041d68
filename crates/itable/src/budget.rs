//! The memory that the inode tables of a volume share: what their blocks may take, and how many
//! have still to be written.

use crate::sync::{AtomicUsize, Mutex};
use crate::table::InodeTable;
use shoal_base::Epoch;
use shoal_base::limits::INODES_PER_BLOCK;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// Bytes that a block of small inodes takes in memory.
const BLOCK_COST: u64 = 8 * 1024;

/// The budget of a volume's inode tables.
pub struct Budget {
    /// Blocks that may stay in memory; more only while that many are dirty or in use.
    limit: usize,
    /// Blocks in memory.
    blocks: AtomicUsize,
    /// Blocks that the checkpoint of an even or odd epoch has to write.
    dirty: [AtomicUsize; 2],
    /// Entries in the tables' lists of blocks to use again, about 32 bytes each; at most as many as
    /// there may be blocks in memory.
    listed: AtomicUsize,
    /// Bytes that one of them takes on the device at most, with its entry in `imap`.
    longest: u64,
    /// The tables, and whose turn it is to give blocks up for another.
    tables: Mutex<(Vec<Weak<InodeTable>>, usize)>,
}

impl Budget {
    /// A budget of `bytes` for blocks of inodes of `inode_size` bytes.
    pub fn new(bytes: u64, inode_size: u32) -> Arc<Budget> {
        Budget::with_limit((bytes / BLOCK_COST).max(64) as usize, inode_size)
    }
    pub(crate) fn with_limit(limit: usize, inode_size: u32) -> Arc<Budget> {
        Arc::new(Budget {
            limit,
            blocks: AtomicUsize::new(0),
            dirty: Default::default(),
            listed: AtomicUsize::new(0),
            longest: u64::from(inode_size + 4) * INODES_PER_BLOCK as u64,
            tables: Mutex::default(),
        })
    }
    /// A table lives on this budget from now on.
    pub fn enter(&self, table: &Arc<InodeTable>) {
        self.tables.lock().0.push(Arc::downgrade(table));
    }
    #[cfg(test)]
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }
    #[cfg(test)]
    pub(crate) fn listed(&self) -> usize {
        self.listed.load(Ordering::Relaxed)
    }
    /// Bytes of blocks in memory, about.
    pub fn used_bytes(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed) as u64 * BLOCK_COST
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
        self.dirty[epoch as usize % 2].load(Ordering::Relaxed) as u64 * self.longest
    }
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.blocks.load(Ordering::Relaxed) > self.limit
    }
    pub(crate) fn loaded(&self) {
        self.blocks.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn dropped(&self, blocks: usize) {
        self.blocks.fetch_sub(blocks, Ordering::Relaxed);
    }
    pub(crate) fn dirtied(&self, epoch: Epoch) {
        self.dirty[epoch as usize % 2].fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn cleaned(&self, blocks: usize, epoch: Epoch) {
        self.dirty[epoch as usize % 2].fetch_sub(blocks, Ordering::Relaxed);
    }
    /// Returns whether another block may be listed for use.
    pub(crate) fn may_list(&self) -> bool {
        self.listed.load(Ordering::Relaxed) < self.limit
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
