//! Blocks whose free numbers may be allocated again, and for which directory, in bounded memory.
//! All entries are hints: a caller that takes a block must check it again.
//!
//! A block with at least [`OWN`] free numbers is listed for the directory that lost a child in it.
//! With at least [`SPARSE`] it is also listed for any directory, to be used when there are many
//! such blocks: until then its own directory may need it. An empty block is available to anybody at
//! once.
//!
//! Blocks freed in an earlier session, or not listed for lack of memory, are found by a search
//! through `imap`, from its end to its start, a window at a time, and only as fast as new blocks
//! are begun.

use std::collections::BTreeSet;
use std::ops::Range;

/// Minimum of free numbers for reuse of a block by the directory whose children were in it.
pub(crate) const OWN: u32 = 12;
/// Minimum of free numbers for reuse of a block by any directory.
pub(crate) const SPARSE: u32 = 24;
/// One in this many blocks may be sparse and wait for its directory.
const WAITING: u64 = 8;
/// Blocks searched at a time. A full leaf of `imap` has more entries, so one or two are read.
const WINDOW: u64 = 256;
/// New blocks begun per search that finds nothing.
const NEW_PER_SEARCH: u32 = 32;

/// The reusable blocks of a table.
#[derive(Default)]
pub(crate) struct Pool {
    /// Pairs of directory and block.
    homes: BTreeSet<(u64, u64)>,
    /// Blocks for any directory, used when there are many.
    sparse: BTreeSet<u64>,
    /// Blocks for any directory, used at once.
    empty: BTreeSet<u64>,
    /// Clock hand: the place in `homes` where the next entry is dropped when there are too many.
    clock_hand: (u64, u64),
    /// Start of the blocks already searched; `None` before the first number is allocated.
    searched: Option<u64>,
    /// Blocks before this number that were never begun were skipped before a crash.
    pub skipped_below: u64,
    /// New blocks begun since the last search.
    begun: u32,
    /// A sparse block was not listed for lack of memory.
    lost: bool,
}

/// The next step to get a block.
#[derive(Debug)]
pub(crate) enum Next {
    /// Examine this block.
    Candidate(u64),
    /// Search these blocks.
    Search(Range<u64>),
    /// Begin a new block.
    Fresh,
}

impl Pool {
    /// Lists a block for a directory. Without `room` it replaces another entry, whose block is
    /// returned.
    pub(crate) fn list_home(&mut self, home: u64, block: u64, room: bool) -> Option<u64> {
        let dropped = if room { None } else { self.drop_home() };
        if room || dropped.is_some() {
            self.homes.insert((home, block));
        }
        dropped
    }
    fn drop_home(&mut self) -> Option<u64> {
        let next = self.homes.range(self.clock_hand..).next().or_else(|| self.homes.first());
        let entry = *next?;
        self.homes.remove(&entry);
        self.clock_hand = entry;
        Some(entry.1)
    }
    /// Lists a block for any directory, for use when there are many. Without `room` a later search
    /// must find it.
    pub(crate) fn list_sparse(&mut self, block: u64, room: bool) {
        match room {
            true => drop(self.sparse.insert(block)),
            false => self.lost = true,
        }
    }
    /// Lists a block for any directory, for use at once. Without `room` a later search must find
    /// it.
    pub(crate) fn list_empty(&mut self, block: u64, room: bool) {
        match self.sparse.remove(&block) || room {
            true => drop(self.empty.insert(block)),
            false => self.lost = true,
        }
    }
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.homes.len() + self.sparse.len() + self.empty.len()
    }

    /// Takes a block listed for this directory.
    pub(crate) fn take_home(&mut self, home: u64) -> Option<u64> {
        let entry = *self.homes.range((home, 0)..=(home, u64::MAX)).next()?;
        self.homes.remove(&entry);
        Some(entry.1)
    }

    /// Returns the next step to get a block for any directory. Blocks before `next_block` have been
    /// begun. `scarce`: there are no others, and the search continues until it finds something.
    pub(crate) fn next(&mut self, next_block: u64, scarce: bool) -> Next {
        if self.searched.is_none() {
            // The last block, which the previous session, replay or the making of the subvolume
            // left unfilled.
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
    /// Notes that a search has found something: the next one need not wait for new blocks.
    pub(crate) fn search_paid(&mut self) {
        self.begun = NEW_PER_SEARCH;
    }
    /// Notes that the blocks before `end` have not been searched: the caller failed, and will try
    /// again.
    pub(crate) fn search_again(&mut self, end: u64) {
        self.searched = Some(end);
        self.begun = NEW_PER_SEARCH;
    }
    /// Gives up the search: `imap` is unreadable.
    pub(crate) fn stop_searching(&mut self) {
        self.searched = Some(0);
    }

    /// End of the blocks still to be searched; `None`: all.
    #[cfg(test)]
    pub(crate) fn to_search(&self) -> Option<u64> {
        self.searched.filter(|_| !self.lost)
    }
    #[cfg(test)]
    pub(crate) fn blocks(&self) -> impl Iterator<Item = u64> {
        let others = self.sparse.iter().chain(&self.empty).copied();
        self.homes.iter().map(|(_, block)| *block).chain(others)
    }
}
