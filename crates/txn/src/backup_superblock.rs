//! Backup superblocks after the records of checkpoints: finding a volume if both copies of the
//! superblock are lost.

use crate::read::{read_around, read_checkpoint};
use shoal_base::limits::ALIGN;
use shoal_base::{Error, Result};
use shoal_device::Device;
use shoal_format::Ptr;
use shoal_format::superblock::{self, Superblock};

/// Bytes of the device read at once.
const PIECE: usize = 4 << 20;

/// Reads the backup superblock after the record of a checkpoint. The inner error says what is wrong
/// with it.
pub fn backup_superblock(device: &dyn Device, checkpoint: Ptr) -> Result<Result<Superblock>> {
    let addr = superblock::backup_superblock_at(checkpoint);
    let mut raw = [0; superblock::SIZE];
    let bad = |rule: &str| Error::corrupt("backup superblock", Some(addr), rule);
    let read = device.read_at(&mut raw, addr).and_then(|()| {
        let decoded = Superblock::decode(&raw, addr)?.ok_or_else(|| bad("magic"))?;
        match decoded.checkpoint == checkpoint {
            true => Ok(decoded),
            false => Err(bad("another checkpoint's")),
        }
    });
    match read {
        Err(e) if !e.is_damage() => Err(e),
        read => Ok(read),
    }
}

/// Yields a superblock that points to its checkpoint's record, and one that points to the backup
/// copy of the record.
pub(crate) fn with_either_record(sb: Superblock) -> impl Iterator<Item = Superblock> {
    let backup = superblock::backup_copy_of(sb.checkpoint);
    std::iter::once(sb).chain(backup.map(|checkpoint| Superblock { checkpoint, ..sb }))
}

/// Searches the whole device for backup superblocks whose checkpoints are readable. Returns those
/// of the volume made last, newest first, each as the superblock of a volume that was not closed:
/// the lost ones may have been written since. `progress` gets the bytes read and the total.
pub fn find_superblocks(
    device: &dyn Device,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Superblock>> {
    let capacity = device.capacity();
    let mut raw = vec![0; PIECE + superblock::SIZE];
    let mut found: Vec<Superblock> = Vec::new();
    for start in (0..capacity).step_by(PIECE) {
        progress(start, capacity);
        let len = (raw.len() as u64).min(capacity - start) as usize;
        read_around(device, &mut raw[..len], start)?;
        let places = (0..len.saturating_sub(superblock::SIZE - 1).min(PIECE)).step_by(ALIGN);
        for at in places.filter(|at| raw[*at..].starts_with(&superblock::MAGIC)) {
            let addr = start + at as u64;
            // One of a newer format cannot be judged; a damaged one does not count.
            let Ok(Some(sb)) = Superblock::decode(&raw[at..at + superblock::SIZE], addr) else {
                continue;
            };
            if superblock::backup_superblock_at(sb.checkpoint) == addr
                && sb.geometry.bytes() <= capacity
            {
                found.push(sb);
            }
        }
    }
    // A volume made earlier on the same device has left its own.
    let newest = found.iter().max_by_key(|sb| (sb.created, sb.sequence)).map(|sb| sb.id);
    found.retain(|sb| Some(sb.id) == newest);
    found.sort_by_key(|sb| std::cmp::Reverse(sb.sequence));
    let mut whole = Vec::new();
    for sb in found {
        for by_record in with_either_record(sb) {
            match read_checkpoint(device, &by_record) {
                Ok(_) => {
                    whole.push(reopened(sb));
                    break;
                }
                Err(e) if e.is_damage() => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(whole)
}

/// The superblock that may have followed. After a checkpoint that closed the volume, it may have
/// been opened again; its journal then has the next incarnation.
fn reopened(sb: Superblock) -> Superblock {
    Superblock { incarnation: sb.incarnation.wrapping_add(u32::from(sb.clean)), clean: false, ..sb }
}
