//! Finding an inode: in the map, or on the device through `imap`.

use crate::alloc::Allocator;
use crate::block::{InodeBlock, InodeRef};
use crate::map::BlockMap;
use parking_lot::Mutex;
use shoal_base::counters::{Counter, Counters};
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::shard::{SHARDS, shard, spread};
use shoal_base::{Addr, Code, Epoch, Error, Ino, Result, RootId};
use shoal_device::Device;
use shoal_format::bytes::Reader;
use shoal_format::inode::{BlockId, Inode, decode_block};
use shoal_format::{Geometry, Ptr};
use shoal_tree::{Key, Tree};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Bytes that a block of small inodes takes in memory, for the cache's budget.
pub(crate) const BLOCK_COST: u64 = 8 * 1024;
/// Blocks that one call looks at for something to drop.
const CLOCK_STEPS: usize = 64;

/// Blocks changed in an epoch, sharded by thread.
type DirtyList = Box<[Mutex<Vec<Arc<InodeBlock>>>]>;

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
    /// Bytes of clean blocks to keep.
    pub cache_bytes: u64,
    /// Counters of the volume.
    pub counters: Arc<Counters>,
}

/// The inode table of a root.
pub struct InodeTable {
    pub(crate) config: TableConfig,
    /// Block number → pointer 24, mask of free slots 4.
    pub(crate) imap: Tree,
    pub(crate) map: BlockMap,
    loading: Box<[Mutex<()>]>,
    count: AtomicUsize,
    clock: Mutex<VecDeque<Weak<InodeBlock>>>,
    /// Blocks changed in even and odd epochs, sharded by thread.
    pub(crate) dirty: [DirtyList; 2],
    pub(crate) dirty_count: AtomicUsize,
    pub(crate) alloc: Allocator,
    pub(crate) inodes: AtomicU64,
    /// `imap` nodes that the next checkpoint shall write elsewhere: lowest key, level, address.
    pub(crate) imap_moves: Mutex<Vec<(Key, u8, Addr)>>,
}

impl InodeTable {
    /// The table over this `imap`; blocks from `next_block` on have never been used.
    pub fn new(config: TableConfig, imap: Tree, next_block: u64, inodes: u64) -> InodeTable {
        let shards = || (0..SHARDS).map(|_| Mutex::default()).collect();
        InodeTable {
            config,
            imap,
            map: BlockMap::new(),
            loading: (0..SHARDS).map(|_| Mutex::default()).collect(),
            count: AtomicUsize::new(0),
            clock: Mutex::default(),
            dirty: [shards(), shards()],
            dirty_count: AtomicUsize::new(0),
            alloc: Allocator::new(next_block),
            inodes: AtomicU64::new(inodes),
            imap_moves: Mutex::default(),
        }
    }

    /// The `imap` tree, to look at.
    pub fn imap(&self) -> &Tree {
        &self.imap
    }
    /// Inodes in use.
    pub fn inodes(&self) -> u64 {
        self.inodes.load(Ordering::Relaxed)
    }
    /// Counts inodes that came into use or were freed.
    pub fn count_inodes(&self, delta: i64) {
        self.inodes.fetch_add(delta as u64, Ordering::Relaxed);
    }
    /// Bytes of blocks in memory, about.
    pub fn used_bytes(&self) -> u64 {
        self.count.load(Ordering::Relaxed) as u64 * BLOCK_COST
    }
    /// Bytes that the next checkpoints have to write, at most.
    pub fn dirty_bytes(&self) -> u64 {
        // Written trimmed, at most whole; and each has an entry in `imap`.
        let longest = u64::from(self.config.geometry.inode_size + 4) * INODES_PER_BLOCK as u64;
        self.dirty_count.load(Ordering::Relaxed) as u64 * longest
    }
    /// Blocks from this number on have never been used.
    pub fn next_block(&self) -> u64 {
        self.alloc.next_block()
    }

