//! The table on the device. A checkpoint writes the slots in use, block by block, each with its
//! shard's number; empty blocks are not written. Between checkpoints the journal has the changes.

use super::{OrphanSlot, Orphans};
use crate::read::read_object;
use shoal_base::invariant;
use shoal_base::shard::SHARDS;
use shoal_base::{Error, Ino, Result};
use shoal_device::Device;
use shoal_format::orphan::{self, SLOTS};
use shoal_format::usage::SegKind;
use shoal_format::{Geometry, Ptr};
use shoal_space::Space;

/// The slots in use, as written by a checkpoint: pairs of shard and inodes, at most one block each.
pub(crate) type Slots = Vec<(u32, Vec<Ino>)>;

/// Returns whether a pointer may lead to an object of metadata.
pub(crate) fn may_be_metadata(geometry: &Geometry, space: &Space, ptr: Ptr) -> bool {
    geometry.contains(ptr.addr, u64::from(ptr.len))
        && space.kind(geometry.segment_of(ptr.addr)) == Some(SegKind::Meta)
}

/// Returns whether a pointer may lead to an orphan block.
pub(crate) fn is_block(ptr: Ptr) -> bool {
    ptr.is_plain() && ptr.len as usize == orphan::BLOCK_SIZE
}

/// Writes the blocks and their lists with `place`. Returns the lists and the blocks.
pub(crate) fn write(
    volume: u64,
    slots: &Slots,
    place: &mut dyn FnMut(&[u8]) -> Result<Ptr>,
) -> Result<(Vec<Ptr>, Vec<Ptr>)> {
    let block = |(shard, slots): &(u32, Vec<Ino>)| place(&orphan::encode(volume, *shard, slots));
    let blocks: Vec<Ptr> = slots.iter().map(block).collect::<Result<_>>()?;
    let lists = blocks.chunks(orphan::LIST_SLOTS);
    let lists = lists.map(|list| place(&orphan::encode_list(volume, list)));
    Ok((lists.collect::<Result<_>>()?, blocks))
}

impl Orphans {
    /// Returns the current slots, and frees the memory of empty blocks. Must be called under
    /// quiesce.
    pub(crate) fn freeze(&self) -> Slots {
        self.shrink();
        let mut slots: Slots = Vec::new();
        let mut last = u64::MAX;
        self.for_each(&mut |block, _, ino| {
            if std::mem::replace(&mut last, block) != block {
                slots.push(((block % SHARDS as u64) as u32, Vec::new()));
            }
            if let Some((_, inodes)) = slots.last_mut() {
                invariant!(inodes.len() < SLOTS, "an orphan block over its size");
                inodes.push(ino);
            }
        });
        slots
    }

    /// Reads the blocks of a checkpoint. A damaged block is left out and described in the damage,
    /// after that of the lists: the space of its inodes stays in use until fsck frees it; no
    /// reachable file is affected.
    pub(crate) fn read(
        device: &dyn Device,
        geometry: &Geometry,
        volume: u64,
        blocks: &[Ptr],
        lists_damage: Vec<String>,
    ) -> Result<Orphans> {
        let mut orphans = Orphans { damage: lists_damage, ..Orphans::default() };
        for ptr in blocks {
            match orphans.read_block(device, geometry, volume, *ptr) {
                Ok(()) => {}
                Err(e @ (Error::Corrupt(_) | Error::Device(_))) => {
                    orphans.damage.push(e.to_string());
                }
                Err(e) => return Err(e),
            }
        }
        Ok(orphans)
    }

    /// Adds the slots of one block.
    pub(crate) fn read_block(
        &self,
        device: &dyn Device,
        geometry: &Geometry,
        volume: u64,
        ptr: Ptr,
    ) -> Result<()> {
        let raw = read_object(device, geometry, ptr, "orphan block")?;
        let (shard, inodes) = orphan::decode(&raw, ptr.addr, volume)?;
        for ino in inodes {
            let _ = self.take_in(shard as usize % SHARDS, ino)?;
        }
        Ok(())
    }

    /// For replay, which knows inodes only by number: the slot of each inode.
    pub(crate) fn by_ino(&self) -> std::collections::HashMap<Ino, OrphanSlot> {
        self.all().into_iter().collect()
    }
}
