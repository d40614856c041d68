//! The table of a model, its expected contents, and its environment in a volume: the quiesce lock,
//! the writer of checkpoints, the device.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::block::{DIRTY, EMPTY_BYTES, InodeBlock, InodeRef};
use crate::pool::SPARSE;
use crate::table::{DIRTY_MARK, InodeTable, RECLAIMABLE, TableConfig};
use crate::{Budget, Locked};
use shoal_base::counters::{Counter, Counters};
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Addr, Code, Epoch, Error, Ino, Result, RootId};
use shoal_device::{Device, MemDevice};
use shoal_format::inode::{Core, Inode};
use shoal_format::node::NodeHeader;
use shoal_format::{Geometry, Ptr};
use shoal_tree::{Helpers, Key, NodeCache, NodeId, NodeWriter, Tree, TreeId};
use shuttle::rand::{RngCore, thread_rng};
use shuttle::sync::RwLock;
use shuttle::thread;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
// Never held across a step of a model.
use parking_lot::Mutex;
use std::sync::Arc;

const GEOMETRY: Geometry = Geometry { segment_size: 4 << 20, segments: 16, inode_size: 512 };
const ID: NodeId = NodeId { volume: 5, root: RootId(0), tree: TreeId::Imap };
const PER_BLOCK: u64 = INODES_PER_BLOCK as u64;

fn random(below: u64) -> u64 {
    thread_rng().next_u64() % below
}

/// The parameters of a model.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    /// Initial blocks, on the device only, and the number of inodes in use in each.
    pub blocks: u64,
    pub used: u64,
    /// Blocks that may stay in memory.
    pub limit: usize,
    /// Number of threads that change and look up, and of their steps.
    pub threads: u64,
    pub steps: u64,
    /// Of ten steps, the number that make an inode and the number that free one.
    pub creates: u64,
    pub frees: u64,
    /// Numbers of checkpoints, of looks at inodes with evictions, of blocks moved like the cleaner,
    /// and of times that missing blocks are read ahead; a thread each.
    pub checkpoints: u64,
    /// Checkpoints that fail, instead; at most one.
    pub failures: u64,
    pub visits: u64,
    pub cleans: u64,
    pub aheads: u64,
    /// Scans of all blocks, by one more thread, and searches for changed ones, by another.
    pub scans: u64,
    pub searches: u64,
}

type Buffer = Vec<(Addr, Vec<u8>)>;

/// Places blocks and nodes. Their bytes are on the device only at the end of the checkpoint.
struct Writer {
    device: Arc<MemDevice>,
    next: u64,
    /// Addresses of the image being written.
    live: BTreeMap<u64, u32>,
    /// Written, but not on the device before the end of the checkpoint.
    buffer: Arc<Mutex<Buffer>>,
    /// Threads that write, including the calling one.
    threads: usize,
    retired: Vec<Ptr>,
    /// Number of blocks and nodes that can still be written.
    room: u64,
}

impl Writer {
    fn flush(&mut self) {
        for (addr, bytes) in self.buffer.lock().drain(..) {
            self.device.write_at(&bytes, addr.0).unwrap();
        }
    }
    /// Reuses space that the published image does not need. A later reader of it would read
    /// garbage.
    fn reuse(&mut self) {
        for ptr in self.retired.drain(..) {
            self.device.write_at(&vec![0xEE; ptr.len as usize], ptr.addr.0).unwrap();
        }
    }
}

/// Lets other threads run while a block is written, but not while a node is: the tree has locks of
/// its own.
fn pause(bytes: &[u8]) {
    if NodeHeader::read(bytes).is_err() {
        thread::yield_now();
    }
}

