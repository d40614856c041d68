//! The tree against a `BTreeMap`: each 8 bytes are one change or question. Values are large and the
//! cache is small, so that few changes suffice for splits, merges and eviction.

use shoal_base::counters::Counters;
use shoal_base::limits::NODE_SIZE;
use shoal_base::{Addr, Result, RootId};
use shoal_device::{Device, MemDevice};
use shoal_format::{Codec, Compression, Geometry, Ptr};
use shoal_tree::{Key, NodeCache, NodeId, NodeWriter, Tree, TreeId};
use std::collections::BTreeMap;
use std::sync::Arc;

const GEOMETRY: Geometry = Geometry { segment_size: 4 << 20, segments: 64, inode_size: 512 };
const ID: NodeId = NodeId { volume: 5, root: RootId(0), tree: TreeId::Dirents };

struct Writer {
    device: Arc<MemDevice>,
    next: u64,
    live: BTreeMap<u64, u32>,
    retired: Vec<u64>,
    free: Vec<u64>,
    compression: Compression,
}

impl NodeWriter for Writer {
    fn alloc(&mut self, len: usize) -> Result<Addr> {
        // Each has room for the longest, so that any other may come there later.
        let addr = self.free.pop().unwrap_or_else(|| {
            self.next += NODE_SIZE as u64;
            self.next - NODE_SIZE as u64
        });
        assert!(self.live.insert(addr, len as u32).is_none(), "{addr} is in use");
        Ok(Addr(addr))
    }
    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        self.device.write_at(bytes, addr.0)
    }
    fn compression(&self) -> Compression {
        self.compression
    }
    fn retire(&mut self, ptr: Ptr) {
        if !ptr.is_null() {
            assert_eq!(self.live.remove(&ptr.addr.0), Some(ptr.len), "retired twice");
            self.retired.push(ptr.addr.0);
        }
    }
}

struct World {
    tree: Tree,
    cache: Arc<NodeCache>,
    model: BTreeMap<Key, Vec<u8>>,
    writer: Writer,
    epoch: u64,
}

fn cache() -> Arc<NodeCache> {
    NodeCache::new(0, Arc::new(Counters::default()))
}

/// A sequence of changes.
pub fn tree(data: &[u8]) {
    let device = Arc::new(MemDevice::new(GEOMETRY.bytes()));
    let writer = Writer {
        device: device.clone(),
        next: GEOMETRY.segment_size,
        live: BTreeMap::new(),
        retired: Vec::new(),
        free: Vec::new(),
        compression: Compression::NONE,
    };
    let cache = cache();
    let tree = Tree::create(ID, device, GEOMETRY, cache.clone());
    let mut world = World { tree, cache, model: BTreeMap::new(), writer, epoch: 1 };
    for op in data.as_chunks::<8>().0.iter().take(2000) {
        if let Err(e) = world.apply(op) {
            panic!("{op:?}: {e}");
        }
    }
    world.compare();
}

impl World {
    fn apply(&mut self, op: &[u8; 8]) -> Result<()> {
        let (a, b) = (u16::from_le_bytes([op[1], op[2]]), u16::from_le_bytes([op[3], op[4]]));
        let key = Key::new(u64::from(a % 512), u64::from(a >> 9));
        let to = Key::new(key.hi + u64::from(b % 256), u64::from(op[7]));
        match op[0] % 10 {
            0..=3 => {
                let value = vec![op[5]; (b % 2049) as usize];
                self.tree.put(key, &value, self.epoch)?;
                self.model.insert(key, value);
            }
            // Many at once: what a fuzzer would need very long inputs for.
            4 => {
                for n in 0..u64::from(op[6]) {
                    let key = Key::new(key.hi + n * u64::from(op[7] % 4), n);
                    let value = vec![op[5]; (b % 2049) as usize];
                    self.tree.put(key, &value, self.epoch)?;
                    self.model.insert(key, value);
                }
            }
            5 => {
                let there = self.model.remove(&key).is_some();
                assert_eq!(self.tree.delete(key, self.epoch)?, there);
            }
            6 => {
                let before = self.model.len();
                self.model.retain(|k, _| *k < key || *k >= to);
                let gone = self.tree.delete_range(key, to, self.epoch, &mut |_, _| {})?;
                assert_eq!(gone, (before - self.model.len()) as u64);
            }
            7 => {
                let found = self.tree.get(key, <[u8]>::to_vec)?;
                assert_eq!(found.as_ref(), self.model.get(&key));
                let found = self.tree.before(Key::MIN, key, |k, v| (k, v.to_vec()))?;
                let expected = self.model.range(..key).next_back();
                assert_eq!(found, expected.map(|(k, v)| (*k, v.clone())));
            }
            8 => {
                let count = self.writer.live.len().max(1);
                if let Some(addr) = self.writer.live.keys().nth(usize::from(b) % count) {
                    self.tree.rewrite(key, op[7] % 4, Addr(*addr), self.epoch)?;
                }
            }
            _ => {
                let zstd = Compression { codec: Codec::Zstd, level: 1 };
                let how = [Compression::NONE, Compression::LZ4, zstd];
                self.writer.compression = how[usize::from(op[6] % 3)];
                self.checkpoint(op[7].is_multiple_of(4))?;
            }
        }
        Ok(())
    }

    fn checkpoint(&mut self, reopen: bool) -> Result<()> {
        self.cache.writing(self.epoch);
        let root = self.tree.checkpoint(self.epoch, &mut self.writer)?;
        self.cache.written();
        self.writer.free.append(&mut self.writer.retired);
        self.epoch += 1;
        let mut nodes = Vec::new();
        self.tree.for_each_node(&mut |ptr| nodes.push(ptr.addr.0))?;
        nodes.sort_unstable();
        assert!(self.writer.live.keys().eq(&nodes), "nodes in use are those not retired");
        if reopen {
            self.cache = cache();
            let (device, cache) = (self.writer.device.clone(), self.cache.clone());
            self.tree = Tree::open(ID, device, GEOMETRY, cache, root);
        }
        Ok(())
    }

    fn compare(&self) {
        let mut model = self.model.iter();
        let all = self.tree.for_each(Key::MIN, Key::MAX, &mut |k, v| {
            assert_eq!(model.next(), Some((&k, &v.to_vec())));
            Ok(true)
        });
        assert!(all.is_ok() && model.next().is_none());
    }
}
