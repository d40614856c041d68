//! Models of concurrent use, run under the scheduler of `shuttle`, which selects the next thread at
//! every lock and atomic (`sync.rs`). The same seed gives the same runs.
//!
//! Other or longer runs: `SHOAL_MODEL_SEED=7 SHOAL_MODEL_RUNS=5000 cargo test -p shoal-tree --lib`.
//! A failure prints its schedule; `SHOAL_MODEL_SCHEDULE=… cargo test -p shoal-tree --lib NAME`
//! replays it.
//!
//! Trees are deep with few keys here: large values, and six children per inner node.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::cell::LeafCell;
use crate::inner::{Children, InnerCell};
use crate::{Action, Helpers, Key, NodeCache, NodeId, NodeWriter, Tree, TreeId};
use shoal_base::counters::Counters;
use shoal_base::limits::ALIGN;
use shoal_base::{Addr, Epoch, Result, RootId};
use shoal_device::{Device, MemDevice};
use shoal_format::node::{Node, NodeHeader};
use shoal_format::{Geometry, Ptr};
use shuttle::rand::{RngCore, thread_rng};
use shuttle::scheduler::{RandomScheduler, ReplayScheduler};
use shuttle::sync::{Mutex, RwLock};
use shuttle::{Config, Runner, thread};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

const GEOMETRY: Geometry = Geometry { segment_size: 4 << 20, segments: 64, inode_size: 512 };
const ID: NodeId = NodeId { volume: 5, root: RootId(0), tree: TreeId::Dirents };
const NODE: usize = shoal_base::limits::NODE_SIZE;
/// Number of keys of each thread.
const KEYS: u64 = 120;
/// Bytes of a value: seven fit in a leaf.
const VALUE: usize = 2000;

/// All cells made.
#[derive(Default)]
struct Born {
    leaves: Vec<Weak<LeafCell>>,
    inners: Vec<Weak<InnerCell>>,
}

thread_local! {
    // All threads of a model run in one thread of the system.
    static BORN: RefCell<Born> = RefCell::default();
}

/// Registers every leaf cell, so that a model can tell which are still alive.
pub(crate) fn leaf_born(cell: &Arc<LeafCell>) {
    BORN.with_borrow_mut(|born| born.leaves.push(Arc::downgrade(cell)));
}
/// Registers every inner cell.
pub(crate) fn inner_born(cell: &Arc<InnerCell>) {
    BORN.with_borrow_mut(|born| born.inners.push(Arc::downgrade(cell)));
}

fn alive<T>(cells: &[Weak<T>]) -> usize {
    cells.iter().filter(|cell| cell.strong_count() > 0).count()
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

fn check(runs: u64, model: impl Fn() + Send + Sync + 'static) {
    let mut config = Config::new();
    config.stack_size = 1 << 20;
    let model = move || {
        BORN.take();
        model();
    };
    if let Ok(schedule) = std::env::var("SHOAL_MODEL_SCHEDULE") {
        let scheduler = ReplayScheduler::new_from_encoded(&schedule);
        Runner::new(scheduler, config).run(model);
        return;
    }
    let runs = from_env("SHOAL_MODEL_RUNS", runs) as usize;
    let scheduler = RandomScheduler::new_from_seed(from_env("SHOAL_MODEL_SEED", 1), runs);
    Runner::new(scheduler, config).run(model);
}

fn random(below: u64) -> u64 {
    thread_rng().next_u64() % below
}

/// Places nodes, and reuses the space that the image before the published one used.
struct Writer {
    device: Arc<MemDevice>,
    next: u64,
    /// Nodes of the image being written, each with the level and key that the cleaner uses.
    live: BTreeMap<u64, (u8, Key)>,
    retired: Vec<u64>,
    free: Vec<u64>,
    /// Written nodes that are not on the device before the end of the checkpoint.
    buffer: Arc<Mutex<Vec<Kept>>>,
    /// Threads that write, including the calling one.
    threads: usize,
    /// Addresses that the cleaner asked to move, with the epoch. They are not reused.
    moved: BTreeMap<u64, Epoch>,
}

impl Writer {
    fn flush(&mut self) {
        for (addr, bytes, node) in self.buffer.lock().unwrap().drain(..) {
            self.device.write_at(&bytes, addr.0).unwrap();
            self.live.insert(addr.0, (node.level(), node.low()));
        }
    }
}

impl NodeWriter for Writer {
    fn alloc(&mut self, len: usize) -> Result<Addr> {
        let addr = self.free.pop().unwrap_or_else(|| {
            // Any node fits in the space of another.
            assert!(len <= NODE);
            self.next += NODE as u64;
            self.next - NODE as u64
        });
        assert!(self.live.insert(addr, (0, Key::MIN)).is_none(), "{addr} is still in use");
        Ok(Addr(addr))
    }
    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        assert!(self.live.contains_key(&addr.0), "written where nothing was allocated");
        keep(&self.buffer, addr, bytes)
    }
    fn retire(&mut self, ptr: Ptr) {
        if !ptr.is_null() {
            assert!(self.live.remove(&ptr.addr.0).is_some(), "retired twice");
            self.retired.push(ptr.addr.0);
        }
    }
    fn helpers(&self) -> Option<Helpers> {
        let buffer = self.buffer.clone();
        let write = move |addr, bytes: &[u8]| keep(&buffer, addr, bytes);
        (self.threads > 1).then(|| Helpers { threads: self.threads, write: Arc::new(write) })
    }
}

