//! Reading many entries under one pin, without touching their counts.

use crate::alloc::AllocError;
use crate::array::XArray;
use crate::entry::Entry;
use crate::epoch::Pin;
use crate::node::offset;

/// A pinned thread, which may look at entries. They live as long as this guard's borrow.
///
/// A guard cannot leave its thread. While it lives, memory that leaves any array is not freed, so
/// never keep a guard while waiting.
pub struct Guard<'a, E: Entry> {
    pub(crate) array: &'a XArray<E>,
    pub(crate) pin: Pin<'a>,
}

impl<E: Entry> XArray<E> {
    /// Pins this thread, so that many reads share the cost of pinning (about 5 ns) and can look at
    /// entries without touching their counts. Nothing that leaves any array is freed before the
    /// guard is dropped or [repinned](Guard::repin). O(1).
    #[inline]
    pub fn pin(&self) -> Guard<'_, E> {
        Guard { array: self, pin: self.domain.pin() }
    }
}

impl<'a, E: Entry> Guard<'a, E> {
    /// Borrows the entry at an index: `&T` for an `Arc<T>`. The entry may leave the array
    /// meanwhile, and this borrow does not prevent [`XArray::remove_if_unused`]. O(height); no
    /// lock, no store.
    ///
    /// ```
    /// # use {shoal_xarray::XArray, std::sync::Arc};
    /// let array = XArray::new();
    /// array.insert(7, Arc::new(String::from("seven")))?;
    /// let guard = array.pin();
    /// let seven: &String = guard.get(7).expect("just inserted");
    /// array.remove(7);
    /// assert_eq!(seven, "seven");
    /// # Ok::<(), shoal_xarray::AllocError>(())
    /// ```
    #[inline]
    pub fn get(&self, index: u64) -> Option<E::Ref<'_>> {
        let leaf = self.array.tree.leaf(index, &self.pin)?;
        leaf.peek(offset(index, 0), &self.pin)
    }

    /// Returns the entry at an index as an additional owner; like [`XArray::get`].
    #[inline]
    pub fn get_owned(&self, index: u64) -> Option<E> {
        let leaf = self.array.tree.leaf(index, &self.pin)?;
        leaf.get(offset(index, 0), &self.pin)
    }

    /// Uses the entry at an index: like [`get_owned`](Guard::get_owned), but counted by the caller,
    /// for instance in its own cache line. `use_it` makes the use from a borrow of the entry. While
    /// a use lives, the predicate passed to [`XArray::remove_if_unused`] must report the entry as
    /// used. Therefore `use_it` must record the use in a word that the predicate reads, and
    /// dropping the use must undo that with release ordering.
    ///
    /// `use_it` may run several times, and its result may be dropped at once. O(height), no lock.
    #[inline]
    pub fn get_as<'g, U>(&'g self, index: u64, use_it: impl Fn(E::Ref<'g>) -> U) -> Option<U> {
        let leaf = self.array.tree.leaf(index, &self.pin)?;
        leaf.get_as(offset(index, 0), &self.pin, use_it)
    }

    /// Stores an entry at an index and returns the previous one, like [`XArray::insert`], for
    /// callers with many entries.
    #[inline]
    pub fn insert(&self, index: u64, entry: E) -> Result<Option<E>, AllocError> {
        self.array.insert_pinned(index, entry, &self.pin)
    }

    /// The array of this guard.
    pub fn array(&self) -> &'a XArray<E> {
        self.array
    }

    /// Unpins, so that memory seen so far can be freed, and pins again. O(1).
    pub fn repin(&mut self) {
        self.pin.repin();
    }
}
