//! Finding an inode: in the XArray of blocks in memory, or on the device through `imap`.

use crate::block::{At, Borrowed, DIRTY, InodeBlock, InodeRef, Locked};
use crate::budget::{Budget, Shrink};
use crate::shards::Allocator;
use crate::sync::{AtomicU64, Mutex, SHARDS, Step, atomically, step};
use shoal_base::cold::{self, Cold};
use shoal_base::counters::{Counter, Counters};
use shoal_base::invariant;
use shoal_base::limits::{INODE_BLOCKS_MAX, INODES_PER_BLOCK};
use shoal_base::planted::{self, Defect};
use shoal_base::prefetch::prefetch;
use shoal_base::shard::spread;
use shoal_base::{Addr, Code, Epoch, Error, Ino, Result, RootId};
use shoal_device::Device;
use shoal_format::inode::{BlockHeader, BlockId, ImapEntry, Inode, block_max, decode_block};
use shoal_format::{Geometry, Ptr};
use shoal_tree::{Batch, Key, Tree};
use shoal_xarray::{AllocError, Guard, Mark, Reservation, XArray};
use std::fmt::{self, Display};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// More inodes than any subvolume can have.
const INODES_MAX: u64 = 1 << 62;
/// Blocks that one call of the clock examines.
const CLOCK_STEPS: usize = 64;
/// Inodes whose cache lines are loaded together: these fit the processor's first-level cache.
pub const TOGETHER: usize = 64;

/// Marks of blocks that the checkpoint of an even or odd epoch must write.
pub(crate) const DIRTY_MARK: [Mark; 2] = [Mark::A, Mark::B];
/// Mark of blocks that may be evicted if they are unused.
pub(crate) const RECLAIMABLE: Mark = Mark::C;

/// The parameters of a table.
pub struct TableConfig {
    /// Subvolume of the table.
    pub root: RootId,
    /// Low half of the volume id.
    pub volume: u64,
    /// Layout parameters of the volume.
    pub geometry: Geometry,
    /// Device of the volume.
    pub device: Arc<dyn Device>,
    /// Memory for blocks, shared by the volume's tables.
    pub budget: Arc<Budget>,
    /// Counters of the volume.
    pub counters: Arc<Counters>,
}

/// A pinned thread: evicted blocks stay readable.
pub type Pinned<'t> = Guard<'t, Arc<InodeBlock>>;

/// The inode table of a subvolume. Inode numbers are allocated through [`InodeTable::numbers`]; a
/// repair uses [`InodeTable::salvage`].
pub struct InodeTable {
    pub(crate) config: TableConfig,
    /// Block number → pointer, mask of free slots.
    pub(crate) imap: Step<Tree>,
    /// The blocks in memory, by number. Marks tell which must be written and which may be evicted.
    pub(crate) blocks: Step<XArray<Arc<InodeBlock>>>,
    loading: Box<[Mutex<()>]>,
    /// Clock hand: the next block to examine for eviction.
    clock_hand: Mutex<u64>,
    pub(crate) alloc: Allocator,
    /// Inodes in use, minus the counts of the thread shards.
    pub(crate) inodes: AtomicU64,
    /// `imap` nodes that the next checkpoint must write elsewhere: lowest key, level, address.
    pub(crate) imap_moves: Mutex<Vec<(Key, u8, Addr)>>,
}

impl InodeTable {
    /// Makes the table over this `imap`. Blocks from `next_block` on were never used.
    pub fn new(config: TableConfig, imap: Tree, next_block: u64, inodes: u64) -> InodeTable {
        InodeTable {
            config,
            imap: step(imap),
            blocks: step(XArray::new()),
            loading: (0..SHARDS).map(|_| Mutex::default()).collect(),
            clock_hand: Mutex::default(),
            // There are no more, whatever the caller says.
            alloc: Allocator::new(next_block.min(INODE_BLOCKS_MAX)),
            inodes: AtomicU64::new(inodes),
            imap_moves: Mutex::default(),
        }
    }

    /// The `imap` tree, for reading.
    pub fn imap(&self) -> &Tree {
        &self.imap
    }
    /// Inodes in use. Exact while no transaction runs, otherwise approximate.
    pub fn inodes(&self) -> u64 {
        let base = self.inodes.load(Ordering::Relaxed);
        let counts = self.alloc.shards.iter().map(|shard| shard.inodes.load(Ordering::Relaxed));
        let sum = counts.fold(base, u64::wrapping_add);
        // An unlink was counted, but the create before it was not.
        if sum > INODES_MAX { 0 } else { sum }
    }
    /// Counts inodes made or freed, in the thread's own cache line once it has one.
    #[inline]
    pub fn count_inodes(&self, delta: i64) {
        let count = match self.alloc.shards.mine_if_used() {
            Some(shard) => &shard.inodes,
            None => &self.inodes,
        };
        count.fetch_add(delta as u64, Ordering::Relaxed);
        self.imap.mark_root_for_next();
    }
    /// First number of the blocks that were never used.
    pub fn next_block(&self) -> u64 {
        self.alloc.next_block()
    }

