//! One tree: lookups and changes of single entries.

use crate::cache::NodeCache;
use crate::cell::{LeafCell, LeafState};
use crate::inner::{Children, InnerCell, InnerData};
use crate::sync::{Loan, Mutex, RwLockWriteGuard, loan_of};
use shoal_base::cold::{self, Cold};
use shoal_base::counters::Counter;
use shoal_base::invariant;
use shoal_base::limits::NODE_SIZE;
use shoal_base::planted::{self, Defect};
use shoal_base::{Epoch, Error, Result};
use shoal_device::Device;
use shoal_format::node::{Key, Node, NodeId};
use shoal_format::{Geometry, Ptr};
use std::sync::Arc;

/// The change to make to an entry.
pub enum Action<'v> {
    /// Leave it unchanged.
    Keep,
    /// Set this value, of at most `limits::TREE_VALUE_MAX` bytes.
    Put(&'v [u8]),
    /// Remove it.
    Delete,
}

/// Bytes used below which a leaf is merged with a neighbour.
const MERGE_BELOW: usize = NODE_SIZE / 4;

/// A B+tree of one subvolume.
pub struct Tree {
    pub(crate) id: NodeId,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) geometry: Geometry,
    pub(crate) cache: Arc<NodeCache>,
    pub(crate) root: Arc<InnerCell>,
    /// Held while inner nodes are split, merged or evicted: one thread at a time.
    pub(crate) shape: Arc<Mutex<()>>,
    /// Cells that were merged away, until the checkpoint of their epoch retires their addresses.
    pub(crate) dead: Mutex<Vec<(Epoch, Dead)>>,
    /// Lowest keys of the cells changed in each epoch, for its checkpoint: see `persist.rs`.
    pub(crate) touched: Mutex<Vec<(Epoch, Key)>>,
}

pub(crate) enum Dead {
    Leaf(Arc<LeafCell>),
    Inner(Arc<InnerCell>),
}

impl Tree {
    /// Makes an empty tree. It has no node on the device, nor in memory, until something is
    /// inserted.
    pub fn create(
        id: NodeId,
        device: Arc<dyn Device>,
        geometry: Geometry,
        cache: Arc<NodeCache>,
    ) -> Tree {
        Tree::open(id, device, geometry, cache, Ptr::NULL)
    }

    /// Opens the tree whose root node is at `root`. The node is read at the first use, because a
    /// volume may have many unused trees. A null pointer means an empty tree.
    pub fn open(
        id: NodeId,
        device: Arc<dyn Device>,
        geometry: Geometry,
        cache: Arc<NodeCache>,
        root: Ptr,
    ) -> Tree {
        let shape = Arc::default();
        let cell = InnerCell::on_disk(root, 0, Key::MAX, &shape);
        Tree::on(id, device, geometry, cache, cell, shape)
    }

    pub(crate) fn on(
        id: NodeId,
        device: Arc<dyn Device>,
        geometry: Geometry,
        cache: Arc<NodeCache>,
        root: Arc<InnerCell>,
        shape: Arc<Mutex<()>>,
    ) -> Tree {
        Tree {
            id,
            device,
            geometry,
            cache,
            root,
            shape,
            dead: Mutex::default(),
            touched: Mutex::default(),
        }
    }

    /// The identity of this tree.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// Reads and verifies the node at `ptr`; also its `level`, if known.
    pub(crate) fn read_node(&self, ptr: Ptr, level: Option<u8>) -> Result<Node> {
        let object = format_args!("{} node", self.id.tree.name());
        let len = ptr.len as usize;
        let possible = len <= NODE_SIZE && self.geometry.contains(ptr.addr, u64::from(ptr.len));
        if !possible || !ptr.is_valid() {
            let rule = format!("pointer to {len} bytes, {} when decoded", ptr.logical.get());
            return Err(Error::corrupt(object.to_string(), Some(ptr.addr.0), rule));
        }
        let mut stored = self.cache.frame();
        self.device.read_at(&mut stored[..len], ptr.addr.0)?;
        self.cache.counters.add(Counter::NodeReads, 1);
        if !planted::is(Defect::NodeChecksum) {
            ptr.verify(&stored[..len], object)?;
        }
        let place = (self.id, level, ptr.addr);
        let node = Node::decode(&stored[..len], ptr.coding(), self.cache.frame(), place)?;
        self.cache.recycle_frame(stored);
        ptr.verify_birth(node.epoch(), object)?;
        Ok(node)
    }

