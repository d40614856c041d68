//! Reading the nodes of a checkpoint's image from the device, whatever is in memory: for the scrub.
//! Nobody may give out what the image points to meanwhile.

use crate::salvage::{LostNode, Place, child};
use crate::tree::Tree;
use shoal_base::Result;
use shoal_format::Ptr;
use shoal_format::node::Key;

/// What a walk through an image meets.
#[derive(Debug)]
pub enum Met<'a> {
    /// A node that is as its parent says.
    Node(Ptr),
    /// One that is not.
    Lost(LostNode),
    /// An entry of a leaf.
    Entry(Key, &'a [u8]),
}

impl Tree {
    /// Reads the tree whose root node is at `root`, from key `from` on, and tells `visit` what it
    /// meets until that says no. Returns where to go on then; `None`: that was the end.
    pub fn read_image(
        &self,
        root: Ptr,
        from: Key,
        visit: &mut dyn FnMut(Met<'_>) -> Result<bool>,
    ) -> Result<Option<Key>> {
        if root.is_null() {
            return Ok(None);
        }
        let top = Place { ptr: root, level: None, low: Key::MIN, high: Key::MAX };
        self.read_below(&top, from, visit)
    }

    fn read_below(
        &self,
        at: &Place,
        from: Key,
        visit: &mut dyn FnMut(Met<'_>) -> Result<bool>,
    ) -> Result<Option<Key>> {
        let node = match self.read_node(at.ptr, at.level).and_then(|node| self.fits(node, at)) {
            Ok(node) => node,
            Err(error) if error.is_damage() => {
                let Place { ptr, level, low, high } = *at;
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
            if !more {
                stopped = Some(node.key(i).max(from));
                break;
            }
            match node.level() {
                0 => more = visit(Met::Entry(node.key(i), node.value(i)))?,
                _ => stopped = self.read_below(&child(&node, i, at), from, visit)?,
            }
            if stopped.is_some() {
                break;
            }
        }
        self.recycle(node);
        // Stopped at the very last entry: what follows is behind this node.
        if stopped.is_none() && !more && at.high != Key::MAX {
            stopped = Some(at.high.max(from));
        }
        Ok(stopped)
    }
}
