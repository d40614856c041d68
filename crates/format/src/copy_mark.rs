//! The mark of an unfinished copy: the block that says how much of another volume is on a device
//! that is not a volume yet, so that the copy can go on after an interruption.
//!
//! It is in segment 0, and valid only while there is no superblock: a copy that ends removes it
//! first. It has two copies, each in a sector of its own, which are written alternately as those of
//! the superblock are; the newest valid copy is used. No pointer leads to them, and an older Shoal
//! does not read them.

use crate::Geometry;
use crate::bytes::{seal, u64_at};
use crate::declare::layout;
use shoal_base::checksum::checksum_of_body;
use shoal_base::{Epoch, limits};

/// Byte addresses of the two copies.
pub const COPIES: [u64; 2] = [640 << 10, 704 << 10];
/// Bytes of a copy.
pub const SIZE: usize = limits::SECTOR as usize;
/// `SHOALCPY` at its start.
pub const MAGIC: [u8; 8] = *b"SHOALCPY";
/// Version of the structure.
pub const VERSION: u32 = 1;

layout! {
    /// A mark. 4096 bytes on disk.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct CopyMark: "copy-mark", 80 of 4096,
    "How much of a volume has been copied to a device, at byte 655,360 and at byte 720,896, while \
     there is no superblock; the last 8 bytes are the checksum. Zero when the copy is complete." {
        0 magic: [u8; 8] = MAGIC, "`SHOALCPY`";
        8 version: u32 = VERSION, "1";
        12 done: u32, "segments with lower numbers are copied; others may be partly";
        16 volume: [u8; 16], "volume id of the source";
        32 stamp: [u8; 16], "stamp of the source when the copy began; zero: it had none";
        48 epoch: u64,
           "epoch of that stamp: what was written in later ones must be copied again";
        56 geometry: Geometry, "layout parameters of the source";
        72 sequence: u64, "incremented at every write; its lowest bit selects the copy";
    }
}

impl CopyMark {
    /// Returns the address of this copy.
    pub fn addr(&self) -> u64 {
        COPIES[(self.sequence % COPIES.len() as u64) as usize]
    }

    /// Encodes the block.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SIZE);
        self.append(&mut out);
        out.resize(SIZE, 0);
        seal(&mut out);
        out
    }

    /// Decodes and verifies the block. `None`: there is no valid mark.
    pub fn decode(raw: &[u8]) -> Option<CopyMark> {
        let is_whole = raw.len() == SIZE && raw.starts_with(&MAGIC);
        if !is_whole || u64_at(raw, SIZE - 8) != checksum_of_body(raw) {
            return None;
        }
        let mark = CopyMark::read(raw).ok()?;
        let counts: [Epoch; 2] = [mark.epoch, mark.sequence];
        counts.iter().all(|count| *count <= limits::COUNT_MAX).then_some(mark)
    }
}
