//! Segment usage: what each segment holds and how many of its bytes are live. A table in pages, of
//! which a checkpoint writes those that changed.
//!
//! ```text
//! checkpoint → root → index pages → pages
//!
//! root  := magic 4 "SUR1" | segments 4 | volume 8 | epoch 8 | indexes 4 | reserved 4
//!        | position 8 × 5 | total (segments 8, live 8) × 5 | pointer × indexes
//! index := magic 4 "SUI1" | count 4 | volume 8 | epoch 8 | number 4 | reserved 4 | pointer × count
//! page  := magic 4 "SUP1" | count 4 | volume 8 | epoch 8 | number 4 | reserved 4 | entry 8 × count
//! entry := live 4 | kind 1 | sealed 1 | reserved 2
//! ```
//!
//! Page `n` answers for the [`PAGE_SEGMENTS`] segments from `n * PAGE_SEGMENTS` on, index page `n`
//! for the [`INDEX_PAGES`] pages from `n * INDEX_PAGES` on. A null pointer stands for a page, or for
//! all pages of an index page, whose segments are all free. The geometry decides how many there are
//! and how long each is.
//!
//! A position is the address at which a stream goes on in its open segment; 0: it has none. A total
//! is the sum over all segments of one kind, in the order of the kinds' numbers: who needs the sums
//! does not read the pages. Each pointer carries the checksum of what it points to, so the objects
//! have none of their own. An object's epoch is never above that of the one that names it.

use crate::bytes::{Put, Reader};
use crate::{Geometry, Ptr};
use shoal_base::{Addr, Error, Result, invariant, limits};
use std::fmt::Write;
use std::ops::Range;

/// Segments that a page answers for.
pub const PAGE_SEGMENTS: u32 = 1024;
/// Pages that an index page names.
pub const INDEX_PAGES: u32 = 256;
/// Index pages of the largest volume.
pub const INDEXES_MAX: usize = limits::SEGMENTS_MAX.div_ceil(PAGE_SEGMENTS * INDEX_PAGES) as usize;
/// Bytes of a page or an index page before its first row.
pub const HEADER: usize = 32;
/// Bytes of a row of a page.
pub const ENTRY: usize = 8;
/// Bytes of the root before its first pointer.
pub const ROOT_FIXED: usize = HEADER + STREAMS * 8 + SegKind::ALL.len() * 16;
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

/// What a segment holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum SegKind {
    /// Nothing.
    #[default]
    Free = 0,
    /// The superblocks (segment 0 only).
    Super = 1,
    /// Journal batches.
    Journal = 2,
    /// Tree nodes, inode blocks, tables, checkpoints.
    Meta = 3,
    /// File data, large attribute values.
    Data = 4,
}

impl SegKind {
    /// Every kind; its place is its number on disk.
    pub const ALL: [SegKind; 5] =
        [SegKind::Free, SegKind::Super, SegKind::Journal, SegKind::Meta, SegKind::Data];

    /// The kind with this number on disk.
    pub fn from_disk(raw: u8) -> Option<SegKind> {
        SegKind::ALL.get(usize::from(raw)).copied()
    }
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
    /// Whether segments of this kind hold objects that pointers name.
    pub fn holds_objects(self) -> bool {
        matches!(self, SegKind::Meta | SegKind::Data)
    }
}

/// Appending streams whose positions are kept: `Meta`, then `Data` 0 to 3.
pub const STREAMS: usize = 5;

/// What the segment of a stream holds.
pub const fn stream_kind(stream: usize) -> SegKind {
    if stream == 0 { SegKind::Meta } else { SegKind::Data }
}

/// Number of the page that answers for a segment.
pub const fn page_of(segment: u32) -> u32 {
    segment / PAGE_SEGMENTS
}

/// Pages of a volume.
pub const fn pages(geometry: &Geometry) -> u32 {
    geometry.segments.div_ceil(PAGE_SEGMENTS)
}

/// Index pages of a volume.
pub const fn indexes(geometry: &Geometry) -> u32 {
    pages(geometry).div_ceil(INDEX_PAGES)
}

/// Segments that a page answers for.
pub fn segments_of_page(geometry: &Geometry, number: u32) -> Range<u32> {
    rows(number, PAGE_SEGMENTS, geometry.segments)
}

