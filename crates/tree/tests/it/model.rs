//! The tree against a `BTreeMap`, with checkpoints, reopening and a tiny cache.

use shoal_base::counters::Counters;
use shoal_base::{Addr, Result, RootId};
use shoal_device::{Device, MemDevice};
use shoal_format::{Geometry, Ptr};
use shoal_tree::{Action, Key, NodeCache, NodeId, NodeWriter, Tree, TreeId};
use std::collections::BTreeMap;
use std::sync::Arc;

const GEOMETRY: Geometry = Geometry { segment_size: 4 << 20, segments: 64, inode_size: 512 };
const ID: NodeId = NodeId { volume: 5, root: RootId(0), tree: TreeId::Dirents };

struct Writer {
    device: Arc<MemDevice>,
    next: u64,
    live: BTreeMap<u64, u32>,
}

impl NodeWriter for Writer {
    fn alloc(&mut self, len: usize) -> Result<Addr> {
        // Nodes are placed apart, so that none crosses the end of a segment.
        let (wanted, len) = (len, len.next_multiple_of(16 << 10));
        self.next += len as u64;
        if self.next >= GEOMETRY.bytes() {
            self.next = GEOMETRY.segment_size + len as u64; // wraps: the test frees enough
        }
        let addr = self.next - len as u64;
        assert!(self.live.insert(addr, wanted as u32).is_none(), "address {addr} is still in use");
        Ok(Addr(addr))
    }
    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        self.device.write_at(bytes, addr.0)
    }
    fn retire(&mut self, ptr: Ptr) {
        if !ptr.is_null() {
            assert_eq!(self.live.remove(&ptr.addr.0), Some(ptr.len), "retired twice");
        }
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn contents(tree: &Tree) -> Vec<(Key, Vec<u8>)> {
    let mut all = Vec::new();
    tree.for_each(Key::MIN, Key::MAX, &mut |k, v| {
        all.push((k, v.to_vec()));
        Ok(true)
    })
    .unwrap();
    all
}

fn run(seed: u64, steps: usize, space: u64) {
    let device = Arc::new(MemDevice::new(GEOMETRY.bytes()));
    let cache = || NodeCache::new(64 * 16384, Arc::new(Counters::default()));
    let mut writer = Writer { device: device.clone(), next: 4 << 20, live: BTreeMap::new() };
    let mut tree = Tree::create(ID, device.clone(), GEOMETRY, cache());
    let mut model: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
    let (mut rng, mut epoch) = (seed * 0x9E37_79B9 + 1, 1);
    // An image of the end of an epoch that is written later must show that epoch.
    for step in 0..steps {
        let phase = (step / 4000) % 3;
        let key = Key::new(random(&mut rng) % space, random(&mut rng) % 50);
        let value = vec![step as u8; (random(&mut rng) % 90) as usize];
        match (phase, random(&mut rng) % 10) {
            (2, 0..=7) | (_, 0..=1) => {
                let was = tree.delete(key, epoch).unwrap();
                assert_eq!(was, model.remove(&key).is_some(), "seed {seed} step {step}");
            }
            (_, 8) => {
                let got = tree.get(key, |v| v.to_vec()).unwrap();
                assert_eq!(got.as_ref(), model.get(&key), "seed {seed} step {step}");
                let before = tree.before(Key::MIN, key, |k, v| (k, v.to_vec())).unwrap();
                let expected = model.range(..key).next_back().map(|(k, v)| (*k, v.clone()));
                assert_eq!(before, expected);
            }
            _ => {
                tree.update(key, epoch, &mut |_| Action::Put(&value)).unwrap();
                model.insert(key, value);
            }
        }
        if step % 997 == 996 {
            // The end of an epoch: later changes must not be in its image.
            let at_end = model.clone();
            for _ in 0..300 {
                let key = Key::new(random(&mut rng) % space, random(&mut rng) % 50);
                if random(&mut rng).is_multiple_of(2) {
                    let to = Key::new(key.hi, key.lo + 20);
                    tree.delete_range(key, to, epoch + 1, &mut |_, _| {}).unwrap();
                    let gone: Vec<Key> = model.range(key..to).map(|(k, _)| *k).collect();
                    gone.iter().for_each(|k| drop(model.remove(k)));
                } else {
                    tree.put(key, b"next epoch", epoch + 1).unwrap();
                    model.insert(key, b"next epoch".to_vec());
                }
            }
            let root = tree.checkpoint(epoch, &mut writer).unwrap();
            let image = Tree::open(ID, device.clone(), GEOMETRY, cache(), root);
            assert_eq!(contents(&image), at_end.into_iter().collect::<Vec<_>>(), "seed {seed}");
            epoch += 1;
        }
        if step % 9000 == 8999 {
            let root = tree.checkpoint(epoch, &mut writer).unwrap();
            tree = Tree::open(ID, device.clone(), GEOMETRY, cache(), root);
            epoch += 1;
        }
    }
    assert_eq!(contents(&tree), model.into_iter().collect::<Vec<_>>(), "seed {seed}");
    let everything = tree.delete_range(Key::MIN, Key::MAX, epoch, &mut |_, _| {}).unwrap();
    assert!(everything > 0);
    tree.checkpoint(epoch, &mut writer).unwrap();
    assert!(writer.live.len() < 40, "{} nodes left in an empty tree", writer.live.len());
}

#[test]
fn agrees_with_a_map() {
    for seed in 1..6 {
        run(seed, 40_000, 500);
    }
    run(77, 120_000, 100_000);
}

#[test]
fn threads_in_one_tree() {
    let device = Arc::new(MemDevice::new(GEOMETRY.bytes()));
    let cache = NodeCache::new(1 << 20, Arc::new(Counters::default()));
    let mut writer = Writer { device: device.clone(), next: 4 << 20, live: BTreeMap::new() };
    let tree = Tree::create(ID, device.clone(), GEOMETRY, cache);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let tree = &tree;
            scope.spawn(move || {
                let mut rng = thread + 99;
                let mut mine: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
                for step in 0..30_000u64 {
                    let key =
                        Key::new(random(&mut rng) % 300, (random(&mut rng) % 64) * 4 + thread);
                    match random(&mut rng) % 4 {
                        0 => assert_eq!(tree.delete(key, 1).unwrap(), mine.remove(&key).is_some()),
                        1 => {
                            let got = tree.get(key, |v| v.to_vec()).unwrap();
                            assert_eq!(got.as_ref(), mine.get(&key));
                        }
                        _ => {
                            let value = vec![thread as u8; (step % 70) as usize];
                            tree.put(key, &value, 1).unwrap();
                            mine.insert(key, value);
                        }
                    }
                }
                for (key, value) in &mine {
                    assert_eq!(tree.get(*key, |v| v == &value[..]).unwrap(), Some(true));
                }
            });
        }
    });
    tree.checkpoint(1, &mut writer).unwrap();
}
