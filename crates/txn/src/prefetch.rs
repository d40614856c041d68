//! Reading ahead: for replay, and for listings.
//!
//! # Replay
//!
//! Problem: records are applied one after another, and with a cold cache each of them waits for its
//! own inode block and leaves. 5,000 changes of scattered files would be 5,000 reads in sequence,
//! although the device could do many at a time and all of them are known in advance.
//!
//! Rule: records are collected in a *window*. Before they are applied, the objects that their items
//! will use are noted here, sorted, and read if they are not in memory: tree nodes level by level,
//! including `imap`, then inode blocks. Reading ahead decides nothing. A failed read is left to the
//! record that needs the object, which reports the error; an unneeded read only costs memory. So
//! the result of applying a record does not depend on what was read ahead.
//!
//! Cost: memory. A window ends when the reads that it may need, together with what must still be
//! written, would exceed the cache. With background threads [`READERS`] reads run at a time.
//! Without, one thread reads everything in sorted order, so that simulations do not depend on the
//! machine.
//!
//! # Listings
//!
//! A listing with attributes uses the inode blocks of many entries, in the order of their names'
//! hashes. [`ReadAhead::inodes`] reads those that are missing, sorted by place, adjacent ones
//! together; [`ReadAhead::leaves`] reads the leaves with the entries that follow. They begin
//! on the calling thread: for a device that answers from memory, starting a thread takes longer
//! than several reads. After the first slow read, threads do the rest, and all of the following
//! ones, until one is fast. All listings of a volume together have a limited number of these
//! (`helpers.rs`). A thread that must not wait ([`cold::at_once`]) reads nothing ahead: what it
//! needs is refused.

use crate::store::Store;
use shoal_base::cold;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::sync::crew::for_each;
use shoal_base::sync::{AtomicBool, Instant};
use shoal_base::{Ino, Result, RootId};
use shoal_format::bytes::Reader;
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_tree::ColdNode;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Largest number of concurrent reads. A device with 0.2 ms latency serves that many in this time.
const READERS: usize = 16;
/// Minimum number of objects for each thread: starting one takes as long as reading a few from
/// memory.
const READS_MIN: usize = 4;
/// A read that takes this long is worth a thread.
const SLOW: Duration = Duration::from_micros(60);
/// Leaves that a listing needs next: the entries of a batch are in that many.
const LEAVES_SOON: usize = 6;
/// Leaves that are read ahead when one of the next is missing.
const LEAVES_AHEAD: usize = 16;
/// Levels of a tree, and one more for a node that was evicted meanwhile.
const LEVELS: usize = 8;
/// Minimum number of objects of a kind that a window may need, however small the cache.
const WANTED_MIN: usize = 64;
/// Maximum number of them; bounds the lists.
const WANTED_MAX: usize = 1 << 16;

/// Number of objects of each kind that a window may read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadMax {
    blocks: usize,
    nodes: usize,
}

impl ReadMax {
    /// Half of what is left of the cache in addition to what must still be written: records also
    /// make blocks and nodes that are not read.
    pub(crate) fn of(store: &Store) -> ReadMax {
        let half = |objects: usize| (objects / 2).clamp(WANTED_MIN, WANTED_MAX);
        ReadMax { blocks: half(store.budget.room_blocks()), nodes: half(store.cache.room_nodes()) }
    }
}

/// A range of keys of a tree, the end excluded.
type Keys = (RootId, TreeId, Key, Key);

/// The objects that the records of a window will use.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Inode blocks by subvolume and number.
    blocks: Vec<(RootId, u64)>,
    keys: Vec<Keys>,
}

impl Wanted {
    /// Notes the objects of a record. Items that cannot be decoded are left to its replay.
    pub(crate) fn note(&mut self, record: &[u8]) {
        let mut r = Reader::new(record);
        while !r.is_empty()
            && let Some(item) = Item::decode(&mut r)
        {
            match item {
                Item::Core { ino, .. }
                | Item::DataFork { ino, .. }
                | Item::AttrFork { ino, .. }
                | Item::DirTouch { ino, .. }
                | Item::Links { ino, .. }
                | Item::Moved { ino, .. }
                | Item::Free { ino, .. } => self.block(ino),
                Item::TreePut { root, tree, key, .. } | Item::TreeDel { root, tree, key } => {
                    self.keys(root, tree, key, key.next());
                }
                Item::TreeDelRange { root, tree, key, end } => {
                    self.keys(root, tree, key, Key::new(key.hi, end));
                }
                Item::Named { dir, lo, ref entry, .. } => {
                    let key = Key::of(dir, lo);
                    self.keys(dir.root(), TreeId::Dirents, key, key.next());
                    self.block(entry.child);
                }
                Item::Unnamed { dir, lo, .. } => {
                    let key = Key::of(dir, lo);
                    self.keys(dir.root(), TreeId::Dirents, key, key.next());
                }
                Item::OrphanAdd { .. }
                | Item::OrphanDel { .. }
                | Item::Root { .. }
                | Item::IntentLog { .. }
                | Item::IntentProgress { .. }
                | Item::IntentDone { .. } => {}
            }
        }
    }

