//! Splits and merges. One thread at a time changes a tree's shape. It publishes new arrays of
//! children bottom-up, and holds the locks of the affected leaves until readers can find them.

use crate::cell::{LeafCell, LeafState};
use crate::inner::{Children, InnerCell, InnerData};
use crate::tree::{Dead, Tree};
use shoal_base::counters::Counter;
use shoal_base::invariant;
use shoal_base::limits::NODE_SIZE;
use shoal_base::{Epoch, Result};
use shoal_format::Ptr;
use shoal_format::node::{HEADER, Key, Node, SLOT};
use std::sync::Arc;

/// Number of children at which an inner node is split: as many as fit on disk; fewer under the
/// model checker, to get deep trees with few keys.
const FANOUT_MAX: usize = if cfg!(test) { 6 } else { (NODE_SIZE - HEADER) / (SLOT + Ptr::SIZE) };
/// Largest number of bytes used in a merged leaf, so that it is not split again at once.
const MERGED_MAX: usize = NODE_SIZE * 3 / 4;

/// The inner cells from the root to the parent of a leaf, each with its array and the index of the
/// child taken.
type Path = Vec<(Arc<InnerCell>, Arc<InnerData>, usize)>;

impl Tree {
    /// Returns the path to the leaf for `key`. Nothing on it changes under the shape lock.
    fn path_to(&self, key: Key) -> Result<Path> {
        let mut path: Path = Vec::with_capacity(4);
        let mut cell = self.root.clone();
        loop {
            let data = self.inner_data(&cell)?;
            let i = data.child_for(key);
            let next = match &data.children {
                Children::Leaves(_) => None,
                Children::Inners(v) => Some(v[i].clone()),
            };
            path.push((cell, data, i));
            match next {
                None => return Ok(path),
                Some(inner) => cell = inner,
            }
        }
    }

    /// As [`Tree::path_to`]; `None` if any of it is not in memory.
    fn path_in_memory(&self, key: Key) -> Option<Path> {
        let mut path: Path = Vec::with_capacity(4);
        let mut cell = self.root.clone();
        loop {
            let data = cell.now.load_full()?;
            let i = data.child_for(key);
            let next = match &data.children {
                Children::Leaves(_) => None,
                Children::Inners(v) => Some(v[i].clone()),
            };
            path.push((cell, data, i));
            match next {
                None => return Some(path),
                Some(inner) => cell = inner,
            }
        }
    }

    /// Splits the leaf for `key`, unless a value of `len` bytes now fits there.
    pub(crate) fn split(&self, key: Key, epoch: Epoch, len: usize) -> Result<()> {
        let _shape = self.shape.lock();
        let path = self.path_to(key)?;
        let Some((_, data, i)) = path.last() else { return Ok(()) };
        let Children::Leaves(leaves) = &data.children else { return Ok(()) };
        let left = &leaves[*i];
        let mut state = left.state.write();
        self.load_leaf(left, &mut state)?;
        let Some(at) = state.node.as_ref().and_then(|node| split_point(node, key, len)) else {
            return Ok(());
        };
        let right = self.split_leaf(&mut state, at, key, epoch);
        let low = state.high;
        self.cache.counters.add(Counter::NodeSplits, 1);
        self.insert_child(&path, low, right, epoch);
        Ok(())
    }

    /// Moves the entries from `at` on to a new leaf. The range of the left leaf ends where the new
    /// one begins.
    fn split_leaf(
        &self,
        state: &mut LeafState,
        at: usize,
        key: Key,
        epoch: Epoch,
    ) -> Arc<LeafCell> {
        state.touch(epoch, self);
        let high = state.high;
        let frame = self.cache.frame();
        let (low, node) = match &mut state.node {
            // An insertion after the last entry: the new leaf starts with it, the left one stays
            // full.
            Some(node) if at == node.count() => (key, Node::init(frame, self.id, 0, key)),
            Some(node) => {
                let low = node.key(at);
                (low, node.split_off(at, low, frame))
            }
            None => (high, Node::init(frame, self.id, 0, high)),
        };
        state.high = low;
        let right = LeafCell::fresh(node, low, high, epoch, self);
        self.cache.loaded(&right);
        right
    }

