//! Orphan table blocks: numbers of unlinked but open inodes, so that a crash cannot leak them
//! (after ext4's orphan file: blocks of slots with magic and checksum). The pointers to the blocks
//! are in lists, to which the checkpoint points; this keeps its record short.

use crate::Ptr;
use crate::bytes::{Put, Reader, seal, u64_at};
use crate::declare::layout;
use shoal_base::checksum::checksum_of_body;
use shoal_base::invariant;
use shoal_base::{Addr, Error, Ino, Result};

/// `SOR1`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SOR1");
/// Bytes of a block.
pub const BLOCK_SIZE: usize = 4096;

layout! {
    /// Header of a block of the orphan table.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct BlockHeader: "orphan-block", 24 of 4096,
    "Header of an orphan block; slots of 8 bytes (inode or 0) follow, the last 8 bytes are the \
     checksum." {
        0 magic: u32 = MAGIC, "`SOR1`";
        4 shard: u32, "number of the block";
        8 volume: u64, "first half of the volume id";
        16 reserved[8], "zero";
    }
}

/// Bytes before the first slot.
pub const HEADER: usize = BlockHeader::SIZE;
/// Slots of a block.
pub const SLOTS: usize = (BLOCK_SIZE - HEADER - 8) / 8;

/// `SOL2`.
pub const LIST_MAGIC: u32 = u32::from_le_bytes(*b"SOL2");

layout! {
    /// Header of a list of blocks.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct ListHeader: "orphan-list", 16 of varying,
    "Header of a list of at most 510 pointers to orphan blocks, which follow." {
        0 magic: u32 = LIST_MAGIC, "`SOL2`";
        4 count: u32, "number of pointers";
        8 volume: u64, "first half of the volume id";
    }
}

/// Bytes of a list before the first pointer.
pub const LIST_HEADER: usize = ListHeader::SIZE;
/// Largest number of pointers in a list, which then has about 16 KiB.
pub const LIST_SLOTS: usize = 510;
/// Largest number of lists of a checkpoint.
pub const LISTS_MAX: usize = 1024;
/// Largest number of blocks of a volume's orphan table.
pub const BLOCKS_MAX: usize = LISTS_MAX * LIST_SLOTS;

/// Encodes a list of at most [`LIST_SLOTS`] pointers to blocks.
pub fn encode_list(volume: u64, blocks: &[Ptr]) -> Vec<u8> {
    invariant!(blocks.len() <= LIST_SLOTS, "{} orphan blocks in one list", blocks.len());
    let mut out = Vec::with_capacity(LIST_HEADER + blocks.len() * Ptr::SIZE);
    ListHeader { count: blocks.len() as u32, volume }.append(&mut out);
    blocks.iter().for_each(|block| block.append(&mut out));
    out
}

/// Decodes a list. The caller has verified the checksum against the pointer.
pub fn decode_list(raw: &[u8], addr: Addr, volume: u64) -> Result<Vec<Ptr>> {
    let bad = |rule: &str| Error::corrupt("orphan list", Some(addr.0), rule);
    let mut r = Reader::new(raw);
    let head: ListHeader = match ListHeader::read(raw) {
        Ok(head) => head,
        Err(field) => return Err(bad(field)),
    };
    let _head = r.take(LIST_HEADER);
    if head.volume != volume {
        return Err(bad("another volume's id"));
    }
    if head.count as usize > LIST_SLOTS || r.rest().len() != head.count as usize * Ptr::SIZE {
        return Err(bad("number of pointers"));
    }
    let blocks = (0..head.count).map(|_| r.field());
    blocks.collect::<Option<_>>().ok_or_else(|| bad("a pointer"))
}

/// Encodes a block of at most [`SLOTS`] inodes; empty slots are 0.
pub fn encode(volume: u64, shard: u32, inodes: &[Ino]) -> Vec<u8> {
    invariant!(inodes.len() <= SLOTS, "{} orphans in one block", inodes.len());
    let mut out = Vec::with_capacity(BLOCK_SIZE);
    BlockHeader { shard, volume }.append(&mut out);
    for ino in inodes {
        out.put_u64(ino.0);
    }
    out.resize(BLOCK_SIZE, 0);
    seal(&mut out);
    out
}

/// Decodes a block. Returns its shard and the inodes in its used slots.
pub fn decode(raw: &[u8], addr: Addr, volume: u64) -> Result<(u32, Vec<Ino>)> {
    let bad = |rule: &str| Error::corrupt("orphan block", Some(addr.0), rule);
    if raw.len() != BLOCK_SIZE {
        return Err(bad("length"));
    }
    if u64_at(raw, BLOCK_SIZE - 8) != checksum_of_body(raw) {
        return Err(bad("checksum"));
    }
    let head = match BlockHeader::read(raw) {
        Ok(head) if head.volume == volume => head,
        Ok(_) => return Err(bad("another volume's id")),
        Err(field) => return Err(bad(field)),
    };
    let slots = (0..SLOTS).map(|i| u64_at(raw, HEADER + i * 8));
    Ok((head.shard, slots.filter(|ino| *ino != 0).map(Ino).collect()))
}
