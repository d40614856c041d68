//! Recovery after a crash, and recounting for a repair.
//!
//! Recovery: the journal after the newest checkpoint is in segments, and points to segments, that
//! may be free in that checkpoint. They are claimed before anything is allocated.
//!
//! Recounting: if the usage table is lost or may be wrong, the live bytes of all segments are
//! counted from the pointers to them. Until then nothing may be allocated, and counts are ignored.
//! A segment that the image on the device may still need, although the new state has nothing in it,
//! is passed as sealed without live bytes: the next checkpoint frees it once it is durable, like
//! any other.

use crate::free::FreeMap;
use crate::{SegKind, Space, UsageEntry};
use shoal_base::{Addr, Error, Result, SegNo, invariant, limits};
use shoal_format::Geometry;
use std::sync::atomic::Ordering;

/// Recovery and repair of the segments' state: [`Space::recovery`].
#[derive(Clone, Copy)]
pub struct Recovery<'s>(&'s Space);

impl Space {
    /// Makes a space that must still be counted.
    pub fn uncounted(geometry: Geometry) -> Space {
        let space = Space::fresh(geometry);
        space.uncounted.store(true, Ordering::Relaxed);
        space
    }

    /// Returns the calls for recovery and repair.
    #[inline]
    pub fn recovery(&self) -> Recovery<'_> {
        Recovery(self)
    }
}

impl Recovery<'_> {
    /// Marks a segment as in use, because the journal or a journal record uses it although the
    /// checkpoint says that it is free. Idempotent.
    ///
    /// # Errors
    /// Corruption, if journal and checkpoint contradict each other.
    pub fn claim(self, seg: SegNo, kind: SegKind) -> Result<()> {
        let broken = |rule: String| Err(Error::corrupt(format!("segment {}", seg.0), None, rule));
        let Some(segment) = self.0.segments.get(seg.0 as usize) else {
            return broken(format!(
                "journal names it, the volume has {}",
                self.0.geometry.segments
            ));
        };
        let mut free = self.0.free.lock();
        let current = segment.kind();
        if current == kind {
            return Ok(());
        }
        if current != SegKind::Free {
            let (is, wanted) = (current.name(), kind.name());
            return broken(format!("journal says it holds {wanted}, checkpoint says {is}"));
        }
        if free.contains(seg.0) {
            self.0.remove_free(&mut free, seg.0);
        }
        self.0.set_kind(seg.0, kind, kind != SegKind::Journal);
        Ok(())
    }

    /// Notes that an object found in the journal ends at `end`. If that is in a stream's open
    /// segment, the stream continues in the next sector.
    pub fn bump(self, end: Addr) {
        let Some(last) = end.0.checked_sub(1) else { return };
        let seg = self.0.geometry.segment_of(Addr(last));
        let next = (end.0 - self.0.geometry.start_of(seg).0).next_multiple_of(limits::SECTOR);
        for (n, stream) in self.0.streams.iter().enumerate() {
            let mut open = stream.lock();
            if let Some(at) = open.as_mut()
                && at.seg == seg
            {
                at.next = at.next.max(next);
                self.0.seal_if_full(n, &mut open);
            }
        }
    }

    /// Returns whether the space must still be counted.
    #[inline]
    pub fn is_uncounted(self) -> bool {
        self.0.uncounted.load(Ordering::Relaxed)
    }

    /// Sets every segment to its entry; streams begin new segments. Must not be called while
    /// anything is allocated or counted.
    pub fn recount(self, entries: &[UsageEntry]) {
        invariant!(entries.len() == self.0.segments.len(), "one entry for each segment");
        self.0.streams.iter().for_each(|stream| *stream.lock() = None);
        let mut free = self.0.free.lock();
        *free = FreeMap::new(self.0.geometry.segments);
        self.0.meta.store(0, Ordering::Relaxed);
        for (n, (entry, segment)) in entries.iter().zip(&self.0.segments).enumerate() {
            let objects = entry.kind.holds_objects();
            segment.set_kind(entry.kind, objects);
            let live = entry.live.get() as i64;
            segment.live.store(live, Ordering::Relaxed);
            self.0.count_meta(entry.kind, live);
            if entry.kind == SegKind::Free {
                free.insert(n as u32, false);
            }
        }
        self.0.free_count.store(free.len(), Ordering::Relaxed);
        self.0.recount_host(&mut free);
        // The next checkpoint writes all pages.
        *self.0.shadow.lock() = None;
        self.0.totals.set_live(entries.iter().map(|entry| entry.live.get() as i64).sum());
        self.0.accounting_errors.store(0, Ordering::Relaxed);
        self.0.uncounted.store(false, Ordering::Relaxed);
    }
}
