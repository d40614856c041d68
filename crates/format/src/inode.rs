//! Inodes: a fixed core of 112 bytes and a literal area that a *data fork* and an *attribute fork*
//! share (after XFS). Stored 32 to a block, trimmed: the unused end of each literal area is not
//! written.
//!
//! ```text
//! inode block := header (48) | lengths (32 × 2) | 32 trimmed inodes
//! inode       := core (112) | data fork | attribute fork
//! ```

use crate::bytes::{Put, Reader};
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Addr, Error, Ino, Result, RootId};

/// `SIB1`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SIB1");
/// Bytes of a block's header: magic 4, inode size 2, root 2, volume 8, number 8, address 8, epoch
/// 8, reserved 8.
pub const BLOCK_HEADER: usize = 48;
/// Where the address stands in it.
const BLOCK_ADDR: usize = 24;
/// Bytes of an inode's core.
pub const CORE: usize = 112;

/// Flag of a file made without a name that may still be given its first one.
pub const FLAG_TMPFILE: u32 = 1;
/// Flag of an inode with an access control list: its mode alone does not say who may do what.
pub const FLAG_ACL: u32 = 2;
/// Flag of a directory with a default access control list, which what is made in it inherits.
pub const FLAG_DEFAULT_ACL: u32 = 4;
/// Flag of a file with capabilities, which the next change of its contents takes away.
pub const FLAG_CAPABILITY: u32 = 8;
/// [`Core::flags`]: extents beyond its size are still being removed; it has a slot in the orphan
/// table until they are gone, and nothing may make it longer before.
pub const FLAG_CUT: u32 = 16;

/// What a fork holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Form {
    /// Nothing.
    #[default]
    Empty = 0,
    /// The contents themselves: file bytes, symlink target, or attributes.
    Inline = 1,
    /// Extent records (data fork only).
    Extents = 2,
    /// The contents are in the `extents` or `attrs` tree.
    Tree = 3,
}

impl Form {
    fn from_u8(n: u8) -> Option<Form> {
        Some(match n {
            0 => Form::Empty,
            1 => Form::Inline,
            2 => Form::Extents,
            3 => Form::Tree,
            _ => return None,
        })
    }
}

/// A point in time: seconds since 1970 and nanoseconds. 12 bytes on disk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Stamp {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds.
    pub nsec: u32,
}

impl Stamp {
    fn decode(r: &mut Reader<'_>) -> Option<Stamp> {
        Some(Stamp { sec: r.i64()?, nsec: r.u32()? })
    }
    /// Appends the 12 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_i64(self.sec);
        out.put_u32(self.nsec);
    }
}

/// The fixed part of an inode. 112 bytes on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Core {
    /// Type and permissions; 0: the slot is free.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Generation of the number; kept while the slot is free.
    pub generation: u32,
    /// Flags: [`FLAG_TMPFILE`] and those after it.
    pub flags: u32,
    /// Bytes; for a directory, its number of entries.
    pub size: u64,
    /// Bytes of data extents that are this file's.
    pub bytes: u64,
    /// Directory: its parent, relative to the inode's root on disk. Device file: the device number.
    pub parent_or_rdev: u64,
    /// Last access.
    pub atime: Stamp,
    /// Last change of contents.
    pub mtime: Stamp,
    /// Last change of the inode.
    pub ctime: Stamp,
    /// Birth.
    pub btime: Stamp,
    /// LSN before the last change.
    pub lsn: u64,
    /// What the data fork holds.
    pub data_form: Form,
    /// What the attribute fork holds.
    pub attr_form: Form,
    /// Bytes of the data fork: the fork offset.
    pub data_len: u16,
    /// Bytes of the attribute fork.
    pub attr_len: u16,
}

