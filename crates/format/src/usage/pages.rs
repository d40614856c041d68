//! The on-disk objects of the usage table: pages, index pages, the root.

use super::{
    ENTRY, HEADER, INDEX_MAGIC, INDEX_MAX, INDEX_PAGES, INDEXES_MAX, PAGE_MAGIC, PAGE_MAX,
    PAGE_SEGMENTS, ROOT_FIXED, ROOT_MAGIC, STREAMS, SegKind, Total, Totals, UsageEntry, index_len,
    indexes, page_len, pages_of_index, root_len, segments_of_page, stream_kind,
};
use crate::bytes::{Reader, u32_at, u64_at};
use crate::declare::layout;
use crate::{Geometry, Ptr};
use shoal_base::{Addr, Error, Result, invariant, limits};
use std::fmt::Write;

/// The values that a page, an index page or the root must match.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'g> {
    /// Layout parameters of the volume.
    pub geometry: &'g Geometry,
    /// Low half of the volume id.
    pub volume: u64,
    /// Epoch of the object that points to it.
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

/// An index page: pointers to the pages of one range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageIndex {
    /// Number of the index page.
    pub number: u32,
    /// Epoch whose checkpoint wrote it.
    pub epoch: u64,
    /// Pointers to pages; null if all segments of a page are free.
    pub pages: Vec<Ptr>,
}

/// The root: pointers to the index pages, and the state that exists once per volume. Every
/// checkpoint writes it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UsageRoot {
    /// Epoch of the checkpoint that wrote it.
    pub epoch: u64,
    /// Position of each stream; 0 if it has no open segment.
    pub positions: [Addr; STREAMS],
    /// Sums over all segments.
    pub totals: Totals,
    /// Pointers to index pages; null if all of their segments are free.
    pub indexes: Vec<Ptr>,
}

layout! {
    /// Header of a page.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct PageHead: "usage-page", 32 of varying,
    "Page of the segment usage table; the entries of at most 1024 segments follow." {
        0 magic: u32 = PAGE_MAGIC, "`SUP1`";
        4 count: u32, "number of entries that follow";
        8 volume: u64, "first half of the volume id";
        16 epoch: u64, "number of the checkpoint that wrote it";
        24 number: u32, "number of the page: its first segment divided by 1024";
        28 reserved: u32 = 0, "zero";
    }
}

layout! {
    /// Header of an index page.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct IndexHead: "usage-index", 32 of varying,
    "Index page of the segment usage table; the pointers to at most 256 pages follow. A null \
     pointer: all segments of the page are free." {
        0 magic: u32 = INDEX_MAGIC, "`SUI1`";
        4 count: u32, "number of pointers that follow";
        8 volume: u64, "first half of the volume id";
        16 epoch: u64, "number of the checkpoint that wrote it";
        24 number: u32, "number of the index page: its first page divided by 256";
        28 reserved: u32 = 0, "zero";
    }
}

layout! {
    /// Header of the root.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct RootHead: "usage-root", 152 of varying,
    "Root of the segment usage table; the pointers to its index pages follow, one for each 262,144 \
     segments. A null pointer: all of those are free." {
        0 magic: u32 = ROOT_MAGIC, "`SUR1`";
        4 segments: u32, "number of segments of the volume";
        8 volume: u64, "first half of the volume id";
        16 epoch: u64, "number of the checkpoint that points to it";
        24 indexes: u32, "number of pointers that follow";
        28 reserved: u32 = 0, "zero";
        32 positions: [Addr; STREAMS],
            "position of each stream: metadata, data 0 to 3; 0: it has no open segment";
        72 totals: [Total; SegKind::ALL.len()], "sum for each kind of segment, by number";
    }
}

// An index page has them at the same offsets.
const AT_VOLUME: usize = PageHead::TABLE.at("volume");
const AT_NUMBER: usize = PageHead::TABLE.at("number");
const _: () = assert!(AT_VOLUME == IndexHead::TABLE.at("volume"));
const _: () = assert!(AT_NUMBER == IndexHead::TABLE.at("number"));

