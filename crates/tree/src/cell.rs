//! Leaf cells: the identity of a leaf in memory, whichever version of it is on the device.

use crate::cache::{Dropped, NodeCache};
use crate::sync::{AtomicBool, Ordering, RwLock, RwLockWriteGuard};
use crate::tree::Tree;
use shoal_base::Epoch;
use shoal_base::limits::NODE_SIZE;
use shoal_format::Ptr;
use shoal_format::node::{HEADER, Key, Node};
use std::sync::Arc;

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
    /// Where the last written version is; null when never written. A clean leaf without one is the
    /// only leaf of an empty tree.
    pub disk: Ptr,
    /// Lowest key this leaf answers for.
    pub low: Key,
    /// One past the largest.
    pub high: Key,
    /// Bytes for which `node` counts among those to be written, while it is dirty; and `old`.
    pub counted: [u32; 2],
    /// Epoch of the last change.
    pub epoch: Epoch,
    /// Epoch whose checkpoint wrote it last.
    pub wrote: Epoch,
    /// `node` differs from `disk`.
    pub dirty: bool,
    /// Merged away, or dropped from memory with its parent's array: whoever still holds this cell
    /// has to look for the one that took its place.
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
    /// A leaf born in memory, dirty.
    pub fn fresh(node: Node, low: Key, high: Key, epoch: Epoch, tree: &Tree) -> Arc<LeafCell> {
        tree.touched(low, epoch);
        let leaf = LeafCell::on_disk(Ptr::NULL, low, high);
        {
            let mut state = leaf.state.write();
            state.node = Some(node);
            state.epoch = epoch;
            state.dirty = true;
            state.counted[0] = state.stored_bytes();
            tree.cache.dirtied(epoch, state.counted[0]);
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
        let busy = state.dirty || state.old.is_some();
        if busy || !cache.may_drop(state.wrote) || self.used.swap(false, Ordering::Relaxed) {
            return Dropped::InUse;
        }
        state.node.take().map_or(Dropped::Gone, Dropped::Node)
    }
    /// Locked, if nothing would be lost with this cell and nobody uses it.
    pub fn try_idle(&self, cache: &NodeCache) -> Option<RwLockWriteGuard<'_, LeafState>> {
        let idle = |s: &LeafState| {
            let clean = s.node.is_none() && !s.dirty && s.old.is_none();
            clean && !s.dead && !s.disk.is_null() && cache.may_drop(s.wrote)
        };
        self.state.try_write().filter(|state| idle(state))
    }
}

impl LeafState {
    /// Whether this leaf answers for `key`.
    #[inline]
    pub fn covers(&self, key: Key) -> bool {
        !self.dead && self.low <= key && key < self.high
    }
    /// The version that the checkpoint of `epoch` has still to write. Once there is one at the end
    /// of the epoch, it stays until that checkpoint has written it: a later change keeps it aside.
    #[inline]
    pub fn unwritten(&mut self, epoch: Epoch) -> Option<&mut Node> {
        match self.epoch > epoch {
            true => self.old.as_mut(),
            false => self.node.as_mut().filter(|_| self.dirty),
        }
    }
    /// Whether there is one.
    #[inline]
    pub fn is_unwritten(&self, epoch: Epoch) -> bool {
        match self.epoch > epoch {
            true => self.old.is_some(),
            false => self.dirty && self.node.is_some(),
        }
    }
    /// To be called before every change: keeps aside what a checkpoint has still to write, and
    /// leaves word for the checkpoint of `epoch` where to look.
    #[inline]
    pub fn touch(&mut self, epoch: Epoch, tree: &Tree) {
        debug_assert!(self.epoch <= epoch, "change of epoch {epoch} after {}", self.epoch);
        if self.dirty && self.epoch == epoch {
            return;
        }
        if self.dirty {
            assert!(self.old.is_none(), "two checkpoints are behind");
            self.old = self.node.as_ref().map(|node| node.copy_into(tree.cache.frame()));
            self.counted[1] = self.counted[0];
        }
        self.counted[0] = self.stored_bytes();
        tree.cache.dirtied(epoch, self.counted[0]);
        tree.touched(self.low, epoch);
        self.dirty = true;
        self.epoch = epoch;
    }
    /// To be called after what was touched has grown.
    #[inline]
    pub fn grown(&mut self, tree: &Tree) {
        let now = self.stored_bytes();
        if now > self.counted[0] {
            tree.cache.grown(self.epoch, now - self.counted[0]);
            self.counted[0] = now;
        }
    }
    /// Returns the bytes that writing `node` takes, at most about, in whole KiB.
    fn stored_bytes(&self) -> u32 {
        let used = self.node.as_ref().map_or(0, |node| HEADER + node.used());
        used.next_multiple_of(1024).min(NODE_SIZE) as u32
    }
}
