//! Reservations (allocate memory now, store the entry later), and allocation of free indexes.

use crate::alloc::AllocError;
use crate::array::XArray;
use crate::entry::Entry;
use crate::epoch::Pin;
use crate::node::{Locked, offset};
use std::fmt;
use std::ops::RangeBounds;

/// The right to store an entry at an index without allocating memory.
///
/// The index looks empty until something is stored there. [`XArray::alloc`] does not allocate it to
/// anybody else; inserting there by index is possible. Dropping the reservation unused releases it.
#[must_use = "a reservation that is dropped is given back"]
pub struct Reservation<'a, E: Entry> {
    array: &'a XArray<E>,
    index: u64,
    /// `false` if another reservation of the same index existed: that one keeps the index from
    /// `alloc`.
    owner: bool,
}

/// The reason why no index was allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IndexError {
    /// All indexes of the range are in use or reserved.
    Full,
    /// No memory for a node.
    Alloc(AllocError),
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexError::Full => f.write_str("no index of the range is free"),
            IndexError::Alloc(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for IndexError {}

impl From<AllocError> for IndexError {
    fn from(error: AllocError) -> IndexError {
        IndexError::Alloc(error)
    }
}

impl<E: Entry> XArray<E> {
    /// Allocates all nodes that an entry at this index needs, or none. O(height), locks the leaf.
    ///
    /// ```
    /// # use {shoal_xarray::XArray, std::sync::Arc};
    /// let array = XArray::new();
    /// let place = array.reserve(1 << 40)?;
    /// assert!(array.is_empty());
    /// place.store(Arc::new(1));
    /// assert_eq!(array.get(1 << 40).as_deref(), Some(&1));
    /// # Ok::<(), shoal_xarray::AllocError>(())
    /// ```
    pub fn reserve(&self, index: u64) -> Result<Reservation<'_, E>, AllocError> {
        let pin = self.domain.pin();
        let leaf = self.tree.lock_or_make(index, &pin)?;
        Ok(self.reserve_in(leaf, index, &pin))
    }

    fn reserve_in(&self, leaf: Locked<'_, E>, index: u64, pin: &Pin<'_>) -> Reservation<'_, E> {
        let before = leaf.summary();
        let owner = leaf.reserve(offset(index, 0));
        self.tree.settle(leaf, before, pin);
        Reservation { array: self, index, owner }
    }

    /// Reserves the lowest index of the range that is neither in use nor reserved: at some moment
    /// of the call, no lower one was free. O(height), and again for each concurrent thread that is
    /// faster.
    pub fn reserve_free(
        &self,
        range: impl RangeBounds<u64>,
    ) -> Result<Reservation<'_, E>, IndexError> {
        let (mut from, to) = crate::iter::limits(range).ok_or(IndexError::Full)?;
        let pin = self.domain.pin();
        loop {
            let index = self.tree.next_free(from, to, &pin).ok_or(IndexError::Full)?;
            let leaf = self.tree.lock_or_make(index, &pin)?;
            if leaf.is_free(offset(index, 0)) {
                return Ok(self.reserve_in(leaf, index, &pin));
            }
            from = index;
        }
    }

    /// Stores an entry at the lowest free index of the range and returns the index. Like
    /// [`reserve_free`](XArray::reserve_free) followed by a store.
    ///
    /// ```
    /// # use {shoal_xarray::{IndexError, XArray}, std::sync::Arc};
    /// let array = XArray::new();
    /// assert_eq!(array.alloc(3..5, Arc::new("a")), Ok(3));
    /// assert_eq!(array.alloc(3..5, Arc::new("b")), Ok(4));
    /// assert_eq!(array.alloc(3..5, Arc::new("c")), Err(IndexError::Full));
    /// ```
    pub fn alloc(&self, range: impl RangeBounds<u64>, entry: E) -> Result<u64, IndexError> {
        let place = self.reserve_free(range)?;
        let index = place.index();
        place.store(entry);
        Ok(index)
    }
}

impl<E: Entry> Reservation<'_, E> {
    /// The index. O(1).
    pub fn index(&self) -> u64 {
        self.index
    }

    /// Stores an entry at the index and returns the previous one (`None` unless others insert there
    /// by index). Cannot fail. O(height), locks the leaf.
    pub fn store(self, entry: E) -> Option<E> {
        let (pin, place) = (self.array.domain.pin(), offset(self.index, 0));
        let leaf = self.leaf(&pin);
        let before = leaf.summary();
        let left = leaf.put(place, entry);
        leaf.release(place, self.owner);
        self.array.tree.settle(leaf, before, &pin);
        std::mem::forget(self);
        left.map(|left| left.into_entry(&pin))
    }

    /// Returns the entry at the index; if there is none, stores and returns `entry`. Cannot fail.
    /// O(height), locks the leaf.
    pub fn get_or_store(self, entry: E) -> E {
        let (pin, place) = (self.array.domain.pin(), offset(self.index, 0));
        let leaf = self.leaf(&pin);
        let before = leaf.summary();
        let here = leaf.entry(place);
        if here.is_none() {
            let nothing = leaf.put(place, entry.clone());
            debug_assert!(nothing.is_none());
        }
        leaf.release(place, self.owner);
        self.array.tree.settle(leaf, before, &pin);
        std::mem::forget(self);
        here.unwrap_or(entry)
    }

    fn leaf<'g>(&self, pin: &'g Pin<'_>) -> Locked<'g, E> {
        self.array.tree.lock(self.index, pin).expect("a reserved leaf stays in the tree")
    }
}

impl<E: Entry> Drop for Reservation<'_, E> {
    fn drop(&mut self) {
        let pin = self.array.domain.pin();
        let leaf = self.leaf(&pin);
        let before = leaf.summary();
        leaf.release(offset(self.index, 0), self.owner);
        self.array.tree.settle(leaf, before, &pin);
    }
}

impl<E: Entry> fmt::Debug for Reservation<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation").field("index", &self.index).finish_non_exhaustive()
    }
}