impl NodeWriter for Writer {
    fn alloc(&mut self, len: usize) -> Result<Addr> {
        if self.threads > 1 {
            self.room = self.room.checked_sub(1).ok_or(Error::Code(Code::NoSpace))?;
        }
        self.next += len as u64;
        let addr = self.next - len as u64;
        self.live.insert(addr, len as u32);
        Ok(Addr(addr))
    }
    fn write(&mut self, addr: Addr, bytes: &[u8]) -> Result<()> {
        pause(bytes);
        self.room = self.room.checked_sub(1).ok_or(Error::Code(Code::NoSpace))?;
        assert_eq!(self.live.get(&addr.0), Some(&(bytes.len() as u32)), "written as allocated");
        self.buffer.lock().push((addr, bytes.to_vec()));
        Ok(())
    }
    fn retire(&mut self, ptr: Ptr) {
        if !ptr.is_null() {
            assert_eq!(self.live.remove(&ptr.addr.0), Some(ptr.len), "retired twice");
            self.retired.push(ptr);
        }
    }
    fn helpers(&self) -> Option<Helpers> {
        let buffer = self.buffer.clone();
        let write = move |addr, bytes: &[u8]| {
            pause(bytes);
            buffer.lock().push((addr, bytes.to_vec()));
            Ok(())
        };
        (self.threads > 1).then(|| Helpers { threads: self.threads, write: Arc::new(write) })
    }
}

/// The table, its expected contents, and its environment in a volume.
pub(super) struct World {
    pub table: Arc<InodeTable>,
    budget: Arc<Budget>,
    cache: Arc<NodeCache>,
    device: Arc<MemDevice>,
    counters: Arc<Counters>,
    /// The quiesce lock: changes hold it for reading, the end of an epoch for writing.
    epoch: RwLock<Epoch>,
    /// Every inode ever made. Changed under the inode's own lock.
    model: Mutex<BTreeMap<u64, Inode>>,
    /// Numbers that are allocated.
    taken: Mutex<BTreeSet<u64>>,
    writer: shuttle::sync::Mutex<Writer>,
    /// Root of `imap` in the published image.
    image: Mutex<Ptr>,
    /// Addresses that the cleaner asked to move, with the epoch.
    moved: Mutex<BTreeMap<u64, Epoch>>,
}

fn inode(generation: u32, stamp: u64) -> Inode {
    let data: Box<[u8]> = vec![stamp as u8; stamp as usize % 24].into();
    let data_len = data.len() as u16;
    let core = Core { mode: 0o100_644, nlink: 1, generation, size: stamp, ..Core::default() };
    Inode { core: Core { data_len, ..core }, data, ..Inode::default() }
}

impl World {
    pub(super) fn new(plan: &Plan) -> World {
        let device = Arc::new(MemDevice::new(GEOMETRY.bytes()));
        let counters = Arc::new(Counters::default());
        let cache = NodeCache::new(0, counters.clone());
        let imap = Tree::create(ID, device.clone(), GEOMETRY, cache.clone());
        let budget = Budget::of_blocks(plan.limit, GEOMETRY.inode_size);
        let table = table(&device, &budget, &counters, imap, 0);
        let writer = Writer {
            device: device.clone(),
            next: GEOMETRY.segment_size,
            live: BTreeMap::new(),
            buffer: Arc::default(),
            threads: 1,
            retired: Vec::new(),
            room: u64::MAX,
        };
        let mut world = World {
            table,
            budget,
            cache,
            device,
            counters,
            epoch: RwLock::new(1),
            model: Mutex::default(),
            taken: Mutex::new(BTreeSet::from([0])),
            writer: shuttle::sync::Mutex::new(writer),
            image: Mutex::new(Ptr::NULL),
            moved: Mutex::default(),
        };
        world.preload(plan);
        world
    }

