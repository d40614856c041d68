//! Block number → block, sharded. An XArray takes this place; the interface stays.

use crate::block::InodeBlock;
use parking_lot::RwLock;
use shoal_base::shard::spread;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

const SHARDS: usize = 128;

/// Numbers are dense: spreading them is hash enough.
#[derive(Default)]
pub(crate) struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = spread(self.0 ^ u64::from(*byte));
        }
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = spread(n);
    }
}

type Shard = RwLock<HashMap<u64, Arc<InodeBlock>, BuildHasherDefault<NumberHasher>>>;

/// The map.
pub(crate) struct BlockMap {
    shards: Box<[Shard]>,
}

impl BlockMap {
    pub fn new() -> BlockMap {
        BlockMap { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
    #[inline]
    fn shard(&self, number: u64) -> &Shard {
        // Not the bits that the table inside the shard uses.
        &self.shards[(spread(number) >> 40) as usize % SHARDS]
    }
    #[inline]
    pub fn get(&self, number: u64) -> Option<Arc<InodeBlock>> {
        self.shard(number).read().get(&number).cloned()
    }
    /// Inserts unless the number is taken; returns the block that is in the map.
    pub fn insert(&self, block: Arc<InodeBlock>) -> Arc<InodeBlock> {
        self.shard(block.number).write().entry(block.number).or_insert(block).clone()
    }
    /// Removes exactly this block, and only if nobody but the map and the caller knows it.
    pub fn remove_unused(&self, block: &Arc<InodeBlock>) -> bool {
        let mut shard = self.shard(block.number).write();
        let same = shard.get(&block.number).is_some_and(|b| Arc::ptr_eq(b, block));
        let idle = Arc::strong_count(block) == 2 && !block.is_dirty();
        if same && idle {
            shard.remove(&block.number);
        }
        same && idle
    }
    /// Removes all blocks, which nobody uses any more; returns how many.
    pub fn clear(&self) -> usize {
        self.shards.iter().map(|shard| std::mem::take(&mut *shard.write()).len()).sum()
    }
}
