//! Counting: live and pinned bytes of each segment, and of the volume.
//!
//! The sums of the volume are kept in shards, a cache line for each of the threads' shards: a call
//! adds to its own line, and a reader adds up the lines. A sum read while others count is right
//! to within what they are at.

use crate::{SegKind, Space};
use crossbeam_utils::CachePadded;
use shoal_base::invariant;
use shoal_base::planted::{self, Defect};
use shoal_base::shard::{SHARDS, shard};
use shoal_base::sync::AtomicI64;
use shoal_base::{Addr, SegNo};
use std::sync::atomic::Ordering;

/// What the threads of a shard have added.
#[derive(Default)]
pub(crate) struct Shard {
    live: AtomicI64,
    pinned: AtomicI64,
    /// Bytes taken off either.
    freed: AtomicI64,
}

/// Sums over all segments.
pub(crate) struct Totals(Box<[CachePadded<Shard>]>);

impl Default for Totals {
    fn default() -> Totals {
        Totals((0..SHARDS).map(|_| CachePadded::default()).collect())
    }
}

impl Totals {
    #[inline]
    pub(crate) fn live(&self, by: i64) {
        let mine = &self.0[shard()];
        mine.live.fetch_add(by, Ordering::Relaxed);
        if by < 0 {
            mine.freed.fetch_sub(by, Ordering::Relaxed);
        }
    }

    fn pinned(&self, by: i64) {
        let mine = &self.0[shard()];
        mine.pinned.fetch_add(by, Ordering::Relaxed);
        if by < 0 {
            mine.freed.fetch_sub(by, Ordering::Relaxed);
        }
    }

    fn sum(&self, of: impl Fn(&Shard) -> &AtomicI64) -> u64 {
        let sum: i64 = self.0.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum();
        sum.max(0) as u64
    }

    /// Sets the live bytes, while nothing is counted.
    pub(crate) fn set_live(&self, bytes: i64) {
        self.0.iter().for_each(|shard| shard.live.store(0, Ordering::Relaxed));
        self.0[0].live.store(bytes, Ordering::Relaxed);
    }
}

impl Space {
    /// Something now points to these bytes.
    #[inline]
    pub fn add_live(&self, addr: Addr, len: u32) {
        self.change_live(addr, i64::from(len));
    }

    /// Something that pointed to these bytes no longer does.
    #[inline]
    pub fn sub_live(&self, addr: Addr, len: u32) {
        self.change_live(addr, -i64::from(len));
    }

    /// These bytes, just taken off the live count, are still read by somebody: their segment stays.
    pub fn pin(&self, addr: Addr, len: u32) {
        self.change_pinned(addr, i64::from(len));
    }

    /// Nobody reads them any more, and no record since the last freeze points to them.
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
                // Rarely: files removed one after the other lie in one segment.
                if (before == 0) != (now == 0) {
                    let more = if before == 0 { 1 } else { -1 };
                    self.pinned_segments.fetch_add(more, Ordering::Relaxed);
                }
            }
            None => self.accounting_error(),
        }
    }

    /// Segments in which something is pinned.
    pub fn pinned_segments(&self) -> u32 {
        self.pinned_segments.load(Ordering::Relaxed).max(0) as u32
    }

    /// Bytes that are pinned.
    pub fn pinned_bytes(&self) -> u64 {
        self.totals.sum(|shard| &shard.pinned)
    }

    /// Bytes that something points to.
    pub fn live_bytes(&self) -> u64 {
        self.totals.sum(|shard| &shard.live)
    }

    /// Bytes of metadata that something points to.
    pub fn meta_bytes(&self) -> u64 {
        self.meta.load(Ordering::Relaxed).max(0) as u64
    }

    pub(crate) fn count_meta(&self, kind: SegKind, by: i64) {
        if kind == SegKind::Meta {
            self.meta.fetch_add(by, Ordering::Relaxed);
        }
    }

    /// Bytes that were live or pinned and are no more, since the volume was opened: what has
    /// changed since a call found no space, if anything has.
    pub fn freed_bytes(&self) -> u64 {
        self.totals.sum(|shard| &shard.freed)
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
        if (now < 0 || now > self.live_max.load(Ordering::Relaxed)) && !self.is_uncounted() {
            // A damaged volume, or a fault of ours: a check says so.
            self.accounting_error();
        }
    }

    #[cold]
    pub(crate) fn accounting_error(&self) {
        self.accounting_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Times that live bytes went below zero or above a segment's size, or a segment was released
    /// by who did not own it: bugs, shown by `fsck`, harmless to what is stored since a segment is
    /// freed only when its count is exactly zero.
    pub fn accounting_errors(&self) -> u64 {
        self.accounting_errors.load(Ordering::Relaxed)
    }
}
