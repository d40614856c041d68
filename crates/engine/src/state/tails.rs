//! Data objects that grow in place.
//!
//! Problem: mail, logs, archives and compilers append a few KiB at a time. With an object for each
//! write, a file has as many records as writes; merging the neighbours writes each byte several
//! times.
//!
//! Rule: an append extends the last object of the file. The new bytes are written after it on the
//! device, and the transaction replaces the extent by a longer one. The state of the object's
//! checksum is kept in memory for the files written to most recently, so the old bytes are not
//! read. A file without a cached state begins a new object.
//!
//! Proof for crashes: the bytes after an object are unallocated, so no durable byte is overwritten.
//! A crash before the record is durable restores the shorter extent, whose checksum still matches.
//!
//! A flush makes the end of the object durable, and the sector with the end must not be written
//! again (`crates/space/src/sectors.rs`). Then the file begins a new object, as for any other
//! write, unless the object ends at a sector boundary. If a file's appends end at multiples of 4
//! KiB, its object is placed so that it does, and grows regardless of flushes.
//!
//! Cost: one file at a time can grow at the end of a segment. A file that finds other data after
//! its object allocates its next object with room to grow, as much as the window holds so far.
//! Interleaved writers use up to six objects per window. The unused room of a file is at most the
//! size of its last window, and the cleaner reclaims it.

use shoal_base::limits::EXTENT_MAX;
use shoal_base::shard::spread;
use shoal_base::sync::Mutex;
use shoal_base::{Addr, Ino};
use shoal_format::extent::Extent;
use shoal_format::sums::Running;
use shoal_space::{Hold, Life, Space, Writing};
use std::collections::VecDeque;

/// Bytes of a window. Objects never cross window boundaries.
pub(crate) const WINDOW: u64 = EXTENT_MAX as u64;

const SHARDS: usize = 16;
/// Tails in a shard, of about 850 bytes each.
const TAILS: usize = 16;

/// The object written last in a file, with the state needed to extend it.
pub(crate) struct Tail {
    pub ino: Ino,
    /// Extent that maps the whole object.
    pub extent: Extent,
    /// Checksums of its bytes so far.
    pub sum: Running,
    /// Payload bytes allocated for the object, at least its length.
    pub room: u32,
    /// Use of the segment in which the room was allocated. The room must not be used after it ends.
    pub life: Option<Life>,
    /// Flushes of the stream before the object's end was written or allocated.
    pub flushes: u64,
    /// A flush has covered its end, so that it cannot grow.
    pub flushed: bool,
    /// Other data has been found after an object of this file.
    pub interleaved: bool,
}

/// A tail whose room for the next write is allocated.
pub(crate) struct Growth<'s> {
    pub tail: Box<Tail>,
    /// Keeps the segment allocated.
    pub hold: Hold<'s>,
}

impl Growth<'_> {
    /// Begins to write the new bytes. `None` if a flush has covered the object's end.
    pub(crate) fn begin<'s>(&self, space: &'s Space) -> Option<Writing<'s>> {
        space.sectors().begin_growth(self.tail.end(), self.tail.room_end(), self.tail.flushes)
    }
}

impl Tail {
    /// End of its bytes on the device.
    pub(crate) fn end(&self) -> Addr {
        Addr(self.extent.ptr.addr.0 + u64::from(self.extent.ptr.len))
    }

    /// End of the bytes allocated for it.
    fn room_end(&self) -> Addr {
        Addr(self.extent.ptr.addr.0 + u64::from(self.room))
    }

    /// Returns whether a write at `at` continues this object. `before` are the extents of the
    /// window before `at`; empty at the start of a window. Otherwise the object must be the last of
    /// them, or the file no longer maps it.
    pub(crate) fn continues_at(&self, at: u64, before: &[Extent]) -> bool {
        let is_mapped = match before.last() {
            Some(last) => *last == self.extent,
            None => at.is_multiple_of(WINDOW),
        };
        is_mapped && self.extent.end() == at
    }

    /// Allocates room for `len` more bytes. The caller must hold the lock of the inode that maps
    /// the object, so that it is live.
    ///
    /// # Errors
    /// Returns the tail if the object cannot grow.
    pub(crate) fn grow(
        mut self: Box<Self>,
        space: &Space,
        len: u32,
    ) -> Result<Growth<'_>, Box<Tail>> {
        let (ptr, hold) = (self.extent.ptr, space.hold(self.extent.ptr.addr));
        let longer = ptr.len + len;
        if hold.life() != self.life || self.extent.end().is_multiple_of(WINDOW) {
            return Err(self);
        }
        if !space.sectors().may_grow(self.end(), self.flushes) {
            (self.flushed, self.interleaved) = (true, false);
            return Err(self);
        }
        if longer <= self.room {
            return Ok(Growth { tail: self, hold });
        }
        // The new bytes begin in the rest of the room.
        match space.sectors().extend(self.room_end(), longer - self.room) {
            // A flush has happened in between.
            Some(_) if !space.sectors().may_grow(self.end(), self.flushes) => Err(self),
            Some((hold, flushes)) => {
                (self.room, self.flushes) = (longer, flushes);
                Ok(Growth { tail: self, hold })
            }
            None => {
                self.interleaved = true;
                Err(self)
            }
        }
    }

    /// Payload bytes to allocate for the next object of an interleaved file, whose first `len`
    /// bytes go to offset `at`.
    pub(crate) fn room_of_next(&self, at: u64, len: u32) -> u32 {
        let inside = (at % WINDOW) as u32;
        let rest = WINDOW as u32 - inside;
        inside.max(self.extent.len).min(rest).max(len)
    }
}

/// Cache of tails, of the files written to most recently.
pub(crate) struct Tails([Mutex<VecDeque<Box<Tail>>>; SHARDS]);

impl Default for Tails {
    fn default() -> Self {
        Tails(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Tails {
    fn shard(&self, ino: Ino) -> &Mutex<VecDeque<Box<Tail>>> {
        &self.0[(spread(ino.0) >> 40) as usize % SHARDS]
    }

    /// Removes and returns the tail of a file: a tail is used once.
    pub(crate) fn take(&self, ino: Ino) -> Option<Box<Tail>> {
        let mut shard = self.shard(ino).lock();
        let at = shard.iter().position(|tail| tail.ino == ino)?;
        shard.remove(at)
    }

    /// Adds the tail of a file that has none in the cache. Evicts the oldest of the shard.
    pub(crate) fn put(&self, tail: Box<Tail>) {
        let mut shard = self.shard(tail.ino).lock();
        shard.push_front(tail);
        shard.truncate(TAILS);
    }
}
