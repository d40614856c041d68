//! The subvolumes of a volume by number. Each has its own inode numbers, trees and inode table.
//!
//! | state | meaning | next state |
//! | --- | --- | --- |
//! | live | it has a name in the volume's top directory | deleted, by a record that removes the name |
//! | deleted | inaccessible; the engine frees its contents | vacant, by a record, when no inode is left |
//! | vacant | the number is unused | the next checkpoint sweeps the rest of its inode blocks; then the number can be reused |
//!
//! Finding a subvolume takes no lock, and no operation in one subvolume takes a lock of another. A
//! subvolume's object in memory stays until the volume is closed, and serves the next owner of the
//! number.

use shoal_base::counters::Counters;
use shoal_base::limits::NAME_MAX;
use shoal_base::sync::{AtomicI64, AtomicU8, AtomicU32, Mutex};
use shoal_base::{Code, Epoch, Error, Ino, Result, RootId, RootSet};
use shoal_device::Device;
use shoal_format::checkpoint::{RootRecord, RootState};
use shoal_format::root::ROOTS;
use shoal_format::{Geometry, Ptr};
use shoal_itable::{Budget, InodeTable, Projects, TableConfig};
use shoal_tree::{NodeCache, NodeId, Survey, Tree, TreeId};
use std::convert::Infallible;
use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Subvolumes per chunk of the directory of subvolumes.
const CHUNK: usize = 256;

/// A subvolume: its own numbers, trees and table. Those are made at the first use, from the state
/// in the newest checkpoint: a volume may have many unused subvolumes.
pub struct Root {
    /// Its number.
    pub id: RootId,
    /// Held by renames across its directories, one at a time: the directory tree above them must
    /// not change.
    pub rename: Mutex<()>,
    name: Mutex<Arc<[u8]>>,
    state: AtomicU8,
    /// Its state in the newest checkpoint, or in the one being written.
    written: Mutex<WrittenRoot>,
    trees: OnceLock<Box<RootTrees>>,
    parts: Arc<RootParts>,
}

/// The trees and the inode table of a subvolume.
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

/// A subvolume as recorded by a checkpoint.
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

    /// One of its four trees.
    pub fn tree(&self, id: TreeId) -> &Tree {
        match id {
            TreeId::Dirents => &self.dirents,
            TreeId::Attrs => &self.attrs,
            TreeId::Extents => &self.extents,
            TreeId::Imap => self.table.imap(),
        }
    }
    /// Its trees, if they were used since the volume was opened.
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
    /// First number of the inode blocks that were never used.
    pub fn next_block(&self) -> u64 {
        match self.used() {
            Some(trees) => trees.table.next_block(),
            None => self.written.lock().next_block,
        }
    }
    /// Its state: live, deleted or vacant.
    #[inline]
    pub fn state(&self) -> RootState {
        RootState::from_number(self.state.load(Ordering::Acquire)).unwrap_or_default()
    }
    /// Its name in the volume's top directory; empty for subvolume 0 and for those without a name.
    pub fn name(&self) -> Arc<[u8]> {
        self.name.lock().clone()
    }
    /// Sets state and name, as in a record of the current transaction.
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
    /// Returns whether the number can be given to a new subvolume: it is vacant, and a checkpoint
    /// has written it empty.
    pub fn is_free(&self) -> bool {
        self.parts.free.has(self.id.0)
    }
    /// Notes that a checkpoint has written it empty: the number is free.
    pub(crate) fn swept(&self) {
        self.parts.free.insert(self.id.0);
    }
    /// Notes its record in the current checkpoint. Returns whether it differs from the previous
    /// one.
    pub(crate) fn note_written(&self, now: WrittenRoot) -> bool {
        let mut written = self.written.lock();
        let news = *written != now;
        *written = now;
        news
    }
    /// Its trees in the newest checkpoint, or in the one being written.
    pub(crate) fn written_trees(&self) -> [Ptr; 4] {
        self.written.lock().trees
    }
    /// Its record for its page; `None` if it is vacant and has no trees.
    pub(crate) fn record(&self) -> Option<RootRecord> {
        let WrittenRoot { state, name, trees, next_block, inodes } = self.written.lock().clone();
        let name = name.to_vec();
        let record = RootRecord { id: self.id, state, name, trees, next_block, inodes };
        (!record.is_nothing()).then_some(record)
    }
}

