//! The set of free segments: a bit for each, and a hint where the lowest may be.

/// Numbers of free segments.
pub(crate) struct FreeMap {
    words: Box<[u64]>,
    /// No bit is set in a word below this one.
    lowest: usize,
    len: u32,
}

impl FreeMap {
    /// An empty set of numbers below `segments`.
    pub(crate) fn new(segments: u32) -> FreeMap {
        let words = vec![0; (segments as usize).div_ceil(64)].into_boxed_slice();
        FreeMap { words, lowest: 0, len: 0 }
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

    /// Takes the lowest number out.
    pub(crate) fn take_lowest(&mut self) -> Option<u32> {
        let word = (self.lowest..self.words.len()).find(|w| self.words[*w] != 0)?;
        self.lowest = word;
        let n = word as u32 * 64 + self.words[word].trailing_zeros();
        self.remove(n);
        Some(n)
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
        for n in [999, 70, 500, 70] {
            map.insert(n);
        }
        assert_eq!((map.len(), map.take_lowest()), (3, Some(70)));
        map.insert(3);
        map.remove(999);
        map.remove(999);
        assert_eq!(map.len(), 2);
        assert_eq!([(); 3].map(|()| map.take_lowest()), [Some(3), Some(500), None]);
        assert_eq!(map.len(), 0);
    }
}
