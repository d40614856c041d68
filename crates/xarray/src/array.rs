//! The array: one entry at a time, by index.

use crate::alloc::AllocError;
use crate::entry::{Counted, Entry};
use crate::epoch::{Domain, Pin};
use crate::guard::Guard;
use crate::node::{Node, offset};
use crate::tree::Tree;
use std::fmt;
use std::sync::Arc;

/// A map from `u64` to [`Entry`]: an array that takes memory where it has entries.
///
/// See the [crate's description](crate). All methods take `&self`; share it by reference or `Arc`.
/// *Height* is the number of levels, one for each six bits of the largest index in use: 1 up to 63,
/// 4 up to 16 million, 11 for all.
pub struct XArray<E: Entry> {
    pub(crate) tree: Tree<E>,
    pub(crate) domain: Domain,
}

/// The array held something else than [`XArray::compare_exchange`] was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch<E> {
    /// What it held.
    pub current: Option<E>,
    /// What was to be put in, given back.
    pub new: Option<E>,
}

/// Why [`XArray::compare_exchange`] has changed nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExchangeError<E> {
    /// The array holds something else.
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

    /// Pins this thread, so that many reads share the cost of it (some 5 ns) and can look at
    /// entries without counting themselves. What leaves any array meanwhile is not freed before the
    /// guard is dropped, or [repinned](Guard::repin). O(1).
    #[inline]
    pub fn pin(&self) -> Guard<'_, E> {
        Guard { array: self, pin: self.domain.pin() }
    }

    /// The entry at an index, as one more owner of it. O(height); no lock, and no store to memory
    /// that other threads use but the entry's own count.
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

    /// Whether there is an entry at an index. O(height), no lock.
    #[inline]
    pub fn contains(&self, index: u64) -> bool {
        self.pin().get(index).is_some()
    }

    /// Whether there is no entry at all. O(height) mostly, no lock.
    pub fn is_empty(&self) -> bool {
        self.pin().range(..).next().is_none()
    }

    /// Puts an entry at an index and returns what was there; the marks stay. O(height), locks the
    /// leaf; allocates the nodes that are missing, and if it cannot, changes nothing.
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

    /// What the array holds at an index, which is `entry` if it held nothing. O(height), locks the
    /// leaf; allocates the nodes that are missing, and if it cannot, changes nothing.
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

    /// What the array holds at an index; if it holds nothing, what `make` returns. `make` runs
    /// without a lock, so with several threads it may run in vain. Otherwise like
    /// [`get_or_insert`](XArray::get_or_insert).
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

    /// Puts `new` at an index if it holds exactly `current` (the same `Arc`, not an equal one), and
    /// returns what was there. O(height), locks the leaf. Allocates only to put an entry where
    /// there is none; if it cannot, changes nothing.
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

    /// Takes out whatever is at an index, with its marks. O(height), locks the leaf; frees nodes
    /// that are empty then.
    ///
    /// The array's share in an `Arc` goes when no reader can be looking at it any more: until then
    /// its strong count is one more than it will be.
    pub fn remove(&self, index: u64) -> Option<E> {
        self.remove_when(index, |_| true)
    }

    /// Takes out the entry at an index if it still is this one (the same `Arc`, not an equal one).
    ///
    /// To be preferred to [`remove`](XArray::remove) by whoever holds an entry and wants it gone:
    /// another one may have come to the index since. btrfs, which tracks open inodes in an XArray
    /// since 2024 (Filipe Manana, Linux commit 310b2f5d5a94), erased by key when it evicted an
    /// inode, and later found that this took out the new inode that had reused the slot.
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

    /// Takes out the entry at an index if the predicate says so, which runs under the leaf's lock:
    /// it must be short and must not use this array. Readers may hold the entry nevertheless; see
    /// [`remove_if_unused`](XArray::remove_if_unused). O(height).
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

    /// Takes out the entry at an index if it still is this one, nobody holds it but the array and
    /// the caller, by this one reference, and `unused` agrees. Whether it did. O(height), locks the
    /// leaf.
    ///
    /// It is true only if no [`get`](XArray::get) that returned the entry still has it, and no
    /// later one returns it: a `get` at the same time either keeps the entry in the array or does
    /// not find it. What a [`Guard`] looks at does not count, nor do weak references. It may be
    /// false for other passing reasons: somebody was about to count himself, or the entry was in
    /// an array before, and that array's share waits for readers.
    ///
    /// `unused` sees what earlier holders did before they let go. It runs under the leaf's lock, so
    /// it must be short and must not use this array.
    ///
    /// The protocol is described, with the argument for it, in `node/locked.rs`.
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

    /// Takes out everything. O(nodes).
    pub fn clear(&mut self) {
        self.tree = Tree::new();
    }

    /// Bytes of all nodes, without the entries themselves. O(nodes); for statistics.
    ///
    /// A node has 64 slots and takes 576 bytes: 9.2 bytes for an entry if indexes are dense, with
    /// all levels; 576 and more if no two entries share a leaf.
    pub fn memory_bytes(&self) -> usize {
        self.tree.count_nodes(&self.domain.pin()) * size_of::<Node<E>>()
    }
}

impl<T: Send + Sync + 'static> XArray<Arc<T>> {
    /// [`get`](XArray::get) by a name that says what comes.
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
