//! One segment in memory, and holds on it.

use shoal_base::SegNo;
use shoal_base::sync::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64};
use shoal_format::Geometry;
use shoal_format::usage::SegKind;
use std::sync::atomic::Ordering;

/// State of one segment. The kind changes under the lock of the free map.
pub(crate) struct Segment {
    pub live: AtomicI64,
    /// Bytes to which nothing on the device points, but something in memory does.
    pub pinned: AtomicI64,
    pub kind: AtomicU8,
    pub sealed: AtomicBool,
    /// Number of holds: reads and writes in it outside of transactions.
    pub held: AtomicU32,
    /// Number of freezes when something in it last became live.
    pub touched: AtomicU64,
    /// Time of its newest data, by the clock of [`Space::tick`]; 0 if older than this session.
    pub stamp: AtomicU32,
    /// Index of the stream that allocated it.
    pub stream: AtomicU8,
    /// Number of times it was freed.
    pub lives: AtomicU32,
}

impl Segment {
    pub(crate) fn kind(&self) -> SegKind {
        // Only `set_kind` writes this byte.
        SegKind::from_number(self.kind.load(Ordering::Acquire)).unwrap_or_default()
    }
    pub(crate) fn set_kind(&self, kind: SegKind, sealed: bool) {
        self.sealed.store(sealed, Ordering::Release);
        self.kind.store(kind as u8, Ordering::Release);
    }
    /// Live bytes, at most the segment size, for the choice of segments to clean.
    pub(crate) fn live(&self, geometry: &Geometry) -> u32 {
        self.counted().min(geometry.segment_size) as u32
    }
    /// Live bytes as counted. Negative only after an accounting error, which has been counted.
    pub(crate) fn counted(&self) -> u64 {
        self.live.load(Ordering::Relaxed).max(0) as u64
    }
}

/// Keeps a segment from being freed while it exists.
#[must_use]
pub struct Hold<'s> {
    /// `None` if the held address is outside the volume.
    pub(crate) segment: Option<&'s Segment>,
    pub(crate) seg: SegNo,
}

/// One use of a segment, from its allocation until it is freed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Life {
    seg: SegNo,
    number: u32,
}

impl Hold<'_> {
    /// The segment's current use, which cannot end before the hold is dropped. `None` if the held
    /// address is outside the volume.
    pub fn life(&self) -> Option<Life> {
        Some(Life { seg: self.seg, number: self.segment?.lives.load(Ordering::Acquire) })
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if let Some(segment) = self.segment {
            segment.held.fetch_sub(1, Ordering::Release);
        }
    }
}