    /// Makes the initial inodes, on the device only.
    fn preload(&mut self, plan: &Plan) {
        for number in 0..plan.blocks {
            for slot in u64::from(number == 0)..plan.used {
                let at = self.table.numbers().claim(Ino(number * PER_BLOCK + slot)).unwrap();
                self.taken.lock().insert(at.ino.0);
                self.change(&mut at.write(), 1, inode(1, slot));
            }
        }
        self.checkpoint();
        let (device, counters) = (self.device.clone(), self.counters.clone());
        self.budget = Budget::of_blocks(plan.limit, GEOMETRY.inode_size);
        let (cache, at) = (self.cache.clone(), *self.image.lock());
        let imap = Tree::open(ID, device.clone(), GEOMETRY, cache, at);
        self.table = table(&device, &self.budget, &counters, imap, self.table.next_block());
        self.budget.enter(&self.table);
    }

    /// The expected contents of a locked inode.
    fn expected(&self, ino: Ino) -> Inode {
        self.model.lock().get(&ino.0).cloned().unwrap_or_default()
    }

    /// Changes a locked inode in a transaction of `epoch`.
    fn change(&self, locked: &mut Locked<'_>, epoch: Epoch, new: Inode) {
        assert_eq!(*locked.inode(), self.expected(locked.ino()), "inode {}", locked.ino());
        *locked.edit(&self.table, epoch) = new.clone();
        self.model.lock().insert(locked.ino().0, new);
    }

    fn free(&self, at: &InodeRef) {
        assert!(self.taken.lock().remove(&at.ino.0));
        self.table.numbers().give_back(at);
    }

    /// An inode that was in use a moment ago.
    fn some_inode(&self) -> Option<Ino> {
        let used: Vec<u64> = {
            let model = self.model.lock();
            model.iter().filter(|(_, inode)| inode.core.in_use()).map(|(ino, _)| *ino).collect()
        };
        (!used.is_empty()).then(|| Ino(used[random(used.len() as u64) as usize]))
    }

    /// For tests with one thread: makes an inode with this number.
    pub(super) fn make(&self, at: &InodeRef) {
        let current = self.epoch.read().unwrap();
        assert!(self.taken.lock().insert(at.ino.0), "{} was allocated twice", at.ino);
        let mut locked = at.write();
        let generation = locked.inode().core.generation;
        self.change(&mut locked, *current, inode(generation + 1, 0));
    }

    /// For tests with one thread: removes the last name of an inode, in `dir`.
    pub(super) fn unmake(&self, at: &InodeRef, dir: Ino) {
        let current = self.epoch.read().unwrap();
        let mut locked = at.write();
        let generation = locked.inode().core.generation;
        locked.leaves(dir);
        self.change(&mut locked, *current, Inode::free(generation));
        drop((current, locked));
        self.free(at);
    }

    /// Inode blocks read from the device.
    pub(super) fn block_reads(&self) -> u64 {
        self.counters.get(Counter::InodeBlockReads)
    }
    /// Nodes of `imap` read from the device.
    pub(super) fn node_reads(&self) -> u64 {
        self.counters.get(Counter::NodeReads)
    }
    /// Entries in the lists of reusable blocks.
    pub(super) fn listed(&self) -> usize {
        self.budget.listed()
    }

    /// Allocates a number for a child of some directory, a small one or a large one.
    fn allocate(&self) -> InodeRef {
        let home = Ino(1 + random(3));
        // A model without inodes has no directories either.
        let dir = self.table.get(home).unwrap_or_else(|_| {
            let inodes = vec![Inode::default(); INODES_PER_BLOCK];
            InodeRef { block: InodeBlock::new(0, inodes, Ptr::NULL, &self.budget), ino: home }
        });
        self.table.numbers().allocate(dir.at(), random(2) * 1000).unwrap()
    }

    /// Makes an inode, or fails to once it has a number.
    fn create(&self, stamp: u64) {
        let current = self.epoch.read().unwrap();
        let at = self.allocate();
        assert!(self.taken.lock().insert(at.ino.0), "{} was allocated twice", at.ino);
        if random(8) == 0 {
            return self.free(&at);
        }
        let mut locked = at.write();
        let before = locked.inode().core;
        assert!(!before.in_use(), "{} is in use", at.ino);
        self.change(&mut locked, *current, inode(before.generation + 1, stamp));
    }

