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
use shoal_base::sync::{AtomicBool, AtomicU8, AtomicU32, Mutex};
use shoal_base::{Code, Epoch, Error, Ino, Result, RootId};
use shoal_device::Device;
use shoal_format::Geometry;
use shoal_format::checkpoint::{RootRecord, RootState};
use shoal_itable::{Budget, InodeTable, TableConfig};
use shoal_tree::{NodeCache, NodeId, Survey, Tree, TreeId};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Roots that share a chunk of the directory of roots.
const CHUNK: usize = 256;

/// A root (subvolume): its own numbers, trees and table.
pub struct Root {
    /// Its number.
    pub id: RootId,
    /// Inodes.
    pub table: Arc<InodeTable>,
    /// Directory entries.
    pub dirents: Tree,
    /// Attributes that do not fit in inodes.
    pub attrs: Tree,
    /// Extents that do not fit in inodes.
    pub extents: Tree,
    /// Held by renames across its directories, one at a time: the tree's shape above them must
    /// stand still.
    pub rename: Mutex<()>,
    name: Mutex<Vec<u8>>,
    state: AtomicU8,
    /// Vacant, and a checkpoint has written it empty.
    swept: AtomicBool,
}

impl Root {
    /// One of the three trees that transactions change.
    pub fn tree(&self, id: TreeId) -> &Tree {
        match id {
            TreeId::Dirents => &self.dirents,
            TreeId::Attrs => &self.attrs,
            TreeId::Extents => &self.extents,
            TreeId::Imap => self.table.imap(),
        }
    }
    /// Its top directory.
    pub fn top(&self) -> Ino {
        Ino::new(self.id, Ino::ROOT.index())
    }
    /// Whether it lives, is being freed, or is free.
    #[inline]
    pub fn state(&self) -> RootState {
        RootState::from_u8(self.state.load(Ordering::Acquire)).unwrap_or_default()
    }
    /// Its name under the volume's top; empty for root 0 and for roots without one.
    pub fn name(&self) -> Vec<u8> {
        self.name.lock().clone()
    }
    /// Changes state and name, as a record of the transaction under way says.
    pub fn set(&self, state: RootState, name: &[u8]) {
        *self.name.lock() = name.to_vec();
        self.swept.store(false, Ordering::Release);
        self.state.store(state as u8, Ordering::Release);
    }
    /// Whether the number can be given to a new root.
    pub fn is_free(&self) -> bool {
        self.state() == RootState::Vacant && self.swept.load(Ordering::Acquire)
    }
    /// A checkpoint has written it empty: the number is free.
    pub(crate) fn swept(&self) {
        self.swept.store(true, Ordering::Release);
    }
}

/// What roots are made from.
pub(crate) struct RootParts {
    pub device: Arc<dyn Device>,
    pub geometry: Geometry,
    pub volume: u64,
    pub cache: Arc<NodeCache>,
    pub budget: Arc<Budget>,
    pub counters: Arc<Counters>,
}

impl RootParts {
    /// The trees and table of a root; without a record a vacant one.
    fn root(&self, id: RootId, record: Option<&RootRecord>) -> Result<Root> {
        self.root_of(id, record, &mut |tree| {
            let id = NodeId { volume: self.volume, root: id, tree };
            let (device, geometry) = (self.device.clone(), self.geometry);
            match record {
                None => Ok(Tree::create(id, device, geometry, self.cache.clone())),
                Some(r) => {
                    Tree::open(id, device, geometry, self.cache.clone(), r.trees[tree as usize])
                }
            }
        })
    }

    /// The same with trees from somewhere else.
    fn root_of(
        &self,
        id: RootId,
        record: Option<&RootRecord>,
        tree: &mut dyn FnMut(TreeId) -> Result<Tree>,
    ) -> Result<Root> {
        let config = TableConfig {
            root: id,
            volume: self.volume,
            geometry: self.geometry,
            device: self.device.clone(),
            budget: self.budget.clone(),
            counters: self.counters.clone(),
        };
        let (next_block, inodes) = record.map_or((0, 0), |r| (r.next_block, r.inodes));
        let state = record.map_or(RootState::Vacant, |r| r.state);
        let imap = tree(TreeId::Imap)?;
        let table = Arc::new(InodeTable::new(config, imap, next_block, inodes));
        self.budget.enter(&table);
        Ok(Root {
            id,
            table,
            dirents: tree(TreeId::Dirents)?,
            attrs: tree(TreeId::Attrs)?,
            extents: tree(TreeId::Extents)?,
            rename: Mutex::default(),
            name: Mutex::new(record.map(|r| r.name.clone()).unwrap_or_default()),
            state: AtomicU8::new(state as u8),
            // As a checkpoint left it, or never used.
            swept: AtomicBool::new(state == RootState::Vacant),
        })
    }
}

type Chunk = Box<[OnceLock<Root>]>;

/// The directory of roots.
pub struct Roots {
    chunks: Box<[OnceLock<Chunk>]>,
    /// Numbers below this have a root.
    count: AtomicU32,
    parts: RootParts,
    /// Held while a root is entered.
    entering: Mutex<()>,
}

impl Roots {
    pub(crate) fn new(parts: RootParts) -> Roots {
        let chunks = (0..=u16::MAX as usize / CHUNK).map(|_| OnceLock::new()).collect();
        Roots { chunks, count: AtomicU32::new(0), parts, entering: Mutex::default() }
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
    /// Enters the next root as a checkpoint recorded it, or a vacant one.
    pub(crate) fn push(&self, record: Option<&RootRecord>) -> Result<&Root> {
        let _one = self.entering.lock();
        let count = self.count.load(Ordering::Acquire);
        let id = u16::try_from(count).map_err(|_| Error::Code(Code::NoSpace))?;
        let root = self.parts.root(RootId(id), record)?;
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
        let root = parts.root_of(id, Some(record), &mut |tree| {
            let node = NodeId { volume: parts.volume, root: id, tree };
            let (device, cache) = (parts.device.clone(), parts.cache.clone());
            let ptr = record.trees[tree as usize];
            let (built, survey) = Tree::salvage(node, device, parts.geometry, cache, ptr, epoch)?;
            each(tree, survey);
            Ok(built)
        })?;
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
        match self.roots.iter().find(|root| root.is_free() && !spared(root.id)) {
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