/// Pages that an index page names.
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

/// Bytes of the whole table if nothing in it is null.
pub const fn table_bytes(geometry: &Geometry) -> u64 {
    let (pages, indexes) = (pages(geometry) as u64, indexes(geometry) as u64);
    pages * PAGE_MAX as u64 + indexes * INDEX_MAX as u64 + ROOT_MAX as u64
}

/// One segment. 8 bytes on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct UsageEntry {
    /// Bytes in it that something points to.
    pub live: u32,
    /// What it holds.
    pub kind: SegKind,
    /// Whether it is full: no stream appends to it any more.
    pub sealed: bool,
}

impl UsageEntry {
    /// Which rule the entry of segment `seg` breaks.
    fn rule(&self, seg: u32, geometry: &Geometry) -> Option<String> {
        let (kind, live) = (self.kind, self.live);
        if (kind == SegKind::Super) != (seg == 0) {
            Some(format!("kind is {}", kind.name()))
        } else if u64::from(live) > geometry.segment_size {
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

/// Sum over the segments of one kind. 16 bytes on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Total {
    /// How many there are.
    pub segments: u64,
    /// Their live bytes.
    pub live: u64,
}

/// Sums over all segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals([Total; SegKind::ALL.len()]);

impl Totals {
    /// The sum of one kind.
    pub fn of(&self, kind: SegKind) -> Total {
        self.0[kind as usize]
    }
    /// Counts a segment.
    pub fn add(&mut self, entry: &UsageEntry) {
        let total = &mut self.0[entry.kind as usize];
        total.segments += 1;
        total.live += u64::from(entry.live);
    }
    /// Takes a segment out that has been counted.
    pub fn sub(&mut self, entry: &UsageEntry) {
        let total = &mut self.0[entry.kind as usize];
        total.segments -= 1;
        total.live -= u64::from(entry.live);
    }
}

/// What a reader expects of a page, an index page or the root: what leads to it says so.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'g> {
    /// Shape of the volume.
    pub geometry: &'g Geometry,
    /// Low half of the volume id.
    pub volume: u64,
    /// Epoch of what names the object.
    pub epoch: u64,
}

/// A page: the segments of one range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsagePage {
    /// Number of the page.
    pub number: u32,
    /// Epoch whose checkpoint wrote it.
    pub epoch: u64,
    /// One row for each segment.
    pub entries: Vec<UsageEntry>,
}

/// An index page: where the pages of one range are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageIndex {
    /// Number of the index page.
    pub number: u32,
    /// Epoch whose checkpoint wrote it.
    pub epoch: u64,
    /// Pointers to pages; null: all of a page's segments are free.
    pub pages: Vec<Ptr>,
}

/// The root: where the index pages are, and what a volume has once. Every checkpoint writes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsageRoot {
    /// Epoch of the checkpoint that wrote it.
    pub epoch: u64,
    /// Where each stream goes on; 0: nowhere yet.
    pub positions: [Addr; STREAMS],
    /// Sums over all segments.
    pub totals: Totals,
    /// Pointers to index pages; null: all of their segments are free.
    pub indexes: Vec<Ptr>,
}

fn put_header(out: &mut Vec<u8>, head: (u32, usize), volume: u64, epoch: u64, number: u32) {
    out.put_u32(head.0);
    out.put_u32(head.1 as u32);
    out.put_u64(volume);
    out.put_u64(epoch);
    out.put_u32(number);
    out.put_u32(0);
}

/// The header's count, epoch and number, if magic, volume and epoch are right.
fn header(
    r: &mut Reader<'_>,
    magic: u32,
    expected: &Expected<'_>,
) -> Result<(u32, u64, u32), String> {
    let short = || "too short".to_owned();
    let (found, count) = (r.u32().ok_or_else(short)?, r.u32().ok_or_else(short)?);
    let (volume, epoch) = (r.u64().ok_or_else(short)?, r.u64().ok_or_else(short)?);
    let (number, reserved) = (r.u32().ok_or_else(short)?, r.u32().ok_or_else(short)?);
    if found != magic {
        return Err(format!("magic is {found:#010x}, expected {magic:#010x}"));
    }
    if volume != expected.volume {
        return Err(format!("volume {volume:#x}, expected {:#x}", expected.volume));
    }
    if epoch > expected.epoch {
        return Err(format!("epoch {epoch} is after {}, which names it", expected.epoch));
    }
    if reserved != 0 {
        return Err("reserved bytes are set".into());
    }
    Ok((count, epoch, number))
}

