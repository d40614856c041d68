//! The cells that a checkpoint of a tree visits: the paths to the changes, not everything in
//! memory.

use shoal_base::counters::{Counter, Counters};
use shoal_base::{Addr, Result, RootId};
use shoal_device::{Device, MemDevice};
use shoal_format::{Geometry, Ptr};
use shoal_tree::{Key, NodeCache, NodeId, NodeWriter, Tree, TreeId};
use std::sync::Arc;

const GEOMETRY: Geometry = Geometry { segment_size: 4 << 20, segments: 64, inode_size: 512 };
const ID: NodeId = NodeId { volume: 5, root: RootId(0), tree: TreeId::Dirents };

/// Places nodes in sequence.
struct Writer {
    device: Arc<MemDevice>,
    next: u64,
    written: u64,
}

impl NodeWriter for Writer {
    fn alloc(&mut self, len: usize) -> Result<Addr> {
        self.next += len as u64;
        Ok(Addr(self.next - len as u64))
    }
    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        self.written += 1;
        self.device.write_at(bytes, addr.0)
    }
    fn retire(&mut self, _: Ptr) {}
}

struct World {
    tree: Tree,
    cache: Arc<NodeCache>,
    counters: Arc<Counters>,
    writer: Writer,
    epoch: u64,
}

impl World {
    /// A tree of this many entries, seven per leaf, all in memory and on the device.
    fn new(entries: u64) -> World {
        let device = Arc::new(MemDevice::new(GEOMETRY.bytes()));
        let counters = Arc::new(Counters::default());
        let cache = NodeCache::new(1 << 30, counters.clone());
        let writer = Writer { device: device.clone(), next: GEOMETRY.segment_size, written: 0 };
        let tree = Tree::create(ID, device, GEOMETRY, cache.clone());
        let mut world = World { tree, cache, counters, writer, epoch: 1 };
        for n in 0..entries {
            world.put(n);
        }
        world.checkpoint();
        world
    }
    fn put(&self, n: u64) {
        self.tree.put(Key::new(n, 0), &[self.epoch as u8; 2000], self.epoch).unwrap();
    }
    /// Returns the number of cells visited and of nodes written.
    fn checkpoint(&mut self) -> (u64, u64) {
        let before = (self.counters.get(Counter::CheckpointCells), self.writer.written);
        self.cache.writing(self.epoch);
        self.tree.checkpoint(self.epoch, &mut self.writer).unwrap();
        self.cache.written();
        self.epoch += 1;
        let after = (self.counters.get(Counter::CheckpointCells), self.writer.written);
        (after.0 - before.0, after.1 - before.1)
    }
}

#[test]
fn a_checkpoint_looks_only_at_the_way_to_what_changed() {
    let mut small = World::new(40);
    let mut large = World::new(9_000);
    let census = large.tree.census();
    assert!(census.nodes > 1000 && census.inners > 3, "{census:?}");
    for world in [&mut small, &mut large] {
        assert_eq!(world.checkpoint(), (0, 0), "nothing has changed");
    }
    for n in [0, 17, 39] {
        small.put(n);
        large.put(n * 200);
    }
    // Three leaves, and above each at most one inner node that is not the root.
    assert_eq!(small.checkpoint(), (3, 4));
    let (looked, written) = large.checkpoint();
    assert!(looked <= 6, "{looked} cells for three leaves of {}", census.leaves);
    assert_eq!(written, looked + 1);
    assert_eq!(large.checkpoint(), (0, 0));
}

#[test]
fn what_changes_during_a_checkpoint_is_left_for_the_next() {
    let mut world = World::new(2_000);
    world.put(5);
    world.put(700);
    // The epoch ends; before its checkpoint begins, transactions of the next one run.
    world.tree.put(Key::new(700, 0), &[9; 2000], world.epoch + 1).unwrap();
    world.tree.put(Key::new(1_400, 0), &[9; 2000], world.epoch + 1).unwrap();
    let leaf = 16 << 10;
    assert_eq!(world.cache.dirty_in(world.epoch), 2 * leaf);
    assert_eq!(world.cache.dirty_in(world.epoch + 1), 2 * leaf);
    let (looked, _) = world.checkpoint();
    assert!((2..=4).contains(&looked), "{looked} cells for two leaves");
    assert_eq!(world.cache.dirty_bytes(), 2 * leaf);
    let (looked, _) = world.checkpoint();
    assert!((2..=4).contains(&looked), "{looked} cells for two leaves");
    assert_eq!(world.cache.dirty_bytes(), 0);
}
