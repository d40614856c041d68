//! Reading the nodes of a checkpoint's image from the device, regardless of memory, for the scrub.
//! Space in use by the image must not be reused meanwhile.

use crate::salvage::{LostNode, NodePlace, child};
use crate::tree::Tree;
use shoal_base::{Epoch, Result};
use shoal_format::Ptr;
use shoal_format::node::Key;

/// An element of an image.
#[derive(Debug)]
pub enum Met<'a> {
    /// A node that matches its parent.
    Node(Ptr),
    /// A node that does not.
    Lost(LostNode),
    /// An entry of a leaf.
    Entry(Key, &'a [u8]),
}

impl Tree {
    /// Reads the tree whose root node is at `root`, starting with key `from`, and passes its
    /// elements to `visit` until that returns `false`. Returns the key at which to continue; `None`
    /// at the end.
    pub fn read_image(
        &self,
        root: Ptr,
        from: Key,
        visit: &mut dyn FnMut(Met<'_>) -> Result<bool>,
    ) -> Result<Option<Key>> {
        self.read_image_since(root, (from, 0), visit)
    }

    /// As [`Tree::read_image`], but only nodes that were written in epoch `since` or later, and the
    /// entries of such leaves. No node is younger than the one that points to it, so the others are
    /// skipped with all that is below them.
    pub fn read_image_since(
        &self,
        root: Ptr,
        (from, since): (Key, Epoch),
        visit: &mut dyn FnMut(Met<'_>) -> Result<bool>,
    ) -> Result<Option<Key>> {
        if root.is_null() || root.birth < since {
            return Ok(None);
        }
        let top = NodePlace { ptr: root, level: None, low: Key::MIN, high: Key::MAX };
        self.read_below(&top, (from, since), visit)
    }

    fn read_below(
        &self,
        at: &NodePlace,
        (from, since): (Key, Epoch),
        visit: &mut dyn FnMut(Met<'_>) -> Result<bool>,
    ) -> Result<Option<Key>> {
        let node = match self.read_node(at.ptr, at.level).and_then(|node| self.fits(node, at)) {
            Ok(node) => node,
            Err(error) if error.is_damage() => {
                let NodePlace { ptr, level, low, high } = *at;
                let lost = LostNode { ptr, level, low, high, error };
                let more = visit(Met::Lost(lost))?;
                return Ok((!more && high != Key::MAX).then_some(high));
            }
            Err(e) => return Err(e),
        };
        let mut stopped = None;
        let mut more = visit(Met::Node(at.ptr))?;
        for i in 0..node.count() {
            let high = if i + 1 < node.count() { node.key(i + 1) } else { at.high };
            let skipped = match node.level() {
                0 => node.key(i) < from,
                _ => high <= from,
            };
            if skipped {
                continue;
            }
            let below = (node.level() > 0).then(|| child(&node, i, at));
            if below.as_ref().is_some_and(|below| below.ptr.birth < since) {
                continue;
            }
            if !more {
                stopped = Some(node.key(i).max(from));
                break;
            }
            match below {
                None => more = visit(Met::Entry(node.key(i), node.value(i)))?,
                Some(below) => stopped = self.read_below(&below, (from, since), visit)?,
            }
            if stopped.is_some() {
                break;
            }
        }
        self.recycle(node);
        // Stopped at the very last entry: the scan continues after this node.
        if stopped.is_none() && !more && at.high != Key::MAX {
            stopped = Some(at.high.max(from));
        }
        Ok(stopped)
    }
}
