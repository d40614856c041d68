//! Inodes: a fixed core of 116 bytes and a literal area shared by a *data fork* and an *attribute
//! fork* (after XFS). Stored 32 to a block and trimmed: the unused end of each literal area is not
//! written.
//!
//! ```text
//! inode block := header (48) | lengths (32 × 2) | 32 trimmed inodes
//! inode       := core (116) | data fork | attribute fork
//! ```

use crate::Ptr;
use crate::bytes::{Put, Reader, set_at};
use crate::codec::{Codec, Coding, Compression};
use crate::declare::{U24, layout, numbered};
use shoal_base::limits::{ALIGN, INODE_SIZE_MAX, INODES_PER_BLOCK};
use shoal_base::{Addr, Error, Ino, Result, RootId};

/// `SIB2`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SIB2");
/// Flag of a file made without a name (`O_TMPFILE`) that may still be given its first one.
pub const FLAG_TMPFILE: u32 = 1;
/// Flag of an inode with an access control list: its mode alone does not determine permissions.
pub const FLAG_ACL: u32 = 2;
/// Flag of a directory with a default access control list, which new entries inherit.
pub const FLAG_DEFAULT_ACL: u32 = 4;
/// Flag of a file with capabilities, which the next change of its contents removes.
pub const FLAG_CAPABILITY: u32 = 8;
/// Flag of a file with a truncate in progress ([`Core::flags`]): extents beyond its size are still
/// being removed. The inode has an orphan slot until they are gone, and must not grow before.
pub const FLAG_TRUNCATING: u32 = 16;

numbered! {
    /// The representation of a fork's contents.
    #[derive(Default)]
    pub enum Form: u8 {
        /// Nothing.
        #[default]
        0 Empty,
        /// The contents themselves: file bytes, symlink target, or attributes.
        1 Inline,
        /// Extent records (data fork only).
        2 Extents,
        /// The contents are in the `extents` or `attrs` tree.
        3 Tree,
    }
}

layout! {
    /// A point in time. Packed, because each inode in memory has four of them: 16 bytes of padding
    /// would make a block of 32 small files longer than 8 KiB.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
    #[repr(C, packed(4))]
    pub struct Stamp: "time", 12 of 12, "A point in time." {
        0 sec: i64, "seconds since 1970";
        8 nsec: u32, "nanoseconds";
    }
}

layout! {
    /// The fixed part of an inode.
    ///
    /// `lsn` is the start of the last record that has an item of the core (`Core`, `DirTouch`,
    /// `Links`). Every change made by a call has one; the cleaner, which moves data, and a repair
    /// have none. A record has no LSN yet while its items are built, so this field is meaningless
    /// in a `Core` item: replay sets it to the LSN of the record that it reads.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Core: "inode", 116 of varying,
    "Core of an inode; data fork and attribute fork follow. A slot that was used and is free now \
     holds 4 bytes, its generation." {
        0 mode: u32, "type and permissions; 0: the slot is free";
        4 nlink: u32, "number of links";
        8 uid: u32, "owner";
        12 gid: u32, "group";
        16 generation: u32, "incremented when the number is reused";
        20 flags: u32,
            "bit 0: made without a name (`O_TMPFILE`), may be linked; 1: has an ACL; 2: has a \
            default ACL; 3: has capabilities; 4: a truncate is in progress";
        24 size: u64, "bytes; for a directory: number of entries";
        32 bytes: u64, "bytes of data extents accounted to this file";
        40 parent_or_rdev: u64,
           "parent of a directory, relative to the subvolume; number of a device";
        48 atime: Stamp, "last access";
        60 mtime: Stamp, "last change of contents";
        72 ctime: Stamp, "last change of the inode";
        84 btime: Stamp, "creation";
        96 lsn: u64, "LSN of the last record that has an item of this core";
        104 project: u32, "project for quotas; 0: none";
        108 data_form: Form, "data fork: 0 empty, 1 inline, 2 extents, 3 in the tree";
        109 attr_form: Form, "attribute fork: 0 empty, 1 inline, 3 in the tree";
        110 data_len: u16, "bytes of the data fork, which is the offset of the attribute fork";
        112 attr_len: u16, "bytes of the attribute fork";
        114 reserved[2], "zero";
    }
}

// Keep it small: a volume may have a hundred million of them.
const _: () = assert!(size_of::<Core>() <= 120);

/// Bytes of an inode's core.
pub const CORE: usize = Core::SIZE;

