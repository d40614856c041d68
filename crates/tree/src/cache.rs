//! The bounded memory of trees: a budget in bytes, recycled frames, and a clock that selects what
//! to evict: leaves' nodes, and inner nodes with the cells below them.

use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};
use shoal_base::TouchedRoots;
use shoal_base::counters::{Counter, Counters};
use shoal_base::limits::NODE_SIZE;
use shoal_base::share::Share;
use shoal_format::node::Node;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Largest number of unused frames kept for reuse. Page faults of fresh memory cost as much as a
/// whole create.
const UNUSED_FRAMES_MAX: usize = 1024;
/// Cells that one call of the clock examines.
const CLOCK_STEPS: usize = 64;
/// Smallest budget. With less, splits of deep trees would read what they have just evicted.
const LIMIT_MIN: usize = 64 * NODE_SIZE;

/// The node cache, shared by all trees of a volume.
pub struct NodeCache {
    share: Arc<Share>,
    /// Number of nodes to be written by the checkpoint of an even or odd epoch.
    dirty: [AtomicUsize; 2],
    /// Their bytes on the device, an upper estimate.
    to_write: [AtomicUsize; 2],
    /// The epoch whose checkpoint is writing, or 0. Its nodes may not be on the device yet.
    writing: AtomicU64,
    clock: Mutex<VecDeque<Weak<dyn Evict>>>,
    unused_frames: Mutex<Vec<Box<[u8; NODE_SIZE]>>>,
    pub(crate) counters: Arc<Counters>,
    touched_roots: TouchedRoots,
}

/// A cell that the clock examines.
pub(crate) trait Evict: Send + Sync {
    /// Gives up what it has in memory, if nothing would be lost.
    fn try_drop(&self, cache: &NodeCache) -> Dropped;
}

