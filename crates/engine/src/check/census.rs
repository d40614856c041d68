//! The information that a check keeps about inodes in use, from pass to pass.
//!
//! Problem: a volume has more inodes than a hash map in memory can hold, and several threads find
//! names of the same inode.
//!
//! Rule: one word for each slot of an existing inode block, found by the block's position among its
//! subvolume's block numbers. Only a few inodes need more: directories, inodes with many links, and
//! ([`Bytes`]) those whose bytes of extents do not add up yet. Inodes are entered by one thread at
//! a time, in order. Names are counted by all threads concurrently. The counts are read after the
//! pass, and addition commutes.

use super::sync::{AtomicU32, AtomicU64, Mutex, atomically};
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Ino, RootId};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Type of a directory, as in an inode's mode and in an entry.
pub(super) const DIRECTORY: u8 = 4;

/// Inodes of a block.
const PER_BLOCK: usize = INODES_PER_BLOCK;
/// In a word: the type, 0 if not in use.
const KIND: u32 = 0x0f;
/// In a word: the inode has the flag of a truncate in progress.
const CUT: u32 = 0x10;
/// In a word: the inode has an orphan slot, and must not have a name.
const ORPHAN: u32 = 0x20;
/// Position in a word of the inode's link count. [`MANY`] means [`MANY`] or more: see
/// [`Census::links`].
const LINKS: u32 = 6;
/// Position in a word of the number of names found. Those beyond [`MANY`] are in [`Census::names`].
const NAMES: u32 = 19;
/// Largest count in a word.
const MANY: u32 = 0x1fff;

/// The inodes of a subvolume.
struct Root {
    id: RootId,
    /// Numbers of its blocks, ascending.
    blocks: Vec<u64>,
    /// One word for each slot.
    words: Vec<AtomicU32>,
}

/// Information about a directory.
pub(super) struct Dir {
    pub ino: Ino,
    /// Its parent directory, from its inode.
    pub parent: Ino,
    /// Number of entries, from its inode.
    pub size: u64,
    /// Entries found.
    pub entries: AtomicU64,
    /// Subdirectories found.
    pub subdirs: AtomicU64,
    pub generation: u32,
}

impl Dir {
    pub(super) fn new(ino: Ino, parent: Ino, size: u64, generation: u32) -> Dir {
        let (entries, subdirs) = (AtomicU64::new(0), AtomicU64::new(0));
        Dir { ino, parent, size, entries, subdirs, generation }
    }
}

/// Information about an inode in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub ino: Ino,
    pub kind: u8,
    pub cut: bool,
    pub orphan: bool,
    pub links: u32,
    /// Names found.
    pub names: u32,
}

/// An inode block's number, and the words of its slots.
pub(super) struct Block {
    pub number: u64,
    words: [u32; PER_BLOCK],
}

impl Block {
    pub(super) fn new(number: u64) -> Block {
        Block { number, words: [0; PER_BLOCK] }
    }

    /// Enters an inode in use. Returns whether its links must also be entered with
    /// [`Census::many_links`].
    pub(super) fn insert(&mut self, ino: Ino, kind: u8, links: u32, cut: bool) -> bool {
        let cut = if cut { CUT } else { 0 };
        let word = u32::from(kind) & KIND | cut | links.min(MANY) << LINKS;
        self.words[ino.index() as usize % PER_BLOCK] = word;
        links >= MANY
    }
}

/// The inodes in use.
#[derive(Default)]
pub(super) struct Census {
    roots: Vec<Root>,
    /// Ascending.
    dirs: Vec<Dir>,
    /// Link counts of the inodes that have many.
    links: HashMap<Ino, u32>,
    /// Names found beyond [`MANY`], by inode.
    names: Mutex<HashMap<Ino, u32>>,
}

/// Reads a word. The scheduler of a simulation must not switch threads here, because passes read
/// all words.
fn read(word: &AtomicU32) -> u32 {
    atomically(|| word.load(Ordering::Relaxed))
}

impl Census {
    /// Enters a block. Calls must be in the order of subvolumes and block numbers. A damaged volume
    /// may have several blocks with one number; the first counts.
    pub(super) fn enter(&mut self, id: RootId, block: &Block) {
        if self.roots.last().is_none_or(|root| root.id != id) {
            self.roots.push(Root { id, blocks: Vec::new(), words: Vec::new() });
        }
        let Some(root) = self.roots.last_mut() else { return };
        if root.blocks.last().is_none_or(|last| *last < block.number) {
            root.blocks.push(block.number);
            root.words.extend(block.words.map(AtomicU32::new));
        }
    }

    /// Enters the link count of an inode with many links.
    pub(super) fn many_links(&mut self, ino: Ino, links: u32) {
        self.links.insert(ino, links);
    }

    /// Enters directories. Calls must be in ascending order.
    pub(super) fn enter_dirs(&mut self, dirs: Vec<Dir>) {
        self.dirs.extend(dirs);
    }