    /// The identity of this block, as in its header.
    pub fn block_id(&self, number: u64) -> BlockId {
        BlockId {
            volume: self.config.volume,
            first: Ino::new(self.config.root, number * INODES_PER_BLOCK as u64),
            inode_size: self.config.geometry.inode_size,
        }
    }

    /// Returns the inode's place in memory, whether it is in use or not.
    ///
    /// # Errors
    /// `ESTALE` if its block was never used.
    #[inline]
    pub fn get(&self, ino: Ino) -> Result<InodeRef> {
        let block = self.block(ino.index() / INODES_PER_BLOCK as u64)?;
        Ok(InodeRef { block, ino })
    }

    #[inline]
    pub(crate) fn block(&self, number: u64) -> Result<Arc<InodeBlock>> {
        if let Some(block) = self.blocks.get(number) {
            block.mark_used();
            return Ok(block);
        }
        self.load(number)
    }

    /// Pins this thread, for [`InodeTable::borrow`].
    #[inline]
    pub fn pin(&self) -> Pinned<'_> {
        self.blocks.pin()
    }

    /// As [`InodeTable::get`], for the duration of a call: the reference is counted in the inode's
    /// own cache line.
    #[inline]
    pub fn borrow<'p>(&self, pin: &'p Pinned<'_>, ino: Ino) -> Result<Borrowed<'p>> {
        let number = ino.index() / INODES_PER_BLOCK as u64;
        loop {
            if let Some(borrowed) = pin.get_as(number, |block| Borrowed::new(block, ino)) {
                borrowed.at().block.mark_used();
                return Ok(borrowed);
            }
            let _loaded = self.block(number)?;
        }
    }

    /// Returns a counted reference to an inode that something else keeps in memory.
    pub(crate) fn here(&self, at: At<'_>) -> InodeRef {
        let here = self.get(at.ino);
        here.unwrap_or_else(|e| unreachable!("inode {} is in memory: {e}", at.ino))
    }

    /// Calls `f` with an inode, whether it is in use or not, locked for reading.
    ///
    /// Counts no reference to the block, because the count would be in a cache line that all users
    /// of its 32 inodes share. So the block may be evicted meanwhile, and another copy of it read
    /// and changed: `f` sees the inode as it was at some moment of this call, and must not rely on
    /// its staying so. Callers that need more must take a reference ([`InodeTable::get`]).
    ///
    /// # Errors
    /// `ESTALE` if its block was never used.
    #[inline]
    pub fn look<R>(&self, ino: Ino, f: impl FnOnce(&Inode) -> R) -> Result<R> {
        match self.look_in_memory(ino, f) {
            Ok(seen) => Ok(seen),
            Err(f) => {
                let inode = self.get(ino)?;
                let slot = inode.read();
                Ok(f(&slot.inode))
            }
        }
    }

    /// As [`InodeTable::look`], only in memory: returns `f`, which has not been called, if the
    /// inode must be read.
    #[inline]
    fn look_in_memory<R, F: FnOnce(&Inode) -> R>(
        &self,
        ino: Ino,
        f: F,
    ) -> std::result::Result<R, F> {
        let pin = self.blocks.pin();
        let Some(block) = pin.get(ino.index() / INODES_PER_BLOCK as u64) else { return Err(f) };
        block.mark_used();
        let slot = block.slots[ino.0 as usize % INODES_PER_BLOCK].read();
        Ok(f(&slot.inode))
    }

    /// As [`InodeTable::look`] for several inodes, [`TOGETHER`] at most: calls `f` with the index
    /// and the inode of those that are in memory, and are of this subvolume.
    ///
    /// One by one, each costs the latency of memory twice, for its block and for itself. Here the
    /// processor loads all of them at the same time.
    pub fn look_at_each(&self, inodes: &[Ino], mut f: impl FnMut(usize, &Inode)) {
        let pin = self.blocks.pin();
        let mut blocks = [None; TOGETHER];
        for (block, ino) in blocks.iter_mut().zip(inodes) {
            let found = pin.get(ino.index() / INODES_PER_BLOCK as u64);
            *block = found.filter(|_| ino.root() == self.config.root);
            if let Some(block) = *block {
                prefetch(block);
            }
        }
        let mut places = [None; TOGETHER];
        for ((place, block), ino) in places.iter_mut().zip(&blocks).zip(inodes) {
            *place = block.map(|block| {
                block.mark_used();
                &block.slots[ino.0 as usize % INODES_PER_BLOCK]
            });
            if let Some(place) = *place {
                prefetch(place);
            }
        }
        for (at, place) in places.iter().enumerate().take(inodes.len()) {
            if let Some(place) = place {
                f(at, &place.read().inode);
            }
        }
    }

    #[cold]
    fn load(&self, number: u64) -> Result<Arc<InodeBlock>> {
        let first = || Ino::new(self.config.root, number * INODES_PER_BLOCK as u64);
        cold::check(|| Cold::Block(first()))?;
        let loading = self.loading(number);
        let _one = cold::lock(|| loading.try_lock(), || loading.lock())?;
        if let Some(block) = self.blocks.get(number) {
            return Ok(block);
        }
        let place = self.blocks.reserve(number).map_err(no_memory)?;
        let found = self.imap.get(Key::new(number, 0), decode_imap)?.flatten();
        let Some((ptr, _)) = found else { return Err(Error::Code(Code::Stale)) };
        let inodes = self.read_block(number, ptr)?;
        let block = InodeBlock::new(number, inodes, ptr, &self.config.budget);
        Ok(self.enter(place, block))
    }

    /// Returns whether a block may be on the device, and is not in memory.
    pub fn is_cold(&self, number: u64) -> bool {
        number < self.next_block() && self.blocks.get(number).is_none()
    }

    /// The lock under which a missing block is loaded.
    pub(crate) fn loading(&self, number: u64) -> &Mutex<()> {
        &self.loading[spread(number) as usize % SHARDS]
    }

    /// Reads and verifies a block on the device.
    pub fn read_block(&self, number: u64, ptr: Ptr) -> Result<Vec<Inode>> {
        if number >= INODE_BLOCKS_MAX || !self.may_be_at(ptr) {
            let rule = format!("pointer to {} bytes", ptr.len);
            return Err(Error::corrupt(self.name_of(number).to_string(), Some(ptr.addr.0), rule));
        }
        let mut raw = vec![0; ptr.len as usize];
        self.config.device.read_at(&mut raw, ptr.addr.0)?;
        self.config.counters.add(Counter::InodeBlockReads, 1);
        self.decode_read(number, ptr, &raw)
    }

    /// Verifies and decodes a block that was read.
    pub(crate) fn decode_read(&self, number: u64, ptr: Ptr, raw: &[u8]) -> Result<Vec<Inode>> {
        if !planted::is(Defect::InodeChecksum) {
            ptr.verify(raw, self.name_of(number))?;
        }
        let inodes = decode_block(raw, ptr.coding(), self.block_id(number), ptr.addr)?;
        let written = BlockHeader::read(raw).map_or(0, |header| header.epoch);
        ptr.verify_birth(written, self.name_of(number))?;
        Ok(inodes)
    }

    /// Returns whether a block can have this length and address.
    pub(crate) fn may_be_at(&self, ptr: Ptr) -> bool {
        let len = u64::from(ptr.len);
        ptr.len <= block_max(self.config.geometry.inode_size as usize)
            && self.config.geometry.contains(ptr.addr, len)
    }

    fn name_of(&self, number: u64) -> impl Display {
        let root = self.config.root.0;
        fmt::from_fn(move |f| write!(f, "inode block {number} of subvolume {root}"))
    }

    /// Adds a block to memory, and evicts others if there is too much.
    pub(crate) fn enter(
        &self,
        place: Reservation<'_, Arc<InodeBlock>>,
        block: Arc<InodeBlock>,
    ) -> Arc<InodeBlock> {
        let (number, clean) = (block.number, !block.disk.lock().is_null());
        block.bytes.loaded();
        let here = place.get_or_store(block);
        if clean {
            self.blocks.set_mark(number, RECLAIMABLE);
        }
        self.make_room();
        here
    }

    /// Evicts blocks while the volume's tables hold too many: own ones first, then another table's.
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

    /// The same after a checkpoint, when many blocks have become clean at once.
    pub(crate) fn make_room_of_clean(&self) {
        // Two rounds: in the first one, blocks used recently stay.
        let rounds = 2 * self.config.budget.used_blocks() / CLOCK_STEPS + 2;
        for _ in 0..rounds {
            if !self.config.budget.is_over() {
                return;
            }
            self.shrink();
        }
    }

    /// Moves the clock hand over the evictable blocks. A block used since its last visit stays for
    /// another round.
    pub(crate) fn shrink(&self) {
        let budget = &self.config.budget;
        // One thread at a time; others would only examine the same blocks.
        let Some(mut clock_hand) = self.clock_hand.try_lock() else { return };
        for _ in 0..CLOCK_STEPS {
            if !budget.is_over() {
                return;
            }
            let Some((number, block)) = self.blocks.next_marked(*clock_hand, RECLAIMABLE) else {
                if *clock_hand == 0 {
                    return;
                }
                *clock_hand = 0;
                continue;
            };
            *clock_hand = number + 1;
            if block.used.swap(false, Ordering::Relaxed) {
                continue;
            }
            let idle = |block: &InodeBlock| {
                let detached = block.detached.load(Ordering::Acquire) != 0;
                let used = detached || block.is_borrowed();
                !block.is_dirty() && !used && !block.disk.lock().is_null()
            };
            // Under a lock of the array.
            let idle = |block: &InodeBlock| atomically(|| idle(block));
            if self.blocks.remove_if_unused(number, &block, idle) {
                block.bytes.dropped();
                self.config.counters.add(Counter::InodeBlockEvictions, 1);
            } else if block.is_dirty() {
                self.blocks.clear_mark(number, RECLAIMABLE);
                // It may have been written meanwhile, and marked before the mark was cleared.
                self.note_clean(&block);
            }
        }
    }

    /// Notes that a block with nothing to write may be evicted.
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
        block.bytes.dirtied(epoch);
    }
}