    /// Reads the node of an inner cell, whose range ends at `high`.
    pub(crate) fn read_inner(&self, cell: &InnerCell, disk: Ptr, high: Key) -> Result<InnerData> {
        if disk.is_null() {
            let leaf = LeafCell::on_disk(Ptr::NULL, Key::MIN, Key::MAX);
            return Ok(InnerData::new(1, vec![Key::MIN], Children::Leaves(vec![leaf])));
        }
        let node = self.read_node(disk, (cell.level > 0).then_some(cell.level))?;
        if node.level() == 0 {
            let object = format!("{} root", self.id.tree.name());
            return Err(Error::corrupt(object, Some(disk.addr.0), "is a leaf"));
        }
        let data = self.inner_from(&node, high)?;
        self.cache.recycle(node);
        Ok(data)
    }

    /// Marks the subvolume: this tree, or the inode blocks that it leads to, will change.
    #[inline]
    pub fn mark_root(&self, epoch: Epoch) {
        self.cache.touched_roots().mark(self.id.root, epoch);
    }
    /// As [`Tree::mark_root`], for a change that the next checkpoint makes.
    pub fn mark_root_for_next(&self) {
        self.cache.touched_roots().mark_any(self.id.root);
    }

    /// Converts an inner node to its in-memory form.
    pub(crate) fn inner_from(&self, node: &Node, high: Key) -> Result<InnerData> {
        let count = node.count();
        let bad =
            |rule: &str| Error::corrupt(format!("{} inner node", self.id.tree.name()), None, rule);
        if count == 0 || node.key(0) != node.low() {
            return Err(bad("no child for its lowest key"));
        }
        let keys: Vec<Key> = (0..count).map(|i| node.key(i)).collect();
        if keys.last().is_some_and(|last| *last >= high) {
            return Err(bad("key beyond its range"));
        }
        let high_of = |i: usize| keys.get(i + 1).copied().unwrap_or(high);
        let ptr_of = |i: usize| {
            let ptr = Ptr::of_value(node.value(i)).filter(|ptr| !ptr.is_null());
            match ptr.ok_or_else(|| bad("value is not a pointer"))? {
                ptr if ptr.birth > node.epoch() => Err(bad("a child is younger than the node")),
                ptr => Ok(ptr),
            }
        };
        let level = node.level();
        let children = if level == 1 {
            let leaf = |i| Ok(LeafCell::on_disk(ptr_of(i)?, keys[i], high_of(i)));
            Children::Leaves((0..count).map(leaf).collect::<Result<_>>()?)
        } else {
            let inner = |i| Ok(InnerCell::on_disk(ptr_of(i)?, level - 1, high_of(i), &self.shape));
            Children::Inners((0..count).map(inner).collect::<Result<_>>()?)
        };
        Ok(InnerData::new(level, keys, children))
    }

    /// The node that covers `key`, as the name of an object that a transaction must not read.
    fn cold(&self, key: Key) -> Cold {
        let NodeId { root, tree, .. } = self.id;
        Cold::Node { root, tree: tree as u8, hi: key.hi, lo: key.lo }
    }

    /// Loads an inner cell. Returns `None` if the cell was evicted with its parent's array and is,
    /// or will be, replaced by another one.
    #[cold]
    pub(crate) fn load_inner(&self, cell: &Arc<InnerCell>) -> Result<Option<Arc<InnerData>>> {
        let data = {
            let mut meta = cold::lock(|| cell.meta.try_lock(), || cell.meta.lock())?;
            let now = cell.now.load_full();
            if now.is_some() || meta.dead {
                return Ok(now);
            }
            if !meta.disk.is_null() {
                cold::check(|| self.cold(meta.high.before()))?;
            }
            let data = self.read_inner(cell, meta.disk, meta.high)?.charged(&self.cache);
            cell.now.store(Some(data.clone()));
            meta.recent = true;
            data
        };
        self.cache.watch(cell);
        self.cache.shrink();
        Ok(Some(data))
    }

    /// Borrows the current version of an inner cell. `None` as for `load_inner`.
    #[inline]
    pub(crate) fn inner(&self, cell: &Arc<InnerCell>) -> Result<Loan<InnerData>> {
        let now = cell.now.load();
        if now.is_some() {
            return Ok(now);
        }
        Ok(loan_of(self.load_inner(cell)?))
    }

