//! A node: 64 slots, three marks for each, and what a writer must know; and the root that holds the
//! topmost one. The unsafe part of the tree is here and in the modules below.
//!
//! # What must hold
//!
//! 1. A slot says itself what it holds (the table in `entry`), so that no reader can take a node
//!    for an entry whatever level it believes to be on. Only a node of level 0 holds entries, only
//!    one above it holds nodes.
//! 2. A node is written by whoever holds its lock, through [`Locked`]. The one exception: a reader
//!    may clear the bit `LEAVING` of a slot ([`Node::get`]).
//! 3. Locks are taken upwards: child, parent, its parent, ..., root. What a parent knows of its
//!    child (that it is there, is full, has marks) and the child's pointer to its parent change
//!    only with both locked.
//! 4. A node that is reachable is not dead, and its parents up to the root are not. It dies once:
//!    taken out of its parent (or the root) while empty, or, as the topmost, replaced by its only
//!    child. It is retired after that, so whoever is pinned and has found it may still look at it.
//! 5. A node's level and its place in its parent never change. A topmost node's place is 0.
//! 6. `present` covers every slot in use: its bit is set before the slot is filled and cleared
//!    after the slot is.

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

/// Bits of the index that a level decides. The model checker gets a smaller tree.
pub(crate) const BITS: u32 = if cfg!(loom) { 2 } else { 6 };
/// Slots of a node.
pub(crate) const FANOUT: usize = 1 << BITS;
/// Levels that reach every index.
pub(crate) const LEVELS: usize = 64_usize.div_ceil(BITS as usize);
/// Marks that an entry has.
pub(crate) const MARKS: usize = 3;
/// A bit for each slot.
const ALL: u64 = u64::MAX >> (64 - FANOUT);
/// Alignment of nodes: the root keeps the level, times [`BITS`], in the bits below.
const ALIGN: usize = 64;

/// Slot of a node of this level in which the index is.
#[inline]
pub(crate) fn offset(index: u64, level: usize) -> usize {
    place(index, level as u32 * BITS)
}

/// The same by the lowest bit of the index that the level decides.
#[inline]
pub(crate) fn place(index: u64, shift: u32) -> usize {
    (index >> shift) as usize % FANOUT
}

/// The last index below the slot of a node of this level that holds `index`.
#[inline]
pub(crate) fn last_below(index: u64, level: usize) -> u64 {
    let bits = level as u32 * BITS;
    if bits >= u64::BITS { u64::MAX } else { index | !(u64::MAX << bits) }
}

/// Whether a topmost node of this level reaches the index.
#[inline]
pub(crate) fn reaches(level: usize, index: u64) -> bool {
    reaches_from(level as u32 * BITS, index)
}

/// The same by the lowest bit of the index that the level decides.
#[inline]
pub(crate) fn reaches_from(shift: u32, index: u64) -> bool {
    index >> shift >> BITS == 0
}

/// A node.
#[repr(C, align(64))]
pub(crate) struct Node<E> {
    lock: Lock,
    /// Reservations that need this leaf to stay.
    pins: AtomicU32,
    level: u8,
    offset: u8,
    dead: AtomicBool,
    entry: PhantomData<E>,
    parent: AtomicPtr<Node<E>>,
    /// Slots in use.
    present: AtomicU64,
    /// A leaf's: slots that are reserved. Another node's: children without a free index.
    taken: AtomicU64,
    /// Slots with an entry that has the mark, here or below.
    marks: [AtomicU64; MARKS],
    slots: [AtomicPtr<()>; FANOUT],
}

#[cfg(all(not(loom), target_pointer_width = "64"))]
const _: () = assert!(size_of::<Node<crate::Value>>() == 64 + 64 * 8);
const _: () =
    assert!((LEVELS - 1) * (BITS as usize) < ALIGN && align_of::<Node<crate::Value>>() == ALIGN);

/// Which slots to look for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Select {
    /// Those in use.
    Present,
    /// Those with this mark.
    Marked(usize),
}