    /// Changes or frees some inode.
    fn edit(&self, stamp: u64, free: bool) {
        let current = self.epoch.read().unwrap();
        let Some(ino) = self.some_inode() else { return };
        let pin = self.table.pin();
        let borrowed = self.table.borrow(&pin, ino).unwrap();
        let mut locked = borrowed.write();
        let generation = locked.inode().core.generation;
        if !locked.inode().core.in_use() {
            return;
        }
        let at = locked.place(&self.table);
        let new = if free { Inode::free(generation) } else { inode(generation, stamp) };
        if free {
            locked.leaves(Ino(1 + random(3)));
        }
        self.change(&mut locked, *current, new);
        // As in `unlink`: the transaction ends, then the lock is released, then the number is
        // freed.
        drop(current);
        drop(locked);
        if free {
            self.free(&at);
        }
    }

    /// Reads an inode.
    fn look(&self, ino: Ino) {
        let (pin, at);
        let (held, slot);
        if random(2) == 0 {
            at = self.table.get(ino).unwrap();
            slot = at.read();
        } else {
            pin = self.table.pin();
            held = self.table.borrow(&pin, ino).unwrap();
            slot = held.read();
        }
        assert_eq!(slot.inode, self.expected(ino), "inode {ino}");
    }

    /// Reads an inode without a reference to its block, which may be evicted meanwhile, read again
    /// and changed: the contents seen existed at some moment.
    fn glance(&self, ino: Ino) {
        let before = self.expected(ino);
        let seen = self.table.look(ino, Inode::clone).unwrap();
        if before == self.expected(ino) {
            assert_eq!(seen, before, "inode {ino}");
        }
    }

    /// Reads what is not in memory in runs, after other threads may have read, changed, written and
    /// evicted it.
    fn read_ahead(&self) {
        let runs = self.table.cold_runs(0..self.table.next_block());
        (0..random(50)).for_each(|_| thread::yield_now());
        for run in runs {
            self.table.read_ahead(&run);
        }
    }

    /// Reads some inode, or evicts blocks like another table that needs space.
    fn visit(&self) {
        match self.some_inode() {
            Some(ino) if random(4) == 0 => self.glance(ino),
            Some(ino) if random(2) == 0 => self.look(ino),
            _ => self.table.shrink(),
        }
    }

    /// Reads all blocks: an inode that stays as it is meanwhile is seen, once.
    fn scan(&self) {
        let before = self.model.lock().clone();
        let mut seen = BTreeMap::new();
        for number in self.table.blocks_in_use(0..u64::MAX).unwrap() {
            let mut see = |ino: Ino, inode: &Inode| {
                assert!(seen.insert(ino.0, inode.clone()).is_none(), "inode {ino} is seen twice");
            };
            self.table.with_view(number, |block| block.for_each(&mut see)).unwrap();
        }
        let after = self.model.lock().clone();
        for (ino, inode) in before.iter().filter(|(_, inode)| inode.core.in_use()) {
            if after.get(ino) == Some(inode) {
                assert_eq!(seen.get(ino), Some(inode), "inode {ino}");
            }
        }
    }

    /// Searches the blocks that have changed in the current epoch or later: those with a change
    /// that was made before the search are found.
    fn search(&self) {
        let since = *self.epoch.read().unwrap();
        let before = self.model.lock().clone();
        (0..random(40)).for_each(|_| thread::yield_now());
        let then = self.model.lock().clone();
        let found = self.table.blocks_changed(0..u64::MAX, since).unwrap();
        for (ino, _) in then.iter().filter(|(ino, inode)| before.get(ino) != Some(inode)) {
            assert!(found.contains(&(ino / PER_BLOCK)), "inode {ino} since epoch {since}");
        }
    }

    fn step(&self, plan: &Plan, stamp: u64) {
        match random(10) {
            r if r < plan.creates => self.create(stamp),
            r => self.edit(stamp, r < plan.creates + plan.frees),
        }
    }

