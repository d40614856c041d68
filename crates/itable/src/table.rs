//! Finding an inode: in the XArray of blocks in memory, or on the device through `imap`.

use crate::alloc::Allocator;
use crate::block::{At, Borrowed, InodeBlock, InodeRef};
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
use shoal_format::inode::{BlockHeader, BlockId, ImapEntry, Inode, block_max, decode_block};
use shoal_format::{Geometry, Ptr};
use shoal_tree::{Batch, Key, Tree};
use shoal_xarray::{AllocError, Guard, Mark, Reservation, XArray};
use std::fmt::{self, Display};
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

/// A thread that is pinned: blocks that leave memory stay readable.
pub type Pinned<'t> = Guard<'t, Arc<InodeBlock>>;

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

    /// As [`InodeTable::get`], for the time of a call: the reference is counted in a cache line of
    /// the inode's own.
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

    /// A counted reference to what something else keeps in memory.
    pub(crate) fn here(&self, at: At<'_>) -> InodeRef {
        let here = self.get(at.ino);
        here.unwrap_or_else(|e| unreachable!("inode {} is in memory: {e}", at.ino))
    }

    /// Calls `f` with an inode, whether it is in use or not, locked for reading. `ESTALE` when its
    /// block has never been used.
    ///
    /// Counts no reference to the block, which would write a cache line that all users of its 32
    /// inodes share. So the block may leave memory meanwhile, and another copy of it be read and
    /// changed: `f` sees the inode as it was at some moment of this call, and must not rely on its
    /// staying so. Who needs that takes a reference ([`InodeTable::get`]).
    #[inline]
    pub fn look<R>(&self, ino: Ino, f: impl FnOnce(&Inode) -> R) -> Result<R> {
        {
            let pin = self.blocks.pin();
            if let Some(block) = pin.get(ino.index() / INODES_PER_BLOCK as u64) {
                block.mark_used();
                let slot = block.slots[ino.0 as usize % INODES_PER_BLOCK].read();
                return Ok(f(&slot.inode));
            }
        }
        let inode = self.get(ino)?;
        let slot = inode.read();
        Ok(f(&slot.inode))
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
        let inodes = self.read_block(number, ptr)?;
        let block = InodeBlock::new(number, inodes, ptr, &self.config.budget);
        Ok(self.enter(place, block))
    }

    /// Returns whether a block is on the device, or may be, and not in memory.
    pub fn is_cold(&self, number: u64) -> bool {
        number < self.next_block() && self.blocks.get(number).is_none()
    }

    /// Brings a block into memory that is going to be used.
    ///
    /// # Errors
    /// Those of [`InodeTable::get`], which its user finds again.
    pub fn read_ahead(&self, number: u64) -> Result<()> {
        self.block(number).map(drop)
    }

    /// The lock under which a block that is not in memory is entered.
    pub(crate) fn loading(&self, number: u64) -> &Mutex<()> {
        &self.loading[spread(number) as usize % SHARDS]
    }

    /// Reads and checks a block on the device.
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

    /// Checks a block that has been read.
    pub(crate) fn decode_read(&self, number: u64, ptr: Ptr, raw: &[u8]) -> Result<Vec<Inode>> {
        if !planted::is(Defect::InodeChecksum) {
            ptr.verify(raw, self.name_of(number))?;
        }
        let inodes = decode_block(raw, ptr.coding(), self.block_id(number), ptr.addr)?;
        let written = BlockHeader::read(raw).map_or(0, |header| header.epoch);
        ptr.verify_birth(written, self.name_of(number))?;
        Ok(inodes)
    }

    /// Whether a block can be as long, and where this points to.
    pub(crate) fn may_be_at(&self, ptr: Ptr) -> bool {
        let len = u64::from(ptr.len);
        ptr.len <= block_max(self.config.geometry.inode_size as usize)
            && self.config.geometry.contains(ptr.addr, len)
    }

    fn name_of(&self, number: u64) -> impl Display {
        let root = self.config.root.0;
        fmt::from_fn(move |f| write!(f, "inode block {number} of root {root}"))
    }

    /// Brings a block into memory and makes room if there is too much.
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

    /// The same after a checkpoint, when many blocks have become clean at once.
    pub(crate) fn make_room_of_clean(&self) {
        // Twice round: the first time what was used stays.
        let rounds = 2 * self.config.budget.used_blocks() / CLOCK_STEPS + 2;
        for _ in 0..rounds {
            if !self.config.budget.is_over() {
                return;
            }
            self.shrink();
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
        block.bytes.dirtied(epoch);
    }
}

/// No memory for a node of the array: the call fails, and has changed nothing.
pub(crate) fn no_memory(_: AllocError) -> Error {
    Error::Code(Code::NoMemory)
}

/// Reads an `imap` value.
pub(crate) fn decode_imap(raw: &[u8]) -> Option<(Ptr, u32)> {
    let ImapEntry { ptr, free } = ImapEntry::load(raw.try_into().ok()?).ok()?;
    ptr.is_valid().then_some((ptr, free))
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
