//! Changes of cells: new ones, and what must be kept and noted for the next checkpoint when one
//! changes.

use crate::cell::{LeafCell, LeafState};
use crate::inner::{InnerCell, InnerData};
use crate::tree::Tree;
use shoal_base::Epoch;
use shoal_format::Ptr;
use shoal_format::node::{Key, Node};
use std::sync::Arc;

impl LeafCell {
    /// Makes a cell for a new leaf, which is dirty.
    pub(crate) fn fresh(
        node: Node,
        low: Key,
        high: Key,
        epoch: Epoch,
        tree: &Tree,
    ) -> Arc<LeafCell> {
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
}

impl LeafState {
    /// Must be called before every change. Keeps a copy of the version that a checkpoint must still
    /// write, and notes the leaf for the checkpoint of `epoch`.
    #[inline]
    pub(crate) fn touch(&mut self, epoch: Epoch, tree: &Tree) {
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
    /// Must be called after a touched node has grown.
    #[inline]
    pub(crate) fn grown(&mut self, tree: &Tree) {
        let now = self.stored_bytes();
        if now > self.counted[0] {
            tree.cache.grown(self.epoch, now - self.counted[0]);
            self.counted[0] = now;
        }
    }
}

impl InnerCell {
    /// Makes a cell for a new inner node, which is dirty.
    pub(crate) fn fresh(data: InnerData, high: Key, epoch: Epoch, tree: &Tree) -> Arc<InnerCell> {
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
    /// Makes `data` the current version. Must be called under the tree's shape lock.
    pub(crate) fn publish(&self, data: InnerData, epoch: Epoch, tree: &Tree) {
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
}
