//! Allocation of inode numbers.
//!
//! A thread shard allocates numbers from blocks of its own (`shards.rs`): one block for all small
//! directories, and one for each of the large directories that it last worked in, so that a
//! directory's children are adjacent even if threads alternate between directories. When a block is
//! used up, the next one is, in this order (`pool.rs`):
//!
//! 1. a block in which the same directory lost children, with 12 free numbers of 32 or more;
//! 2. an empty block, or one with 24 free numbers or more if such blocks are an eighth of all;
//! 3. a new block.
//!
//! A block with fewer free numbers is left alone: using them would read and rewrite the block for a
//! few inodes and scatter the directory. The cost is low. There are 2^43 block numbers, so new ones
//! do not run out. Blocks are written trimmed, with 4 bytes for a free slot, so a block with 9
//! inodes of 32 takes about 11 % more bytes per inode than a full one. Only when a subvolume has
//! reached its last number is every free number used.
//!
//! Background compaction is impossible: users, handles and other programs know an inode by its
//! number, so it cannot move to another block.

use crate::block::{At, InodeBlock, InodeRef};
use crate::budget::Budget;
use crate::pool::{Next, OWN, Pool, SPARSE};
use crate::shards::{Cursor, Cursors};
use crate::table::{InodeTable, decode_imap, no_memory};
use shoal_base::limits::{INODE_BLOCKS_MAX, INODES_PER_BLOCK};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::Ptr;
use shoal_format::inode::Inode;
use shoal_tree::{Batch, Key};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const PER_BLOCK: u64 = INODES_PER_BLOCK as u64;
/// `imap` entries read at a time.
const SEARCH: usize = 512;
/// Number of entries from which a directory has its own block. Smaller ones share blocks; otherwise
/// a tree of small directories would need a block for each.
const LARGE: u64 = PER_BLOCK;

/// Free slots of an empty block.
const EMPTY: u32 = INODES_PER_BLOCK as u32;
/// Values of [`crate::block::Reuse::listed`].
const NOT_LISTED: u8 = 0;
const LISTED_SPARSE: u8 = 1;
const LISTED_EMPTY: u8 = 2;

/// Takes the lowest free slot of a block.
fn take(block: &InodeBlock) -> Option<usize> {
    let mut free = block.free.load(Ordering::Acquire);
    while free != 0 {
        let bit = free & free.wrapping_neg();
        let before = block.free.fetch_and(!bit, Ordering::AcqRel);
        if before & bit != 0 {
            return Some(bit.trailing_zeros() as usize);
        }
        free = before & !bit;
    }
    None
}

/// Makes a block of which no number was ever used.
fn fresh_block(number: u64, budget: &Arc<Budget>) -> Arc<InodeBlock> {
    let inodes = (0..INODES_PER_BLOCK).map(|_| Inode::default()).collect();
    InodeBlock::new(number, inodes, Ptr::NULL, budget)
}

/// The inode numbers of a table: [`InodeTable::numbers`].
#[derive(Clone, Copy)]
pub struct Numbers<'t>(&'t InodeTable);

impl InodeTable {
    /// Returns the calls that allocate and free inode numbers.
    #[inline]
    pub fn numbers(&self) -> Numbers<'_> {
        Numbers(self)
    }
}

