//! Counting anew, for a repair: of a volume whose usage table is lost or may be wrong, segments are
//! counted from what points into them.
//!
//! Until then nothing may be allocated, and what is counted is ignored. A segment that the image on
//! the device may still need, although nothing of the new state lives in it, is given as sealed
//! with no live byte: it is freed, like any other, by the next checkpoint, once that is durable.

use crate::free::FreeMap;
use crate::{SegKind, Space, UsageEntry};
use shoal_base::invariant;
use shoal_format::Geometry;
use std::sync::atomic::Ordering;

impl Space {
    /// A space that is still to be counted.
    pub fn uncounted(geometry: Geometry) -> Space {
        let space = Space::fresh(geometry);
        space.uncounted.store(true, Ordering::Relaxed);
        space
    }

    /// Whether it is.
    pub fn is_uncounted(&self) -> bool {
        self.uncounted.load(Ordering::Relaxed)
    }

    /// Every segment is what its entry says; streams begin new segments. Not while anything is
    /// allocated or counted.
    pub fn recount(&self, entries: &[UsageEntry]) {
        invariant!(entries.len() == self.segments.len(), "one entry for each segment");
        self.streams.iter().for_each(|stream| *stream.lock() = None);
        let mut free = self.free.lock();
        *free = FreeMap::new(self.geometry.segments);
        self.meta.store(0, Ordering::Relaxed);
        for (n, (entry, segment)) in entries.iter().zip(&self.segments).enumerate() {
            let objects = entry.kind.holds_objects();
            segment.set_kind(entry.kind, objects);
            let live = entry.live.get() as i64;
            segment.live.store(live, Ordering::Relaxed);
            self.count_meta(entry.kind, live);
            if entry.kind == SegKind::Free {
                free.insert(n as u32, false);
            }
        }
        self.free_count.store(free.len(), Ordering::Relaxed);
        self.recount_host(&mut free);
        // The next checkpoint writes all pages.
        *self.shadow.lock() = None;
        self.totals.set_live(entries.iter().map(|entry| entry.live.get() as i64).sum());
        self.accounting_errors.store(0, Ordering::Relaxed);
        self.uncounted.store(false, Ordering::Relaxed);
    }
}
