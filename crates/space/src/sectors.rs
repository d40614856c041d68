//! Allocation in the open segments, such that no sector contains bytes written before and after a
//! flush.
//!
//! Problem: a device writes whole sectors. A write interrupted by a power failure may garble the
//! whole sector, including earlier contents. So nothing may be written into a sector ([`SECTOR`]
//! bytes) that contains bytes made durable by a flush.
//!
//! Rule: [`Sectors::close`] is called before each flush. In each data stream written to since
//! the last call, it moves the position to the next sector; then it waits for the writes in
//! progress whose bytes were allocated before. So when the flush begins, each sector that it covers
//! is complete, and never changes until its segment has been freed. The metadata stream has one
//! writer, the checkpoint. It begins at a sector ([`Sectors::align_meta`]) and writes whole ones.
//!
//! An object may grow in place until a flush has covered its end. After that it grows only if both
//! its end and the end of its allocation are at sector boundaries.
//!
//! Cost: up to 4 KiB of dead bytes per flush for each stream written to; a flush waits for writes
//! in progress, each of one object.

use crate::ends::Writing;
use crate::segment::Hold;
use crate::space::{Class, Open, Space, Stream};
use shoal_base::limits::{self, SECTOR};
use shoal_base::planted::{self, Defect};
use shoal_base::{Addr, Code, Result};
use shoal_format::usage::{STREAMS, SegKind, stream_kind};
use std::sync::atomic::Ordering;

/// Alignment of the end of an allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// None.
    Anywhere,
    /// At a sector boundary, if the length is a multiple of 8: the object can grow there after a
    /// flush.
    Sector,
}

/// Bytes that were allocated and are not written yet.
pub struct Placed<'s> {
    /// Their address.
    pub addr: Addr,
    /// Keeps their segment from being freed.
    pub hold: Hold<'s>,
    /// Must be dropped when they are written.
    pub writing: Writing<'s>,
}

/// Sectors at the ends of streams, and growth of objects in place: [`Space::sectors`].
#[derive(Clone, Copy)]
pub struct Sectors<'s>(&'s Space);

impl Space {
    /// Returns the calls that close sectors, and those that let an object grow in place.
    #[inline]
    pub fn sectors(&self) -> Sectors<'_> {
        Sectors(self)
    }

    fn align(&self, stream: usize, open: &mut Option<Open>) {
        if let Some(at) = open {
            at.next = at.next.next_multiple_of(SECTOR);
        }
        self.seal_if_full(stream, open);
    }

    /// Allocates `len` bytes in one segment, at a multiple of 8. Does not change live bytes.
    ///
    /// # Errors
    /// `ENOSPC` if a new segment is needed and `class` may not allocate one.
    pub fn alloc(&self, stream: Stream, len: u32, class: Class) -> Result<Addr> {
        self.alloc_held(stream, len, class, End::Anywhere).map(|placed| placed.addr)
    }

    /// As [`Space::alloc`], for data written before its transaction begins: the segment is not
    /// freed while the hold exists, although nothing in it is live yet.
    pub fn alloc_held(
        &self,
        stream: Stream,
        len: u32,
        class: Class,
        end: End,
    ) -> Result<Placed<'_>> {
        let size = u64::from(len).next_multiple_of(limits::ALIGN as u64);
        if size > self.geometry.segment_size {
            return Err(Code::TooBig.into());
        }
        let own = stream.index();
        let refused = match self.alloc_in(own, size, Some(class), end) {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        // The last bytes of a nearly full volume are in the open segments of the other streams.
        let others = (1..STREAMS).filter(|other| own != 0 && *other != own);
        for other in others {
            if let Ok(found) = self.alloc_in(other, size, None, end) {
                return Ok(found);
            }
        }
        Err(refused)
    }

    /// As `alloc`, in this stream only. Without a class no segment is allocated.
    fn alloc_in(
        &self,
        stream: usize,
        size: u64,
        class: Option<Class>,
        end: End,
    ) -> Result<Placed<'_>> {
        let mut open = self.streams[stream].lock();
        let end_from = |next: u64| match end {
            End::Anywhere => next + size,
            End::Sector => (next + size).next_multiple_of(SECTOR),
        };
        let fits = open.is_some_and(|at| end_from(at.next) <= self.geometry.segment_size);
        if !fits {
            let Some(class) = class else { return Err(Code::NoSpace.into()) };
            let seg = self.take(stream_kind(stream), class)?;
            self.set_stream(seg, stream);
            if let Some(full) = open.replace(Open { seg, next: 0 }) {
                self.seal(stream, full.seg);
            }
        }
        let Some(at) = open.as_mut() else { return Err(Code::NoSpace.into()) };
        at.next = end_from(at.next);
        let addr = Addr(self.geometry.start_of(at.seg).0 + at.next - size);
        // Under the stream's lock: no freeze sees the segment sealed but not held.
        let hold = self.hold(addr);
        let writing = self.ends[stream].begin();
        self.seal_if_full(stream, &mut open);
        Ok(Placed { addr, hold, writing })
    }

    /// The data stream that allocated the bytes before `end`.
    fn stream_of(&self, end: Addr) -> Option<usize> {
        let seg = self.geometry.segment_of(Addr(end.0.checked_sub(1)?));
        let segment = self.segments.get(seg.0 as usize)?;
        let stream = usize::from(segment.stream.load(Ordering::Relaxed));
        (segment.kind() == SegKind::Data && stream < STREAMS).then_some(stream)
    }
}

