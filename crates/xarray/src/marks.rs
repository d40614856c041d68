//! Three marks per entry, and search for marked entries.
//!
//! A mark is stored with the entry in its leaf. Each node above stores for each child whether there
//! is one below, so a search skips subtrees without marks. Linux's XArray uses its marks for dirty
//! pages, for pages under writeback, and for free indexes (Matthew Wilcox, "The XArray data
//! structure", 2018); here free indexes have their own bits.

use crate::array::XArray;
use crate::entry::Entry;
use crate::node::{Select, offset};

/// One of the marks of an entry. Their meaning is up to the user.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mark {
    /// The first.
    A,
    /// The second.
    B,
    /// The third.
    C,
}

impl Mark {
    /// All marks.
    pub const ALL: [Mark; 3] = [Mark::A, Mark::B, Mark::C];

    pub(crate) fn select(self) -> Select {
        Select::Marked(self as usize)
    }
}

impl<E: Entry> XArray<E> {
    /// Marks the entry at an index. Returns whether there is one; an index without an entry, also a
    /// reserved one, has no marks. After the return every search finds the mark. O(height); locks
    /// the leaf, and the nodes above that had no such mark.
    pub fn set_mark(&self, index: u64, mark: Mark) -> bool {
        self.change_mark(index, mark, true).is_some()
    }

    /// Clears a mark of the entry at an index. Returns whether it was set. O(height); locks the
    /// leaf, and the nodes above for which it was the last one.
    pub fn clear_mark(&self, index: u64, mark: Mark) -> bool {
        self.change_mark(index, mark, false).unwrap_or(false)
    }

    /// Returns the mark before the change; `None` if there is no entry.
    fn change_mark(&self, index: u64, mark: Mark, on: bool) -> Option<bool> {
        let pin = self.domain.pin();
        let leaf = self.tree.lock(index, &pin)?;
        let place = offset(index, 0);
        leaf.look(place)?;
        let before = leaf.summary();
        let had = leaf.mark(place, mark as usize);
        leaf.set_mark(place, mark as usize, on);
        self.tree.settle(leaf, before, &pin);
        Some(had)
    }

    /// Returns whether the entry at an index has the mark. O(height), no lock.
    pub fn has_mark(&self, index: u64, mark: Mark) -> bool {
        let pin = self.domain.pin();
        let leaf = self.tree.leaf(index, &pin);
        leaf.is_some_and(|leaf| leaf.slots(mark.select()) >> offset(index, 0) & 1 == 1)
    }

    /// Returns the first entry at or after `from` that has the mark. O(height) without concurrent
    /// changes; no lock.
    pub fn next_marked(&self, from: u64, mark: Mark) -> Option<(u64, E)> {
        self.next_owned(from, u64::MAX, mark.select())
    }

    /// Calls `each` for every entry that has the mark, in order, without a lock: `each` may use the
    /// array freely. An entry that has the mark during the whole call is visited; one that gains or
    /// loses it meanwhile may be.
    pub fn for_each_marked(&self, mark: Mark, mut each: impl FnMut(u64, &E)) {
        let mut from = Some(0);
        while let Some((index, entry)) = from.and_then(|from| self.next_marked(from, mark)) {
            each(index, &entry);
            from = index.checked_add(1);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use crate::Value;

    fn value(number: usize) -> Value {
        Value::new(number).expect("small")
    }

    #[test]
    fn marks_need_an_entry_and_leave_with_it() {
        let array = XArray::new();
        assert!(!array.set_mark(5, Mark::A) && !array.clear_mark(5, Mark::A));
        array.insert(5, value(5)).expect("memory");
        assert!(!array.set_mark(6, Mark::A), "the same leaf, but no entry");
        assert!(array.set_mark(5, Mark::A) && array.has_mark(5, Mark::A));
        assert!(!array.has_mark(5, Mark::B) && !array.has_mark(1 << 40, Mark::A));
        array.insert(5, value(6)).expect("memory");
        assert!(array.has_mark(5, Mark::A), "another entry at the index keeps it");
        array.remove(5);
        array.insert(5, value(7)).expect("memory");
        assert!(!array.has_mark(5, Mark::A));
        assert_eq!(array.next_marked(0, Mark::A), None);
    }

    #[test]
    fn marks_are_found_across_levels_and_up_to_the_last_index() {
        let array = XArray::new();
        let indexes = [0, 63, 64, 4096, 1 << 30, u64::MAX - 64, u64::MAX];
        for index in indexes {
            array.insert(index, value(1)).expect("memory");
            assert!(array.set_mark(index, Mark::C), "growing keeps marks");
        }
        let mut seen = Vec::new();
        array.for_each_marked(Mark::C, |index, _| seen.push(index));
        assert_eq!(seen, indexes);
        assert_eq!(array.next_marked(4097, Mark::C), Some((1 << 30, value(1))));
        for index in indexes {
            assert!(array.clear_mark(index, Mark::C));
            assert!(!array.clear_mark(index, Mark::C));
        }
        assert_eq!(array.next_marked(0, Mark::C), None);
    }
}
