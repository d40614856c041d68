//! Inode numbers: who gets which.
//!
//! A thread shard takes numbers from a block of its own (`shards.rs`): one block for all small
//! directories, and one for each of the large directories that it last worked in, so that a
//! directory's children lie together also when threads alternate between directories. When a block
//! is used up the next one is, in this order (`pool.rs`):
//!
//! 1. a block in which the same directory lost children, with 12 free numbers of 32 or more;
//! 2. an empty block, or one with 24 free numbers or more if such are an eighth of all blocks;
//! 3. a new block.
//!
//! A block with fewer free numbers stays as it is: to use them would read and rewrite the block for
//! a few inodes and scatter the directory. That costs little. There are 2^43 numbers of blocks, so
//! new ones do not run out; blocks are written trimmed, 4 bytes for a free slot, so that one with 9
//! inodes of 32 takes some 11 % more bytes for each inode than a full one. Only when a root has
//! come to its last number is every free number used.
//!
//! Background compaction is not possible: an inode's number is what users, handles and other
//! programs know it by, so it cannot move to another block.

use crate::block::{At, InodeBlock, InodeRef};
use crate::budget::Budget;
use crate::pool::{Next, OWN, Pool, SPARSE};
use crate::shards::{Cursor, Cursors, Shards};
use crate::sync::{AtomicU64, Mutex};
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
/// Entries from which on a directory has a block of its own. Smaller ones share blocks, or a tree
/// of small directories would take a block for each.
const LARGE: u64 = PER_BLOCK;

/// Free slots of an empty block.
const EMPTY: u32 = INODES_PER_BLOCK as u32;
/// Values of [`crate::block::Reuse::listed`].
const NOT_LISTED: u8 = 0;
const LISTED_SPARSE: u8 = 1;
const LISTED_EMPTY: u8 = 2;

/// State of the allocation of numbers.
pub(crate) struct Allocator {
    next_block: AtomicU64,
    pub shards: Shards,
    pool: Mutex<Pool>,
}

impl Allocator {
    pub fn new(next_block: u64) -> Allocator {
        Allocator {
            next_block: AtomicU64::new(next_block),
            shards: Shards::default(),
            pool: Mutex::default(),
        }
    }
    pub fn next_block(&self) -> u64 {
        self.next_block.load(Ordering::Relaxed)
    }
    /// Numbers of blocks before `next` are never begun anew.
    pub fn raise(&self, next: u64) {
        self.next_block.fetch_max(next, Ordering::Relaxed);
    }
}

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

/// A block none of whose numbers has been used.
fn fresh_block(number: u64, budget: &Arc<Budget>) -> Arc<InodeBlock> {
    let inodes = (0..INODES_PER_BLOCK).map(|_| Inode::default()).collect();
    InodeBlock::new(number, inodes, Ptr::NULL, budget)
}

/// Giving numbers out.
impl InodeTable {
    /// Takes a free number for a child of `dir`, a directory with so many entries. It is the
    /// caller's alone until a record makes it an inode, or [`InodeTable::give_back`].
    pub fn allocate(&self, dir: At<'_>, entries: u64) -> Result<InodeRef> {
        self.allocate_from(&mut self.alloc.shards.mine().cursors.lock(), dir, entries)
    }

