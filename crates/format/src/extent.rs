//! File data on the device: extents of at most 128 KiB, each with a header that names its owner,
//! and the records that map a file's bytes to them.
//!
//! ```text
//! data object := header (32 bytes) | payload (1 to 131,072 bytes)
//! ```
//!
//! A record refers to a part of an object (`skip`, `len`), because overwriting the middle of an
//! extent leaves two parts of it in use. Checksums cover pieces of 4 KiB (`sums.rs`).

use crate::bytes::{Put, Reader, set_at, u64_at};
use crate::declare::{U24, U48, layout};
use crate::sums::{PIECES, Sums, pieces};
use crate::{Codec, Ptr};
use shoal_base::invariant;
use shoal_base::{Addr, Ino, RootId, checksum, limits};
use std::ops::Range;

/// `SDX1`, at the start of a data object.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SDX1");
/// Longest preallocated extent, in bytes.
pub const PREALLOC_MAX: u32 = 1 << 30;

layout! {
    /// Maps `[offset, offset + len)` of a file to part of a data object.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Extent: "extent", 40 of varying,
    "Value in the `extents` tree. Inline in an inode, the file offset (8 bytes) precedes it. For \
     an uncompressed object of more than 4096 bytes, the checksums of the 4096-byte pieces that \
     the extent touches follow, 4 bytes each: the lower halves of their XXH3-64." {
        0 len: u32, "bytes of the file that it maps";
        4 skip: u32, "first byte used of the object's decoded payload";
        8 ptr: Ptr, "the object's payload; null: preallocated, reads as zeros";
        + offset: u64, "offset in the file";
        + sums: Sums, "checksums of the pieces that it touches";
    }
}

/// Bytes of the longest record as a tree value.
pub const VALUE_MAX: usize = Extent::SIZE + 4 * PIECES;
/// Bytes of the shortest record inline in an inode: the file offset (8), then as in the tree.
pub const INLINE_MIN: usize = 8 + Extent::SIZE;

impl Extent {
    /// Makes a preallocated extent.
    #[inline]
    pub fn prealloc(offset: u64, len: u32) -> Extent {
        Extent { offset, len, skip: 0, ptr: Ptr::NULL, sums: Sums::NONE }
    }
    /// One past the last byte mapped.
    #[inline]
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
    /// Returns whether it is preallocated space without data.
    #[inline]
    pub fn is_prealloc(&self) -> bool {
        self.ptr.is_null()
    }
    /// The part of this extent inside `[from, to)`, which must overlap it.
    pub fn slice(&self, from: u64, to: u64) -> Extent {
        let (start, end) = (self.offset.max(from), self.end().min(to));
        invariant!(start < end, "slice of {self:?} by {from}..{to} is empty");
        let skip = if self.is_prealloc() { 0 } else { self.skip + (start - self.offset) as u32 };
        let len = (end - start) as u32;
        let sums = match self.ptr.is_coded() {
            true => Sums::NONE,
            false => self.sums.only(pieces(self.ptr.len, skip, skip + len)),
        };
        Extent { offset: start, len, skip, ptr: self.ptr, sums }
    }
    /// The pieces of the object that it touches, if they have checksums of their own.
    #[inline]
    pub fn pieces(&self) -> Range<usize> {
        match self.ptr.is_coded() {
            true => 0..0,
            false => pieces(self.ptr.len, self.skip, self.skip.saturating_add(self.len)),
        }
    }
    /// The stored bytes of the object that are accounted to this extent. For a compressed object
    /// this is a share in proportion to the decoded bytes that it uses. Extents that are disjoint
    /// in a file have disjoint shares; the shares of the parts of an extent add up to the share of
    /// the whole.
    #[inline]
    pub fn share(&self) -> Range<u32> {
        let (from, to) = (self.skip, self.skip.saturating_add(self.len));
        if !self.ptr.is_coded() {
            return from..to;
        }
        let (len, logical) = (u64::from(self.ptr.len), u64::from(self.ptr.logical.get()));
        let at = |byte: u32| (u64::from(byte) * len / logical) as u32;
        at(from)..at(to)
    }
    /// Number of stored bytes accounted to this extent: its share, but at least one, because an
    /// extent that counts nothing would not keep its segment in use.
    #[inline]
    pub fn stored_len(&self) -> u32 {
        let share = self.share();
        (share.end - share.start).max(1)
    }
    /// Bytes of the tree value.
    #[inline]
    pub fn value_len(&self) -> usize {
        Extent::SIZE + 4 * self.pieces().len()
    }
    /// Bytes of the inline form.
    #[inline]
    pub fn inline_len(&self) -> usize {
        8 + self.value_len()
    }
    /// Address of the first byte of its share of the object.
    #[inline]
    pub fn data_addr(&self) -> Addr {
        Addr(self.ptr.addr.0 + u64::from(self.share().start))
    }
    /// Appends the tree value.
    pub fn encode_value(&self, out: &mut Vec<u8>) {
        self.append(out);
        self.sums.encode(self.pieces(), out);
    }
    /// Appends the inline form.
    pub fn encode_inline(&self, out: &mut Vec<u8>) {
        out.put_u64(self.offset);
        self.encode_value(out);
    }
    /// Decodes a tree value and verifies it.
    pub fn decode_value(offset: u64, raw: &[u8]) -> Option<Extent> {
        let (fixed, sums) = raw.split_first_chunk()?;
        let mut extent = Extent { offset, ..Extent::load(fixed).ok()? };
        if !extent.is_valid() {
            return None;
        }
        extent.sums = Sums::decode(extent.pieces(), sums)?;
        Some(extent)
    }
    /// Decodes the next inline record.
    pub fn decode_inline(r: &mut Reader<'_>) -> Option<Extent> {
        let offset = r.u64()?;
        let fixed = Extent::read(r.rest()).ok().filter(Extent::is_valid_part)?;
        Extent::decode_value(offset, r.take(fixed.value_len())?)
    }
    /// Verifies a record: not empty, inside its object, inside the largest file.
    pub fn is_valid(&self) -> bool {
        let fits = self.offset.checked_add(u64::from(self.len));
        self.is_valid_part() && fits.is_some_and(|end| end <= limits::FILE_SIZE_MAX)
    }
    /// Verifies the rules that do not concern the file offset.
    fn is_valid_part(&self) -> bool {
        let inside = match self.is_prealloc() {
            true => self.len <= PREALLOC_MAX && self.skip == 0 && self.ptr == Ptr::NULL,
            false => {
                let logical = self.ptr.logical.get();
                u64::from(self.skip) + u64::from(self.len) <= u64::from(logical)
                    && self.ptr.is_valid()
                    && logical as usize <= limits::EXTENT_MAX
                    && self.ptr.addr.0.checked_add(u64::from(self.ptr.len)).is_some()
            }
        };
        self.len > 0 && inside
    }
    /// The extent as text, for logs and fsck.
    pub fn to_text(&self) -> String {
        let Extent { offset, len, skip, ptr, .. } = self;
        match self.is_prealloc() {
            true => format!("{offset}+{len} preallocated"),
            false => {
                let (addr, coding) = (ptr.addr.0, ptr.coding());
                let coded = match ptr.is_coded() {
                    true => format!(", {} in {}", coding.codec.name(), coding.len),
                    false => String::new(),
                };
                format!("{offset}+{len} at {addr}+{skip} of {}{coded}", coding.logical)
            }
        }
    }
}

