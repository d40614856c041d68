//! The state of all segments, its loading, and the open segments of the streams.

use crate::changed::Changed;
use crate::ends::Ends;
use crate::free::FreeMap;
use crate::host_state::HostState;
use crate::segment::{Hold, Segment};
use crate::shadow::Shadow;
use crate::totals::Totals;
use shoal_base::sync::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Mutex};
use shoal_base::{Addr, SegNo, limits};
use shoal_format::Geometry;
use shoal_format::usage::{STREAMS, SegKind, UsageTable, table_bytes};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Number of data streams.
pub const DATA_STREAMS: u8 = (STREAMS - 1) as u8;
/// Number of data streams for new data, numbered from 0. Threads are spread over them, so that they
/// do not wait for each other.
pub const HOT_STREAMS: u8 = DATA_STREAMS - 1;
/// The stream for data moved by the cleaner. Data that survived in a mostly dead segment is likely
/// to survive longer than new data. In separate segments it is not moved again and again.
pub const COLD: Stream = Stream::Data(HOT_STREAMS);

/// An append stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Tree nodes, inode blocks, tables, checkpoints.
    Meta,
    /// File data. The number is taken modulo [`DATA_STREAMS`].
    Data(u8),
}

impl Stream {
    pub(crate) fn index(self) -> usize {
        match self {
            Stream::Meta => 0,
            Stream::Data(n) => 1 + usize::from(n % DATA_STREAMS),
        }
    }
}

/// The right of an allocation to use the reserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// None: fails with `ENOSPC` if only the reserve is left.
    Ordinary,
    /// May use it: a checkpoint, the journal, the cleaner, and anything else that must succeed on a
    /// full volume.
    Reserved,
}

/// Number of segments reserved so that a checkpoint, an unlink or a truncate succeeds on a full
/// volume: 2 % of all, at least 6 and at most 64. They must hold the metadata written by one
/// checkpoint while that of the previous one still exists, the journal meanwhile, and a segment for
/// the cleaner. An engine that allows more dirty metadata sets more with [`Space::set_reserve`].
/// Added to this is the size of the whole usage table, in full segments, because a removal may
/// change every page.
pub const fn default_reserve(geometry: &Geometry) -> u32 {
    let table = (table_bytes(geometry) / geometry.segment_size) as u32;
    table
        + match geometry.segments / 50 {
            ..6 => 6,
            share @ 6..=64 => share,
            _ => 64,
        }
}

/// The open segment of a stream, and the offset of the next object in it.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) seg: SegNo,
    pub(crate) next: u64,
}

/// The segments of a volume.
///
/// Its own methods allocate, and count what is live and pinned. The others are in views:
///
/// | view | subject |
/// | --- | --- |
/// | [`Space::counts`] | numbers of segments and bytes: free, live, pinned, dead |
/// | [`Space::sectors`] | sectors closed before a flush, objects that grow in place |
/// | [`Space::host`] | backed and stale segments, discarding |
/// | [`Space::cleaning`] | the choice of segments to clean |
/// | [`Space::vacating`] | the last segments, of a volume that becomes smaller |
/// | [`Space::checkpointing`] | the freeze, metadata written and freed, freeing segments |
/// | [`Space::recovery`] | claims of segments after a crash, recounting for a repair |
///
/// Lock order: a stream's lock, then the free map's, then the table's. Several streams are locked
/// only in ascending order.
pub struct Space {
    pub(crate) geometry: Geometry,
    pub(crate) segments: Box<[Segment]>,
    pub(crate) streams: [Mutex<Option<Open>>; STREAMS],
    /// For each stream: the writes in progress, and the state of the last flush.
    pub(crate) ends: [Ends; STREAMS],
    /// Held while sectors are closed.
    pub(crate) closing: Mutex<()>,
    pub(crate) free: Mutex<FreeMap>,
    /// Copy of the free map's count, readable without its lock.
    pub(crate) free_count: AtomicU32,
    pub(crate) reserve: AtomicU32,
    pub(crate) accounting_errors: AtomicU64,
    pub(crate) totals: Totals,
    /// Live bytes of metadata. Only checkpoints change them.
    pub(crate) meta: AtomicI64,
    /// Number of segments sealed so far: the clock for the age of segments.
    pub(crate) clock: AtomicU32,
    pub(crate) host: HostState,
    /// May be off by one during a change.
    pub(crate) pinned_segments: AtomicI64,
    /// Largest number of live bytes in a segment: its size, unless objects may be compressed.
    pub(crate) live_max: AtomicI64,
    /// The counts are invalid until `Recovery::recount`.
    pub(crate) uncounted: AtomicBool,
    /// Number of freezes.
    pub(crate) freezes: AtomicU64,
    /// Segments changed since the last freeze.
    pub(crate) changed: Changed,
    /// The usage table of the newest checkpoint; `None` while a `Frozen` has it, or if the
    /// contents of the device are unknown.
    pub(crate) shadow: Mutex<Option<Shadow>>,
    /// Pages of the table that the next checkpoint must write even if unchanged.
    pub(crate) rewrites: Mutex<BTreeSet<u32>>,
}

