//! Segment usage: the kind and the live bytes of each segment. A table in pages, of which a
//! checkpoint writes the changed ones.
//!
//! ```text
//! checkpoint → root → index pages → pages
//! ```
//!
//! Page `n` covers the [`PAGE_SEGMENTS`] segments from `n * PAGE_SEGMENTS`, index page `n` the
//! [`INDEX_PAGES`] pages from `n * INDEX_PAGES`. A null pointer means that all segments of the
//! page, or of all pages of the index page, are free. The geometry determines the number and the
//! length of all of them.
//!
//! A position is the address at which a stream continues in its open segment; 0 if it has none. A
//! total is the sum over all segments of one kind, ordered by the kinds' numbers; it can be used
//! without reading the pages. Pointers carry the checksums, so the objects themselves have none.
//! The epoch of an object must never be above that of the object that points to it.

mod pages;

pub use pages::{
    Expected, IndexHead, PageHead, RootHead, UsageIndex, UsagePage, UsageRoot, number_at,
};

use crate::declare::{U48, layout, numbered};
use crate::{Geometry, Ptr};
use shoal_base::{Addr, Error, Result, invariant, limits};
use std::ops::Range;

/// Segments that a page covers.
pub const PAGE_SEGMENTS: u32 = 1024;
/// Pages that an index page covers.
pub const INDEX_PAGES: u32 = 256;
/// Index pages of the largest volume.
pub const INDEXES_MAX: usize = limits::SEGMENTS_MAX.div_ceil(PAGE_SEGMENTS * INDEX_PAGES) as usize;
/// Bytes of a page or an index page before its first row.
pub const HEADER: usize = PageHead::SIZE;
/// Bytes of a row of a page.
pub const ENTRY: usize = UsageEntry::SIZE;
/// Bytes of the root before its first pointer.
pub const ROOT_FIXED: usize = RootHead::SIZE;
/// Bytes of the longest page.
pub const PAGE_MAX: usize = HEADER + PAGE_SEGMENTS as usize * ENTRY;
/// Bytes of the longest index page.
pub const INDEX_MAX: usize = HEADER + INDEX_PAGES as usize * Ptr::SIZE;
/// Bytes of the longest root.
pub const ROOT_MAX: usize = ROOT_FIXED + INDEXES_MAX * Ptr::SIZE;
/// `SUR1`.
pub const ROOT_MAGIC: u32 = u32::from_le_bytes(*b"SUR1");
/// `SUI1`.
pub const INDEX_MAGIC: u32 = u32::from_le_bytes(*b"SUI1");
/// `SUP1`.
pub const PAGE_MAGIC: u32 = u32::from_le_bytes(*b"SUP1");

// Each object fits in the smallest segment many times over.
const _: () = assert!(32 * PAGE_MAX as u64 <= limits::SEGMENT_SIZE_MIN);
const _: () = assert!(32 * INDEX_MAX as u64 <= limits::SEGMENT_SIZE_MIN);
const _: () = assert!(32 * ROOT_MAX as u64 <= limits::SEGMENT_SIZE_MIN);
// Live bytes of the largest segment fit in an entry.
const _: () = assert!(limits::SEGMENT_SIZE_MAX <= u32::MAX as u64);

numbered! {
    /// The contents of a segment.
    #[derive(Default)]
    pub enum SegKind: u8 {
        /// Nothing.
        #[default]
        0 Free,
        /// The superblocks (segment 0 only).
        1 Super,
        /// Journal batches.
        2 Journal,
        /// Tree nodes, inode blocks, tables, checkpoints.
        3 Meta,
        /// File data, large attribute values.
        4 Data,
    }
}

impl SegKind {
    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            SegKind::Free => "free",
            SegKind::Super => "super",
            SegKind::Journal => "journal",
            SegKind::Meta => "meta",
            SegKind::Data => "data",
        }
    }
    /// Returns whether segments of this kind hold objects to which pointers lead.
    pub fn holds_objects(self) -> bool {
        matches!(self, SegKind::Meta | SegKind::Data)
    }
}