/// Maps a failure to allocate a node of the array: the call fails, and has changed nothing.
pub(crate) fn no_memory(_: AllocError) -> Error {
    Error::Code(Code::NoMemory)
}

/// Decodes an `imap` value.
pub(crate) fn decode_imap(raw: &[u8]) -> Option<(Ptr, u32)> {
    let ImapEntry { ptr, free } = ImapEntry::load(raw.try_into().ok()?).ok()?;
    ptr.is_valid().then_some((ptr, free))
}

impl InodeTable {
    /// Returns the first block at or after `from` that is on the device or in memory. All others
    /// were never used, whatever the count of allocated numbers says.
    pub fn next_in_use(&self, from: u64) -> Result<Option<u64>> {
        // First memory: a block that is evicted meanwhile is in `imap` by then.
        let in_memory = self.blocks.range(from..).next().map(|(number, _)| number);
        let mut batch = Batch::default();
        let (from_key, end) =
            (Key::new(from.min(INODE_BLOCKS_MAX), 0), Key::new(INODE_BLOCKS_MAX, 0));
        self.imap.scan(from_key, end, 1, &mut batch)?;
        let on_device = batch.iter().next().map(|(key, _)| key.hi);
        Ok(on_device.into_iter().chain(in_memory).min())
    }

    /// Calls `visit` with every block in `imap`: number, pointer, mask of free slots.
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

impl Shrink for InodeTable {
    fn shrink(&self) {
        InodeTable::shrink(self);
    }
}

impl Budget {
    /// Adds a table that uses this budget.
    pub fn enter(&self, table: &Arc<InodeTable>) {
        let table: Weak<InodeTable> = Arc::downgrade(table);
        self.add(table);
    }
}

impl Locked<'_> {
    /// Returns a reference that can be kept after the lock is released.
    pub fn place(&self, table: &InodeTable) -> InodeRef {
        table.here(self.at)
    }

