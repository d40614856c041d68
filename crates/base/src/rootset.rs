//! Sets of subvolumes as bit maps: iteration does not visit all 65,536 numbers.

use crate::sync::{AtomicI64, AtomicU64};
use crate::{Epoch, RootId};
use std::sync::atomic::Ordering;

/// Subvolumes that share a word of a set: as many as share a page of the subvolume table.
pub const GROUP: usize = 64;
/// Words of a set.
const WORDS: usize = (u16::MAX as usize + 1) / GROUP;

/// A set of subvolume numbers, or of groups of [`GROUP`] subvolumes.
pub struct RootSet {
    words: Box<[AtomicU64]>,
}

impl Default for RootSet {
    fn default() -> RootSet {
        RootSet { words: (0..WORDS).map(|_| AtomicU64::new(0)).collect() }
    }
}

fn place(n: u16) -> (usize, u64) {
    (usize::from(n) / GROUP, 1 << (usize::from(n) % GROUP))
}

impl RootSet {
    /// Returns whether `n` is a member.
    #[inline]
    pub fn has(&self, n: u16) -> bool {
        let (word, bit) = place(n);
        self.words[word].load(Ordering::Acquire) & bit != 0
    }
    /// Adds `n`. Returns the word of `n` before the change, as bits.
    #[inline]
    pub fn insert(&self, n: u16) -> u64 {
        let (word, bit) = place(n);
        self.words[word].fetch_or(bit, Ordering::AcqRel)
    }
    /// Removes `n`.
    pub fn remove(&self, n: u16) {
        let (word, bit) = place(n);
        self.words[word].fetch_and(!bit, Ordering::AcqRel);
    }
    /// The members, ascending. Members added or removed meanwhile may be seen or not.
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        let words = self.words.iter().enumerate();
        words.flat_map(|(n, word)| bits(n, word.load(Ordering::Acquire)))
    }
    /// Removes and returns all members, ascending.
    pub fn take(&self) -> Vec<u16> {
        let mut members = Vec::new();
        for (n, word) in self.words.iter().enumerate() {
            if word.load(Ordering::Acquire) != 0 {
                members.extend(bits(n, word.swap(0, Ordering::AcqRel)));
            }
        }
        members
    }
}

/// The numbers in `word`, which is word `n` of the set. An empty word takes one step: nearly all
/// are empty, and `statfs` visits all of them.
fn bits(n: usize, word: u64) -> impl Iterator<Item = u16> {
    let rest = |word: &u64| Some(word & (word - 1)).filter(|rest| *rest != 0);
    std::iter::successors(Some(word).filter(|word| *word != 0), rest)
        .map(move |word| (n * GROUP + word.trailing_zeros() as usize) as u16)
}

/// The subvolumes that the next checkpoint must visit, separately for even and odd epochs. A
/// subvolume is marked before anything in it changes, so one without a mark has nothing to write.
/// An unneeded mark costs one visit.
#[derive(Default)]
pub struct TouchedRoots {
    sides: [RootSet; 2],
    /// Words with a member, on both sides. Below zero for a moment when a mark races with `take`.
    groups: AtomicI64,
}

impl TouchedRoots {
    /// Marks a change of `root` in `epoch`.
    #[inline]
    pub fn mark(&self, root: RootId, epoch: Epoch) {
        let side = &self.sides[epoch as usize % 2];
        if !side.has(root.0) && side.insert(root.0) == 0 {
            self.groups.fetch_add(1, Ordering::Relaxed);
        }
    }
    /// Marks a change of unknown epoch: the next two checkpoints visit the subvolume.
    pub fn mark_any(&self, root: RootId) {
        self.mark(root, 0);
        self.mark(root, 1);
    }
    /// Returns the subvolumes that the checkpoint of `epoch` must visit, ascending, and clears
    /// their marks. Must be called while no transaction runs.
    pub fn take(&self, epoch: Epoch) -> Vec<RootId> {
        let members = self.sides[epoch as usize % 2].take();
        let mut groups = 0;
        let mut last = None;
        for n in &members {
            groups += i64::from(last.replace(n / GROUP as u16) != Some(n / GROUP as u16));
        }
        self.groups.fetch_sub(groups, Ordering::Relaxed);
        members.into_iter().map(RootId).collect()
    }
    /// Number of groups of [`GROUP`] subvolumes that have marks, summed over both epochs.
    #[inline]
    pub fn groups(&self) -> u64 {
        self.groups.load(Ordering::Relaxed).max(0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_back_in_order() {
        let set = RootSet::default();
        for n in [65_535, 0, 63, 64, 700, 700] {
            set.insert(n);
        }
        set.remove(63);
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 64, 700, 65_535]);
        assert!(set.has(700) && !set.has(63));
        assert_eq!(set.take(), [0, 64, 700, 65_535]);
        assert_eq!(set.take(), [0u16; 0]);
    }

    #[test]
    fn each_epoch_has_its_marks_and_groups_are_counted() {
        let touched = TouchedRoots::default();
        touched.mark(RootId(5), 8);
        touched.mark(RootId(6), 8);
        touched.mark(RootId(6), 9);
        touched.mark_any(RootId(64));
        assert_eq!(touched.groups(), 4);
        assert_eq!(touched.take(8), [RootId(5), RootId(6), RootId(64)]);
        assert_eq!(touched.groups(), 2);
        assert_eq!(touched.take(9), [RootId(6), RootId(64)]);
        assert_eq!((touched.groups(), touched.take(8)), (0, vec![]));
    }
}