/// What a parent has to know of its child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Summary {
    /// Nothing in it and nobody who needs it.
    pub empty: bool,
    /// No index free.
    full: bool,
    marked: [bool; MARKS],
}

impl Summary {
    /// The same, but for what was known before an entry was put in.
    pub fn with_full(self, full: bool) -> Summary {
        Summary { full, ..self }
    }

    /// Whether the parent has something to do. A leaf that was empty is somebody's who is about to
    /// fill it.
    #[inline]
    pub fn differs(self, before: Summary) -> bool {
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

    /// The node in a slot.
    #[inline]
    pub fn child<'g>(&self, offset: usize, _pin: &'g Pin<'_>) -> Option<&'g Node<E>> {
        node_in(self.slots[offset].load(Ordering::Acquire)).map(|node| {
            // SAFETY: a slot that says it holds a node does (rule 1). The node was reachable after
            // the pin began, because this one was, and is retired later (rule 4), so that it stays
            // as long as the pin.
            unsafe { node.as_ref() }
        })
    }

    /// A look at the entry in a slot, also at one that is leaving.
    #[inline]
    pub fn peek<'g>(&self, offset: usize, _pin: &'g Pin<'_>) -> Option<E::Ref<'g>> {
        let raw = settled::<E>(self.slots[offset].load(Ordering::Acquire));
        // SAFETY: what is neither null nor a node is an entry (rule 1). It was in the slot after
        // the pin began, and the slot's share in it is given back through the epoch.
        is_entry(raw).then(|| unsafe { E::borrow_raw(raw) })
    }

    /// An owned copy of the entry in a slot.
    #[inline]
    pub fn get(&self, offset: usize, _pin: &Pin<'_>) -> Option<E> {
        // SAFETY: an entry, and the slot's share in it is not given back while we are pinned.
        self.share(offset, |raw| unsafe { E::clone_raw(raw) })
    }

    /// A look at the entry in a slot, of which `use_it` makes a use that whoever removes it sees.
    #[inline]
    pub fn get_as<'g, U>(
        &self,
        offset: usize,
        _pin: &'g Pin<'_>,
        use_it: impl Fn(E::Ref<'g>) -> U,
    ) -> Option<U> {
        // SAFETY: as in `get`.
        self.share(offset, |raw| use_it(unsafe { E::borrow_raw(raw) }))
    }

    /// A share in the entry in a slot, which `count` makes and dropping it ends. The other half of
    /// [`Locked::remove_unused`], where the protocol is. The thread is pinned.
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
            // Not the last one: the slot's share is still there.
            drop(share);
            raw = now;
        }
    }

    /// The slots that `select` means, a bit for each. May hold more than there are, never fewer.
    #[inline]
    pub fn slots(&self, select: Select) -> u64 {
        match select {
            Select::Present => self.present.load(Ordering::Acquire),
            Select::Marked(mark) => self.marks[mark].load(Ordering::Acquire),
        }
    }

    /// The slots that are free, or have something free below. May be wrong by the time it is used.
    #[inline]
    pub fn free(&self) -> u64 {
        let used = if self.level == 0 { self.present.load(Ordering::Relaxed) } else { 0 };
        !(used | self.taken.load(Ordering::Relaxed)) & ALL
    }

    /// Takes the lock. The node may be dead then.
    #[inline]
    pub fn lock(&self) -> Locked<'_, E> {
        Locked::new(self, self.lock.lock())
    }
}

/// A slot's content without the bit that only matters while its leaf is locked.
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
    // SAFETY: what says it is a node is a pointer to one, moved by the tag (rule 1). Said twice,
    // or the result would be looked at once more in every lookup.
    unsafe {
        std::hint::assert_unchecked(raw.addr() != NODE);
        Some(NonNull::new_unchecked(node))
    }
}

/// What a slot holds that holds the node. Only to compare with: a slot is filled with the pointer
/// that the allocation returned, because that is what may be freed.
#[inline]
fn slot_of<E>(node: &Node<E>) -> Raw {
    std::ptr::from_ref(node).cast_mut().cast::<()>().wrapping_byte_add(NODE)
}
