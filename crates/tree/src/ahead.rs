//! Reading ahead: which nodes are missing in memory below a range of keys, and reading them,
//! several at a time. A caller that knows which entries it is going to need asks level by level:
//!
//! ```text
//! cold_nodes   the uppermost missing node on the path to each key; looks, and reads nothing
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

/// A node that was not in memory when it was looked for.
pub struct ColdNode(Cell);

enum Cell {
    Leaf(Arc<LeafCell>),
    Inner(Arc<InnerCell>),
}

impl Tree {
    /// Appends to `cold` the nodes that are missing on the way to the entries of `[from, to)`, the
    /// uppermost of each path, and stops when it has `limit` of them. Returns the key before which
    /// everything was looked at.
    pub fn cold_nodes(&self, from: Key, to: Key, limit: usize, cold: &mut Vec<ColdNode>) -> Key {
        let mut at = from;
        while at < to && cold.len() < limit {
            let (node, end) = self.first_cold(at);
            cold.extend(node.map(ColdNode));
            at = end.max(at.next());
        }
        at
    }

    /// The uppermost missing node on the way to `key`, and the end of the range of keys for which
    /// this is the answer.
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

    /// Brings a node into memory.
    ///
    /// # Errors
    /// The device fails, or the node is damaged. Whoever uses the node finds the same.
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
