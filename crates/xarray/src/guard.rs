//! Using many entries while pinned once; reading without counting.

use crate::alloc::AllocError;
use crate::array::XArray;
use crate::entry::Entry;
use crate::epoch::Pin;
use crate::node::offset;

/// A thread that is pinned, and may look at entries: they live as long as this guard's borrow.
///
/// It stays with its thread. While it lives, memory that leaves any array is not freed: do not keep
/// one while waiting for something.
pub struct Guard<'a, E: Entry> {
    pub(crate) array: &'a XArray<E>,
    pub(crate) pin: Pin<'a>,
}

impl<'a, E: Entry> Guard<'a, E> {
    /// A look at the entry at an index: `&T` for an `Arc<T>`. It may leave the array meanwhile, and
    /// this look does not keep [`XArray::remove_if_unused`] from taking it out. O(height); no lock,
    /// no store.
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

    /// The entry at an index, as one more owner of it; like [`XArray::get`].
    #[inline]
    pub fn get_owned(&self, index: u64) -> Option<E> {
        let leaf = self.array.tree.leaf(index, &self.pin)?;
        leaf.get(offset(index, 0), &self.pin)
    }

    /// A use of the entry at an index, which `use_it` makes of a look at it: like
    /// [`get_owned`](Guard::get_owned), but counted where the caller likes, for instance in
    /// a cache line of his own. While the use lives, [`XArray::remove_if_unused`] must be told by
    /// its predicate that the entry is used. So `use_it` must note the use in a word that the
    /// predicate reads, and dropping the use must take that back, with release ordering.
    ///
    /// `use_it` may run several times, and what it returns be dropped at once. O(height), no lock.
    #[inline]
    pub fn get_as<'g, U>(&'g self, index: u64, use_it: impl Fn(E::Ref<'g>) -> U) -> Option<U> {
        let leaf = self.array.tree.leaf(index, &self.pin)?;
        leaf.get_as(offset(index, 0), &self.pin, use_it)
    }

    /// Puts an entry at an index and returns what was there, like [`XArray::insert`], for who has
    /// many of them.
    #[inline]
    pub fn insert(&self, index: u64, entry: E) -> Result<Option<E>, AllocError> {
        self.array.insert_pinned(index, entry, &self.pin)
    }

    /// The array.
    pub fn array(&self) -> &'a XArray<E> {
        self.array
    }

    /// Lets go of what was seen so far, so that it can be freed, and pins anew. O(1).
    pub fn repin(&mut self) {
        self.pin.repin();
    }
}