    fn block(&mut self, ino: Ino) {
        let block = (ino.root(), ino.index() / INODES_PER_BLOCK as u64);
        // The directory and its child occur again and again.
        if !self.blocks.iter().rev().take(2).any(|last| *last == block) {
            self.blocks.push(block);
        }
    }

    fn keys(&mut self, root: RootId, tree: TreeId, from: Key, to: Key) {
        if tree != TreeId::Imap {
            self.keys.push((root, tree, from, to));
        }
    }

    /// Returns whether further records would exceed the limits.
    pub(crate) fn is_full(&self, read_max: ReadMax) -> bool {
        self.blocks.len() >= read_max.blocks || self.keys.len() >= read_max.nodes
    }

    /// Reads the objects that are not in memory, and forgets all of them.
    pub(crate) fn read(&mut self, store: &Store, read_max: ReadMax) {
        self.read_by(store, read_max, &Always);
    }

    fn read_by(&mut self, store: &Store, read_max: ReadMax, spread: &impl Spread) {
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.sort_unstable();
        blocks.dedup();
        let table = |root: RootId| store.roots.get(root).map(|root| &root.table);
        blocks.retain(|(root, number)| table(*root).is_some_and(|table| table.is_cold(*number)));
        blocks.truncate(read_max.blocks);
        // A batch may make more dirty than the cache holds, and no checkpoint ends inside it.
        // Objects read in addition would be evicted before their record is applied.
        if store.budget.room_blocks() == 0 {
            blocks.clear();
        }
        for (root, number) in &blocks {
            let key = Key::new(*number, 0);
            self.keys.push((*root, TreeId::Imap, key, key.next()));
        }
        self.keys.sort_unstable_by_key(|(root, tree, from, to)| (*root, *tree as u8, *from, *to));
        read_nodes(store, &self.keys, read_max.nodes, spread);
        self.keys.clear();
        let mut runs = Vec::new();
        for blocks in blocks.chunk_by(|one, next| one.0 == next.0) {
            let numbers = blocks.iter().map(|(_, number)| *number);
            let found = table(blocks[0].0).map_or(Vec::new(), |table| table.cold_runs(numbers));
            runs.extend(found.into_iter().map(|run| (blocks[0].0, run)));
        }
        spread.each(store, &runs, |(root, run)| {
            table(*root).map_or(Duration::ZERO, |table| table.read_ahead(run))
        });
    }
}

/// Reading ahead for listings and other calls about many inodes. As that of replay, it decides
/// nothing, and reports no errors.
#[derive(Clone, Copy)]
pub struct ReadAhead<'s>(&'s Store);

impl Store {
    /// Reading ahead for listings.
    pub fn read_ahead(&self) -> ReadAhead<'_> {
        ReadAhead(self)
    }
}

impl ReadAhead<'_> {
    /// Reads the blocks of these inodes that are not in memory.
    pub fn inodes(self, inodes: impl Iterator<Item = Ino>) {
        if cold::must_not_wait() {
            return;
        }
        let mut wanted = Wanted::default();
        inodes.for_each(|ino| wanted.block(ino));
        wanted.read_by(self.0, ReadMax::of(self.0), &IfSlow);
    }

    /// Reads the leaves with these entries of the trees `dirents` that are not in memory.
    pub fn entries(self, keys: impl Iterator<Item = (RootId, Key)>) {
        if cold::must_not_wait() {
            return;
        }
        let keys = keys.map(|(root, key)| (root, TreeId::Dirents, key, key.next()));
        let mut wanted = Wanted { keys: keys.collect(), ..Wanted::default() };
        wanted.read_by(self.0, ReadMax::of(self.0), &IfSlow);
    }

    /// If any of the next six leaves with these entries of the tree `dirents` is missing, reads the
    /// missing ones among the next sixteen. Examines no more than these: looking for missing leaves
    /// in all of a directory, for each of its leaves, would take time proportional to the square of
    /// its size.
    pub fn leaves(self, root: RootId, entries: Range<Key>) {
        let missing = |leaves: usize| {
            let (mut cold, root) = (Vec::new(), self.0.roots.get(root));
            let dirents = root.map(|root| root.tree(TreeId::Dirents));
            dirents?.cold_in_leaves(entries.start, entries.end, leaves, &mut cold);
            Some(cold)
        };
        if cold::must_not_wait() || missing(LEAVES_SOON).is_none_or(|cold| cold.is_empty()) {
            return;
        }
        read_levels(self.0, &IfSlow, &mut || {
            let cold = missing(LEAVES_AHEAD).unwrap_or_default();
            cold.into_iter().map(|node| (root, TreeId::Dirents, node)).collect()
        });
    }
}

