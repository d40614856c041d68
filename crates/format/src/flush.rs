//! A flush as one object: the address ranges that it makes durable, with their bytes. Volumes in a
//! file or on a block device never contain such an object. It is the format for future volumes on
//! storage that cannot overwrite and where nothing becomes durable in part (`docs/future.md`, *A
//! bucket*).
//!
//! ```text
//! object := header (64 bytes) | ranges (24 each) | their bytes, each range aligned to 8
//! ```
//!
//! A flush covers journal batches, the ends of open segments since the flush before, and the
//! metadata of a checkpoint. A checkpoint is published by an object of another kind, which holds
//! the superblock and the checkpoint record. Both kinds name the writer by its incarnation and are
//! numbered from 1 within it, so that a missing object is detected.
//!
//! Ranges ascend and do not overlap. The header's checksum covers header and ranges; each range's
//! checksum covers its bytes. A reader can fetch header and ranges alone.

use crate::bytes::{Reader, set_at, u64_at};
use crate::declare::{layout, numbered};
use shoal_base::{Addr, Error, Result, checksum, invariant, limits};

/// `SFO1`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SFO1");
/// Largest number of ranges in an object.
pub const RANGES_MAX: usize = 4096;
/// Largest total length of the ranges of an object, in bytes: that of the largest segment.
pub const BYTES_MAX: u64 = limits::SEGMENT_SIZE_MAX;

numbered! {
    /// The type of an object.
    pub enum FlushKind: u32 {
        /// Data made durable by a flush.
        1 Flush,
        /// The superblock and the record of a checkpoint.
        2 Checkpoint,
    }
}

layout! {
    /// Header of a flush object.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct FlushHeader: "flush-object", 64 of varying,
    "Header of a flush as one object; its ranges follow, then their bytes, each range aligned to \
     8. Not on any volume yet." {
        0 magic: u32 = MAGIC, "`SFO1`";
        4 kind: FlushKind, "1 flush, 2 checkpoint";
        8 volume: u64, "first half of the volume id";
        16 incarnation: u32, "incarnation of the mount that wrote it";
        20 count: u32, "number of ranges";
        24 epoch: u64, "number of the checkpoint that it belongs to or precedes";
        32 sequence: u64, "number of the object in its incarnation, from 1";
        40 length: u64, "bytes of the object";
        48 reserved[8], "zero";
        56 checksum[8], "of the bytes before and the ranges";
    }
}

layout! {
    /// A range of a flush object.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct FlushRange: "flush-range", 24 of 24,
    "A range of addresses in a flush object. Ranges ascend and do not overlap." {
        0 addr: Addr, "address of its first byte";
        8 len: u32, "bytes";
        12 reserved[4], "zero";
        16 checksum: u64, "XXH3-64 of its bytes";
    }
}

const AT_CHECKSUM: usize = FlushHeader::TABLE.at("checksum");

/// The writer and the number of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Writer {
    /// Its type.
    pub kind: FlushKind,
    /// First half of the volume id.
    pub volume: u64,
    /// Incarnation of the mount.
    pub incarnation: u32,
    /// Number of the checkpoint that it belongs to.
    pub epoch: u64,
    /// Number of the object in its incarnation.
    pub sequence: u64,
}

/// Packs ranges into one object. They must ascend, must not overlap, and must keep to the limits.
pub fn pack(writer: &Writer, ranges: &[(Addr, &[u8])]) -> Vec<u8> {
    let mut table = Vec::with_capacity(ranges.len() * FlushRange::SIZE);
    for (addr, bytes) in ranges {
        let (len, checksum) = (bytes.len() as u32, checksum(bytes));
        FlushRange { addr: *addr, len, checksum }.append(&mut table);
    }
    let head = FlushHeader::SIZE + table.len();
    let padded = |bytes: &[u8]| bytes.len().next_multiple_of(limits::ALIGN);
    let length = head + ranges.iter().map(|(_, bytes)| padded(bytes)).sum::<usize>();
    let header = FlushHeader {
        kind: writer.kind,
        volume: writer.volume,
        incarnation: writer.incarnation,
        count: ranges.len() as u32,
        epoch: writer.epoch,
        sequence: writer.sequence,
        length: length as u64,
    };
    let mut out = Vec::with_capacity(length);
    header.append(&mut out);
    let sum = sum(&out[..AT_CHECKSUM], &table);
    set_at(&mut out, AT_CHECKSUM, sum);
    out.extend_from_slice(&table);
    for (_, bytes) in ranges {
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(limits::ALIGN), 0);
    }
    let broken = self::ranges(&out).err().map(|e| e.to_string());
    invariant!(broken.is_none(), "a flush that cannot be read: {broken:?}");
    out
}