/// The parts shared by all subvolumes, and sets of subvolumes.
pub(crate) struct RootParts {
    pub device: Arc<dyn Device>,
    pub geometry: Geometry,
    pub volume: u64,
    pub cache: Arc<NodeCache>,
    pub budget: Arc<Budget>,
    pub counters: Arc<Counters>,
    /// Numbers that can be given to new subvolumes.
    pub free: RootSet,
    /// Deleted subvolumes, which may have contents to free.
    pub deleted: RootSet,
    /// Subvolumes whose trees have been used.
    pub used: RootSet,
    /// Inodes in use in all others.
    pub unused_inodes: AtomicI64,
}

impl RootParts {
    fn node_id(&self, root: RootId, tree: TreeId) -> NodeId {
        NodeId { volume: self.volume, root, tree }
    }

    /// Makes the trees and the table of a subvolume, with trees made by `tree`.
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

    /// Makes a subvolume as recorded by a checkpoint, or a vacant one.
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

/// The directory of subvolumes.
pub struct Roots {
    chunks: Box<[OnceLock<Chunk>]>,
    /// One past the largest number with a subvolume.
    count: AtomicU32,
    parts: Arc<RootParts>,
    /// Pages that the next checkpoint must write even if unchanged.
    pub(crate) pages_due: RootSet,
    /// Held while a subvolume is added.
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
    /// The subvolume with this number, in any state.
    #[inline]
    pub fn get(&self, id: RootId) -> Option<&Root> {
        self.chunks[id.0 as usize / CHUNK].get()?[id.0 as usize % CHUNK].get()
    }
    /// Use of the projects that the inodes of all subvolumes belong to.
    #[inline]
    pub fn projects(&self) -> &Projects {
        self.parts.budget.projects()
    }
    /// All subvolumes, by number, in any state.
    pub fn iter(&self) -> impl Iterator<Item = &Root> {
        (0..self.count.load(Ordering::Acquire)).filter_map(|n| self.get(RootId(n as u16)))
    }
    /// One past the largest number with a subvolume.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire) as usize
    }
    /// Deleted subvolumes, by number. They may have contents to free.
    pub fn deleted(&self) -> impl Iterator<Item = &Root> {
        let known = self.parts.deleted.iter().filter_map(|n| self.get(RootId(n)));
        known.filter(|root| root.state() == RootState::Deleted)
    }
    /// Subvolumes whose numbers can be reused.
    fn free(&self) -> impl Iterator<Item = &Root> {
        self.parts.free.iter().filter_map(|n| self.get(RootId(n)))
    }
    /// Inodes in use, in all subvolumes.
    pub fn inodes(&self) -> u64 {
        let unused = self.parts.unused_inodes.load(Ordering::Relaxed).max(0) as u64;
        let trees = self.parts.used.iter().filter_map(|n| self.get(RootId(n))?.used());
        trees.fold(unused, |sum, trees| sum.saturating_add(trees.table.inodes()))
    }
    /// Returns a vacant subvolume for reuse that is not `spared`. Only one caller at a time.
    ///
    /// # Errors
    /// `ENOSPC` if all 65,536 numbers are in use.
    pub fn vacant(&self, spared: impl Fn(RootId) -> bool) -> Result<&Root> {
        match self.free().find(|root| !spared(root.id)) {
            Some(root) => Ok(root),
            None => self.push(None),
        }
    }
    /// For replay: returns the subvolume with this number, adding it and all before it if
    /// necessary.
    pub(crate) fn claim(&self, id: RootId) -> Result<&Root> {
        while self.get(id).is_none() {
            self.push(None)?;
        }
        self.get(id).ok_or(Error::Code(Code::Stale))
    }
    /// Approximate bytes for writing a page of the root table with its backup copy.
    pub(crate) fn page_bytes(&self) -> u64 {
        (2 * self.count().min(ROOTS) * (RootRecord::SIZE + NAME_MAX)) as u64
    }
    /// Adds the next subvolume as recorded by a checkpoint, or a vacant one.
    pub(crate) fn push(&self, record: Option<&RootRecord>) -> Result<&Root> {
        let _one = self.entering.lock();
        let count = self.count.load(Ordering::Acquire);
        let id = u16::try_from(count).map_err(|_| Error::Code(Code::NoSpace))?;
        let root = self.parts.root(RootId(id), record);
        Ok(self.put(count, root))
    }

    /// Adds the next subvolume as far as it is readable. `each` gets the survey of every tree.
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

    /// Stores a subvolume. Must be called under the lock `entering`.
    fn put(&self, count: u32, root: Root) -> &Root {
        let id = count as usize;
        let empty = || (0..CHUNK).map(|_| OnceLock::new()).collect();
        let chunk = self.chunks[id / CHUNK].get_or_init(empty);
        let root = chunk[id % CHUNK].get_or_init(|| root);
        self.count.store(count + 1, Ordering::Release);
        root
    }
}