/// Pointers that fill the rest. Each is null, or leads to as many bytes as `len` says of its place.
fn pointers(
    r: &mut Reader<'_>,
    geometry: &Geometry,
    mut len: impl FnMut(usize) -> usize,
) -> Result<Vec<Ptr>, String> {
    let mut all = Vec::with_capacity(r.rest().len() / Ptr::SIZE);
    while !r.is_empty() {
        let ptr = Ptr::decode(r).ok_or("length of its pointers")?;
        let place = all.len();
        let sound = ptr.len as usize == len(place)
            && ptr.addr.0.is_multiple_of(limits::ALIGN as u64)
            && geometry.contains(ptr.addr, u64::from(ptr.len));
        if !sound && ptr != Ptr::NULL {
            let (addr, bytes) = (ptr.addr.0, ptr.len);
            return Err(format!(
                "pointer {place} leads to {bytes} bytes at {addr}, which cannot be"
            ));
        }
        all.push(ptr);
    }
    Ok(all)
}

impl UsagePage {
    /// The name of a page in messages.
    pub fn name(geometry: &Geometry, number: u32) -> String {
        let segments = segments_of_page(geometry, number);
        format!("usage page {number} (segments {} to {})", segments.start, segments.end.max(1) - 1)
    }

    /// The bytes on disk.
    pub fn encode(&self, volume: u64) -> Vec<u8> {
        invariant!(self.entries.len() <= PAGE_SEGMENTS as usize, "rows of a usage page");
        let mut out = Vec::with_capacity(PAGE_MAX);
        let head = (PAGE_MAGIC, self.entries.len());
        put_header(&mut out, head, volume, self.epoch, self.number);
        for entry in &self.entries {
            out.put_u32(entry.live);
            out.put_u8(entry.kind as u8);
            out.put_u8(u8::from(entry.sealed));
            out.put_u16(0);
        }
        out
    }

    /// Reads and verifies page `number`.
    pub fn decode(raw: &[u8], addr: Addr, number: u32, of: &Expected<'_>) -> Result<UsagePage> {
        UsagePage::fields(raw, number, of).map_err(|rule| {
            Error::corrupt(UsagePage::name(of.geometry, number), Some(addr.0), rule)
        })
    }

    fn fields(raw: &[u8], number: u32, of: &Expected<'_>) -> Result<UsagePage, String> {
        let mut r = Reader::new(raw);
        let (count, epoch, own) = header(&mut r, PAGE_MAGIC, of)?;
        let segments = segments_of_page(of.geometry, number);
        if own != number {
            return Err(format!("number {own}, expected {number}"));
        }
        if count as usize != segments.len() || r.rest().len() != segments.len() * ENTRY {
            let (rows, bytes) = (segments.len(), raw.len());
            return Err(format!("{count} rows in {bytes} bytes, expected {rows}"));
        }
        let mut entries = Vec::with_capacity(segments.len());
        for seg in segments {
            let entry = entry(&mut r).and_then(|entry| match entry.rule(seg, of.geometry) {
                None => Ok(entry),
                Some(rule) => Err(rule),
            });
            entries.push(entry.map_err(|rule| format!("segment {seg}: {rule}"))?);
        }
        Ok(UsagePage { number, epoch, entries })
    }

    /// For people: one line for each segment in use.
    pub fn to_text(&self) -> String {
        let mut out = format!("usage page {} of epoch {}\n", self.number, self.epoch);
        let first = self.number.saturating_mul(PAGE_SEGMENTS);
        for (seg, entry) in (first..).zip(&self.entries).filter(|(_, e)| e.kind != SegKind::Free) {
            let open = if entry.kind.holds_objects() && !entry.sealed { " open" } else { "" };
            // Writing to a string cannot fail.
            let _ = writeln!(out, "segment {seg} {} live {}{open}", entry.kind.name(), entry.live);
        }
        out
    }
}

