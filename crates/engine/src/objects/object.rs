//! Data objects on the device: writing one, reading part of one.

use crate::objects::Objects;
use crate::state::{Growth, Tail};
use shoal_base::counters::Counter;
use shoal_base::invariant;
use shoal_base::limits::EXTENT_MAX;
use shoal_base::planted::{self, Defect};
use shoal_base::shard::shard;
use shoal_base::{Addr, Error, Ino, Result};
use shoal_format::extent::{DataHeader, Extent, HEADER};
use shoal_format::sums::{PIECE, Running, Sums};
use shoal_format::{Codec, Coding, Ptr};
use shoal_space::{Class, End, HOT_STREAMS, Hold, Placed, Stream, Writing};
use std::io::IoSlice;

/// Minimum bytes of the first part when an object is split.
const SPLIT_MIN: usize = 4096;

/// Returns the stream for new data of the calling thread.
fn hot_stream() -> Stream {
    Stream::Data((shard() % usize::from(HOT_STREAMS)) as u8)
}

/// A written object to which no extent points yet.
pub(crate) struct Stored<'s> {
    pub extent: Extent,
    pub hold: Hold<'s>,
    /// Checksums of its bytes so far; `None` if it cannot grow, because it is compressed.
    sum: Option<Running>,
    /// Payload bytes allocated, at least the object's length.
    room: u32,
    /// Flushes of the stream before its last write ([`Writing::number`]).
    flushes: u64,
}

impl<'s> Stored<'s> {
    /// Splits it into the tail of its file, if it can grow, and the hold on its segment.
    pub(crate) fn into_tail(self, ino: Ino, interleaved: bool) -> (Option<Box<Tail>>, Hold<'s>) {
        let Stored { extent, hold, sum, room, flushes } = self;
        let (life, flushed) = (hold.life(), false);
        let tail = |sum| Tail { ino, extent, sum, room, life, flushes, flushed, interleaved };
        (sum.map(tail).map(Box::new), hold)
    }
}

impl<'v> Objects<'v> {
    /// Writes the pieces as one object for `[offset, …)` of a file. It is unreferenced until a
    /// transaction points to it. If none does, its space is reclaimed with its segment.
    pub(crate) fn write_object(self, ino: Ino, offset: u64, pieces: &[&[u8]]) -> Result<Extent> {
        self.write_object_as(ino, offset, pieces, Class::Ordinary)
    }

    /// Writes the whole contents of a new file as objects. The holds must be kept until the
    /// transaction that points to the objects has been committed.
    pub(crate) fn write_contents(
        self,
        ino: Ino,
        contents: &[u8],
    ) -> Result<Vec<(Extent, Hold<'v>)>> {
        let offsets = (0..).step_by(EXTENT_MAX);
        let pieces = contents.chunks(EXTENT_MAX).zip(offsets);
        let write = |(piece, offset)| {
            self.write_object_to(hot_stream(), ino, offset, &[piece], Class::Ordinary)
        };
        pieces.map(write).collect()
    }

