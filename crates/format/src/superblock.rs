//! The superblock: two copies, written alternately (copy = sequence mod 2). The newest valid copy
//! is used. It is the only structure that is overwritten in place; writing it publishes a
//! checkpoint. A third copy, the backup superblock for repair, follows each checkpoint record
//! ([`backup_superblock_at`]).

use crate::bytes::{seal, u32_at, u64_at};
use crate::declare::layout;
use crate::features::{self, VERSION};
use crate::{Compression, Geometry, Label, Ptr};
use shoal_base::checksum::checksum_of_body;
use shoal_base::{Addr, Code, Error, Result, limits};

/// Byte addresses of the two copies, 64 KiB apart so that no bad sector or erase block contains
/// both.
pub const COPIES: [u64; 2] = [0, 65_536];
/// Returns the address of the backup superblock that a checkpoint writes after its own record. An
/// open never reads it; a repair that finds neither copy searches for it. It points to the record
/// just before it, which distinguishes it from a superblock of another volume stored in a file of
/// this one. For a pointer whose end overflows, which only damage causes, the result is the largest
/// address, where nothing is stored.
pub fn backup_superblock_at(checkpoint: Ptr) -> u64 {
    let end = checkpoint.addr.0.saturating_add(u64::from(checkpoint.len));
    end.checked_next_multiple_of(limits::ALIGN as u64).unwrap_or(u64::MAX)
}

/// Returns the pointer to the backup copy of a checkpoint's record, for repair: after the backup
/// superblock and a gap, so that no bad page contains both. `None` if the record is longer than 96
/// KiB.
pub fn backup_copy_of(checkpoint: Ptr) -> Option<Ptr> {
    let at = backup_superblock_at(checkpoint).saturating_add((SIZE + BACKUP_GAP) as u64);
    (checkpoint.len <= BACKUP_MAX).then_some(Ptr { addr: Addr(at), ..checkpoint })
}

/// Bytes between the backup superblock and the backup copy of the record.
pub const BACKUP_GAP: usize = 4096;
/// Longest record that has a backup copy, in bytes.
pub(crate) const BACKUP_MAX: u32 = 96 << 10;
/// Bytes of the longest record with its backup superblock, gap and backup copy.
pub(crate) const EXTENT_MAX: usize = 2 * BACKUP_MAX as usize + SIZE + BACKUP_GAP;

/// `SHOALFS1` at the start of each copy.
pub const MAGIC: [u8; 8] = *b"SHOALFS1";
/// Bytes of a copy; the rest of its block is zero.
pub const SIZE: usize = Superblock::SIZE;
/// Bytes of a copy's block: a sector that contains nothing else.
pub const BLOCK: usize = limits::SECTOR as usize;

layout! {
    /// Contents of a superblock copy.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Superblock: "superblock", 256 of 256,
    "Two copies, at byte 0 and byte 65,536; the rest of each 4096-byte block is zero. A backup \
     superblock, for repair, follows the record of each checkpoint, at the next multiple of 8." {
        0 magic: [u8; 8] = MAGIC, "`SHOALFS1`";
        8 version: u32 = VERSION, "format version ([features](#versions-and-features))";
        12 clean: bool, "1: closed cleanly, nothing to replay";
        13 reserved[3], "zero";
        16 id: [u8; 16],
            "volume id (UUID); its first half is stamped everywhere and seeds name hashes";
        32 geometry: Geometry, "layout parameters of the volume";
        48 compat: u64, "compatible features";
        56 ro_compat: u64, "read-only compatible features";
        64 incompat: u64, "incompatible features";
        72 sequence: u64, "incremented at every write; its lowest bit selects the copy";
        80 incarnation: u32,
           "incremented at every writable open: journal batches of older ones are not replayed";
        84 compression: Compression, "codec of new objects";
        88 checkpoint: Ptr, "pointer to the newest checkpoint";
        120 created: i64, "seconds since 1970 at mkfs";
        128 label: Label, "label for people, UTF-8, padded with zeros; all zeros: none";
        192 rest[56], "zero";
        248 checksum[8], "XXH3-64 of all before";
    }
}

const AT_VERSION: usize = Superblock::TABLE.at("version");
const AT_INCOMPAT: usize = Superblock::TABLE.at("incompat");

impl Superblock {
    /// The low 64 bits of the id, which are stored in journal batches and nodes and seed the name
    /// hashes.
    pub fn volume(&self) -> u64 {
        u64_at(&self.id, 0)
    }