fn entry(r: &mut Reader<'_>) -> Result<UsageEntry, String> {
    let fields = || Some((r.u32()?, r.u8()?, r.u8()?, r.u16()?));
    let (live, kind, sealed, reserved) = { fields }().ok_or("too short")?;
    let kind = SegKind::from_disk(kind).ok_or_else(|| format!("kind {kind} is unknown"))?;
    if sealed > 1 || reserved != 0 {
        return Err("reserved bits are set".into());
    }
    Ok(UsageEntry { live, kind, sealed: sealed == 1 })
}

impl UsageIndex {
    /// The name of an index page in messages.
    pub fn name(geometry: &Geometry, number: u32) -> String {
        let pages = pages_of_index(geometry, number);
        format!("usage index {number} (pages {} to {})", pages.start, pages.end.max(1) - 1)
    }

    /// The bytes on disk.
    pub fn encode(&self, volume: u64) -> Vec<u8> {
        invariant!(self.pages.len() <= INDEX_PAGES as usize, "rows of a usage index page");
        let mut out = Vec::with_capacity(INDEX_MAX);
        put_header(&mut out, (INDEX_MAGIC, self.pages.len()), volume, self.epoch, self.number);
        self.pages.iter().for_each(|page| page.encode(&mut out));
        out
    }

    /// Reads and verifies index page `number`.
    pub fn decode(raw: &[u8], addr: Addr, number: u32, of: &Expected<'_>) -> Result<UsageIndex> {
        UsageIndex::fields(raw, number, of).map_err(|rule| {
            Error::corrupt(UsageIndex::name(of.geometry, number), Some(addr.0), rule)
        })
    }

    fn fields(raw: &[u8], number: u32, of: &Expected<'_>) -> Result<UsageIndex, String> {
        let mut r = Reader::new(raw);
        let (count, epoch, own) = header(&mut r, INDEX_MAGIC, of)?;
        let range = pages_of_index(of.geometry, number);
        if own != number {
            return Err(format!("number {own}, expected {number}"));
        }
        if count as usize != range.len() || r.rest().len() != range.len() * Ptr::SIZE {
            let (rows, bytes) = (range.len(), raw.len());
            return Err(format!("{count} pointers in {bytes} bytes, expected {rows}"));
        }
        let len = |place| page_len(of.geometry, range.start + place as u32);
        Ok(UsageIndex { number, epoch, pages: pointers(&mut r, of.geometry, len)? })
    }

    /// For people: one line for each page that there is.
    pub fn to_text(&self) -> String {
        let mut out = format!("usage index {} of epoch {}\n", self.number, self.epoch);
        let first = self.number.saturating_mul(INDEX_PAGES);
        for (page, ptr) in (first..).zip(&self.pages).filter(|(_, ptr)| !ptr.is_null()) {
            let _ = writeln!(out, "page {page} at byte {}", ptr.addr.0);
        }
        out
    }
}

impl UsageRoot {
    /// Its name in messages.
    pub const NAME: &'static str = "usage root";

    /// The bytes on disk, of a volume with so many segments.
    pub fn encode(&self, volume: u64, segments: u32) -> Vec<u8> {
        invariant!(self.indexes.len() <= INDEXES_MAX, "{} usage index pages", self.indexes.len());
        let mut out = Vec::with_capacity(ROOT_FIXED + self.indexes.len() * Ptr::SIZE);
        let (head, count) = ((ROOT_MAGIC, segments as usize), self.indexes.len() as u32);
        put_header(&mut out, head, volume, self.epoch, count);
        self.positions.iter().for_each(|position| out.put_u64(position.0));
        for total in self.totals.0 {
            out.put_u64(total.segments);
            out.put_u64(total.live);
        }
        self.indexes.iter().for_each(|index| index.encode(&mut out));
        out
    }

    /// Reads and verifies the root that the checkpoint of the expected epoch names.
    pub fn decode(raw: &[u8], addr: Addr, of: &Expected<'_>) -> Result<UsageRoot> {
        UsageRoot::fields(raw, of)
            .map_err(|rule| Error::corrupt(UsageRoot::NAME, Some(addr.0), rule))
    }