    /// Writes the pieces with a hold. Allocates up to `room` bytes for the payload that end at
    /// `end`, fewer if the segment ends before. Writes two objects if the first one fills the rest
    /// of a segment that would otherwise be wasted: with the longest objects up to an eighth of it.
    pub(crate) fn write_split(
        self,
        ino: Ino,
        offset: u64,
        pieces: &[&[u8]],
        (room, end): (usize, End),
    ) -> Result<Vec<Stored<'v>>> {
        if let Some(coded) = self.compressed(pieces) {
            let stored = self.store_coded(hot_stream(), (ino, offset), coded, Class::Ordinary)?;
            return Ok(vec![stored]);
        }
        let len: usize = pieces.iter().map(|p| p.len()).sum();
        let rest = self.0.store.space().counts().rest_of(hot_stream()) as usize;
        let head = rest.saturating_sub(HEADER) / SPLIT_MIN * SPLIT_MIN;
        if rest >= HEADER + len || head == 0 || head >= len {
            let room = room.min(rest.saturating_sub(HEADER)).max(len);
            return Ok(vec![self.store_hot((ino, offset), pieces, (room, end))?]);
        }
        let (mut first, mut second, mut left) = (Vec::new(), Vec::new(), head);
        for piece in pieces {
            let (here, there) = piece.split_at(left.min(piece.len()));
            left -= here.len();
            first.push(here);
            second.push(there);
        }
        first.retain(|piece| !piece.is_empty());
        second.retain(|piece| !piece.is_empty());
        let first = self.store_hot((ino, offset), &first, (head, End::Anywhere))?;
        let behind = (ino, offset + head as u64);
        let second = self.store_hot(behind, &second, (room.max(len) - head, end))?;
        Ok(vec![first, second])
    }

    fn store_hot(
        self,
        place: (Ino, u64),
        pieces: &[&[u8]],
        room: (usize, End),
    ) -> Result<Stored<'v>> {
        self.store_object(hot_stream(), place, pieces, room, Class::Ordinary)
    }

    pub(crate) fn write_object_as(
        self,
        ino: Ino,
        offset: u64,
        pieces: &[&[u8]],
        class: Class,
    ) -> Result<Extent> {
        self.write_object_to(hot_stream(), ino, offset, pieces, class).map(|(extent, _)| extent)
    }

    /// As [`Objects::write_object_as`], in a given stream. The hold must be kept until the
    /// transaction that points to the object has been committed.
    pub(crate) fn write_object_to(
        self,
        stream: Stream,
        ino: Ino,
        offset: u64,
        pieces: &[&[u8]],
        class: Class,
    ) -> Result<(Extent, Hold<'v>)> {
        let stored = match self.compressed(pieces) {
            Some(coded) => self.store_coded(stream, (ino, offset), coded, class)?,
            None => {
                let len = pieces.iter().map(|p| p.len()).sum();
                self.store_object(stream, (ino, offset), pieces, (len, End::Anywhere), class)?
            }
        };
        Ok((stored.extent, stored.hold))
    }

    /// For the cleaner: writes a compressed object unchanged. The extent must have all of it.
    pub(crate) fn copy_coded(
        self,
        stream: Stream,
        ino: Ino,
        old: &Extent,
        payload: &[u8],
    ) -> Result<(Extent, Hold<'v>)> {
        let coded = (payload.to_vec(), old.ptr.coding());
        let stored = self.store_coded(stream, (ino, old.offset), coded, Class::Reserved)?;
        Ok((stored.extent, stored.hold))
    }

    /// Writes a compressed object.
    pub(crate) fn store_coded(
        self,
        stream: Stream,
        (ino, offset): (Ino, u64),
        (stored, coding): (Vec<u8>, Coding),
        class: Class,
    ) -> Result<Stored<'v>> {
        let Coding { codec, len, logical } = coding;
        let room = HEADER as u32 + len;
        let placed = self.0.store.space().alloc_held(stream, room, class, End::Anywhere)?;
        let Placed { addr, hold, writing } = placed;
        let header = DataHeader::new(ino, offset, len, codec).encode(self.0.store.volume());
        let slices = [IoSlice::new(&header), IoSlice::new(&stored)];
        self.sent(self.0.store.device().write_vectored_at(&slices, addr.0))?;
        let flushes = self.data_written(stored.len(), writing)?;
        let addr = Addr(addr.0 + HEADER as u64);
        let ptr = Ptr::coded(addr, self.0.store.epoch(), &stored, coding);
        let extent = Extent { offset, len: logical, skip: 0, ptr, sums: Sums::NONE };
        Ok(Stored { extent, hold, sum: None, room: len, flushes })
    }

    /// Writes an uncompressed object, with `room` bytes allocated for the payload, up to `end`.
    fn store_object(
        self,
        stream: Stream,
        (ino, offset): (Ino, u64),
        pieces: &[&[u8]],
        (room, end): (usize, End),
        class: Class,
    ) -> Result<Stored<'v>> {
        let len: usize = pieces.iter().map(|p| p.len()).sum();
        invariant!(
            len > 0 && len <= room && room <= EXTENT_MAX,
            "object of {len} bytes, room {room}"
        );
        let placed = self.0.store.space().alloc_held(stream, (HEADER + room) as u32, class, end)?;
        let Placed { addr, hold, writing } = placed;
        let header = DataHeader::new(ino, offset, len as u32, Codec::None);
        let header = header.encode(self.0.store.volume());
        let mut sum = Running::default();
        let mut slices = Vec::with_capacity(pieces.len() + 1);
        slices.push(IoSlice::new(&header));
        for piece in pieces {
            sum.update(piece);
            slices.push(IoSlice::new(piece));
        }
        self.sent(self.0.store.device().write_vectored_at(&slices, addr.0))?;
        let flushes = self.data_written(len, writing)?;
        let addr = Addr(addr.0 + HEADER as u64);
        let (checksum, sums) = sum.finish();
        let ptr = Ptr::sealed(addr, self.0.store.epoch(), len as u32, checksum);
        let extent = Extent { offset, len: len as u32, skip: 0, ptr, sums };
        Ok(Stored { extent, hold, sum: Some(sum), room: room as u32, flushes })
    }

    /// Appends bytes to an object, or writes a new one if a flush has covered its end meanwhile.
    /// Does not update its header: durable bytes must never be overwritten.
    pub(crate) fn write_growth(self, growth: Growth<'v>, new: &[u8]) -> Result<Vec<Stored<'v>>> {
        let Some(writing) = growth.begin(self.0.store.space()) else {
            let extent = &growth.tail.extent;
            return self.write_split(growth.tail.ino, extent.end(), &[new], (0, End::Anywhere));
        };
        let Growth { tail, hold } = growth;
        if let Err(e) = self.sent(self.0.store.device().write_at(new, tail.end().0)) {
            // Refused, it is made again, and can grow then.
            self.0.tails.put(tail);
            return Err(e);
        }
        let Tail { mut extent, mut sum, room, .. } = *tail;
        let flushes = self.data_written(new.len(), writing)?;
        self.0.store.counters().add(Counter::ObjectsGrown, 1);
        sum.update(new);
        extent.len += new.len() as u32;
        let (checksum, sums) = sum.finish();
        extent.ptr = Ptr::sealed(extent.ptr.addr, self.0.store.epoch(), extent.len, checksum);
        extent.sums = sums;
        Ok(vec![Stored { extent, hold, sum: Some(sum), room, flushes }])
    }

    /// Returns the result of a data write. A failed one makes the volume read-only: it may have
    /// changed whole sectors, and in its first and last one may be data of other calls that no
    /// flush has covered yet. A later flush would acknowledge them.
    fn sent(self, written: Result<()>) -> Result<()> {
        match &written {
            // What it has left is where nothing of others is yet, and this call is made again.
            Ok(()) | Err(Error::Cold(_)) => {}
            Err(e) => self.0.store.poison(&format!("data: {e}")),
        }
        written
    }

    /// Notes a completed write. Returns the number of flushes before it.
    fn data_written(self, len: usize, writing: Writing<'_>) -> Result<u64> {
        self.0.store.journal()?.note_data_written(len);
        self.0.store.counters().add(Counter::DataBytesWritten, len as u64);
        Ok(writing.number())
    }

    /// Holds the data of extents, so that it stays readable after the inode is unlocked.
    pub(crate) fn hold_extents(self, extents: &[Extent]) -> Vec<Hold<'v>> {
        let data = extents.iter().filter(|e| !e.is_prealloc());
        data.map(|e| self.0.store.space().hold(e.data_addr())).collect()
    }

    /// Reads the bytes of an extent, from its byte `from` on, into `out`.
    pub(crate) fn read_extent(
        self,
        ino: Ino,
        extent: &Extent,
        from: usize,
        out: &mut [u8],
    ) -> Result<()> {
        if extent.is_prealloc() {
            out.fill(0);
            return Ok(());
        }
        let ptr = extent.ptr;
        self.check_ptr(ino, &ptr)?;
        let start = extent.skip as usize + from;
        if ptr.is_coded() {
            return self.read_coded(ino, extent, start, out);
        }
        let end = start + out.len();
        // Reads whole pieces, each of which has a checksum; a short object as a whole.
        let (first, len) = (start / PIECE, ptr.len as usize);
        let (from, to) = (first * PIECE, end.next_multiple_of(PIECE).min(len));
        if from == start && to == end {
            self.0.store.device().read_at(out, ptr.addr.0 + from as u64)?;
            return verify(ino, extent, first, out);
        }
        let mut pieces = vec![0; to - from];
        self.0.store.device().read_at(&mut pieces, ptr.addr.0 + from as u64)?;
        verify(ino, extent, first, &pieces)?;
        out.copy_from_slice(&pieces[start - from..end - from]);
        Ok(())
    }

    fn check_ptr(self, ino: Ino, ptr: &Ptr) -> Result<()> {
        if self.0.store.geometry().contains(ptr.addr, u64::from(ptr.len)) {
            return Ok(());
        }
        let object = format!("extent of inode {ino}");
        Err(Error::corrupt(object, Some(ptr.addr.0), "points outside any segment"))
    }
}

/// Verifies pieces read from an object, from piece `first` on. A compressed object must be whole.
pub(crate) fn verify(ino: Ino, extent: &Extent, first: usize, bytes: &[u8]) -> Result<()> {
    if planted::is(Defect::DataChecksum) {
        return Ok(());
    }
    let object = format_args!("data of inode {ino}");
    match extent.ptr.is_coded() || extent.ptr.len as usize <= PIECE {
        true => extent.ptr.verify_payload(bytes, object).map(drop),
        false => extent.sums.verify(first, bytes, extent.ptr.addr.0, object),
    }
}
