//! Segments: who gets which, how many live bytes each holds, when one is free again.
//!
//! The volume is cut into segments. Segment 0 holds the superblocks; every other one is free, or
//! belongs to the journal, or is appended to by a *stream* ([`Stream`]): one for metadata, a few
//! for data. A stream fills its open segment from the start to the end, then *seals* it and takes
//! the free segment with the lowest number, so that a sparse file stays small.
//!
//! # When a segment is free again
//!
//! A crash brings back the newest checkpoint and replays the journal after it. So nothing may be
//! overwritten that (a) the newest durable checkpoint points to, or (b) a record after it points
//! to, or (c) is being written and will be pointed to. The rules that follow from this:
//!
//! 1. Live counts may drop to zero at any time; the segment stays taken. Only [`Space::committed`],
//!    called when a newer checkpoint has become durable, frees segments.
//! 2. It frees a data segment only if, at the *freeze* of that checkpoint, it was sealed and had
//!    no live byte. (a) The checkpoint, which is the state at the freeze, does not point to it.
//!    (b) Later records could point to it only through bytes allocated in it later, and it was
//!    sealed. A segment sealed after the freeze is left for the next checkpoint, whatever it holds.
//! 3. It frees a metadata segment if the checkpoint, as written, has no live byte in it and no
//!    stream appends to it. Journal records never point to metadata, so (b) does not arise.
//! 4. In both cases the live count *now* must be zero too: (c), and a second opinion on 2 and 3.
//! 5. Nor is one freed while bytes in it are *pinned*: nothing in checkpoint or journal points to
//!    them any more, but an open file without a name does ([`Space::pin`]).
//! 6. Journal segments are freed by the caller, who knows which ones the newest checkpoint needs.
//! 7. Nor is a segment freed while it is *held* ([`Hold`]): somebody reads or writes in it outside
//!    of a transaction. And a data segment in which something became live after the freeze waits
//!    for the next checkpoint even if it is dead again: a record after the freeze names it (b).
//!
//! For (c) to hold the caller promises that an allocation and the [`Space::add_live`] of what was
//! written to it happen within one transaction, that is, with no freeze between them; or that the
//! allocation is held ([`Space::alloc_held`]) until that transaction has ended. An object that
//! grows ([`Space::extend`], or into room allocated with it) must be held likewise.
//!
//! What a flush has made durable shares no sector with what is written later: `sectors.rs`.
//!
//! # What the table on disk says
//!
//! The usage table is part of the checkpoint, so it must describe the state *after* it is durable:
//! segments that rule 2 or 3 will free are `Free` in it already. Journal segments are `Journal`,
//! which at load means free: recovery [`claim`](Space::claim)s those that it finds it still needs,
//! and the segments that replayed records point to, before anything is allocated. The table is in
//! pages, of which a checkpoint writes those that changed (`checkpoint.rs`).

mod bits;
mod changed;
mod checkpoint;
mod choice;
mod count;
mod free;
mod host;
mod recount;
mod sectors;
mod segment;
mod shadow;
mod take;

pub use checkpoint::Frozen;
pub use segment::{Hold, Life};

pub use choice::Victim;
pub use host::FreeRun;
pub use sectors::{End, Placed, Writing};
use segment::Segment;
use shoal_base::sync::{AtomicBool, AtomicI64, AtomicU8, AtomicU32, AtomicU64, Mutex};
pub use shoal_format::usage::{SegKind, UsageEntry, UsageTable};

use changed::Changed;
use count::Totals;
use free::FreeMap;
use host::Host;
use sectors::Ends;
use shadow::Shadow;
use shoal_base::{Addr, Error, Result, SegNo, limits};
use shoal_format::Geometry;
use shoal_format::usage::{STREAMS, table_bytes};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

/// Number of data streams.
pub const DATA_STREAMS: u8 = (STREAMS - 1) as u8;
/// Data streams of new data, from 0 on. Threads are spread over them, so that they do not wait for
/// each other.
pub const HOT_STREAMS: u8 = DATA_STREAMS - 1;
/// The stream of what the cleaner moves. What has survived in a segment of mostly dead bytes is
/// likely to survive longer than new data: kept apart, it is not moved again and again.
pub const COLD: Stream = Stream::Data(HOT_STREAMS);

/// Who appends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stream {
    /// Tree nodes, inode blocks, tables, checkpoints.
    Meta,
    /// File data; the number is taken modulo [`DATA_STREAMS`].
    Data(u8),
}

