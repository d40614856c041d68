//! The set of free segments, and its subset that may still use space on the host.

use crate::bits::Bits;

/// The free segments, by number.
pub(crate) struct FreeMap {
    free: Bits,
    /// Free and stale (`host.rs`).
    pub(crate) stale: Bits,
    len: u32,
    /// Free, but not in the set: being discarded, or being allocated on the host.
    pub(crate) away: u32,
}

impl FreeMap {
    /// Makes an empty set for numbers below `segments`.
    pub(crate) fn new(segments: u32) -> FreeMap {
        FreeMap { free: Bits::new(segments), stale: Bits::new(segments), len: 0, away: 0 }
    }

    /// Number of members.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Adds `n`, which must be below `segments`.
    pub(crate) fn insert(&mut self, n: u32, stale: bool) {
        self.len += u32::from(self.free.insert(n));
        if stale {
            self.stale.insert(n);
        }
    }

    /// Removes `n`, if it is a member.
    pub(crate) fn remove(&mut self, n: u32) {
        self.len -= u32::from(self.free.remove(n));
        self.stale.remove(n);
    }

    /// Returns whether `n` is a member.
    pub(crate) fn contains(&self, n: u32) -> bool {
        self.free.contains(n)
    }

    /// Returns the lowest member for which `wanted` is `true`.
    pub(crate) fn lowest(&self, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        self.lowest_from(0, wanted)
    }

    /// As [`FreeMap::lowest`], but not below `from`.
    pub(crate) fn lowest_from(&self, from: u32, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        self.free.iter_from(from).find(|n| wanted(*n))
    }

    /// Returns the number of members below `end`.
    pub(crate) fn count_below(&self, end: u32) -> u32 {
        self.free.count_below(end)
    }

    /// Returns the member that has `below` lower members.
    pub(crate) fn nth(&self, below: u32) -> Option<u32> {
        self.free.iter_from(0).nth(below as usize)
    }
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
            map.insert(n, n == 500);
        }
        assert_eq!((map.len(), map.nth(1), map.nth(3)), (3, Some(500), None));
        assert_eq!(take(&mut map), Some(70));
        map.insert(3, false);
        map.remove(999);
        map.remove(999);
        assert_eq!((map.len(), map.contains(3), map.contains(999)), (2, true, false));
        assert_eq!(map.lowest(|n| n > 3), Some(500));
        assert_eq!(map.lowest_from(4, |_| true), Some(500));
        assert_eq!((map.stale.next(0), map.stale.next(501)), (Some(500), None));
        assert_eq!([(); 3].map(|()| take(&mut map)), [Some(3), Some(500), None]);
        assert_eq!((map.len(), map.stale.next(0)), (0, None));
    }
}
