//! State of each thread shard, in cache lines of its own: the blocks it takes numbers from, and
//! its part of the count of inodes in use. Allocated when a thread of the shard first makes or
//! frees an inode: a volume has up to 65,536 tables, and most are not used by most threads.

use crate::block::InodeBlock;
use crate::sync::{AtomicU64, Mutex, SHARDS, shard};
use crossbeam_utils::CachePadded;
use std::sync::{Arc, OnceLock};

/// Large directories of which a thread shard remembers the block it takes numbers from.
const DIRS: usize = 7;

/// State of one thread shard.
#[derive(Default)]
pub(crate) struct Shard {
    /// Inodes that came into use less inodes freed by these threads, modulo 2^64.
    pub inodes: AtomicU64,
    pub cursors: Mutex<Cursors>,
}

/// The blocks that a thread shard takes numbers from.
#[derive(Default)]
pub(crate) struct Cursors {
    /// For all small directories.
    common: Cursor,
    /// For large directories, each its own.
    dirs: [Cursor; DIRS],
    /// Allocations so far: the clock of [`Cursor::used`].
    clock: u64,
}

/// A block that a thread shard takes numbers from.
#[derive(Default)]
pub(crate) struct Cursor {
    /// Index of the directory whose children get them; 0 for any.
    pub home: u64,
    /// The block, which is marked as held.
    pub block: Option<Arc<InodeBlock>>,
    /// When it was last looked for.
    used: u64,
}

impl Cursors {
    /// The directory's own cursor, if it has one.
    pub fn of(&mut self, home: u64) -> Option<&mut Cursor> {
        self.clock += 1;
        let cursor = self.dirs.iter_mut().find(|cursor| cursor.home == home)?;
        cursor.used = self.clock;
        Some(cursor)
    }
    /// The cursor to be used for a directory: its own or the least recently used one if it shall
    /// have its own, else the common one.
    pub fn place(&mut self, home: u64, own: bool) -> &mut Cursor {
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
    pub fn blocks(&self) -> impl Iterator<Item = &Arc<InodeBlock>> {
        std::iter::once(&self.common).chain(&self.dirs).filter_map(|cursor| cursor.block.as_ref())
    }
    #[cfg(test)]
    pub fn drain(&mut self) -> impl Iterator<Item = (u64, Arc<InodeBlock>)> {
        let all = std::iter::once(&mut self.common).chain(&mut self.dirs);
        all.filter_map(|cursor| Some((cursor.home, cursor.block.take()?)))
    }
}

type Lines = Box<[OnceLock<Box<CachePadded<Shard>>>]>;

/// The thread shards of a table.
#[derive(Default)]
pub(crate) struct Shards(OnceLock<Lines>);

impl Shards {
    /// The calling thread's.
    #[inline]
    pub fn mine(&self) -> &Shard {
        let lines = self.0.get_or_init(|| (0..SHARDS).map(|_| OnceLock::new()).collect());
        lines[shard()].get_or_init(Box::default)
    }
    /// The calling thread's, if it has made or freed an inode before.
    #[inline]
    pub fn mine_if_used(&self) -> Option<&Shard> {
        self.0.get()?[shard()].get().map(|line| &***line)
    }
    /// All that are in use.
    pub fn iter(&self) -> impl Iterator<Item = &Shard> {
        self.0.get().into_iter().flatten().filter_map(|line| line.get().map(|line| &***line))
    }
}
