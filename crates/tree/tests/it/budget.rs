//! The cache's budget holds for everything that a tree keeps in memory, and a tree that is mostly
//! not in memory behaves like a `BTreeMap`.

use proptest::prelude::*;
use shoal_base::counters::Counters;
use shoal_base::limits::NODE_SIZE;
use shoal_base::{Addr, Result, RootId};
use shoal_device::{Device, MemDevice};
use shoal_format::{Geometry, Ptr};
use shoal_skip::property;
use shoal_tree::{Batch, Key, NodeCache, NodeId, NodeWriter, Tree, TreeId};
use std::collections::BTreeMap;
use std::sync::Arc;

const GEOMETRY: Geometry = Geometry { segment_size: 4 << 20, segments: 64, inode_size: 512 };
const ID: NodeId = NodeId { volume: 5, root: RootId(0), tree: TreeId::Dirents };
const NODE: u64 = 16 << 10;
/// Minimum bytes of a leaf cell with its entry in the array.
const CELL: u64 = 128;
/// Memory that calls in flight may hold: an array of 371 cells and a leaf or two.
const IN_HAND: u64 = 371 * 200 + 2 * NODE;

/// Places nodes, and reuses the space of the previous image.
struct Writer {
    device: Arc<MemDevice>,
    next: u64,
    live: BTreeMap<u64, u32>,
    retired: Vec<u64>,
    free: Vec<u64>,
}

impl Writer {
    fn new(device: &Arc<MemDevice>) -> Writer {
        Writer {
            device: device.clone(),
            next: GEOMETRY.segment_size,
            live: BTreeMap::new(),
            retired: Vec::new(),
            free: Vec::new(),
        }
    }
    fn checkpoint(&mut self, tree: &Tree, cache: &NodeCache, epoch: u64) -> Ptr {
        cache.writing(epoch);
        let root = tree.checkpoint(epoch, self).unwrap();
        cache.written();
        self.free.append(&mut self.retired);
        root
    }
}

impl NodeWriter for Writer {
    fn alloc(&mut self, len: usize) -> Result<Addr> {
        let addr = self.free.pop().unwrap_or_else(|| {
            // Any node fits in the space of another.
            assert!(len <= NODE_SIZE);
            self.next += NODE_SIZE as u64;
            self.next - NODE_SIZE as u64
        });
        assert!(self.live.insert(addr, len as u32).is_none(), "address {addr} is still in use");
        Ok(Addr(addr))
    }
    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        self.device.write_at(bytes, addr.0)
    }
    fn retire(&mut self, ptr: Ptr) {
        if !ptr.is_null() {
            assert_eq!(self.live.remove(&ptr.addr.0), Some(ptr.len), "retired twice");
            self.retired.push(ptr.addr.0);
        }
    }
}

fn value(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(250)
}

/// A tree on the device with the keys `0..entries` (times 10), seven per leaf; nothing in memory.
fn large(entries: u64) -> (Tree, Arc<NodeCache>, Writer) {
    let device = Arc::new(MemDevice::new(GEOMETRY.bytes()));
    let mut writer = Writer::new(&device);
    let cache = NodeCache::new(1 << 30, Arc::new(Counters::default()));
    let tree = Tree::create(ID, device.clone(), GEOMETRY, cache.clone());
    for n in 0..entries {
        tree.put(Key::new(n * 10, 0), &value(n), 1).unwrap();
    }
    let root = writer.checkpoint(&tree, &cache, 1);
    let cache = NodeCache::new(0, Arc::new(Counters::default()));
    (Tree::open(ID, device, GEOMETRY, cache.clone(), root), cache, writer)
}

/// Checks that the cache's count matches the memory, and is within the budget.
fn assert_in_budget(tree: &Tree, cache: &NodeCache) {
    let (census, used) = (tree.census(), cache.used_bytes());
    // The root's cell belongs to the tree.
    let seen = census.nodes as u64 * NODE + (census.leaves + census.inners - 1) as u64 * CELL;
    assert!(seen <= used, "{census:?}, but {used} bytes counted");
    assert!(used <= seen * 2 + IN_HAND, "{census:?}, but {used} bytes counted");
    assert!(used <= cache.limit_bytes() + IN_HAND, "{used} bytes of {}", cache.limit_bytes());
}