    fn fields(raw: &[u8], of: &Expected<'_>) -> Result<UsageRoot, String> {
        let (mut r, geometry) = (Reader::new(raw), of.geometry);
        let (segments, epoch, count) = header(&mut r, ROOT_MAGIC, of)?;
        if epoch != of.epoch {
            return Err(format!("epoch {epoch}, expected {}", of.epoch));
        }
        if segments != geometry.segments {
            return Err(format!("{segments} segments, the volume has {}", geometry.segments));
        }
        if count != indexes(geometry) || raw.len() != root_len(geometry) {
            let (wanted, bytes) = (indexes(geometry), raw.len());
            return Err(format!("{count} index pages in {bytes} bytes, expected {wanted}"));
        }
        let short = || "too short".to_owned();
        let mut root = UsageRoot { epoch, ..UsageRoot::default() };
        for (stream, position) in root.positions.iter_mut().enumerate() {
            *position = Addr(r.u64().ok_or_else(short)?);
            let sound = geometry.contains(*position, 0) && position.0 % limits::ALIGN as u64 == 0;
            if position.0 != 0 && !sound {
                let at = position.0;
                return Err(format!("stream {stream} goes on at byte {at}, which no stream can"));
            }
        }
        for total in &mut root.totals.0 {
            let (segments, live) = (r.u64().ok_or_else(short)?, r.u64().ok_or_else(short)?);
            *total = Total { segments, live };
        }
        let of_all = root.totals.0.iter().map(|t| t.segments).fold(0, u64::saturating_add);
        if of_all != u64::from(segments) {
            return Err(format!("totals of {of_all} segments, the volume has {segments}"));
        }
        root.indexes = pointers(&mut r, geometry, |n| index_len(geometry, n as u32))?;
        Ok(root)
    }

    /// For people.
    pub fn to_text(&self) -> String {
        let mut out = format!("usage root of epoch {}\n", self.epoch);
        for (stream, position) in self.positions.iter().enumerate() {
            let kind = stream_kind(stream).name();
            let _ = writeln!(out, "stream {stream} ({kind}) goes on at byte {}", position.0);
        }
        for kind in SegKind::ALL {
            let Total { segments, live } = self.totals.of(kind);
            let _ = writeln!(out, "{segments} {} segments, live {live}", kind.name());
        }
        for (n, ptr) in self.indexes.iter().enumerate().filter(|(_, ptr)| !ptr.is_null()) {
            let _ = writeln!(out, "index {n} at byte {}", ptr.addr.0);
        }
        out
    }
}

/// The whole table, when all of it has been read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageTable {
    /// Where each stream goes on; 0: nowhere yet.
    pub positions: [Addr; STREAMS],
    /// One row for each segment.
    pub entries: Vec<UsageEntry>,
}

impl UsageTable {
    /// A table of which no page has been read: all segments are free.
    pub fn blank(geometry: &Geometry, positions: [Addr; STREAMS]) -> UsageTable {
        let entries = vec![UsageEntry::default(); geometry.segments as usize];
        UsageTable { positions, entries }
    }

    /// Enters the rows of a page.
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

    /// Checks every rule that concerns more than one page, and the totals that the root says.
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

    /// Each stream goes on in an open segment of its own, and each open segment has a stream.
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
mod tests {
    use super::*;

    const GEOMETRY: Geometry = Geometry { segment_size: 1 << 20, segments: 2050, inode_size: 512 };
    const OF: Expected<'static> = Expected { geometry: &GEOMETRY, volume: 9, epoch: 7 };
    const DATA: UsageEntry = UsageEntry { live: 5, kind: SegKind::Data, sealed: false };

    /// Page 0, every kind in it.
    fn page() -> UsagePage {
        let mut entries = vec![UsageEntry::default(); 1024];
        entries[0].kind = SegKind::Super;
        entries[1] = UsageEntry { live: 77, kind: SegKind::Meta, sealed: true };
        entries[2] = UsageEntry { live: 1 << 20, kind: SegKind::Data, sealed: true };
        entries[3] = DATA;
        entries[4].kind = SegKind::Journal;
        UsagePage { number: 0, epoch: 7, entries }
    }

    fn ptr(addr: u64, len: usize) -> Ptr {
        Ptr { addr: Addr(addr), len: len as u32, checksum: 3 }
    }

