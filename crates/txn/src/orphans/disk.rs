//! The table on the device: a checkpoint writes the slots in use, block by block, each with its
//! shard's number; empty blocks are not written. Between checkpoints the journal carries the
//! changes.

use super::{OrphanSlot, Orphans};
use crate::open::read_object;
use crate::writer::MetaWriter;
use shoal_base::invariant;
use shoal_base::shard::SHARDS;
use shoal_base::{Error, Ino, Result};
use shoal_device::Device;
use shoal_format::orphan::{self, SLOTS};
use shoal_format::usage::SegKind;
use shoal_format::{Geometry, Ptr};
use shoal_space::Space;

/// The slots in use, as a checkpoint writes them: shard, inodes, at most a block full.
pub(crate) type Slots = Vec<(u32, Vec<Ino>)>;

/// Whether a pointer can be one to an object of metadata.
pub(crate) fn may_be_metadata(geometry: &Geometry, space: &Space, ptr: Ptr) -> bool {
    geometry.contains(ptr.addr, u64::from(ptr.len))
        && space.kind(geometry.segment_of(ptr.addr)) == Some(SegKind::Meta)
}

/// Whether a pointer can be one to an orphan block.
pub(crate) fn is_block(ptr: Ptr) -> bool {
    ptr.is_plain() && ptr.len as usize == orphan::BLOCK_SIZE
}

/// Writes the blocks and the lists of them; returns the lists and the blocks.
pub(crate) fn write(
    volume: u64,
    slots: &Slots,
    writer: &mut MetaWriter<'_>,
) -> Result<(Vec<Ptr>, Vec<Ptr>)> {
    let place =
        |(shard, slots): &(u32, Vec<Ino>)| writer.place(&orphan::encode(volume, *shard, slots));
    let blocks: Vec<Ptr> = slots.iter().map(place).collect::<Result<_>>()?;
    let lists = blocks.chunks(orphan::LIST_SLOTS);
    let lists = lists.map(|list| writer.place(&orphan::encode_list(volume, list)));
    Ok((lists.collect::<Result<_>>()?, blocks))
}

impl Orphans {
    /// The slots at this moment. To be called with the gate closed. Memory of empty blocks goes.
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

    /// Reads the blocks that a checkpoint names. A block that is damaged is left out, and said so
    /// in the list: what stood in it is space that nothing gives back until fsck does, never a
    /// file that anybody can reach.
    pub(crate) fn read(
        device: &dyn Device,
        geometry: &Geometry,
        volume: u64,
        blocks: &[Ptr],
    ) -> Result<(Orphans, Vec<String>)> {
        let (orphans, mut damage) = (Orphans::default(), Vec::new());
        for ptr in blocks {
            match orphans.read_block(device, geometry, volume, *ptr) {
                Ok(()) => {}
                Err(e @ (Error::Corrupt(_) | Error::Device(_))) => damage.push(e.to_string()),
                Err(e) => return Err(e),
            }
        }
        Ok((orphans, damage))
    }

    /// Adds what stands in one block.
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

    /// For replay, which knows inodes only by number: where each stands.
    pub(crate) fn by_ino(&self) -> std::collections::HashMap<Ino, OrphanSlot> {
        self.all().into_iter().collect()
    }
}