#[test]
fn a_walk_of_a_large_tree_stays_in_the_budget() {
    let leaves = 8000;
    let (tree, cache, mut writer) = large(leaves * 7);
    let mut batch = Batch::default();
    let (mut next, mut seen, mut most) = (Some(Key::MIN), 0, 0);
    while let Some(from) = next {
        next = tree.scan(from, Key::MAX, 64, &mut batch).unwrap();
        seen += batch.len() as u64;
        assert_in_budget(&tree, &cache);
        most = most.max(tree.census().leaves);
    }
    assert_eq!(seen, leaves * 7);
    // All of its cells would be as large as the whole cache.
    assert!(most < 4 * 371, "{most} leaf cells were in memory");
    // In random order, and with changes.
    for (n, epoch) in (0..4000).zip((2..).flat_map(|e| [e; 20])) {
        let at = n * 7919 % (leaves * 7);
        let found = tree.get(Key::new(at * 10, 0), <[u8]>::to_vec).unwrap();
        assert_eq!(found, Some(value(at)));
        tree.put(Key::new(at * 10 + 1, 0), b"new", epoch).unwrap();
        if n % 20 == 19 {
            writer.checkpoint(&tree, &cache, epoch);
            assert_in_budget(&tree, &cache);
        }
    }
    let mut nodes = 0;
    tree.for_each_node(&mut |ptr| nodes += writer.live.contains_key(&ptr.addr.0) as usize).unwrap();
    assert_eq!(nodes, writer.live.len());
    assert_in_budget(&tree, &cache);
    assert!(cache.dirty_bytes() == 0);
    tree.put(Key::MIN, b"changed", 1000).unwrap();
    assert!(cache.dirty_bytes() > 0);
    drop(tree);
    assert_eq!((cache.used_bytes(), cache.dirty_bytes()), (0, 0), "a tree that is gone takes none");
}

#[derive(Clone, Debug)]
enum Op {
    Put(u64, u8),
    Delete(u64),
    DeleteRange(u64, u64),
    Get(u64),
    Scan(u64, u64),
    Before(u64),
    Move(u64),
    Checkpoint,
    Reopen,
}

const ENTRIES: u64 = 6000;

fn op() -> impl Strategy<Value = Op> {
    // Far apart, so that everything is loaded and evicted all the time.
    let key = 0..ENTRIES * 10;
    prop_oneof![
        6 => (key.clone(), any::<u8>()).prop_map(|(k, v)| Op::Put(k, v)),
        3 => key.clone().prop_map(|k| Op::Delete(k / 10 * 10)),
        2 => (key.clone(), 0..6000u64).prop_map(|(k, n)| Op::DeleteRange(k, n)),
        6 => key.clone().prop_map(Op::Get),
        2 => (key.clone(), 0..6000u64).prop_map(|(k, n)| Op::Scan(k, n)),
        2 => key.clone().prop_map(Op::Before),
        2 => any::<u64>().prop_map(Op::Move),
        1 => Just(Op::Checkpoint),
        1 => Just(Op::Reopen),
    ]
}

fn contents(tree: &Tree, from: Key, to: Key) -> Vec<(Key, Vec<u8>)> {
    let mut all = Vec::new();
    tree.for_each(from, to, &mut |k, v| {
        all.push((k, v.to_vec()));
        Ok(true)
    })
    .unwrap();
    all
}