    fn allocate_from(&self, cursors: &mut Cursors, dir: At<'_>, entries: u64) -> Result<InodeRef> {
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

    /// Takes a free number for a child of `dir` before `dir` is locked, if this thread shard has a
    /// block for that directory: then it is known to be large. Others who want the directory's lock
    /// need not wait until a new block has been made.
    #[inline]
    pub fn allocate_ahead(&self, dir: At<'_>) -> Result<Option<InodeRef>> {
        let mut cursors = self.alloc.shards.mine().cursors.lock();
        match cursors.of(dir.ino.index()) {
            Some(_) => self.allocate_from(&mut cursors, dir, LARGE).map(Some),
            None => Ok(None),
        }
    }

    /// Takes the first number of a table in which there is no inode yet: 1, of its top directory.
    pub fn allocate_first(&self) -> Result<InodeRef> {
        loop {
            if let Some(block) = self.next_fresh()?
                && let Some(slot) = take(&block)
            {
                return Ok(self.inode(block, slot));
            }
        }
    }

    fn take_from(&self, cursor: &Cursor) -> Option<InodeRef> {
        let block = cursor.block.as_ref()?;
        take(block).map(|slot| self.inode(block.clone(), slot))
    }

    fn inode(&self, block: Arc<InodeBlock>, slot: usize) -> InodeRef {
        let index = block.number * PER_BLOCK + slot as u64;
        InodeRef { block, ino: Ino::new(self.config.root, index) }
    }

    /// Takes a block that is listed for a directory, if there is one. Small directories look only
    /// when their inode in memory says so.
    fn block_of(&self, dir: At<'_>, entries: u64) -> Result<Option<Arc<InodeBlock>>> {
        let (bit, homes) = (bit_of(dir.ino.index()), &dir.block.reuse.homes);
        let told = homes.load(Ordering::Acquire) & bit != 0;
        if !told && entries < LARGE {
            return Ok(None);
        }
        if told {
            // Before the look: whoever lists a block sets it afterwards.
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
    fn another_block(&self) -> Result<Arc<InodeBlock>> {
        loop {
            let next_block = self.alloc.next_block();
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

    /// Takes a block that was listed, unless it has fewer free numbers by now, or another thread
    /// has it. What is damaged is left to fsck. The caller lists the block again on an error, which
    /// may be that it is to be read outside the transaction first.
    fn candidate(&self, number: u64, least: u32, shared: bool) -> Result<Option<Arc<InodeBlock>>> {
        let block = match self.block(number) {
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

    /// Takes a block for a cursor. `shared`: also one that a cursor of another thread shard holds,
    /// whose thread may have ended: they are for the same directory.
    fn hold(&self, block: &InodeBlock, least: u32, shared: bool) -> bool {
        let reuse = &block.reuse;
        // First, so that whoever frees a number from here on lists the block again.
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

    /// Begins the next block that has never been used; `None`: another thread was faster. Memory
    /// comes first: without it the number is not taken.
    fn next_fresh(&self) -> Result<Option<Arc<InodeBlock>>> {
        let number = self.alloc.next_block.load(Ordering::Relaxed);
        if number >= INODE_BLOCKS_MAX {
            return Err(Error::Code(Code::NoSpace));
        }
        let place = self.blocks.reserve(number).map_err(no_memory)?;
        let next = &self.alloc.next_block;
        let mine = next.compare_exchange(number, number + 1, Ordering::Relaxed, Ordering::Relaxed);
        Ok(mine.is_ok().then(|| self.enter(place, fresh_block(number, &self.config.budget))))
    }

    /// Enters a block that has never been written, unless another thread has done so.
    fn begin_block(&self, number: u64) -> Result<Arc<InodeBlock>> {
        let _one = self.loading(number).lock();
        if let Some(block) = self.blocks.get(number) {
            return Ok(block);
        }
        let place = self.blocks.reserve(number).map_err(no_memory)?;
        Ok(self.enter(place, fresh_block(number, &self.config.budget)))
    }

    /// For replay: the place of an inode that the journal names, in a block that may be new. Marks
    /// the slot as taken. Blocks before it, begun by threads whose records are lost, are found by a
    /// search later.
    pub fn claim(&self, ino: Ino) -> Result<InodeRef> {
        let number = ino.index() / PER_BLOCK;
        self.alloc.raise(number + 1);
        let block = match self.block(number) {
            Err(e) if e.is(Code::Stale) => self.begin_block(number)?,
            block => block?,
        };
        block.free.fetch_and(!bit_of(ino.index()), Ordering::AcqRel);
        Ok(InodeRef { block, ino })
    }
}

/// Taking numbers back, and finding them again.
impl InodeTable {
    /// A number is free again: after the record that frees it was staged, or because the call that
    /// took it failed.
    pub fn give_back(&self, inode: &InodeRef) {
        // From now on this thread counts inodes in a cache line of its own.
        self.alloc.shards.mine();
        let bit = bit_of(inode.ino.index());
        let free = inode.block.free.fetch_or(bit, Ordering::SeqCst) | bit;
        if free.count_ones() >= OWN {
            self.offer(&inode.block, 0);
        }
    }

    /// For the end of a replay: numbers that records have claimed and that are not in use are free.
    /// A block that is not in memory says so itself when it is read.
    pub fn give_back_unused(&self) {
        for (number, block) in self.blocks.iter() {
            let taken = !block.free.load(Ordering::SeqCst);
            let indices = number * PER_BLOCK..(number + 1) * PER_BLOCK;
            for index in indices.filter(|index| *index != 0 && taken & bit_of(*index) != 0) {
                let ino = Ino::new(self.config.root, index);
                let inode = InodeRef { block: block.clone(), ino };
                if !inode.read().inode.core.in_use() {
                    self.give_back(&inode);
                }
            }
        }
    }

    /// A cursor's block is for others, what is left of it for this directory first.
    fn let_go(&self, block: &InodeBlock, home: u64) {
        block.reuse.held.store(false, Ordering::SeqCst);
        self.offer(block, home);
    }

    /// Lists a block, unless it is listed: for a directory, by default the one that lost a child in
    /// it, and for any if enough is free and nobody holds it.
    fn offer(&self, block: &InodeBlock, home: u64) {
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
            let room = self.config.budget.may_list();
            self.pool(|pool| match level {
                LISTED_EMPTY => pool.list_empty(block.number, room),
                _ => pool.list_sparse(block.number, room),
            });
        }
    }

    fn list_home(&self, home: u64, number: u64) {
        let room = self.config.budget.may_list();
        let dropped = self.pool(|pool| pool.list_home(home, number, room));
        if let Some(block) = dropped.and_then(|number| self.blocks.get(number)) {
            block.reuse.listed_for.store(0, Ordering::SeqCst);
        }
        if let Some(block) = self.blocks.get(home / PER_BLOCK) {
            block.reuse.homes.fetch_or(bit_of(home), Ordering::AcqRel);
        }
    }

    /// Lists those of these blocks that can be used again, also those never begun. Without `imap`
    /// there are none; `scarce`: every free number counts.
    fn search(&self, blocks: Range<u64>, scarce: bool) -> Result<()> {
        let on_device = match self.free_in_imap(&blocks) {
            Err(e) if e.is_damage() && !scarce => {
                self.pool(Pool::stop_searching);
                return Ok(());
            }
            other => other?,
        };
        let skipped_below = self.alloc.pool.lock().skipped_below;
        let free = |number: u64| match (self.blocks.get(number), on_device.get(&number)) {
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

    /// Masks of free slots by block, as the last checkpoint wrote them.
    fn free_in_imap(&self, blocks: &Range<u64>) -> Result<BTreeMap<u64, u32>> {
        let mut found = BTreeMap::new();
        let (mut from, end) = (Some(Key::new(blocks.start, 0)), Key::new(blocks.end, 0));
        while let Some(key) = from {
            let mut batch = Batch::default();
            from = self.imap.scan(key, end, SEARCH, &mut batch)?;
            for (key, value) in batch.iter() {
                let free = decode_imap(value).map_or(0, |(_, free)| free);
                found.insert(key.hi, if key.hi == 0 { free & !1 } else { free });
            }
        }
        Ok(found)
    }

    /// Changes the lists, and counts their entries.
    fn pool<R>(&self, change: impl FnOnce(&mut Pool) -> R) -> R {
        let mut pool = self.alloc.pool.lock();
        let before = pool.len();
        let result = change(&mut pool);
        self.config.budget.relisted(before, pool.len());
        result
    }

    /// As if no number had ever been given out.
    pub(crate) fn forget_numbers(&self) {
        for shard in self.alloc.shards.iter() {
            *shard.cursors.lock() = Cursors::default();
        }
        self.pool(|pool| *pool = Pool::default());
        self.alloc.next_block.store(0, Ordering::Relaxed);
    }
}

/// The bit of an inode in the masks of its block.
fn bit_of(index: u64) -> u32 {
    1 << (index % PER_BLOCK)
}

/// For models: what the allocator knows.
#[cfg(test)]
impl InodeTable {
    /// No thread takes from a block that it took from before.
    pub fn forget_cursors(&self) {
        for shard in self.alloc.shards.iter() {
            let blocks: Vec<_> = shard.cursors.lock().drain().collect();
            blocks.into_iter().for_each(|(home, block)| self.let_go(&block, home));
        }
    }

    /// The blocks that `allocate` looks at before it runs out of new ones.
    pub fn alloc_candidates(&self) -> std::collections::BTreeSet<u64> {
        let (next, all) = (self.next_block(), self.alloc.pool.lock().to_search());
        self.search(0..all.map_or(next, |searched| searched.min(next)), false)
            .expect("imap can be read");
        let mut known: std::collections::BTreeSet<u64> = self.alloc.pool.lock().blocks().collect();
        for shard in self.alloc.shards.iter() {
            known.extend(shard.cursors.lock().blocks().map(|block| block.number));
        }
        known
    }
}