/// Ranges of an object with their bytes, in ascending order.
pub type Ranges<'r> = Vec<(Addr, &'r [u8])>;

/// Unpacks an object of this volume and verifies every byte.
///
/// # Errors
/// Corruption, with the broken rule.
pub fn unpack(raw: &[u8], volume: u64) -> Result<(Writer, Ranges<'_>)> {
    let (header, table) = ranges(raw)?;
    if header.volume != volume {
        return Err(bad("another volume's id"));
    }
    let head = FlushHeader::SIZE + table.len() * FlushRange::SIZE;
    let mut r = Reader::new(&raw[head..]);
    let mut found = Vec::with_capacity(table.len());
    for (n, range) in table.iter().enumerate() {
        let len = range.len as usize;
        let padding = len.next_multiple_of(limits::ALIGN) - len;
        // `ranges` has verified that the length matches the header.
        let (Some(bytes), Some(zeros)) = (r.take(len), r.take(padding)) else {
            return Err(bad("length"));
        };
        if checksum(bytes) != range.checksum {
            return Err(bad(format!("checksum of range {n}")));
        }
        if zeros.iter().any(|byte| *byte != 0) {
            return Err(bad(format!("bytes behind range {n}")));
        }
        found.push((range.addr, bytes));
    }
    let FlushHeader { kind, volume, incarnation, epoch, sequence, .. } = header;
    Ok((Writer { kind, volume, incarnation, epoch, sequence }, found))
}

/// Corrects the checksum of header and ranges of a changed object, for tests of the rules behind
/// it. Does nothing if `raw` has no complete table.
pub fn reseal(raw: &mut [u8]) {
    let Ok(header) = FlushHeader::read(raw) else { return };
    let end = FlushHeader::SIZE + header.count as usize * FlushRange::SIZE;
    let Some(table) = raw.get(FlushHeader::SIZE..end) else { return };
    let sum = sum(&raw[..AT_CHECKSUM], table);
    set_at(raw, AT_CHECKSUM, sum);
}

/// Decodes and verifies header and ranges, without reading the bytes after them.
fn ranges(raw: &[u8]) -> Result<(FlushHeader, Vec<FlushRange>)> {
    let header = FlushHeader::read(raw).map_err(bad)?;
    let count = header.count as usize;
    if !(1..=RANGES_MAX).contains(&count) {
        return Err(bad(format!("{count} ranges")));
    }
    let mut r = Reader::new(&raw[FlushHeader::SIZE..]);
    let table = r.take(count * FlushRange::SIZE).ok_or_else(|| bad("number of ranges"))?;
    if u64_at(raw, AT_CHECKSUM) != sum(&raw[..AT_CHECKSUM], table) {
        return Err(bad("checksum"));
    }
    if header.length != raw.len() as u64 {
        return Err(bad(format!("length {}, there are {}", header.length, raw.len())));
    }
    if header.sequence == 0 || header.sequence.max(header.epoch) > limits::COUNT_MAX {
        return Err(bad(format!("number {} of epoch {}", header.sequence, header.epoch)));
    }
    let (mut found, mut bytes, mut end) = (Vec::with_capacity(count), 0, 0);
    for raw in table.chunks_exact(FlushRange::SIZE) {
        let range = FlushRange::read(raw).map_err(bad)?;
        let (n, len) = (found.len(), u64::from(range.len));
        if range.addr.0 < end {
            return Err(bad(format!("range {n} overlaps the one before, or lies before it")));
        }
        let last = range.addr.0.checked_add(len).filter(|_| len > 0);
        end = last.ok_or_else(|| bad(format!("range {n} of {len} bytes at {}", range.addr.0)))?;
        bytes += len;
        found.push(range);
    }
    let padded = |range: &FlushRange| u64::from(range.len).next_multiple_of(limits::ALIGN as u64);
    let there = (r.rest().len() as u64, found.iter().map(padded).sum::<u64>());
    if bytes > BYTES_MAX || there.0 != there.1 {
        return Err(bad(format!("ranges of {bytes} bytes")));
    }
    Ok((header, found))
}

fn sum(head: &[u8], ranges: &[u8]) -> u64 {
    checksum(head) ^ checksum(ranges).rotate_left(1)
}

