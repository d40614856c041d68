//! The set of free segments: a bit for each, and a hint where the lowest may be.

/// Numbers of free segments.
pub(crate) struct FreeMap {
    words: Box<[u64]>,
    /// No bit is set in a word below this one.
    lowest: usize,
    len: u32,
    /// Free, too, but not here: being discarded, or allocated on the host.
    pub(crate) away: u32,
}

impl FreeMap {
    /// An empty set of numbers below `segments`.
    pub(crate) fn new(segments: u32) -> FreeMap {
        let words = vec![0; (segments as usize).div_ceil(64)].into_boxed_slice();
        FreeMap { words, lowest: 0, len: 0, away: 0 }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Adds `n`, below `segments`.
    pub(crate) fn insert(&mut self, n: u32) {
        let (word, bit) = place(n);
        self.len += u32::from(self.words[word] & bit == 0);
        self.words[word] |= bit;
        self.lowest = self.lowest.min(word);
    }

    /// Takes `n` out, if it is there.
    pub(crate) fn remove(&mut self, n: u32) {
        let (word, bit) = place(n);
        self.len -= u32::from(self.words[word] & bit != 0);
        self.words[word] &= !bit;
    }

    /// Whether it is there.
    pub(crate) fn contains(&self, n: u32) -> bool {
        let (word, bit) = place(n);
        self.words.get(word).is_some_and(|word| word & bit != 0)
    }

    /// The lowest number of which `wanted` says yes.
    pub(crate) fn lowest(&mut self, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        while self.words.get(self.lowest).is_some_and(|word| *word == 0) {
            self.lowest += 1;
        }
        self.lowest_from(0, wanted)
    }

    /// The same, from `from` on.
    pub(crate) fn lowest_from(&self, from: u32, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        self.iter_from(from).find(|n| wanted(*n))
    }

    /// The number with so many below it.
    pub(crate) fn nth(&self, below: u32) -> Option<u32> {
        self.iter_from(0).nth(below as usize)
    }

    fn iter_from(&self, from: u32) -> impl Iterator<Item = u32> {
        let first = (from as usize / 64).max(self.lowest);
        let words = self.words.iter().enumerate().skip(first);
        let set = words.flat_map(|(word, bits)| {
            let mut bits = *bits;
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(word as u32 * 64 + bit)
            })
        });
        set.filter(move |n| *n >= from)
    }
}

fn place(n: u32) -> (usize, u64) {
    (n as usize / 64, 1 << (n % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_comes_first_also_after_insertions_below() {
        let mut map = FreeMap::new(1000);
        let take = |map: &mut FreeMap| {
            let lowest = map.lowest(|_| true);
            lowest.inspect(|n| map.remove(*n))
        };
        for n in [999, 70, 500, 70] {
            map.insert(n);
        }
        assert_eq!((map.len(), map.nth(1), map.nth(3)), (3, Some(500), None));
        assert_eq!(take(&mut map), Some(70));
        map.insert(3);
        map.remove(999);
        map.remove(999);
        assert_eq!((map.len(), map.contains(3), map.contains(999)), (2, true, false));
        assert_eq!(map.lowest(|n| n > 3), Some(500));
        assert_eq!(map.lowest_from(4, |_| true), Some(500));
        assert_eq!([(); 3].map(|()| take(&mut map)), [Some(3), Some(500), None]);
        assert_eq!(map.len(), 0);
    }
}