impl Stream {
    fn index(self) -> usize {
        match self {
            Stream::Meta => 0,
            Stream::Data(n) => 1 + usize::from(n % DATA_STREAMS),
        }
    }
}

/// Bytes left in open segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rest {
    /// In that of the metadata stream.
    pub meta: u64,
    /// In those of the data streams.
    pub data: u64,
}

/// Whether an allocation may use the reserve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// Not: fails with `ENOSPC` while the reserve is still whole.
    Ordinary,
    /// Yes: a checkpoint, the journal, the cleaner; what must succeed on a full volume.
    Reserved,
}

/// Segments held back so that a checkpoint, an unlink or a truncate succeeds on a full volume: two
/// in a hundred, at least 6 and at most 64. They must hold the metadata that one checkpoint writes
/// while the previous one's is still there, the journal meanwhile, and a segment for the cleaner;
/// an engine that lets more metadata get dirty sets more with [`Space::set_reserve`]. And as many
/// as the whole usage table takes, of which a removal may change every page: none, where it is
/// smaller than a segment.
pub const fn default_reserve(geometry: &Geometry) -> u32 {
    let table = (table_bytes(geometry) / geometry.segment_size) as u32;
    table
        + match geometry.segments / 50 {
            ..6 => 6,
            share @ 6..=64 => share,
            _ => 64,
        }
}

/// The open segment of a stream, and the offset in it of the next object.
#[derive(Clone, Copy)]
struct Open {
    seg: SegNo,
    next: u64,
}

/// The segments of a volume.
///
/// Locks: a stream's, then the free map's, then the table's; several streams' only in ascending
/// order.
pub struct Space {
    geometry: Geometry,
    segments: Box<[Segment]>,
    streams: [Mutex<Option<Open>>; STREAMS],
    /// What of each stream is being written, and what a flush has covered.
    ends: [Ends; STREAMS],
    /// Held by who closes sectors.
    closing: Mutex<()>,
    free: Mutex<FreeMap>,
    /// Copy of the free map's count, readable without its lock.
    free_count: AtomicU32,
    reserve: AtomicU32,
    accounting_errors: AtomicU64,
    totals: Totals,
    /// Live bytes of metadata: checkpoints alone change them.
    meta: AtomicI64,
    /// Segments that streams have sealed so far: the clock by which segments age.
    clock: AtomicU32,
    host: Host,
    /// May be off by one for the moment of a change.
    pinned_segments: AtomicI64,
    /// Live bytes that a segment may have: its size, unless objects may be coded.
    live_max: AtomicI64,
    /// What is counted means nothing until [`Space::recount`].
    uncounted: AtomicBool,
    /// Freezes so far.
    freezes: AtomicU64,
    /// What has changed since the last one.
    changed: Changed,
    /// The newest checkpoint's usage table; `None` while a [`Frozen`] has it, or when nobody knows
    /// what is on the device.
    shadow: Mutex<Option<Shadow>>,
    /// Pages of it that the next checkpoint writes whatever has changed.
    rewrites: Mutex<BTreeSet<u32>>,
}

impl Space {
    /// An empty volume: all segments free but the first.
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
        let host = Host::new(geometry.segments);
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

    /// Objects may be coded: each of the parts of one that are in use counts a byte at least,
    /// however little of it is theirs, so a segment may have more live bytes than its size.
    pub fn expect_coded(&self) {
        self.live_max.store(i64::MAX, Ordering::Relaxed);
    }

