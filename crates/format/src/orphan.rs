//! Orphan table blocks: inode numbers of files without a name that are still in use, so that a
//! crash cannot leak them (after ext4's orphan file: blocks of slots with magic and checksum).

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
