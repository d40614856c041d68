//! Nodes that one subvolume has written, reached through another: they are readable there, and
//! belong to it once it writes them.

use shoal_base::counters::Counters;
use shoal_base::{Addr, Result, RootId};
use shoal_device::{Device, MemDevice};
use shoal_format::node::Node;
use shoal_format::{Geometry, Ptr};
use shoal_tree::{Key, NodeCache, NodeId, NodeWriter, Tree, TreeId};
use std::sync::Arc;

const GEOMETRY: Geometry = Geometry { segment_size: 1 << 20, segments: 32, inode_size: 512 };
const ID: NodeId = NodeId { volume: 7, root: RootId(3), tree: TreeId::Extents };
const ENTRIES: u64 = 5000;

struct Append {
    device: Arc<MemDevice>,
    next: u64,
    written: Vec<u64>,
    retired: Vec<Ptr>,
}

impl NodeWriter for Append {
    fn alloc(&mut self, len: usize) -> Result<Addr> {
        self.next += len as u64;
        Ok(Addr(self.next - len as u64))
    }
    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        self.written.push(addr.0);
        self.device.write_at(bytes, addr.0)
    }
    fn retire(&mut self, ptr: Ptr) {
        self.retired.push(ptr);
    }
}

fn writer_of(device: &MemDevice, addr: u64) -> RootId {
    let mut raw = vec![0; 16 << 10];
    device.read_at(&mut raw, addr).unwrap();
    Node::decode_found(&raw, Node::frame(), (ID, None, Addr(addr))).unwrap().root()
}

#[test]
fn nodes_of_another_root_are_read_and_become_their_writers() {
    let device = Arc::new(MemDevice::new(GEOMETRY.bytes()));
    let cache = NodeCache::new(8 << 20, Arc::new(Counters::default()));
    let (written, retired) = (Vec::new(), Vec::new());
    let mut writer = Append { device: device.clone(), next: 1 << 20, written, retired };
    let first = Tree::create(ID, device.clone(), GEOMETRY, cache.clone());
    for n in 0..ENTRIES {
        first.put(Key::new(n, 0), &n.to_le_bytes(), 1).unwrap();
    }
    let shared = first.checkpoint(1, &mut writer).unwrap();
    let old = std::mem::take(&mut writer.written);
    assert!(old.len() > 5 && old.iter().all(|addr| writer_of(&device, *addr) == ID.root));

    let open = |id| Tree::open(id, device.clone(), GEOMETRY, cache.clone(), shared);
    let second = open(NodeId { root: RootId(9), ..ID });
    for n in 0..ENTRIES {
        let found = second.get(Key::new(n, 0), |raw| raw == n.to_le_bytes()).unwrap();
        assert_eq!(found, Some(true), "{n}");
    }
    // One leaf, which splits, and the node above: written by the subvolume that changes them.
    for n in 0..600 {
        second.put(Key::new(1000, n + 1), &[1; 20], 2).unwrap();
    }
    second.checkpoint(2, &mut writer).unwrap();
    let new = &writer.written;
    assert!(new.len() > 2 && new.len() < old.len(), "{} of {}", new.len(), old.len());
    assert!(new.iter().all(|addr| writer_of(&device, *addr) == RootId(9)));
    assert!(old.iter().all(|addr| writer_of(&device, *addr) == ID.root), "not written again");
    assert_eq!(open(ID).get(Key::new(1000, 1), |_| ()).unwrap(), None);

    for id in [NodeId { volume: 8, ..ID }, NodeId { tree: TreeId::Attrs, ..ID }] {
        let e = open(id).get(Key::new(1, 0), |_| ()).unwrap_err();
        assert!(e.is_damage(), "{id:?}: {e}");
    }
}