    /// Inserts a leaf after the end of `path`, splitting inner nodes as needed.
    fn insert_child(&self, path: &Path, low: Key, leaf: Arc<LeafCell>, epoch: Epoch) {
        let mut pending = Some((low, Child::Leaf(leaf)));
        for (depth, (cell, data, i)) in path.iter().enumerate().rev() {
            let Some((low, child)) = pending.take() else { return };
            let mut grown = InnerData::clone(data);
            grown.keys.insert(i + 1, low);
            match (&mut grown.children, child) {
                (Children::Leaves(v), Child::Leaf(leaf)) => v.insert(i + 1, leaf),
                (Children::Inners(v), Child::Inner(inner)) => v.insert(i + 1, inner),
                _ => unreachable!("levels of a path descend by one"),
            }
            if grown.keys.len() <= FANOUT_MAX {
                cell.publish(grown, epoch, self);
                return;
            }
            let high = cell.meta.lock().high;
            // Growing at the right end leaves the left node nearly full.
            let at = if *i + 2 == grown.keys.len() { FANOUT_MAX * 9 / 10 } else { FANOUT_MAX / 2 };
            let keys = grown.keys.split_off(at);
            let right = InnerData::new(grown.level, keys, grown.children.split_off(at));
            let middle = right.keys[0];
            if depth == 0 {
                self.grow_root(grown, right, high, epoch);
                return;
            }
            let right = self.fresh_inner(right, high, epoch);
            // Until the parent knows the right half, a reader of its keys reaches a leaf that does
            // not cover them, and starts again.
            pending = Some((middle, Child::Inner(right)));
            cell.publish(grown, epoch, self);
            cell.meta.lock().high = middle;
        }
    }

    /// Splits the root into two cells below it; it stays the root.
    fn grow_root(&self, left: InnerData, right: InnerData, high: Key, epoch: Epoch) {
        let (level, low, middle) = (left.level + 1, left.keys[0], right.keys[0]);
        let left = self.fresh_inner(left, middle, epoch);
        let right = self.fresh_inner(right, high, epoch);
        let children = Children::Inners(vec![left, right]);
        let data = InnerData::new(level, vec![low, middle], children);
        self.root.publish(data, epoch, self);
    }

    fn fresh_inner(&self, data: InnerData, high: Key, epoch: Epoch) -> Arc<InnerCell> {
        let cell = InnerCell::fresh(data, high, epoch, self);
        self.cache.watch(&cell);
        cell
    }

    /// Notes that an inner cell has left the tree. The checkpoint of `epoch` retires its address.
    fn bury(&self, cell: &Arc<InnerCell>, epoch: Epoch) {
        cell.meta.lock().dead = true;
        self.dead.lock().push((epoch, Dead::Inner(cell.clone())));
    }

    /// Merges the leaf for `key` with a neighbour below the same parent, if they fit in one.
    ///
    /// Never reads: the change that made the leaf sparse is done and must not fail any more, and
    /// other threads wait for the shape lock. A neighbour that is not in memory is left alone. The
    /// two are merged when one of them is changed while both are in memory.
    pub(crate) fn merge(&self, key: Key, epoch: Epoch) {
        let _shape = self.shape.lock();
        let Some(path) = self.path_in_memory(key) else { return };
        let Some((_, data, i)) = path.last() else { return };
        let Children::Leaves(leaves) = &data.children else { return };
        for left in [i.checked_sub(1), Some(*i)].into_iter().flatten() {
            if let Some(right) = leaves.get(left + 1)
                && self.merge_leaves(&leaves[left], right, epoch)
            {
                self.remove_child(&path, left + 1, epoch);
                return;
            }
        }
    }

    /// Moves the right leaf's entries to the left one, if both are in memory and they fit. Both
    /// stay locked meanwhile.
    fn merge_leaves(&self, left: &Arc<LeafCell>, right: &Arc<LeafCell>, epoch: Epoch) -> bool {
        let mut l = left.state.write();
        let mut r = right.state.write();
        let (Some(a), Some(b)) = (&l.node, &r.node) else { return false };
        // An empty leaf is always merged; otherwise leave room, so that it is not split again at
        // once.
        if a.used().min(b.used()) > 0 && a.used() + b.used() > MERGED_MAX {
            return false;
        }
        l.touch(epoch, self);
        r.touch(epoch, self);
        if let (Some(into), Some(from)) = (&mut l.node, r.node.take()) {
            into.append_all(&from);
            self.cache.recycle(from);
            self.cache.unloaded();
        }
        l.grown(self);
        // The current checkpoint still writes the copy of the right leaf that `touch` kept.
        r.dirty = false;
        self.cache.cleaned(epoch, r.counted[0]);
        r.dead = true;
        l.high = r.high;
        self.dead.lock().push((epoch, Dead::Leaf(right.clone())));
        true
    }

