//! The parts of a tree that have changed since an epoch.
//!
//! Problem: to find what has changed, a reader must not visit every node. No node is younger than
//! the one that points to it, so a subtree whose pointer is old has not changed; but changes in
//! memory are in no pointer yet, and a leaf that changes does not tell its parents.
//!
//! Rule: a node that is not in memory is judged by its pointer. Whatever is in memory is visited,
//! down to the leaves, whose state says when they changed. Inner nodes are evicted only when
//! nothing below them is in memory and everything is written, so none of those that are skipped has
//! a change below it.
//!
//! Cost: the changed nodes and the cells in memory, of which there is one for each leaf that an
//! inner node in memory points to.

use crate::cell::LeafState;
use crate::inner::{Children, InnerCell};
use crate::tree::Tree;
use shoal_base::{Epoch, Result};
use shoal_format::node::Key;
use std::sync::Arc;

/// A part of a tree: the changed leaves of one inner node, or a subtree without a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Young {
    /// One past the largest key of the part.
    pub until: Key,
    /// Key ranges of the leaves with a change: first key, and one past the last.
    pub leaves: Vec<(Key, Key)>,
}

impl Tree {
    /// Returns the part of the tree that begins at `from`, with those of its leaves that may have
    /// changed in epoch `since` or later. Leaves that change during the call may be missing.
    ///
    /// # Errors
    /// Those of the device, and damage.
    pub fn young(&self, from: Key, since: Epoch) -> Result<Young> {
        // Every cell that is reached stays in the tree, with its range.
        let _shape = self.shape.lock();
        let (mut cell, mut until) = (self.root.clone(), Key::MAX);
        loop {
            let data = self.inner_data(&cell)?;
            let at = data.child_for(from);
            match &data.children {
                Children::Inners(inners) => {
                    until = data.keys.get(at + 1).copied().unwrap_or(until);
                    if is_old(&inners[at], since) {
                        return Ok(Young { until, leaves: Vec::new() });
                    }
                    cell = inners[at].clone();
                }
                Children::Leaves(leaves) => {
                    let range = |state: &LeafState| (state.low.max(from), state.high);
                    let young = leaves[at..].iter().filter_map(|leaf| {
                        let state = leaf.state.read();
                        is_young(&state, since).then(|| range(&state))
                    });
                    return Ok(Young { until, leaves: young.collect() });
                }
            }
        }
    }

    /// Calls `look` with the entries of `[from, to)`, under the lock of their leaf, which no change
    /// of the leaf passes: it must be short, and use no tree.
    ///
    /// # Errors
    /// Those of the device, and damage.
    pub fn look_through(&self, from: Key, to: Key, look: &mut dyn FnMut(Key, &[u8])) -> Result<()> {
        let mut at = from;
        while at < to {
            at = self.read_leaf(at, |state, node| {
                let (Ok(first) | Err(first)) = node.search(at);
                for i in first..node.count() {
                    let key = node.key(i);
                    if key >= to {
                        break;
                    }
                    look(key, node.value(i));
                }
                state.high
            })?;
        }
        Ok(())
    }
}

/// Returns whether nothing at or below a node has changed since.
fn is_old(cell: &Arc<InnerCell>, since: Epoch) -> bool {
    let meta = cell.meta.lock();
    let written = !meta.dirty && meta.old.is_none();
    cell.now.load().is_none() && written && meta.disk.birth < since
}

fn is_young(state: &LeafState, since: Epoch) -> bool {
    state.dirty || state.old.is_some() || (!state.disk.is_null() && state.disk.birth >= since)
}