    /// Checks the state under quiesce at the end of `epoch`, before its checkpoint.
    fn assert_marked(&self, epoch: Epoch) {
        let (this, other) = (epoch as usize % 2, (epoch as usize + 1) % 2);
        let (mut dirty, mut blocks) = (0, 0);
        for (number, block) in self.table.blocks.iter() {
            let flags = block.flags.load(Ordering::SeqCst);
            let marked = |i: usize| self.table.blocks.has_mark(number, DIRTY_MARK[i]);
            assert_eq!(flags & DIRTY[this] != 0, marked(this), "block {number}: {flags}");
            assert!(flags & DIRTY[other] == 0 && !marked(other), "left of the epoch before");
            dirty += block.bytes.counted_dirty();
            blocks += u64::from(marked(this));
        }
        // Locks are released after the quiesce, and changed bytes are counted then.
        let off = self.budget.dirty_held().abs_diff(dirty as u64);
        assert!(off <= 4096, "{off} bytes more or less are counted as dirty");
        let longest = u64::from(GEOMETRY.inode_size + 4) * PER_BLOCK;
        assert_eq!(self.budget.dirty_bytes(), blocks * longest, "blocks counted as dirty");
    }

    fn checkpoint(&self) {
        // Held all the time: one at a time.
        let mut writer = self.writer.lock().unwrap();
        let (epoch, model, next_block) = {
            let mut current = self.epoch.write().unwrap();
            self.assert_marked(*current);
            *current += 1;
            let model = self.model.lock().clone();
            (*current - 1, model, self.table.next_block())
        };
        self.cache.writing(epoch);
        // One, two, three, one: the first checkpoint only prepares.
        writer.threads = 1 + (epoch as usize + 2) % 3;
        let (root, written) = self.table.checkpoint(epoch, &mut *writer).unwrap();
        thread::yield_now();
        writer.flush();
        self.cache.written();
        self.table.finish(written);
        writer.reuse();
        *self.image.lock() = root;
        self.assert_image(epoch, root, model, next_block);
        for (addr, asked) in &*self.moved.lock() {
            assert!(*asked > epoch || !writer.live.contains_key(addr), "{addr} was not moved");
        }
    }

    /// Checks that the device has the state at the end of the epoch.
    fn assert_image(&self, epoch: Epoch, root: Ptr, model: BTreeMap<u64, Inode>, next_block: u64) {
        let cache = NodeCache::new(0, self.counters.clone());
        let imap = Tree::open(ID, self.device.clone(), GEOMETRY, cache, root);
        let budget = Budget::of_blocks(usize::MAX, GEOMETRY.inode_size);
        let image = table(&self.device, &budget, &self.counters, imap, next_block);
        let mut found = BTreeMap::new();
        image
            .for_each_block(&mut |number, ptr, free| {
                assert!(number < next_block, "block {number} will be begun again");
                for (i, inode) in image.read_block(number, ptr)?.into_iter().enumerate() {
                    assert_eq!(free & 1 << i == 0, inode.core.in_use(), "block {number}: {free:x}");
                    if inode != Inode::default() {
                        found.insert(number * PER_BLOCK + i as u64, inode);
                    }
                }
                Ok(true)
            })
            .unwrap();
        assert_eq!(found, model, "image of epoch {epoch}");
    }

    /// A checkpoint that fails, after some blocks or when everything is written. The volume is
    /// read-only from then on, and nothing of the checkpoint need be on the device.
    fn fail(&self) {
        let mut writer = self.writer.lock().unwrap();
        let epoch = {
            let mut current = self.epoch.write().unwrap();
            *current += 1;
            *current - 1
        };
        writer.room = random(8);
        writer.threads = 1 + random(3) as usize;
        drop(self.table.checkpoint(epoch, &mut *writer));
    }

