//! Planning a write: which objects it makes, and where they go. This is determined under the
//! inode's read lock, before the transaction begins. Then objects are read and written without any
//! lock. The transaction checks that the file has not changed, and makes it point to them.
//!
//! Each window of 128 KiB of a file is written as few objects. A write that continues at the end of
//! the last one extends its object (`state/tails.rs`). Any other write merges adjacent extents that
//! are shorter than 16 KiB and not much longer than itself, as a log-structured merge tree does. So
//! each byte is rewritten a few times at most, and data overwritten in blocks of 16 KiB or more is
//! not rewritten at all. Holes stay holes until a window has [`WINDOW_EXTENTS`] extents. Then a
//! write to it makes one object, with zeros in the holes. Otherwise a file written in scattered
//! single bytes would have a record for each byte, and each write would have to read all of them.

use crate::files::Files;
use crate::state::{Growth, Tail, WINDOW};
use shoal_base::limits::{EXTENT_MAX, SECTOR};
use shoal_base::{Ino, Result};
use shoal_format::extent::Extent;
use shoal_format::inode::{Form, Inode};
use shoal_space::{End, Hold};
use std::ops::Range;

/// Bytes from which on an extent is not merged with an adjacent write: rewriting it costs more than
/// a record for it.
const PIECE_WHOLE: u32 = 16 << 10;
/// Extents of a window from which on a write merges the adjacent ones, whatever their length.
const PIECES_MAX: usize = 24;
/// Extents of a window from which on a write merges all of them.
const WINDOW_EXTENTS: usize = 64;

/// Source of a part of an object's bytes.
enum Part {
    /// An existing extent of the file.
    Old(Extent),
    /// This range of the data of the call.
    New(Range<usize>),
    /// Contents that were in the inode.
    Inline(Box<[u8]>),
    /// A hole of this many bytes.
    Zeros(usize),
}

/// An object to be written.
struct Object<'s> {
    /// Its place in the file.
    offset: u64,
    parts: Vec<Part>,
    target: Target<'s>,
}

/// Location of a new object's data.
enum Target<'s> {
    /// A new object that ends there.
    New(End),
    /// A new object with this many bytes allocated for its payload, to grow into.
    Roomy(u32),
    /// The end of an existing object, which is extended.
    Growth(Growth<'s>),
}

impl Object<'_> {
    fn new(offset: u64, parts: Vec<Part>) -> Self {
        Object { offset, parts, target: Target::New(End::Anywhere) }
    }
}

/// State of a file when a write was planned, on which the plan depends.
struct Seen {
    generation: u32,
    form: Form,
    inline: Box<[u8]>,
    /// The windows of the write; `extents` are those in them.
    windows: Range<u64>,
    extents: Vec<Extent>,
    /// For an append: the size of the file, which is the offset of the write.
    size: Option<u64>,
}

/// A planned write.
pub(super) struct WritePlan<'s> {
    /// Offset of the data in the file.
    pub at: u64,
    seen: Seen,
    objects: Vec<Object<'s>>,
    /// Keeps the segments of the data to be read.
    _holds: Vec<Hold<'s>>,
}

/// The objects of a write: written, but still unreferenced.
pub(super) struct Written<'s> {
    pub extents: Vec<Extent>,
    /// Tail of the last of them.
    pub tail: Option<Box<Tail>>,
    _holds: Vec<Hold<'s>>,
}

impl WritePlan<'_> {
    /// Total bytes of its objects.
    pub(super) fn bytes(&self) -> u64 {
        let len = |part: &Part| match part {
            Part::Old(extent) => u64::from(extent.len),
            Part::New(range) => range.len() as u64,
            Part::Inline(bytes) => bytes.len() as u64,
            Part::Zeros(n) => *n as u64,
        };
        self.objects.iter().flat_map(|object| &object.parts).map(len).sum()
    }
}

