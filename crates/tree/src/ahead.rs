//! Reading ahead: finds the nodes below a range of keys that are not in memory, and reads them,
//! several at a time. A caller that knows which entries it will need asks level by level:
//!
//! ```text
//! cold_nodes   the uppermost missing node on the path to each key; reads nothing
//! read_cold    reads one of them; any number of threads, each with another node
//! ```
//!
//! until nothing is missing. So the device has many reads to do at a time, and no thread waits for
//! the lock of a node that another one reads.

use crate::cell::LeafCell;
use crate::inner::{Children, InnerCell};
use crate::tree::Tree;
use shoal_base::Result;
use shoal_format::node::Key;
use std::sync::Arc;

/// A node that was not in memory when it was searched.
pub struct ColdNode(Cell);

enum Cell {
    Leaf(Arc<LeafCell>),
    Inner(Arc<InnerCell>),
}

impl Tree {
    /// Appends to `cold` the missing nodes on the paths to the entries of `[from, to)`, the
    /// uppermost of each path, and stops at `limit` nodes. Returns the key up to which everything
    /// was examined.
    pub fn cold_nodes(&self, from: Key, to: Key, limit: usize, cold: &mut Vec<ColdNode>) -> Key {
        let mut at = from;
        while at < to && cold.len() < limit {
            at = self.examine(at, cold);
        }
        at
    }

    /// As [`Tree::cold_nodes`] for the first entries of a range: those of `leaves` leaves.
    pub fn cold_in_leaves(&self, from: Key, to: Key, leaves: usize, cold: &mut Vec<ColdNode>) {
        let mut at = from;
        for _ in 0..leaves {
            if at < to {
                at = self.examine(at, cold);
            }
        }
    }

    /// Appends the uppermost missing node on the path to `key`, and returns the key after all
    /// entries on this path.
    fn examine(&self, key: Key, cold: &mut Vec<ColdNode>) -> Key {
        let (node, end) = self.first_cold(key);
        cold.extend(node.map(ColdNode));
        end.max(key.next())
    }

    /// Returns the uppermost missing node on the path to `key`, and the end of the key range for
    /// which this is the answer.
    fn first_cold(&self, key: Key) -> (Option<Cell>, Key) {
        let mut cell = self.root.clone();
        loop {
            let Some(data) = cell.now.load_full() else {
                let (high, missing) = {
                    let meta = cell.meta.lock();
                    (meta.high, !meta.dead && !meta.disk.is_null())
                };
                return (missing.then_some(Cell::Inner(cell)), high);
            };
            let i = data.child_for(key);
            match &data.children {
                Children::Inners(v) => cell = v[i].clone(),
                Children::Leaves(v) => {
                    let state = v[i].state.read();
                    let missing = state.node.is_none() && !state.dead && !state.disk.is_null();
                    return (missing.then(|| Cell::Leaf(v[i].clone())), state.high);
                }
            }
        }
    }

    /// Reads a node into memory.
    ///
    /// # Errors
    /// The device fails, or the node is damaged. A user of the node gets the same error.
    pub fn read_cold(&self, node: &ColdNode) -> Result<()> {
        match &node.0 {
            Cell::Inner(cell) => self.load_inner(cell).map(drop),
            Cell::Leaf(leaf) => {
                let mut state = leaf.state.write();
                match state.dead {
                    true => Ok(()),
                    false => self.load_leaf(leaf, &mut state),
                }
            }
        }
    }
}
