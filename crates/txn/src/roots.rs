//! The roots of a volume by number: each has its own inode numbers, trees and inode table.
//!
//! | state | means | leaves it by |
//! | --- | --- | --- |
//! | live | it has a name under the volume's top | a record that takes the name away |
//! | deleted | nobody enters any more; the engine frees what is in it | a record, when no inode is left |
//! | vacant | the number is free | the next checkpoint sweeps what is left of its inode blocks; then the number may be given out again |
//!
//! Finding a root takes no lock, and nothing that one root does takes a lock of another. A root's
//! place in memory, once made, stays until the volume is closed and serves the number's next owner.

use crate::store::Store;
use shoal_base::counters::Counters;
use shoal_base::sync::{AtomicI64, AtomicU8, AtomicU32, Mutex};
use shoal_base::{Code, Epoch, Error, Ino, Result, RootId, RootSet};
use shoal_device::Device;
use shoal_format::checkpoint::{RootRecord, RootState};
use shoal_format::{Geometry, Ptr};
use shoal_itable::{Budget, InodeTable, TableConfig};
use shoal_tree::{NodeCache, NodeId, Survey, Tree, TreeId};
use std::convert::Infallible;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Roots that share a chunk of the directory of roots.
const CHUNK: usize = 256;

/// A root (subvolume): its own numbers, trees and table. Those are made when they are first used,
/// from what the newest checkpoint has of the root: a volume may have many roots that nobody uses.
pub struct Root {
    /// Its number.
    pub id: RootId,
    /// Held by renames across its directories, one at a time: the tree's shape above them must
    /// stand still.
    pub rename: Mutex<()>,
    name: Mutex<Arc<[u8]>>,
    state: AtomicU8,
    /// What the newest checkpoint says of it, or the one being written.
    written: Mutex<WrittenRoot>,
    trees: OnceLock<Box<RootTrees>>,
    parts: Arc<RootParts>,
}

/// The trees and the inode table of a root.
pub struct RootTrees {
    /// Inodes.
    pub table: Arc<InodeTable>,
    /// Directory entries.
    pub dirents: Tree,
    /// Attributes that do not fit in inodes.
    pub attrs: Tree,
    /// Extents that do not fit in inodes.
    pub extents: Tree,
}

/// A root as a checkpoint records it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct WrittenRoot {
    pub state: RootState,
    pub name: Arc<[u8]>,
    pub trees: [Ptr; 4],
    pub next_block: u64,
    pub inodes: u64,
}

impl WrittenRoot {
    fn vacant() -> WrittenRoot {
        WrittenRoot::of(&RootRecord::vacant(RootId(0)))
    }
    fn of(record: &RootRecord) -> WrittenRoot {
        WrittenRoot {
            state: record.state,
            name: record.name.as_slice().into(),
            trees: record.trees,
            next_block: record.next_block,
            inodes: record.inodes,
        }
    }
}

impl Deref for Root {
    type Target = RootTrees;
    #[inline]
    fn deref(&self) -> &RootTrees {
        match self.trees.get() {
            Some(trees) => trees,
            None => self.make_trees(),
        }
    }
}

impl Root {
    #[cold]
    fn make_trees(&self) -> &RootTrees {
        self.trees.get_or_init(|| {
            let written = self.written.lock();
            let trees = self.parts.trees(self.id, &written, &mut |tree| {
                let (node, parts) = (self.parts.node_id(self.id, tree), &self.parts);
                let (device, cache) = (parts.device.clone(), parts.cache.clone());
                let ptr = written.trees[tree as usize];
                Ok::<_, Infallible>(Tree::open(node, device, parts.geometry, cache, ptr))
            });
            let Ok(trees) = trees;
            self.parts.unused_inodes.fetch_sub(written.inodes as i64, Ordering::Relaxed);
            self.parts.used.insert(self.id.0);
            Box::new(trees)
        })
    }

