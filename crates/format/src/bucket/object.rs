//! Log objects and data objects: a header, a table of pieces, and the bytes of those that are in
//! the object itself.
//!
//! ```text
//! object := header (72 bytes) | pieces (40 each) | their bytes
//! ```
//!
//! Pieces are applied in order: of two with a common address the later one is valid. The header's
//! checksum covers header and pieces, each piece's checksum its bytes as they are stored. So a
//! reader needs only the start of an object to know its content, and verifies every piece by
//! itself.

use super::FRAME;
use crate::bytes::{set_at, u64_at};
use crate::codec::{Codec, Coding};
use crate::declare::{layout, numbered};
use shoal_base::{Addr, Error, Result, checksum, limits};

/// `SBO1`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SBO1");
/// Largest number of pieces in an object.
pub const PIECES_MAX: usize = 1 << 16;
/// Largest object, in bytes.
pub const BYTES_MAX: u64 = 256 << 20;
/// Bytes of a fence: a header alone. Every other log object is longer.
pub const FENCE_BYTES: u64 = ObjectHeader::SIZE as u64;
/// Zeros at the end of a [`ObjectKind::Beat`] and a [`ObjectKind::Close`], so that they are longer
/// than a fence.
const TAIL: usize = 8;

numbered! {
    /// The type of an object.
    pub enum ObjectKind: u32 {
        /// A log object: a flush.
        1 Flush,
        /// A data object.
        2 Data,
        /// A log object without pieces: the epoch in it owns the volume from this slot on. It is
        /// never deleted, so that a writer of an earlier epoch finds the slot taken whenever it
        /// wakes up.
        3 Fence,
        /// A log object without pieces: the owner is alive.
        4 Beat,
        /// A flush with or without pieces, the last one of an owner that closes the volume: nobody
        /// owns it from then on.
        5 Close,
    }
}

impl ObjectKind {
    /// Bytes behind the pieces.
    fn tail(self) -> usize {
        if matches!(self, ObjectKind::Beat | ObjectKind::Close) { TAIL } else { 0 }
    }
}

layout! {
    /// Header of a log object or a data object.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ObjectHeader: "bucket-object", 72 of varying,
    "Header of a log object or a data object in a bucket; its pieces follow, then their bytes." {
        0 magic: u32 = MAGIC, "`SBO1`";
        4 kind: ObjectKind, "1 flush, 2 data, 3 fence, 4 beat, 5 close";
        8 volume: u64, "random number of the volume in the bucket";
        16 epoch: u64, "the opening that wrote it: sequence number of its claim";
        24 writer: u64, "random number of that opening";
        32 sequence: u64, "slot of a log object; of a data object its number in its epoch, from 1";
        40 count: u32, "number of pieces";
        44 lease_ms: u32,
           "log: milliseconds within which the owner promises the next log object";
        48 length: u64, "bytes of the object";
        56 reserved[8], "zero";
        64 checksum[8], "of the bytes before and the pieces";
    }
}

layout! {
    /// A piece: bytes of the address space in an object.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Piece: "bucket-piece", 40 of 40,
    "A piece of an object in a bucket. Without stored bytes: the range has no content any more, \
     and reads as zeros." {
        0 addr: Addr, "address of its first byte";
        8 len: u32, "bytes of the address space";
        12 stored: u32, "bytes as stored; 0: the range was discarded";
        16 object: u64,
           "0: its bytes are in this object; else in the data object of this number and epoch";
        24 offset: u32, "offset of its bytes in that object";
        28 codec: Codec, "0 none, 1 lz4, 2 zstd";
        29 reserved[3], "zero";
        32 checksum: u64, "XXH3-64 of its bytes as stored";
    }
}

const AT_CHECKSUM: usize = ObjectHeader::TABLE.at("checksum");

impl Piece {
    /// Returns a discarded range.
    pub fn discarded(addr: Addr, len: u32) -> Piece {
        Piece { addr, len, stored: 0, object: 0, offset: 0, codec: Codec::None, checksum: 0 }
    }
    /// Returns whether the range was discarded.
    pub fn is_discarded(&self) -> bool {
        self.stored == 0
    }
    /// How its bytes are stored.
    pub fn coding(&self) -> Coding {
        Coding { codec: self.codec, len: self.stored, logical: self.len }
    }

