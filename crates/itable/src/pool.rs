//! Blocks whose free numbers may be given out again: which they are, for whom, and in how much
//! memory. What stands here is advice: whoever takes a block from here looks at it again.
//!
//! A block is listed for the directory that lost a child in it, from [`OWN`] free numbers on. From
//! [`SPARSE`] on it is listed for any directory too, to be taken when such blocks have become many:
//! until then its own directory may come back. An empty block is for the next one who wants it.
//!
//! Blocks freed in an earlier session, or for which there was no memory, are found by a search
//! through `imap`, from its end to its start, a window at a time, and only as fast as new blocks
//! are begun.

use std::collections::BTreeSet;
use std::ops::Range;

/// Free numbers from which on a block is used again for the directory whose children were in it.
pub(crate) const OWN: u32 = 12;
/// Free numbers from which on a block is used again for any directory.
pub(crate) const SPARSE: u32 = 24;
/// One of so many blocks may be sparse and wait for its directory.
const WAITING: u64 = 8;
/// Blocks searched at a time: `imap` has more entries in a full leaf, so one or two are read.
const WINDOW: u64 = 256;
/// New blocks begun for each search that finds nothing.
const NEW_PER_SEARCH: u32 = 32;

/// The blocks of a table that may be used again.
#[derive(Default)]
pub(crate) struct Pool {
    /// Directory and block.
    homes: BTreeSet<(u64, u64)>,
    /// Blocks for any directory, when they are many.
    sparse: BTreeSet<u64>,
    /// Blocks for any directory, at once.
    empty: BTreeSet<u64>,
    /// Where the next entry of `homes` is dropped when there are too many.
    hand: (u64, u64),
    /// Blocks from here on have been searched; `None` before the first number is given out.
    searched: Option<u64>,
    /// Numbers before this that nobody has begun were skipped before a crash.
    pub skipped_below: u64,
    /// New blocks begun since the last search.
    begun: u32,
    /// A sparse block was not listed for want of memory.
    lost: bool,
}

/// What to do for a block.
#[derive(Debug)]
pub(crate) enum Next {
    /// Look at this one.
    Candidate(u64),
    /// Search these.
    Search(Range<u64>),
    /// Begin a new one.
    Fresh,
}

impl Pool {
    /// Lists a block for a directory; without `room` in place of another entry, whose block is
    /// returned.
    pub fn list_home(&mut self, home: u64, block: u64, room: bool) -> Option<u64> {
        let dropped = if room { None } else { self.drop_home() };
        if room || dropped.is_some() {
            self.homes.insert((home, block));
        }
        dropped
    }
    fn drop_home(&mut self) -> Option<u64> {
        let next = self.homes.range(self.hand..).next().or_else(|| self.homes.first());
        let entry = *next?;
        self.homes.remove(&entry);
        self.hand = entry;
        Some(entry.1)
    }
    /// Lists a block for any directory, when such are many; without `room` a later search has to
    /// find it.
    pub fn list_sparse(&mut self, block: u64, room: bool) {
        match room {
            true => drop(self.sparse.insert(block)),
            false => self.lost = true,
        }
    }
    /// Lists a block for any directory, at once; without `room` a later search has to find it.
    pub fn list_empty(&mut self, block: u64, room: bool) {
        match self.sparse.remove(&block) || room {
            true => drop(self.empty.insert(block)),
            false => self.lost = true,
        }
    }
    /// Entries.
    pub fn len(&self) -> usize {
        self.homes.len() + self.sparse.len() + self.empty.len()
    }

    /// Takes a block that is listed for this directory.
    pub fn take_home(&mut self, home: u64) -> Option<u64> {
        let entry = *self.homes.range((home, 0)..=(home, u64::MAX)).next()?;
        self.homes.remove(&entry);
        Some(entry.1)
    }

    /// Where to get a block for any directory. Blocks before `next_block` have been begun; if
    /// `scarce`, there are no others, and the search goes on until it finds something.
    pub fn next(&mut self, next_block: u64, scarce: bool) -> Next {
        if self.searched.is_none() {
            // What the session before, or replay, or the making of the root left unfilled.
            self.empty.extend(next_block.checked_sub(1));
            (self.searched, self.skipped_below) = (Some(next_block), next_block);
        }
        let many = scarce || self.sparse.len() as u64 > next_block / WAITING;
        let sparse = || many.then(|| self.sparse.pop_first()).flatten();
        if let Some(block) = self.empty.pop_first().or_else(sparse) {
            return Next::Candidate(block);
        }
        let searched = self.searched.unwrap_or(0);
        let again = searched == 0 && (scarce || std::mem::take(&mut self.lost));
        let searched = if again { next_block } else { searched };
        if searched > 0 && (scarce || self.begun >= NEW_PER_SEARCH) {
            let from = searched.saturating_sub(WINDOW);
            self.searched = Some(from);
            self.begun = 0;
            return Next::Search(from..searched);
        }
        self.searched = Some(searched);
        self.begun = self.begun.saturating_add(1);
        Next::Fresh
    }
    /// A search has found something: the next one need not wait for new blocks.
    pub fn search_paid(&mut self) {
        self.begun = NEW_PER_SEARCH;
    }
    /// The blocks before `end` have not been searched: the caller failed, and will try again.
    pub fn search_again(&mut self, end: u64) {
        self.searched = Some(end);
        self.begun = NEW_PER_SEARCH;
    }
    /// Gives the search up: `imap` cannot be read.
    pub fn stop_searching(&mut self) {
        self.searched = Some(0);
    }

    /// Blocks before this are still to be searched; `None`: all.
    #[cfg(test)]
    pub fn to_search(&self) -> Option<u64> {
        self.searched.filter(|_| !self.lost)
    }
    #[cfg(test)]
    pub fn blocks(&self) -> impl Iterator<Item = u64> {
        let others = self.sparse.iter().chain(&self.empty).copied();
        self.homes.iter().map(|(_, block)| *block).chain(others)
    }
}
