//! Allocating and freeing segments. All but the host's allocation is under the lock of the free
//! map.

use crate::free::FreeMap;
use crate::segment::Segment;
use crate::space::{Class, Space};
use shoal_base::{Code, Result, SegNo};
use shoal_format::usage::SegKind;
use std::sync::atomic::Ordering;

impl Space {
    /// Allocates the lowest free segment, and makes the host allocate it: nothing may depend on a
    /// segment that the host could still refuse.
    pub(crate) fn take(&self, kind: SegKind, class: Class) -> Result<SegNo> {
        let lowest = self.take_free(kind, class, false)?;
        let Err(error) = self.back(lowest) else { return Ok(lowest) };
        // Nothing has been written to it.
        self.put_back(lowest);
        match class {
            Class::Ordinary => Err(error),
            // Segments are kept backed for allocations that must succeed.
            Class::Reserved => {
                self.host().ensure_backed(1)?;
                self.take_free(kind, class, true)
            }
        }
    }

    /// Allocates the lowest free segment or, if `backed`, the lowest that the host has allocated.
    fn take_free(&self, kind: SegKind, class: Class, backed: bool) -> Result<SegNo> {
        if self.recovery().is_uncounted() {
            return Err(Code::NoSpace.into());
        }
        let mut free = self.free.lock();
        let keep = match class {
            Class::Ordinary => self.reserve.load(Ordering::Relaxed) + 1,
            Class::Reserved => 0,
        };
        let seg = loop {
            if free.len() + free.away <= keep {
                return Err(Code::NoSpace.into());
            }
            let Some(seg) = free.lowest(|n| !backed || self.host.is_backed(n)) else {
                if free.away == 0 {
                    return Err(Code::NoSpace.into());
                }
                self.host.returned().wait(&mut free);
                continue;
            };
            self.remove_free(&mut free, seg);
            if self.segments[seg as usize].live.load(Ordering::Relaxed) == 0 {
                break seg;
            }
            // On a damaged volume something may point into it, whatever the table says: do not use
            // it.
            self.accounting_error();
        };
        self.set_kind(seg, kind, false);
        Ok(SegNo(seg))
    }

    pub(crate) fn remove_free(&self, free: &mut FreeMap, seg: u32) {
        free.remove(seg);
        self.host.moved(seg, false);
        self.free_count.store(free.len() + free.away, Ordering::Relaxed);
    }

    /// Allocates a segment for the journal. May use the reserve.
    pub fn take_journal_segment(&self) -> Result<SegNo> {
        self.take(SegKind::Journal, Class::Reserved)
    }

    /// Frees journal segments at once. A checkpoint that does not need them must be durable. Other
    /// segments are left alone and counted as an accounting error.
    pub fn release_journal_segments(&self, segments: &[SegNo]) {
        for seg in segments {
            let kind = self.segments.get(seg.0 as usize).map(Segment::kind);
            if kind == Some(SegKind::Journal) {
                self.release(*seg);
            } else {
                self.accounting_error();
            }
        }
    }

    pub(crate) fn release(&self, seg: SegNo) {
        self.host.freed(seg.0);
        self.put_back(seg);
    }

    fn put_back(&self, seg: SegNo) {
        let mut free = self.free.lock();
        self.segments[seg.0 as usize].lives.fetch_add(1, Ordering::Release);
        self.set_kind(seg.0, SegKind::Free, false);
        self.add_free(&mut free, seg.0);
    }
}
