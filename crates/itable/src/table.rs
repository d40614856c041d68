//! Finding an inode: in the XArray of blocks in memory, or on the device through `imap`.

use crate::alloc::Allocator;
use crate::block::{InodeBlock, InodeRef};
use crate::budget::Budget;
use crate::sync::{AtomicU64, Mutex, SHARDS, Step, atomically, step};
use shoal_base::cold::{self, Cold};
use shoal_base::counters::{Counter, Counters};
use shoal_base::invariant;
use shoal_base::limits::{INODE_BLOCKS_MAX, INODES_PER_BLOCK};
use shoal_base::planted::{self, Defect};
use shoal_base::shard::spread;
use shoal_base::{Addr, Code, Epoch, Error, Ino, Result, RootId};
use shoal_device::Device;
use shoal_format::bytes::Reader;
use shoal_format::inode::{BlockId, Inode, decode_block};
use shoal_format::{Geometry, Ptr};
use shoal_tree::{Batch, Key, Tree};
use shoal_xarray::{AllocError, Mark, Reservation, XArray};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// More inodes than any root can have.
const INODES_MAX: u64 = 1 << 62;
/// Blocks that one call looks at for something to drop.
const CLOCK_STEPS: usize = 64;

/// Marks of blocks that the checkpoint of an even or odd epoch has to write.
pub(crate) const DIRTY_MARK: [Mark; 2] = [Mark::A, Mark::B];
/// Mark of blocks that may leave memory, unless somebody uses them.
pub(crate) const RECLAIMABLE: Mark = Mark::C;

/// What a table needs to know.
pub struct TableConfig {
    /// Root that it serves.
    pub root: RootId,
    /// Low half of the volume id.
    pub volume: u64,
    /// Shape of the volume.
    pub geometry: Geometry,
    /// Where the blocks are.
    pub device: Arc<dyn Device>,
    /// Memory for blocks, shared by the volume's tables.
    pub budget: Arc<Budget>,
    /// Counters of the volume.
    pub counters: Arc<Counters>,
}

/// The inode table of a root.
pub struct InodeTable {
    pub(crate) config: TableConfig,
    /// Block number → pointer 24, mask of free slots 4.
    pub(crate) imap: Step<Tree>,
    /// The blocks in memory, by number. What is to be written and what may be dropped is marked.
    pub(crate) blocks: Step<XArray<Arc<InodeBlock>>>,
    loading: Box<[Mutex<()>]>,
    /// Where the search for blocks to drop goes on.
    hand: Mutex<u64>,
    pub(crate) alloc: Allocator,
    /// Inodes in use, less what the thread shards have counted.
    pub(crate) inodes: AtomicU64,
    /// `imap` nodes that the next checkpoint shall write elsewhere: lowest key, level, address.
    pub(crate) imap_moves: Mutex<Vec<(Key, u8, Addr)>>,
}

impl InodeTable {
    /// The table over this `imap`; blocks from `next_block` on have never been used.
    pub fn new(config: TableConfig, imap: Tree, next_block: u64, inodes: u64) -> InodeTable {
        InodeTable {
            config,
            imap: step(imap),
            blocks: step(XArray::new()),
            loading: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hand: Mutex::default(),
            // There are no more, whatever is said.
            alloc: Allocator::new(next_block.min(INODE_BLOCKS_MAX)),
            inodes: AtomicU64::new(inodes),
            imap_moves: Mutex::default(),
        }
    }

    /// The `imap` tree, to look at.
    pub fn imap(&self) -> &Tree {
        &self.imap
    }
    /// Inodes in use: exact while no transaction runs, about right beside them.
    pub fn inodes(&self) -> u64 {
        let base = self.inodes.load(Ordering::Relaxed);
        let counts = self.alloc.shards.iter().map(|shard| shard.inodes.load(Ordering::Relaxed));
        let sum = counts.fold(base, u64::wrapping_add);
        // An unlink that is counted although the create before it is not.
        if sum > INODES_MAX { 0 } else { sum }
    }
    /// Counts inodes that came into use or were freed: in the thread's own cache line, once it has
    /// one.
    #[inline]
    pub fn count_inodes(&self, delta: i64) {
        let count = match self.alloc.shards.mine_if_used() {
            Some(shard) => &shard.inodes,
            None => &self.inodes,
        };
        count.fetch_add(delta as u64, Ordering::Relaxed);
        self.imap.mark_root_for_next();
    }
    /// Blocks from this number on have never been used.
    pub fn next_block(&self) -> u64 {
        self.alloc.next_block()
    }

