//! Nodes outside of the tree: not yet attached, or removed.

use super::{FANOUT, LEVELS, Node, is_entry, node_in, settled};
use crate::alloc::AllocError;
use crate::entry::Entry;
use crate::epoch::Pin;
use crate::sync::Ordering;
use std::alloc::Layout;
use std::ptr::{NonNull, null_mut};

/// A node that no other thread can reach yet, with all below it.
pub(crate) struct NewNode<E: Entry>(NonNull<Node<E>>);

impl<E: Entry> NewNode<E> {
    /// Allocates an empty node for this level and slot.
    pub(crate) fn try_new(level: usize, offset: usize) -> Result<NewNode<E>, AllocError> {
        assert!(level < LEVELS && offset < FANOUT);
        #[cfg(any(test, feature = "fail-alloc"))]
        if !crate::alloc::fail::permits() {
            return Err(AllocError);
        }
        // SAFETY: a node has a size.
        let memory = unsafe { std::alloc::alloc(Layout::new::<Node<E>>()) };
        let node = NonNull::new(memory.cast::<Node<E>>()).ok_or(AllocError)?;
        // SAFETY: the memory has the layout of a node and is ours alone.
        unsafe { node.write(Node::new(level, offset)) };
        Ok(NewNode(node))
    }

    pub(super) fn node(&self) -> &Node<E> {
        // SAFETY: the node is ours until it is published or freed, which takes `self`.
        unsafe { self.0.as_ref() }
    }

    pub(super) fn fits(&self, parent: &Node<E>, offset: usize) -> bool {
        self.node().level + 1 == parent.level && usize::from(self.node().offset) == offset
    }

    /// Attaches a node below this one.
    pub(crate) fn adopt(&self, child: NewNode<E>) {
        let offset = usize::from(child.node().offset);
        self.node().lock().adopt(offset, child);
    }

    pub(super) fn as_ptr(&self) -> *mut Node<E> {
        self.0.as_ptr()
    }

    /// Makes it part of a tree, which frees it from then on.
    pub(super) fn leak(self) -> NonNull<Node<E>> {
        std::mem::ManuallyDrop::new(self).0
    }

    /// Frees a node with all below it.
    ///
    /// # Safety
    ///
    /// The pointer must be from [`leak`](NewNode::leak), and no thread can reach the node any more.
    pub(super) unsafe fn free(node: NonNull<Node<E>>) {
        drop(NewNode(node));
    }
}

impl<E: Entry> Drop for NewNode<E> {
    fn drop(&mut self) {
        for slot in &self.node().slots {
            let raw = slot.load(Ordering::Relaxed);
            if let Some(child) = node_in(raw) {
                // SAFETY: it was attached here; once its parent is unreachable, so is it.
                unsafe { NewNode::<E>::free(child) };
            } else if is_entry(raw) {
                // SAFETY: an entry, whose reference is dropped with its slot.
                unsafe { E::drop_raw(settled::<E>(raw)) };
            }
        }
        // SAFETY: allocated with this layout, initialised, and used by nobody else any more.
        unsafe {
            self.0.drop_in_place();
            std::alloc::dealloc(self.0.as_ptr().cast(), Layout::new::<Node<E>>());
        }
    }
}

/// A node that has left the tree. Must be retired, with no lock held.
#[must_use]
pub(crate) struct Dead<E: Entry>(NonNull<Node<E>>);

// SAFETY: entries are `Send`, and nodes may be freed by any thread, which is all that is done.
unsafe impl<E: Entry> Send for Dead<E> {}

impl<E: Entry> Dead<E> {
    /// The pointer must have been in the slot or the root until now.
    pub(super) fn new(node: NonNull<Node<E>>) -> Dead<E> {
        Dead(node)
    }

    /// Frees the node when no thread can be looking at it.
    pub(crate) fn retire(self, pin: &Pin<'_>) {
        // SAFETY: the node is out of the tree, and a `Dead` is made and used once per node. A
        // node that was replaced by its only child still points to it, so it is freed without its
        // children.
        unsafe {
            pin.defer(move || {
                let dead = self;
                dead.0.as_ref().slots[0].store(null_mut(), Ordering::Relaxed);
                NewNode::free(dead.0);
            });
        }
    }
}
