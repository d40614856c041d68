//! State of each thread shard, in cache lines of its own: the blocks from which it allocates
//! numbers, and its part of the count of inodes in use. Allocated when a thread of the shard first
//! makes or frees an inode: a volume has up to 65,536 tables, and most threads use few of them.
//! With them: what all threads share of the allocation of numbers.

use crate::block::InodeBlock;
use crate::pool::Pool;
use crate::sync::{AtomicU64, Mutex, SHARDS, shard};
use crossbeam_utils::CachePadded;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Number of large directories for which a thread shard remembers a block.
const DIRS: usize = 7;

/// State of one thread shard.
#[derive(Default)]
pub(crate) struct Shard {
    /// Inodes made minus inodes freed by these threads, modulo 2^64.
    pub inodes: AtomicU64,
    pub cursors: Mutex<Cursors>,
}

/// The blocks from which a thread shard allocates numbers.
#[derive(Default)]
pub(crate) struct Cursors {
    /// For all small directories.
    common: Cursor,
    /// For one large directory each.
    dirs: [Cursor; DIRS],
    /// Number of allocations: the clock of [`Cursor::used`].
    clock: u64,
}

/// A block from which a thread shard allocates numbers.
#[derive(Default)]
pub(crate) struct Cursor {
    /// Index of the directory whose children get the numbers; 0 for any.
    pub home: u64,
    /// The block, which is marked as held.
    pub block: Option<Arc<InodeBlock>>,
    /// Time of its last use.
    used: u64,
}

impl Cursors {
    /// The directory's own cursor, if it has one.
    pub(crate) fn of(&mut self, home: u64) -> Option<&mut Cursor> {
        self.clock += 1;
        let cursor = self.dirs.iter_mut().find(|cursor| cursor.home == home)?;
        cursor.used = self.clock;
        Some(cursor)
    }
    /// The cursor to use for a directory. `own`: its own or the least recently used one; otherwise
    /// the common one.
    pub(crate) fn place(&mut self, home: u64, own: bool) -> &mut Cursor {
        let (clock, common) = (self.clock, &mut self.common);
        let oldest_first = |cursor: &&mut Cursor| match cursor.home == home {
            true => 0,
            false => cursor.used.max(1),
        };
        match self.dirs.iter_mut().min_by_key(oldest_first) {
            Some(cursor) if own => {
                cursor.used = clock;
                cursor
            }
            _ => common,
        }
    }
    #[cfg(test)]
    pub(crate) fn blocks(&self) -> impl Iterator<Item = &Arc<InodeBlock>> {
        std::iter::once(&self.common).chain(&self.dirs).filter_map(|cursor| cursor.block.as_ref())
    }
    #[cfg(test)]
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (u64, Arc<InodeBlock>)> {
        let all = std::iter::once(&mut self.common).chain(&mut self.dirs);
        all.filter_map(|cursor| Some((cursor.home, cursor.block.take()?)))
    }
}

type Lines = Box<[OnceLock<Box<CachePadded<Shard>>>]>;

/// The thread shards of a table.
#[derive(Default)]
pub(crate) struct Shards(OnceLock<Lines>);

impl Shards {
    /// The state of the calling thread's shard.
    #[inline]
    pub(crate) fn mine(&self) -> &Shard {
        let lines = self.0.get_or_init(|| (0..SHARDS).map(|_| OnceLock::new()).collect());
        lines[shard()].get_or_init(Box::default)
    }
    /// The state of the calling thread's shard, if it has made or freed an inode before.
    #[inline]
    pub(crate) fn mine_if_used(&self) -> Option<&Shard> {
        self.0.get()?[shard()].get().map(|line| &***line)
    }
    /// The states of all shards in use.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Shard> {
        self.0.get().into_iter().flatten().filter_map(|line| line.get().map(|line| &***line))
    }
}

/// State of the number allocation.
pub(crate) struct Allocator {
    pub next_block: AtomicU64,
    pub shards: Shards,
    pub pool: Mutex<Pool>,
}

impl Allocator {
    pub(crate) fn new(next_block: u64) -> Allocator {
        Allocator {
            next_block: AtomicU64::new(next_block),
            shards: Shards::default(),
            pool: Mutex::default(),
        }
    }
    pub(crate) fn next_block(&self) -> u64 {
        self.next_block.load(Ordering::Relaxed)
    }
    /// Ensures that numbers of blocks before `next` are never begun again.
    pub(crate) fn raise(&self, next: u64) {
        self.next_block.fetch_max(next, Ordering::Relaxed);
    }
}