/// Returns the rule that the volume and the epoch of a header break.
fn header_rule(volume: u64, epoch: u64, expected: &Expected<'_>) -> Result<(), String> {
    if volume != expected.volume {
        return Err(format!("volume {volume:#x}, expected {:#x}", expected.volume));
    }
    if epoch > expected.epoch {
        return Err(format!("epoch {epoch} is after {}, which names it", expected.epoch));
    }
    Ok(())
}

/// Returns magic and number, if `raw` begins like a page or an index page of this volume. For a
/// search on the device.
pub fn number_at(raw: &[u8], volume: u64) -> Option<(u32, u32)> {
    let head = raw.get(..HEADER)?;
    let (magic, number) = (u32_at(head, 0), u32_at(head, AT_NUMBER));
    let known = [PAGE_MAGIC, INDEX_MAGIC].contains(&magic) && u64_at(head, AT_VOLUME) == volume;
    known.then_some((magic, number))
}

/// Decodes the pointers that fill the rest. Each must be null or lead to as many bytes as `len`
/// gives for its index.
fn pointers(
    r: &mut Reader<'_>,
    geometry: &Geometry,
    mut len: impl FnMut(usize) -> usize,
) -> Result<Vec<Ptr>, String> {
    let mut all = Vec::with_capacity(r.rest().len() / Ptr::SIZE);
    while !r.is_empty() {
        let ptr: Ptr = r.field().ok_or("a pointer, or the length of all")?;
        let place = all.len();
        let sound = ptr.len as usize == len(place)
            && ptr.is_plain()
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
    /// The name of a page, for messages.
    pub fn name(geometry: &Geometry, number: u32) -> String {
        let segments = segments_of_page(geometry, number);
        format!("usage page {number} (segments {} to {})", segments.start, segments.end.max(1) - 1)
    }

    /// Encodes the page.
    pub fn encode(&self, volume: u64) -> Vec<u8> {
        invariant!(self.entries.len() <= PAGE_SEGMENTS as usize, "rows of a usage page");
        let mut out = Vec::with_capacity(PAGE_MAX);
        let UsagePage { number, epoch, ref entries } = *self;
        PageHead { count: entries.len() as u32, volume, epoch, number }.append(&mut out);
        entries.iter().for_each(|entry| entry.append(&mut out));
        out
    }

    /// Decodes and verifies page `number`.
    pub fn decode(raw: &[u8], addr: Addr, number: u32, of: &Expected<'_>) -> Result<UsagePage> {
        UsagePage::fields(raw, number, of).map_err(|rule| {
            Error::corrupt(UsagePage::name(of.geometry, number), Some(addr.0), rule)
        })
    }

    fn fields(raw: &[u8], number: u32, of: &Expected<'_>) -> Result<UsagePage, String> {
        let PageHead { count, volume, epoch, number: own } = PageHead::read(raw)?;
        header_rule(volume, epoch, of)?;
        let mut r = Reader::new(&raw[HEADER..]);
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
            let read = UsageEntry::read(r.take(ENTRY).unwrap_or_default());
            let entry = read.map_err(|field| format!("segment {seg}: field {field}"))?;
            if let Some(rule) = entry.rule(seg, of.geometry) {
                return Err(format!("segment {seg}: {rule}"));
            }
            entries.push(entry);
        }
        Ok(UsagePage { number, epoch, entries })
    }

    /// The page as text: one line for each segment in use.
    pub fn to_text(&self) -> String {
        let mut out = format!("usage page {} of epoch {}\n", self.number, self.epoch);
        let first = self.number.saturating_mul(PAGE_SEGMENTS);
        for (seg, entry) in (first..).zip(&self.entries).filter(|(_, e)| e.kind != SegKind::Free) {
            let open = if entry.kind.holds_objects() && !entry.sealed { " open" } else { "" };
            // Writing to a string cannot fail.
            let _ = writeln!(
                out,
                "segment {seg} {} live {}{open}",
                entry.kind.name(),
                entry.live.get()
            );
        }
        out
    }
}

