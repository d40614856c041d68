//! Emptying the last segments of a volume that becomes smaller.
//!
//! They need not be closed to allocations: the lowest free segment is always allocated first, so
//! one of them only if no other is free. Then the volume is not full, and what was moved there is
//! moved again.

use crate::{SegKind, Space, Victim};
use shoal_base::SegNo;
use std::sync::atomic::Ordering;

/// Segments with objects, and the live bytes in them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Occupied {
    /// Number of segments.
    pub segments: u32,
    /// Live bytes as counted.
    pub live: u64,
}

/// The segments of a volume, divided at one of them: [`Space::vacating`].
#[derive(Clone, Copy)]
pub struct Vacating<'s> {
    space: &'s Space,
    end: SegNo,
}

impl Space {
    /// Returns the calls for emptying the segments from `end` on.
    pub fn vacating(&self, end: SegNo) -> Vacating<'_> {
        Vacating { space: self, end }
    }
}

impl Vacating<'_> {
    /// Seals open segments from the end on, so that streams continue before it, if a segment is
    /// free there.
    pub fn close_streams(self) {
        for (n, stream) in self.space.streams.iter().enumerate() {
            let mut open = stream.lock();
            if let Some(at) = *open
                && at.seg >= self.end
            {
                self.space.seal(n, at.seg);
                *open = None;
            }
        }
    }

    /// Returns what is in the segments from the end on. Those of the journal are not included.
    pub fn occupied(self) -> Occupied {
        let mut all = Occupied::default();
        for segment in self.space.segments.iter().skip(self.end.0 as usize) {
            if segment.kind().holds_objects() {
                all.segments += 1;
                all.live += segment.counted();
            }
        }
        all
    }

    /// Number of free segments before the end.
    pub fn free_before(self) -> u32 {
        self.space.free.lock().count_below(self.end.0)
    }

    /// Returns up to `max` sealed segments from the end on that have live bytes, emptiest first.
    pub fn after(self, max: usize) -> Vec<Victim> {
        self.emptiest(self.end.0..u32::MAX, max)
    }

    /// As [`Vacating::after`], before the end.
    pub fn before(self, max: usize) -> Vec<Victim> {
        self.emptiest(1..self.end.0, max)
    }

    fn emptiest(self, segments: std::ops::Range<u32>, max: usize) -> Vec<Victim> {
        let geometry = &self.space.geometry;
        let rows = (0..).zip(&self.space.segments).filter(|(n, _)| segments.contains(n));
        let mut found: Vec<Victim> = rows
            .filter(|(_, segment)| {
                matches!(segment.kind(), SegKind::Data | SegKind::Meta)
                    && segment.sealed.load(Ordering::Acquire)
                    && segment.counted() > 0
            })
            .map(|(n, segment)| Victim {
                seg: SegNo(n),
                kind: segment.kind(),
                live: segment.live(geometry),
                stamp: segment.stamp.load(Ordering::Relaxed),
            })
            .collect();
        found.sort_unstable_by_key(|victim| (victim.live, victim.seg));
        found.truncate(max);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Class, Stream};
    use shoal_base::{Addr, limits};
    use shoal_format::Geometry;

    fn space(segments: u32) -> Space {
        let segment_size = limits::SEGMENT_SIZE_MIN;
        Space::fresh(Geometry { segment_size, segments, inode_size: 512 })
    }

    #[test]
    fn streams_leave_the_last_segments_and_go_on_in_lower_ones() {
        let space = space(40);
        let alloc = || space.alloc(Stream::Data(0), 4096, Class::Reserved).unwrap();
        let live = |addr: Addr| space.add_live(addr, 4096);
        let first = alloc();
        live(first);
        let at = space.geometry.segment_of(first);
        // It is in the first free segment; the division before it.
        let vacating = space.vacating(at);
        assert_eq!(vacating.occupied(), Occupied { segments: 1, live: 4096 });
        assert_eq!((vacating.free_before(), vacating.after(9)), (0, vec![]), "an open segment");
        vacating.close_streams();
        let victims = vacating.after(9);
        assert_eq!((victims.len(), victims[0].seg, victims[0].live), (1, at, 4096));
        assert!(vacating.before(9).is_empty());
        // Only when nothing is free before the end, one behind it is used.
        let second = alloc();
        live(second);
        assert!(space.geometry.segment_of(second) > at);
        // The other side of the division.
        let vacating = space.vacating(SegNo(at.0 + 1));
        assert_eq!(vacating.before(9).len(), 1);
        assert_eq!(vacating.occupied().segments, 1);
        assert_eq!(space.vacating(SegNo(40)).free_before(), space.counts().free_segments());
    }

    #[test]
    fn the_emptiest_segments_come_first() {
        let space = space(40);
        let size = space.geometry.segment_size;
        for live in [3000, 1000, 2000] {
            let addr = space.alloc(Stream::Data(0), size as u32, Class::Reserved);
            let addr = addr.unwrap();
            space.add_live(addr, live);
        }
        let all: Vec<u32> = space.vacating(SegNo(1)).after(9).iter().map(|v| v.live).collect();
        assert_eq!(all, [1000, 2000, 3000]);
        assert_eq!(space.vacating(SegNo(40)).before(2).len(), 2);
    }
}