    /// Returns a subvolume's last block number plus one, and its number of inodes in use.
    pub(super) fn counts(&self, id: RootId) -> (u64, u64) {
        let Ok(at) = self.roots.binary_search_by_key(&id, |root| root.id) else { return (0, 0) };
        let root = &self.roots[at];
        let next = root.blocks.last().map_or(0, |last| last.saturating_add(1));
        let in_use = |word: &&AtomicU32| read(word) & KIND != 0;
        (next, root.words.iter().filter(in_use).count() as u64)
    }

    /// Returns an inode's word, if its block exists.
    fn word(&self, ino: Ino) -> Option<&AtomicU32> {
        let root = self.roots.binary_search_by_key(&ino.root(), |root| root.id).ok()?;
        let root = &self.roots[root];
        let number = ino.index() / PER_BLOCK as u64;
        // Usually there are no gaps.
        let block = match root.blocks.get(number as usize) {
            Some(at) if *at == number => number as usize,
            _ => root.blocks.binary_search(&number).ok()?,
        };
        root.words.get(block * PER_BLOCK + ino.index() as usize % PER_BLOCK)
    }

    /// Returns an inode that is in use.
    pub(super) fn get(&self, ino: Ino) -> Option<Seen> {
        self.seen(self.word(ino)?, ino)
    }

    fn seen(&self, word: &AtomicU32, ino: Ino) -> Option<Seen> {
        let word = read(word);
        let kind = (word & KIND) as u8;
        if kind == 0 {
            return None;
        }
        let (mut links, mut names) = (word >> LINKS & MANY, word >> NAMES);
        if links == MANY {
            links = self.links.get(&ino).copied().unwrap_or(links);
        }
        if names == MANY {
            let more = self.names.lock().get(&ino).copied();
            names = names.saturating_add(more.unwrap_or(0));
        }
        let (cut, orphan) = (word & CUT != 0, word & ORPHAN != 0);
        Some(Seen { ino, kind, cut, orphan, links, names })
    }

    /// Counts a name of an inode in use. Threads may call it concurrently.
    pub(super) fn name(&self, ino: Ino) {
        let Some(word) = self.word(ino) else { return };
        let mut now = word.load(Ordering::Relaxed);
        while now >> NAMES < MANY {
            let next = now + (1 << NAMES);
            match word.compare_exchange_weak(now, next, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => now = other,
            }
        }
        *self.names.lock().entry(ino).or_insert(0) += 1;
    }

    /// Notes that an inode has an orphan slot and must not have a name.
    pub(super) fn orphan(&self, ino: Ino) {
        if let Some(word) = self.word(ino) {
            word.fetch_or(ORPHAN, Ordering::Relaxed);
        }
    }

    /// Notes that a truncate in progress has its orphan slot.
    pub(super) fn cut_known(&self, ino: Ino) {
        if let Some(word) = self.word(ino) {
            word.fetch_and(!CUT, Ordering::Relaxed);
        }
    }

    /// Returns a directory. `last` is the caller's cursor, because consecutive entries usually
    /// belong to one directory.
    pub(super) fn dir(&self, ino: Ino, last: &mut usize) -> Option<&Dir> {
        if self.dirs.get(*last).is_none_or(|dir| dir.ino != ino) {
            *last = self.dirs.binary_search_by_key(&ino, |dir| dir.ino).ok()?;
        }
        self.dirs.get(*last)
    }

    /// Returns all directories, ascending.
    pub(super) fn dirs(&self) -> &[Dir] {
        &self.dirs
    }

    /// Returns all inodes in use, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = Seen> {
        (0..self.roots.len()).flat_map(|root| self.in_blocks(root, 0..usize::MAX))
    }

    /// Partitions all blocks into ascending pieces of at most `blocks` blocks, as arguments of
    /// [`Census::in_blocks`].
    pub(super) fn pieces(&self, blocks: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
        self.roots.iter().enumerate().flat_map(move |(at, root)| {
            let starts = (0..root.blocks.len()).step_by(blocks);
            starts.map(move |first| (at, first..first + blocks))
        })
    }

    /// Returns the inodes in use of a range of a subvolume's blocks.
    pub(super) fn in_blocks(
        &self,
        root: usize,
        blocks: Range<usize>,
    ) -> impl Iterator<Item = Seen> {
        let root = &self.roots[root];
        let ends = blocks.start..blocks.end.min(root.blocks.len());
        ends.flat_map(move |block| {
            let first = Ino::new(root.id, root.blocks[block] * PER_BLOCK as u64).0;
            let words = &root.words[block * PER_BLOCK..][..PER_BLOCK];
            words.iter().zip(first..).filter_map(|(word, ino)| self.seen(word, Ino(ino)))
        })
    }
}

/// Bytes of extents according to the core, minus those found, for each inode where this is not 0.
/// Without directories.
#[derive(Default)]
pub(super) struct Bytes(HashMap<Ino, i128>);

impl Bytes {
    /// Adds the bytes of an inode according to its core (positive), or of its extents that were
    /// found (negative).
    pub(super) fn add(&mut self, ino: Ino, bytes: i128) {
        if bytes == 0 {
            return;
        }
        let left = self.0.entry(ino).or_insert(0);
        *left += bytes;
        if *left == 0 {
            self.0.remove(&ino);
        }
    }