impl Core {
    /// Whether the slot holds an inode.
    #[inline]
    pub fn in_use(&self) -> bool {
        self.mode != 0
    }
    /// Type bits, as in `DT_*`.
    #[inline]
    pub fn kind(&self) -> u8 {
        ((self.mode >> 12) & 15) as u8
    }
    /// Whether it is a directory.
    #[inline]
    pub fn is_dir(&self) -> bool {
        self.kind() == 4
    }
    /// Whether it is a regular file.
    #[inline]
    pub fn is_file(&self) -> bool {
        self.kind() == 8
    }
    /// The stored `parent_or_rdev` from that in memory, or the other way round, for an inode of
    /// `root`.
    fn translated(&self, root: RootId) -> u64 {
        match self.is_dir() {
            true => Ino(self.parent_or_rdev).relative_to(root),
            false => self.parent_or_rdev,
        }
    }
    /// Appends the 112 bytes, for an inode of `root`.
    pub fn encode(&self, root: RootId, out: &mut Vec<u8>) {
        for v in [self.mode, self.nlink, self.uid, self.gid, self.generation, self.flags] {
            out.put_u32(v);
        }
        for v in [self.size, self.bytes, self.translated(root)] {
            out.put_u64(v);
        }
        for stamp in [self.atime, self.mtime, self.ctime, self.btime] {
            stamp.encode(out);
        }
        out.put_u64(self.lsn);
        out.put_u8(self.data_form as u8);
        out.put_u8(self.attr_form as u8);
        out.put_u16(self.data_len);
        out.put_u16(self.attr_len);
        out.put_u16(0);
    }
    /// Reads the 112 bytes of an inode of `root`.
    pub fn decode(root: RootId, r: &mut Reader<'_>) -> Option<Core> {
        let mut core = Core {
            mode: r.u32()?,
            nlink: r.u32()?,
            uid: r.u32()?,
            gid: r.u32()?,
            generation: r.u32()?,
            flags: r.u32()?,
            size: r.u64()?,
            bytes: r.u64()?,
            parent_or_rdev: r.u64()?,
            atime: Stamp::decode(r)?,
            mtime: Stamp::decode(r)?,
            ctime: Stamp::decode(r)?,
            btime: Stamp::decode(r)?,
            lsn: r.u64()?,
            data_form: Form::from_u8(r.u8()?)?,
            attr_form: Form::from_u8(r.u8()?)?,
            data_len: r.u16()?,
            attr_len: r.u16()?,
        };
        let _reserved = r.u16()?;
        core.parent_or_rdev = core.translated(root);
        Some(core)
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

/// Bytes of a slot that has been used and is free: the generation.
pub const FREED: usize = 4;

impl Inode {
    /// A free slot whose last user had this generation.
    pub fn free(generation: u32) -> Inode {
        Inode { core: Core { generation, ..Core::default() }, ..Inode::default() }
    }
    /// Bytes of the trimmed inode.
    pub fn encoded_len(&self) -> usize {
        match (self.core.in_use(), self.core.generation) {
            (true, _) => CORE + self.data.len() + self.attr.len(),
            (false, 0) => 0,
            (false, _) => FREED,
        }
    }
    /// Appends the trimmed inode: nothing for a slot that was never used, the generation alone for
    /// one that is free. The inode is one of `root`.
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
    /// Reads a trimmed inode of `root`, of a volume with this inode size.
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
    /// For logs and fsck.
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

/// Where an inode block stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockId {
    /// Low half of the volume id.
    pub volume: u64,
    /// First inode of the block; its index is `number × 32`. Its root is the one through which the
    /// block is reached, and into which it is written.
    pub first: Ino,
    /// Inode size of the volume.
    pub inode_size: u32,
}

impl BlockId {
    /// Number of the block in its root.
    pub fn number(&self) -> u64 {
        self.first.index() / INODES_PER_BLOCK as u64
    }
}

/// Appends a block of trimmed inodes to `out`: `slot` appends each of them. Where it belongs is
/// entered later, by [`stamp_block`].
pub fn encode_block(
    id: BlockId,
    epoch: u64,
    out: &mut Vec<u8>,
    mut slot: impl FnMut(usize, &mut Vec<u8>),
) {
    out.put_u32(MAGIC);
    out.put_u16(id.inode_size as u16);
    out.put_u16(id.first.root().0);
    out.put_u64(id.volume);
    out.put_u64(id.number());
    out.put_u64(0);
    out.put_u64(epoch);
    out.put_u64(0);
    let lens = out.len();
    out.resize(lens + INODES_PER_BLOCK * 2, 0);
    for i in 0..INODES_PER_BLOCK {
        let start = out.len();
        slot(i, out);
        let len = (out.len() - start) as u16;
        out[lens + 2 * i..lens + 2 * i + 2].copy_from_slice(&len.to_le_bytes());
    }
}

/// Enters the address in a block that was encoded without it.
pub fn stamp_block(block: &mut [u8], addr: Addr) {
    block[BLOCK_ADDR..BLOCK_ADDR + 8].copy_from_slice(&addr.0.to_le_bytes());
}

/// Length on disk of a block whose trimmed inodes have these lengths in total.
fn block_len(inodes: usize) -> usize {
    BLOCK_HEADER + INODES_PER_BLOCK * 2 + inodes
}

/// What a block's header says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockPlace {
    /// Whose it is.
    pub id: BlockId,
    /// Where it was written.
    pub addr: Addr,
    /// Epoch in which it was written.
    pub epoch: u64,
    /// Its length.
    pub len: usize,
}

impl BlockPlace {
    /// Reads the header and the lengths of a block that may begin here: for looking for blocks that
    /// nothing points to. Nothing is verified but the magic.
    pub fn decode(raw: &[u8]) -> Option<BlockPlace> {
        let mut r = Reader::new(raw);
        if r.u32()? != MAGIC {
            return None;
        }
        let (inode_size, root, volume) = (u32::from(r.u16()?), RootId(r.u16()?), r.u64()?);
        let (number, addr, epoch) = (r.u64()?, Addr(r.u64()?), r.u64()?);
        let first = number.checked_mul(INODES_PER_BLOCK as u64).filter(|index| index >> 48 == 0)?;
        let _reserved = r.u64()?;
        let mut inodes = 0;
        for _ in 0..INODES_PER_BLOCK {
            inodes += usize::from(r.u16()?);
        }
        let id = BlockId { volume, first: Ino::new(root, first), inode_size };
        Some(BlockPlace { id, addr, epoch, len: block_len(inodes) })
    }
}

/// Decodes a block whose checksum has been verified. Any root may have written it.
pub fn decode_block(raw: &[u8], id: BlockId, addr: Addr) -> Result<Vec<Inode>> {
    let bad = |rule: String| {
        Error::corrupt(
            format!("inode block {} of root {}", id.number(), id.first.root().0),
            Some(addr.0),
            rule,
        )
    };
    let mut r = Reader::new(raw);
    let head = || -> Option<(u32, u16, u16, u64, u64, u64)> {
        let mut r = Reader::new(raw);
        Some((r.u32()?, r.u16()?, r.u16()?, r.u64()?, r.u64()?, r.u64()?))
    };
    let (magic, size, writer, volume, number, at) = head().ok_or_else(|| bad("length".into()))?;
    if magic != MAGIC || u32::from(size) != id.inode_size {
        return Err(bad("magic or inode size".into()));
    }
    if volume != id.volume || number != id.number() || at != addr.0 {
        return Err(bad(format!("written as block {number} of root {writer} for byte {at}")));
    }
    let lens = r.take(BLOCK_HEADER).and_then(|_| r.take(INODES_PER_BLOCK * 2));
    let mut lens = Reader::new(lens.ok_or_else(|| bad("length".into()))?);
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
        // The top of a root names root 0.
        assert_eq!(encoded(a, core(DIRECTORY, 1))[40..48], (2u64 << 48 | 1).to_le_bytes());
    }