impl NodeCache {
    /// Makes a cache of at most `bytes` (exceeded only while that much is dirty).
    pub fn new(bytes: u64, counters: Arc<Counters>) -> Arc<NodeCache> {
        NodeCache::with_limit((bytes as usize).max(LIMIT_MIN), counters)
    }
    pub(crate) fn with_limit(limit: usize, counters: Arc<Counters>) -> Arc<NodeCache> {
        Arc::new(NodeCache {
            share: Share::new(limit),
            dirty: Default::default(),
            to_write: Default::default(),
            writing: AtomicU64::new(0),
            clock: Mutex::default(),
            unused_frames: Mutex::default(),
            counters,
            touched_roots: TouchedRoots::default(),
        })
    }
    /// Its share of the metadata memory.
    pub fn share(&self) -> &Arc<Share> {
        &self.share
    }
    /// Subvolumes in whose trees something changed since checkpoints last wrote them.
    pub fn touched_roots(&self) -> &TouchedRoots {
        &self.touched_roots
    }
    /// Bytes in memory: nodes of leaves, inner nodes, and the cells that refer to them.
    pub fn used_bytes(&self) -> u64 {
        self.share.used() as u64
    }
    /// Bytes in memory of nodes that the next checkpoints must write.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_in(0) + self.dirty_in(1)
    }
    /// Bytes on the device of the nodes that the next checkpoints must write: an upper estimate, as
    /// if uncompressed.
    pub fn to_write(&self) -> u64 {
        self.to_write_in(0) + self.to_write_in(1)
    }
    /// As [`NodeCache::to_write`], for the checkpoint of this epoch, which must be the current one
    /// or the one before.
    #[inline]
    pub fn to_write_in(&self, epoch: u64) -> u64 {
        self.to_write[epoch as usize % 2].load(Ordering::Relaxed) as u64
    }
    /// Bytes in memory of nodes that the checkpoint of this epoch must write. It must be the
    /// current epoch or the one before.
    #[inline]
    pub fn dirty_in(&self, epoch: u64) -> u64 {
        (self.dirty[epoch as usize % 2].load(Ordering::Relaxed) * NODE_SIZE) as u64
    }
    /// Number of nodes that fit in memory in addition to the dirty ones.
    pub fn room_nodes(&self) -> usize {
        self.share.limit().saturating_sub(self.dirty_bytes() as usize) / NODE_SIZE
    }
    /// Limit for evictable bytes.
    pub fn limit_bytes(&self) -> u64 {
        self.share.limit() as u64
    }
    /// Notes that a checkpoint of `epoch` starts writing. Nothing that it writes is evicted before
    /// `written`: it could not be read back yet, and its parent on the device does not lead to it.
    pub fn writing(&self, epoch: u64) {
        self.writing.store(epoch, Ordering::Release);
    }
    /// Notes that everything written by checkpoints is on the device and can be read back.
    pub fn written(&self) {
        self.writing.store(0, Ordering::Release);
    }
    pub(crate) fn may_drop(&self, wrote: u64) -> bool {
        let writing = self.writing.load(Ordering::Acquire);
        writing == 0 || wrote < writing
    }
    pub(crate) fn dirtied(&self, epoch: u64, bytes: u32) {
        self.dirty[epoch as usize % 2].fetch_add(1, Ordering::Relaxed);
        self.grown(epoch, bytes);
    }
    pub(crate) fn grown(&self, epoch: u64, bytes: u32) {
        self.to_write[epoch as usize % 2].fetch_add(bytes as usize, Ordering::Relaxed);
    }
    pub(crate) fn cleaned(&self, epoch: u64, bytes: u32) {
        self.dirty[epoch as usize % 2].fetch_sub(1, Ordering::Relaxed);
        self.to_write[epoch as usize % 2].fetch_sub(bytes as usize, Ordering::Relaxed);
    }
    /// Returns a frame with unspecified contents.
    pub(crate) fn frame(&self) -> Box<[u8; NODE_SIZE]> {
        self.unused_frames.lock().pop().unwrap_or_else(Node::frame)
    }
    pub(crate) fn recycle(&self, node: Node) {
        self.recycle_frame(node.into_frame());
    }
    pub(crate) fn recycle_frame(&self, frame: Box<[u8; NODE_SIZE]>) {
        let mut frames = self.unused_frames.lock();
        if frames.len() < UNUSED_FRAMES_MAX {
            frames.push(frame);
        }
    }
    pub(crate) fn charge(&self, bytes: usize) {
        self.share.add(bytes);
    }
    pub(crate) fn discharge(&self, bytes: usize) {
        self.share.sub(bytes);
    }
    /// Accounts for a leaf's node that was loaded; evicts others if there is too much.
    pub(crate) fn loaded(&self, leaf: &Arc<impl Evict + 'static>) {
        self.charge(NODE_SIZE);
        self.watch(leaf);
        self.shrink();
    }
    /// Accounts for a leaf's node that left memory other than by the clock.
    pub(crate) fn unloaded(&self) {
        self.discharge(NODE_SIZE);
    }
    /// Adds a cell to the clock. The array of an inner cell is accounted for separately.
    pub(crate) fn watch(&self, cell: &Arc<impl Evict + 'static>) {
        let cell = Arc::downgrade(cell);
        self.clock.lock().push_back(cell);
    }
    fn is_full(&self) -> bool {
        self.share.is_over()
    }
    /// Evicts clean nodes that were not used lately, while there is too much.
    pub(crate) fn shrink(&self) {
        if !self.is_full() {
            return;
        }
        // No cell is examined twice, so that a node just read stays until its reader has used it.
        let steps = self.clock.lock().len().min(CLOCK_STEPS);
        for _ in 0..steps {
            if !self.is_full() {
                return;
            }
            let Some(held) = self.clock.lock().pop_front() else { return };
            let found = held.upgrade().map_or(Dropped::Gone, |cell| cell.try_drop(self));
            match found {
                Dropped::Node(node) => {
                    self.unloaded();
                    self.counters.add(Counter::NodeEvictions, 1);
                    self.recycle(node);
                }
                Dropped::Cells => self.counters.add(Counter::NodeEvictions, 1),
                Dropped::Gone => {}
                Dropped::InUse => self.clock.lock().push_back(held),
            }
        }
    }
}

/// The clock's result for a cell.
pub(crate) enum Dropped {
    /// A leaf's node, removed from the cell.
    Node(Node),
    /// An inner cell's array with its cells, removed from the tree.
    Cells,
    /// Nothing was in memory.
    Gone,
    /// Used lately, dirty, or locked.
    InUse,
}

/// A part of the budget, returned when dropped. A copy takes nothing until it is charged itself.
pub(crate) struct Charge(Option<(Arc<NodeCache>, usize)>);

impl Charge {
    pub(crate) fn none() -> Charge {
        Charge(None)
    }
    pub(crate) fn new(cache: &Arc<NodeCache>, bytes: usize) -> Charge {
        cache.charge(bytes);
        Charge(Some((cache.clone(), bytes)))
    }
}

impl Clone for Charge {
    fn clone(&self) -> Charge {
        Charge::none()
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some((cache, bytes)) = self.0.take() {
            cache.discharge(bytes);
        }
    }
}