    /// The current version of an inner cell that was reached from the root under the shape lock,
    /// which must still be held.
    pub(crate) fn inner_data(&self, cell: &Arc<InnerCell>) -> Result<Arc<InnerData>> {
        match cell.now.load_full() {
            Some(data) => Ok(data),
            None => {
                let data = self.load_inner(cell)?;
                Ok(data.unwrap_or_else(|| unreachable!("dropped under the shape lock")))
            }
        }
    }

    /// Calls `f` with the leaf that covers `key`, as far as is known without its lock.
    ///
    /// The descent counts no references: a count would make every thread write to a cache line of
    /// each node. Each array of children is borrowed (`ArcSwapOption::load` notes the loan in the
    /// thread's own cache line) until the next one is, and the last one while `f` runs. It keeps
    /// its leaves in memory, whatever happens to the tree meanwhile.
    #[inline]
    pub(crate) fn with_leaf<R>(
        &self,
        key: Key,
        f: impl FnOnce(&Arc<LeafCell>) -> Result<R>,
    ) -> Result<R> {
        let mut above = self.inner(&self.root)?;
        loop {
            let next = match above.as_deref() {
                Some(data) => {
                    let i = data.child_for(key);
                    match &data.children {
                        Children::Leaves(v) => return f(&v[i]),
                        Children::Inners(v) => self.inner(&v[i])?,
                    }
                }
                None => self.inner(&self.root)?,
            };
            above = next;
        }
    }

    /// Loads a leaf's node. The caller must hold its lock for writing.
    #[cold]
    pub(crate) fn load_leaf(&self, leaf: &Arc<LeafCell>, state: &mut LeafState) -> Result<()> {
        if state.node.is_none() {
            let node = match state.disk.is_null() {
                // Never written: the only leaf of an empty tree.
                true => Node::init(self.cache.frame(), self.id, 0, state.low),
                false => {
                    cold::check(|| self.cold(state.low))?;
                    self.read_node(state.disk, Some(0))?
                }
            };
            if node.count() > 0 && node.key(node.count() - 1) >= state.high {
                let rule = "key beyond the leaf's range";
                return Err(Error::corrupt("tree leaf", Some(state.disk.addr.0), rule));
            }
            state.node = Some(node);
            leaf.mark_used();
            self.cache.loaded(leaf);
        }
        Ok(())
    }

    /// Calls `f` with the leaf for `key`, locked and in memory.
    #[inline]
    pub(crate) fn read_leaf<R>(
        &self,
        key: Key,
        f: impl FnOnce(&LeafState, &Node) -> R,
    ) -> Result<R> {
        let mut f = Some(f);
        loop {
            let found = self.with_leaf(key, |leaf| {
                let state = cold::lock(|| leaf.state.try_read(), || leaf.state.read())?;
                if !state.covers(key) {
                    return Ok(None);
                }
                if let Some(node) = &state.node {
                    leaf.mark_used();
                    return Ok(f.take().map(|f| f(&state, node)));
                }
                drop(state);
                let mut state = cold::lock(|| leaf.state.try_write(), || leaf.state.write())?;
                if !state.covers(key) {
                    return Ok(None);
                }
                self.load_leaf(leaf, &mut state)?;
                // At once, before another thread evicts it: a cache may be small.
                Ok(state.node.as_ref().and_then(|node| Some(f.take()?(&state, node))))
            })?;
            if let Some(result) = found {
                return Ok(result);
            }
        }
    }