    #[test]
    fn a_block_is_refused_for_its_volume_and_place_but_not_for_its_root() {
        let (a, b, addr) = (RootId(2), RootId(9), Addr(8192));
        let id = |root| BlockId { volume: 7, first: Ino::new(root, 64), inode_size: 512 };
        let parent = |root| Ino::new(root, 5).0;
        let mut raw = Vec::new();
        encode_block(id(a), 1, &mut raw, |_, out| {
            Inode { core: core(DIRECTORY, parent(a)), ..Inode::default() }.encode(a, out);
        });
        stamp_block(&mut raw, addr);
        for root in [a, b] {
            let inodes = decode_block(&raw, id(root), addr).unwrap();
            assert!(inodes.iter().all(|inode| inode.core.parent_or_rdev == parent(root)));
        }
        assert_eq!(BlockPlace::decode(&raw).map(|place| place.id), Some(id(a)));
        assert!(decode_block(&raw, BlockId { volume: 8, ..id(a) }, addr).is_err());
        assert!(decode_block(&raw, BlockId { first: Ino::new(a, 96), ..id(a) }, addr).is_err());
        assert!(decode_block(&raw, BlockId { inode_size: 256, ..id(a) }, addr).is_err());
        assert!(decode_block(&raw, id(a), Addr(16384)).is_err());
    }
}