/// Number of append streams whose positions are stored: `Meta`, then `Data` 0 to 3.
pub const STREAMS: usize = 5;

/// The kind of the segments of a stream.
pub const fn stream_kind(stream: usize) -> SegKind {
    if stream == 0 { SegKind::Meta } else { SegKind::Data }
}

/// Number of the page that covers a segment.
pub const fn page_of(segment: u32) -> u32 {
    segment / PAGE_SEGMENTS
}

/// Number of pages of a volume.
pub const fn pages(geometry: &Geometry) -> u32 {
    geometry.segments.div_ceil(PAGE_SEGMENTS)
}

/// Number of index pages of a volume.
pub const fn indexes(geometry: &Geometry) -> u32 {
    pages(geometry).div_ceil(INDEX_PAGES)
}

/// Segments that a page covers.
pub fn segments_of_page(geometry: &Geometry, number: u32) -> Range<u32> {
    rows(number, PAGE_SEGMENTS, geometry.segments)
}

/// Pages that an index page covers.
pub fn pages_of_index(geometry: &Geometry, number: u32) -> Range<u32> {
    rows(number, INDEX_PAGES, pages(geometry))
}

fn rows(number: u32, each: u32, all: u32) -> Range<u32> {
    let start = number.saturating_mul(each);
    start..start.saturating_add(each).min(all)
}

/// Bytes of page `number`.
pub fn page_len(geometry: &Geometry, number: u32) -> usize {
    HEADER + segments_of_page(geometry, number).len() * ENTRY
}

/// Bytes of index page `number`.
pub fn index_len(geometry: &Geometry, number: u32) -> usize {
    HEADER + pages_of_index(geometry, number).len() * Ptr::SIZE
}

/// Bytes of the root.
pub fn root_len(geometry: &Geometry) -> usize {
    ROOT_FIXED + indexes(geometry) as usize * Ptr::SIZE
}

/// Bytes of the whole table if no pointer in it is null.
pub const fn table_bytes(geometry: &Geometry) -> u64 {
    let (pages, indexes) = (pages(geometry) as u64, indexes(geometry) as u64);
    pages * PAGE_MAX as u64 + indexes * INDEX_MAX as u64 + ROOT_MAX as u64
}

layout! {
    /// One segment.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct UsageEntry: "usage-entry", 8 of 8, "A segment in a page." {
        0 live: U48, "live bytes; each part of a compressed object counts at least one, so this \
            may exceed the size of the segment";
        6 kind: SegKind, "0 free, 1 super, 2 journal, 3 metadata, 4 data";
        7 sealed: bool, "1: no stream appends to it";
    }
}

impl UsageEntry {
    /// Returns the rule that the entry of segment `seg` breaks.
    fn rule(&self, seg: u32, geometry: &Geometry) -> Option<String> {
        let (kind, live) = (self.kind, self.live.get());
        if (kind == SegKind::Super) != (seg == 0) {
            Some(format!("kind is {}", kind.name()))
        } else if live > geometry.segment_size * limits::EXTENT_MAX as u64 {
            Some(format!("{live} live bytes of {}", geometry.segment_size))
        } else if !kind.holds_objects() && (live != 0 || self.sealed) {
            Some(format!("a {} segment with {live} live bytes, or sealed", kind.name()))
        } else if self.sealed && live == 0 {
            Some(format!("a sealed {} segment without live bytes, which is free", kind.name()))
        } else {
            None
        }
    }
}

layout! {
    /// Sum over the segments of one kind.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Total: "usage-total", 16 of 16, "Sum over the segments of one kind." {
        0 segments: u64, "number of segments";
        8 live: u64, "their live bytes";
    }
}

/// Sums over all segments, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals([Total; SegKind::ALL.len()]);

