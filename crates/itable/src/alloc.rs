//! Inode numbers: dense, a directory's children next to each other because each thread takes them
//! from a block of its own; freed numbers are used again before new blocks are begun.

use crate::block::{InodeBlock, InodeRef};
use crate::sync::{AtomicU64, Mutex, SHARDS, shard};
use crate::table::{InodeTable, decode_imap, no_memory};
use shoal_base::limits::{INODE_BLOCKS_MAX, INODES_PER_BLOCK};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::Ptr;
use shoal_format::inode::Inode;
use shoal_tree::{Batch, Key};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// `imap` entries looked at for free slots at a time.
const SEARCH: usize = 512;
/// Blocks that replay finds skipped at a time, at most: more are damage, or another's bug, and only
/// their numbers are lost.
const SKIPPED_MAX: u64 = 1024;

/// State of the allocation of numbers.
pub(crate) struct Allocator {
    next_block: AtomicU64,
    /// The block each thread shard takes from.
    cursors: Box<[Mutex<Option<Arc<InodeBlock>>>]>,
    /// Blocks that may have free slots.
    pool: Mutex<Pool>,
}

struct Pool {
    numbers: VecDeque<u64>,
    /// `imap` has been searched for free slots up to here, and has to be up to `until`.
    searched: u64,
    until: u64,
}

impl Allocator {
    pub fn new(next_block: u64) -> Allocator {
        let pool = Pool { numbers: VecDeque::new(), searched: 0, until: next_block };
        Allocator {
            next_block: AtomicU64::new(next_block),
            cursors: (0..SHARDS).map(|_| Mutex::default()).collect(),
            pool: Mutex::new(pool),
        }
    }
    pub fn next_block(&self) -> u64 {
        self.next_block.load(Ordering::Relaxed)
    }
    /// Numbers of blocks before `next` are never begun anew.
    pub fn raise(&self, next: u64) {
        self.next_block.fetch_max(next, Ordering::Relaxed);
    }
    /// As if no number had ever been given out.
    pub fn reset(&self) {
        for cursor in &self.cursors {
            *cursor.lock() = None;
        }
        *self.pool.lock() = Pool { numbers: VecDeque::new(), searched: 0, until: 0 };
        self.next_block.store(0, Ordering::Relaxed);
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
fn fresh_block(number: u64) -> Arc<InodeBlock> {
    let inodes = (0..INODES_PER_BLOCK).map(|_| Inode::default()).collect();
    InodeBlock::new(number, inodes, Ptr::NULL)
}

impl InodeTable {
    /// Takes a free number. It is the caller's alone until a record makes it an inode, or
    /// [`InodeTable::give_back`].
    pub fn allocate(&self) -> Result<InodeRef> {
        let mut cursor = self.alloc.cursors[shard()].lock();
        loop {
            if let Some(block) = &*cursor
                && let Some(slot) = take(block)
            {
                let index = block.number * INODES_PER_BLOCK as u64 + slot as u64;
                let ino = Ino::new(self.config.root, index);
                return Ok(InodeRef { block: block.clone(), ino });
            }
            *cursor = Some(self.block_with_room()?);
        }
    }

    /// A number is free again: after the record that frees it was staged, or because the call that
    /// took it failed.
    pub fn give_back(&self, inode: &InodeRef) {
        let bit = 1u32 << (inode.ino.0 as usize % INODES_PER_BLOCK);
        if inode.block.free.fetch_or(bit, Ordering::AcqRel) == 0 {
            self.alloc.pool.lock().numbers.push_back(inode.block.number);
        }
    }

    fn block_with_room(&self) -> Result<Arc<InodeBlock>> {
        loop {
            let known = self.alloc.pool.lock().numbers.pop_front();
            match known {
                Some(number) => {
                    let block = match self.block(number) {
                        // Skipped before a crash; whoever took it from the pool has it alone.
                        Err(e) if e.is(Code::Stale) => {
                            self.begin_block(number).inspect_err(|_| {
                                self.alloc.pool.lock().numbers.push_front(number);
                            })?
                        }
                        block => block.inspect_err(|_| {
                            self.alloc.pool.lock().numbers.push_front(number);
                        })?,
                    };
                    if block.free.load(Ordering::Acquire) != 0 {
                        return Ok(block);
                    }
                }
                None if self.search_imap()? => {}
                None => {
                    if let Some(block) = self.next_fresh()? {
                        return Ok(block);
                    }
                }
            }
        }
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
        Ok(mine.is_ok().then(|| self.enter(place, fresh_block(number))))
    }

    /// Looks at the next entries of `imap` for free slots; `false`: all have been looked at.
    fn search_imap(&self) -> Result<bool> {
        let mut pool = self.alloc.pool.lock();
        if pool.searched >= pool.until {
            return Ok(false);
        }
        let mut batch = Batch::default();
        let (from, to) = (Key::new(pool.searched, 0), Key::new(pool.until, 0));
        let next = self.imap.scan(from, to, SEARCH, &mut batch)?;
        for (key, value) in batch.iter() {
            let free = decode_imap(value).map_or(0, |(_, free)| free);
            if free & if key.hi == 0 { !1 } else { !0 } != 0 {
                pool.numbers.push_back(key.hi);
            }
        }
        pool.searched = next.map_or(pool.until, |key| key.hi);
        Ok(true)
    }

    /// Enters a block that has never been written.
    fn begin_block(&self, number: u64) -> Result<Arc<InodeBlock>> {
        let place = self.blocks.reserve(number).map_err(no_memory)?;
        Ok(self.enter(place, fresh_block(number)))
    }

    /// For replay: the place of an inode that the journal names, in a block that may be new. Marks
    /// the slot as taken.
    pub fn claim(&self, ino: Ino) -> Result<InodeRef> {
        let number = ino.index() / INODES_PER_BLOCK as u64;
        let next = self.alloc.next_block.fetch_max(number + 1, Ordering::Relaxed);
        // Begun after the checkpoint; those between, by threads whose records are lost. Nothing
        // else leads to the free numbers in them.
        let first = next.max((number + 1).saturating_sub(SKIPPED_MAX));
        self.alloc.pool.lock().numbers.extend(first..=number);
        let block = match self.block(number) {
            Err(e) if e.is(Code::Stale) => self.begin_block(number)?,
            block => block?,
        };
        block.free.fetch_and(!(1u32 << (ino.0 as usize % INODES_PER_BLOCK)), Ordering::AcqRel);
        Ok(InodeRef { block, ino })
    }
}

/// For models: what the allocator knows.
#[cfg(test)]
impl Allocator {
    /// No thread takes from a block that it took from before.
    pub fn forget_cursors(&self) {
        self.cursors.iter().for_each(|cursor| *cursor.lock() = None);
    }
}

#[cfg(test)]
impl InodeTable {
    /// The blocks that `allocate` looks at before it begins new ones.
    pub fn alloc_candidates(&self) -> std::collections::BTreeSet<u64> {
        while self.search_imap().expect("imap can be read") {}
        let cursors = self.alloc.cursors.iter().filter_map(|c| c.lock().as_ref().map(|b| b.number));
        cursors.chain(self.alloc.pool.lock().numbers.iter().copied()).collect()
    }
}
