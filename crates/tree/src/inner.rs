//! Inner cells: the identity of an inner node in memory, and the arrays of children it publishes.
//!
//! An array keeps the cells of its children in memory, about 200 bytes for each, so arrays are
//! dropped too. That ends the identity of the children: the next reader makes new cells for the
//! same nodes. Two cells of one node must never both be used, so an array goes only when nothing in
//! its children is in memory, all of them are locked at that moment, and they are marked dead
//! before they are unlocked. A thread that still holds one of them finds the mark and descends
//! again.
//!
//! Nothing is dropped while the tree's shape changes: who holds the shape lock can rely on every
//! cell it has reached from the root.

use crate::cache::{Charge, Dropped, NodeCache};
use crate::cell::LeafCell;
use crate::sync::{ArcSwapOption, Mutex};
use crate::tree::Tree;
use shoal_base::Epoch;
use shoal_format::Ptr;
use shoal_format::node::Key;
use std::mem::size_of;
use std::sync::Arc;

/// The two counters in front of what an `Arc` holds.
const COUNTS: usize = 2 * size_of::<usize>();

/// The children of an inner cell.
#[derive(Clone)]
pub(crate) enum Children {
    Leaves(Vec<Arc<LeafCell>>),
    Inners(Vec<Arc<InnerCell>>),
}

impl Children {
    pub fn split_off(&mut self, at: usize) -> Children {
        match self {
            Children::Leaves(v) => Children::Leaves(v.split_off(at)),
            Children::Inners(v) => Children::Inners(v.split_off(at)),
        }
    }
    /// Bytes that the array and the cells in it take.
    fn bytes(&self) -> usize {
        match self {
            Children::Leaves(v) => {
                v.capacity() * size_of::<usize>() + v.len() * (size_of::<LeafCell>() + COUNTS)
            }
            Children::Inners(v) => {
                v.capacity() * size_of::<usize>() + v.len() * (size_of::<InnerCell>() + COUNTS)
            }
        }
    }
}

/// One version of an inner node: never changed once published.
#[derive(Clone)]
pub(crate) struct InnerData {
    /// 1: the children are leaves.
    pub level: u8,
    /// Lowest key of each child; the first is also the lowest of this node.
    pub keys: Vec<Key>,
    pub children: Children,
    charge: Charge,
}

impl InnerData {
    pub fn new(level: u8, keys: Vec<Key>, children: Children) -> InnerData {
        InnerData { level, keys, children, charge: Charge::none() }
    }
    /// Which child answers for `key`.
    #[inline]
    pub fn child_for(&self, key: Key) -> usize {
        self.keys.partition_point(|k| *k <= key).saturating_sub(1)
    }
    /// The children that answer for the keys, which are in order, each with its own.
    pub fn routes<'k>(&self, keys: &'k [Key]) -> impl Iterator<Item = (usize, &'k [Key])> {
        let mut rest = keys;
        std::iter::from_fn(move || {
            let i = self.child_for(*rest.first()?);
            let end = self.keys.get(i + 1);
            let count = end.map_or(rest.len(), |end| rest.partition_point(|key| key < end));
            let (own, others) = rest.split_at(count.max(1));
            rest = others;
            Some((i, own))
        })
    }
    /// Counted in the budget from now on, as long as anybody holds it.
    pub fn charged(mut self, cache: &Arc<NodeCache>) -> Arc<InnerData> {
        let keys = self.keys.capacity() * size_of::<Key>();
        let own = size_of::<InnerData>() + COUNTS;
        self.charge = Charge::new(cache, own + keys + self.children.bytes());
        Arc::new(self)
    }
}

/// An inner node.
pub(crate) struct InnerCell {
    /// The current version; `None`: only on the device.
    pub now: ArcSwapOption<InnerData>,
    pub meta: Mutex<InnerMeta>,
    /// 0 for the root: whichever its node says, or 1 of an empty tree.
    pub level: u8,
    /// The tree's shape lock.
    shape: Arc<Mutex<()>>,
}

pub(crate) struct InnerMeta {
    pub disk: Ptr,
    /// One past the largest key, known to the parent when it made this cell.
    pub high: Key,
    /// Epoch of the last change of shape.
    pub epoch: Epoch,
    /// Epoch whose checkpoint wrote it last.
    pub wrote: Epoch,
    /// The current version differs in shape from `disk`.
    pub dirty: bool,
    /// The version before `epoch`, and whether it was dirty.
    pub old: Option<(Arc<InnerData>, bool)>,
    /// Merged away, or dropped from memory with its parent's array.
    pub dead: bool,
    /// Read or found in use since the clock came by.
    pub recent: bool,
    /// The child that kept this from being dropped the last time: the first to look at.
    busy: usize,
}