    /// Encodes it, with the checksum.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.store();
        seal(&mut out);
        out.to_vec()
    }

    /// Decodes and verifies one copy. `Ok(None)` if there is no superblock (no magic).
    pub fn decode(raw: &[u8], addr: u64) -> Result<Option<Superblock>> {
        let bad = |rule: String| Err(Error::corrupt("superblock", Some(addr), rule));
        if raw.len() < SIZE || raw[..8] != MAGIC {
            return Ok(None);
        }
        let raw = &raw[..SIZE];
        let (sum, found) = (u64_at(raw, SIZE - 8), checksum_of_body(raw));
        if sum != found {
            return bad(format!("checksum is {found:#018x}, stored {sum:#018x}"));
        }
        if let Some(message) = features::refuse_version(u32_at(raw, AT_VERSION)) {
            return Err(Error::refused(Code::NotSupported, message));
        }
        // Before the fields, some of which only a newer Shoal may be able to decode.
        if let Some(message) = features::refuse_incompat(u64_at(raw, AT_INCOMPAT)) {
            return Err(Error::refused(Code::NotSupported, message));
        }
        let sb = match Superblock::read(raw) {
            Ok(sb) => sb,
            Err(field) => return bad(format!("field {field}")),
        };
        if let Some(rule) = sb.geometry_rule() {
            return bad(rule);
        }
        if !sb.compression.is_valid() || sb.compression.feature() & !sb.incompat != 0 {
            let (level, bits) = (sb.compression.level, sb.incompat);
            return bad(format!(
                "compression {} level {level}, incompatible features {bits:#x}",
                sb.compression.codec.name()
            ));
        }
        if sb.sequence > limits::COUNT_MAX {
            return bad(format!("sequence {}", sb.sequence));
        }
        Ok(Some(sb))
    }

    fn geometry_rule(&self) -> Option<String> {
        let g = &self.geometry;
        let segment_ok = g.segment_size.is_power_of_two()
            && (limits::SEGMENT_SIZE_MIN..=limits::SEGMENT_SIZE_MAX).contains(&g.segment_size);
        if !segment_ok {
            return Some(format!("segment size {}", g.segment_size));
        }
        if u64::from(g.segments) < limits::SEGMENTS_MIN || g.segments > limits::SEGMENTS_MAX {
            return Some(format!("{} segments", g.segments));
        }
        let inode = g.inode_size as usize;
        let inode_ok = inode.is_power_of_two()
            && (limits::INODE_SIZE_MIN..=limits::INODE_SIZE_MAX).contains(&inode);
        if !inode_ok {
            return Some(format!("inode size {inode}"));
        }
        let ptr = &self.checkpoint;
        if ptr.is_null() || !ptr.is_plain() || !g.contains(ptr.addr, u64::from(ptr.len)) {
            return Some(format!("checkpoint at {} of {} bytes", ptr.addr.0, ptr.len));
        }
        None
    }

    /// Returns whether this code supports all features that a writer must support.
    pub fn may_be_written(&self) -> bool {
        self.ro_compat & !features::RO_COMPAT_KNOWN == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserved_feature_is_refused_by_name() {
        let message = features::refuse_incompat(features::INCOMPAT_SEGMENTS_ONCE | 1 << 9);
        let message = message.expect("unknown features");
        assert!(message.contains("segments-once, incompat bit 9"), "{message}");
        assert_eq!(features::refuse_incompat(features::INCOMPAT_KNOWN), None);
    }

    #[test]
    fn copies_lie_behind_the_record_and_a_damaged_pointer_leads_to_none() {
        for addr in [u64::MAX, u64::MAX - 100, u64::MAX - 5000] {
            let ptr = Ptr::place(Addr(addr), 200);
            let twin = backup_copy_of(ptr).expect("a short record");
            assert!(backup_superblock_at(ptr) >= addr && twin.addr.0 >= addr);
        }
        let ptr = Ptr::place(Addr(1 << 20), 201);
        let twin = backup_copy_of(ptr).expect("a short record");
        assert_eq!(
            (backup_superblock_at(ptr), twin.addr.0),
            ((1 << 20) + 208, (1 << 20) + 208 + 256 + 4096)
        );
        assert_eq!(backup_copy_of(Ptr { len: BACKUP_MAX + 1, ..ptr }), None);
    }
}
