//! The root: the pointer to the topmost node.

use super::{ALIGN, BITS, Dead, Locked, NewNode, Node, slot_of};
use crate::entry::{Entry, NODE, Raw};
use crate::epoch::Pin;
use crate::sync::{AtomicPtr, Ordering};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// The pointer to the topmost node, with its level (times [`BITS`]) in the low bits. Changed with
/// that node locked or, while there is none, by compare and swap.
pub(crate) struct Root<E: Entry>(AtomicPtr<()>, PhantomData<E>);

impl<E: Entry> Root<E> {
    /// A root without a node.
    pub(crate) fn new() -> Root<E> {
        Root(AtomicPtr::new(null_mut()), PhantomData)
    }

    /// The topmost node and its level.
    #[inline]
    pub(crate) fn load<'g>(&self, pin: &'g Pin<'_>) -> Option<(&'g Node<E>, usize)> {
        self.top(pin).map(|(node, shift)| (node, (shift / BITS) as usize))
    }

    /// The topmost node and the lowest index bit that its level decodes.
    #[inline]
    pub(crate) fn top<'g>(&self, _pin: &'g Pin<'_>) -> Option<(&'g Node<E>, u32)> {
        let raw = self.0.load(Ordering::Acquire);
        let tag = raw.addr() % ALIGN;
        // SAFETY: the root holds null or a node, which was reachable after the pin began.
        let node = unsafe { raw.wrapping_byte_sub(tag).cast::<Node<E>>().as_ref() };
        node.map(|node| (node, tag as u32))
    }

    /// Returns whether this is the topmost node.
    pub(crate) fn is(&self, node: &Locked<'_, E>) -> bool {
        let raw = std::ptr::from_ref(node.node).cast_mut().cast::<()>();
        self.0.load(Ordering::Relaxed) == raw.wrapping_byte_add(tag(node.node))
    }

    /// Sets the first node. Does nothing if there already is one.
    pub(crate) fn plant(&self, node: NewNode<E>) {
        let raw = pointer(&node);
        let (ok, no) = (Ordering::Release, Ordering::Relaxed);
        if self.0.compare_exchange(null_mut(), raw, ok, no).is_ok() {
            node.leak();
        }
    }

    /// Puts a spine of nodes, each the first child of the one above, on top of the topmost node,
    /// which is locked.
    pub(crate) fn raise(&self, top: &Locked<'_, E>, spine: NewNode<E>, pin: &Pin<'_>) {
        assert!(self.is(top) && top.offset() == 0 && top.node.level < spine.node().level);
        let raw = self.0.load(Ordering::Relaxed);
        let below = raw.wrapping_byte_sub(tag(top.node)).wrapping_byte_add(NODE);
        let mut node = Some(spine.node());
        while let Some(each) = node.filter(|node| node.level > top.node.level) {
            each.lock().adopt_top(top, below);
            node = each.child(0, pin);
        }
        let raw = pointer(&spine);
        spine.leak();
        self.0.store(raw, Ordering::Release);
    }

    /// Makes the only child of the topmost node the new topmost node; both are locked.
    pub(crate) fn lower(&self, top: &Locked<'_, E>, child: &Locked<'_, E>) -> Option<Dead<E>> {
        let below = top.raw(0);
        assert!(self.is(top) && top.has_only_first_child() && below == slot_of(child.node));
        let raw = below.wrapping_byte_sub(NODE).wrapping_byte_add(tag(child.node));
        child.node.parent.store(null_mut(), Ordering::Relaxed);
        self.replace(top, raw)
    }

    /// Removes the topmost node, which is locked and empty.
    pub(crate) fn clear(&self, top: &Locked<'_, E>) -> Option<Dead<E>> {
        assert!(self.is(top) && top.summary().empty);
        self.replace(top, null_mut())
    }

    fn replace(&self, top: &Locked<'_, E>, raw: Raw) -> Option<Dead<E>> {
        let before = self.0.load(Ordering::Relaxed);
        self.0.store(raw, Ordering::Release);
        top.die();
        node_at(before).map(Dead::new)
    }
}

fn pointer<E: Entry>(node: &NewNode<E>) -> Raw {
    node.as_ptr().cast::<()>().wrapping_byte_add(tag(node.node()))
}

/// The low bits of the root for a node.
fn tag<E>(node: &Node<E>) -> usize {
    usize::from(node.level) * BITS as usize
}

fn node_at<E>(raw: Raw) -> Option<NonNull<Node<E>>> {
    NonNull::new(raw.wrapping_byte_sub(raw.addr() % ALIGN).cast())
}

impl<E: Entry> Drop for Root<E> {
    fn drop(&mut self) {
        if let Some(node) = node_at::<E>(self.0.load(Ordering::Relaxed)) {
            // SAFETY: only a borrower of the array could look at the tree, and there is none.
            unsafe { NewNode::free(node) };
        }
    }
}