/// A written node: its address, its bytes, and its contents.
type Kept = (Addr, Vec<u8>, Node);

/// Keeps adjacent nodes until the checkpoint ends.
fn keep(buffer: &Mutex<Vec<Kept>>, addr: Addr, mut bytes: &[u8]) -> Result<()> {
    let mut at = addr;
    while !bytes.is_empty() {
        let node = Node::decode_found(bytes, Node::frame(), (ID, None, at))?;
        let len = NodeHeader::read(bytes).unwrap().len as usize;
        buffer.lock().unwrap().push((at, bytes[..len].to_vec(), node));
        let next = len.next_multiple_of(ALIGN);
        bytes = bytes.get(next..).unwrap_or_default();
        at = Addr(at.0 + next as u64);
    }
    Ok(())
}

/// The parameters of a model.
#[derive(Clone, Copy)]
struct Plan {
    /// Bytes of the cache.
    cache: usize,
    /// Initial keys of each thread, on the device only.
    preload: u64,
    /// Number of threads that change and look up, and of their steps.
    threads: u64,
    steps: u64,
    /// Of ten steps, the number of puts and of deletes.
    puts: u64,
    deletes: u64,
    /// Number of checkpoints by a thread that also moves nodes like the cleaner, and evicts.
    checkpoints: u64,
    cleans: u64,
    drops: u64,
    scans: u64,
    /// Searches for changed leaves.
    searches: u64,
}

const PLAN: Plan = Plan {
    cache: usize::MAX,
    preload: 0,
    threads: 2,
    steps: 40,
    puts: 5,
    deletes: 2,
    checkpoints: 0,
    cleans: 0,
    drops: 0,
    scans: 0,
    searches: 0,
};

/// The tree, its expected contents, and its environment.
struct World {
    tree: Tree,
    cache: Arc<NodeCache>,
    device: Arc<MemDevice>,
    /// The quiesce lock: changes hold it for reading, the end of an epoch for writing.
    epoch: RwLock<Epoch>,
    model: Mutex<BTreeMap<Key, u64>>,
    writer: Mutex<Writer>,
}

fn value(key: Key, stamp: u64) -> Vec<u8> {
    [key.hi, key.lo, stamp].iter().flat_map(|n| n.to_le_bytes()).cycle().take(VALUE).collect()
}

fn stamp(key: Key, bytes: &[u8]) -> u64 {
    let stamp = u64::from_le_bytes(bytes[16..24].try_into().unwrap());
    assert_eq!(bytes, value(key, stamp), "torn value");
    stamp
}