    /// What the header of this block says of it.
    pub fn block_id(&self, number: u64) -> BlockId {
        BlockId {
            volume: self.config.volume,
            first: Ino::new(self.config.root, number * INODES_PER_BLOCK as u64),
            inode_size: self.config.geometry.inode_size,
        }
    }

    /// The inode's place in memory, whether it is in use or not. `ESTALE` when its block has never
    /// been used.
    #[inline]
    pub fn get(&self, ino: Ino) -> Result<InodeRef> {
        let block = self.block(ino.index() / INODES_PER_BLOCK as u64)?;
        Ok(InodeRef { block, ino })
    }

    #[inline]
    pub(crate) fn block(&self, number: u64) -> Result<Arc<InodeBlock>> {
        if let Some(block) = self.blocks.get(number) {
            if !block.used.load(Ordering::Relaxed) {
                block.used.store(true, Ordering::Relaxed);
            }
            return Ok(block);
        }
        self.load(number)
    }

    #[cold]
    fn load(&self, number: u64) -> Result<Arc<InodeBlock>> {
        let first = || Ino::new(self.config.root, number * INODES_PER_BLOCK as u64);
        cold::check(|| Cold::Block(first()))?;
        let _one = self.loading(number).lock();
        if let Some(block) = self.blocks.get(number) {
            return Ok(block);
        }
        let place = self.blocks.reserve(number).map_err(no_memory)?;
        let found = self.imap.get(Key::new(number, 0), decode_imap)?.flatten();
        let Some((ptr, _)) = found else { return Err(Error::Code(Code::Stale)) };
        let block = InodeBlock::new(number, self.read_block(number, ptr)?, ptr);
        Ok(self.enter(place, block))
    }

    /// The lock under which a block that is not in memory is entered.
    pub(crate) fn loading(&self, number: u64) -> &Mutex<()> {
        &self.loading[spread(number) as usize % SHARDS]
    }

    /// Reads and checks a block on the device.
    pub fn read_block(&self, number: u64, ptr: Ptr) -> Result<Vec<Inode>> {
        let object = || format!("inode block {number} of root {}", self.config.root.0);
        let longest = u64::from(self.config.geometry.inode_size + 2) * 32 + 48;
        if number >= INODE_BLOCKS_MAX
            || u64::from(ptr.len) > longest
            || !self.config.geometry.contains(ptr.addr, u64::from(ptr.len))
        {
            let rule = format!("pointer to {} bytes", ptr.len);
            return Err(Error::corrupt(object(), Some(ptr.addr.0), rule));
        }
        let mut raw = vec![0; ptr.len as usize];
        self.config.device.read_at(&mut raw, ptr.addr.0)?;
        self.config.counters.add(Counter::InodeBlockReads, 1);
        if !planted::is(Defect::InodeChecksum) {
            ptr.verify(&raw, &object())?;
        }
        decode_block(&raw, self.block_id(number), ptr.addr)
    }

    /// Brings a block into memory and makes room if there is too much.
    pub(crate) fn enter(
        &self,
        place: Reservation<'_, Arc<InodeBlock>>,
        block: Arc<InodeBlock>,
    ) -> Arc<InodeBlock> {
        let (number, clean) = (block.number, !block.disk.lock().is_null());
        let here = place.get_or_store(block);
        if clean {
            self.blocks.set_mark(number, RECLAIMABLE);
        }
        self.config.budget.loaded();
        self.make_room();
        here
    }

    /// Drops blocks while the volume's tables hold too many: own ones first, then another table's.
    fn make_room(&self) {
        let budget = &self.config.budget;
        if budget.is_over() {
            self.shrink();
        }
        if budget.is_over()
            && let Some(other) = budget.next_table()
        {
            other.shrink();
        }
    }