impl Totals {
    /// The sum of one kind.
    pub fn of(&self, kind: SegKind) -> Total {
        self.0[kind as usize]
    }
    /// Adds a segment.
    pub fn add(&mut self, entry: &UsageEntry) {
        let total = &mut self.0[entry.kind as usize];
        total.segments += 1;
        total.live += entry.live.get();
    }
    /// Subtracts a segment that has been added.
    pub fn sub(&mut self, entry: &UsageEntry) {
        let total = &mut self.0[entry.kind as usize];
        total.segments -= 1;
        total.live -= entry.live.get();
    }
}

/// The whole table in memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageTable {
    /// Position of each stream; 0 if it has no open segment.
    pub positions: [Addr; STREAMS],
    /// One row for each segment.
    pub entries: Vec<UsageEntry>,
}

impl UsageTable {
    /// Makes a table in which all segments are free.
    pub fn blank(geometry: &Geometry, positions: [Addr; STREAMS]) -> UsageTable {
        let entries = vec![UsageEntry::default(); geometry.segments as usize];
        UsageTable { positions, entries }
    }

    /// Copies the rows of a page into the table.
    pub fn enter(&mut self, page: &UsagePage) {
        let start = page.number as usize * PAGE_SEGMENTS as usize;
        let rows = self.entries.get_mut(start..start + page.entries.len());
        invariant!(rows.is_some(), "a usage page that was decoded is of the volume");
        rows.into_iter().for_each(|rows| rows.copy_from_slice(&page.entries));
    }

    /// Sums over all rows.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.entries.iter().for_each(|entry| totals.add(entry));
        totals
    }

    /// Verifies every rule that concerns more than one page, and the totals stored in the root.
    pub fn verify(&self, geometry: &Geometry, said: &Totals) -> Result<()> {
        for (seg, entry) in (0..).zip(&self.entries) {
            if let Some(rule) = entry.rule(seg, geometry) {
                return Err(broken(Some(seg), rule));
            }
        }
        self.streams_rule(geometry)?;
        let counted = self.totals();
        for kind in SegKind::ALL {
            let (said, counted) = (said.of(kind), counted.of(kind));
            if said != counted {
                let rule = format!(
                    "the totals say {} {} segments with {} live bytes, the pages {} with {}",
                    said.segments,
                    kind.name(),
                    said.live,
                    counted.segments,
                    counted.live
                );
                return Err(broken(None, rule));
            }
        }
        Ok(())
    }

    /// Verifies that each stream has its own open segment, and that each open segment has a stream.
    fn streams_rule(&self, geometry: &Geometry) -> Result<()> {
        let mut open = Vec::with_capacity(STREAMS);
        for (stream, position) in self.positions.iter().enumerate().filter(|(_, at)| at.0 != 0) {
            let seg = geometry.segment_of(*position);
            let entry = self.entries.get(seg.0 as usize).copied().unwrap_or_default();
            if entry.kind != stream_kind(stream) || entry.sealed || open.contains(&seg) {
                let kind = entry.kind.name();
                let rule =
                    format!("stream {stream} goes on in a {kind} segment that is not its own");
                return Err(broken(Some(seg.0), rule));
            }
            open.push(seg);
        }
        let is_open = |e: &&UsageEntry| e.kind.holds_objects() && !e.sealed;
        let unsealed = self.entries.iter().filter(is_open).count();
        if unsealed != open.len() {
            let rule = format!("{unsealed} segments are open, {} streams", open.len());
            return Err(broken(None, rule));
        }
        Ok(())
    }
}

fn broken(seg: Option<u32>, rule: impl Into<String>) -> Error {
    match seg {
        Some(seg) => Error::corrupt(format!("usage table, segment {seg}"), None, rule),
        None => Error::corrupt("usage table", None, rule),
    }
}

#[cfg(test)]
mod tests;
