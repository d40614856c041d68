//! A set of numbers as a bit map with summary levels. Finding the next member after a number takes
//! a few steps, however large the gap.

/// Numbers per word.
const WORD: u32 = u64::BITS;

/// A set of numbers below a limit.
pub(crate) struct Bits {
    /// The numbers; then, for each level, which words of the level below are not zero. The last
    /// level has one word.
    levels: Vec<Box<[u64]>>,
}

fn place(n: u32) -> (usize, u64) {
    ((n / WORD) as usize, 1 << (n % WORD))
}

impl Bits {
    /// Makes an empty set for numbers below `limit`.
    pub(crate) fn new(limit: u32) -> Bits {
        let mut levels = Vec::new();
        let mut words = limit.div_ceil(WORD).max(1);
        loop {
            levels.push(vec![0; words as usize].into_boxed_slice());
            if words == 1 {
                return Bits { levels };
            }
            words = words.div_ceil(WORD);
        }
    }

    /// Adds a number below the limit. Returns whether it is new.
    pub(crate) fn insert(&mut self, n: u32) -> bool {
        let (word, bit) = place(n);
        let fresh = self.levels[0][word] & bit == 0;
        let mut at = n;
        for level in &mut self.levels {
            let (word, bit) = place(at);
            level[word] |= bit;
            at /= WORD;
        }
        fresh
    }

    /// Removes a number. Returns whether it was a member.
    pub(crate) fn remove(&mut self, n: u32) -> bool {
        if !self.contains(n) {
            return false;
        }
        let mut at = n;
        for level in &mut self.levels {
            let (word, bit) = place(at);
            level[word] &= !bit;
            if level[word] != 0 {
                break;
            }
            at /= WORD;
        }
        true
    }

    /// Returns whether the number is a member.
    pub(crate) fn contains(&self, n: u32) -> bool {
        let (word, bit) = place(n);
        self.levels[0].get(word).is_some_and(|word| word & bit != 0)
    }

    /// Returns the lowest member not below `from`.
    pub(crate) fn next(&self, from: u32) -> Option<u32> {
        let (mut level, mut at) = (0, from);
        // Up, until a word has a bit at the place or after it.
        loop {
            let words = self.levels.get(level)?;
            let (word, bit) = place(at);
            let here = words.get(word)? & !(bit - 1);
            if here != 0 {
                at = word as u32 * WORD + here.trailing_zeros();
                break;
            }
            at = at / WORD + 1;
            level += 1;
        }
        // Then down along the first bits.
        for words in self.levels[..level].iter().rev() {
            at = at * WORD + words[at as usize].trailing_zeros();
        }
        Some(at)
    }

    /// Returns the number of members below `end`.
    pub(crate) fn count_below(&self, end: u32) -> u32 {
        let (word, bit) = place(end);
        let words = &self.levels[0];
        let whole: u32 = words.iter().take(word).map(|word| word.count_ones()).sum();
        whole + words.get(word).map_or(0, |word| (word & (bit - 1)).count_ones())
    }

    /// Iterates over all members not below `from`, ascending.
    pub(crate) fn iter_from(&self, from: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(self.next(from), |n| self.next(n.checked_add(1)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use shoal_skip::property;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn behaves_as_a_set(
            limit in prop_oneof![1..70u32, 4000..4200u32, 262_100..262_200u32, Just(1 << 24)],
            steps in vec((any::<bool>(), any::<prop::sample::Index>()), 1..80),
        ) {
            let (mut bits, mut model) = (Bits::new(limit), BTreeSet::new());
            for (add, n) in steps {
                // Half of them close to each other.
                let n = n.index(limit as usize) as u32;
                let n = if n.is_multiple_of(2) { n } else { n % 200 % limit };
                match add {
                    true => prop_assert_eq!(bits.insert(n), model.insert(n)),
                    false => prop_assert_eq!(bits.remove(n), model.remove(&n)),
                }
                prop_assert_eq!(bits.contains(n), model.contains(&n));
                for from in [0, n, n + 1, limit - 1, limit, u32::MAX] {
                    prop_assert_eq!(bits.next(from), model.range(from..).next().copied());
                    let below = model.range(..from).count();
                    prop_assert_eq!(bits.count_below(from) as usize, below);
                }
            }
            prop_assert!(bits.iter_from(0).eq(model.iter().copied()));
        }
    }
}
