//! The orphan table: inodes without a name that are still in use. In memory a sharded set; on the
//! device blocks of slots, written by every checkpoint, between which the journal carries the
//! changes.

use parking_lot::Mutex;
use shoal_base::shard::{SHARDS, spread};
use shoal_base::{Ino, Result};
use shoal_device::Device;
use shoal_format::{Geometry, Ptr, orphan};
use std::collections::BTreeSet;

/// The set.
pub struct Orphans {
    shards: Box<[Mutex<BTreeSet<Ino>>]>,
}

impl Default for Orphans {
    fn default() -> Self {
        Orphans { shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }
}

impl Orphans {
    fn shard(&self, ino: Ino) -> &Mutex<BTreeSet<Ino>> {
        &self.shards[spread(ino.0) as usize % SHARDS]
    }
    /// Enters an inode.
    pub fn add(&self, ino: Ino) {
        self.shard(ino).lock().insert(ino);
    }
    /// Takes an inode out; returns whether it was in.
    pub fn remove(&self, ino: Ino) -> bool {
        self.shard(ino).lock().remove(&ino)
    }
    /// Whether an inode is in.
    pub fn contains(&self, ino: Ino) -> bool {
        self.shard(ino).lock().contains(&ino)
    }
    /// All of them, by number.
    pub fn all(&self) -> Vec<Ino> {
        let mut all: Vec<Ino> = self.shards.iter().flat_map(|s| s.lock().clone()).collect();
        all.sort_unstable();
        all
    }
    /// How many.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.lock().len()).sum()
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Reads the blocks that a checkpoint names.
    pub fn read(
        device: &dyn Device,
        geometry: &Geometry,
        volume: u64,
        blocks: &[Ptr],
    ) -> Result<Orphans> {
        let orphans = Orphans::default();
        for ptr in blocks {
            let raw = crate::open::read_object(device, geometry, *ptr, "orphan block")?;
            for ino in orphan::decode(&raw, ptr.addr, volume)? {
                orphans.add(ino);
            }
        }
        Ok(orphans)
    }
}
