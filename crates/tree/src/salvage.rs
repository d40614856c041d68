//! Reading a tree that may be damaged: everything that the pointers still lead to is taken over,
//! what cannot be read is named by the range of keys that it answered for.
//!
//! A walk never goes twice the same way: levels descend by one from node to node, and the ranges of
//! siblings do not overlap, so damage cannot make it run in a circle.

use crate::cache::NodeCache;
use crate::inner::InnerCell;
use crate::tree::Tree;
use shoal_base::{Epoch, Error, Result};
use shoal_device::Device;
use shoal_format::node::{Key, Node, NodeId};
use shoal_format::{Geometry, Ptr};
use std::sync::Arc;

/// A node that cannot be read.
#[derive(Clone, Debug)]
pub struct LostNode {
    /// Where it should be.
    pub ptr: Ptr,
    /// Its level, if the node above says so.
    pub level: Option<u8>,
    /// Lowest key it answered for.
    pub low: Key,
    /// One past the largest.
    pub high: Key,
    /// What is wrong with it.
    pub error: Error,
}

/// What a walk through a tree met.
#[derive(Default, Debug)]
pub struct Survey {
    /// Nodes that cannot be read.
    pub lost: Vec<LostNode>,
    /// Every pointer to a node, readable or not.
    pub nodes: Vec<Ptr>,
}

/// A node as its parent describes it.
pub(crate) struct Place {
    pub ptr: Ptr,
    pub level: Option<u8>,
    pub low: Key,
    pub high: Key,
}

impl Tree {
    /// The tree whose root node is at `root`, or, if any of its nodes cannot be read, a new one in
    /// memory with all entries of the others, to be written by the checkpoint of `epoch`. What
    /// the device fails to read is lost like what is damaged.
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
        let top = Place { ptr: root, level: None, low: Key::MIN, high: Key::MAX };
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
        at: &Place,
        survey: &mut Survey,
        entry: &mut dyn FnMut(Key, &[u8]) -> Result<()>,
    ) -> Result<()> {
        survey.nodes.push(at.ptr);
        let node = match self.read_node(at.ptr, at.level).and_then(|node| self.fits(node, at)) {
            Ok(node) => node,
            Err(error) if error.is_damage() => {
                let Place { ptr, level, low, high } = *at;
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

    /// Whether a node is where its parent says, with nothing outside the range it answers for.
    pub(crate) fn fits(&self, node: Node, at: &Place) -> Result<Node> {
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

/// Child `i` of an inner node. A value that is no pointer becomes one that leads nowhere.
pub(crate) fn child(node: &Node, i: usize, at: &Place) -> Place {
    let ptr = Ptr::of_value(node.value(i)).unwrap_or(Ptr::NULL);
    let low = if i == 0 { at.low } else { node.key(i) };
    let high = if i + 1 < node.count() { node.key(i + 1) } else { at.high };
    Place { ptr, level: node.level().checked_sub(1), low, high }
}
