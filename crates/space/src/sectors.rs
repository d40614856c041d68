//! Allocation in the open segments, such that no sector has bytes of before and after a flush.
//!
//! The problem: a device writes whole sectors. A write that is cut off by a power failure may leave
//! all of a sector garbled, what was in it before included. So nothing may be written into a sector
//! ([`SECTOR`] bytes) that holds bytes which a flush has made durable.
//!
//! The rule: [`Space::close_sectors`] is called before each flush. In each data stream in which
//! something was written since the last call, the next object begins at the next sector; then it
//! waits for the writes under way whose bytes were allocated before. So when the flush begins, each
//! sector that it covers is complete, and stays as it is until its segment has been freed. The
//! metadata stream has one writer, the checkpoint. It begins at a sector ([`Space::align_meta`])
//! and writes whole ones.
//!
//! An object may grow in place until a flush has covered its end. After that it grows only if both
//! its end, and the end of what is allocated for it, are at the boundary of a sector.
//!
//! What it costs: up to 4 KiB of dead bytes for each stream and flush in which it was written to; a
//! flush waits for writes under way, each of one object.

use crate::{Class, Hold, Open, SegKind, Space, Stream};
use shoal_base::limits::{self, SECTOR};
use shoal_base::planted::{self, Defect};
use shoal_base::sync::{Condvar, Mutex};
use shoal_base::{Addr, Code, Result};
use shoal_format::usage::{STREAMS, stream_kind};
use std::sync::atomic::Ordering;

/// Where an allocation ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Anywhere.
    Anywhere,
    /// At the boundary of a sector, if the length is a multiple of 8: the object can grow there
    /// after a flush.
    Sector,
}

/// Bytes that have been allocated and not yet written.
pub struct Placed<'s> {
    /// Their address.
    pub addr: Addr,
    /// Keeps their segment from being freed.
    pub hold: Hold<'s>,
    /// To be dropped when they are written.
    pub writing: Writing<'s>,
}

/// State of a stream's sectors. Changes under the lock of the stream.
#[derive(Default)]
pub(crate) struct Ends {
    state: Mutex<EndsState>,
    done: Condvar,
}

#[derive(Default)]
struct EndsState {
    /// How often sectors were closed after something had been written.
    closed: u64,
    /// Something has been, or is going to be, written since.
    dirty: bool,
    /// Writes under way, by the parity of `closed` when they began.
    writing: [u32; 2],
}

impl Ends {
    fn begin(&self) -> Writing<'_> {
        let mut state = self.state.lock();
        state.dirty = true;
        let number = state.closed;
        state.writing[number as usize % 2] += 1;
        Writing { ends: self, number }
    }
}

/// A write to a data stream that is under way. A flush waits until it is dropped, so nothing may be
/// done meanwhile but the write.
#[must_use]
pub struct Writing<'s> {
    ends: &'s Ends,
    number: u64,
}

impl Writing<'_> {
    /// Number of flushes of the stream before the write: an object whose last write has the
    /// stream's current number has not been covered by a flush.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.ends.state.lock();
        let under_way = &mut state.writing[self.number as usize % 2];
        *under_way -= 1;
        if *under_way == 0 {
            drop(state);
            self.ends.done.notify_all();
        }
    }
}

impl Space {
    /// To be called before each flush of the device: what is written from now on shares no sector
    /// with what the flush makes durable.
    pub fn close_sectors(&self) {
        if planted::is(Defect::SectorShared) {
            return;
        }
        let _one = self.closing.lock();
        for stream in 1..STREAMS {
            let ends = &self.ends[stream];
            let mut open = self.streams[stream].lock();
            let mut state = ends.state.lock();
            if !std::mem::take(&mut state.dirty) {
                continue;
            }
            let before = state.closed as usize % 2;
            state.closed += 1;
            self.align(stream, &mut open);
            drop(open);
            while state.writing[before] > 0 {
                ends.done.wait(&mut state);
            }
        }
    }

