//! Cells: the identity of a node in memory, whichever version of it is on the device.

use crate::cache::{Dropped, NodeCache};
use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, RwLock};
use shoal_base::Epoch;
use shoal_format::Ptr;
use shoal_format::node::{Key, Node};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A leaf. Beyond its node it takes about 160 bytes.
pub(crate) struct LeafCell {
    pub state: RwLock<LeafState>,
    /// Set by every use, cleared by the clock.
    pub used: AtomicBool,
}

/// What a leaf's lock guards.
pub(crate) struct LeafState {
    /// The node, when in memory.
    pub node: Option<Node>,
    /// The version that the checkpoint under way has still to write, when `node` has moved on.
    pub old: Option<Node>,
    /// Where the last written version is; null when never written.
    pub disk: Ptr,
    /// Lowest key this leaf answers for.
    pub low: Key,
    /// One past the largest.
    pub high: Key,
    /// Epoch of the last change.
    pub epoch: Epoch,
    /// Epoch whose checkpoint wrote it last.
    pub wrote: Epoch,
    /// `node` differs from `disk`.
    pub dirty: bool,
    /// Merged away.
    pub dead: bool,
}

impl LeafCell {
    /// A leaf that is on the device.
    pub fn on_disk(disk: Ptr, low: Key, high: Key) -> Arc<LeafCell> {
        let state = LeafState {
            node: None,
            old: None,
            disk,
            low,
            high,
            epoch: 0,
            wrote: 0,
            dirty: false,
            dead: false,
        };
        Arc::new(LeafCell { state: RwLock::new(state), used: AtomicBool::new(true) })
    }
    /// A leaf born in memory, dirty.
    pub fn fresh(
        node: Node,
        low: Key,
        high: Key,
        epoch: Epoch,
        cache: &NodeCache,
    ) -> Arc<LeafCell> {
        cache.dirtied();
        let leaf = LeafCell::on_disk(Ptr::NULL, low, high);
        {
            let mut state = leaf.state.write();
            state.node = Some(node);
            state.epoch = epoch;
            state.dirty = true;
        }
        leaf
    }
    #[inline]
    pub fn mark_used(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
    /// For the clock: gives up the node if that loses nothing.
    pub fn try_drop(&self, cache: &NodeCache) -> Dropped {
        let Some(mut state) = self.state.try_write() else { return Dropped::InUse };
        if state.node.is_none() {
            return Dropped::Gone;
        }
        let busy = state.dirty || state.old.is_some() || state.disk.is_null();
        if busy || !cache.may_drop(state.wrote) || self.used.swap(false, Ordering::Relaxed) {
            return Dropped::InUse;
        }
        state.node.take().map_or(Dropped::Gone, Dropped::Node)
    }
}

impl LeafState {
    /// Whether this leaf answers for `key`.
    #[inline]
    pub fn covers(&self, key: Key) -> bool {
        !self.dead && self.low <= key && key < self.high
    }
    /// To be called before every change: keeps aside what a checkpoint has still to write.
    #[inline]
    pub fn touch(&mut self, epoch: Epoch, cache: &NodeCache) {
        debug_assert!(self.epoch <= epoch, "change of epoch {epoch} after {}", self.epoch);
        if self.dirty && self.epoch == epoch {
            return;
        }
        if self.dirty {
            assert!(self.old.is_none(), "two checkpoints are behind");
            self.old = self.node.as_ref().map(|node| node.copy_into(cache.frame()));
        }
        cache.dirtied();
        self.dirty = true;
        self.epoch = epoch;
    }
}

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
}

/// One version of an inner node: never changed once published.
#[derive(Clone)]
pub(crate) struct InnerData {
    /// 1: the children are leaves.
    pub level: u8,
    /// Lowest key of each child; the first is also the lowest of this node.
    pub keys: Vec<Key>,
    pub children: Children,
}

impl InnerData {
    /// Which child answers for `key`.
    #[inline]
    pub fn child_for(&self, key: Key) -> usize {
        self.keys.partition_point(|k| *k <= key).saturating_sub(1)
    }
}

/// An inner node.
pub(crate) struct InnerCell {
    /// The current version; `None`: only on the device.
    pub now: ArcSwapOption<InnerData>,
    pub meta: Mutex<InnerMeta>,
    /// Range of keys, fixed when the cell was made from the device: low and high of what it
    /// covered.
    pub level: u8,
}

pub(crate) struct InnerMeta {
    pub disk: Ptr,
    /// One past the largest key, known to the parent when it made this cell.
    pub high: Key,
    /// Epoch of the last change of shape.
    pub epoch: Epoch,
    /// The current version differs in shape from `disk`.
    pub dirty: bool,
    /// The version before `epoch`, and whether it was dirty.
    pub old: Option<(Arc<InnerData>, bool)>,
}

impl InnerCell {
    pub fn on_disk(disk: Ptr, level: u8, high: Key) -> Arc<InnerCell> {
        let meta = InnerMeta { disk, high, epoch: 0, dirty: false, old: None };
        Arc::new(InnerCell { now: ArcSwapOption::empty(), meta: Mutex::new(meta), level })
    }
    pub fn fresh(data: InnerData, high: Key, epoch: Epoch) -> Arc<InnerCell> {
        let meta = InnerMeta { disk: Ptr::NULL, high, epoch, dirty: true, old: None };
        let level = data.level;
        let now = ArcSwapOption::from_pointee(data);
        Arc::new(InnerCell { now, meta: Mutex::new(meta), level })
    }
    /// Makes `data` the current version. Only under the tree's shape lock.
    pub fn publish(&self, data: InnerData, epoch: Epoch) {
        let mut meta = self.meta.lock();
        let before = self.now.swap(Some(Arc::new(data)));
        if meta.epoch < epoch {
            let was_dirty = meta.dirty;
            meta.old = before.map(|b| (b, was_dirty));
            meta.epoch = epoch;
        }
        meta.dirty = true;
    }
}