impl<'s> Sectors<'s> {
    /// Closes the current sectors. Must be called before each flush of the device: data written
    /// from now on shares no sector with data that the flush makes durable.
    pub fn close(self) {
        if planted::is(Defect::SectorShared) {
            return;
        }
        let _one = self.0.closing.lock();
        for stream in 1..STREAMS {
            let ends = &self.0.ends[stream];
            let mut open = self.0.streams[stream].lock();
            let mut state = ends.state.lock();
            if !std::mem::take(&mut state.dirty) {
                continue;
            }
            let before = state.closed as usize % 2;
            state.closed += 1;
            self.0.align(stream, &mut open);
            drop(open);
            while state.writing[before] > 0 {
                ends.done.wait(&mut state);
            }
        }
    }

    /// Moves the metadata stream to a sector boundary.
    pub fn align_meta(self) {
        self.0.align(0, &mut self.0.streams[0].lock());
    }

    /// Returns whether an object may grow in place. It ends at `end`, and `number` is that of its
    /// last write. Its segment must be held.
    pub fn may_grow(self, end: Addr, number: u64) -> bool {
        let Some(stream) = self.0.stream_of(end) else { return false };
        end.0.is_multiple_of(SECTOR)
            || self.0.ends[stream].state.lock().closed == number
            || planted::is(Defect::SectorShared)
    }

    /// Allocates `by` bytes directly after those that end at `end`. Returns `None` if those are
    /// already allocated, or beyond the end of the segment. The bytes before `end` must be live,
    /// and held by the caller. Also returns the stream's number for the write.
    pub fn extend(self, end: Addr, by: u32) -> Option<(Hold<'s>, u64)> {
        let stream = self.0.stream_of(end)?;
        let seg = self.0.geometry.segment_of(Addr(end.0 - 1));
        let mut open = self.0.streams.get(stream)?.lock();
        let from = end.0 - self.0.geometry.start_of(seg).0;
        let next = (from + u64::from(by)).next_multiple_of(limits::ALIGN as u64);
        let at = open.as_mut().filter(|at| at.seg == seg)?;
        let follows = at.next == from.next_multiple_of(limits::ALIGN as u64);
        if !(follows || planted::is(Defect::GrownOverOthers)) || next > self.0.geometry.segment_size
        {
            return None;
        }
        at.next = at.next.max(next);
        let hold = self.0.hold(Addr(end.0 - 1));
        let number = self.0.ends[stream].state.lock().closed;
        self.0.seal_if_full(stream, &mut open);
        Some((hold, number))
    }

    /// Begins a write directly after an object that ends at `end`, into its allocation, which ends
    /// at `room`. Returns `None` if a flush has covered it since the stream had this number.
    pub fn begin_growth(self, end: Addr, room: Addr, number: u64) -> Option<Writing<'s>> {
        let stream = self.0.stream_of(end)?;
        let _still = self.0.streams.get(stream)?.lock();
        let alone = end.0.is_multiple_of(SECTOR) && room.0.is_multiple_of(SECTOR);
        let is_open = self.0.ends[stream].state.lock().closed == number;
        let may = is_open || alone || planted::is(Defect::SectorShared);
        may.then(|| self.0.ends[stream].begin())
    }
}
