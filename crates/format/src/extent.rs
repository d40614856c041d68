//! File data on the device: extents of at most 128 KiB, each behind a header that says whose it is,
//! and the records that map a file's bytes to them.
//!
//! ```text
//! data object := header (32 bytes) | payload (1 to 131,072 bytes)
//! ```
//!
//! A record refers to a part of an object (`skip`, `len`), because overwriting the middle of an
//! extent leaves two parts of it in use. The pointer's checksum covers the object's whole payload.

use crate::Ptr;
use crate::bytes::{Put, Reader, u32_at, u64_at};
use shoal_base::invariant;
use shoal_base::{Addr, Ino, RootId, checksum, limits};

/// `SDX1`, at the start of a data object.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SDX1");
/// Bytes of a data object's header.
pub const HEADER: usize = 32;
/// Bytes of a record inline in an inode: file offset 8, then as in the tree.
pub const INLINE_SIZE: usize = 36;
/// Bytes of a record as a tree value: len 4, skip 4, address 8, payload length 4, checksum 8.
pub const VALUE_SIZE: usize = 28;
/// Longest preallocated extent.
pub const PREALLOC_MAX: u32 = 1 << 30;

/// Maps `[offset, offset + len)` of a file to part of a data object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Offset in the file.
    pub offset: u64,
    /// Bytes mapped.
    pub len: u32,
    /// First byte used of the object's payload.
    pub skip: u32,
    /// The object's payload. Null: preallocated, reads as zeros.
    pub ptr: Ptr,
}

impl Extent {
    /// One past the last byte mapped.
    #[inline]
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }
    /// Whether it is preallocated space without data.
    #[inline]
    pub fn is_prealloc(&self) -> bool {
        self.ptr.is_null()
    }
    /// The part of this extent inside `[from, to)`; must overlap.
    pub fn slice(&self, from: u64, to: u64) -> Extent {
        let (start, end) = (self.offset.max(from), self.end().min(to));
        invariant!(start < end, "slice of {self:?} by {from}..{to} is empty");
        let skip = if self.is_prealloc() { 0 } else { self.skip + (start - self.offset) as u32 };
        Extent { offset: start, len: (end - start) as u32, skip, ptr: self.ptr }
    }
    /// Address of the first byte used.
    #[inline]
    pub fn data_addr(&self) -> Addr {
        Addr(self.ptr.addr.0 + u64::from(self.skip))
    }
    /// Appends the tree value.
    pub fn encode_value(&self, out: &mut Vec<u8>) {
        out.put_u32(self.len);
        out.put_u32(self.skip);
        out.put_u64(self.ptr.addr.0);
        out.put_u32(self.ptr.len);
        out.put_u64(self.ptr.checksum);
    }
    /// Appends the inline form.
    pub fn encode_inline(&self, out: &mut Vec<u8>) {
        out.put_u64(self.offset);
        self.encode_value(out);
    }
    /// Reads a tree value and checks its rules.
    pub fn decode_value(offset: u64, raw: &[u8]) -> Option<Extent> {
        let mut r = Reader::new(raw);
        let (len, skip) = (r.u32()?, r.u32()?);
        let ptr = Ptr { addr: Addr(r.u64()?), len: r.u32()?, checksum: r.u64()? };
        let extent = Extent { offset, len, skip, ptr };
        (r.is_empty() && extent.is_valid()).then_some(extent)
    }
    /// Reads the next inline record.
    pub fn decode_inline(r: &mut Reader<'_>) -> Option<Extent> {
        let offset = r.u64()?;
        Extent::decode_value(offset, r.take(VALUE_SIZE)?)
    }
    /// The rules of a record: not empty, inside its object, inside the largest file.
    pub fn is_valid(&self) -> bool {
        let inside = match self.is_prealloc() {
            true => self.len <= PREALLOC_MAX && self.skip == 0 && self.ptr.addr.0 == 0,
            false => {
                u64::from(self.skip) + u64::from(self.len) <= u64::from(self.ptr.len)
                    && self.ptr.len as usize <= limits::EXTENT_MAX
                    && self.ptr.addr.0.checked_add(u64::from(self.ptr.len)).is_some()
            }
        };
        let fits = self.offset.checked_add(u64::from(self.len));
        self.len > 0 && inside && fits.is_some_and(|end| end <= limits::FILE_SIZE_MAX)
    }
    /// For logs and fsck.
    pub fn to_text(&self) -> String {
        let Extent { offset, len, skip, ptr } = self;
        match self.is_prealloc() {
            true => format!("{offset}+{len} preallocated"),
            false => format!("{offset}+{len} at {}+{skip} of {}", ptr.addr.0, ptr.len),
        }
    }
}

