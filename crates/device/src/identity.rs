//! The id of a volume, read without opening it.

use rustix::io::pread;
use shoal_format::superblock::{COPIES, Superblock};
use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Bytes of a superblock with its padding.
const BYTES: usize = 4096;

/// Returns the id of the volume in a file or on a device; `None` if there is none, or none that can
/// be read. Takes no lock: the file may be in use, and what it says may be old.
pub fn volume_id(path: &Path) -> Option<[u8; 16]> {
    let kind = std::fs::metadata(path).ok()?.file_type();
    // Others might never answer.
    (kind.is_file() || kind.is_block_device()).then_some(())?;
    let file = File::open(path).ok()?;
    let copy = |addr: &u64| {
        let mut raw = vec![0; BYTES];
        let read = pread(&file, &mut raw[..], *addr).ok()?;
        (read == raw.len()).then_some(())?;
        Superblock::decode(&raw, *addr).ok().flatten()
    };
    COPIES.iter().filter_map(copy).max_by_key(|sb| sb.sequence).map(|sb| sb.id)
}