impl InnerCell {
    pub fn on_disk(disk: Ptr, level: u8, high: Key, shape: &Arc<Mutex<()>>) -> Arc<InnerCell> {
        let meta = InnerMeta {
            disk,
            high,
            epoch: 0,
            wrote: 0,
            dirty: false,
            old: None,
            dead: false,
            recent: true,
            busy: 0,
        };
        let (now, meta) = (ArcSwapOption::empty(), Mutex::new(meta));
        let cell = Arc::new(InnerCell { now, meta, level, shape: shape.clone() });
        #[cfg(test)]
        crate::tests::inner_born(&cell);
        cell
    }
    /// A cell born in memory, dirty.
    pub fn fresh(data: InnerData, high: Key, epoch: Epoch, tree: &Tree) -> Arc<InnerCell> {
        tree.touched(data.keys[0], epoch);
        let cell = InnerCell::on_disk(Ptr::NULL, data.level, high, &tree.shape);
        {
            let mut meta = cell.meta.lock();
            meta.epoch = epoch;
            meta.dirty = true;
            cell.now.store(Some(data.charged(&tree.cache)));
        }
        cell
    }
    /// Makes `data` the current version. Only under the tree's shape lock.
    pub fn publish(&self, data: InnerData, epoch: Epoch, tree: &Tree) {
        let mut meta = self.meta.lock();
        if !(meta.dirty && meta.epoch == epoch) {
            tree.touched(data.keys[0], epoch);
        }
        let before = self.now.swap(Some(data.charged(&tree.cache)));
        if meta.epoch < epoch {
            let was_dirty = meta.dirty;
            meta.old = before.map(|b| (b, was_dirty));
            meta.epoch = epoch;
        }
        meta.dirty = true;
    }
    /// For the clock: gives up the array, and with it the cells of the children, if that loses
    /// nothing.
    pub fn try_drop(&self, cache: &NodeCache) -> Dropped {
        let Some(_shape) = self.shape.try_lock() else { return Dropped::InUse };
        let Some(mut meta) = self.meta.try_lock() else { return Dropped::InUse };
        let Some(data) = self.now.load_full() else { return Dropped::Gone };
        // Of what was merged away, the children live on elsewhere.
        if meta.dead {
            return Dropped::Gone;
        }
        if !meta.is_written(cache) || std::mem::take(&mut meta.recent) {
            return Dropped::InUse;
        }
        match self.abandon(&data, meta.busy, cache) {
            Ok(()) => Dropped::Cells,
            Err(busy) => {
                meta.busy = busy;
                meta.recent = true;
                Dropped::InUse
            }
        }
    }
    /// Takes `data` out if none of its children is in use; else says which one is.
    fn abandon(&self, data: &InnerData, busy: usize, cache: &NodeCache) -> Result<(), usize> {
        match &data.children {
            Children::Leaves(leaves) => {
                let mut idle = all(leaves, busy, |leaf| leaf.try_idle(cache))?;
                self.now.store(None);
                idle.iter_mut().for_each(|state| state.dead = true);
            }
            Children::Inners(inners) => {
                let mut idle = all(inners, busy, |inner| {
                    let meta = inner.meta.try_lock()?;
                    (inner.now.load().is_none() && meta.is_written(cache)).then_some(meta)
                })?;
                self.now.store(None);
                idle.iter_mut().for_each(|meta| meta.dead = true);
            }
        }
        Ok(())
    }
}

impl InnerMeta {
    /// Whether what is on the device is this node, for readers and for the checkpoint under way.
    fn is_written(&self, cache: &NodeCache) -> bool {
        !self.dirty && self.old.is_none() && !self.disk.is_null() && cache.may_drop(self.wrote)
    }
}

/// What `take` gives for each of `cells`, or the place of one for which it gives nothing; looks at
/// `first` first.
fn all<'c, C, G>(
    cells: &'c [Arc<C>],
    first: usize,
    take: impl Fn(&'c C) -> Option<G>,
) -> Result<Vec<G>, usize> {
    if cells.get(first).is_some_and(|cell| take(cell).is_none()) {
        return Err(first);
    }
    let mut taken = Vec::with_capacity(cells.len());
    for (i, cell) in cells.iter().enumerate() {
        taken.push(take(cell).ok_or(i)?);
    }
    Ok(taken)
}
