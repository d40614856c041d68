//! Inner cells: the identity of an inner node in memory, and the arrays of children that it
//! publishes.
//!
//! An array keeps the cells of its children in memory, about 200 bytes each, so arrays are evicted
//! too. That ends the identity of the children: the next reader makes new cells for the same nodes.
//! Two cells of one node must never both be in use. Therefore an array is evicted only if nothing
//! in its children is in memory; all of them are locked at that moment, and marked dead before they
//! are unlocked. A thread that still holds one of them finds the mark and descends again.
//!
//! Nothing is evicted while the tree's shape changes: a holder of the shape lock can rely on every
//! cell it has reached from the root.

use crate::cache::{Charge, Dropped, Evict, NodeCache};
use crate::cell::LeafCell;
use crate::sync::{ArcSwapOption, Mutex};
use shoal_base::Epoch;
use shoal_format::Ptr;
use shoal_format::node::Key;
use std::mem::size_of;
use std::sync::Arc;

/// Bytes of the two counters of an `Arc`.
const COUNTS: usize = 2 * size_of::<usize>();

/// The children of an inner cell.
#[derive(Clone)]
pub(crate) enum Children {
    Leaves(Vec<Arc<LeafCell>>),
    Inners(Vec<Arc<InnerCell>>),
}

impl Children {
    pub(crate) fn split_off(&mut self, at: usize) -> Children {
        match self {
            Children::Leaves(v) => Children::Leaves(v.split_off(at)),
            Children::Inners(v) => Children::Inners(v.split_off(at)),
        }
    }
    /// Bytes of the array and of the cells in it.
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

/// One version of an inner node. Never changed once published.
#[derive(Clone)]
pub(crate) struct InnerData {
    /// 1 if the children are leaves.
    pub level: u8,
    /// Lowest key of each child. The first is also the lowest of this node.
    pub keys: Vec<Key>,
    pub children: Children,
    charge: Charge,
}

impl InnerData {
    pub(crate) fn new(level: u8, keys: Vec<Key>, children: Children) -> InnerData {
        InnerData { level, keys, children, charge: Charge::none() }
    }
    /// Index of the child that covers `key`.
    #[inline]
    pub(crate) fn child_for(&self, key: Key) -> usize {
        self.keys.partition_point(|k| *k <= key).saturating_sub(1)
    }
    /// Yields each child that covers some of the keys, which must be sorted, with its keys.
    pub(crate) fn routes<'k>(&self, keys: &'k [Key]) -> impl Iterator<Item = (usize, &'k [Key])> {
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
    /// Accounts for its memory from now on, until it is dropped.
    pub(crate) fn charged(mut self, cache: &Arc<NodeCache>) -> Arc<InnerData> {
        let keys = self.keys.capacity() * size_of::<Key>();
        let own = size_of::<InnerData>() + COUNTS;
        self.charge = Charge::new(cache, own + keys + self.children.bytes());
        Arc::new(self)
    }
}

/// An inner node.
pub(crate) struct InnerCell {
    /// The current version; `None` if it is only on the device.
    pub now: ArcSwapOption<InnerData>,
    pub meta: Mutex<InnerMeta>,
    /// Level; 0 for the root, whose level is that of its node, or 1 in an empty tree.
    pub level: u8,
    /// The tree's shape lock.
    shape: Arc<Mutex<()>>,
}

pub(crate) struct InnerMeta {
    pub disk: Ptr,
    /// One past the largest key, as known to the parent when it made this cell.
    pub high: Key,
    /// Epoch of the last change of shape.
    pub epoch: Epoch,
    /// Epoch of the checkpoint that wrote it last.
    pub wrote: Epoch,
    /// The current version differs in shape from `disk`.
    pub dirty: bool,
    /// The version before `epoch`, and whether it was dirty.
    pub old: Option<(Arc<InnerData>, bool)>,
    /// Merged away, or evicted with its parent's array.
    pub dead: bool,
    /// Read or found in use since the clock last passed.
    pub recent: bool,
    /// Index of the child that prevented the last eviction, to be examined first.
    busy: usize,
}

impl InnerCell {
    pub(crate) fn on_disk(
        disk: Ptr,
        level: u8,
        high: Key,
        shape: &Arc<Mutex<()>>,
    ) -> Arc<InnerCell> {
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
    /// Removes `data` if none of its children is in use. Otherwise returns the index of one that
    /// is.
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

impl Evict for InnerCell {
    /// Gives up the array, with the cells of the children.
    fn try_drop(&self, cache: &NodeCache) -> Dropped {
        let Some(_shape) = self.shape.try_lock() else { return Dropped::InUse };
        let Some(mut meta) = self.meta.try_lock() else { return Dropped::InUse };
        let Some(data) = self.now.load_full() else { return Dropped::Gone };
        // The children of a merged node live on elsewhere.
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
}

impl InnerMeta {
    /// Returns whether the node on the device is current, for readers and for the current
    /// checkpoint.
    fn is_written(&self, cache: &NodeCache) -> bool {
        !self.dirty && self.old.is_none() && !self.disk.is_null() && cache.may_drop(self.wrote)
    }
}

/// Calls `take` for each of `cells`, starting with index `first`. Returns all results, or the index
/// of a cell for which `take` returned `None`.
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