fn contents(tree: &Tree) -> BTreeMap<Key, u64> {
    let (mut all, mut last) = (BTreeMap::new(), None);
    tree.for_each(Key::MIN, Key::MAX, &mut |k, v| {
        assert!(last.replace(k).is_none_or(|last| last < k), "scan out of order");
        all.insert(k, stamp(k, v));
        Ok(true)
    })
    .unwrap();
    all
}

impl World {
    fn new(plan: Plan) -> World {
        let device = Arc::new(MemDevice::new(GEOMETRY.bytes()));
        let cache = |limit| NodeCache::with_limit(limit, Arc::new(Counters::default()));
        let mut writer = Writer {
            device: device.clone(),
            next: GEOMETRY.segment_size,
            live: BTreeMap::new(),
            retired: Vec::new(),
            free: Vec::new(),
            buffer: Arc::default(),
            threads: 1,
            moved: BTreeMap::new(),
        };
        let mut model = BTreeMap::new();
        let mut tree = Tree::create(ID, device.clone(), GEOMETRY, cache(usize::MAX));
        let mut used = tree.cache.clone();
        let mut epoch = 1;
        if plan.preload > 0 {
            for lo in 0..plan.preload {
                for thread in 0..plan.threads {
                    let key = Key::new(lo, thread);
                    tree.put(key, &value(key, 0), epoch).unwrap();
                    model.insert(key, 0);
                }
            }
            let root = tree.checkpoint(epoch, &mut writer).unwrap();
            writer.flush();
            drop(tree);
            BORN.take();
            used = cache(plan.cache);
            tree = Tree::open(ID, device.clone(), GEOMETRY, used.clone(), root);
            epoch += 1;
        }
        let (epoch, model, writer) = (RwLock::new(epoch), Mutex::new(model), Mutex::new(writer));
        World { tree, cache: used, device, epoch, model, writer }
    }

    /// One step of thread `me`, whose keys no other thread changes.
    fn step(&self, plan: &Plan, me: u64, n: u64) {
        let key = Key::new(random(KEYS), me);
        let current = self.epoch.read().unwrap();
        match random(10) {
            r if r < plan.puts => {
                let bytes = value(key, n);
                self.tree.update(key, *current, &mut |_| Action::Put(&bytes)).unwrap();
                self.model.lock().unwrap().insert(key, n);
            }
            r if r < plan.puts + plan.deletes => {
                // Ranges empty whole leaves, which are then merged.
                let to = Key::new(key.hi + random(KEYS / 2) + 1, 0);
                let mut at = key;
                while at < to {
                    let was = self.tree.delete(at, *current).unwrap();
                    let there = self.model.lock().unwrap().remove(&at).is_some();
                    assert_eq!(was, there, "deleting {at:?}");
                    at = Key::new(at.hi + 1, me);
                }
            }
            _ => {}
        }
        drop(current);
        let key = if random(2) == 0 { key } else { Key::new(random(KEYS), me) };
        let found = self.tree.get(key, |bytes| stamp(key, bytes)).unwrap();
        assert_eq!(found, self.model.lock().unwrap().get(&key).copied(), "looking up {key:?}");
    }

    fn checkpoint(&self) {
        let (epoch, model) = {
            let mut current = self.epoch.write().unwrap();
            *current += 1;
            (*current - 1, self.model.lock().unwrap().clone())
        };
        self.cache.writing(epoch);
        let mut writer = self.writer.lock().unwrap();
        writer.threads = 1 + random(3) as usize;
        let root = self.tree.checkpoint(epoch, &mut *writer).unwrap();
        writer.flush();
        assert_written(&self.tree.root, epoch);
        let counters = Arc::new(Counters::default());
        // Not registered: its cells are not those of the tree under test.
        let born = BORN.take();
        let image = NodeCache::with_limit(usize::MAX, counters);
        let image = Tree::open(ID, self.device.clone(), GEOMETRY, image, root);
        assert_eq!(contents(&image), model, "image of epoch {epoch}");
        drop(image);
        let others = BORN.replace(born);
        BORN.with_borrow_mut(|born| {
            born.leaves.extend(others.leaves);
            born.inners.extend(others.inners);
        });
        let mut retired = std::mem::take(&mut writer.retired);
        retired.retain(|addr| !writer.moved.contains_key(addr));
        writer.free.extend(retired);
        for (addr, asked) in &writer.moved {
            assert!(*asked > epoch || !writer.live.contains_key(addr), "{addr} was not moved");
        }
        self.cache.written();
    }

