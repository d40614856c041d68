//! The segment usage table: what each segment holds and how many of its bytes are live, written by
//! every checkpoint.
//!
//! ```text
//! table  := header (64 bytes) | entry (8 bytes) × segments
//! header := magic 8 "SHUSAGE1" | segments 4 | reserved 4 | position 8 × 5 | reserved 8
//! entry  := live 4 | kind 1 | sealed 1 | reserved 2
//! ```
//!
//! A position is the address at which a stream goes on in its open segment; 0: it has none. The
//! pointer to the table carries its checksum, so the table has none of its own.

use crate::Geometry;
use crate::bytes::{Put, Reader};
use shoal_base::{Addr, Error, Result, limits};
use std::fmt::Write;

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
}

/// Appending streams whose positions are kept: `Meta`, then `Data` 0 to 3.
pub const STREAMS: usize = 5;

/// What the segment of a stream holds.
pub const fn stream_kind(stream: usize) -> SegKind {
    if stream == 0 { SegKind::Meta } else { SegKind::Data }
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

/// The whole table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsageTable {
    /// Where each stream goes on; 0: nowhere yet.
    pub positions: [Addr; STREAMS],
    /// One row for each segment.
    pub entries: Vec<UsageEntry>,
}

impl UsageTable {
    /// First bytes of the table.
    pub const MAGIC: [u8; 8] = *b"SHUSAGE1";
    /// Bytes of its header.
    pub const HEADER: usize = 64;
    /// Bytes of a row.
    pub const ENTRY: usize = 8;

    /// Bytes of the table of a volume with this many segments.
    pub const fn encoded_len(segments: u32) -> usize {
        Self::HEADER + segments as usize * Self::ENTRY
    }

    /// Most segments that a volume can have: its table must fit in one segment. 2 TiB with segments
    /// of 4 MiB, 512 TiB with 64 MiB: `mkfs` takes larger segments for larger volumes.
    pub const fn segments_max(segment_size: u64) -> u64 {
        (segment_size - Self::HEADER as u64) / Self::ENTRY as u64
    }

    /// The bytes on disk.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(Self::encoded_len(self.entries.len() as u32));
        out.put_bytes(&Self::MAGIC);
        out.put_u32(self.entries.len() as u32);
        out.put_u32(0);
        for position in self.positions {
            out.put_u64(position.0);
        }
        out.put_u64(0);
        for entry in &self.entries {
            out.put_u32(entry.live);
            out.put_u8(entry.kind as u8);
            out.put_u8(u8::from(entry.sealed));
            out.put_u16(0);
        }
        out
    }

    /// Reads and verifies a table.
    pub fn decode(bytes: &[u8], geometry: &Geometry) -> Result<UsageTable> {
        let short = || broken(None, format!("{} bytes are too few", bytes.len()));
        let mut r = Reader::new(bytes);
        if r.take(8).ok_or_else(short)? != Self::MAGIC {
            return Err(broken(None, "magic is not SHUSAGE1"));
        }
        let segments = r.u32().ok_or_else(short)?;
        if segments != geometry.segments || bytes.len() != Self::encoded_len(segments) {
            let rule = format!(
                "{} bytes for {segments} segments; the volume has {}",
                bytes.len(),
                geometry.segments
            );
            return Err(broken(None, rule));
        }
        r.u32().ok_or_else(short)?;
        let mut positions = [Addr(0); STREAMS];
        for position in &mut positions {
            *position = Addr(r.u64().ok_or_else(short)?);
        }
        r.u64().ok_or_else(short)?;
        let mut entries = Vec::with_capacity(segments as usize);
        for seg in 0..segments {
            entries.push(decode_entry(&mut r, seg).ok_or_else(short)??);
        }
        let table = UsageTable { positions, entries };
        table.verify(geometry)?;
        Ok(table)
    }

    /// Checks every rule; also called just before writing.
    pub fn verify(&self, geometry: &Geometry) -> Result<()> {
        for (seg, entry) in self.entries.iter().enumerate() {
            verify_entry(seg, entry, geometry)?;
        }
        let mut open = Vec::with_capacity(STREAMS);
        for (stream, position) in self.positions.iter().enumerate() {
            if position.0 == 0 {
                continue;
            }
            if !geometry.contains(*position, 0) || position.0 % limits::ALIGN as u64 != 0 {
                let rule =
                    format!("stream {stream} goes on at byte {}, which no stream can", position.0);
                return Err(broken(None, rule));
            }
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
        let unsealed = self.entries.iter().filter(|e| holds_objects(e.kind) && !e.sealed).count();
        if unsealed != open.len() {
            let rule = format!("{unsealed} segments are open, {} streams", open.len());
            return Err(broken(None, rule));
        }
        Ok(())
    }

    /// For people: one line for each segment in use.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        for (stream, position) in self.positions.iter().enumerate() {
            let kind = stream_kind(stream).name();
            // Writing to a string cannot fail.
            let _ = writeln!(out, "stream {stream} ({kind}) goes on at byte {}", position.0);
        }
        let used = self.entries.iter().enumerate().filter(|(_, e)| e.kind != SegKind::Free);
        for (seg, entry) in used {
            let open = if holds_objects(entry.kind) && !entry.sealed { " open" } else { "" };
            let _ = writeln!(out, "segment {seg} {} live {}{open}", entry.kind.name(), entry.live);
        }
        out
    }
}