    fn rule(&self, header: &ObjectHeader, head: u64) -> Result<(), &'static str> {
        let end = self.addr.0.checked_add(u64::from(self.len));
        if self.len == 0 || end.is_none_or(|end| end > i64::MAX as u64) {
            return Err("its range of addresses");
        }
        if self.is_discarded() {
            let plain = *self == Piece::discarded(self.addr, self.len);
            return if plain { Ok(()) } else { Err("a discarded range with bytes") };
        }
        if (self.addr.0 % u64::from(FRAME)) + u64::from(self.len) > u64::from(FRAME) {
            return Err("it crosses a frame");
        }
        if !self.coding().is_valid() {
            return Err("its stored length");
        }
        let stored = u64::from(self.offset)..u64::from(self.offset) + u64::from(self.stored);
        match self.object {
            0 if stored.start < head || stored.end > header.length => Err("its place"),
            0 => Ok(()),
            _ if header.kind == ObjectKind::Data => Err("another object's number"),
            number if number > limits::COUNT_MAX => Err("its object's number"),
            _ => Ok(()),
        }
    }
}

/// A piece to be packed.
#[derive(Clone, Debug)]
pub enum Packed<'b> {
    /// Stored bytes of the object itself: address, decoded length, codec.
    Here(Addr, u32, Codec, &'b [u8]),
    /// A discarded range, or a piece in a data object.
    Other(Piece),
}

/// Packs an object. `header` needs no count and no length. Returns its bytes and its pieces, with
/// the offsets of those in the object.
pub fn pack(header: ObjectHeader, pieces: &[Packed<'_>]) -> (Vec<u8>, Vec<Piece>) {
    let head = ObjectHeader::SIZE + pieces.len() * Piece::SIZE;
    let mut offset = head;
    let mut place = |packed: &Packed<'_>| match packed {
        Packed::Other(piece) => *piece,
        Packed::Here(addr, len, codec, raw) => {
            let (stored, checksum) = (raw.len() as u32, checksum(raw));
            let at = offset as u32;
            offset += raw.len();
            let (addr, len, codec) = (*addr, *len, *codec);
            Piece { addr, len, stored, object: 0, offset: at, codec, checksum }
        }
    };
    let table: Vec<Piece> = pieces.iter().map(&mut place).collect();
    let tail = header.kind.tail();
    let length = (offset + tail) as u64;
    let header = ObjectHeader { count: pieces.len() as u32, length, ..header };
    let mut out = Vec::with_capacity(offset + tail);
    header.append(&mut out);
    table.iter().for_each(|piece| piece.append(&mut out));
    let sum = sum(&out[..AT_CHECKSUM], &out[ObjectHeader::SIZE..]);
    set_at(&mut out, AT_CHECKSUM, sum);
    for packed in pieces {
        if let Packed::Here(.., raw) = packed {
            out.extend_from_slice(raw);
        }
    }
    out.resize(offset + tail, 0);
    (out, table)
}

