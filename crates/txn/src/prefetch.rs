//! Reading ahead for replay.
//!
//! The problem: records are applied one after another, and on a cold cache each of them waits for
//! its own inode block and leaves: 5,000 changes of scattered files are 5,000 reads in a row,
//! although the device could do many at a time and all of them are known before.
//!
//! The rule: records are gathered in a *window*. Before they are applied, what their items will
//! touch is noted here, sorted, and what of it is not in memory is read: tree nodes level by level,
//! `imap` among them, then inode blocks. Reading ahead decides nothing. A read that fails is left
//! to the record that needs it, which says what is wrong; what was read and is not used costs
//! memory alone. So what a record is applied to does not depend on what was read for it.
//!
//! Memory: a window ends when what it may have to be read for it, with what has still to be
//! written, would take more than the cache. With threads in the background [`READERS`] read at a
//! time; without, one thread reads everything in sorted order, so that simulations do not depend on
//! the machine.

use crate::store::Store;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::sync::AtomicBool;
use shoal_base::sync::crew::for_each;
use shoal_base::{Ino, Result, RootId};
use shoal_format::bytes::Reader;
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_tree::ColdNode;
use std::sync::atomic::Ordering;

/// Reads at a time. A device that takes 0.2 ms for each does as many in that time.
const READERS: usize = 16;
/// Objects for each thread, at least: starting one takes as long as reading a few from memory.
const READS_MIN: usize = 4;
/// Levels of a tree, and one more for a node that left memory meanwhile.
const LEVELS: usize = 8;
/// Fewest objects of a kind that a window may want, however small the cache.
const WANTED_MIN: usize = 64;
/// Most of them: bounds the lists.
const WANTED_MAX: usize = 1 << 16;

/// Objects of each kind that a window may have to read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    blocks: usize,
    nodes: usize,
}

impl Room {
    /// Half of what is left of the cache beside what has still to be written: records also make
    /// blocks and nodes that nobody reads.
    pub fn of(store: &Store) -> Room {
        let half = |objects: usize| (objects / 2).clamp(WANTED_MIN, WANTED_MAX);
        Room { blocks: half(store.budget.room_blocks()), nodes: half(store.cache.room_nodes()) }
    }
}

/// Keys of a tree, from one to before another.
type Keys = (RootId, TreeId, Key, Key);

/// What the records of a window are going to touch.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Inode blocks by root and number.
    blocks: Vec<(RootId, u64)>,
    keys: Vec<Keys>,
}

impl Wanted {
    /// Notes what a record touches. What cannot be decoded is left to its replay.
    pub fn note(&mut self, record: &[u8]) {
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
        // The directory and its child, again and again.
        if !self.blocks.iter().rev().take(2).any(|last| *last == block) {
            self.blocks.push(block);
        }
    }

    fn keys(&mut self, root: RootId, tree: TreeId, from: Key, to: Key) {
        if tree != TreeId::Imap {
            self.keys.push((root, tree, from, to));
        }
    }

    /// Whether more records would want more than there is room for.
    pub fn is_full(&self, room: Room) -> bool {
        self.blocks.len() >= room.blocks || self.keys.len() >= room.nodes
    }

    /// Reads what is not in memory, and forgets everything.
    pub fn read(&mut self, store: &Store, room: Room) {
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.sort_unstable();
        blocks.dedup();
        let table = |root: RootId| store.roots.get(root).map(|root| &root.table);
        blocks.retain(|(root, number)| table(*root).is_some_and(|table| table.is_cold(*number)));
        blocks.truncate(room.blocks);
        // A batch may make more dirty than the cache holds, and no checkpoint ends inside it. What
        // is read beside that would be dropped before its record comes.
        if store.budget.room_blocks() == 0 {
            blocks.clear();
        }
        for (root, number) in &blocks {
            let key = Key::new(*number, 0);
            self.keys.push((*root, TreeId::Imap, key, key.next()));
        }
        self.keys.sort_unstable_by_key(|(root, tree, from, to)| (*root, *tree as u8, *from, *to));
        read_nodes(store, &self.keys, room.nodes);
        self.keys.clear();
        for_each(readers(store, blocks.len()), &blocks, |(root, number)| {
            let _its_user_says_so = table(*root).map(|table| table.read_ahead(*number));
        });
    }
}

/// Threads that read so many objects.
fn readers(store: &Store, objects: usize) -> usize {
    match store.options.background {
        true => (objects / READS_MIN).clamp(1, READERS),
        false => 1,
    }
}

/// Reads the nodes that are missing on the way to these keys, which are sorted, level by level.
fn read_nodes(store: &Store, keys: &[Keys], mut most: usize) {
    for _ in 0..LEVELS {
        let cold = cold_nodes(store, keys, most);
        if cold.is_empty() {
            return;
        }
        most -= cold.len();
        let failed = AtomicBool::new(false);
        for_each(readers(store, cold.len()), &cold, |(root, tree, node)| {
            if read_node(store, *root, *tree, node).is_err() {
                failed.store(true, Ordering::Relaxed);
            }
        });
        // It would be tried again in each of the rounds to come.
        if failed.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn read_node(store: &Store, root: RootId, tree: TreeId, node: &ColdNode) -> Result<()> {
    store.roots.get(root).map_or(Ok(()), |root| root.tree(tree).read_cold(node))
}

/// At most so many of the nodes that are missing.
fn cold_nodes(store: &Store, keys: &[Keys], most: usize) -> Vec<(RootId, TreeId, ColdNode)> {
    let mut found = Vec::new();
    let mut cold = Vec::new();
    // The tree looked at last, and the key before which it was.
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