fn bad(rule: impl Into<String>) -> Error {
    Error::corrupt("flush object", None, rule.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Checkpoint;
    use proptest::prelude::*;

    const WRITER: Writer =
        Writer { kind: FlushKind::Flush, volume: 7, incarnation: 2, epoch: 3, sequence: 4 };

    fn refusal(raw: &[u8]) -> String {
        unpack(raw, 7).expect_err("it is refused").to_string()
    }

    /// An object whose table was changed, with a matching checksum.
    fn lying(mut raw: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
        raw[at..at + bytes.len()].copy_from_slice(bytes);
        reseal(&mut raw);
        raw
    }

    #[test]
    fn lies_are_refused_by_name() {
        let raw = pack(&WRITER, &[(Addr(4096), &[1; 13]), (Addr(8192), &[2; 100])]);
        let first = FlushHeader::SIZE;
        let second = first + FlushRange::SIZE;
        let cases = [
            ("another volume's id", lying(raw.clone(), 8, &[8])),
            ("0 ranges", lying(raw.clone(), 20, &[0])),
            ("65537 ranges", lying(raw.clone(), 20, &65537u32.to_le_bytes())),
            ("number of ranges", lying(raw.clone(), 20, &100u32.to_le_bytes())),
            ("length 0", lying(raw.clone(), 40, &0u64.to_le_bytes())),
            ("number 0", lying(raw.clone(), 32, &[0])),
            ("range 1 overlaps", lying(raw.clone(), second, &4108u64.to_le_bytes())),
            ("range 0 of 0 bytes", lying(raw.clone(), first + 8, &0u32.to_le_bytes())),
            ("range 1 of 100", lying(raw.clone(), second, &(u64::MAX - 9).to_le_bytes())),
            ("ranges of 121 bytes", lying(raw.clone(), first + 8, &21u32.to_le_bytes())),
            ("checksum of range 0", lying(raw.clone(), first + 8, &14u32.to_le_bytes())),
            ("checksum", [&raw[..57], &[!raw[57]], &raw[58..]].concat()),
            ("length", raw[..raw.len() - 8].to_vec()),
        ];
        for (rule, raw) in cases {
            let said = refusal(&raw);
            assert!(said.contains(rule), "{said}, not {rule}");
        }
        let mut garbage = raw.clone();
        let padding = FlushHeader::SIZE + 2 * FlushRange::SIZE + 13;
        garbage[padding] = 1;
        assert!(refusal(&garbage).contains("bytes behind range 0"));
        garbage[padding] = 0;
        assert!(unpack(&garbage, 7).is_ok());
        assert!(refusal(&[]).contains("length") && refusal(&[0; 64]).contains("magic"));
    }

    #[test]
    fn a_checkpoint_is_published_by_one_object() {
        let record = Checkpoint { volume: 7, epoch: 3, ..Checkpoint::default() }.encode();
        let superblock = [5; crate::superblock::SIZE];
        let writer = Writer { kind: FlushKind::Checkpoint, ..WRITER };
        let raw = pack(&writer, &[(Addr(0), &superblock), (Addr(9 << 20), &record)]);
        let (by, found) = unpack(&raw, 7).expect("it is right");
        assert_eq!(by, writer);
        assert_eq!(found, [(Addr(0), &superblock[..]), (Addr(9 << 20), &record[..])]);
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked_and_a_changed_byte_is_noticed(
            pieces in prop::collection::vec(
                (0u64..5000, prop::collection::vec(any::<u8>(), 1..300)),
                1..20,
            ),
            at in any::<prop::sample::Index>(),
            bit in 0..8u8,
        ) {
            let mut end = 0;
            let place = |(gap, bytes): &(u64, Vec<u8>)| {
                let addr = end + gap;
                end = addr + bytes.len() as u64;
                Addr(addr)
            };
            let addrs: Vec<Addr> = pieces.iter().map(place).collect();
            let ranges: Vec<(Addr, &[u8])> =
                addrs.into_iter().zip(pieces.iter().map(|(_, bytes)| &bytes[..])).collect();
            let mut raw = pack(&WRITER, &ranges);
            prop_assert_eq!(raw.len() % limits::ALIGN, 0);
            {
                let (writer, found) = unpack(&raw, 7).expect("it is right");
                prop_assert_eq!(writer, WRITER);
                prop_assert_eq!(found, ranges);
            }
            let at = at.index(raw.len());
            raw[at] ^= 1u8 << bit;
            // The header's unused bytes are not read, but its checksum covers them.
            prop_assert!(unpack(&raw, 7).is_err());
            prop_assert!(unpack(&raw[..at], 7).is_err());
        }
    }
}
