//! Writing a tree to the device. A checkpoint walks the cells as they were at the end of its epoch,
//! writes the changed nodes to new addresses, children before parents, and returns the new root.
//!
//! Problem: a checkpoint must not visit every cell in memory, but a leaf does not know its parents,
//! whose pointers change with its address.
//!
//! Rule: the first change of a cell in an epoch (of a leaf's entries or of an inner cell's array),
//! and the creation of a cell, adds `(epoch, key)` to `Tree::touched` before the transaction ends.
//! The key is the cell's lowest. The checkpoint of epoch `e` takes and sorts all entries up to `e`,
//! and descends only to these keys, in the arrays as they were at the end of `e`.
//!
//! Proof that it visits every cell that must be written: while a cell is in the tree, its noted key
//! stays within its range. A leaf's lowest key never changes. That of an inner cell never grows: a
//! split takes from its right end, a merge adds there. So in every version of the tree that
//! contains the cell, including that at the end of `e`, the path to the key leads through the cell,
//! and through all cells above it, which get new addresses too. No transaction of `e` is in
//! progress when the checkpoint takes the keys, and those of `e + 1` note theirs under their own
//! epoch. A key whose cell has left the tree leads to another cell, which is found clean.
//!
//! Cost: the nodes on the paths to the changes, regardless of what else is in memory.

use crate::cell::{LeafCell, LeafState};
use crate::inner::{Children, InnerCell, InnerData};
use crate::leaves::NodeWriter;
use crate::tree::{Dead, Tree};
use shoal_base::counters::Counter;
use shoal_base::invariant;
use shoal_base::limits::NODE_SIZE;
use shoal_base::{Addr, Epoch, Result};
use shoal_format::Ptr;
use shoal_format::node::{Key, Node, stamp_node};
use std::sync::Arc;

impl Tree {
    /// Writes the tree as it was at the end of `epoch`, in which no transaction runs any more. For
    /// an empty tree it writes nothing and returns a null pointer.
    pub fn checkpoint(&self, epoch: Epoch, writer: &mut dyn NodeWriter) -> Result<Ptr> {
        let keys = self.take_touched(epoch);
        if !self.retire_if_empty(epoch, writer) {
            self.write_leaves(&keys, epoch, writer)?;
            self.write_inner(&self.root, &keys, epoch, writer)?;
        }
        let mut dead = self.dead.lock();
        let mut later = Vec::new();
        for (died, cell) in dead.drain(..) {
            if died > epoch {
                later.push((died, cell));
                continue;
            }
            writer.retire(match &cell {
                Dead::Leaf(leaf) => leaf.state.read().disk,
                Dead::Inner(inner) => inner.meta.lock().disk,
            });
        }
        *dead = later;
        let root = self.root.meta.lock().disk;
        Ok(root)
    }

    /// Notes for the checkpoint of `epoch` that a cell with this lowest key changes.
    pub(crate) fn touched(&self, low: Key, epoch: Epoch) {
        self.touched.lock().push((epoch, low));
    }