    pub(crate) fn block_id(&self, number: u64) -> BlockId {
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
        if let Some(block) = self.map.get(number) {
            if !block.used.load(Ordering::Relaxed) {
                block.used.store(true, Ordering::Relaxed);
            }
            return Ok(block);
        }
        self.load(number)
    }

    #[cold]
    fn load(&self, number: u64) -> Result<Arc<InodeBlock>> {
        let _one = self.loading[spread(number) as usize % SHARDS].lock();
        if let Some(block) = self.map.get(number) {
            return Ok(block);
        }
        let found = self.imap.get(Key::new(number, 0), decode_imap)?.flatten();
        let Some((ptr, _)) = found else { return Err(Error::Code(Code::Stale)) };
        let block = InodeBlock::new(number, self.read_block(number, ptr)?, ptr);
        Ok(self.enter(block))
    }

    /// Reads and checks a block on the device.
    pub fn read_block(&self, number: u64, ptr: Ptr) -> Result<Vec<Inode>> {
        let object = || format!("inode block {number} of root {}", self.config.root.0);
        let longest = u64::from(self.config.geometry.inode_size + 2) * 32 + 48;
        if u64::from(ptr.len) > longest
            || !self.config.geometry.contains(ptr.addr, u64::from(ptr.len))
        {
            let rule = format!("pointer to {} bytes", ptr.len);
            return Err(Error::corrupt(object(), Some(ptr.addr.0), rule));
        }
        let mut raw = vec![0; ptr.len as usize];
        self.config.device.read_at(&mut raw, ptr.addr.0)?;
        self.config.counters.add(Counter::InodeBlockReads, 1);
        ptr.verify(&raw, &object())?;
        decode_block(&raw, self.block_id(number), ptr.addr)
    }

    /// Brings a block into the map and makes room if there is too much.
    pub(crate) fn enter(&self, block: Arc<InodeBlock>) -> Arc<InodeBlock> {
        let here = self.map.insert(block);
        self.clock.lock().push_back(Arc::downgrade(&here));
        self.count.fetch_add(1, Ordering::Relaxed);
        self.shrink();
        here
    }

    fn shrink(&self) {
        let limit = (self.config.cache_bytes / BLOCK_COST).max(64) as usize;
        for _ in 0..CLOCK_STEPS {
            if self.count.load(Ordering::Relaxed) <= limit {
                return;
            }
            let Some(weak) = self.clock.lock().pop_front() else { return };
            let Some(block) = weak.upgrade() else { continue };
            let keep = block.is_dirty()
                || block.disk.lock().is_null()
                || block.used.swap(false, Ordering::Relaxed);
            if !keep && self.map.remove_unused(&block) {
                self.count.fetch_sub(1, Ordering::Relaxed);
                self.config.counters.add(Counter::InodeBlockEvictions, 1);
            } else {
                self.clock.lock().push_back(weak);
            }
        }
    }

    /// Enters a block in the list of blocks that the checkpoint of `epoch` writes.
    pub(crate) fn dirtied(&self, block: &Arc<InodeBlock>, epoch: Epoch) {
        self.dirty[epoch as usize % 2][shard()].lock().push(block.clone());
        self.dirty_count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Reads an `imap` value.
pub(crate) fn decode_imap(raw: &[u8]) -> Option<(Ptr, u32)> {
    let mut r = Reader::new(raw);
    let ptr = Ptr::decode(&mut r)?;
    let free = r.u32()?;
    r.is_empty().then_some((ptr, free))
}

impl InodeTable {
    /// Calls `visit` with every block known to `imap`: number, pointer, mask of free slots.
    pub fn for_each_block(
        &self,
        visit: &mut dyn FnMut(u64, Ptr, u32) -> Result<bool>,
    ) -> Result<()> {
        self.imap.for_each(Key::MIN, Key::MAX, &mut |key, value| match decode_imap(value) {
            Some((ptr, free)) => visit(key.hi, ptr, free),
            None => {
                let object = format!("imap entry of block {}", key.hi);
                Err(Error::corrupt(object, None, "not a pointer and a mask"))
            }
        })
    }
}