layout! {
    /// Header of a data object. It names the owner of the bytes, so that the cleaner can check
    /// whether they are still in use and fsck can name them. The object may have grown since; the
    /// pointer to it has the current length. The cleaner asks the file in the subvolume that wrote
    /// the object, its *origin*; another subvolume may point to the object too.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct DataHeader: "data-object", 32 of varying,
    "Header of a data object; the payload follows." {
        0 magic: u32 = MAGIC, "`SDX1`";
        4 len: U24, "bytes of payload, as stored, at the first write; an uncompressed object may \
            have grown since";
        7 codec: Codec, "of the payload: 0 none, 1 lz4, 2 zstd";
        8 index: U48, "index of the file it was written for, in any subvolume that points to it";
        14 origin: RootId, "subvolume that wrote it";
        16 offset: u64,
           "file offset it was written for; bit 63 is set: hash of the attribute it belongs to";
        24 checksum[8], "XXH3-64 of the 24 bytes before, XOR the volume";
    }
}

/// Bytes of a data object's header.
pub const HEADER: usize = DataHeader::SIZE;
const AT_CHECKSUM: usize = DataHeader::TABLE.at("checksum");

impl DataHeader {
    /// Returns the header of an object for `ino` at `offset`, of `len` bytes as stored.
    pub fn new(ino: Ino, offset: u64, len: u32, codec: Codec) -> DataHeader {
        let (len, index) = (U24::new(len), U48::new(ino.index()));
        DataHeader { len, codec, index, origin: ino.root(), offset }
    }
    /// Returns whether `ptr` may point to an object with this header. Uncompressed data may have
    /// grown since it was written.
    pub fn may_be_of(&self, ptr: &Ptr) -> bool {
        let len = self.len.get();
        self.codec == ptr.codec && if ptr.is_coded() { len == ptr.len } else { len <= ptr.len }
    }
    /// The file that it was written for.
    #[inline]
    pub fn ino(&self) -> Ino {
        Ino::new(self.origin, self.index.get())
    }
    /// Encodes it, with the checksum.
    pub fn encode(&self, volume: u64) -> [u8; HEADER] {
        let mut raw = self.store();
        let sum = checksum(&raw[..AT_CHECKSUM]) ^ volume;
        set_at(&mut raw, AT_CHECKSUM, sum);
        raw
    }
    /// Decodes a header; `None` if it is not a header of this volume.
    pub fn decode(raw: &[u8], volume: u64) -> Option<DataHeader> {
        let raw = raw.first_chunk::<HEADER>()?;
        let head = DataHeader::load(raw).ok()?;
        let sum = u64_at(raw, AT_CHECKSUM);
        let len = head.len.get() as usize;
        let fits = len > 0 && len <= limits::EXTENT_MAX;
        (fits && sum == checksum(&raw[..AT_CHECKSUM]) ^ volume).then_some(head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_index_and_above_it_the_origin() {
        let header = DataHeader::new(Ino::new(RootId(0x1234), 0x5678), 9, 7, Codec::Lz4);
        assert_eq!((header.origin, header.index.get()), (RootId(0x1234), 0x5678));
        let raw = header.encode(42);
        assert_eq!(raw[8..16], [0x78, 0x56, 0, 0, 0, 0, 0x34, 0x12]);
        assert_eq!(DataHeader::decode(&raw, 42), Some(header));
    }

    /// Found by mutating the corpus: the address of the first byte used overflowed.
    #[test]
    fn an_extent_at_the_end_of_all_addresses_is_no_record() {
        let ptr = Ptr::sealed(Addr(u64::MAX), 1, 0x4000, 5);
        let mut raw = Vec::new();
        Extent { offset: 0, len: 0x1000, skip: 0x80, ptr, sums: Sums::NONE }.encode_value(&mut raw);
        assert_eq!(Extent::decode_value(0, &raw), None);
    }
}