    /// One of the four trees.
    pub fn tree(&self, id: TreeId) -> &Tree {
        match id {
            TreeId::Dirents => &self.dirents,
            TreeId::Attrs => &self.attrs,
            TreeId::Extents => &self.extents,
            TreeId::Imap => self.table.imap(),
        }
    }
    /// Its trees, if they have been used since the volume was opened.
    pub(crate) fn used(&self) -> Option<&RootTrees> {
        self.trees.get().map(|trees| &**trees)
    }
    /// Its top directory.
    pub fn top(&self) -> Ino {
        Ino::new(self.id, Ino::ROOT.index())
    }
    /// Inodes in use.
    pub fn inodes(&self) -> u64 {
        match self.used() {
            Some(trees) => trees.table.inodes(),
            None => self.written.lock().inodes,
        }
    }
    /// Inode blocks from this number on have never been used.
    pub fn next_block(&self) -> u64 {
        match self.used() {
            Some(trees) => trees.table.next_block(),
            None => self.written.lock().next_block,
        }
    }
    /// Whether it lives, is being freed, or is free.
    #[inline]
    pub fn state(&self) -> RootState {
        RootState::from_number(self.state.load(Ordering::Acquire)).unwrap_or_default()
    }
    /// Its name under the volume's top; empty for root 0 and for roots without one.
    pub fn name(&self) -> Arc<[u8]> {
        self.name.lock().clone()
    }
    /// Changes state and name, as a record of the transaction under way says.
    pub fn set(&self, state: RootState, name: &[u8]) {
        *self.name.lock() = name.into();
        self.parts.free.remove(self.id.0);
        self.state.store(state as u8, Ordering::Release);
        match state {
            RootState::Deleted => drop(self.parts.deleted.insert(self.id.0)),
            _ => self.parts.deleted.remove(self.id.0),
        }
        self.parts.cache.touched_roots().mark_any(self.id);
    }
    /// Whether the number can be given to a new root: it is vacant, and a checkpoint has written
    /// it empty.
    pub fn is_free(&self) -> bool {
        self.parts.free.has(self.id.0)
    }
    /// A checkpoint has written it empty: the number is free.
    pub(crate) fn swept(&self) {
        self.parts.free.insert(self.id.0);
    }
    /// Notes how the checkpoint under way records it. Returns whether that is news.
    pub(crate) fn note_written(&self, now: WrittenRoot) -> bool {
        let mut written = self.written.lock();
        let news = *written != now;
        *written = now;
        news
    }
    /// Its trees as the newest checkpoint has them, or the one being written.
    pub(crate) fn written_trees(&self) -> [Ptr; 4] {
        self.written.lock().trees
    }
    /// The record of it in its page; `None` when nothing is left of it.
    pub(crate) fn record(&self) -> Option<RootRecord> {
        let WrittenRoot { state, name, trees, next_block, inodes } = self.written.lock().clone();
        let name = name.to_vec();
        let record = RootRecord { id: self.id, state, name, trees, next_block, inodes };
        (!record.is_nothing()).then_some(record)
    }
}

/// What roots are made from, and sets of them.
pub(crate) struct RootParts {
    pub device: Arc<dyn Device>,
    pub geometry: Geometry,
    pub volume: u64,
    pub cache: Arc<NodeCache>,
    pub budget: Arc<Budget>,
    pub counters: Arc<Counters>,
    /// Numbers that can be given out.
    pub free: RootSet,
    /// Roots without a name, in which there may be something to be freed.
    pub deleted: RootSet,
    /// Roots whose trees have been used.
    pub used: RootSet,
    /// Inodes in use in all others.
    pub unused_inodes: AtomicI64,
}

impl RootParts {
    fn node_id(&self, root: RootId, tree: TreeId) -> NodeId {
        NodeId { volume: self.volume, root, tree }
    }

    /// The trees and table of a root, with trees from `tree`.
    fn trees<E>(
        &self,
        root: RootId,
        written: &WrittenRoot,
        tree: &mut dyn FnMut(TreeId) -> std::result::Result<Tree, E>,
    ) -> std::result::Result<RootTrees, E> {
        let config = TableConfig {
            root,
            volume: self.volume,
            geometry: self.geometry,
            device: self.device.clone(),
            budget: self.budget.clone(),
            counters: self.counters.clone(),
        };
        let imap = tree(TreeId::Imap)?;
        let table = InodeTable::new(config, imap, written.next_block, written.inodes);
        let table = Arc::new(table);
        self.budget.enter(&table);
        Ok(RootTrees {
            table,
            dirents: tree(TreeId::Dirents)?,
            attrs: tree(TreeId::Attrs)?,
            extents: tree(TreeId::Extents)?,
        })
    }

    /// A root as a checkpoint recorded it, or a vacant one.
    fn root(self: &Arc<Self>, id: RootId, record: Option<&RootRecord>) -> Root {
        let written = record.map_or_else(WrittenRoot::vacant, WrittenRoot::of);
        match written.state {
            RootState::Live => {}
            RootState::Deleted => drop(self.deleted.insert(id.0)),
            RootState::Vacant => drop(self.free.insert(id.0)),
        }
        self.unused_inodes.fetch_add(written.inodes as i64, Ordering::Relaxed);
        Root {
            id,
            rename: Mutex::default(),
            name: Mutex::new(written.name.clone()),
            state: AtomicU8::new(written.state as u8),
            written: Mutex::new(written),
            trees: OnceLock::new(),
            parts: self.clone(),
        }
    }
}

type Chunk = Box<[OnceLock<Root>]>;

/// The directory of roots.
pub struct Roots {
    chunks: Box<[OnceLock<Chunk>]>,
    /// Numbers below this have a root.
    count: AtomicU32,
    parts: Arc<RootParts>,
    /// Pages to be written by the next checkpoint whatever has changed in them.
    pub(crate) pages_due: RootSet,
    /// Held while a root is entered.
    entering: Mutex<()>,
}