impl<'v> Files<'v> {
    /// Plans a write of `len` bytes at `offset`, or at the end, of a file that has extents or will
    /// get them.
    pub(super) fn plan_write(
        self,
        ino: Ino,
        inode: &Inode,
        offset: Option<u64>,
        len: usize,
    ) -> Result<WritePlan<'v>> {
        let core = &inode.core;
        let at = offset.unwrap_or(core.size);
        let end = at + len as u64;
        let windows = at / WINDOW * WINDOW..end.div_ceil(WINDOW) * WINDOW;
        let extents = self.objects().extents_in(ino, inode, windows.start, windows.end)?;
        let inline = match core.data_form {
            Form::Inline => inode.data.clone(),
            _ => Box::default(),
        };
        let mut objects = Vec::with_capacity(len / EXTENT_MAX + 2);
        let mut tail = self.0.tails.take(ino);
        // Inline contents fit in the first window, and are written with the first object there.
        if at >= WINDOW && !inline.is_empty() {
            objects.push(Object::new(0, vec![Part::Inline(inline.clone())]));
        }
        let mut from = at;
        while from < end {
            let window = from / WINDOW * WINDOW;
            let to = end.min(window + WINDOW);
            let new = (from - at) as usize..(to - at) as usize;
            if window == 0 && core.data_form == Form::Inline {
                over_inline(&inline, from as usize, new, &mut objects);
            } else {
                objects.push(self.plan_window(&extents, tail.take(), from, new));
            }
            from = to;
        }
        let size = offset.is_none().then_some(core.size);
        let (generation, form) = (core.generation, core.data_form);
        let read = objects.iter().flat_map(|object| &object.parts).filter_map(|part| match part {
            Part::Old(extent) => Some(self.0.store.space().hold(extent.data_addr())),
            _ => None,
        });
        let _holds = read.collect();
        let seen = Seen { generation, form, inline, windows, extents, size };
        Ok(WritePlan { at, seen, objects, _holds })
    }

    /// Returns whether a file is still as it was when the write was planned.
    pub(super) fn is_as_seen(self, ino: Ino, inode: &Inode, plan: &WritePlan<'_>) -> Result<bool> {
        let (core, seen) = (&inode.core, &plan.seen);
        if (core.generation, core.data_form) != (seen.generation, seen.form)
            || seen.size.is_some_and(|size| size != core.size)
            || seen.form == Form::Inline && inode.data != seen.inline
        {
            return Ok(false);
        }
        let now = self.objects().extents_in(ino, inode, seen.windows.start, seen.windows.end)?;
        Ok(now == seen.extents)
    }

    /// Plans the object of one window: `new` at `at`, and the extents that are merged with it.
    /// `tail` is the object written last.
    fn plan_window(
        self,
        extents: &[Extent],
        tail: Option<Box<Tail>>,
        at: u64,
        new: Range<usize>,
    ) -> Object<'v> {
        let window = at / WINDOW * WINDOW;
        let (to, end) = (at + new.len() as u64, window + WINDOW);
        let pieces = |from: u64, to: u64| -> Vec<Extent> {
            // A preallocated extent may extend beyond the window, or across an empty range at its
            // edge.
            let inside = extents.iter().filter(|e| e.offset < to && e.end() > from && from < to);
            inside.map(|e| e.slice(from, to)).collect()
        };
        let (mut left, mut right) = (pieces(window, at), pieces(to, end));
        let mut target = Target::New(End::Anywhere);
        if let Some(tail) = tail.filter(|tail| tail.continues_at(at, &left)) {
            let (offset, len) = (tail.extent.offset, new.len() as u32);
            match tail.grow(self.0.store.space(), len) {
                Ok(growth) => {
                    let target = Target::Growth(growth);
                    return Object { offset, parts: vec![Part::New(new)], target };
                }
                // Later appends can extend it, even after a flush.
                Err(tail) if tail.flushed && to.is_multiple_of(SECTOR) => {
                    target = Target::New(End::Sector);
                }
                Err(tail) if tail.interleaved && self.0.store.room().has(2 * WINDOW) => {
                    target = Target::Roomy(tail.room_of_next(at, len));
                }
                Err(_) => {}
            }
        }
        // Not if space is short: more records only cost time.
        if left.len() + right.len() >= WINDOW_EXTENTS && self.0.store.room().has(2 * WINDOW) {
            return joined(&left, at, new, &right);
        }
        left.retain(|e| !e.is_prealloc());
        right.retain(|e| !e.is_prealloc());
        let many = left.len() + right.len() >= PIECES_MAX;
        if !many && matches!(target, Target::Roomy(_)) {
            return Object { offset: at, parts: vec![Part::New(new)], target };
        }
        let (before, after) = taken_along(&left, &right, many, at, &new);
        let offset = before.first().map_or(at, |e| e.offset);
        let before = before.iter().copied().map(Part::Old);
        let after = after.iter().copied().map(Part::Old);
        Object { offset, parts: before.chain([Part::New(new)]).chain(after).collect(), target }
    }

    /// Reads and writes the data of a plan. The plan has no objects afterwards.
    pub(super) fn carry_out(
        self,
        ino: Ino,
        plan: &mut WritePlan<'v>,
        data: &[u8],
    ) -> Result<Written<'v>> {
        let mut written = Written { extents: Vec::new(), tail: None, _holds: Vec::new() };
        for Object { offset, parts, target } in plan.objects.drain(..) {
            let mut read: Vec<Vec<u8>> = Vec::new();
            for part in &parts {
                match part {
                    Part::Old(extent) => {
                        let mut bytes = vec![0; extent.len as usize];
                        self.objects().read_extent(ino, extent, 0, &mut bytes)?;
                        read.push(bytes);
                    }
                    Part::Zeros(n) => read.push(vec![0; *n]),
                    Part::New(_) | Part::Inline(_) => {}
                }
            }
            let mut read = read.iter();
            let mut pieces: Vec<&[u8]> = Vec::with_capacity(parts.len());
            for part in &parts {
                pieces.push(match part {
                    Part::New(range) => &data[range.clone()],
                    Part::Inline(bytes) => bytes,
                    Part::Old(_) | Part::Zeros(_) => read.next().map_or(&[][..], Vec::as_slice),
                });
            }
            let (stored, interleaved) = match target {
                Target::New(end) => {
                    (self.objects().write_split(ino, offset, &pieces, (0, end))?, false)
                }
                Target::Roomy(room) => {
                    let room = (room as usize, End::Sector);
                    (self.objects().write_split(ino, offset, &pieces, room)?, true)
                }
                Target::Growth(growth) => {
                    let interleaved = growth.tail.interleaved;
                    (self.objects().write_growth(growth, pieces[0])?, interleaved)
                }
            };
            for stored in stored {
                written.extents.push(stored.extent);
                let (tail, hold) = stored.into_tail(ino, interleaved);
                written._holds.push(hold);
                written.tail = tail;
            }
        }
        Ok(written)
    }
}