    /// Moves some block, and now and then `imap`, like the cleaner.
    fn clean(&self) {
        let Some(ino) = self.some_inode() else { return };
        let current = self.epoch.read().unwrap();
        let number = ino.0 / PER_BLOCK;
        let addr = self.table.block(number).unwrap().disk.lock().addr;
        self.moved.lock().insert(addr.0, *current);
        self.table.rewrite_block(number, addr, *current).unwrap();
        let root = self.image.lock().addr;
        if random(3) == 0 && root.0 != 0 {
            self.moved.lock().insert(root.0, *current);
            self.table.rewrite_imap_node(Key::MIN, 0, root);
        }
    }

    /// Checks, when all threads are done, memory, free numbers, and evictable blocks.
    fn finish(&self) {
        self.assert_inodes();
        self.assert_numbers();
        self.checkpoint();
        self.checkpoint();
        let blocks: Vec<Arc<InodeBlock>> = self.table.blocks.iter().map(|(_, b)| b).collect();
        let counted: usize = blocks.iter().map(|block| block.bytes.counted()).sum();
        assert_eq!(self.budget.used_bytes(), counted as u64, "bytes counted");
        let dirty: usize = blocks.iter().map(|block| block.bytes.counted_dirty()).sum();
        assert_eq!(self.budget.dirty_bytes(), 0);
        assert_eq!(self.budget.dirty_held(), dirty as u64, "bytes counted as dirty");
        assert!(dirty <= 4096, "{dirty} bytes of clean blocks are counted as dirty");
        for block in &blocks {
            let slots: usize = block.slots.iter().map(|slot| slot.read().bytes()).sum();
            assert_eq!(block.bytes.held(), EMPTY_BYTES + slots, "block {}", block.number);
        }
        for block in &blocks {
            let clean = !block.is_dirty() && !block.disk.lock().is_null();
            let marked = self.table.blocks.has_mark(block.number, RECLAIMABLE);
            assert!(!clean || marked, "block {} can never leave memory", block.number);
            assert_eq!(block.flags.load(Ordering::SeqCst), 0);
        }
        drop(blocks);
        self.table.numbers().forget_cursors();
        (0..8).for_each(|_| self.table.shrink());
        let stay = self.table.blocks.iter().filter(|b| !b.1.disk.lock().is_null()).count();
        assert!(stay <= self.budget.limit_blocks(), "{stay} blocks cannot leave");
        for (number, block) in self.table.blocks.iter() {
            assert!(self.table.blocks.remove_if(number, &block));
        }
        // Nodes with a reservation stay.
        let bare = shoal_xarray::XArray::<Arc<InodeBlock>>::new().memory_bytes();
        assert_eq!(self.table.blocks.memory_bytes(), bare, "a reservation was not given back");
    }

    /// The same for a volume that has become read-only: unwritten blocks cannot be evicted.
    fn finish_failed(&self) {
        (0..8).for_each(|_| self.table.shrink());
        self.assert_inodes();
    }

    fn assert_inodes(&self) {
        let all: Vec<u64> = self.model.lock().keys().copied().collect();
        all.into_iter().for_each(|ino| self.look(Ino(ino)));
    }

    /// Checks that each number is either allocated or free, and that every free one will be found.
    fn assert_numbers(&self) {
        let next_block = self.table.next_block();
        assert!(self.table.block(next_block).is_err());
        let known = self.table.numbers().candidates();
        let taken = self.taken.lock().clone();
        for number in 0..next_block {
            // Otherwise skipped before a crash.
            let Ok(block) = self.table.block(number) else { continue };
            let free = block.free.load(Ordering::SeqCst);
            for slot in 0..PER_BLOCK {
                let is_taken = taken.contains(&(number * PER_BLOCK + slot));
                assert_eq!(free & 1 << slot == 0, is_taken, "slot {slot} of block {number}");
            }
            let sparse = free.count_ones() >= SPARSE;
            assert!(!sparse || known.contains(&number), "block {number} is never looked at");
        }
        // No lower one was left out.
        assert!(taken.last().is_none_or(|last| last / PER_BLOCK < next_block));
    }
}