/// Decodes header and pieces of an object, and verifies them. `raw` is the object, or its start
/// with at least all pieces; their bytes are not verified ([`bytes_of`]).
///
/// # Errors
/// Corruption, with the broken rule. `name` names the object in it.
pub fn unpack(raw: &[u8], name: &str, volume: u64) -> Result<(ObjectHeader, Vec<Piece>)> {
    let bad = |rule: String| Error::corrupt(format!("object {name}"), None, rule);
    let header = ObjectHeader::read(raw).map_err(|rule| match is_sealed(raw) {
        true => super::unknown(&format!("object {name}"), rule),
        false => bad(rule.to_string()),
    })?;
    let count = header.count as usize;
    let head = ObjectHeader::SIZE + count.min(PIECES_MAX) * Piece::SIZE;
    let fits = match header.kind {
        ObjectKind::Flush | ObjectKind::Data => count > 0,
        ObjectKind::Fence | ObjectKind::Beat => count == 0,
        ObjectKind::Close => true,
    };
    if count > PIECES_MAX || !fits {
        return Err(bad(format!("{count} pieces")));
    }
    let Some(table) = raw.get(ObjectHeader::SIZE..head) else {
        return Err(bad(format!("{count} pieces in {} bytes", raw.len())));
    };
    if u64_at(raw, AT_CHECKSUM) != sum(&raw[..AT_CHECKSUM], table) {
        return Err(bad("checksum of the header".into()));
    }
    if header.volume != volume {
        return Err(bad(format!("is of volume {:016x}, not {volume:016x}", header.volume)));
    }
    let sequence = header.sequence.max(header.epoch);
    if header.sequence == 0 || header.epoch == 0 || sequence > limits::COUNT_MAX {
        return Err(bad(format!("number {} of epoch {}", header.sequence, header.epoch)));
    }
    let tail = header.kind.tail();
    if header.length > BYTES_MAX || header.length < (head + tail) as u64 {
        return Err(bad(format!("length {}", header.length)));
    }
    if count == 0 && header.length != (head + tail) as u64 {
        return Err(bad(format!("length {} without pieces", header.length)));
    }
    let mut pieces = Vec::with_capacity(count);
    for (n, raw) in table.chunks_exact(Piece::SIZE).enumerate() {
        let piece = Piece::read(raw).map_err(|rule| bad(format!("piece {n}: {rule}")))?;
        piece.rule(&header, head as u64).map_err(|rule| bad(format!("piece {n}: {rule}")))?;
        pieces.push(piece);
    }
    Ok((header, pieces))
}

/// Returns the stored bytes of a piece in its object, verified.
///
/// # Errors
/// Corruption: they are missing, or their checksum is another one.
pub fn bytes_of<'r>(piece: &Piece, raw: &'r [u8], name: &str) -> Result<&'r [u8]> {
    let bad = |rule: String| Error::corrupt(format!("object {name}"), Some(piece.addr.0), rule);
    let start = piece.offset as usize;
    let Some(bytes) = raw.get(start..start + piece.stored as usize) else {
        return Err(bad(format!("has {} bytes, a piece of it ends behind them", raw.len())));
    };
    if checksum(bytes) != piece.checksum {
        return Err(bad(format!("checksum of {} bytes at its byte {start}", bytes.len())));
    }
    Ok(bytes)
}

/// Corrects the checksum of header and pieces of a changed object, for tests of the rules behind
/// it. Does nothing if `raw` has no complete table.
pub fn reseal(raw: &mut [u8]) {
    let Some(table) = table(raw) else { return };
    let sum = sum(&raw[..AT_CHECKSUM], table);
    set_at(raw, AT_CHECKSUM, sum);
}

/// Returns whether the checksum is right, whatever the fields before it mean.
fn is_sealed(raw: &[u8]) -> bool {
    table(raw).is_some_and(|table| u64_at(raw, AT_CHECKSUM) == sum(&raw[..AT_CHECKSUM], table))
}

/// Returns the pieces as they are stored.
fn table(raw: &[u8]) -> Option<&[u8]> {
    let at = ObjectHeader::TABLE.at("count");
    let count = u32::from_le_bytes(raw.get(at..at + 4)?.try_into().ok()?) as usize;
    let end = ObjectHeader::SIZE.saturating_add(count.saturating_mul(Piece::SIZE));
    raw.get(ObjectHeader::SIZE..end)
}

