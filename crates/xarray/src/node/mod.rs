//! A node (64 slots, three marks for each, and the state that writers need), and the root, which
//! points to the topmost node. The unsafe code of the tree is here and in the modules below.
//!
//! # Invariants
//!
//! 1. A slot itself says what it holds (the table in `entry`), so no reader can mistake a node for
//!    an entry, whatever level it believes it is on. Only nodes of level 0 hold entries; only nodes
//!    above hold nodes.
//! 2. A node is written only by the holder of its lock, through [`Locked`]. One exception: a reader
//!    may clear the bit `LEAVING` of a slot ([`Node::get`]).
//! 3. Locks are taken upwards: child, parent, its parent, ..., root. The parent's state of a child
//!    (present, full, marks) and the child's pointer to its parent change only while both are
//!    locked.
//! 4. A reachable node is not dead, nor are its parents up to the root. A node dies once: it is
//!    removed from its parent (or the root) while empty, or, as the topmost node, replaced by its
//!    only child. It is retired after that, so a pinned thread that has found it may still look at
//!    it.
//! 5. A node's level and its slot in its parent never change. The slot of a topmost node is 0.
//! 6. `present` covers every slot in use: its bit is set before the slot is filled and cleared
//!    after the slot is emptied.

mod locked;
mod owned;
mod root;

pub(crate) use locked::Locked;
pub(crate) use owned::{Dead, NewNode};
pub(crate) use root::Root;

use crate::entry::{Entry, LEAVING, NODE, Raw};
use crate::epoch::Pin;
use crate::sync::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Lock, Ordering, fence};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// Bits of the index that one level decodes. The model checker gets a smaller tree.
pub(crate) const BITS: u32 = if cfg!(feature = "loom") { 2 } else { 6 };
/// Slots of a node.
pub(crate) const FANOUT: usize = 1 << BITS;
/// Number of levels that reach every index.
pub(crate) const LEVELS: usize = 64_usize.div_ceil(BITS as usize);
/// Number of marks of an entry.
pub(crate) const MARKS: usize = 3;
/// A bit for each slot.
const ALL: u64 = u64::MAX >> (64 - FANOUT);
/// Alignment of nodes. The root stores the level, times [`BITS`], in the low bits.
const ALIGN: usize = 64;

/// The slot that contains the index in a node of this level.
#[inline]
pub(crate) fn offset(index: u64, level: usize) -> usize {
    place(index, level as u32 * BITS)
}

/// The same, given the lowest index bit that the level decodes.
#[inline]
pub(crate) fn place(index: u64, shift: u32) -> usize {
    (index >> shift) as usize % FANOUT
}

/// The last index below the slot of a node of this level that contains `index`.
#[inline]
pub(crate) fn last_below(index: u64, level: usize) -> u64 {
    let bits = level as u32 * BITS;
    if bits >= u64::BITS { u64::MAX } else { index | !(u64::MAX << bits) }
}

/// Returns whether a topmost node of this level reaches the index.
#[inline]
pub(crate) fn reaches(level: usize, index: u64) -> bool {
    reaches_from(level as u32 * BITS, index)
}

/// The same, given the lowest index bit that the level decodes.
#[inline]
pub(crate) fn reaches_from(shift: u32, index: u64) -> bool {
    index >> shift >> BITS == 0
}

/// A node.
#[repr(C, align(64))]
pub(crate) struct Node<E> {
    lock: Lock,
    /// Number of reservations that need this leaf to stay.
    pins: AtomicU32,
    level: u8,
    offset: u8,
    dead: AtomicBool,
    entry: PhantomData<E>,
    parent: AtomicPtr<Node<E>>,
    /// Slots in use, a bit for each.
    present: AtomicU64,
    /// In a leaf: reserved slots. Above: children without a free index.
    taken: AtomicU64,
    /// Slots with a marked entry, in the slot itself or below it.
    marks: [AtomicU64; MARKS],
    slots: [AtomicPtr<()>; FANOUT],
}

#[cfg(all(not(feature = "loom"), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Node<crate::Value>>() == 64 + 64 * 8);
const _: () =
    assert!((LEVELS - 1) * (BITS as usize) < ALIGN && align_of::<Node<crate::Value>>() == ALIGN);

/// The slots to search for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Select {
    /// Slots in use.
    Present,
    /// Slots with this mark.
    Marked(usize),
}

/// The state of a child that its parent must know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Summary {
    /// It holds nothing and has no reservations.
    pub empty: bool,
    /// It has no free index.
    full: bool,
    marked: [bool; MARKS],
}

impl Summary {
    /// Replaces `full`, for the state before an entry was stored.
    pub(crate) fn with_full(self, full: bool) -> Summary {
        Summary { full, ..self }
    }

    /// Returns whether the parent must be updated. A leaf that was already empty belongs to a
    /// thread that is about to fill it.
    #[inline]
    pub(crate) fn differs(self, before: Summary) -> bool {
        self.empty && !before.empty || self.full != before.full || self.marked != before.marked
    }
}