/// Allocating numbers.
impl Numbers<'_> {
    /// Allocates a number for a child of `dir`, a directory with `entries` entries. The number
    /// belongs to the caller until a record makes it an inode, or until [`Numbers::give_back`].
    pub fn allocate(self, dir: At<'_>, entries: u64) -> Result<InodeRef> {
        self.allocate_from(&mut self.0.alloc.shards.mine().cursors.lock(), dir, entries)
    }

    fn allocate_from(self, cursors: &mut Cursors, dir: At<'_>, entries: u64) -> Result<InodeRef> {
        let home = dir.ino.index();
        loop {
            if let Some(inode) = cursors.of(home).and_then(|cursor| self.take_from(cursor)) {
                return Ok(inode);
            }
            let block = self.block_of(dir, entries)?;
            let own = block.is_some() || entries >= LARGE;
            let cursor = cursors.place(home, own);
            if !own && let Some(inode) = self.take_from(cursor) {
                return Ok(inode);
            }
            let block = match block {
                Some(block) => block,
                None => self.another_block()?,
            };
            let before = (cursor.home, cursor.block.replace(block));
            cursor.home = if own { home } else { 0 };
            if let (home, Some(block)) = before {
                self.let_go(&block, home);
            }
        }
    }

    /// Allocates a number for a child of `dir` before `dir` is locked, if this thread shard has a
    /// block for that directory, which is then known to be large. So waiters for the directory's
    /// lock need not wait for the making of a new block.
    #[inline]
    pub fn allocate_ahead(self, dir: At<'_>) -> Result<Option<InodeRef>> {
        let mut cursors = self.0.alloc.shards.mine().cursors.lock();
        match cursors.of(dir.ino.index()) {
            Some(_) => self.allocate_from(&mut cursors, dir, LARGE).map(Some),
            None => Ok(None),
        }
    }

    /// Allocates the first number of an empty table: 1, for its top directory.
    pub fn allocate_first(self) -> Result<InodeRef> {
        loop {
            if let Some(block) = self.next_fresh()?
                && let Some(slot) = take(&block)
            {
                return Ok(self.inode(block, slot));
            }
        }
    }

    fn take_from(self, cursor: &Cursor) -> Option<InodeRef> {
        let block = cursor.block.as_ref()?;
        take(block).map(|slot| self.inode(block.clone(), slot))
    }

    fn inode(self, block: Arc<InodeBlock>, slot: usize) -> InodeRef {
        let index = block.number * PER_BLOCK + slot as u64;
        InodeRef { block, ino: Ino::new(self.0.config.root, index) }
    }

    /// Takes a block listed for a directory, if there is one. For a small directory it searches
    /// only if the directory's inode in memory indicates one.
    fn block_of(self, dir: At<'_>, entries: u64) -> Result<Option<Arc<InodeBlock>>> {
        let (bit, homes) = (bit_of(dir.ino.index()), &dir.block.reuse.homes);
        let told = homes.load(Ordering::Acquire) & bit != 0;
        if !told && entries < LARGE {
            return Ok(None);
        }
        if told {
            // Before the search: a thread that lists a block sets the bit afterwards.
            homes.fetch_and(!bit, Ordering::AcqRel);
        }
        while let Some(number) = self.pool(|pool| pool.take_home(dir.ino.index())) {
            homes.fetch_or(bit, Ordering::AcqRel);
            let block = self.candidate(number, 1, true).inspect_err(|_| {
                self.pool(|pool| pool.list_home(dir.ino.index(), number, true));
            });
            if let Some(block) = block? {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Takes a block for any directory.
    fn another_block(self) -> Result<Arc<InodeBlock>> {
        loop {
            let next_block = self.0.alloc.next_block();
            let scarce = next_block >= INODE_BLOCKS_MAX;
            match self.pool(|pool| pool.next(next_block, scarce)) {
                Next::Candidate(number) => {
                    let block = self.candidate(number, if scarce { 1 } else { OWN }, false);
                    let block = block.inspect_err(|_| {
                        self.pool(|pool| pool.list_empty(number, true));
                    });
                    if let Some(block) = block? {
                        return Ok(block);
                    }
                }
                Next::Search(blocks) => {
                    let end = blocks.end;
                    self.search(blocks, scarce).inspect_err(|_| {
                        self.pool(|pool| pool.search_again(end));
                    })?;
                }
                Next::Fresh => {
                    if let Some(block) = self.next_fresh()?
                        && self.hold(&block, 1, false)
                    {
                        return Ok(block);
                    }
                }
            }
        }
    }

    /// Takes a listed block, unless it has too few free numbers by now, or another thread has it. A
    /// damaged block is left to fsck. On an error the caller must list the block again: it may only
    /// mean that the block must first be read outside the transaction.
    fn candidate(self, number: u64, least: u32, shared: bool) -> Result<Option<Arc<InodeBlock>>> {
        let block = match self.0.block(number) {
            // Skipped before a crash.
            Err(e) if e.is(Code::Stale) => self.begin_block(number),
            block => block,
        };
        match block {
            Ok(block) => Ok(self.hold(&block, least, shared).then_some(block)),
            Err(e) if e.is_damage() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Takes a block for a cursor. `shared`: also one held by a cursor of another thread shard for
    /// the same directory; its thread may have ended.
    fn hold(self, block: &InodeBlock, least: u32, shared: bool) -> bool {
        let reuse = &block.reuse;
        // First, so that a thread that frees a number from here on lists the block again.
        reuse.listed_for.store(0, Ordering::SeqCst);
        reuse.listed.store(NOT_LISTED, Ordering::SeqCst);
        let others = reuse.held.swap(true, Ordering::SeqCst);
        if others && !shared {
            return false;
        }
        let enough = block.free.load(Ordering::SeqCst).count_ones() >= least;
        if !enough && !others {
            self.let_go(block, 0);
        }
        enough
    }

    /// Begins the next block that was never used. `None` if another thread was faster. Allocates
    /// memory first: without it the number is not taken.
    fn next_fresh(self) -> Result<Option<Arc<InodeBlock>>> {
        let number = self.0.alloc.next_block.load(Ordering::Relaxed);
        if number >= INODE_BLOCKS_MAX {
            return Err(Error::Code(Code::NoSpace));
        }
        let place = self.0.blocks.reserve(number).map_err(no_memory)?;
        let next = &self.0.alloc.next_block;
        let mine = next.compare_exchange(number, number + 1, Ordering::Relaxed, Ordering::Relaxed);
        Ok(mine.is_ok().then(|| self.0.enter(place, fresh_block(number, &self.0.config.budget))))
    }

    /// Enters a block that was never written, unless another thread has done so.
    fn begin_block(self, number: u64) -> Result<Arc<InodeBlock>> {
        let _one = self.0.loading(number).lock();
        if let Some(block) = self.0.blocks.get(number) {
            return Ok(block);
        }
        let place = self.0.blocks.reserve(number).map_err(no_memory)?;
        Ok(self.0.enter(place, fresh_block(number, &self.0.config.budget)))
    }

    /// For replay: returns the inode named by the journal, in a block that may be new, and marks
    /// its slot as taken. Earlier blocks, begun by threads whose records are lost, are found by a
    /// later search.
    pub fn claim(self, ino: Ino) -> Result<InodeRef> {
        let number = ino.index() / PER_BLOCK;
        self.0.alloc.raise(number + 1);
        let block = match self.0.block(number) {
            Err(e) if e.is(Code::Stale) => self.begin_block(number)?,
            block => block?,
        };
        block.free.fetch_and(!bit_of(ino.index()), Ordering::AcqRel);
        Ok(InodeRef { block, ino })
    }
}

/// Freeing numbers, and finding free ones again.
impl Numbers<'_> {
    /// Frees a number: after the record that frees the inode was staged, or because the call that
    /// allocated it failed.
    pub fn give_back(self, inode: &InodeRef) {
        // From now on this thread counts inodes in a cache line of its own.
        self.0.alloc.shards.mine();
        let bit = bit_of(inode.ino.index());
        let free = inode.block.free.fetch_or(bit, Ordering::SeqCst) | bit;
        if free.count_ones() >= OWN {
            self.offer(&inode.block, 0);
        }
    }

    /// For the end of a replay: frees numbers that records have claimed and that are not in use.
    /// Blocks that are not in memory have the right masks when they are read.
    pub fn give_back_unused(self) {
        for (number, block) in self.0.blocks.iter() {
            let taken = !block.free.load(Ordering::SeqCst);
            let indices = number * PER_BLOCK..(number + 1) * PER_BLOCK;
            for index in indices.filter(|index| *index != 0 && taken & bit_of(*index) != 0) {
                let ino = Ino::new(self.0.config.root, index);
                let inode = InodeRef { block: block.clone(), ino };
                if !inode.read().inode.core.in_use() {
                    self.give_back(&inode);
                }
            }
        }
    }

    /// Releases a cursor's block for others; its free numbers are offered to this directory first.
    fn let_go(self, block: &InodeBlock, home: u64) {
        block.reuse.held.store(false, Ordering::SeqCst);
        self.offer(block, home);
    }

    /// Lists a block, unless it is listed: for a directory (by default the one that lost a child in
    /// it), and for any directory if enough numbers are free and no cursor holds it.
    fn offer(self, block: &InodeBlock, home: u64) {
        let (reuse, free) = (&block.reuse, block.free.load(Ordering::SeqCst).count_ones());
        let home = match home {
            0 if free >= OWN => reuse.home.load(Ordering::Relaxed),
            home => home,
        };
        let listed = reuse.listed_for.load(Ordering::SeqCst) == home;
        if free > 0 && home != 0 && !listed {
            reuse.listed_for.store(home, Ordering::SeqCst);
            self.list_home(home, block.number);
        }
        let level = match free {
            EMPTY => LISTED_EMPTY,
            SPARSE.. => LISTED_SPARSE,
            _ => NOT_LISTED,
        };
        let held = reuse.held.load(Ordering::SeqCst);
        if !held && reuse.listed.load(Ordering::SeqCst) < level {
            reuse.listed.store(level, Ordering::SeqCst);
            let room = self.0.config.budget.may_list();
            self.pool(|pool| match level {
                LISTED_EMPTY => pool.list_empty(block.number, room),
                _ => pool.list_sparse(block.number, room),
            });
        }
    }

    fn list_home(self, home: u64, number: u64) {
        let room = self.0.config.budget.may_list();
        let dropped = self.pool(|pool| pool.list_home(home, number, room));
        if let Some(block) = dropped.and_then(|number| self.0.blocks.get(number)) {
            block.reuse.listed_for.store(0, Ordering::SeqCst);
        }
        if let Some(block) = self.0.blocks.get(home / PER_BLOCK) {
            block.reuse.homes.fetch_or(bit_of(home), Ordering::AcqRel);
        }
    }

    /// Lists those of these blocks that can be used again, including those never begun. Lists none
    /// if `imap` is unreadable. `scarce`: every free number counts.
    fn search(self, blocks: Range<u64>, scarce: bool) -> Result<()> {
        let on_device = match self.free_in_imap(&blocks) {
            Err(e) if e.is_damage() && !scarce => {
                self.pool(Pool::stop_searching);
                return Ok(());
            }
            other => other?,
        };
        let skipped_below = self.0.alloc.pool.lock().skipped_below;
        let free = |number: u64| match (self.0.blocks.get(number), on_device.get(&number)) {
            (Some(block), _) if block.reuse.held.load(Ordering::Relaxed) => 0,
            (Some(block), _) => block.free.load(Ordering::Relaxed),
            (None, Some(free)) => *free,
            (None, None) if scarce || number < skipped_below => u32::MAX,
            (None, None) => 0,
        };
        let least = if scarce { 1 } else { SPARSE };
        let found: Vec<u64> = blocks.filter(|n| free(*n).count_ones() >= least).collect();
        self.pool(|pool| {
            for number in &found {
                pool.list_empty(*number, true);
            }
            if !found.is_empty() {
                pool.search_paid();
            }
        });
        Ok(())
    }

    /// Reads the masks of free slots by block, as written by the last checkpoint.
    fn free_in_imap(self, blocks: &Range<u64>) -> Result<BTreeMap<u64, u32>> {
        let mut found = BTreeMap::new();
        let (mut from, end) = (Some(Key::new(blocks.start, 0)), Key::new(blocks.end, 0));
        while let Some(key) = from {
            let mut batch = Batch::default();
            from = self.0.imap.scan(key, end, SEARCH, &mut batch)?;
            for (key, value) in batch.iter() {
                let free = decode_imap(value).map_or(0, |(_, free)| free);
                found.insert(key.hi, if key.hi == 0 { free & !1 } else { free });
            }
        }
        Ok(found)
    }

    /// Changes the lists, and accounts for their entries.
    fn pool<R>(self, change: impl FnOnce(&mut Pool) -> R) -> R {
        let mut pool = self.0.alloc.pool.lock();
        let before = pool.len();
        let result = change(&mut pool);
        self.0.config.budget.relisted(before, pool.len());
        result
    }

    /// Resets the allocation, as if no number had ever been allocated.
    pub(crate) fn forget(self) {
        for shard in self.0.alloc.shards.iter() {
            *shard.cursors.lock() = Cursors::default();
        }
        self.pool(|pool| *pool = Pool::default());
        self.0.alloc.next_block.store(0, Ordering::Relaxed);
    }
}

/// The bit of an inode in the masks of its block.
fn bit_of(index: u64) -> u32 {
    1 << (index % PER_BLOCK)
}

/// For models: the state of the allocator.
#[cfg(test)]
impl Numbers<'_> {
    /// Releases all cursors, so that no thread continues with a block that it used before.
    pub fn forget_cursors(self) {
        for shard in self.0.alloc.shards.iter() {
            let blocks: Vec<_> = shard.cursors.lock().drain().collect();
            blocks.into_iter().for_each(|(home, block)| self.let_go(&block, home));
        }
    }

    /// The blocks that `allocate` considers before it begins new ones.
    pub fn candidates(self) -> std::collections::BTreeSet<u64> {
        let (next, all) = (self.0.next_block(), self.0.alloc.pool.lock().to_search());
        self.search(0..all.map_or(next, |searched| searched.min(next)), false)
            .expect("imap can be read");
        let mut known: std::collections::BTreeSet<u64> =
            self.0.alloc.pool.lock().blocks().collect();
        for shard in self.0.alloc.shards.iter() {
            known.extend(shard.cursors.lock().blocks().map(|block| block.number));
        }
        known
    }
}
