//! Orphan table blocks: inode numbers of files without a name that are still in use, so that a
//! crash cannot leak them (after ext4's orphan file: blocks of slots with magic and checksum). The
//! pointers to the blocks are in lists, which the checkpoint names: its record stays short.

use crate::Ptr;
use crate::bytes::{Put, Reader, u64_at};
use shoal_base::checksum::checksum_of_body;
use shoal_base::invariant;
use shoal_base::{Addr, Error, Ino, Result};

/// `SOR1`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SOR1");
/// Bytes of a block.
pub const BLOCK_SIZE: usize = 4096;
/// Bytes before the first slot: magic 4, shard 4, volume 8, reserved 8.
pub const HEADER: usize = 24;
/// Slots of a block.
pub const SLOTS: usize = (BLOCK_SIZE - HEADER - 8) / 8;

/// `SOL1`.
pub const LIST_MAGIC: u32 = u32::from_le_bytes(*b"SOL1");
/// Bytes of a list before the first pointer: magic 4, count 4, volume 8.
pub const LIST_HEADER: usize = 16;
/// Pointers of a list, at most: about 16 KiB.
pub const LIST_SLOTS: usize = 680;
/// Lists that a checkpoint can name.
pub const LISTS_MAX: usize = 1024;
/// Blocks of the orphan table of a volume, at most.
pub const BLOCKS_MAX: usize = LISTS_MAX * LIST_SLOTS;

/// Encodes a list of at most [`LIST_SLOTS`] pointers to blocks.
pub fn encode_list(volume: u64, blocks: &[Ptr]) -> Vec<u8> {
    invariant!(blocks.len() <= LIST_SLOTS, "{} orphan blocks in one list", blocks.len());
    let mut out = Vec::with_capacity(LIST_HEADER + blocks.len() * Ptr::SIZE);
    out.put_u32(LIST_MAGIC);
    out.put_u32(blocks.len() as u32);
    out.put_u64(volume);
    blocks.iter().for_each(|block| block.encode(&mut out));
    out
}

/// Decodes a list; the checksum has been verified against the pointer.
pub fn decode_list(raw: &[u8], addr: Addr, volume: u64) -> Result<Vec<Ptr>> {
    let fields = || {
        let mut r = Reader::new(raw);
        let known = r.u32()? == LIST_MAGIC;
        let (count, of) = (r.u32()? as usize, r.u64()?);
        let mut blocks = Vec::new();
        for _ in 0..count.min(LIST_SLOTS + 1) {
            blocks.push(Ptr::decode(&mut r)?);
        }
        (known && of == volume && count <= LIST_SLOTS && r.is_empty()).then_some(blocks)
    };
    let bad = || Error::corrupt("orphan list", Some(addr.0), "magic, volume or length");
    fields().ok_or_else(bad)
}

/// Encodes a block of at most [`SLOTS`] inodes; empty slots are 0.
pub fn encode(volume: u64, shard: u32, inodes: &[Ino]) -> Vec<u8> {
    invariant!(inodes.len() <= SLOTS, "{} orphans in one block", inodes.len());
    let mut out = Vec::with_capacity(BLOCK_SIZE);
    out.put_u32(MAGIC);
    out.put_u32(shard);
    out.put_u64(volume);
    out.put_u64(0);
    for ino in inodes {
        out.put_u64(ino.0);
    }
    out.resize(BLOCK_SIZE, 0);
    let sum = checksum_of_body(&out);
    out[BLOCK_SIZE - 8..].copy_from_slice(&sum.to_le_bytes());
    out
}

/// Decodes a block: its shard, and the inodes in its used slots.
pub fn decode(raw: &[u8], addr: Addr, volume: u64) -> Result<(u32, Vec<Ino>)> {
    let bad = |rule: &str| Error::corrupt("orphan block", Some(addr.0), rule);
    if raw.len() != BLOCK_SIZE {
        return Err(bad("length"));
    }
    if u64_at(raw, BLOCK_SIZE - 8) != checksum_of_body(raw) {
        return Err(bad("checksum"));
    }
    let mut r = Reader::new(raw);
    if r.u32() != Some(MAGIC) {
        return Err(bad("magic"));
    }
    let shard = r.u32().unwrap_or_default();
    if r.u64() != Some(volume) {
        return Err(bad("another volume's id"));
    }
    let slots = (0..SLOTS).map(|i| u64_at(raw, HEADER + i * 8));
    Ok((shard, slots.filter(|ino| *ino != 0).map(Ino).collect()))
}