    /// The state that a checkpoint's usage table describes, which has been verified. Streams go on
    /// where they were.
    pub fn load(geometry: Geometry, table: UsageTable) -> Space {
        let space = Space::fresh(geometry);
        let mut free = space.free.lock();
        for (n, entry) in table.entries.iter().enumerate() {
            if entry.kind == SegKind::Journal {
                // Free here, and not in the table.
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
                // What lies before the position is durable.
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

    /// Recovery: marks a segment as in use, because a journal record or the journal itself is found
    /// to live there, though the checkpoint calls it free. Doing it twice changes nothing.
    pub fn claim(&self, seg: SegNo, kind: SegKind) -> Result<()> {
        let broken = |rule: String| Err(Error::corrupt(format!("segment {}", seg.0), None, rule));
        let Some(segment) = self.segments.get(seg.0 as usize) else {
            return broken(format!("journal names it, the volume has {}", self.geometry.segments));
        };
        let mut free = self.free.lock();
        let current = segment.kind();
        if current == kind {
            return Ok(());
        }
        if current != SegKind::Free {
            let (is, wanted) = (current.name(), kind.name());
            return broken(format!("journal says it holds {wanted}, checkpoint says {is}"));
        }
        if free.contains(seg.0) {
            self.remove_free(&mut free, seg.0);
        }
        self.set_kind(seg.0, kind, kind != SegKind::Journal);
        Ok(())
    }

    /// Recovery: an object found in the journal ends at `end`; if that is in a stream's open
    /// segment, the stream goes on in the sector after it.
    pub fn bump(&self, end: Addr) {
        let Some(last) = end.0.checked_sub(1) else { return };
        let seg = self.geometry.segment_of(Addr(last));
        let next = (end.0 - self.geometry.start_of(seg).0).next_multiple_of(limits::SECTOR);
        for (n, stream) in self.streams.iter().enumerate() {
            let mut open = stream.lock();
            if let Some(at) = open.as_mut()
                && at.seg == seg
            {
                at.next = at.next.max(next);
                self.seal_if_full(n, &mut open);
            }
        }
    }

    fn set_stream(&self, seg: SegNo, stream: usize) {
        if let Some(segment) = self.segments.get(seg.0 as usize) {
            segment.stream.store(stream as u8, Ordering::Relaxed);
        }
    }

    /// Keeps the segment of these bytes from being freed while they are read outside of a
    /// transaction. To be called while they are live for certain: under the lock of the inode that
    /// points to them.
    pub fn hold(&self, addr: Addr) -> Hold<'_> {
        let seg = self.geometry.segment_of(addr);
        if let Some(segment) = self.segments.get(seg.0 as usize) {
            segment.held.fetch_add(1, Ordering::Relaxed);
        }
        Hold { space: self, seg }
    }

    /// A position at the very end would be an address in the next segment, so it is never kept.
    fn seal_if_full(&self, stream: usize, open: &mut Option<Open>) {
        if let Some(at) = *open
            && at.next >= self.geometry.segment_size
        {
            self.seal(stream, at.seg);
            *open = None;
        }
    }

    /// No stream appends to the segment any more.
    fn seal(&self, stream: usize, seg: SegNo) {
        let segment = &self.segments[seg.0 as usize];
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        // Moved data is as old as it was: `stamp_moved` has said so.
        if stream != COLD.index() {
            segment.stamp.store(now, Ordering::Relaxed);
        }
        segment.sealed.store(true, Ordering::Release);
        self.changed.mark(seg.0);
    }

    /// Under the lock of the free map.
    fn set_kind(&self, seg: u32, kind: SegKind, sealed: bool) {
        self.segments[seg as usize].set_kind(kind, sealed);
        self.changed.mark(seg);
    }

    /// Free segments, the reserve included.
    pub fn free_segments(&self) -> u32 {
        self.free_count.load(Ordering::Relaxed)
    }

    /// Segments held back from ordinary allocations.
    pub fn reserve_segments(&self) -> u32 {
        self.reserve.load(Ordering::Relaxed)
    }

    /// Changes the reserve.
    pub fn set_reserve(&self, segments: u32) {
        self.reserve.store(segments, Ordering::Relaxed);
    }

    /// Bytes that are left in a stream's open segment.
    pub fn rest_of(&self, stream: Stream) -> u64 {
        let open = *self.streams[stream.index()].lock();
        open.map_or(0, |at| self.geometry.segment_size - at.next)
    }

    /// Bytes that are left in the open segments.
    pub fn open_rest(&self) -> Rest {
        let rest = |stream: &Mutex<Option<Open>>| {
            let open = *stream.lock();
            open.map_or(0, |at| self.geometry.segment_size - at.next)
        };
        let [meta, data @ ..] = &self.streams;
        Rest { meta: rest(meta), data: data.iter().map(rest).sum() }
    }

    /// What a segment is used for; `None`: there is no such segment.
    pub fn kind(&self, seg: SegNo) -> Option<SegKind> {
        self.segments.get(seg.0 as usize).map(Segment::kind)
    }

    /// Every segment: number, kind, live bytes, whether sealed.
    pub fn usage(&self) -> Vec<(SegNo, SegKind, u64, bool)> {
        let row = |(n, segment): (usize, &Segment)| {
            let sealed = segment.sealed.load(Ordering::Acquire);
            (SegNo(n as u32), segment.kind(), segment.counted(), sealed)
        };
        self.segments.iter().enumerate().map(row).collect()
    }

    /// The shape of the volume.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }
}

#[cfg(test)]
mod page_tests;
#[cfg(test)]
mod sector_tests;
#[cfg(test)]
mod tests;