    fn index() -> UsageIndex {
        let pages = vec![ptr(1 << 20, PAGE_MAX), Ptr::NULL, ptr(2 << 20, HEADER + 2 * ENTRY)];
        UsageIndex { number: 0, epoch: 6, pages }
    }

    fn table() -> UsageTable {
        let mut positions = [Addr(0); STREAMS];
        positions[2] = Addr(3 * (1 << 20) + 8);
        let mut table = UsageTable::blank(&GEOMETRY, positions);
        table.enter(&page());
        table
    }

    fn root() -> UsageRoot {
        let (positions, totals) = (table().positions, table().totals());
        UsageRoot {
            epoch: 7,
            positions,
            totals,
            indexes: vec![ptr(3 << 20, index_len(&GEOMETRY, 0))],
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let raw = page().encode(9);
        assert_eq!(raw.len(), page_len(&GEOMETRY, 0));
        assert_eq!(UsagePage::decode(&raw, Addr(0), 0, &OF).unwrap(), page());
        assert!(page().to_text().contains("segment 3 data live 5 open"));
        let last = UsagePage { number: 2, epoch: 1, entries: vec![DATA, UsageEntry::default()] };
        let raw = last.encode(9);
        assert_eq!(UsagePage::decode(&raw, Addr(0), 2, &OF).unwrap(), last);
        assert!(last.to_text().contains("segment 2048 data live 5 open"));
        let raw = index().encode(9);
        assert_eq!(raw.len(), index_len(&GEOMETRY, 0));
        assert_eq!(UsageIndex::decode(&raw, Addr(0), 0, &OF).unwrap(), index());
        assert!(index().to_text().contains("page 2 at byte 2097152"));
        let raw = root().encode(9, 2050);
        assert_eq!(raw.len(), root_len(&GEOMETRY));
        assert_eq!(UsageRoot::decode(&raw, Addr(0), &OF).unwrap(), root());
        assert!(root().to_text().contains("2 data segments, live 1048581"));
        assert_eq!(table().verify(&GEOMETRY, &root().totals), Ok(()));
    }

    #[test]
    fn the_largest_volume_has_the_lengths_said() {
        let geometry = Geometry { segments: limits::SEGMENTS_MAX, ..GEOMETRY };
        assert_eq!(indexes(&geometry) as usize, INDEXES_MAX);
        assert_eq!(root_len(&geometry), ROOT_MAX);
        let last = (pages(&geometry) - 1, indexes(&geometry) - 1);
        assert_eq!(
            (page_len(&geometry, last.0), index_len(&geometry, last.1)),
            (PAGE_MAX, INDEX_MAX)
        );
        // A number beyond the volume names nothing.
        assert_eq!(page_len(&geometry, u32::MAX), HEADER);
    }

    #[test]
    fn each_broken_rule_of_a_page_is_named() {
        type Break = fn(&mut UsagePage);
        let cases: [(&str, Break); 9] = [
            ("segment 5: kind is super", |p| p.entries[5].kind = SegKind::Super),
            ("segment 0: kind is free", |p| p.entries[0].kind = SegKind::Free),
            ("segment 2: 1048577 live bytes", |p| p.entries[2].live = (1 << 20) + 1),
            ("segment 4: a journal segment with 1", |p| p.entries[4].live = 1),
            ("segment 4: a journal segment with 0", |p| p.entries[4].sealed = true),
            ("segment 1: a sealed meta segment without", |p| p.entries[1].live = 0),
            ("epoch 8 is after 7", |p| p.epoch = 8),
            ("number 1, expected 0", |p| p.number = 1),
            ("1023 rows in", |p| p.entries.truncate(1023)),
        ];
        for (expected, damage) in cases {
            let mut page = page();
            damage(&mut page);
            let error =
                UsagePage::decode(&page.encode(9), Addr(8), 0, &OF).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} instead of {expected}");
            assert!(error.contains("usage page 0 (segments 0 to 1023)"), "{error}");
        }
        let error = UsagePage::decode(&page().encode(8), Addr(0), 0, &OF).unwrap_err().to_string();
        assert!(error.contains("volume 0x8, expected 0x9"), "{error}");
    }

