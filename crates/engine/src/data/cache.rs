//! A small cache of data objects that were read in part: the checksum covers the whole object, so
//! that reading 4 KiB of it means reading all of it.

use shoal_base::shard::spread;
use shoal_base::sync::Mutex;
use shoal_format::Ptr;
use std::collections::VecDeque;
use std::sync::Arc;

const SHARDS: usize = 16;
/// Objects in each shard; of at most 128 KiB each.
const OBJECTS: usize = 16;

type Shard = VecDeque<(Ptr, Arc<[u8]>)>;

/// Objects by pointer. Address and checksum together name the contents: an address that is used
/// again for something else is not found.
pub(crate) struct ObjectCache {
    shards: [Mutex<Shard>; SHARDS],
}

impl Default for ObjectCache {
    fn default() -> Self {
        ObjectCache { shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl ObjectCache {
    fn shard(&self, ptr: &Ptr) -> &Mutex<Shard> {
        &self.shards[spread(ptr.addr.0) as usize % SHARDS]
    }
    pub fn get(&self, ptr: &Ptr) -> Option<Arc<[u8]>> {
        let mut shard = self.shard(ptr).lock();
        let at = shard.iter().position(|(p, _)| p == ptr)?;
        let hit = shard.remove(at)?;
        let object = hit.1.clone();
        shard.push_front(hit);
        Some(object)
    }
    pub fn put(&self, ptr: Ptr, object: Arc<[u8]>) {
        let mut shard = self.shard(&ptr).lock();
        shard.push_front((ptr, object));
        shard.truncate(OBJECTS);
    }
}
