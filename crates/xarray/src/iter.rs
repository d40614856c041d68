//! Iteration in index order, concurrently with writers.
//!
//! No iterator holds a lock. All guarantee: indexes ascend; an entry that is in the array during
//! the whole iteration is returned exactly once; an entry added or removed meanwhile may be
//! returned. Removing entries while iterating is allowed, also by the iterating thread.

use crate::array::XArray;
use crate::entry::Entry;
use crate::guard::Guard;
use crate::marks::Mark;
use crate::node::{Node, Select, offset};
use std::ops::{Bound, RangeBounds};

/// Returns the first and last index of a range; `None` if it is empty.
pub(crate) fn limits(range: impl RangeBounds<u64>) -> Option<(u64, u64)> {
    let from = match range.start_bound() {
        Bound::Included(from) => *from,
        Bound::Excluded(before) => before.checked_add(1)?,
        Bound::Unbounded => 0,
    };
    let to = match range.end_bound() {
        Bound::Included(to) => *to,
        Bound::Excluded(after) => after.checked_sub(1)?,
        Bound::Unbounded => u64::MAX,
    };
    (from <= to).then_some((from, to))
}

impl<E: Entry> XArray<E> {
    /// Iterates over all entries by ascending index; see [`range`](XArray::range).
    pub fn iter(&self) -> Iter<'_, E> {
        self.range(..)
    }

    /// Iterates over the entries of a range by ascending index, each returned as an additional
    /// owner. Pins only during a step, so the iterator may be kept as long as needed. O(height) per
    /// entry.
    pub fn range(&self, range: impl RangeBounds<u64>) -> Iter<'_, E> {
        Iter { array: self, rest: limits(range), select: Select::Present }
    }

    /// Iterates over the entries of a range that have a mark; otherwise like
    /// [`range`](XArray::range).
    pub fn range_marked(&self, range: impl RangeBounds<u64>, mark: Mark) -> Iter<'_, E> {
        Iter { array: self, rest: limits(range), select: mark.select() }
    }

    /// Returns the first entry from `from` to `to` that matches `select`.
    pub(crate) fn next_owned(&self, mut from: u64, to: u64, select: Select) -> Option<(u64, E)> {
        let pin = self.domain.pin();
        loop {
            let (index, leaf) = self.tree.next(from, to, select, &pin)?;
            if let Some(entry) = leaf.get(offset(index, 0), &pin) {
                return Some((index, entry));
            }
            from = index.checked_add(1)?;
        }
    }
}

impl<'a, E: Entry> IntoIterator for &'a XArray<E> {
    type Item = (u64, E);
    type IntoIter = Iter<'a, E>;

    fn into_iter(self) -> Iter<'a, E> {
        self.iter()
    }
}

/// An iterator over entries, owned.
pub struct Iter<'a, E: Entry> {
    array: &'a XArray<E>,
    /// First and last index still to visit.
    rest: Option<(u64, u64)>,
    select: Select,
}

impl<E: Entry> Iterator for Iter<'_, E> {
    type Item = (u64, E);

    fn next(&mut self) -> Option<(u64, E)> {
        let (from, to) = self.rest.take()?;
        let (index, entry) = self.array.next_owned(from, to, self.select)?;
        self.rest = (index < to).then(|| (index + 1, to));
        Some((index, entry))
    }
}

impl<E: Entry> std::iter::FusedIterator for Iter<'_, E> {}

impl<E: Entry> Guard<'_, E> {
    /// Iterates over the entries of a range by ascending index, borrowed. O(1) per entry where
    /// indexes are dense.
    ///
    /// ```
    /// # use shoal_xarray::{Value, XArray};
    /// let array = XArray::new();
    /// for index in [1, 64, 1 << 50] {
    ///     array.insert(index, Value::new(7).expect("small"))?;
    /// }
    /// let guard = array.pin();
    /// assert!(guard.range(2..).map(|(index, _)| index).eq([64, 1 << 50]));
    /// # Ok::<(), shoal_xarray::AllocError>(())
    /// ```
    pub fn range(&self, range: impl RangeBounds<u64>) -> Looks<'_, E> {
        Looks { guard: self, rest: limits(range), select: Select::Present, leaf: None }
    }

    /// Iterates over the entries of a range that have a mark, borrowed; otherwise like
    /// [`range`](Guard::range).
    pub fn range_marked(&self, range: impl RangeBounds<u64>, mark: Mark) -> Looks<'_, E> {
        Looks { guard: self, rest: limits(range), select: mark.select(), leaf: None }
    }
}

/// An iterator over entries, borrowed under a pin.
pub struct Looks<'g, E: Entry> {
    guard: &'g Guard<'g, E>,
    rest: Option<(u64, u64)>,
    select: Select,
    /// The leaf in which `rest` begins, if known.
    leaf: Option<&'g Node<E>>,
}

impl<'g, E: Entry> Looks<'g, E> {
    /// Returns the next matching slot, in the current leaf or a later one.
    #[inline]
    fn slot(&mut self, from: u64, to: u64) -> Option<(u64, &'g Node<E>)> {
        if let Some(leaf) = self.leaf {
            let slots = leaf.slots(self.select) >> offset(from, 0);
            if slots != 0 {
                let index = from + u64::from(slots.trailing_zeros());
                return (index <= to).then_some((index, leaf));
            }
        }
        self.guard.array.tree.next(from, to, self.select, &self.guard.pin)
    }
}

impl<'g, E: Entry> Iterator for Looks<'g, E> {
    type Item = (u64, E::Ref<'g>);

    #[inline]
    fn next(&mut self) -> Option<(u64, E::Ref<'g>)> {
        loop {
            let (from, to) = self.rest.take()?;
            let (index, leaf) = self.slot(from, to)?;
            self.rest = (index < to).then(|| (index + 1, to));
            // The next index is in another leaf if this was the last one here.
            self.leaf = Some(leaf).filter(|_| offset(index, 0) + 1 < crate::node::FANOUT);
            if let Some(entry) = leaf.peek(offset(index, 0), &self.guard.pin) {
                return Some((index, entry));
            }
        }
    }
}

impl<E: Entry> std::iter::FusedIterator for Looks<'_, E> {}