fn sum(head: &[u8], pieces: &[u8]) -> u64 {
    checksum(head) ^ checksum(pieces).rotate_left(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_skip::property;

    const HEADER: ObjectHeader = ObjectHeader {
        kind: ObjectKind::Flush,
        volume: 7,
        epoch: 3,
        writer: 9,
        sequence: 4,
        count: 0,
        lease_ms: 2000,
        length: 0,
    };

    fn two() -> Vec<u8> {
        let first = Packed::Here(Addr(4096), 13, Codec::None, &[1; 13]);
        let second = Packed::Here(Addr(8192), 300, Codec::Lz4, &[2; 100]);
        pack(HEADER, &[first, second, Packed::Other(Piece::discarded(Addr(0), 1 << 30))]).0
    }

    /// An object whose table was changed, with a matching checksum.
    fn lying(at: usize, bytes: &[u8]) -> Vec<u8> {
        let mut raw = two();
        raw[at..at + bytes.len()].copy_from_slice(bytes);
        reseal(&mut raw);
        raw
    }

    #[test]
    fn lies_are_refused_by_name() {
        let first = ObjectHeader::SIZE;
        let third = first + 2 * Piece::SIZE;
        let cases = [
            ("is of volume", lying(8, &[8])),
            ("0 pieces", lying(40, &[0])),
            ("4294967295 pieces", lying(40, &[255; 4])),
            ("pieces in", lying(40, &[100])),
            ("length 0", lying(48, &[0; 8])),
            ("number 0", lying(32, &[0; 8])),
            ("of epoch 0", lying(16, &[0; 8])),
            ("piece 0: its range", lying(first + 8, &[0; 4])),
            ("piece 0: its range", lying(first, &[255; 8])),
            ("piece 0: it crosses", lying(first + 8, &(FRAME - 4095).to_le_bytes())),
            ("piece 0: its stored", lying(first + 12, &[14])),
            ("piece 0: its place", lying(first + 24, &[1, 0])),
            ("piece 0: its object", lying(first + 16, &[255; 8])),
            ("piece 2: a discarded range", lying(third + 32, &[1])),
            ("piece 2: its range", lying(third + 8, &[0; 4])),
        ];
        for (rule, raw) in cases {
            let said = unpack(&raw, "log/4", 7).expect_err(rule).to_string();
            assert!(said.contains(rule) && said.contains("object log/4"), "{said}, not {rule}");
        }
        let said = unpack(&lying(4, &[99]), "log/4", 7).expect_err("another kind").to_string();
        assert!(said.contains("object log/4: ") && said.contains("a newer version"), "{said}");
        let mut raw = two();
        let (_, pieces) = unpack(&raw, "x", 7).expect("it is right");
        assert_eq!(bytes_of(&pieces[1], &raw, "x").expect("it is there"), [2; 100]);
        *raw.last_mut().expect("it has bytes") ^= 1;
        let said = bytes_of(&pieces[1], &raw, "x").expect_err("it differs").to_string();
        assert!(said.contains("object x at byte 8192: checksum of 100 bytes"), "{said}");
        raw.pop();
        let said = bytes_of(&pieces[1], &raw, "x").expect_err("it is short").to_string();
        assert!(said.contains("a piece of it ends behind them"), "{said}");
    }

    #[test]
    fn only_a_fence_has_the_length_of_one() {
        for kind in [ObjectKind::Fence, ObjectKind::Beat, ObjectKind::Close] {
            let (raw, _) = pack(ObjectHeader { kind, ..HEADER }, &[]);
            assert_eq!(raw.len() as u64 == FENCE_BYTES, kind == ObjectKind::Fence);
            assert_eq!(unpack(&raw, "x", 7).expect("it is right").0.kind, kind);
        }
        assert!(two().len() as u64 > FENCE_BYTES);
    }

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn what_is_packed_is_unpacked_and_a_changed_byte_is_noticed(
            pieces in prop::collection::vec(
                (0u64..5000, prop::collection::vec(any::<u8>(), 1..300)),
                1..20,
            ),
            at in any::<prop::sample::Index>(),
            bit in 0..8u8,
        ) {
            let packed: Vec<Packed<'_>> = pieces
                .iter()
                .map(|(at, raw)| Packed::Here(Addr(*at), raw.len() as u32, Codec::None, raw))
                .collect();
            let (mut raw, table) = pack(HEADER, &packed);
            let read = |raw: &[u8]| {
                let (header, table) = unpack(raw, "x", 7)?;
                let read = |piece| bytes_of(piece, raw, "x").map(<[u8]>::to_vec);
                let bytes = table.iter().map(read).collect::<Result<Vec<_>>>()?;
                Ok::<_, Error>((header, table, bytes))
            };
            let (header, found, bytes) = read(&raw).expect("it is right");
            prop_assert_eq!(header.length, raw.len() as u64);
            prop_assert_eq!(&found, &table);
            for ((at, stored), (piece, back)) in pieces.iter().zip(found.iter().zip(&bytes)) {
                prop_assert_eq!((*at, stored), (piece.addr.0, back));
            }
            let at = at.index(raw.len());
            raw[at] ^= 1u8 << bit;
            // Unused bytes are not read, but the checksum covers them.
            prop_assert!(read(&raw).is_err());
            prop_assert!(read(&raw[..at]).is_err());
        }
    }
}