impl Space {
    /// Makes an empty volume: all segments but the first are free.
    pub fn fresh(geometry: Geometry) -> Space {
        let segments: Box<[Segment]> = (0..geometry.segments)
            .map(|n| Segment {
                live: AtomicI64::new(0),
                pinned: AtomicI64::new(0),
                kind: AtomicU8::new(if n == 0 { SegKind::Super } else { SegKind::Free } as u8),
                sealed: AtomicBool::new(false),
                held: AtomicU32::new(0),
                touched: AtomicU64::new(0),
                stamp: AtomicU32::new(0),
                stream: AtomicU8::new(0),
                lives: AtomicU32::new(0),
            })
            .collect();
        let mut free = FreeMap::new(geometry.segments);
        (1..geometry.segments).for_each(|n| free.insert(n, false));
        let host = HostState::new(geometry.segments);
        host.recount(|n| free.contains(n));
        Space {
            free_count: AtomicU32::new(free.len()),
            reserve: AtomicU32::new(default_reserve(&geometry)),
            totals: Totals::default(),
            meta: AtomicI64::new(0),
            clock: AtomicU32::new(1),
            host,
            geometry,
            segments,
            streams: [const { Mutex::new(None) }; STREAMS],
            ends: std::array::from_fn(|_| Ends::default()),
            closing: Mutex::new(()),
            free: Mutex::new(free),
            accounting_errors: AtomicU64::new(0),
            pinned_segments: AtomicI64::new(0),
            live_max: AtomicI64::new(geometry.segment_size as i64),
            uncounted: AtomicBool::new(false),
            freezes: AtomicU64::new(0),
            changed: Changed::new(geometry.segments),
            shadow: Mutex::new(Some(Shadow::fresh(&geometry))),
            rewrites: Mutex::default(),
        }
    }

    /// Allows compressed objects: each used part of one counts at least one byte, however small its
    /// share, so the live bytes of a segment may exceed its size.
    pub fn expect_coded(&self) {
        self.live_max.store(i64::MAX, Ordering::Relaxed);
    }

    /// Loads the state described by a verified usage table of a checkpoint. Streams continue at
    /// their positions.
    pub fn load(geometry: Geometry, table: UsageTable) -> Space {
        let space = Space::fresh(geometry);
        let mut free = space.free.lock();
        for (n, entry) in table.entries.iter().enumerate() {
            if entry.kind == SegKind::Journal {
                // Free in memory, but not in the table.
                space.changed.mark(n as u32);
            }
            if entry.kind.holds_objects() {
                free.remove(n as u32);
                space.segments[n].set_kind(entry.kind, entry.sealed);
                let live = entry.live.get() as i64;
                space.segments[n].live.store(live, Ordering::Relaxed);
                space.totals.live(live);
                space.count_meta(entry.kind, live);
            }
        }
        space.free_count.store(free.len(), Ordering::Relaxed);
        space.host.recount(|n| free.contains(n));
        drop(free);
        for (stream, position) in table.positions.iter().enumerate() {
            if position.0 != 0 {
                let seg = geometry.segment_of(*position);
                // Everything before the position is durable.
                let next = (position.0 - geometry.start_of(seg).0).next_multiple_of(limits::SECTOR);
                let mut open = space.streams[stream].lock();
                *open = Some(Open { seg, next });
                space.set_stream(seg, stream);
                space.seal_if_full(stream, &mut open);
            }
        }
        *space.shadow.lock() = Some(Shadow::loaded(&geometry, table));
        space
    }

    pub(crate) fn set_stream(&self, seg: SegNo, stream: usize) {
        if let Some(segment) = self.segments.get(seg.0 as usize) {
            segment.stream.store(stream as u8, Ordering::Relaxed);
        }
    }

    /// Keeps the segment of these bytes from being freed while they are read outside of a
    /// transaction. Must be called while they are certainly live: under the lock of the inode that
    /// points to them.
    pub fn hold(&self, addr: Addr) -> Hold<'_> {
        let seg = self.geometry.segment_of(addr);
        let segment = self.segments.get(seg.0 as usize);
        if let Some(segment) = segment {
            segment.held.fetch_add(1, Ordering::Relaxed);
        }
        Hold { segment, seg }
    }

    /// Seals a full segment. A position at its very end would be an address in the next segment, so
    /// it is never kept.
    pub(crate) fn seal_if_full(&self, stream: usize, open: &mut Option<Open>) {
        if let Some(at) = *open
            && at.next >= self.geometry.segment_size
        {
            self.seal(stream, at.seg);
            *open = None;
        }
    }

    /// Seals a segment to which no stream appends any more.
    pub(crate) fn seal(&self, stream: usize, seg: SegNo) {
        let segment = &self.segments[seg.0 as usize];
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        // Moved data keeps its age, set by `stamp_moved`.
        if stream != COLD.index() {
            segment.stamp.store(now, Ordering::Relaxed);
        }
        segment.sealed.store(true, Ordering::Release);
        self.changed.mark(seg.0);
    }

    /// Sets kind and seal, under the lock of the free map.
    pub(crate) fn set_kind(&self, seg: u32, kind: SegKind, sealed: bool) {
        self.segments[seg as usize].set_kind(kind, sealed);
        self.changed.mark(seg);
    }

    /// Sets the reserve.
    pub fn set_reserve(&self, segments: u32) {
        self.reserve.store(segments, Ordering::Relaxed);
    }

    /// The kind of a segment; `None` if there is no such segment.
    pub fn kind(&self, seg: SegNo) -> Option<SegKind> {
        self.segments.get(seg.0 as usize).map(Segment::kind)
    }

    /// All segments: number, kind, live bytes, whether sealed.
    pub fn usage(&self) -> Vec<(SegNo, SegKind, u64, bool)> {
        let row = |(n, segment): (usize, &Segment)| {
            let sealed = segment.sealed.load(Ordering::Acquire);
            (SegNo(n as u32), segment.kind(), segment.counted(), sealed)
        };
        self.segments.iter().enumerate().map(row).collect()
    }
}

#[cfg(test)]
mod history_tests;
#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod sector_tests;
#[cfg(test)]
mod tests;