impl<E: Entry> Node<E> {
    fn new(level: usize, offset: usize) -> Node<E> {
        Node {
            lock: Lock::default(),
            pins: AtomicU32::new(0),
            level: level as u8,
            offset: offset as u8,
            dead: AtomicBool::new(false),
            entry: PhantomData,
            parent: AtomicPtr::new(null_mut()),
            present: AtomicU64::new(0),
            taken: AtomicU64::new(0),
            marks: std::array::from_fn(|_| AtomicU64::new(0)),
            slots: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
        }
    }

    /// Returns the node in a slot.
    #[inline]
    pub(crate) fn child<'g>(&self, offset: usize, _pin: &'g Pin<'_>) -> Option<&'g Node<E>> {
        node_in(self.slots[offset].load(Ordering::Acquire)).map(|node| {
            // SAFETY: a slot that says it holds a node does (rule 1). The node was reachable
            // after the pin began, because this one was, and is retired later (rule 4), so it lives
            // as long as the pin.
            unsafe { node.as_ref() }
        })
    }

    /// Borrows the entry in a slot, also while it has `LEAVING`.
    #[inline]
    pub(crate) fn peek<'g>(&self, offset: usize, _pin: &'g Pin<'_>) -> Option<E::Ref<'g>> {
        let raw = settled::<E>(self.slots[offset].load(Ordering::Acquire));
        // SAFETY: a value that is neither null nor a node is an entry (rule 1). It was in the
        // slot after the pin began, and the slot's reference is dropped through the epoch.
        is_entry(raw).then(|| unsafe { E::borrow_raw(raw) })
    }

    /// Returns an owned copy of the entry in a slot.
    #[inline]
    pub(crate) fn get(&self, offset: usize, _pin: &Pin<'_>) -> Option<E> {
        // SAFETY: an entry, and the slot's reference is not dropped while we are pinned.
        self.share(offset, |raw| unsafe { E::clone_raw(raw) })
    }

    /// Returns a use of the entry in a slot, made by `use_it`, that a remover is guaranteed to see.
    #[inline]
    pub(crate) fn get_as<'g, U>(
        &self,
        offset: usize,
        _pin: &'g Pin<'_>,
        use_it: impl Fn(E::Ref<'g>) -> U,
    ) -> Option<U> {
        // SAFETY: as in `get`.
        self.share(offset, |raw| use_it(unsafe { E::borrow_raw(raw) }))
    }

    /// Returns a share of the entry in a slot. `count` makes it; dropping it ends it. The reader's
    /// half of the protocol of [`Locked::remove_unused`]. The thread must be pinned.
    #[inline]
    fn share<U>(&self, offset: usize, count: impl Fn(Raw) -> U) -> Option<U> {
        let slot = &self.slots[offset];
        let mut raw = slot.load(Ordering::Acquire);
        loop {
            if !is_entry(raw) {
                return None;
            }
            let stays = settled::<E>(raw);
            if raw != stays {
                let rescue = slot.compare_exchange(raw, stays, Ordering::AcqRel, Ordering::Acquire);
                if let Err(now) = rescue {
                    raw = now;
                    continue;
                }
                raw = stays;
            }
            let share = count(raw);
            if !E::COUNTED {
                return Some(share);
            }
            fence(Ordering::SeqCst);
            let now = slot.load(Ordering::Acquire);
            if now == raw {
                return Some(share);
            }
            // Never the last share: the slot's reference still exists.
            drop(share);
            raw = now;
        }
    }

    /// The slots that match `select`, a bit for each. May contain too many, never too few.
    #[inline]
    pub(crate) fn slots(&self, select: Select) -> u64 {
        match select {
            Select::Present => self.present.load(Ordering::Acquire),
            Select::Marked(mark) => self.marks[mark].load(Ordering::Acquire),
        }
    }

    /// The slots that are free or have a free index below. A hint: it may be outdated at once.
    #[inline]
    pub(crate) fn free(&self) -> u64 {
        let used = if self.level == 0 { self.present.load(Ordering::Relaxed) } else { 0 };
        !(used | self.taken.load(Ordering::Relaxed)) & ALL
    }

    /// Takes the lock. The node may be dead by then.
    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_, E> {
        Locked::new(self, self.lock.lock())
    }
}

/// The slot's content without `LEAVING`, which matters only while the leaf is locked.
#[inline]
fn settled<E: Entry>(raw: Raw) -> Raw {
    if E::COUNTED { raw.map_addr(|addr| addr & !LEAVING) } else { raw }
}

#[inline]
fn is_entry(raw: Raw) -> bool {
    !raw.is_null() && raw.addr() & NODE == 0
}

#[inline]
fn node_in<E: Entry>(raw: Raw) -> Option<NonNull<Node<E>>> {
    if raw.addr() & NODE == 0 {
        return None;
    }
    let node = raw.wrapping_byte_sub(NODE).cast();
    // SAFETY: a value tagged as a node is a pointer to one, offset by the tag (rule 1). Asserted
    // twice, otherwise every lookup would check the result for null again.
    unsafe {
        std::hint::assert_unchecked(raw.addr() != NODE);
        Some(NonNull::new_unchecked(node))
    }
}

/// The content of a slot that holds the node. Only for comparisons: a slot is filled with the
/// pointer returned by the allocation, because only that may be freed.
#[inline]
fn slot_of<E>(node: &Node<E>) -> Raw {
    std::ptr::from_ref(node).cast_mut().cast::<()>().wrapping_byte_add(NODE)
}
