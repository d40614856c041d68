//! Writing to a node: the operations that require its lock.

use super::{Dead, MARKS, NewNode, Node, Summary, is_entry, node_in, slot_of};
use crate::entry::{Counted, Entry, LEAVING, NODE, Raw};
use crate::epoch::Pin;
use crate::sync::{AtomicPtr, AtomicU64, LockGuard, Ordering, fence};
use std::marker::PhantomData;
use std::ptr::null_mut;

/// A node whose lock is held.
pub(crate) struct Locked<'g, E> {
    pub(super) node: &'g Node<E>,
    _lock: LockGuard<'g>,
}

impl<'g, E: Entry> Locked<'g, E> {
    pub(super) fn new(node: &'g Node<E>, lock: LockGuard<'g>) -> Locked<'g, E> {
        Locked { node, _lock: lock }
    }

    #[inline]
    fn get(&self, field: &AtomicU64) -> u64 {
        field.load(Ordering::Relaxed)
    }

    /// Uses release ordering: a thread that sees the bit sees everything written before it.
    #[inline]
    fn set(&self, field: &AtomicU64, offset: usize, on: bool) {
        let bits = field.load(Ordering::Relaxed);
        let bit = 1 << offset;
        let bits = if on { bits | bit } else { bits & !bit };
        field.store(bits, Ordering::Release);
    }

    /// Returns whether the node has left the tree. The caller must then search again.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        self.node.dead.load(Ordering::Relaxed)
    }

    /// Its slot number in its parent.
    pub(crate) fn offset(&self) -> usize {
        usize::from(self.node.offset)
    }

    /// The parent; `None` for the topmost node.
    pub(crate) fn parent(&self, _pin: &'g Pin<'_>) -> Option<&'g Node<E>> {
        // SAFETY: a node's parent lives as long as the node is in the tree, and the pointer
        // changes only under the lock that we hold. Every parent since we found this node was
        // reachable after our pin began, so it lives as long as the pin (rules 3 and 4).
        unsafe { self.node.parent.load(Ordering::Relaxed).as_ref() }
    }

    /// The state that the parent must know.
    #[inline]
    pub(crate) fn summary(&self) -> Summary {
        let present = self.get(&self.node.present);
        Summary {
            empty: present == 0 && self.node.pins.load(Ordering::Relaxed) == 0,
            full: self.is_full(),
            marked: std::array::from_fn(|mark| self.get(&self.node.marks[mark]) != 0),
        }
    }

    /// Returns whether it has no free index.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.node.free() == 0
    }

    /// Returns whether its only child is the first one, so that the child could become the topmost
    /// node.
    pub(crate) fn has_only_first_child(&self) -> bool {
        self.node.level > 0 && self.get(&self.node.present) == 1
    }

    /// Returns the entry in a slot.
    #[inline]
    pub(crate) fn entry(&self, offset: usize) -> Option<E> {
        let raw = self.raw(offset);
        // SAFETY: the entry is in the slot and cannot leave it before we unlock.
        is_entry(raw).then(|| unsafe { E::clone_raw(raw) })
    }

    /// Borrows the entry in a slot.
    #[inline]
    pub(crate) fn look(&self, offset: usize) -> Option<E::Ref<'_>> {
        let raw = self.raw(offset);
        // SAFETY: the entry is in the slot and cannot leave it before we unlock, which ends the
        // borrow.
        is_entry(raw).then(|| unsafe { E::borrow_raw(raw) })
    }

    /// Returns whether the slot holds exactly this entry, or nothing if `entry` is `None`.
    #[inline]
    pub(crate) fn holds(&self, offset: usize, entry: Option<&E>) -> bool {
        self.raw(offset) == entry.map_or(null_mut(), E::as_raw)
    }

    #[inline]
    pub(super) fn raw(&self, offset: usize) -> Raw {
        self.node.slots[offset].load(Ordering::Relaxed)
    }

    /// Stores an entry in a leaf's slot and returns the previous one. The marks are kept.
    #[inline]
    pub(crate) fn put(&self, offset: usize, entry: E) -> Option<Left<E>> {
        assert!(self.node.level == 0, "an entry in a node above the leaves");
        let before = self.raw(offset);
        self.set(&self.node.present, offset, true);
        self.node.slots[offset].store(entry.into_raw(), Ordering::Release);
        is_entry(before).then_some(Left(before, PhantomData))
    }

    /// Removes an entry from its slot, with its marks.
    #[inline]
    pub(crate) fn take(&self, offset: usize) -> Option<Left<E>> {
        let before = self.raw(offset);
        if !is_entry(before) {
            return None;
        }
        self.node.slots[offset].store(null_mut(), Ordering::Release);
        self.forget(offset);
        Some(Left(before, PhantomData))
    }

    #[inline]
    fn forget(&self, offset: usize) {
        self.set(&self.node.present, offset, false);
        for mark in 0..MARKS {
            self.set_mark(offset, mark, false);
        }
    }

    /// Returns whether the entry has the mark.
    #[inline]
    pub(crate) fn mark(&self, offset: usize, mark: usize) -> bool {
        self.get(&self.node.marks[mark]) >> offset & 1 == 1
    }

    /// Sets or clears a mark.
    #[inline]
    pub(crate) fn set_mark(&self, offset: usize, mark: usize, on: bool) {
        if self.mark(offset, mark) != on {
            self.set(&self.node.marks[mark], offset, on);
        }
    }

    /// Keeps the leaf in the tree until [`release`](Locked::release). Returns whether the index is
    /// now reserved for the caller; `false` if it already was for somebody else.
    pub(crate) fn reserve(&self, offset: usize) -> bool {
        self.node.pins.fetch_add(1, Ordering::Relaxed);
        let owner = self.get(&self.node.taken) >> offset & 1 == 0;
        self.set(&self.node.taken, offset, true);
        owner
    }

    /// Ends a reservation.
    pub(crate) fn release(&self, offset: usize, owner: bool) {
        let pins = self.node.pins.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(pins > 0, "a reservation ends once");
        if owner {
            self.set(&self.node.taken, offset, false);
        }
    }

    /// Returns whether a leaf's slot is neither in use nor reserved.
    pub(crate) fn is_free(&self, offset: usize) -> bool {
        self.node.free() >> offset & 1 == 1
    }

    /// Returns whether a slot is empty.
    pub(crate) fn is_vacant(&self, offset: usize) -> bool {
        self.raw(offset).is_null()
    }

    /// Attaches a node, with all below it, to an empty slot.
    pub(crate) fn adopt(&self, offset: usize, child: NewNode<E>) {
        assert!(self.raw(offset).is_null() && child.fits(self.node, offset), "a place is taken");
        self.set(&self.node.present, offset, true);
        child.node().parent.store(std::ptr::from_ref(self.node).cast_mut(), Ordering::Relaxed);
        let raw = child.leak().as_ptr().cast::<()>().wrapping_byte_add(NODE);
        self.node.slots[offset].store(raw, Ordering::Release);
    }

    /// Records the state of a child, which is locked. Removes the child if it is empty.
    pub(crate) fn note(&self, child: &Locked<'_, E>, summary: Summary) -> Option<Dead<E>> {
        let offset = child.offset();
        let raw = self.raw(offset);
        assert!(raw == slot_of(child.node), "a child that is another's");
        self.know(offset, summary);
        if !summary.empty {
            return None;
        }
        self.node.slots[offset].store(null_mut(), Ordering::Release);
        self.set(&self.node.present, offset, false);
        child.die();
        node_in(raw).map(Dead::new)
    }

    fn know(&self, offset: usize, summary: Summary) {
        self.set(&self.node.taken, offset, summary.full);
        for (mark, on) in summary.marked.into_iter().enumerate() {
            self.set_mark(offset, mark, on);
        }
    }

    /// Attaches the former topmost node below this one, which is part of an unpublished spine.
    pub(super) fn adopt_top(&self, top: &Locked<'_, E>, raw: Raw) {
        let summary = top.summary();
        if self.node.level == top.node.level + 1 {
            self.set(&self.node.present, 0, true);
            self.node.slots[0].store(raw, Ordering::Relaxed);
            self.know(0, summary);
            top.node.parent.store(std::ptr::from_ref(self.node).cast_mut(), Ordering::Relaxed);
        } else {
            self.know(0, Summary { full: false, ..summary });
        }
    }

    pub(super) fn die(&self) {
        debug_assert!(!self.is_dead(), "a node dies once");
        self.node.dead.store(true, Ordering::Relaxed);
    }
}

