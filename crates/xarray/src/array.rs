//! The array: access to one entry at a time, by index.

use crate::alloc::AllocError;
use crate::entry::{Counted, Entry};
use crate::epoch::{Domain, Pin};
use crate::node::{Node, offset};
use crate::tree::Tree;
use std::fmt;
use std::sync::Arc;

/// A map from `u64` to [`Entry`]: a sparse array that uses memory only where it has entries.
///
/// See the [crate's description](crate). All methods take `&self`; share it by reference or `Arc`.
/// *Height* is the number of levels, one for each six bits of the largest index in use: 1 up to 63,
/// 4 up to 16 million, 11 for all.
pub struct XArray<E: Entry> {
    pub(crate) tree: Tree<E>,
    pub(crate) domain: Domain,
}

/// The array did not hold the entry that [`XArray::compare_exchange`] expected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch<E> {
    /// The entry found.
    pub current: Option<E>,
    /// The new entry, returned to the caller.
    pub new: Option<E>,
}

/// The reason why [`XArray::compare_exchange`] changed nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExchangeError<E> {
    /// The array holds a different entry.
    Mismatch(Mismatch<E>),
    /// No memory for a node.
    Alloc(AllocError),
}

impl<E: Entry> Default for XArray<E> {
    fn default() -> XArray<E> {
        XArray::new()
    }
}

impl<E: Entry> XArray<E> {
    /// An empty array. O(1), allocates nothing.
    pub fn new() -> XArray<E> {
        XArray { tree: Tree::new(), domain: Domain::default() }
    }

    /// Returns the entry at an index, as an additional owner. O(height). Takes no lock; the only
    /// shared memory written is the entry's own count.
    ///
    /// ```
    /// # use {shoal_xarray::XArray, std::sync::Arc};
    /// let array = XArray::new();
    /// assert_eq!(array.get(u64::MAX), None);
    /// array.insert(u64::MAX, Arc::new("last"))?;
    /// assert_eq!(array.get(u64::MAX).as_deref(), Some(&"last"));
    /// # Ok::<(), shoal_xarray::AllocError>(())
    /// ```
    #[inline]
    pub fn get(&self, index: u64) -> Option<E> {
        let pin = self.domain.pin();
        let leaf = self.tree.leaf(index, &pin)?;
        leaf.get(offset(index, 0), &pin)
    }

    /// Returns whether there is an entry at an index. O(height), no lock.
    #[inline]
    pub fn contains(&self, index: u64) -> bool {
        self.pin().get(index).is_some()
    }

    /// Returns whether the array has no entries. Usually O(height), no lock.
    pub fn is_empty(&self) -> bool {
        self.pin().range(..).next().is_none()
    }

    /// Stores an entry at an index and returns the previous one; marks are kept. O(height), locks
    /// the leaf. Allocates the missing nodes; if that fails, nothing changes.
    #[inline]
    pub fn insert(&self, index: u64, entry: E) -> Result<Option<E>, AllocError> {
        self.insert_pinned(index, entry, &self.domain.pin())
    }

    #[inline]
    pub(crate) fn insert_pinned(
        &self,
        index: u64,
        entry: E,
        pin: &Pin<'_>,
    ) -> Result<Option<E>, AllocError> {
        let leaf = self.tree.lock_or_make(index, pin)?;
        let was_full = leaf.is_full();
        let left = leaf.put(offset(index, 0), entry);
        self.tree.settle_put(leaf, was_full, pin);
        Ok(left.map(|left| left.into_entry(pin)))
    }

    /// Returns the entry at an index; if there is none, stores and returns `entry`. O(height),
    /// locks the leaf. Allocates the missing nodes; if that fails, nothing changes.
    pub fn get_or_insert(&self, index: u64, entry: E) -> Result<E, AllocError> {
        let pin = self.domain.pin();
        let leaf = self.tree.lock_or_make(index, &pin)?;
        if let Some(here) = leaf.entry(offset(index, 0)) {
            return Ok(here);
        }
        let was_full = leaf.is_full();
        let nothing = leaf.put(offset(index, 0), entry.clone());
        debug_assert!(nothing.is_none());
        self.tree.settle_put(leaf, was_full, &pin);
        Ok(entry)
    }

    /// Returns the entry at an index; if there is none, stores and returns the result of `make`.
    /// `make` runs without a lock, so with several threads its result may be discarded. Otherwise
    /// like [`get_or_insert`](XArray::get_or_insert).
    pub fn get_or_insert_with(
        &self,
        index: u64,
        make: impl FnOnce() -> E,
    ) -> Result<E, AllocError> {
        match self.get(index) {
            Some(here) => Ok(here),
            None => self.get_or_insert(index, make()),
        }
    }

