//! Reading ahead: how much around a piece that is not in memory is fetched with it.
//!
//! A segment holds one kind of data: inodes, directory entries, or file contents. A listing of a
//! tree misses one piece after another in few segments, in no order; lookups of single files in a
//! large volume rarely miss twice in the same one. So a miss shortly after another one in its
//! region fetches four times as much as that one, until it fetches all of it.
//!
//! That is a guess, and wrong for a pass over a volume that is larger than the memory for pieces,
//! with directories in another order than their inodes. So it costs credit: a piece that was
//! fetched ahead is paid for, and pays twice its size back when it is first used. While at least
//! half of them are, credit never ends. Without credit nothing is fetched ahead but for an eighth
//! of what is missed, which finds out when it is worth while again.

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
/// Credit for a byte that was fetched ahead, when it is used.
const REFUND: u64 = 2;
/// Bytes missed for a byte of credit.
const MISSED: u64 = 8;

/// Misses, by region, and credit.
pub(crate) struct Ahead(Mutex<Misses>);

struct Misses {
    count: u64,
    /// Number of the last miss in a region, and bytes fetched with it.
    regions: HashMap<u64, (u64, u64)>,
    /// Bytes that may be fetched ahead now. Negative after a large request.
    credit: i64,
    credit_max: i64,
}

impl Ahead {
    /// Begins with credit for so many bytes: as many as the memory for pieces has place for.
    pub(crate) fn new(bytes: u64) -> Ahead {
        let credit = bytes as i64;
        Ahead(Mutex::new(Misses { count: 0, regions: HashMap::new(), credit, credit_max: credit }))
    }

    /// Notes a miss of so many bytes. Returns what to fetch besides them.
    pub(crate) fn miss(&self, addr: u64, bytes: u32) -> Option<Range<u64>> {
        let mut misses = self.0.lock();
        misses.earn(u64::from(bytes) / MISSED);
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
        (bytes > u64::from(FRAME) && misses.credit > 0).then(|| start..start + bytes)
    }

    /// Notes bytes that are fetched ahead.
    pub(crate) fn fetched(&self, bytes: u64) {
        self.0.lock().credit -= bytes as i64;
    }

    /// Notes the first use of bytes that were fetched ahead.
    pub(crate) fn used(&self, bytes: u64) {
        self.0.lock().earn(bytes * REFUND);
    }
}

impl Misses {
    fn earn(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_add(bytes as i64).min(self.credit_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_in_one_region_fetch_more_and_more_of_it() {
        let ahead = Ahead::new(64 << 20);
        let at = 5 * REGION + 3 * u64::from(FRAME) + 17;
        let bytes = |found: Option<Range<u64>>| {
            found.map(|range| {
                assert!(range.contains(&at) && range.start >= 5 * REGION);
                assert!(range.end <= 6 * REGION);
                (range.end - range.start) >> 18
            })
        };
        let found: Vec<_> = (0..5).map(|_| bytes(ahead.miss(at, FRAME))).collect();
        assert_eq!(found, [None, Some(4), Some(16), Some(64), Some(64)]);
    }

    #[test]
    fn misses_all_over_a_large_volume_fetch_nothing_else() {
        let ahead = Ahead::new(64 << 20);
        for n in 0..10_000u64 {
            assert_eq!(ahead.miss(n % (NEAR + 1) * REGION, FRAME), None, "{n}");
        }
        for n in 0..10_000u64 {
            assert_eq!(ahead.miss((1000 + n) * REGION, FRAME), None);
        }
        assert!(ahead.0.lock().regions.len() as u64 <= NEAR * 4);
    }

    /// Misses the first four pieces of each of a thousand regions, one region after the other.
    /// Returns the bytes fetched ahead for each byte missed.
    fn amplified(ahead: &Ahead, is_used: bool) -> f64 {
        let (mut missed, mut fetched) = (0, 0);
        for region in 0..1000u64 {
            for piece in 0..4 {
                missed += u64::from(FRAME);
                let at = region * REGION + piece * u64::from(FRAME);
                if let Some(range) = ahead.miss(at, FRAME) {
                    let bytes = range.end - range.start;
                    fetched += bytes;
                    ahead.fetched(bytes);
                    if is_used {
                        ahead.used(bytes / 2);
                    }
                }
            }
        }
        fetched as f64 / missed as f64
    }

    #[test]
    fn what_is_never_used_is_soon_not_fetched_any_more() {
        let ahead = Ahead::new(64 << 20);
        let first = amplified(&ahead, false);
        assert!(first < 0.25, "the credit at the beginning, and an eighth: {first}");
        let later = amplified(&ahead, false);
        assert!((0.05..0.15).contains(&later), "an eighth: {later}");
        // It is used again: what the eighth fetches earns more.
        amplified(&ahead, true);
        let again = amplified(&ahead, true);
        assert!(again > 5.0, "as if nothing had been: {again}");
        let never_else = amplified(&Ahead::new(64 << 20), true);
        assert!((again - never_else).abs() < 0.1, "{again}, {never_else}");
    }
}