    /// The next object of the metadata stream begins at the boundary of a sector.
    pub fn align_meta(&self) {
        self.align(0, &mut self.streams[0].lock());
    }

    fn align(&self, stream: usize, open: &mut Option<Open>) {
        if let Some(at) = open {
            at.next = at.next.next_multiple_of(SECTOR);
        }
        self.seal_if_full(stream, open);
    }

    /// Room for `len` bytes in one segment, at a multiple of 8. Does not change live bytes.
    ///
    /// Fails with `ENOSPC` when a segment would have to be taken and `class` may not.
    pub fn alloc(&self, stream: Stream, len: u32, class: Class) -> Result<Addr> {
        self.alloc_held(stream, len, class, End::Anywhere).map(|placed| placed.addr)
    }

    /// As [`Space::alloc`], for what is written before its transaction begins: the segment is not
    /// freed as long as the hold exists, though nothing in it is live yet.
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

    /// As `alloc`, in this stream only; without a class no segment is taken.
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
        // Under the stream's lock: no freeze sees the segment sealed and not held.
        let hold = self.hold(addr);
        let writing = self.ends[stream].begin();
        self.seal_if_full(stream, &mut open);
        Ok(Placed { addr, hold, writing })
    }

    /// Returns whether an object may grow in place: it ends at `end`, and `number` is that of its
    /// last write. Its segment must be held.
    pub fn may_grow(&self, end: Addr, number: u64) -> bool {
        let Some(stream) = self.stream_of(end) else { return false };
        end.0.is_multiple_of(SECTOR)
            || self.ends[stream].state.lock().closed == number
            || planted::is(Defect::SectorShared)
    }

    /// Allocates `by` bytes directly behind those that end at `end`. `None` if they are allocated
    /// already, or beyond the end of the segment. The bytes in front of `end` must be live, and
    /// held by the caller. Returns the stream's number, too, to write them with.
    pub fn extend(&self, end: Addr, by: u32) -> Option<(Hold<'_>, u64)> {
        let stream = self.stream_of(end)?;
        let seg = self.geometry.segment_of(Addr(end.0 - 1));
        let mut open = self.streams.get(stream)?.lock();
        let from = end.0 - self.geometry.start_of(seg).0;
        let next = (from + u64::from(by)).next_multiple_of(limits::ALIGN as u64);
        let at = open.as_mut().filter(|at| at.seg == seg)?;
        let follows = at.next == from.next_multiple_of(limits::ALIGN as u64);
        if !(follows || planted::is(Defect::GrownOverOthers)) || next > self.geometry.segment_size {
            return None;
        }
        at.next = at.next.max(next);
        let hold = self.hold(Addr(end.0 - 1));
        let number = self.ends[stream].state.lock().closed;
        self.seal_if_full(stream, &mut open);
        Some((hold, number))
    }

    /// Begins to write behind an object that ends at `end`, into what is allocated for it up to
    /// `room`. `None` if a flush has covered it since the stream had this number.
    pub fn begin_growth(&self, end: Addr, room: Addr, number: u64) -> Option<Writing<'_>> {
        let stream = self.stream_of(end)?;
        let _still = self.streams.get(stream)?.lock();
        let alone = end.0.is_multiple_of(SECTOR) && room.0.is_multiple_of(SECTOR);
        let is_open = self.ends[stream].state.lock().closed == number;
        let may = is_open || alone || planted::is(Defect::SectorShared);
        may.then(|| self.ends[stream].begin())
    }

    /// The data stream that allocated the bytes in front of `end`.
    fn stream_of(&self, end: Addr) -> Option<usize> {
        let seg = self.geometry.segment_of(Addr(end.0.checked_sub(1)?));
        let segment = self.segments.get(seg.0 as usize)?;
        let stream = usize::from(segment.stream.load(Ordering::Relaxed));
        (segment.kind() == SegKind::Data && stream < STREAMS).then_some(stream)
    }
}