/// Header of a data object: whose bytes these are, so that the cleaner can ask whether they still
/// are, and fsck can name them. The file's number is relative to its root, which stands beside it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataHeader {
    /// Bytes of payload that were written with the header. The object may have grown since: how
    /// long it is, the pointer to it says.
    pub len: u32,
    /// Root that wrote it, its *origin*: the cleaner asks the file of that root. Another root may
    /// point to the object, too.
    pub origin: RootId,
    /// Index of the file it was written for, in any root that points to it.
    pub index: u64,
    /// The file offset it was written for.
    pub offset: u64,
}

impl DataHeader {
    /// The header of an object of `len` bytes for `ino` at `offset`.
    pub fn new(ino: Ino, offset: u64, len: u32) -> DataHeader {
        DataHeader { len, origin: ino.root(), index: ino.index(), offset }
    }
    /// The file it was written for.
    #[inline]
    pub fn ino(&self) -> Ino {
        Ino::new(self.origin, self.index)
    }
    /// Encodes: magic 4, len 4, index 6, origin 2, offset 8, checksum 8 (of the 24 bytes before and
    /// the volume). Index and origin fill the 8 bytes of an inode number, of which they are the
    /// lower 48 bits and the upper 16.
    pub fn encode(&self, volume: u64) -> [u8; HEADER] {
        let mut out = Vec::with_capacity(HEADER);
        out.put_u32(MAGIC);
        out.put_u32(self.len);
        out.put_u64(self.ino().0);
        out.put_u64(self.offset);
        let sum = checksum(&out) ^ volume;
        out.put_u64(sum);
        let mut raw = [0; HEADER];
        raw.copy_from_slice(&out);
        raw
    }
    /// Reads a header; `None` when these bytes are not one of this volume.
    pub fn decode(raw: &[u8], volume: u64) -> Option<DataHeader> {
        let raw = raw.get(..HEADER)?;
        if u32_at(raw, 0) != MAGIC || u64_at(raw, 24) != checksum(&raw[..24]) ^ volume {
            return None;
        }
        let len = u32_at(raw, 4);
        let fits = len > 0 && len as usize <= limits::EXTENT_MAX;
        fits.then(|| DataHeader::new(Ino(u64_at(raw, 8)), u64_at(raw, 16), len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_has_the_index_and_above_it_the_origin() {
        let header = DataHeader::new(Ino::new(RootId(0x1234), 0x5678), 9, 7);
        assert_eq!((header.origin, header.index), (RootId(0x1234), 0x5678));
        let raw = header.encode(42);
        assert_eq!(raw[8..16], [0x78, 0x56, 0, 0, 0, 0, 0x34, 0x12]);
        assert_eq!(DataHeader::decode(&raw, 42), Some(header));
    }

    /// Found by changing the corpus: the address of the first byte used overflowed.
    #[test]
    fn an_extent_at_the_end_of_all_addresses_is_no_record() {
        let ptr = Ptr { addr: Addr(u64::MAX), len: 0x4000, checksum: 5 };
        let mut raw = Vec::new();
        Extent { offset: 0, len: 0x1000, skip: 0x80, ptr }.encode_value(&mut raw);
        assert_eq!(Extent::decode_value(0, &raw), None);
    }
}