    /// Removes child `gone` from the parent at the end of `path`. An inner node without children is
    /// removed too; a root with a single inner child is replaced by it.
    fn remove_child(&self, path: &Path, gone: usize, epoch: Epoch) {
        let mut gone = gone;
        for (depth, (cell, data, i)) in path.iter().enumerate().rev() {
            let mut smaller = InnerData::clone(data);
            let low = smaller.keys.remove(gone);
            match &mut smaller.children {
                Children::Leaves(v) => drop(v.remove(gone)),
                Children::Inners(v) => drop(v.remove(gone)),
            }
            if !smaller.keys.is_empty() {
                if gone == 0 {
                    smaller.keys[0] = low;
                }
                cell.publish(smaller, epoch, self);
                break;
            }
            // Cannot happen to the parent of a merged pair, nor to the root: both keep a child.
            invariant!(depth > 0 && *i == 0, "a node without children beside others");
            self.bury(cell, epoch);
            gone = path[depth - 1].2;
        }
        self.lower_root(epoch);
        self.merge_inner(path, epoch);
    }

    fn lower_root(&self, epoch: Epoch) {
        let Some(top) = self.root.now.load_full() else { return };
        if let Children::Inners(v) = &top.children
            && let [only] = &v[..]
            && let Some(data) = only.now.load_full()
        {
            self.root.publish(InnerData::clone(&data), epoch, self);
            self.bury(only, epoch);
        }
    }

    /// Merges the lowest inner node of `path` with its right neighbour if both are small.
    fn merge_inner(&self, path: &Path, epoch: Epoch) {
        let [.., (parent, _, i), (cell, _, _)] = &path[..] else { return };
        let Some(above) = parent.now.load_full() else { return };
        let Children::Inners(cells) = &above.children else { return };
        let (Some(left), Some(right)) = (cells.get(*i), cells.get(*i + 1)) else { return };
        if !Arc::ptr_eq(left, cell) {
            return;
        }
        let (Some(a), Some(b)) = (left.now.load_full(), right.now.load_full()) else { return };
        if a.keys.len() + b.keys.len() > FANOUT_MAX / 2 {
            return;
        }
        let mut joined = InnerData::clone(&a);
        joined.keys.extend(&b.keys);
        match (&mut joined.children, &b.children) {
            (Children::Leaves(x), Children::Leaves(y)) => x.extend(y.iter().cloned()),
            (Children::Inners(x), Children::Inners(y)) => x.extend(y.iter().cloned()),
            _ => unreachable!("neighbours are of one level"),
        }
        let high = right.meta.lock().high;
        let right = right.clone();
        left.publish(joined, epoch, self);
        left.meta.lock().high = high;
        let mut smaller = InnerData::clone(&above);
        smaller.keys.remove(i + 1);
        if let Children::Inners(v) = &mut smaller.children {
            v.remove(i + 1);
        }
        parent.publish(smaller, epoch, self);
        self.bury(&right, epoch);
        self.lower_root(epoch);
    }
}

enum Child {
    Leaf(Arc<LeafCell>),
    Inner(Arc<InnerCell>),
}

/// Returns the index at which to split a leaf before `key` with a value of `len` bytes is inserted;
/// `None` if it fits.
fn split_point(node: &Node, key: Key, len: usize) -> Option<usize> {
    let count = node.count();
    let place = match node.search(key) {
        Err(_) if node.fits(len) => return None,
        Ok(i) if node.room() + node.value(i).len() >= len => return None,
        Ok(i) | Err(i) => i,
    };
    if place == count {
        return Some(count);
    }
    // In the middle by bytes, with at least one entry on either side.
    let half = node.used() / 2;
    let mut sum = 0;
    let by_bytes = (0..count).find(|i| {
        sum += SLOT + node.value(*i).len();
        sum > half
    });
    Some(by_bytes.unwrap_or(count / 2).clamp(1, count.saturating_sub(1).max(1)))
}