    /// Returns the inodes whose bytes do not add up, ascending, each with the number of missing
    /// bytes.
    pub(super) fn wrong(&self) -> Vec<(Ino, i128)> {
        let mut wrong: Vec<_> = self.0.iter().map(|(ino, left)| (*ino, *left)).collect();
        wrong.sort_unstable();
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::thread;

    fn census(inodes: &[(Ino, u32)]) -> Census {
        let mut census = Census::default();
        for (ino, links) in inodes {
            let mut block = Block::new(ino.index() / 32);
            if block.insert(*ino, 8, *links, false) {
                census.many_links(*ino, *links);
            }
            census.enter(ino.root(), &block);
        }
        census
    }

    fn at(root: u16, index: u64) -> Ino {
        Ino::new(RootId(root), index)
    }

    fn counted() {
        let inodes = [at(0, 1), at(0, 33), at(0, 7 * 32 + 31), at(0, 9_000_000 * 32), at(3, 64)];
        let links = [1, 8190, 8191, 70_000, 2];
        let known: Vec<_> = inodes.into_iter().zip(links).collect();
        let mut census = census(&known);
        for (ino, links) in &known {
            assert_eq!(census.get(*ino).map(|seen| seen.links), Some(*links));
        }
        for free in [at(0, 2), at(0, 64), at(1, 1), at(3, 63), at(3, 96), at(0, 1 << 40)] {
            assert!(census.get(free).is_none(), "{free}");
            census.name(free);
            assert!(census.get(free).is_none(), "{free}");
        }
        assert!(census.iter().map(|seen| seen.ino).eq(inodes));
        let pieces = census.pieces(3).flat_map(|(root, blocks)| census.in_blocks(root, blocks));
        assert!(pieces.map(|seen| seen.ino).eq(inodes));
        assert_eq!((census.counts(RootId(0)), census.counts(RootId(3))), ((9_000_001, 4), (3, 1)));
        assert_eq!(census.counts(RootId(2)), (0, 0));
        for names in 1..8300 {
            census.name(inodes[2]);
            let seen = census.get(inodes[2]).expect("in use");
            assert_eq!((seen.names, seen.links, seen.kind), (names, 8191, 8));
        }
        census.orphan(inodes[0]);
        let orphans: Vec<_> = census.iter().map(|seen| seen.orphan).collect();
        assert_eq!(orphans, [true, false, false, false, false]);
        let mut cut = Block::new(9);
        cut.insert(at(3, 9 * 32), 8, 1, true);
        census.enter(RootId(3), &cut);
        // A number that occurs twice in a damaged volume.
        census.enter(RootId(3), &Block::new(9));
        assert!(census.get(at(3, 9 * 32)).expect("in use").cut);
        census.cut_known(at(3, 9 * 32));
        assert!(!census.get(at(3, 9 * 32)).expect("in use").cut);
    }

    /// Compares the words with a model, on the thread of a run.
    #[test]
    fn what_is_counted_is_told() {
        let mut config = shuttle::Config::new();
        config.max_steps = shuttle::MaxSteps::None;
        let scheduler = shuttle::scheduler::RoundRobinScheduler::new(1);
        shuttle::Runner::new(scheduler, config).run(counted);
    }

    /// Three threads count names of an inode and its neighbour, around the largest number that fits
    /// in a word.
    #[test]
    fn names_found_by_several_threads_are_all_counted() {
        shuttle::check_random(
            || {
                let (many, few) = (at(0, 5), at(0, 6));
                let mut block = Block::new(0);
                block.insert(many, 8, 9000, false);
                block.insert(few, DIRECTORY, 2, true);
                block.words[5] |= (MANY - 2) << NAMES;
                let mut census = Census::default();
                census.enter(RootId(0), &block);
                census.many_links(many, 9000);
                census.enter_dirs(vec![Dir::new(few, few, 0, 1)]);
                thread::scope(|scope| {
                    for _ in 0..3 {
                        scope.spawn(|| {
                            census.name(many);
                            census.name(few);
                            census.name(many);
                            if let Some(dir) = census.dir(few, &mut 0) {
                                dir.entries.fetch_add(2, Ordering::Relaxed);
                            }
                        });
                    }
                });
                let (many, few) = (census.get(many).expect("used"), census.get(few).expect("used"));
                assert_eq!((many.names, many.links, many.cut), (MANY + 4, 9000, false));
                assert_eq!((few.names, few.links, few.cut), (3, 2, true));
                assert_eq!(census.dirs()[0].entries.load(Ordering::Relaxed), 6);
            },
            200,
        );
    }

    #[test]
    fn bytes_that_add_up_are_forgotten() {
        let mut left = Bytes::default();
        let (a, b) = (Ino::new(RootId(0), 5), Ino::new(RootId(0), 6));
        for (ino, bytes) in [(b, 10), (a, 7), (b, -4), (a, -8), (b, -6), (a, 0)] {
            left.add(ino, bytes);
        }
        assert_eq!(left.wrong(), [(a, -1)]);
    }
}
