//! Leaf cells: the identity of a leaf in memory, whichever version of it is on the device.

use crate::cache::{Dropped, Evict, NodeCache};
use crate::sync::{AtomicBool, Ordering, RwLock, RwLockWriteGuard};
use shoal_base::Epoch;
use shoal_base::limits::NODE_SIZE;
use shoal_format::Ptr;
use shoal_format::node::{HEADER, Key, Node};
use std::sync::Arc;

/// A leaf. Takes about 160 bytes in addition to its node.
pub(crate) struct LeafCell {
    pub state: RwLock<LeafState>,
    /// Set by every use, cleared by the clock.
    pub used: AtomicBool,
}

/// The state under a leaf's lock.
pub(crate) struct LeafState {
    /// The node, if in memory.
    pub node: Option<Node>,
    /// The version that the current checkpoint must still write, if `node` has changed since.
    pub old: Option<Node>,
    /// Pointer to the last written version; null if never written. A clean leaf with a null pointer
    /// is the only leaf of an empty tree.
    pub disk: Ptr,
    /// Lowest key that this leaf covers.
    pub low: Key,
    /// One past the largest key that it covers.
    pub high: Key,
    /// Bytes accounted as to be written: for `node` while it is dirty, and for `old`.
    pub counted: [u32; 2],
    /// Epoch of the last change.
    pub epoch: Epoch,
    /// Epoch of the checkpoint that wrote it last.
    pub wrote: Epoch,
    /// `node` differs from `disk`.
    pub dirty: bool,
    /// Merged away, or evicted with its parent's array. A thread that still holds this cell must
    /// search for its replacement.
    pub dead: bool,
}

impl LeafCell {
    /// Makes a cell for a leaf that is on the device.
    pub(crate) fn on_disk(disk: Ptr, low: Key, high: Key) -> Arc<LeafCell> {
        let state = LeafState {
            node: None,
            old: None,
            disk,
            low,
            high,
            counted: [0; 2],
            epoch: 0,
            wrote: 0,
            dirty: false,
            dead: false,
        };
        let cell = LeafCell { state: RwLock::new(state), used: AtomicBool::new(true) };
        let cell = Arc::new(cell);
        #[cfg(test)]
        crate::tests::leaf_born(&cell);
        cell
    }
    #[inline]
    pub(crate) fn mark_used(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
    /// Locks the leaf, if nothing would be lost with this cell and nobody uses it.
    pub(crate) fn try_idle(&self, cache: &NodeCache) -> Option<RwLockWriteGuard<'_, LeafState>> {
        let idle = |s: &LeafState| {
            let clean = s.node.is_none() && !s.dirty && s.old.is_none();
            clean && !s.dead && !s.disk.is_null() && cache.may_drop(s.wrote)
        };
        self.state.try_write().filter(|state| idle(state))
    }
}

impl Evict for LeafCell {
    fn try_drop(&self, cache: &NodeCache) -> Dropped {
        let Some(mut state) = self.state.try_write() else { return Dropped::InUse };
        if state.node.is_none() {
            return Dropped::Gone;
        }
        let busy = state.dirty || state.old.is_some();
        if busy || !cache.may_drop(state.wrote) || self.used.swap(false, Ordering::Relaxed) {
            return Dropped::InUse;
        }
        state.node.take().map_or(Dropped::Gone, Dropped::Node)
    }
}

impl LeafState {
    /// Returns whether this leaf covers `key`.
    #[inline]
    pub(crate) fn covers(&self, key: Key) -> bool {
        !self.dead && self.low <= key && key < self.high
    }
    /// Returns the version that the checkpoint of `epoch` must still write. If it exists at the end
    /// of the epoch, it stays until that checkpoint has written it: a later change keeps a copy of
    /// it.
    #[inline]
    pub(crate) fn unwritten(&mut self, epoch: Epoch) -> Option<&mut Node> {
        match self.epoch > epoch {
            true => self.old.as_mut(),
            false => self.node.as_mut().filter(|_| self.dirty),
        }
    }
    /// Returns whether such a version exists.
    #[inline]
    pub(crate) fn is_unwritten(&self, epoch: Epoch) -> bool {
        match self.epoch > epoch {
            true => self.old.is_some(),
            false => self.dirty && self.node.is_some(),
        }
    }
    /// Bytes for writing `node`, an upper estimate in whole KiB.
    pub(crate) fn stored_bytes(&self) -> u32 {
        let used = self.node.as_ref().map_or(0, |node| HEADER + node.used());
        used.next_multiple_of(1024).min(NODE_SIZE) as u32
    }
}
