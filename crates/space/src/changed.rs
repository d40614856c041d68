//! The segments changed since the last checkpoint's freeze: a bit for each segment, and one for
//! each page of the usage table, so that a freeze reads only what has changed.
//!
//! A segment is marked *after* its change. A freeze takes the marks, then reads the segments: a
//! change that it does not see yet is marked for the next one. Nothing is lost between two reads of
//! a mark, because nothing changes a segment during a freeze: live bytes change inside
//! transactions, which are quiesced; kinds and seals change under locks that the freeze holds.

use shoal_base::sync::AtomicU64;
use shoal_format::usage::PAGE_SEGMENTS;
use std::sync::atomic::Ordering;

/// Words for the segments of a page.
const PAGE_WORDS: usize = (PAGE_SEGMENTS / u64::BITS) as usize;

/// The marks.
pub(crate) struct Changed {
    segments: Box<[AtomicU64]>,
    pages: Box<[AtomicU64]>,
}

fn place(n: u32) -> (usize, u64) {
    ((n / u64::BITS) as usize, 1 << (n % u64::BITS))
}

fn mark(words: &[AtomicU64], n: u32) {
    let (word, bit) = place(n);
    // Usually it is set already; then the cache line stays shared.
    if let Some(word) = words.get(word)
        && word.load(Ordering::Relaxed) & bit == 0
    {
        word.fetch_or(bit, Ordering::AcqRel);
    }
}

/// The numbers in `word`, which is word `n`.
fn members(n: usize, mut word: u64) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros())?;
        word &= word - 1;
        Some(n as u32 * u64::BITS + bit)
    })
}

impl Changed {
    /// Makes a set without marks for this number of segments.
    pub(crate) fn new(segments: u32) -> Changed {
        let words = |n: u32| (0..n.div_ceil(u64::BITS)).map(|_| AtomicU64::new(0)).collect();
        let pages = segments.div_ceil(PAGE_SEGMENTS);
        // Whole pages, so that each has the same number of words.
        Changed { segments: words(pages * PAGE_SEGMENTS), pages: words(pages) }
    }

    /// Marks a changed segment.
    #[inline]
    pub(crate) fn mark(&self, segment: u32) {
        mark(&self.segments, segment);
        mark(&self.pages, segment / PAGE_SEGMENTS);
    }

    /// Takes all marks, and calls `each` with every marked segment, ascending.
    pub(crate) fn take(&self, mut each: impl FnMut(u32)) {
        for (n, word) in self.pages.iter().enumerate() {
            if word.load(Ordering::Acquire) == 0 {
                continue;
            }
            for page in members(n, word.swap(0, Ordering::AcqRel)) {
                let first = page as usize * PAGE_WORDS;
                let words = self.segments.iter().enumerate().skip(first).take(PAGE_WORDS);
                for (n, word) in words {
                    members(n, word.swap(0, Ordering::AcqRel)).for_each(&mut each);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_taken_once_in_order() {
        let changed = Changed::new(200_000);
        let all = [199_999, 0, 1023, 1024, 65_535, 65_536, 70, 70];
        all.iter().for_each(|n| changed.mark(*n));
        // Ignored.
        changed.mark(u32::MAX);
        let take = || {
            let mut taken = Vec::new();
            changed.take(|n| taken.push(n));
            taken
        };
        assert_eq!(take(), [0, 70, 1023, 1024, 65_535, 65_536, 199_999]);
        assert_eq!(take(), [0u32; 0]);
        changed.mark(70);
        assert_eq!(take(), [70]);
    }
}