    /// Removes and returns all keys noted up to `epoch`, sorted.
    fn take_touched(&self, epoch: Epoch) -> Vec<Key> {
        let noted = std::mem::take(&mut *self.touched.lock());
        let (noted, later): (Vec<_>, Vec<_>) = noted.into_iter().partition(|(of, _)| *of <= epoch);
        self.touched.lock().extend(later);
        let mut keys: Vec<Key> = noted.into_iter().map(|(_, key)| key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Returns the version of an inner cell that belongs to `epoch`, and whether its shape is
    /// unwritten.
    pub(crate) fn version(&self, cell: &InnerCell, epoch: Epoch) -> Option<(Arc<InnerData>, bool)> {
        let mut meta = cell.meta.lock();
        if meta.epoch > epoch {
            return meta.old.clone();
        }
        meta.old = None;
        cell.now.load_full().map(|data| (data, meta.dirty))
    }

    /// Frees the nodes of a tree that was empty at the end of `epoch`; otherwise every subvolume,
    /// and every number of a deleted one, would keep its four trees. Returns whether it was empty.
    fn retire_if_empty(&self, epoch: Epoch, writer: &mut dyn NodeWriter) -> bool {
        let Some((data, _)) = self.version(&self.root, epoch) else { return false };
        let Children::Leaves(leaves) = &data.children else { return false };
        let [leaf] = &leaves[..] else { return false };
        let mut state = leaf.state.write();
        let then = if state.epoch > epoch { &state.old } else { &state.node };
        // Not in memory, so unchanged since it was written.
        if !then.as_ref().map_or(state.disk.is_null(), |node| node.count() == 0) {
            return false;
        }
        if state.epoch > epoch {
            if let Some(old) = state.old.take() {
                self.cache.recycle(old);
                self.cache.cleaned(epoch, state.counted[1]);
            }
        } else if std::mem::take(&mut state.dirty) {
            self.cache.cleaned(state.epoch, state.counted[0]);
        }
        writer.retire(std::mem::replace(&mut state.disk, Ptr::NULL));
        state.wrote = epoch;
        drop(state);
        let mut meta = self.root.meta.lock();
        writer.retire(std::mem::replace(&mut meta.disk, Ptr::NULL));
        meta.wrote = epoch;
        if meta.epoch <= epoch {
            meta.dirty = false;
        } else {
            meta.old = None;
        }
        true
    }

    /// Writes the changed nodes on the paths to `keys`, all of which must be in the range of
    /// `cell`. Returns whether its node got a new address.
    fn write_inner(
        &self,
        cell: &InnerCell,
        keys: &[Key],
        epoch: Epoch,
        writer: &mut dyn NodeWriter,
    ) -> Result<bool> {
        // Not in memory, so nothing below it can have changed. The same holds if it was evicted
        // since we took its parent's array: later changes in the cells that replaced it belong to a
        // later epoch.
        let Some((data, mut changed)) = self.version(cell, epoch) else { return Ok(false) };
        for (i, of_child) in data.routes(keys) {
            self.cache.counters.add(Counter::CheckpointCells, 1);
            changed |= match &data.children {
                Children::Leaves(v) => self.write_leaf_node(&v[i], epoch, writer)?,
                Children::Inners(v) => self.write_inner(&v[i], of_child, epoch, writer)?,
            };
        }
        if !changed {
            return Ok(false);
        }
        let mut node = self.encode_inner(&data);
        let ptr = self.write_node(&mut node, epoch, writer)?;
        self.cache.recycle(node);
        let mut meta = cell.meta.lock();
        writer.retire(meta.disk);
        meta.disk = ptr;
        meta.wrote = epoch;
        if meta.epoch <= epoch {
            meta.dirty = false;
        } else {
            meta.old = None;
        }
        Ok(true)
    }

    /// For the cleaner: makes the checkpoint of `epoch`, the current one, write the node of `level`
    /// for the key `low` elsewhere, if it is still at `addr`.
    pub fn rewrite(&self, low: Key, level: u8, addr: Addr, epoch: Epoch) -> Result<()> {
        self.mark_root(epoch);
        if level == 0 {
            return self.write_leaf(low, |state| {
                if state.disk.addr == addr {
                    state.touch(epoch, self);
                }
            });
        }
        let _shape = self.shape.lock();
        let mut cell = self.root.clone();
        loop {
            let data = self.inner_data(&cell)?;
            if data.level == level {
                if cell.meta.lock().disk.addr == addr {
                    cell.publish(InnerData::clone(&data), epoch, self);
                }
                return Ok(());
            }
            match &data.children {
                Children::Inners(v) if data.level > level => cell = v[data.child_for(low)].clone(),
                _ => return Ok(()),
            }
        }
    }

    fn encode_inner(&self, data: &InnerData) -> Node {
        let mut node = Node::init(self.cache.frame(), self.id, data.level, data.keys[0]);
        for (i, key) in data.keys.iter().enumerate() {
            let disk = match &data.children {
                Children::Leaves(v) => v[i].state.read().disk,
                Children::Inners(v) => v[i].meta.lock().disk,
            };
            invariant!(!disk.is_null(), "child {i} of an inner node has not been written");
            let fitted = node.insert(i, *key, &disk.store());
            invariant!(fitted, "inner node over its fan-out");
        }
        node
    }

    /// Writes a leaf if necessary. Returns whether it has a new address in this checkpoint.
    fn write_leaf_node(
        &self,
        leaf: &Arc<LeafCell>,
        epoch: Epoch,
        writer: &mut dyn NodeWriter,
    ) -> Result<bool> {
        {
            let state = leaf.state.read();
            if !state.is_unwritten(epoch) {
                return Ok(state.wrote == epoch);
            }
        }
        let mut state = leaf.state.write();
        let Some(node) = state.unwritten(epoch) else { return Ok(false) };
        let ptr = self.write_node(node, epoch, writer)?;
        writer.retire(self.leaf_written(&mut state, ptr, epoch));
        Ok(true)
    }

    /// Notes that the version of a leaf that belongs to `epoch` has been written. Returns the
    /// pointer to the previous one.
    pub(crate) fn leaf_written(&self, state: &mut LeafState, ptr: Ptr, epoch: Epoch) -> Ptr {
        self.cache.cleaned(state.epoch.min(epoch), state.counted[usize::from(state.epoch > epoch)]);
        if state.epoch <= epoch {
            state.dirty = false;
        } else if let Some(old) = state.old.take() {
            self.cache.recycle(old);
        }
        state.wrote = epoch;
        std::mem::replace(&mut state.disk, ptr)
    }

    fn write_node(
        &self,
        node: &mut Node,
        epoch: Epoch,
        writer: &mut dyn NodeWriter,
    ) -> Result<Ptr> {
        let mut stored = Vec::with_capacity(NODE_SIZE);
        let coding = node.encode(writer.compression(), epoch, self.id.root, &mut stored);
        let addr = writer.alloc(stored.len())?;
        stamp_node(&mut stored, addr);
        writer.write(addr, &stored)?;
        Ok(Ptr::coded(addr, epoch, &stored, coding))
    }
}

impl Tree {
    /// For checks: visits every node of the tree on the device, each once. Inner nodes that are not
    /// in memory are read and dropped again. Nothing may change meanwhile.
    pub fn for_each_node(&self, visit: &mut dyn FnMut(Ptr)) -> Result<()> {
        // Null if new since the last checkpoint, or in an empty tree.
        let visit = &mut |ptr: Ptr| {
            if !ptr.is_null() {
                visit(ptr);
            }
        };
        self.visit_nodes(&self.root, visit)?;
        for (_, cell) in self.dead.lock().iter() {
            visit(match cell {
                Dead::Leaf(leaf) => leaf.state.read().disk,
                Dead::Inner(inner) => inner.meta.lock().disk,
            });
        }
        Ok(())
    }

    fn visit_nodes(&self, cell: &InnerCell, visit: &mut dyn FnMut(Ptr)) -> Result<()> {
        let (disk, high) = {
            let meta = cell.meta.lock();
            (meta.disk, meta.high)
        };
        visit(disk);
        let data = match cell.now.load_full() {
            Some(data) => data,
            None => Arc::new(self.read_inner(cell, disk, high)?),
        };
        match &data.children {
            Children::Leaves(v) => {
                v.iter().for_each(|leaf| visit(leaf.state.read().disk));
                Ok(())
            }
            Children::Inners(v) => v.iter().try_for_each(|inner| self.visit_nodes(inner, visit)),
        }
    }

    /// For checks and tests: counts cells and arrays in memory, without reading. Nothing may change
    /// meanwhile.
    pub fn census(&self) -> Census {
        let mut census = Census { inners: 1, ..Census::default() };
        count(&self.root, &mut census);
        census
    }
}

/// The parts of a tree in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Leaf cells.
    pub leaves: usize,
    /// Leaf cells whose node is in memory.
    pub nodes: usize,
    /// Inner cells.
    pub inners: usize,
    /// Inner cells whose array is in memory.
    pub arrays: usize,
}

fn count(cell: &InnerCell, census: &mut Census) {
    let Some(data) = cell.now.load_full() else { return };
    census.arrays += 1;
    match &data.children {
        Children::Leaves(v) => {
            census.leaves += v.len();
            census.nodes += v.iter().filter(|leaf| leaf.state.read().node.is_some()).count();
        }
        Children::Inners(v) => {
            census.inners += v.len();
            v.iter().for_each(|inner| count(inner, census));
        }
    }
}
