//! The set of free segments, and of those among them that the host may still hold bytes of.

use crate::bits::Bits;

/// Numbers of free segments.
pub(crate) struct FreeMap {
    free: Bits,
    /// Free, and stale (`host.rs`).
    pub(crate) stale: Bits,
    len: u32,
    /// Free, too, but not here: being discarded, or allocated on the host.
    pub(crate) away: u32,
}

impl FreeMap {
    /// An empty set of numbers below `segments`.
    pub(crate) fn new(segments: u32) -> FreeMap {
        FreeMap { free: Bits::new(segments), stale: Bits::new(segments), len: 0, away: 0 }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// Adds `n`, below `segments`.
    pub(crate) fn insert(&mut self, n: u32, stale: bool) {
        self.len += u32::from(self.free.insert(n));
        if stale {
            self.stale.insert(n);
        }
    }

    /// Takes `n` out, if it is there.
    pub(crate) fn remove(&mut self, n: u32) {
        self.len -= u32::from(self.free.remove(n));
        self.stale.remove(n);
    }

    /// Whether it is there.
    pub(crate) fn contains(&self, n: u32) -> bool {
        self.free.contains(n)
    }

    /// The lowest number of which `wanted` says yes.
    pub(crate) fn lowest(&self, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        self.lowest_from(0, wanted)
    }

    /// The same, from `from` on.
    pub(crate) fn lowest_from(&self, from: u32, wanted: impl Fn(u32) -> bool) -> Option<u32> {
        self.free.iter_from(from).find(|n| wanted(*n))
    }

    /// The number with so many below it.
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
