//! Salvage of a tree with lost nodes: all other entries are recovered.

use shoal_base::counters::Counters;
use shoal_base::{Addr, Result, RootId};
use shoal_device::{Device, MemDevice};
use shoal_format::{Geometry, Ptr};
use shoal_tree::{Key, NodeCache, NodeId, NodeWriter, Tree, TreeId};
use std::sync::Arc;

const GEOMETRY: Geometry = Geometry { segment_size: 1 << 20, segments: 32, inode_size: 512 };
const ID: NodeId = NodeId { volume: 7, root: RootId(0), tree: TreeId::Dirents };

struct Append(Arc<MemDevice>, u64);

impl NodeWriter for Append {
    fn alloc(&mut self, len: usize) -> Result<Addr> {
        self.1 += len as u64;
        Ok(Addr(self.1 - len as u64))
    }
    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        self.0.write_at(bytes, addr.0)
    }
    fn retire(&mut self, _: Ptr) {}
}

#[test]
fn all_but_what_a_lost_leaf_held_is_there() {
    let device = Arc::new(MemDevice::new(GEOMETRY.bytes()));
    let cache = NodeCache::new(8 << 20, Arc::new(Counters::default()));
    let tree = Tree::create(ID, device.clone(), GEOMETRY, cache.clone());
    for n in 0..5000u64 {
        tree.put(Key::new(n, 0), &n.to_le_bytes(), 1).unwrap();
    }
    let root = tree.checkpoint(1, &mut Append(device.clone(), 1 << 20)).unwrap();
    let salvage = || {
        let (device, cache) = (device.clone(), cache.clone());
        Tree::salvage(ID, device, GEOMETRY, cache, root, 2).unwrap()
    };
    let (_, survey) = salvage();
    assert!(survey.lost.is_empty() && survey.nodes.len() > 5, "{survey:?}");
    let victim = survey.nodes[2];
    device.write_at(b"damage", victim.addr.0 + 100).unwrap();
    let (tree, survey) = salvage();
    let [lost] = &survey.lost[..] else { panic!("{survey:?}") };
    assert_eq!((lost.ptr, lost.level), (victim, Some(0)));
    for n in 0..5000u64 {
        let found = tree.get(Key::new(n, 0), <[u8]>::to_vec).unwrap();
        let gone = (lost.low..lost.high).contains(&Key::new(n, 0));
        assert_eq!(found.is_none(), gone, "{n} of {lost:?}");
    }
    device.write_at(b"damage", root.addr.0).unwrap();
    let (tree, survey) = salvage();
    assert_eq!((survey.lost[0].low, survey.lost[0].high), (Key::MIN, Key::MAX));
    assert!(tree.get(Key::new(1, 0), |_| ()).unwrap().is_none());
}
