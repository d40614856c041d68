//! Reading a tree that may be damaged: everything still reachable by pointers is recovered; each
//! unreadable node is reported with the range of keys that it covered.
//!
//! A walk never visits a node twice: levels descend by one from node to node, and the ranges of
//! siblings do not overlap, so damage cannot make it run in a circle.

use crate::cache::NodeCache;
use crate::inner::InnerCell;
use crate::tree::Tree;
use shoal_base::{Epoch, Error, Result};
use shoal_device::Device;
use shoal_format::node::{Key, Node, NodeId};
use shoal_format::{Geometry, Ptr};
use std::sync::Arc;

/// An unreadable node.
#[derive(Clone, Debug)]
pub struct LostNode {
    /// The pointer to it.
    pub ptr: Ptr,
    /// Its level, if the parent determines it.
    pub level: Option<u8>,
    /// Lowest key that it covered.
    pub low: Key,
    /// One past the largest key that it covered.
    pub high: Key,
    /// The error.
    pub error: Error,
}

/// The result of a walk through a tree.
#[derive(Default, Debug)]
pub struct Survey {
    /// Unreadable nodes.
    pub lost: Vec<LostNode>,
    /// Every pointer to a node, readable or not.
    pub nodes: Vec<Ptr>,
}

/// A node as described by its parent.
pub(crate) struct NodePlace {
    pub ptr: Ptr,
    pub level: Option<u8>,
    pub low: Key,
    pub high: Key,
}

impl Tree {
    /// Opens the tree whose root node is at `root`. If any of its nodes is unreadable, makes a new
    /// tree in memory with all entries of the others, which the checkpoint of `epoch` writes. Read
    /// errors of the device count as damage.
    pub fn salvage(
        id: NodeId,
        device: Arc<dyn Device>,
        geometry: Geometry,
        cache: Arc<NodeCache>,
        root: Ptr,
        epoch: Epoch,
    ) -> Result<(Tree, Survey)> {
        if root.is_null() {
            return Ok((Tree::create(id, device, geometry, cache), Survey::default()));
        }
        let shape = Arc::default();
        let cell = InnerCell::on_disk(root, 0, Key::MAX, &shape);
        let reader = Tree::on(id, device.clone(), geometry, cache.clone(), cell, shape);
        let top = NodePlace { ptr: root, level: None, low: Key::MIN, high: Key::MAX };
        let mut survey = Survey::default();
        reader.walk(&top, &mut survey, &mut |_, _| Ok(()))?;
        if survey.lost.is_empty() {
            return Ok((Tree::open(id, device, geometry, cache, root), survey));
        }
        let tree = Tree::create(id, device, geometry, cache);
        let mut same = Survey::default();
        reader.walk(&top, &mut same, &mut |key, value| tree.put(key, value, epoch))?;
        Ok((tree, survey))
    }

    fn walk(
        &self,
        at: &NodePlace,
        survey: &mut Survey,
        entry: &mut dyn FnMut(Key, &[u8]) -> Result<()>,
    ) -> Result<()> {
        survey.nodes.push(at.ptr);
        let node = match self.read_node(at.ptr, at.level).and_then(|node| self.fits(node, at)) {
            Ok(node) => node,
            Err(error) if error.is_damage() => {
                let NodePlace { ptr, level, low, high } = *at;
                survey.lost.push(LostNode { ptr, level, low, high, error });
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        let walked = match node.level() {
            0 => (0..node.count()).try_for_each(|i| entry(node.key(i), node.value(i))),
            _ => (0..node.count()).try_for_each(|i| self.walk(&child(&node, i, at), survey, entry)),
        };
        self.recycle(node);
        walked
    }

    pub(crate) fn recycle(&self, node: Node) {
        self.cache.recycle(node);
    }

    /// Verifies that a node is where its parent says, with nothing outside its range.
    pub(crate) fn fits(&self, node: Node, at: &NodePlace) -> Result<Node> {
        let last = node.count().checked_sub(1).map(|i| node.key(i));
        let rule = match (node.level(), at.level) {
            _ if node.low() < at.low || last.is_some_and(|key| key >= at.high) => {
                "key beyond its range"
            }
            (0, None) => "root is a leaf",
            (0, _) => return Ok(node),
            _ if node.count() == 0 || node.key(0) != node.low() => "no child for its lowest key",
            _ => return Ok(node),
        };
        Err(Error::corrupt(format!("{} node", self.id.tree.name()), Some(at.ptr.addr.0), rule))
    }
}

/// Child `i` of an inner node. An invalid pointer becomes a null pointer.
pub(crate) fn child(node: &Node, i: usize, at: &NodePlace) -> NodePlace {
    let ptr = Ptr::of_value(node.value(i)).unwrap_or(Ptr::NULL);
    let low = if i == 0 { at.low } else { node.key(i) };
    let high = if i + 1 < node.count() { node.key(i + 1) } else { at.high };
    NodePlace { ptr, level: node.level().checked_sub(1), low, high }
}