layout! {
    /// Header of an inode block.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct BlockHeader: "inode-block", 48 of varying,
    "Header of an inode block. 32 lengths of 2 bytes and the trimmed inodes follow; both may be \
     compressed." {
        0 magic: u32 = MAGIC, "`SIB2`";
        4 inode_size: u16, "inode size of the volume";
        6 root: RootId, "subvolume it belongs to";
        8 volume: u64, "first half of the volume id";
        16 number: u64, "first inode's index / 32";
        24 addr: Addr, "address it was written to";
        32 epoch: u64, "checkpoint that wrote it";
        40 len: u32, "bytes of the block on disk";
        44 logical: U24, "decoded bytes of the block";
        47 codec: Codec, "of the lengths and inodes: 0 none, 1 lz4, 2 zstd";
    }
}

impl BlockHeader {
    /// Returns the coding of the block; `None` if its fields contradict each other.
    pub fn coding(&self) -> Option<Coding> {
        let coding = Coding { codec: self.codec, len: self.len, logical: self.logical.get() };
        let long =
            coding.len as usize >= BLOCK_HEADER && coding.logical <= block_max(INODE_SIZE_MAX);
        (coding.is_valid() && long).then_some(coding)
    }
}

/// Returns the decoded bytes of the longest block of a volume with this inode size.
pub const fn block_max(inode_size: usize) -> u32 {
    (BLOCK_HEADER + INODES_PER_BLOCK * (2 + inode_size)) as u32
}

layout! {
    /// Value in the `imap` tree.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ImapEntry: "imap-entry", 36 of 36,
    "Value in the `imap` tree, by the number of the inode block." {
        0 ptr: Ptr, "the block";
        32 free: u32, "a bit for each inode, 1: free";
    }
}

/// Bytes of a block's header.
pub const BLOCK_HEADER: usize = BlockHeader::SIZE;
/// Offset of the address in it.
const BLOCK_ADDR: usize = BlockHeader::TABLE.at("addr");
const BLOCK_LEN: usize = BlockHeader::TABLE.at("len");
const BLOCK_LOGICAL: usize = BlockHeader::TABLE.at("logical");
const BLOCK_CODEC: usize = BlockHeader::TABLE.at("codec");

impl Core {
    /// Returns whether the slot holds an inode.
    #[inline]
    pub fn in_use(&self) -> bool {
        self.mode != 0
    }
    /// Type bits, as in `DT_*`.
    #[inline]
    pub fn kind(&self) -> u8 {
        ((self.mode >> 12) & 15) as u8
    }
    /// Returns whether it is a directory.
    #[inline]
    pub fn is_dir(&self) -> bool {
        self.kind() == 4
    }
    /// Returns whether it is a regular file.
    #[inline]
    pub fn is_file(&self) -> bool {
        self.kind() == 8
    }
    /// Converts `parent_or_rdev` between its stored form and that in memory, for an inode of
    /// `root`. The conversion is its own inverse.
    fn translated(&self, root: RootId) -> u64 {
        match self.is_dir() {
            true => Ino(self.parent_or_rdev).relative_to(root),
            false => self.parent_or_rdev,
        }
    }
    /// Appends the encoding, for an inode of `root`.
    pub fn encode(&self, root: RootId, out: &mut Vec<u8>) {
        Core { parent_or_rdev: self.translated(root), ..*self }.append(out);
    }
    /// Decodes an inode core of `root`.
    pub fn decode(root: RootId, r: &mut Reader<'_>) -> Option<Core> {
        let core: Core = r.field()?;
        Some(Core { parent_or_rdev: core.translated(root), ..core })
    }
}

/// An inode in memory: core and forks. About 150 bytes and the forks' contents.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inode {
    /// Fixed part; `data_len` and `attr_len` are set when it is encoded.
    pub core: Core,
    /// Data fork.
    pub data: Box<[u8]>,
    /// Attribute fork.
    pub attr: Box<[u8]>,
}

/// Bytes of a slot that was used and is free now: the generation.
pub const FREED: usize = 4;

