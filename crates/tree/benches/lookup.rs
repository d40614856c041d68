//! Lookups in a tree that is completely in memory: nanoseconds per lookup, or instructions, under
//!
//! `cargo bench -p shoal-tree [-- LOOKUPS]`

use shoal_base::counters::Counters;
use shoal_base::{Addr, Result, RootId};
use shoal_device::{Device, MemDevice};
use shoal_format::{Geometry, Ptr};
use shoal_tree::{Key, NodeCache, NodeId, NodeWriter, Tree, TreeId};
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

const GEOMETRY: Geometry = Geometry { segment_size: 4 << 20, segments: 64, inode_size: 512 };
const ID: NodeId = NodeId { volume: 5, root: RootId(0), tree: TreeId::Dirents };
const ENTRIES: u64 = 200_000;

/// Places nodes in sequence.
struct Writer(Arc<MemDevice>, u64);

impl NodeWriter for Writer {
    fn alloc(&mut self, len: usize) -> Result<Addr> {
        self.1 += len as u64;
        Ok(Addr(self.1 - len as u64))
    }
    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        self.0.write_at(bytes, addr.0)
    }
    fn retire(&mut self, _: Ptr) {}
}

fn key(n: u64) -> Key {
    Key::new(n % ENTRIES, n % 7)
}

#[inline(never)]
fn look_up(tree: &Tree, lookups: u64) -> Result<u64> {
    let mut found = 0;
    for n in 0..lookups {
        let len = tree.get(key(n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20), <[u8]>::len)?;
        found += black_box(len).is_some() as u64;
    }
    Ok(found)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1).filter_map(|a| a.parse().ok());
    let lookups = arguments.next_back().unwrap_or(5_000_000);
    let device = Arc::new(MemDevice::new(GEOMETRY.bytes()));
    let cache = || NodeCache::new(1 << 30, Arc::new(Counters::default()));
    let tree = Tree::create(ID, device.clone(), GEOMETRY, cache());
    for n in 0..ENTRIES {
        tree.put(key(n), &[7; 300], 1)?;
    }
    let root = tree.checkpoint(1, &mut Writer(device.clone(), GEOMETRY.segment_size))?;
    let tree = Tree::open(ID, device, GEOMETRY, cache(), root);
    look_up(&tree, ENTRIES * 4)?;
    let start = Instant::now();
    let found = look_up(&tree, lookups)?;
    let each = start.elapsed().as_nanos() as f64 / lookups as f64;
    println!("{lookups} lookups, {found} found, {each:.1} ns each");
    Ok(())
}
