//! Space accounting: live and pinned bytes of each segment, and of the volume.
//!
//! The sums of the volume are sharded, with a cache line per shard: a call adds to its own line,
//! and a reader adds up the lines. A sum read concurrently with updates is exact except for the
//! updates in progress.
//!
//! Changes are calls of [`Space`]; all that is counted is read through [`Counts`].

use crate::segment::Segment;
use crate::space::{Open, Space, Stream};
use crate::totals::Rest;
use shoal_base::invariant;
use shoal_base::planted::{self, Defect};
use shoal_base::sync::Mutex;
use shoal_base::{Addr, SegNo};
use shoal_format::usage::SegKind;
use std::sync::atomic::Ordering;

/// The counted bytes and segments of a volume: [`Space::counts`].
#[derive(Clone, Copy)]
pub struct Counts<'s>(&'s Space);

impl Space {
    /// Returns the counts of bytes and segments, for reading.
    #[inline]
    pub fn counts(&self) -> Counts<'_> {
        Counts(self)
    }

    /// Accounts for a new pointer to these bytes.
    #[inline]
    pub fn add_live(&self, addr: Addr, len: u32) {
        self.change_live(addr, i64::from(len));
    }

    /// Accounts for the loss of a pointer to these bytes.
    #[inline]
    pub fn sub_live(&self, addr: Addr, len: u32) {
        self.change_live(addr, -i64::from(len));
    }

    /// Pins bytes that were just subtracted from the live count but are still read by somebody:
    /// their segment must not be freed.
    pub fn pin(&self, addr: Addr, len: u32) {
        self.change_pinned(addr, i64::from(len));
    }

    /// Unpins bytes: nobody reads them, and no record since the last freeze points to them.
    pub fn unpin(&self, addr: Addr, len: u32) {
        self.change_pinned(addr, -i64::from(len));
    }

    fn change_pinned(&self, addr: Addr, by: i64) {
        match self.segments.get(self.geometry.segment_of(addr).0 as usize) {
            Some(segment) => {
                let before = segment.pinned.fetch_add(by, Ordering::Relaxed);
                self.totals.pinned(by);
                let now = before + by;
                invariant!(now >= 0, "{now} pinned bytes after {by} at {}", addr.0);
                // Rare: files removed one after the other are usually in one segment.
                if (before == 0) != (now == 0) {
                    let more = if before == 0 { 1 } else { -1 };
                    self.pinned_segments.fetch_add(more, Ordering::Relaxed);
                }
            }
            None => self.accounting_error(),
        }
    }

    pub(crate) fn count_meta(&self, kind: SegKind, by: i64) {
        if kind == SegKind::Meta {
            self.meta.fetch_add(by, Ordering::Relaxed);
        }
    }

    fn change_live(&self, addr: Addr, by: i64) {
        let seg = self.geometry.segment_of(addr).0 as usize;
        let Some(segment) = self.segments.get(seg) else { return self.accounting_error() };
        if by > 0 {
            let freezes = self.freezes.load(Ordering::Relaxed);
            if segment.touched.load(Ordering::Relaxed) < freezes {
                segment.touched.fetch_max(freezes, Ordering::Relaxed);
            }
        }
        let now = segment.live.fetch_add(by, Ordering::Relaxed) + by;
        self.changed.mark(seg as u32);
        self.totals.live(by);
        let dead = now == 0 && segment.kind() == SegKind::Data;
        if dead && planted::is(Defect::SegmentTooEarly) && segment.sealed.load(Ordering::Acquire) {
            self.release(SegNo(seg as u32));
        }
        if (now < 0 || now > self.live_max.load(Ordering::Relaxed))
            && !self.recovery().is_uncounted()
        {
            // A damaged volume or a bug; a check reports it.
            self.accounting_error();
        }
    }

    #[cold]
    pub(crate) fn accounting_error(&self) {
        self.accounting_errors.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counts<'_> {
    /// Number of free segments, including the reserve.
    #[inline]
    pub fn free_segments(self) -> u32 {
        self.0.free_count.load(Ordering::Relaxed)
    }

    /// Number of segments reserved from ordinary allocations.
    #[inline]
    pub fn reserve_segments(self) -> u32 {
        self.0.reserve.load(Ordering::Relaxed)
    }

    /// Number of segments that the next checkpoint frees.
    pub fn ready_segments(self) -> u32 {
        let is_ready = |segment: &&Segment| {
            matches!(segment.kind(), SegKind::Data | SegKind::Meta)
                && segment.sealed.load(Ordering::Acquire)
                && segment.live.load(Ordering::Relaxed) == 0
                && segment.pinned.load(Ordering::Relaxed) == 0
        };
        self.0.segments.iter().filter(is_ready).count() as u32
    }

    /// Live bytes.
    pub fn live_bytes(self) -> u64 {
        self.0.totals.sum(|shard| &shard.live)
    }

    /// Live bytes of metadata.
    #[inline]
    pub fn meta_bytes(self) -> u64 {
        self.0.meta.load(Ordering::Relaxed).max(0) as u64
    }

    /// Pinned bytes.
    pub fn pinned_bytes(self) -> u64 {
        self.0.totals.sum(|shard| &shard.pinned)
    }

    /// Number of segments with pinned bytes.
    pub fn pinned_segments(self) -> u32 {
        self.0.pinned_segments.load(Ordering::Relaxed).max(0) as u32
    }

    /// Dead bytes in used segments: approximately what cleaning and a checkpoint could gain.
    pub fn dead_bytes(self) -> u64 {
        let used = self.0.geometry.segments.saturating_sub(1 + self.free_segments());
        let used = u64::from(used) * self.0.geometry.segment_size;
        used.saturating_sub(self.live_bytes() + self.pinned_bytes())
    }

    /// Free bytes in a stream's open segment.
    pub fn rest_of(self, stream: Stream) -> u64 {
        let open = *self.0.streams[stream.index()].lock();
        open.map_or(0, |at| self.0.geometry.segment_size - at.next)
    }

    /// Free bytes in the open segments.
    pub fn open_rest(self) -> Rest {
        let rest = |stream: &Mutex<Option<Open>>| {
            let open = *stream.lock();
            open.map_or(0, |at| self.0.geometry.segment_size - at.next)
        };
        let [meta, data @ ..] = &self.0.streams;
        Rest { meta: rest(meta), data: data.iter().map(rest).sum() }
    }

    /// Number of accounting errors: live bytes below zero or above the segment size, or a release
    /// of a segment by a caller that did not own it. These are bugs, reported by `fsck`. They do
    /// not endanger data, because a segment is freed only if its count is exactly zero.
    pub fn accounting_errors(self) -> u64 {
        self.0.accounting_errors.load(Ordering::Relaxed)
    }
}
