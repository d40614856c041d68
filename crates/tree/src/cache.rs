//! The bounded cache of leaf nodes: a budget, recycled frames, and a clock that picks what to drop.

use crate::cell::LeafCell;
use parking_lot::Mutex;
use shoal_base::counters::{Counter, Counters};
use shoal_base::limits::NODE_SIZE;
use shoal_format::node::Node;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Frames kept for reuse beyond those in the cache: fresh memory's page faults cost as much as a
/// whole create.
const SPARE_FRAMES: usize = 1024;
/// Cells that one call looks at for something to drop.
const CLOCK_STEPS: usize = 64;

/// Shared by all trees of a volume.
pub struct NodeCache {
    limit: usize,
    used: AtomicUsize,
    dirty: AtomicUsize,
    /// The epoch whose checkpoint is writing, or 0: its nodes may not be on the device yet.
    writing: AtomicU64,
    clock: Mutex<VecDeque<Weak<LeafCell>>>,
    spare: Mutex<Vec<Box<[u8; NODE_SIZE]>>>,
    pub(crate) counters: Arc<Counters>,
}

impl NodeCache {
    /// A cache of at most `bytes` of nodes (more only while that many are dirty).
    pub fn new(bytes: u64, counters: Arc<Counters>) -> Arc<NodeCache> {
        Arc::new(NodeCache {
            limit: (bytes as usize / NODE_SIZE).max(64),
            used: AtomicUsize::new(0),
            dirty: AtomicUsize::new(0),
            writing: AtomicU64::new(0),
            clock: Mutex::default(),
            spare: Mutex::default(),
            counters,
        })
    }
    /// Bytes of nodes in memory.
    pub fn used_bytes(&self) -> u64 {
        (self.used.load(Ordering::Relaxed) * NODE_SIZE) as u64
    }
    /// Bytes of nodes that the next checkpoints have to write.
    pub fn dirty_bytes(&self) -> u64 {
        (self.dirty.load(Ordering::Relaxed) * NODE_SIZE) as u64
    }
    /// Largest number of bytes of clean nodes.
    pub fn limit_bytes(&self) -> u64 {
        (self.limit * NODE_SIZE) as u64
    }
    /// A checkpoint of `epoch` starts writing.
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
    pub(crate) fn dirtied(&self) {
        self.dirty.fetch_add(1, Ordering::Relaxed);
    }
    pub(crate) fn cleaned(&self) {
        self.dirty.fetch_sub(1, Ordering::Relaxed);
    }
    /// A frame with unspecified contents.
    pub(crate) fn frame(&self) -> Box<[u8; NODE_SIZE]> {
        self.spare.lock().pop().unwrap_or_else(Node::frame)
    }
    pub(crate) fn recycle(&self, node: Node) {
        let mut spare = self.spare.lock();
        if spare.len() < SPARE_FRAMES {
            spare.push(node.into_frame());
        }
    }
    /// A leaf has come into memory; makes room if there is too much.
    pub(crate) fn loaded(&self, leaf: &Arc<LeafCell>) {
        self.used.fetch_add(1, Ordering::Relaxed);
        self.clock.lock().push_back(Arc::downgrade(leaf));
        self.shrink();
    }
    /// A leaf's node has left memory other than by the clock.
    pub(crate) fn unloaded(&self) {
        self.used.fetch_sub(1, Ordering::Relaxed);
    }
    /// Drops clean leaves that have not been used lately, while there are too many.
    pub(crate) fn shrink(&self) {
        if self.used.load(Ordering::Relaxed) <= self.limit {
            return;
        }
        for _ in 0..CLOCK_STEPS {
            if self.used.load(Ordering::Relaxed) <= self.limit {
                return;
            }
            let Some(weak) = self.clock.lock().pop_front() else { return };
            let Some(leaf) = weak.upgrade() else { continue };
            match leaf.try_drop(self) {
                Dropped::Node(node) => {
                    self.unloaded();
                    self.counters.add(Counter::NodeEvictions, 1);
                    self.recycle(node);
                }
                Dropped::Gone => {}
                Dropped::InUse => self.clock.lock().push_back(weak),
            }
        }
    }
}

/// What the clock found in a leaf cell.
pub(crate) enum Dropped {
    /// Its node, now out of the cell.
    Node(Node),
    /// Nothing in memory.
    Gone,
    /// Used lately, dirty, or locked.
    InUse,
}
