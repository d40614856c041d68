//! Reading ahead: how much around a piece that is not in memory is fetched with it.
//!
//! A segment holds one kind of data: inodes, directory entries, or file contents. A listing of a
//! tree misses one piece after another in few segments, in no order; lookups of single files in a
//! large volume rarely miss twice in the same one. So a miss shortly after another one in its
//! region fetches four times as much as that one, until it fetches all of it.

use parking_lot::Mutex;
use shoal_format::bucket::FRAME;
use std::collections::HashMap;
use std::ops::Range;

/// A region: bytes of a segment of the default size.
const REGION: u64 = 16 << 20;
/// Two misses are near each other if there are fewer than so many between them.
const NEAR: u64 = 64;
/// Growth of what is fetched, with each miss.
const GROWTH: u64 = 4;

/// Misses, by region.
#[derive(Default)]
pub(crate) struct Ahead(Mutex<Misses>);

#[derive(Default)]
struct Misses {
    count: u64,
    /// Number of the last miss in a region, and bytes fetched with it.
    regions: HashMap<u64, (u64, u64)>,
}

impl Ahead {
    /// Notes a miss. Returns what to fetch besides it.
    pub fn miss(&self, addr: u64) -> Option<Range<u64>> {
        let mut misses = self.0.lock();
        misses.count += 1;
        let (now, region) = (misses.count, addr / REGION);
        let is_near = |last: u64| now - last <= NEAR;
        let bytes = match misses.regions.get(&region) {
            Some(&(last, bytes)) if is_near(last) => (bytes * GROWTH).min(REGION),
            _ => u64::from(FRAME),
        };
        misses.regions.insert(region, (now, bytes));
        if misses.regions.len() as u64 > NEAR * 4 {
            misses.regions.retain(|_, (last, _)| is_near(*last));
        }
        let start = addr / bytes * bytes;
        (bytes > u64::from(FRAME)).then(|| start..start + bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_in_one_region_fetch_more_and_more_of_it() {
        let ahead = Ahead::default();
        let at = 5 * REGION + 3 * u64::from(FRAME) + 17;
        let bytes = |found: Option<Range<u64>>| {
            found.map(|range| {
                assert!(range.contains(&at) && range.start >= 5 * REGION);
                assert!(range.end <= 6 * REGION);
                (range.end - range.start) >> 18
            })
        };
        let found: Vec<_> = (0..5).map(|_| bytes(ahead.miss(at))).collect();
        assert_eq!(found, [None, Some(4), Some(16), Some(64), Some(64)]);
    }

    #[test]
    fn misses_all_over_a_large_volume_fetch_nothing_else() {
        let ahead = Ahead::default();
        for n in 0..10_000u64 {
            assert_eq!(ahead.miss(n % (NEAR + 1) * REGION), None, "{n}");
        }
        for n in 0..10_000u64 {
            assert_eq!(ahead.miss((1000 + n) * REGION), None);
        }
        assert!(ahead.0.lock().regions.len() as u64 <= NEAR * 4);
    }
}