impl<E: Counted> Locked<'_, E> {
    /// Removes an entry from its slot if only this array and the caller hold it and `unused`
    /// returns `true`.
    ///
    /// # Protocol
    ///
    /// A reader that has loaded the slot but has not yet incremented the count must not be missed.
    ///
    /// ```text
    /// remover (leaf locked)                     reader (Node::get, no lock)
    /// remover (leaf locked)                     reader (Node::get, no lock) m1  slot = entry |
    /// LEAVING                r1  raw = slot; if LEAVING: clear it by CAS, or retry m2
    /// fence(SeqCst)                         r2  count += 1 m3  count == 2 and unused(entry)?
    /// r3  fence(SeqCst) m4  yes: CAS slot, entry|LEAVING -> null  r4  slot == raw: the reader has
    /// the entry no, or the CAS fails:                     else count -= 1, r1 again with the
    /// current value CAS entry|LEAVING -> entry, stays
    ///
    /// *A reader that gets the entry at r4 keeps it in the array.* Consider the store that r4 read
    /// from. If it is older than m1, then r4 precedes m1 in the modification order of the slot, so
    /// the fence r3 precedes the fence m2 in the total order of fences (otherwise r4 would have to
    /// see m1). So m3 sees r2, and the count is at least three: array, caller, reader. If it is
    /// newer than m1, then LEAVING has been cleared since m1, by a reader, or by the remover
    /// because it gave up; no other thread sets it while the leaf is locked. So the CAS m4 fails.
    /// If it is newer than m4, somebody stored the entry again, and this proof applies to its next
    /// removal.
    ///
    /// *Nobody waits.* A reader that sees LEAVING does not wait for the decision, it clears the
    /// bit. Each further round of the reader is caused by another removal that was started. A
    /// remover makes one attempt.
    ///
    /// *Counting is safe.* Between r1 and r2 the entry may have left the slot. The slot's reference
    /// is dropped through the epoch, and the reader is pinned.
    ///
    /// `unused` sees everything that former holders did: they dropped their reference with release
    /// ordering, and the fence after m3 acquires.
    pub(crate) fn remove_unused(
        &self,
        offset: usize,
        entry: &E,
        unused: impl FnOnce(E::Ref<'_>) -> bool,
    ) -> Option<Left<E>> {
        /// Restores the slot, also if `unused` panics.
        struct Stays<'a>(&'a AtomicPtr<()>, Raw);
        impl Drop for Stays<'_> {
            fn drop(&mut self) {
                let leaving = self.1.map_addr(|addr| addr | LEAVING);
                let (ok, no) = (Ordering::AcqRel, Ordering::Relaxed);
                // If this fails, a reader has already cleared the bit.
                let _ = self.0.compare_exchange(leaving, self.1, ok, no);
            }
        }

        if !self.holds(offset, Some(entry)) {
            return None;
        }
        let (slot, raw) = (&self.node.slots[offset], entry.as_raw());
        let leaving = raw.map_addr(|addr| addr | LEAVING);
        slot.store(leaving, Ordering::Release);
        let stays = Stays(slot, raw);
        fence(Ordering::SeqCst);
        if entry.holders() != 2 {
            return None;
        }
        fence(Ordering::Acquire);
        if !unused(entry.look()) {
            return None;
        }
        slot.compare_exchange(leaving, null_mut(), Ordering::AcqRel, Ordering::Relaxed).ok()?;
        std::mem::forget(stays);
        self.forget(offset);
        Some(Left(raw, PhantomData))
    }
}

/// An entry that has left its slot. Must be released when no lock is held.
#[must_use]
pub(crate) struct Left<E: Entry>(Raw, PhantomData<E>);

impl<E: Entry> Left<E> {
    /// Returns an owned copy. The slot's reference is dropped when no reader can be looking at it.
    #[inline]
    pub(crate) fn into_entry(self, pin: &Pin<'_>) -> E {
        // SAFETY: it has just left the slot, and the slot's reference is dropped only below.
        let owned = unsafe { E::clone_raw(self.0) };
        self.retire(pin);
        owned
    }

    /// Drops the slot's reference when no reader can be looking at it.
    #[inline]
    pub(crate) fn retire(self, pin: &Pin<'_>) {
        /// Entries may be dropped by any thread.
        struct Share(Raw);
        // SAFETY: `Entry` is `Send`, and `drop_raw` needs nothing else.
        unsafe impl Send for Share {}

        if !E::COUNTED {
            return;
        }
        let share = Share(self.0);
        // SAFETY: no slot holds the entry any more, and a `Left` is used once.
        unsafe {
            pin.defer(move || {
                let share = share;
                E::drop_raw(share.0);
            });
        }
    }
}