    /// Stores `new` at an index if it holds exactly `current` (the same `Arc`, not an equal one),
    /// and returns the previous entry. O(height), locks the leaf. Allocates only to store an entry
    /// where there is none; if that fails, nothing changes.
    pub fn compare_exchange(
        &self,
        index: u64,
        current: Option<&E>,
        new: Option<E>,
    ) -> Result<Option<E>, ExchangeError<E>> {
        let pin = self.domain.pin();
        let leaf = match (current, &new) {
            (None, Some(_)) => self.tree.lock_or_make(index, &pin).map_err(ExchangeError::Alloc)?,
            _ => match (self.tree.lock(index, &pin), current) {
                (Some(leaf), _) => leaf,
                (None, None) => return Ok(None),
                (None, Some(_)) => {
                    return Err(ExchangeError::Mismatch(Mismatch { current: None, new }));
                }
            },
        };
        let place = offset(index, 0);
        if !leaf.holds(place, current) {
            let current = leaf.entry(place);
            return Err(ExchangeError::Mismatch(Mismatch { current, new }));
        }
        let before = leaf.summary();
        let left = match new {
            Some(new) => leaf.put(place, new),
            None => leaf.take(place),
        };
        self.tree.settle(leaf, before, &pin);
        Ok(left.map(|left| left.into_entry(&pin)))
    }

    /// Removes the entry at an index, with its marks. O(height), locks the leaf; frees nodes that
    /// become empty.
    ///
    /// The array's reference to an `Arc` is dropped when no reader can be looking at it any more.
    /// Until then the strong count is one higher than its final value.
    pub fn remove(&self, index: u64) -> Option<E> {
        self.remove_when(index, |_| true)
    }

    /// Removes the entry at an index if it is still this one (the same `Arc`, not an equal one).
    ///
    /// Prefer this to [`remove`](XArray::remove) if you hold the entry: another one may have been
    /// stored at the index since. btrfs tracks open inodes in an XArray since 2024 (Filipe Manana,
    /// Linux commit 310b2f5d5a94). It erased by key when it evicted an inode, which sometimes
    /// removed the new inode that had reused the slot.
    ///
    /// O(height), locks the leaf.
    pub fn remove_if(&self, index: u64, entry: &E) -> bool {
        let pin = self.domain.pin();
        let Some(leaf) = self.tree.lock(index, &pin) else { return false };
        let place = offset(index, 0);
        if !leaf.holds(place, Some(entry)) {
            return false;
        }
        let before = leaf.summary();
        let left = leaf.take(place);
        self.tree.settle(leaf, before, &pin);
        left.map(|left| left.retire(&pin)).is_some()
    }

    /// Removes the entry at an index if the predicate returns `true`. The predicate runs under the
    /// leaf's lock: it must be short and must not use this array. Readers may still hold the entry;
    /// see [`remove_if_unused`](XArray::remove_if_unused). O(height).
    pub fn remove_when(&self, index: u64, gone: impl FnOnce(E::Ref<'_>) -> bool) -> Option<E> {
        let pin = self.domain.pin();
        let leaf = self.tree.lock(index, &pin)?;
        let place = offset(index, 0);
        if !gone(leaf.look(place)?) {
            return None;
        }
        let before = leaf.summary();
        let left = leaf.take(place);
        self.tree.settle(leaf, before, &pin);
        left.map(|left| left.into_entry(&pin))
    }

    /// Removes the entry at an index if it is still this one, only the array and the caller (by
    /// this one reference) hold it, and `unused` returns `true`. Returns whether it was removed.
    /// O(height), locks the leaf.
    ///
    /// Returns `true` only if no [`get`](XArray::get) that returned the entry still holds it and no
    /// later `get` returns it: a concurrent `get` either keeps the entry in the array or does not
    /// find it. Looks through a [`Guard`](crate::Guard) and weak references do not count. It may
    /// return `false` for transient reasons: a reader was about to increment the count, or the
    /// entry was in an array before and that array's reference is not dropped yet.
    ///
    /// `unused` sees everything that earlier holders did before they dropped their reference. It
    /// runs under the leaf's lock, so it must be short and must not use this array.
    ///
    /// The protocol and its proof are in `node/locked.rs`.
    pub fn remove_if_unused(
        &self,
        index: u64,
        entry: &E,
        unused: impl FnOnce(E::Ref<'_>) -> bool,
    ) -> bool
    where
        E: Counted,
    {
        let pin = self.domain.pin();
        let Some(leaf) = self.tree.lock(index, &pin) else { return false };
        let before = leaf.summary();
        let left = leaf.remove_unused(offset(index, 0), entry, unused);
        self.tree.settle(leaf, before, &pin);
        left.map(|left| left.retire(&pin)).is_some()
    }

    /// Removes all entries. O(nodes).
    pub fn clear(&mut self) {
        self.tree = Tree::new();
    }

    /// Returns the bytes of all nodes, without the entries themselves. O(nodes); for statistics.
    ///
    /// A node has 64 slots and takes 576 bytes. With dense indexes an entry takes 9.2 bytes, all
    /// levels included; if no two entries share a leaf, 576 bytes or more.
    pub fn memory_bytes(&self) -> usize {
        self.tree.count_nodes(&self.domain.pin()) * size_of::<Node<E>>()
    }
}

impl<T: Send + Sync + 'static> XArray<Arc<T>> {
    /// [`get`](XArray::get) with the return type spelled out.
    #[inline]
    pub fn get_arc(&self, index: u64) -> Option<Arc<T>> {
        self.get(index)
    }
}

impl<E: Entry + fmt::Debug> fmt::Debug for XArray<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}