/// The journal names an inode after blocks without any record: all numbers up to it must be
/// allocated, each once, before many new blocks are begun.
pub(super) fn claim_and_fill(plan: Plan) {
    let world = World::new(&plan);
    let at = world.table.numbers().claim(Ino(5 * PER_BLOCK + 7)).unwrap();
    let mut taken = world.taken.lock();
    taken.insert(at.ino.0);
    let low = |taken: &BTreeSet<u64>| taken.range(..6 * PER_BLOCK).count() as u64;
    // The last block first; a search follows after 32 new blocks.
    let first = world.allocate().ino.0;
    assert_eq!(first / PER_BLOCK, 5);
    assert!(taken.insert(first));
    while low(&taken) < 6 * PER_BLOCK {
        let ino = world.allocate().ino.0;
        assert!(ino < 40 * PER_BLOCK, "{ino} of a new block, {} below are free", low(&taken));
        assert!(taken.insert(ino), "{ino} is allocated twice");
    }
}

fn table(
    device: &Arc<MemDevice>,
    budget: &Arc<Budget>,
    counters: &Arc<Counters>,
    imap: Tree,
    next_block: u64,
) -> Arc<InodeTable> {
    let config = TableConfig {
        root: ID.root,
        volume: ID.volume,
        geometry: GEOMETRY,
        device: device.clone(),
        budget: budget.clone(),
        counters: counters.clone(),
    };
    Arc::new(InodeTable::new(config, imap, next_block, 0))
}

/// The end of a checkpoint only, while other threads evict blocks, and possibly one changes a
/// written block.
pub(super) fn run_end_of_checkpoint(plan: Plan) {
    let world = Arc::new(World::new(&plan));
    world.edit(1, false);
    let written = {
        let mut writer = world.writer.lock().unwrap();
        *world.epoch.write().unwrap() += 1;
        let (_, written) = world.table.checkpoint(2, &mut *writer).unwrap();
        writer.flush();
        world.cache.written();
        written
    };
    let spawn = |job: Box<dyn FnOnce(&World) + Send>| {
        let world = world.clone();
        thread::spawn(move || job(&world))
    };
    let mut threads = vec![
        spawn(Box::new(|world| world.table.finish(written))),
        spawn(Box::new(|world| world.table.shrink())),
    ];
    if plan.threads > 0 {
        threads.push(spawn(Box::new(|world| world.edit(2, false))));
    }
    threads.into_iter().for_each(|t| t.join().unwrap());
    world.finish();
}

type Job = Box<dyn Fn(&World, u64) + Send>;

pub(super) fn run(plan: Plan) {
    let world = Arc::new(World::new(&plan));
    let mut threads = Vec::new();
    let mut spawn = |times: u64, f: Job| {
        if times > 0 {
            let world = world.clone();
            threads.push(thread::spawn(move || (1..=times).for_each(|n| f(&world, n))));
        }
    };
    for me in 1..=plan.threads {
        spawn(plan.steps, Box::new(move |world, n| world.step(&plan, me * 1000 + n)));
    }
    spawn(plan.checkpoints, Box::new(|world, _| world.checkpoint()));
    spawn(plan.failures, Box::new(|world, _| world.fail()));
    spawn(plan.visits, Box::new(|world, _| world.visit()));
    spawn(plan.cleans, Box::new(|world, _| world.clean()));
    spawn(plan.aheads, Box::new(|world, _| world.read_ahead()));
    spawn(plan.scans, Box::new(|world, _| world.scan()));
    spawn(plan.searches, Box::new(|world, _| world.search()));
    threads.into_iter().for_each(|t| t.join().unwrap());
    match plan.failures {
        0 => world.finish(),
        _ => world.finish_failed(),
    }
}