impl Roots {
    pub(crate) fn new(parts: RootParts) -> Roots {
        let chunks = (0..=u16::MAX as usize / CHUNK).map(|_| OnceLock::new()).collect();
        Roots {
            chunks,
            count: AtomicU32::new(0),
            parts: Arc::new(parts),
            pages_due: RootSet::default(),
            entering: Mutex::default(),
        }
    }
    /// The root of this number, whatever its state.
    #[inline]
    pub fn get(&self, id: RootId) -> Option<&Root> {
        self.chunks[id.0 as usize / CHUNK].get()?[id.0 as usize % CHUNK].get()
    }
    /// All of them, by number, whatever their state.
    pub fn iter(&self) -> impl Iterator<Item = &Root> {
        (0..self.count.load(Ordering::Acquire)).filter_map(|n| self.get(RootId(n as u16)))
    }
    /// Numbers below this have a root.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire) as usize
    }
    /// Deleted roots, by number: there may be something in them to be freed.
    pub fn deleted(&self) -> impl Iterator<Item = &Root> {
        let known = self.parts.deleted.iter().filter_map(|n| self.get(RootId(n)));
        known.filter(|root| root.state() == RootState::Deleted)
    }
    /// Numbers that can be given to new roots.
    fn free(&self) -> impl Iterator<Item = &Root> {
        self.parts.free.iter().filter_map(|n| self.get(RootId(n)))
    }
    /// Inodes in use, in all roots.
    pub(crate) fn inodes(&self) -> u64 {
        let unused = self.parts.unused_inodes.load(Ordering::Relaxed).max(0) as u64;
        let trees = self.parts.used.iter().filter_map(|n| self.get(RootId(n))?.used());
        trees.fold(unused, |sum, trees| sum.saturating_add(trees.table.inodes()))
    }
    /// Enters the next root as a checkpoint recorded it, or a vacant one.
    pub(crate) fn push(&self, record: Option<&RootRecord>) -> Result<&Root> {
        let _one = self.entering.lock();
        let count = self.count.load(Ordering::Acquire);
        let id = u16::try_from(count).map_err(|_| Error::Code(Code::NoSpace))?;
        let root = self.parts.root(RootId(id), record);
        Ok(self.put(count, root))
    }

    /// Enters the next root as far as it can be read; `each` gets what
    /// every tree's walk met.
    pub(crate) fn push_salvaged(
        &self,
        record: &RootRecord,
        epoch: Epoch,
        each: &mut dyn FnMut(TreeId, Survey),
    ) -> Result<&Root> {
        let _one = self.entering.lock();
        let count = self.count.load(Ordering::Acquire);
        let (id, parts) = (record.id, &self.parts);
        let root = parts.root(id, Some(record));
        let trees = parts.trees(id, &WrittenRoot::of(record), &mut |tree| {
            let (device, cache) = (parts.device.clone(), parts.cache.clone());
            let (node, ptr) = (parts.node_id(id, tree), record.trees[tree as usize]);
            let (built, survey) = Tree::salvage(node, device, parts.geometry, cache, ptr, epoch)?;
            each(tree, survey);
            Ok::<_, Error>(built)
        })?;
        let _new = root.trees.set(Box::new(trees));
        parts.unused_inodes.fetch_sub(record.inodes as i64, Ordering::Relaxed);
        parts.used.insert(id.0);
        parts.cache.touched_roots().mark_any(id);
        Ok(self.put(count, root))
    }

    /// Under the lock of entering.
    fn put(&self, count: u32, root: Root) -> &Root {
        let id = count as usize;
        let empty = || (0..CHUNK).map(|_| OnceLock::new()).collect();
        let chunk = self.chunks[id / CHUNK].get_or_init(empty);
        let root = chunk[id % CHUNK].get_or_init(|| root);
        self.count.store(count + 1, Ordering::Release);
        root
    }
}

impl Store {
    /// The root that an inode lives in, whatever its state.
    #[inline]
    pub fn root(&self, ino: Ino) -> Result<&Root> {
        self.roots.get(ino.root()).ok_or(Error::Code(Code::Stale))
    }

    /// A vacant root to be brought to life, one that is not `spared`;
    /// `ENOSPC` when all 65,536 numbers are taken. One caller at a time.
    pub fn vacant_root(&self, spared: impl Fn(RootId) -> bool) -> Result<&Root> {
        match self.roots.free().find(|root| !spared(root.id)) {
            Some(root) => Ok(root),
            None => self.roots.push(None),
        }
    }

    /// For replay: the root of this number, entered with those before it if need be.
    pub(crate) fn claim_root(&self, id: RootId) -> Result<&Root> {
        while self.roots.get(id).is_none() {
            self.roots.push(None)?;
        }
        self.roots.get(id).ok_or(Error::Code(Code::Stale))
    }
}