impl UsageIndex {
    /// The name of an index page, for messages.
    pub fn name(geometry: &Geometry, number: u32) -> String {
        let pages = pages_of_index(geometry, number);
        format!("usage index {number} (pages {} to {})", pages.start, pages.end.max(1) - 1)
    }

    /// Encodes the index page.
    pub fn encode(&self, volume: u64) -> Vec<u8> {
        invariant!(self.pages.len() <= INDEX_PAGES as usize, "rows of a usage index page");
        let mut out = Vec::with_capacity(INDEX_MAX);
        let UsageIndex { number, epoch, ref pages } = *self;
        IndexHead { count: pages.len() as u32, volume, epoch, number }.append(&mut out);
        pages.iter().for_each(|page| page.append(&mut out));
        out
    }

    /// Decodes and verifies index page `number`.
    pub fn decode(raw: &[u8], addr: Addr, number: u32, of: &Expected<'_>) -> Result<UsageIndex> {
        UsageIndex::fields(raw, number, of).map_err(|rule| {
            Error::corrupt(UsageIndex::name(of.geometry, number), Some(addr.0), rule)
        })
    }

    fn fields(raw: &[u8], number: u32, of: &Expected<'_>) -> Result<UsageIndex, String> {
        let IndexHead { count, volume, epoch, number: own } = IndexHead::read(raw)?;
        header_rule(volume, epoch, of)?;
        let mut r = Reader::new(&raw[HEADER..]);
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

    /// The index page as text: one line for each page that is not null.
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
    /// Its name, for messages.
    pub const NAME: &'static str = "usage root";

    /// Encodes the root of a volume with this number of segments.
    pub fn encode(&self, volume: u64, segments: u32) -> Vec<u8> {
        invariant!(self.indexes.len() <= INDEXES_MAX, "{} usage index pages", self.indexes.len());
        let mut out = Vec::with_capacity(ROOT_FIXED + self.indexes.len() * Ptr::SIZE);
        let head = RootHead {
            segments,
            volume,
            epoch: self.epoch,
            indexes: self.indexes.len() as u32,
            positions: self.positions,
            totals: self.totals.0,
        };
        head.append(&mut out);
        self.indexes.iter().for_each(|index| index.append(&mut out));
        out
    }

    /// Decodes and verifies the root of the checkpoint with the expected epoch.
    pub fn decode(raw: &[u8], addr: Addr, of: &Expected<'_>) -> Result<UsageRoot> {
        UsageRoot::fields(raw, of)
            .map_err(|rule| Error::corrupt(UsageRoot::NAME, Some(addr.0), rule))
    }

    fn fields(raw: &[u8], of: &Expected<'_>) -> Result<UsageRoot, String> {
        let (head, geometry) = (RootHead::read(raw)?, of.geometry);
        let RootHead { segments, volume, epoch, indexes: count, positions, totals } = head;
        header_rule(volume, epoch, of)?;
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
        for (stream, position) in positions.iter().enumerate() {
            let sound = geometry.contains(*position, 0) && position.0 % limits::ALIGN as u64 == 0;
            if position.0 != 0 && !sound {
                let at = position.0;
                return Err(format!("stream {stream} goes on at byte {at}, which no stream can"));
            }
        }
        let of_all = totals.iter().map(|t| t.segments).fold(0, u64::saturating_add);
        if of_all != u64::from(segments) {
            return Err(format!("totals of {of_all} segments, the volume has {segments}"));
        }
        let mut r = Reader::new(&raw[ROOT_FIXED..]);
        let indexes = pointers(&mut r, geometry, |n| index_len(geometry, n as u32))?;
        Ok(UsageRoot { epoch, positions, totals: Totals(totals), indexes })
    }

    /// The root as text.
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
