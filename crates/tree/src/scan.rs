//! Ranges: reading and removing many entries, a leaf at a time. No lock is held between leaves, nor
//! while the caller processes the entries.

use crate::cell::LeafCell;
use crate::inner::{Children, InnerData};
use crate::tree::Tree;
use shoal_base::{Epoch, Error, Result};
use shoal_format::Ptr;
use shoal_format::node::Key;
use std::sync::Arc;

/// Entries copied from a tree. The memory is reused from call to call.
#[derive(Default)]
pub struct Batch {
    keys: Vec<Key>,
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Batch {
    /// Number of entries.
    pub fn len(&self) -> usize {
        self.keys.len()
    }
    /// Returns whether the batch is empty.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }
    /// The entries in order.
    pub fn iter(&self) -> impl Iterator<Item = (Key, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let spans = starts.zip(self.ends.iter().copied());
        self.keys.iter().copied().zip(spans).map(|(key, (a, b))| (key, &self.bytes[a..b]))
    }
    fn clear(&mut self) {
        self.keys.clear();
        self.ends.clear();
        self.bytes.clear();
    }
    fn push(&mut self, key: Key, value: &[u8]) {
        self.keys.push(key);
        self.bytes.extend_from_slice(value);
        self.ends.push(self.bytes.len());
    }
}

/// A range of a tree's keys that begins and ends at leaf boundaries, for parallel scans.
#[derive(Clone, Debug)]
pub struct Part {
    /// Lowest key.
    pub low: Key,
    /// One past the largest.
    pub high: Key,
    /// Number of leaves; 0 if the inner node above them is unreadable.
    pub leaves: usize,
    /// Pointers of the leaves that are not in memory.
    pub unread: Vec<Ptr>,
}

impl Tree {
    /// Copies the entries of `[from, to)`, at most `limit` (at least 1), into `batch`. Returns the
    /// key at which to continue, or `None` at the end of the range.
    pub fn scan(&self, from: Key, to: Key, limit: usize, batch: &mut Batch) -> Result<Option<Key>> {
        batch.clear();
        let mut at = from;
        while at < to {
            let next = self.read_leaf(at, |state, node| {
                let (Ok(first) | Err(first)) = node.search(at);
                for i in first..node.count() {
                    let key = node.key(i);
                    if key >= to {
                        return Some(to);
                    }
                    if batch.len() >= limit {
                        return None;
                    }
                    batch.push(key, node.value(i));
                }
                Some(state.high)
            })?;
            match next {
                Some(key) => at = key,
                None => return Ok(batch.keys.last().map(|last| last.next())),
            }
            if batch.len() >= limit && at < to {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Calls `visit` with the entries of `[from, to)` until it returns `false`. The entries are
    /// copies, so `visit` may use the tree.
    pub fn for_each(
        &self,
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(Key, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let mut batch = Batch::default();
        let mut next = Some(from);
        while let Some(at) = next {
            next = self.scan(at, to, 256, &mut batch)?;
            for (key, value) in batch.iter() {
                if !visit(key, value)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// As [`Tree::for_each`], over the readable entries of `[from, to)`. `lost` is called for each
    /// unreadable node with the start and the end of its key range. So that each is reported once,
    /// `from` and `to` must be boundaries of [parts](Tree::part), or of the tree.
    pub fn for_each_readable(
        &self,
        from: Key,
        to: Key,
        visit: &mut dyn FnMut(Key, &[u8]) -> Result<()>,
        lost: &mut dyn FnMut(Error, Key, Key),
    ) -> Result<()> {
        let (mut at, mut batch) = (from, Batch::default());
        while at < to {
            batch.clear();
            let read = self.read_leaf(at, |state, node| {
                let (Ok(first) | Err(first)) = node.search(at);
                (first..node.count()).for_each(|i| batch.push(node.key(i), node.value(i)));
                state.high
            });
            at = match read {
                Ok(high) => high,
                Err(e) if e.is_damage() => {
                    let high = self.unreadable_until(at).max(at.next());
                    lost(e, at, high);
                    high
                }
                Err(e) => return Err(e),
            };
            batch.iter().try_for_each(|(key, value)| visit(key, value))?;
        }
        Ok(())
    }

    /// Returns the part that begins at `from`, which must be the lowest key or the `high` of
    /// another part: 1 to `max` adjacent leaves, or the range of an unreadable inner node. Reads
    /// inner nodes only.
    pub fn part(&self, from: Key, max: usize) -> Result<Part> {
        let mut cell = self.root.clone();
        loop {
            let loan = match self.inner(&cell) {
                Err(e) if e.is_damage() => {
                    let high = cell.meta.lock().high.max(from.next());
                    return Ok(Part { low: from, high, leaves: 0, unread: Vec::new() });
                }
                other => other?,
            };
            let next = match loan.as_deref().map(|data| (&data.children, data.child_for(from))) {
                Some((Children::Inners(v), first)) => v[first].clone(),
                Some((Children::Leaves(v), first)) => {
                    let leaves = &v[first..v.len().min(first + max.max(1))];
                    return Ok(part_of(from, leaves));
                }
                // It is being replaced.
                None => self.root.clone(),
            };
            drop(loan);
            cell = next;
        }
    }

    /// Returns the end of the node because of which the leaf for `key` is unreadable.
    fn unreadable_until(&self, key: Key) -> Key {
        let mut cell = self.root.clone();
        loop {
            let Ok(loan) = self.inner(&cell) else { return cell.meta.lock().high };
            let next = match loan.as_deref().map(|data| (data, data.child_for(key))) {
                Some((InnerData { children: Children::Inners(v), .. }, i)) => v[i].clone(),
                Some((InnerData { children: Children::Leaves(v), .. }, i)) => {
                    return v[i].state.read().high;
                }
                // It is being replaced.
                None => self.root.clone(),
            };
            drop(loan);
            cell = next;
        }
    }

    /// Finds the largest key in `[floor, key)` and calls `f` with it and its value.
    pub fn before<R>(
        &self,
        floor: Key,
        key: Key,
        f: impl Fn(Key, &[u8]) -> R,
    ) -> Result<Option<R>> {
        let mut at = key;
        while at > floor {
            // The leaf that covers the key just below `at`.
            let found = self.read_leaf(at.before(), |state, node| {
                let (Ok(place) | Err(place)) = node.search(at);
                match place.checked_sub(1).map(|i| (node.key(i), i)) {
                    Some((k, _)) if k < floor => Err(floor),
                    Some((k, i)) => Ok(f(k, node.value(i))),
                    None => Err(state.low),
                }
            })?;
            match found {
                Ok(r) => return Ok(Some(r)),
                Err(low) => at = low,
            }
        }
        Ok(None)
    }

    /// Removes the entries of `[from, to)`, passing each to `gone`. Returns their number.
    pub fn delete_range(
        &self,
        from: Key,
        to: Key,
        epoch: Epoch,
        gone: &mut dyn FnMut(Key, &[u8]),
    ) -> Result<u64> {
        self.mark_root(epoch);
        let (mut at, mut removed) = (from, 0);
        while at < to {
            let start = at;
            let emptied;
            (at, emptied) = self.write_leaf(at, |state| {
                let mut emptied = false;
                let (Ok(first) | Err(first)) = match &state.node {
                    Some(node) => node.search(start),
                    None => Err(0),
                };
                while let Some(node) = &state.node
                    && first < node.count()
                    && node.key(first) < to
                {
                    gone(node.key(first), node.value(first));
                    state.touch(epoch, self);
                    if let Some(node) = &mut state.node {
                        node.remove(first);
                        emptied = node.count() == 0;
                    }
                    removed += 1;
                }
                (state.high, emptied)
            })?;
            if emptied {
                self.merge(start, epoch);
            }
        }
        Ok(removed)
    }
}

/// Makes the part that consists of these adjacent leaves.
fn part_of(low: Key, leaves: &[Arc<LeafCell>]) -> Part {
    let high = leaves.last().map_or(Key::MAX, |leaf| leaf.state.read().high);
    let to_read = |leaf: &Arc<LeafCell>| {
        let state = leaf.state.read();
        (state.node.is_none() && !state.disk.is_null()).then_some(state.disk)
    };
    Part { low, high, leaves: leaves.len(), unread: leaves.iter().filter_map(to_read).collect() }
}