    /// Goes round the reclaimable blocks: what was used since the last time stays once more.
    pub(crate) fn shrink(&self) {
        let budget = &self.config.budget;
        // One at a time; the others would only find what this one finds.
        let Some(mut hand) = self.hand.try_lock() else { return };
        for _ in 0..CLOCK_STEPS {
            if !budget.is_over() {
                return;
            }
            let Some((number, block)) = self.blocks.next_marked(*hand, RECLAIMABLE) else {
                if *hand == 0 {
                    return;
                }
                *hand = 0;
                continue;
            };
            *hand = number + 1;
            if block.used.swap(false, Ordering::Relaxed) {
                continue;
            }
            let idle = |block: &InodeBlock| {
                let detached = block.detached.load(Ordering::Acquire) != 0;
                !block.is_dirty() && !detached && !block.disk.lock().is_null()
            };
            // Under a lock of the array.
            let idle = |block: &InodeBlock| atomically(|| idle(block));
            if self.blocks.remove_if_unused(number, &block, idle) {
                budget.dropped(1);
                self.config.counters.add(Counter::InodeBlockEvictions, 1);
            } else if block.is_dirty() {
                self.blocks.clear_mark(number, RECLAIMABLE);
                // It may have been written meanwhile, and marked before the mark was cleared.
                self.note_clean(&block);
            }
        }
    }

    /// A block that has nothing to be written may leave memory.
    pub(crate) fn note_clean(&self, block: &InodeBlock) {
        if !block.is_dirty() {
            self.blocks.set_mark(block.number, RECLAIMABLE);
        }
    }

    /// Marks a block for the checkpoint of `epoch`.
    pub(crate) fn dirtied(&self, block: &InodeBlock, epoch: Epoch) {
        let marked = self.blocks.set_mark(block.number, DIRTY_MARK[epoch as usize % 2]);
        invariant!(marked, "inode block {} is used but not in the table", block.number);
        self.imap.mark_root(epoch);
        self.config.budget.dirtied(epoch);
    }
}

/// No memory for a node of the array: the call fails, and has changed nothing.
pub(crate) fn no_memory(_: AllocError) -> Error {
    Error::Code(Code::NoMemory)
}

/// Reads an `imap` value.
pub(crate) fn decode_imap(raw: &[u8]) -> Option<(Ptr, u32)> {
    let mut r = Reader::new(raw);
    let ptr = Ptr::decode(&mut r)?;
    let free = r.u32()?;
    r.is_empty().then_some((ptr, free))
}

impl InodeTable {
    /// The first block at or after `from` that is on the device or in memory: others have never
    /// been used, whatever the count of numbers given out says.
    pub fn next_in_use(&self, from: u64) -> Result<Option<u64>> {
        let mut batch = Batch::default();
        let (from_key, end) =
            (Key::new(from.min(INODE_BLOCKS_MAX), 0), Key::new(INODE_BLOCKS_MAX, 0));
        self.imap.scan(from_key, end, 1, &mut batch)?;
        let on_device = batch.iter().next().map(|(key, _)| key.hi);
        let in_memory = self.blocks.range(from..).next().map(|(number, _)| number);
        Ok(on_device.into_iter().chain(in_memory).min())
    }

    /// The same over what can be read of `imap`: `lost` is told of each node of it that cannot,
    /// with the blocks from which and before which it answers, and of entries that are none.
    pub fn for_each_readable_block(
        &self,
        visit: &mut dyn FnMut(u64, Ptr),
        lost: &mut dyn FnMut(Error, Range<u64>),
    ) -> Result<()> {
        let mut broken = Vec::new();
        let mut entry = |key: Key, value: &[u8]| {
            match decode_imap(value) {
                Some((ptr, _)) if key.hi < INODE_BLOCKS_MAX => visit(key.hi, ptr),
                _ => broken.push(key.hi),
            }
            Ok(())
        };
        self.imap.for_each_readable(&mut entry, &mut |error, low, high| {
            lost(error, low.hi..high.hi);
        })?;
        for number in broken {
            let object = format!("imap entry of block {number}");
            let error = Error::corrupt(object, None, "not a block's number, pointer and mask");
            lost(error, number..number.saturating_add(1));
        }
        Ok(())
    }

    /// The numbers of the blocks that are in memory.
    pub fn blocks_in_memory(&self) -> Vec<u64> {
        self.blocks.range(0..).map(|(number, _)| number).collect()
    }

    /// Calls `visit` with every block known to `imap`: number, pointer, mask of free slots.
    pub fn for_each_block(
        &self,
        visit: &mut dyn FnMut(u64, Ptr, u32) -> Result<bool>,
    ) -> Result<()> {
        self.imap.for_each(Key::MIN, Key::MAX, &mut |key, value| match decode_imap(value) {
            Some((ptr, free)) if key.hi < INODE_BLOCKS_MAX => visit(key.hi, ptr, free),
            _ => {
                let object = format!("imap entry of block {}", key.hi);
                Err(Error::corrupt(object, None, "not a block's number, pointer and mask"))
            }
        })
    }
}