/// Whether segments of this kind hold objects that pointers name.
fn holds_objects(kind: SegKind) -> bool {
    matches!(kind, SegKind::Meta | SegKind::Data)
}

/// `None`: too short.
fn decode_entry(r: &mut Reader<'_>, seg: u32) -> Option<Result<UsageEntry>> {
    let (live, kind, sealed, reserved) = (r.u32()?, r.u8()?, r.u8()?, r.u16()?);
    let Some(kind) = SegKind::from_disk(kind) else {
        return Some(Err(broken(Some(seg), format!("kind {kind} is unknown"))));
    };
    if sealed > 1 || reserved != 0 {
        return Some(Err(broken(Some(seg), "reserved bits are set")));
    }
    Some(Ok(UsageEntry { live, kind, sealed: sealed == 1 }))
}

fn verify_entry(seg: usize, entry: &UsageEntry, geometry: &Geometry) -> Result<()> {
    let seg = seg as u32;
    let kind = entry.kind;
    if (kind == SegKind::Super) != (seg == 0) {
        return Err(broken(Some(seg), format!("kind is {}", kind.name())));
    }
    if u64::from(entry.live) > geometry.segment_size {
        let rule = format!("{} live bytes of {}", entry.live, geometry.segment_size);
        return Err(broken(Some(seg), rule));
    }
    if !holds_objects(kind) && (entry.live != 0 || entry.sealed) {
        let rule = format!("a {} segment with {} live bytes, or sealed", kind.name(), entry.live);
        return Err(broken(Some(seg), rule));
    }
    Ok(())
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

    const GEOMETRY: Geometry = Geometry { segment_size: 1 << 20, segments: 16, inode_size: 512 };

    fn sample() -> UsageTable {
        let mut entries = vec![UsageEntry::default(); 16];
        entries[0].kind = SegKind::Super;
        entries[1] = UsageEntry { live: 77, kind: SegKind::Meta, sealed: true };
        entries[2] = UsageEntry { live: 1 << 20, kind: SegKind::Data, sealed: true };
        entries[3] = UsageEntry { live: 5, kind: SegKind::Data, sealed: false };
        entries[4].kind = SegKind::Journal;
        let mut positions = [Addr(0); STREAMS];
        positions[2] = Addr(3 * (1 << 20) + 8);
        UsageTable { positions, entries }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let table = sample();
        let bytes = table.encode();
        assert_eq!(bytes.len(), UsageTable::encoded_len(16));
        assert_eq!(UsageTable::decode(&bytes, &GEOMETRY).unwrap(), table);
        assert!(table.to_text().contains("segment 3 data live 5 open"));
    }

    #[test]
    fn each_broken_rule_is_named() {
        type Break = fn(&mut UsageTable);
        let cases: [(&str, Break); 8] = [
            ("kind is super", |t| t.entries[5].kind = SegKind::Super),
            ("kind is free", |t| t.entries[0].kind = SegKind::Free),
            ("1048577 live bytes", |t| t.entries[2].live = (1 << 20) + 1),
            ("a journal segment with 1", |t| t.entries[4].live = 1),
            ("which no stream can", |t| t.positions[2].0 += 1),
            ("which no stream can", |t| t.positions[2].0 = 16 << 20),
            ("not its own", |t| t.positions[0] = t.positions[2]),
            ("1 segments are open, 0 streams", |t| t.positions[2].0 = 0),
        ];
        for (expected, damage) in cases {
            let mut table = sample();
            damage(&mut table);
            let error = UsageTable::decode(&table.encode(), &GEOMETRY).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} instead of {expected}");
        }
    }

    #[test]
    fn short_long_or_foreign_bytes_are_errors() {
        let bytes = sample().encode();
        for len in 0..bytes.len() {
            assert!(UsageTable::decode(&bytes[..len], &GEOMETRY).is_err());
        }
        assert!(UsageTable::decode(&[&bytes[..], &[0]].concat(), &GEOMETRY).is_err());
        for at in (0..12).chain((64..bytes.len()).filter(|at| at % 8 > 3)) {
            let mut bad = bytes.clone();
            bad[at] ^= 0x80;
            assert!(UsageTable::decode(&bad, &GEOMETRY).is_err(), "byte {at}");
        }
    }
}
