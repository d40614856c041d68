//! The bounded memory of trees: a budget in bytes, recycled frames, and a clock that picks what to
//! drop: leaves' nodes, and inner nodes with the cells below them.

use crate::cell::LeafCell;
use crate::inner::InnerCell;
use crate::sync::{AtomicU64, AtomicUsize, Mutex, Ordering};
use shoal_base::TouchedRoots;
use shoal_base::counters::{Counter, Counters};
use shoal_base::limits::NODE_SIZE;
use shoal_base::share::Share;
use shoal_format::node::Node;
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

/// Frames kept for reuse beyond those in the cache: fresh memory's page faults cost as much as a
/// whole create.
const SPARE_FRAMES: usize = 1024;
/// Cells that one call looks at for something to drop.
const CLOCK_STEPS: usize = 64;
/// Smallest budget: below, splits of deep trees would read what they have just dropped.
const LIMIT_MIN: usize = 64 * NODE_SIZE;

/// Shared by all trees of a volume.
pub struct NodeCache {
    share: Arc<Share>,
    /// Nodes that the checkpoint of an even or odd epoch has to write.
    dirty: [AtomicUsize; 2],
    /// Bytes that they take on the device, at most about.
    to_write: [AtomicUsize; 2],
    /// The epoch whose checkpoint is writing, or 0: its nodes may not be on the device yet.
    writing: AtomicU64,
    clock: Mutex<VecDeque<Held>>,
    spare: Mutex<Vec<Box<[u8; NODE_SIZE]>>>,
    pub(crate) counters: Arc<Counters>,
    touched_roots: TouchedRoots,
}

/// What the clock may find droppable.
enum Held {
    Leaf(Weak<LeafCell>),
    Inner(Weak<InnerCell>),
}

impl NodeCache {
    /// A cache of at most `bytes` (more only while that much is dirty).
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
            spare: Mutex::default(),
            counters,
            touched_roots: TouchedRoots::default(),
        })
    }
    /// Its share of the memory for metadata.
    pub fn share(&self) -> &Arc<Share> {
        &self.share
    }
    /// Roots in whose trees something has changed since checkpoints last wrote them.
    pub fn touched_roots(&self) -> &TouchedRoots {
        &self.touched_roots
    }
    /// Bytes in memory: of leaves' nodes, of inner nodes, and of the cells that name them.
    pub fn used_bytes(&self) -> u64 {
        self.share.used() as u64
    }
    /// Bytes in memory of nodes that the next checkpoints have to write.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty_in(0) + self.dirty_in(1)
    }
    /// Returns the bytes on the device of the nodes that the next checkpoints have to write, at
    /// most about: not compressed.
    pub fn to_write(&self) -> u64 {
        self.to_write_in(0) + self.to_write_in(1)
    }
    /// The same, of the checkpoint of this epoch, the current one or the one before.
    #[inline]
    pub fn to_write_in(&self, epoch: u64) -> u64 {
        self.to_write[epoch as usize % 2].load(Ordering::Relaxed) as u64
    }
    /// Bytes in memory of nodes that the checkpoint of this epoch, the current one or the one
    /// before, has to write.
    #[inline]
    pub fn dirty_in(&self, epoch: u64) -> u64 {
        (self.dirty[epoch as usize % 2].load(Ordering::Relaxed) * NODE_SIZE) as u64
    }
    /// Nodes that can be read and stay in memory beside those that have still to be written.
    pub fn room_nodes(&self) -> usize {
        self.share.limit().saturating_sub(self.dirty_bytes() as usize) / NODE_SIZE
    }
    /// Largest number of bytes of what could be dropped.
    pub fn limit_bytes(&self) -> u64 {
        self.share.limit() as u64
    }
    /// A checkpoint of `epoch` starts writing. Nothing that it writes is dropped before `written`:
    /// neither could it be read back, nor would its parent, if read, lead to it.
    pub fn writing(&self, epoch: u64) {
        self.writing.store(epoch, Ordering::Release);
    }
    /// Everything that checkpoints wrote is on the device: it may be read back.
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
    /// A frame with unspecified contents.
    pub(crate) fn frame(&self) -> Box<[u8; NODE_SIZE]> {
        self.spare.lock().pop().unwrap_or_else(Node::frame)
    }
    pub(crate) fn recycle(&self, node: Node) {
        self.recycle_frame(node.into_frame());
    }
    pub(crate) fn recycle_frame(&self, frame: Box<[u8; NODE_SIZE]>) {
        let mut spare = self.spare.lock();
        if spare.len() < SPARE_FRAMES {
            spare.push(frame);
        }
    }
    pub(crate) fn charge(&self, bytes: usize) {
        self.share.add(bytes);
    }
    pub(crate) fn discharge(&self, bytes: usize) {
        self.share.sub(bytes);
    }
    /// A leaf's node has come into memory; makes room if there is too much.
    pub(crate) fn loaded(&self, leaf: &Arc<LeafCell>) {
        self.charge(NODE_SIZE);
        self.clock.lock().push_back(Held::Leaf(Arc::downgrade(leaf)));
        self.shrink();
    }
    /// A leaf's node has left memory other than by the clock.
    pub(crate) fn unloaded(&self) {
        self.discharge(NODE_SIZE);
    }
    /// An inner cell that the clock shall look at; its array is charged by itself.
    pub(crate) fn watch(&self, inner: &Arc<InnerCell>) {
        self.clock.lock().push_back(Held::Inner(Arc::downgrade(inner)));
    }
    fn is_full(&self) -> bool {
        self.share.is_over()
    }
    /// Drops what is clean and has not been used lately, while there is too much.
    pub(crate) fn shrink(&self) {
        if !self.is_full() {
            return;
        }
        // Nobody is looked at twice, so that what has just been read is there for its reader.
        let steps = self.clock.lock().len().min(CLOCK_STEPS);
        for _ in 0..steps {
            if !self.is_full() {
                return;
            }
            let Some(held) = self.clock.lock().pop_front() else { return };
            let found = match &held {
                Held::Leaf(leaf) => leaf.upgrade().map_or(Dropped::Gone, |l| l.try_drop(self)),
                Held::Inner(inner) => inner.upgrade().map_or(Dropped::Gone, |i| i.try_drop(self)),
            };
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

/// What the clock found in a cell.
pub(crate) enum Dropped {
    /// A leaf's node, now out of the cell.
    Node(Node),
    /// An inner cell's array with the cells in it, now out of the tree.
    Cells,
    /// Nothing in memory.
    Gone,
    /// Used lately, dirty, or locked.
    InUse,
}

/// A part of the budget, returned when dropped. A copy takes nothing until it is charged itself.
pub(crate) struct Charge(Option<(Arc<NodeCache>, usize)>);

impl Charge {
    pub fn none() -> Charge {
        Charge(None)
    }
    pub fn new(cache: &Arc<NodeCache>, bytes: usize) -> Charge {
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