impl Inode {
    /// Makes a free slot whose last user had this generation.
    pub fn free(generation: u32) -> Inode {
        Inode { core: Core { generation, ..Core::default() }, ..Inode::default() }
    }
    /// Bytes of the trimmed inode on disk.
    pub fn encoded_len(&self) -> usize {
        match (self.core.in_use(), self.core.generation) {
            (true, _) => CORE + self.data.len() + self.attr.len(),
            (false, 0) => 0,
            (false, _) => FREED,
        }
    }
    /// Appends the trimmed inode of `root`: nothing for a slot that was never used, only the
    /// generation for a free one.
    pub fn encode(&self, root: RootId, out: &mut Vec<u8>) {
        match self.encoded_len() {
            0 => return,
            FREED => return out.put_u32(self.core.generation),
            _ => {}
        }
        let core = Core {
            data_len: self.data.len() as u16,
            attr_len: self.attr.len() as u16,
            ..self.core
        };
        core.encode(root, out);
        out.put_bytes(&self.data);
        out.put_bytes(&self.attr);
    }
    /// Decodes a trimmed inode of `root`, of a volume with this inode size.
    pub fn decode(root: RootId, raw: &[u8], inode_size: u32) -> Option<Inode> {
        if raw.is_empty() {
            return Some(Inode::default());
        }
        if raw.len() == FREED {
            let generation = Reader::new(raw).u32()?;
            return Some(Inode::free(generation));
        }
        if raw.len() > inode_size as usize {
            return None;
        }
        let mut r = Reader::new(raw);
        let core = Core::decode(root, &mut r)?;
        let data = r.take(core.data_len as usize)?.into();
        let attr = r.take(core.attr_len as usize)?.into();
        r.is_empty().then_some(Inode { core, data, attr })
    }
    /// The inode as text, for logs and fsck.
    pub fn to_text(&self) -> String {
        let c = &self.core;
        format!(
            "mode {:o} links {} size {} generation {} data {:?}/{} attr {:?}/{}",
            c.mode,
            c.nlink,
            c.size,
            c.generation,
            c.data_form,
            self.data.len(),
            c.attr_form,
            self.attr.len()
        )
    }
}

/// The identity of an inode block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockId {
    /// Low half of the volume id.
    pub volume: u64,
    /// First inode of the block, with the index `number × 32`. Its subvolume is the one through
    /// which the block is reached and into which it is written.
    pub first: Ino,
    /// Inode size of the volume.
    pub inode_size: u32,
}

impl BlockId {
    /// Returns the decoded bytes of the longest block.
    pub fn block_max(&self) -> u32 {
        block_max(self.inode_size as usize)
    }
    /// Number of the block in its subvolume.
    pub fn number(&self) -> u64 {
        self.first.index() / INODES_PER_BLOCK as u64
    }
}

/// Appends a block of trimmed inodes to `out`, compressed by `how`. `slot` appends each inode.
/// [`stamp_block`] sets the address later.
pub fn encode_block(
    (id, epoch): (BlockId, u64),
    how: Compression,
    out: &mut Vec<u8>,
    mut slot: impl FnMut(usize, &mut Vec<u8>),
) -> Coding {
    let block = out.len();
    let head = BlockHeader {
        inode_size: id.inode_size as u16,
        root: id.first.root(),
        volume: id.volume,
        number: id.number(),
        addr: Addr(0),
        epoch,
        len: 0,
        logical: U24::default(),
        codec: Codec::None,
    };
    head.append(out);
    let lens = out.len();
    out.resize(lens + INODES_PER_BLOCK * 2, 0);
    for i in 0..INODES_PER_BLOCK {
        let start = out.len();
        slot(i, out);
        let len = (out.len() - start) as u16;
        set_at(out, lens + 2 * i, len);
    }
    let logical = out.len() - block;
    let mut codec = Codec::None;
    if how.codec != Codec::None {
        let plain = out.split_off(lens);
        codec = how.encode(&plain, plain.len() - ALIGN, out);
    }
    let coding = Coding { codec, len: (out.len() - block) as u32, logical: logical as u32 };
    let head = &mut out[block..];
    set_at(head, BLOCK_LEN, coding.len);
    set_at(head, BLOCK_LOGICAL, U24::new(coding.logical));
    set_at(head, BLOCK_CODEC, codec);
    coding
}

/// Sets the address in a block that was encoded without it.
pub fn stamp_block(block: &mut [u8], addr: Addr) {
    set_at(block, BLOCK_ADDR, addr);
}

/// The contents of a block's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockPlace {
    /// Its identity.
    pub id: BlockId,
    /// Address it was written to.
    pub addr: Addr,
    /// Epoch in which it was written.
    pub epoch: u64,
    /// Its coding and length.
    pub coding: Coding,
}

impl BlockPlace {
    /// Decodes the header of a block that may begin here, to find blocks that nothing points to.
    /// Verifies only the magic and that the lengths are possible.
    pub fn decode(raw: &[u8]) -> Option<BlockPlace> {
        let header = BlockHeader::read(raw).ok()?;
        let coding = header.coding()?;
        let BlockHeader { inode_size, root, volume, number, addr, epoch, .. } = header;
        let first = number.checked_mul(INODES_PER_BLOCK as u64).filter(|index| index >> 48 == 0)?;
        let inode_size = u32::from(inode_size);
        let id = BlockId { volume, first: Ino::new(root, first), inode_size };
        Some(BlockPlace { id, addr, epoch, coding })
    }
}