    /// Moves a node, like the cleaner.
    fn clean(&self) {
        let mut writer = self.writer.lock().unwrap();
        // Inner nodes are few, so select them as often as leaves.
        let least = random(2) as u8;
        let nodes: Vec<_> = {
            let nodes = writer.live.iter().map(|(addr, node)| (*addr, *node));
            nodes.filter(|(_, (level, _))| *level >= least).collect()
        };
        if let Some((addr, (level, low))) = nodes.get(random(nodes.len().max(1) as u64) as usize) {
            let current = self.epoch.read().unwrap();
            writer.moved.insert(*addr, *current);
            drop(writer);
            self.tree.rewrite(*low, *level, Addr(*addr), *current).unwrap();
        }
    }

    /// Searches the leaves that have changed since a moment: those with changes that were made
    /// before the search are found.
    fn search(&self) {
        let now = || {
            let current = self.epoch.write().unwrap();
            (*current, self.model.lock().unwrap().clone())
        };
        let (since, before) = now();
        (0..random(60)).for_each(|_| thread::yield_now());
        let (_, then) = now();
        let (mut from, mut young) = (Key::MIN, Vec::new());
        while from < Key::MAX {
            let part = self.tree.young(from, since).unwrap();
            assert!(part.until > from, "{part:?} from {from:?}");
            young.extend(part.leaves);
            from = part.until;
        }
        let (_, after) = now();
        for (key, stamp) in then {
            let changed = before.get(&key) != Some(&stamp) && after.get(&key) == Some(&stamp);
            let found = young.iter().any(|(low, high)| *low <= key && key < *high);
            assert!(!changed || found, "{key:?} has changed since epoch {since}");
        }
    }

    /// Checks, after all threads are done, the tree, its image and its memory.
    fn finish(&self, plan: &Plan) {
        assert_eq!(contents(&self.tree), *self.model.lock().unwrap());
        self.checkpoint();
        self.checkpoint();
        let mut nodes = Vec::new();
        self.tree.for_each_node(&mut |ptr| nodes.push(ptr.addr.0)).unwrap();
        nodes.sort_unstable();
        let live: Vec<u64> = self.writer.lock().unwrap().live.keys().copied().collect();
        assert_eq!(nodes, live, "nodes in use are those that were not retired");
        let census = self.tree.census();
        let (leaves, inners) = BORN.with_borrow(|born| (alive(&born.leaves), alive(&born.inners)));
        assert_eq!((leaves, inners), (census.leaves, census.inners), "cells out of the tree");
        if plan.cache < usize::MAX {
            (0..100).for_each(|_| self.cache.shrink());
            assert!(self.cache.used_bytes() <= plan.cache as u64, "{census:?}");
        }
    }
}

/// Checks that no change up to `epoch` is unwritten: no mark was lost. Other threads continue.
fn assert_written(cell: &InnerCell, epoch: Epoch) {
    let data = {
        let meta = cell.meta.lock();
        assert!(!meta.dirty || meta.epoch > epoch, "an inner node was not written");
        let old = meta.old.as_ref().is_some_and(|(_, dirty)| *dirty);
        assert!(!old || meta.epoch > epoch + 1, "an old array was not written");
        cell.now.load_full()
    };
    match data.as_deref().map(|data| &data.children) {
        Some(Children::Leaves(leaves)) => leaves.iter().for_each(|leaf| {
            let state = leaf.state.read();
            assert!(!state.dirty || state.epoch > epoch, "a leaf was not written");
            assert!(state.old.is_none() || state.epoch > epoch + 1, "an old leaf was not written");
        }),
        Some(Children::Inners(inners)) => inners.iter().for_each(|i| assert_written(i, epoch)),
        None => {}
    }
}