/// How reads are spread over threads.
trait Spread {
    /// Calls `work` for each item. It returns the time that the device took.
    fn each<T: Sync>(&self, store: &Store, items: &[T], work: impl Fn(&T) -> Duration + Sync);
}

/// For replay: nobody else uses the volume.
struct Always;

impl Spread for Always {
    fn each<T: Sync>(&self, store: &Store, items: &[T], work: impl Fn(&T) -> Duration + Sync) {
        let threads = match store.options.background {
            true => (items.len() / READS_MIN).clamp(1, READERS),
            false => 1,
        };
        for_each(threads, items, |item| _ = work(item));
    }
}

/// For listings: on several threads if the device is slow.
struct IfSlow;

impl Spread for IfSlow {
    fn each<T: Sync>(&self, store: &Store, items: &[T], work: impl Fn(&T) -> Duration + Sync) {
        debug_assert!(!cold::must_not_wait(), "threads of others would wait for it");
        let helpers = &store.helpers;
        let is_slow = |item: &T| work(item) >= SLOW;
        let mut rest = items;
        while let [item, more @ ..] = rest
            && !(store.options.background && helpers.is_slow() && rest.len() > 1)
        {
            if is_slow(item) {
                helpers.set_slow(true);
            }
            rest = more;
        }
        if rest.is_empty() {
            return;
        }
        let fast = AtomicBool::new(false);
        let more = helpers.take(rest.len() - 1);
        for_each(1 + more.count(), rest, |item| {
            if !is_slow(item) {
                fast.store(true, Ordering::Relaxed);
            }
        });
        helpers.set_slow(!fast.load(Ordering::Relaxed));
    }
}

/// Reads the missing nodes on the paths to these keys, which must be sorted.
fn read_nodes(store: &Store, keys: &[Keys], mut most: usize, spread: &impl Spread) {
    read_levels(store, spread, &mut || {
        let cold = cold_nodes(store, keys, most);
        most -= cold.len();
        cold
    });
}

/// Reads the nodes that `missing` returns until there are none: the next level of the trees each
/// time.
fn read_levels(
    store: &Store,
    spread: &impl Spread,
    missing: &mut dyn FnMut() -> Vec<(RootId, TreeId, ColdNode)>,
) {
    for _ in 0..LEVELS {
        let cold = missing();
        if cold.is_empty() {
            return;
        }
        let failed = AtomicBool::new(false);
        spread.each(store, &cold, |(root, tree, node)| {
            let begun = Instant::now();
            if read_node(store, *root, *tree, node).is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            begun.elapsed()
        });
        // It would be tried again in each of the following rounds.
        if failed.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn read_node(store: &Store, root: RootId, tree: TreeId, node: &ColdNode) -> Result<()> {
    store.roots.get(root).map_or(Ok(()), |root| root.tree(tree).read_cold(node))
}

/// Returns at most `most` of the missing nodes.
fn cold_nodes(store: &Store, keys: &[Keys], most: usize) -> Vec<(RootId, TreeId, ColdNode)> {
    let mut found = Vec::new();
    let mut cold = Vec::new();
    // The last tree, and the key up to which it was examined.
    let mut last = None;
    for (id, tree, from, to) in keys {
        let done = match last {
            Some((of, done)) if of == (*id, *tree) => done,
            _ => Key::MIN,
        };
        let Some(root) = store.roots.get(*id).filter(|_| done < *to && found.len() < most) else {
            continue;
        };
        let from = (*from).max(done);
        let end = root.tree(*tree).cold_nodes(from, *to, most - found.len(), &mut cold);
        last = Some(((*id, *tree), end));
        found.extend(cold.drain(..).map(|node| (*id, *tree, node)));
    }
    found
}