/// Decodes a block whose checksum has been verified. Any subvolume may have written it.
///
/// # Errors
/// Corruption, with the broken rule. Allocates no more than the longest block of the volume needs.
pub fn decode_block(raw: &[u8], coding: Coding, id: BlockId, addr: Addr) -> Result<Vec<Inode>> {
    let bad = |rule: String| {
        Error::corrupt(
            format!("inode block {} of subvolume {}", id.number(), id.first.root().0),
            Some(addr.0),
            rule,
        )
    };
    let head = match BlockHeader::read(raw) {
        Ok(head) if u32::from(head.inode_size) == id.inode_size => head,
        Ok(head) => return Err(bad(format!("inode size {}", head.inode_size))),
        Err(field) => return Err(bad(field.into())),
    };
    let BlockHeader { root, volume, number, .. } = head;
    if volume != id.volume || number != id.number() || head.addr != addr {
        let at = head.addr.0;
        let root = root.0;
        return Err(bad(format!("written as block {number} of subvolume {root} for byte {at}")));
    }
    let here = Coding { len: raw.len() as u32, ..coding };
    if here != coding || head.coding() != Some(coding) || coding.logical > id.block_max() {
        let said = head.coding();
        return Err(bad(format!("coded as {said:?}, {} bytes read for {coding:?}", raw.len())));
    }
    let (mut plain, mut body) = (Vec::new(), &raw[BLOCK_HEADER..]);
    if coding.codec != Codec::None {
        plain.resize((coding.logical as usize).saturating_sub(BLOCK_HEADER), 0);
        coding.codec.decode(body, &mut plain).map_err(bad)?;
        body = &plain;
    }
    let mut r = Reader::new(body);
    let lens = r.take(INODES_PER_BLOCK * 2).ok_or_else(|| bad("length".into()))?;
    let mut lens = Reader::new(lens);
    let mut inodes = Vec::with_capacity(INODES_PER_BLOCK);
    while let Some(len) = lens.u16() {
        let slot = inodes.len();
        let inode = r.take(len as usize);
        let inode = inode.and_then(|raw| Inode::decode(id.first.root(), raw, id.inode_size));
        inodes.push(inode.ok_or_else(|| bad(format!("slot {slot} of {len} bytes")))?);
    }
    match r.is_empty() {
        true => Ok(inodes),
        false => Err(bad(format!("{} bytes too long", r.rest().len()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: u32 = 0o040_755;
    const DEVICE: u32 = 0o020_600;

    fn core(mode: u32, parent_or_rdev: u64) -> Core {
        Core { mode, parent_or_rdev, ..Core::default() }
    }

    #[test]
    fn the_parent_of_a_directory_is_relative_and_the_number_of_a_device_is_not() {
        let encoded = |root: RootId, core: Core| {
            let mut raw = Vec::new();
            core.encode(root, &mut raw);
            assert_eq!(Core::decode(root, &mut Reader::new(&raw)), Some(core));
            raw
        };
        let [a, b] = [RootId(2), RootId(9)];
        let in_root = |root: RootId| encoded(root, core(DIRECTORY, Ino::new(root, 77).0));
        assert_eq!(in_root(a), in_root(b));
        assert_eq!(in_root(a)[40..48], 77u64.to_le_bytes());
        assert_eq!(encoded(a, core(DEVICE, 0x1234)), encoded(b, core(DEVICE, 0x1234)));
        // The top directory of a subvolume names subvolume 0.
        assert_eq!(encoded(a, core(DIRECTORY, 1))[40..48], (2u64 << 48 | 1).to_le_bytes());
    }

    #[test]
    fn a_block_is_refused_for_its_volume_and_place_but_not_for_its_root() {
        let (a, b, addr) = (RootId(2), RootId(9), Addr(8192));
        let id = |root| BlockId { volume: 7, first: Ino::new(root, 64), inode_size: 512 };
        let parent = |root| Ino::new(root, 5).0;
        let mut raw = Vec::new();
        let coding = encode_block((id(a), 1), Compression::LZ4, &mut raw, |_, out| {
            Inode { core: core(DIRECTORY, parent(a)), ..Inode::default() }.encode(a, out);
        });
        stamp_block(&mut raw, addr);
        for root in [a, b] {
            let inodes = decode_block(&raw, coding, id(root), addr).unwrap();
            assert!(inodes.iter().all(|inode| inode.core.parent_or_rdev == parent(root)));
        }
        assert_eq!(BlockPlace::decode(&raw).map(|place| place.id), Some(id(a)));
        assert!(decode_block(&raw, coding, BlockId { volume: 8, ..id(a) }, addr).is_err());
        assert!(
            decode_block(&raw, coding, BlockId { first: Ino::new(a, 96), ..id(a) }, addr).is_err()
        );
        assert!(decode_block(&raw, coding, BlockId { inode_size: 256, ..id(a) }, addr).is_err());
        assert!(decode_block(&raw, coding, id(a), Addr(16384)).is_err());
    }
}