fn agrees(ops: &[Op]) {
    let (mut tree, mut cache, mut writer) = large(ENTRIES);
    let mut model: BTreeMap<Key, Vec<u8>> =
        (0..ENTRIES).map(|n| (Key::new(n * 10, 0), value(n))).collect();
    let mut epoch = 2;
    let end = |from: u64, n: u64| (Key::new(from, 0), Key::new(from + n, 0));
    for op in ops {
        match *op {
            Op::Put(k, v) => {
                let (key, value) = (Key::new(k, 0), vec![v; v as usize * 8]);
                tree.put(key, &value, epoch).unwrap();
                model.insert(key, value);
            }
            Op::Delete(k) => {
                let key = Key::new(k, 0);
                assert_eq!(tree.delete(key, epoch).unwrap(), model.remove(&key).is_some());
            }
            Op::DeleteRange(k, n) => {
                let (from, to) = end(k, n);
                let gone = tree.delete_range(from, to, epoch, &mut |_, _| {}).unwrap();
                let before = model.len();
                model.retain(|key, _| *key < from || *key >= to);
                assert_eq!(gone, (before - model.len()) as u64);
            }
            Op::Get(k) => {
                let key = Key::new(k / 10 * 10, 0);
                assert_eq!(tree.get(key, <[u8]>::to_vec).unwrap().as_ref(), model.get(&key));
            }
            Op::Scan(k, n) => {
                let (from, to) = end(k, n);
                let expected = model.range(from..to).map(|(k, v)| (*k, v.clone()));
                assert_eq!(contents(&tree, from, to), expected.collect::<Vec<_>>());
            }
            Op::Before(k) => {
                let key = Key::new(k, 0);
                let found = tree.before(Key::MIN, key, |k, v| (k, v.to_vec())).unwrap();
                let expected = model.range(..key).next_back();
                assert_eq!(found, expected.map(|(k, v)| (*k, v.clone())));
            }
            Op::Move(n) => {
                let count = writer.live.len() as u64;
                let addr = writer.live.keys().nth((n % count) as usize).copied().unwrap();
                let low = Key::new(n % (ENTRIES * 10), 0);
                (0..3).for_each(|level| tree.rewrite(low, level, Addr(addr), epoch).unwrap());
            }
            Op::Checkpoint | Op::Reopen => {
                let root = writer.checkpoint(&tree, &cache, epoch);
                epoch += 1;
                if matches!(op, Op::Reopen) {
                    cache = NodeCache::new(0, Arc::new(Counters::default()));
                    let device = writer.device.clone();
                    tree = Tree::open(ID, device, GEOMETRY, cache.clone(), root);
                }
                assert_in_budget(&tree, &cache);
            }
        }
    }
    writer.checkpoint(&tree, &cache, epoch);
    let expected: Vec<_> = model.into_iter().collect();
    assert!(contents(&tree, Key::MIN, Key::MAX) == expected, "not the same at the end");
    let mut nodes = Vec::new();
    tree.for_each_node(&mut |ptr| nodes.push(ptr.addr.0)).unwrap();
    nodes.sort_unstable();
    assert_eq!(nodes, writer.live.keys().copied().collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(property(24))]

    #[test]
    fn a_tree_of_which_little_fits_agrees_with_a_map(ops in prop::collection::vec(op(), 1..300)) {
        agrees(&ops);
    }
}

/// Found by a search.
#[test]
fn ranges_are_deleted_and_nodes_moved_between_reopens() {
    use Op::{Before, Checkpoint, Delete, DeleteRange, Get, Move, Put, Reopen, Scan};
    agrees(&[
        Get(9580),
        Get(39148),
        Get(11364),
        Delete(25650),
        Put(23888, 187),
        Get(59773),
        Move(6149745474647988456),
        Scan(1703, 733),
        Put(47906, 38),
        Put(3080, 93),
        Reopen,
        Move(8834537611116399391),
        Put(43547, 155),
        DeleteRange(57444, 2223),
        Get(40107),
        Reopen,
        DeleteRange(31478, 5843),
        DeleteRange(30610, 2369),
        DeleteRange(34126, 2139),
        DeleteRange(56028, 1300),
        Reopen,
        Checkpoint,
        Get(19945),
        Before(6901),
        Get(22943),
        Scan(17905, 5691),
        DeleteRange(10276, 5843),
        Move(17280262729686967312),
        Put(25538, 67),
        Get(44539),
        Move(1679484635005213222),
        Delete(16740),
        Get(52422),
        Delete(27080),
        Before(41696),
        Put(15034, 162),
        Put(18702, 70),
        Before(56242),
        Put(1175, 138),
        Get(47563),
        Move(12110223710937205842),
        Scan(35820, 542),
        Reopen,
        Put(14179, 57),
        Get(756),
        Put(49715, 211),
        Before(51774),
        Reopen,
        Put(47593, 245),
        Scan(21779, 28),
        Move(10031402991165080925),
    ]);
}

/// A range of keys is read level by level, each node once, whoever reads it.
#[test]
fn what_is_missing_is_found_without_reading_and_read_once() {
    let (tree, cache, _writer) = large(500);
    let (from, to) = (Key::new(1000, 0), Key::new(3000, 0));
    let mut levels = Vec::new();
    loop {
        let (mut cold, used) = (Vec::new(), cache.used_bytes());
        assert!(tree.cold_nodes(from, to, usize::MAX, &mut cold) >= to);
        assert_eq!(cache.used_bytes(), used, "looking reads nothing");
        if cold.is_empty() {
            break;
        }
        levels.push(cold.len());
        std::thread::scope(|scope| {
            // Twice, as two threads might.
            for node in cold.iter().chain(&cold) {
                scope.spawn(|| tree.read_cold(node).unwrap());
            }
        });
    }
    assert_eq!(levels[0], 1, "the root");
    assert!(levels.len() == 2 && (20..=31).contains(&levels[1]), "{levels:?}");
    assert!(tree.get(Key::new(2000, 0), |_| ()).unwrap().is_some());
    let mut cold = Vec::new();
    let end = tree.cold_nodes(Key::MIN, Key::MAX, 5, &mut cold);
    assert!(cold.len() == 5 && end < from, "five leaves of seven keys");
    assert_in_budget(&tree, &cache);
}