type Job = Box<dyn Fn(&World, u64) + Send>;

fn run(plan: Plan) {
    let world = Arc::new(World::new(plan));
    let mut threads = Vec::new();
    let mut spawn = |times: u64, f: Job| {
        if times > 0 {
            let world = world.clone();
            threads.push(thread::spawn(move || (1..=times).for_each(|n| f(&world, n))));
        }
    };
    for me in 0..plan.threads {
        spawn(plan.steps, Box::new(move |world, n| world.step(&plan, me, n)));
    }
    spawn(plan.checkpoints, Box::new(|world, _| world.checkpoint()));
    spawn(plan.cleans, Box::new(|world, _| world.clean()));
    spawn(plan.drops, Box::new(|world, _| world.cache.shrink()));
    spawn(plan.searches, Box::new(|world, _| world.search()));
    spawn(
        plan.scans,
        Box::new(|world, _| {
            // Between changes, which are in the tree before they are in the model.
            let now = || {
                let _current = world.epoch.write().unwrap();
                world.model.lock().unwrap().clone()
            };
            let (model, seen, after) = (now(), contents(&world.tree), now());
            // Entries present before and after the scan must be in it.
            for (key, stamp) in model {
                let stayed = after.get(&key) == Some(&stamp);
                assert!(!stayed || seen.contains_key(&key), "{key:?} not in the scan");
            }
        }),
    );
    threads.into_iter().for_each(|t| t.join().unwrap());
    world.finish(&plan);
}

#[test]
fn splits_and_merges_lose_nothing() {
    check(100, || run(Plan { threads: 3, scans: 4, ..PLAN }));
    check(100, || run(Plan { deletes: 5, puts: 4, scans: 4, ..PLAN }));
}

#[test]
fn a_checkpoint_writes_its_epoch() {
    check(120, || run(Plan { checkpoints: 4, ..PLAN }));
    check(120, || run(Plan { deletes: 4, puts: 4, checkpoints: 4, cleans: 6, ..PLAN }));
}

#[test]
fn dropped_cells_come_back() {
    let plan = Plan { cache: 2 * NODE, preload: KEYS, puts: 0, deletes: 0, ..PLAN };
    check(100, move || run(Plan { drops: 10, scans: 2, ..plan }));
    check(120, move || run(Plan { drops: 10, scans: 2, puts: 1, deletes: 1, ..plan }));
}

#[test]
fn moved_and_dropped() {
    // Only lookups and the cleaner: inner nodes are written with nothing below them in memory.
    let plan = Plan { cache: NODE, preload: KEYS, puts: 0, deletes: 0, steps: 30, ..PLAN };
    check(120, move || run(Plan { drops: 40, cleans: 12, checkpoints: 5, ..plan }));
}

#[test]
fn shrinking_while_dropped() {
    // One thread empties leaf after leaf, so that inner nodes are merged and levels removed.
    let plan = Plan { cache: NODE, preload: KEYS, threads: 1, puts: 2, deletes: 5, ..PLAN };
    check(120, move || run(Plan { drops: 40, scans: 2, checkpoints: 3, ..plan }));
}

#[test]
fn dropping_changing_and_writing() {
    let plan = Plan { cache: 2 * NODE, preload: KEYS, drops: 10, checkpoints: 4, ..PLAN };
    check(120, move || run(Plan { puts: 2, deletes: 1, cleans: 4, ..plan }));
    check(120, move || run(Plan { puts: 3, deletes: 3, steps: 60, threads: 3, ..plan }));
}

#[test]
fn a_search_misses_no_changed_leaf() {
    let plan = Plan { preload: KEYS, drops: 10, checkpoints: 4, searches: 4, ..PLAN };
    check(150, move || run(Plan { cache: 2 * NODE, puts: 2, deletes: 1, cleans: 4, ..plan }));
    check(150, move || run(Plan { puts: 3, deletes: 3, ..plan }));
    // Few changes: most of the tree is old, and not in memory.
    check(150, move || run(Plan { cache: NODE, drops: 40, puts: 1, deletes: 0, ..plan }));
}