    #[test]
    fn each_broken_rule_of_an_index_or_the_root_is_named() {
        let cannot = "which cannot be";
        let long = ptr(1 << 20, PAGE_MAX + 8);
        let cases: [(&str, UsageIndex); 6] = [
            (cannot, UsageIndex { pages: vec![long, Ptr::NULL, Ptr::NULL], ..index() }),
            (cannot, UsageIndex { pages: vec![ptr(8, PAGE_MAX); 3], ..index() }),
            (cannot, UsageIndex { pages: vec![ptr((1 << 20) + 4, PAGE_MAX); 3], ..index() }),
            ("4 pointers in", UsageIndex { pages: vec![Ptr::NULL; 4], ..index() }),
            ("number 3, expected 0", UsageIndex { number: 3, ..index() }),
            ("epoch 9 is after 7", UsageIndex { epoch: 9, ..index() }),
        ];
        for (expected, index) in cases {
            let error = UsageIndex::decode(&index.encode(9), Addr(0), 0, &OF).unwrap_err();
            assert!(error.to_string().contains(expected), "{error} instead of {expected}");
        }
        type Break = fn(&mut UsageRoot);
        let cases: [(&str, Break); 7] = [
            ("which no stream can", |r| r.positions[2].0 += 1),
            ("which no stream can", |r| r.positions[2].0 = 2050 << 20),
            ("totals of 2051 segments", |r| r.totals.add(&DATA)),
            ("epoch 6, expected 7", |r| r.epoch = 6),
            ("epoch 8 is after 7", |r| r.epoch = 8),
            ("2 index pages in", |r| r.indexes.push(Ptr::NULL)),
            ("which cannot be", |r| r.indexes[0].len += 8),
        ];
        for (expected, damage) in cases {
            let mut root = root();
            damage(&mut root);
            let error = UsageRoot::decode(&root.encode(9, 2050), Addr(0), &OF).unwrap_err();
            assert!(error.to_string().contains(expected), "{error} instead of {expected}");
        }
        let error = UsageRoot::decode(&root().encode(9, 2049), Addr(0), &OF).unwrap_err();
        assert!(error.to_string().contains("2049 segments, the volume has 2050"), "{error}");
    }

    #[test]
    fn each_broken_rule_of_the_table_is_named() {
        type Break = fn(&mut UsageTable);
        let cases: [(&str, Break); 5] = [
            ("not its own", |t| t.positions[0] = t.positions[2]),
            ("not its own", |t| t.positions[3] = t.positions[2]),
            ("1 segments are open, 0 streams", |t| t.positions[2].0 = 0),
            ("the totals say 1 meta segments with 77 live", |t| t.entries[1].live = 78),
            ("segment 9: kind is super", |t| t.entries[9].kind = SegKind::Super),
        ];
        for (expected, damage) in cases {
            let mut table = table();
            damage(&mut table);
            let error = table.verify(&GEOMETRY, &root().totals).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} instead of {expected}");
        }
    }

    #[test]
    fn short_long_or_foreign_bytes_are_errors() {
        let decode: [(Vec<u8>, fn(&[u8]) -> bool); 3] = [
            (page().encode(9), |raw| UsagePage::decode(raw, Addr(0), 0, &OF).is_ok()),
            (index().encode(9), |raw| UsageIndex::decode(raw, Addr(0), 0, &OF).is_ok()),
            (root().encode(9, 2050), |raw| UsageRoot::decode(raw, Addr(0), &OF).is_ok()),
        ];
        for (raw, taken) in decode {
            assert!(taken(&raw));
            assert!((0..raw.len()).all(|len| !taken(&raw[..len])));
            assert!(!taken(&[&raw[..], &[0]].concat()));
            // Magic, count, volume, the epoch's high bytes, number, reserved.
            for at in 0..HEADER {
                let mut bad = raw.clone();
                bad[at] ^= 0x80;
                assert!(!taken(&bad), "byte {at}");
            }
        }
        let raw = page().encode(9);
        for at in (HEADER..raw.len()).filter(|at| at % ENTRY > 3) {
            let mut bad = raw.clone();
            bad[at] ^= 0x80;
            assert!(UsagePage::decode(&bad, Addr(0), 0, &OF).is_err(), "byte {at}");
        }
    }
}