/// Returns the extents before and after `new` that a new object includes: adjacent ones in
/// sequence, either all, or as long as they are short and not much longer than the object so far.
fn taken_along<'e>(
    left: &'e [Extent],
    right: &'e [Extent],
    all: bool,
    at: u64,
    new: &Range<usize>,
) -> (&'e [Extent], &'e [Extent]) {
    let mut size = new.len() as u64;
    let mut takes = |piece: &Extent, touches: bool| {
        let is_small = piece.len < PIECE_WHOLE && u64::from(piece.len) <= size * 2;
        let taken = touches && (all || is_small);
        size += if taken { u64::from(piece.len) } else { 0 };
        taken
    };
    let (mut first, mut start) = (left.len(), at);
    while let Some(piece) = first.checked_sub(1).map(|i| &left[i])
        && takes(piece, piece.end() == start)
    {
        (start, first) = (piece.offset, first - 1);
    }
    let (mut last, mut edge) = (0, at + new.len() as u64);
    while let Some(piece) = right.get(last)
        && takes(piece, piece.offset == edge)
    {
        (edge, last) = (piece.end(), last + 1);
    }
    (&left[first..], &right[..last])
}

/// Merges a whole window to one object, with zeros in its holes.
fn joined<'s>(left: &[Extent], at: u64, new: Range<usize>, right: &[Extent]) -> Object<'s> {
    let offset = left.first().map_or(at, |e| e.offset);
    let (mut parts, mut edge) = (Vec::with_capacity(2 * (left.len() + right.len()) + 1), offset);
    let zeros = |parts: &mut Vec<Part>, from: u64, to: u64| {
        if to > from {
            parts.push(Part::Zeros((to - from) as usize));
        }
    };
    let old = |parts: &mut Vec<Part>, edge: &mut u64, extents: &[Extent]| {
        for extent in extents {
            zeros(parts, *edge, extent.offset);
            match extent.is_prealloc() {
                true => zeros(parts, extent.offset, extent.end()),
                false => parts.push(Part::Old(*extent)),
            }
            *edge = extent.end();
        }
    };
    old(&mut parts, &mut edge, left);
    zeros(&mut parts, edge, at);
    edge = at + new.len() as u64;
    parts.push(Part::New(new));
    old(&mut parts, &mut edge, right);
    Object::new(offset, parts)
}

/// Plans the first window of a file whose contents were in the inode. They are written with the new
/// bytes, unless these are far after them.
fn over_inline(inline: &[u8], at: usize, new: Range<usize>, objects: &mut Vec<Object<'_>>) {
    let end = at + new.len();
    let (before, after) = (&inline[..at.min(inline.len())], inline.get(end..).unwrap_or_default());
    let gap = at - before.len();
    let first = |bytes: &[u8]| Part::Inline(bytes.into());
    if gap > 4096 && !before.is_empty() {
        // The hole between them remains.
        objects.push(Object::new(0, vec![first(before)]));
        objects.push(Object::new(at as u64, vec![Part::New(new)]));
        return;
    }
    let mut parts = Vec::with_capacity(4);
    let mut offset = at as u64;
    if !before.is_empty() {
        offset = 0;
        parts.push(first(before));
        if gap > 0 {
            parts.push(Part::Zeros(gap));
        }
    }
    parts.push(Part::New(new));
    if !after.is_empty() {
        parts.push(first(after));
    }
    objects.push(Object::new(offset, parts));
}
