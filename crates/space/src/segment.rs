//! One segment in memory, and holding it.

use crate::Space;
use shoal_base::SegNo;
use shoal_base::sync::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64};
use shoal_format::Geometry;
use shoal_format::usage::SegKind;
use std::sync::atomic::Ordering;

/// State of one segment. The kind changes under the lock of the free map.
pub(crate) struct Segment {
    pub live: AtomicI64,
    /// Bytes that nothing on the device points to any more, but somebody in memory does.
    pub pinned: AtomicI64,
    pub kind: AtomicU8,
    pub sealed: AtomicBool,
    /// Reads and writes in it outside of transactions.
    pub held: AtomicU32,
    /// Number of freezes when something in it last became live.
    pub touched: AtomicU64,
    /// Time of the newest data in it, by the clock of [`Space::tick`]; 0: older than this session.
    pub stamp: AtomicU32,
    /// Index of the stream that allocated it.
    pub stream: AtomicU8,
    /// Number of times it was freed.
    pub lives: AtomicU32,
}

impl Segment {
    pub fn kind(&self) -> SegKind {
        // The byte is only ever written by `set_kind`.
        SegKind::from_number(self.kind.load(Ordering::Acquire)).unwrap_or_default()
    }
    pub fn set_kind(&self, kind: SegKind, sealed: bool) {
        self.sealed.store(sealed, Ordering::Release);
        self.kind.store(kind as u8, Ordering::Release);
    }
    /// Returns the live bytes, for choosing what to clean: not more than the segment has.
    pub fn live(&self, geometry: &Geometry) -> u32 {
        self.counted().min(geometry.segment_size) as u32
    }
    /// Returns the live bytes as they are counted. Below zero only after an accounting error, which
    /// has been counted.
    pub fn counted(&self) -> u64 {
        self.live.load(Ordering::Relaxed).max(0) as u64
    }
}

/// Keeps a segment from being freed as long as it exists.
#[must_use]
pub struct Hold<'s> {
    pub(crate) space: &'s Space,
    pub(crate) seg: SegNo,
}

/// Identifies one use of a segment, from its allocation until it is freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    seg: SegNo,
    number: u32,
}

impl Hold<'_> {
    /// Returns the segment's current use, which cannot end before the hold is dropped. `None` if
    /// the hold is on an address outside the volume.
    pub fn life(&self) -> Option<Life> {
        let segment = self.space.segments.get(self.seg.0 as usize)?;
        Some(Life { seg: self.seg, number: segment.lives.load(Ordering::Acquire) })
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if let Some(segment) = self.space.segments.get(self.seg.0 as usize) {
            segment.held.fetch_sub(1, Ordering::Release);
        }
    }
}