    /// Makes the inode persistent again: a record of this transaction describes all of it, or frees
    /// it.
    pub fn attach(&mut self, table: &InodeTable, epoch: Epoch) {
        // The version kept for the previous checkpoint must still be a free inode.
        let _ = self.edit(table, epoch);
        self.at.block.detached.fetch_and(!self.bit(), Ordering::AcqRel);
    }

    /// Returns the inode for changes in a transaction of `epoch`.
    #[inline]
    pub fn edit(&mut self, table: &InodeTable, epoch: Epoch) -> &mut Inode {
        self.epoch = Some(epoch);
        if self.slot.epoch != epoch {
            self.first_edit(table, epoch);
        }
        &mut self.slot.inode
    }

    /// Prepares the first change in an epoch: keeps a copy of the inode if its block must still be
    /// written, and adds the block to the list of this epoch's checkpoint.
    fn first_edit(&mut self, table: &InodeTable, epoch: Epoch) {
        invariant!(self.slot.epoch < epoch, "inode {} changed after its epoch", self.at.ino);
        let block = &self.at.block;
        let pending = DIRTY[(epoch as usize + 1) % 2];
        let keep = block.flags.load(Ordering::Acquire) & pending != 0;
        self.slot.old = keep.then(|| {
            let inode = &self.slot.inode;
            Box::new(match self.is_detached() {
                true => Inode::free(inode.core.generation),
                false => inode.clone(),
            })
        });
        self.slot.epoch = epoch;
        let bit = DIRTY[epoch as usize % 2];
        if block.flags.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            table.dirtied(block, epoch);
        }
    }
}