    /// Calls `f` with the leaf for `key`, locked for writing and in memory.
    #[inline]
    pub(crate) fn write_leaf<R>(
        &self,
        key: Key,
        f: impl FnOnce(&mut RwLockWriteGuard<'_, LeafState>) -> R,
    ) -> Result<R> {
        let mut f = Some(f);
        loop {
            let done = self.with_leaf(key, |leaf| {
                let mut state = cold::lock(|| leaf.state.try_write(), || leaf.state.write())?;
                if !state.covers(key) {
                    return Ok(None);
                }
                self.load_leaf(leaf, &mut state)?;
                leaf.mark_used();
                Ok(f.take().map(|f| f(&mut state)))
            })?;
            if let Some(result) = done {
                return Ok(result);
            }
        }
    }

    /// Looks `key` up and calls `f` with its value.
    pub fn get<R>(&self, key: Key, f: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
        self.read_leaf(key, |_, node| node.search(key).ok().map(|i| f(node.value(i))))
    }

    /// Changes the entry of `key` as `decide` tells from its current value. `decide` may be called
    /// again if the leaf must be split first. Returns whether anything changed.
    pub fn update<'v>(
        &self,
        key: Key,
        epoch: Epoch,
        decide: &mut dyn FnMut(Option<&[u8]>) -> Action<'v>,
    ) -> Result<bool> {
        self.mark_root(epoch);
        loop {
            match self.write_leaf(key, |state| self.update_leaf(state, key, epoch, decide))? {
                Outcome::Unchanged => return Ok(false),
                Outcome::Changed => return Ok(true),
                Outcome::Sparse => {
                    self.merge(key, epoch);
                    return Ok(true);
                }
                Outcome::Full(len) => self.split(key, epoch, len)?,
            }
        }
    }

    fn update_leaf<'v>(
        &self,
        state: &mut LeafState,
        key: Key,
        epoch: Epoch,
        decide: &mut dyn FnMut(Option<&[u8]>) -> Action<'v>,
    ) -> Outcome {
        let Some(node) = &state.node else { return Outcome::Unchanged };
        let found = node.search(key);
        match decide(found.ok().map(|i| node.value(i))) {
            Action::Keep => Outcome::Unchanged,
            Action::Put(value) => {
                let fits = match found {
                    Err(_) => node.fits(value.len()),
                    Ok(i) => node.room() + node.value(i).len() >= value.len(),
                };
                if !fits {
                    return Outcome::Full(value.len());
                }
                state.touch(epoch, self);
                if let Some(node) = &mut state.node {
                    let done = match found {
                        Ok(i) => node.replace(i, value),
                        Err(i) => node.insert(i, key, value),
                    };
                    invariant!(done, "entry that fits was not taken");
                }
                state.grown(self);
                Outcome::Changed
            }
            Action::Delete => {
                let Ok(i) = found else { return Outcome::Unchanged };
                state.touch(epoch, self);
                let Some(node) = &mut state.node else { return Outcome::Unchanged };
                node.remove(i);
                // Only now and then: a merge whose neighbours are full is wasted.
                let sparse = node.used() < MERGE_BELOW && node.count().is_multiple_of(16);
                if sparse { Outcome::Sparse } else { Outcome::Changed }
            }
        }
    }

    /// Sets the value of `key`, replacing any other.
    pub fn put(&self, key: Key, value: &[u8], epoch: Epoch) -> Result<()> {
        self.update(key, epoch, &mut |_| Action::Put(value)).map(|_| ())
    }
    /// Removes `key`. Returns whether it existed.
    pub fn delete(&self, key: Key, epoch: Epoch) -> Result<bool> {
        self.update(key, epoch, &mut |_| Action::Delete)
    }
}

impl Drop for Tree {
    /// Returns the tree's memory to the cache, which outlives it.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.forget(&self.root);
        for (_, cell) in self.dead.lock().iter() {
            if let Dead::Leaf(leaf) = cell {
                self.forget_leaf(leaf);
            }
        }
    }
}

impl Tree {
    fn forget(&self, cell: &InnerCell) {
        let data = cell.now.load_full();
        match data.as_deref().map(|data| &data.children) {
            Some(Children::Leaves(v)) => v.iter().for_each(|leaf| self.forget_leaf(leaf)),
            Some(Children::Inners(v)) => v.iter().for_each(|inner| self.forget(inner)),
            None => {}
        }
    }

    fn forget_leaf(&self, leaf: &LeafCell) {
        let mut state = leaf.state.write();
        if state.dirty {
            self.cache.cleaned(state.epoch, state.counted[0]);
        }
        if state.old.is_some() {
            self.cache.cleaned(state.epoch.wrapping_sub(1), state.counted[1]);
        }
        if let Some(node) = state.node.take() {
            self.cache.unloaded();
            self.cache.recycle(node);
        }
    }
}

/// The result of a change in a leaf.
enum Outcome {
    Unchanged,
    Changed,
    /// Done, and the leaf is nearly empty.
    Sparse,
    /// Not done: a value of this length does not fit.
    Full(usize),
}
