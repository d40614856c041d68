//! B+tree nodes: slotted pages of 16 KiB in memory, stored without their free bytes.
//!
//! ```text
//! in memory := header (64) | slots (20 each, by ascending key) | free | values, growing down
//! on disk   := header (64) | slots and values, possibly compressed (`node/stored.rs`)
//! slot      := key hi 8 | key lo 8 | offset of the value 2 | length 2
//! ```
//!
//! Leaves (level 0) hold the tree's values. Inner nodes hold 32-byte pointers, each under the
//! lowest key of the child. Removed values leave garbage in the heap, which is compacted when an
//! insertion needs the space.

use crate::bytes::{u16_at, u64_at};
use crate::codec::Codec;
use crate::declare::{layout, numbered};
use shoal_base::invariant;
use shoal_base::limits::{NODE_SIZE, TREE_VALUE_MAX};
use shoal_base::{Addr, RootId};
use std::cmp::Ordering;

mod key;
mod stored;

pub use key::Key;
pub use stored::stamp_node;

/// `SND2`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SND2");

numbered! {
    /// The four trees of a subvolume. The number is the index in the subvolume's record.
    pub enum TreeId: u8 {
        /// Inode block number → pointer to the block, free-slot mask.
        0 Imap,
        /// Directory, name hash → entry.
        1 Dirents,
        /// Inode, attribute hash → attribute.
        2 Attrs,
        /// Inode, file offset → extent.
        3 Extents,
    }
}

impl TreeId {
    /// The name, for messages.
    pub fn name(self) -> &'static str {
        ["imap", "dirents", "attrs", "extents"][self as usize]
    }
}

layout! {
    /// Header of a node.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct NodeHeader: "node", 64 of varying,
    "Header of a B+tree node. Slots of 20 bytes follow, then the values, from the lowest offset \
     to 16,384; both may be compressed." {
        0 magic: u32 = MAGIC, "`SND2`";
        4 tree: TreeId, "0 imap, 1 dirents, 2 attrs, 3 extents";
        5 level: u8, "0 for a leaf";
        6 root: RootId, "subvolume it belongs to";
        8 volume: u64, "first half of the volume id";
        16 addr: Addr, "address it was written to";
        24 epoch: u64, "checkpoint that wrote it";
        32 count: u16, "number of entries";
        34 heap: u16, "offset of the lowest value";
        36 garbage: u16, "bytes of removed values";
        38 len: u16, "bytes of the node on disk";
        40 low: Key, "lowest key that it may hold: two numbers of 8 bytes";
        56 codec: Codec, "of the slots and values: 0 none, 1 lz4, 2 zstd";
        57 reserved[7], "zero";
    }
}

layout! {
    /// An entry of a node.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Slot: "slot", 20 of 20, "An entry of a node." {
        0 key: Key, "two numbers of 8 bytes";
        16 offset: u16, "offset of the value in the node of 16,384 bytes";
        18 len: u16, "bytes of the value";
    }
}

/// Bytes of the header.
pub const HEADER: usize = NodeHeader::SIZE;
/// Bytes of a slot.
pub const SLOT: usize = Slot::SIZE;

const AT_TREE: usize = NodeHeader::TABLE.at("tree");
const AT_LEVEL: usize = NodeHeader::TABLE.at("level");
const AT_ROOT: usize = NodeHeader::TABLE.at("root");
const AT_VOLUME: usize = NodeHeader::TABLE.at("volume");
const AT_ADDR: usize = NodeHeader::TABLE.at("addr");
const AT_EPOCH: usize = NodeHeader::TABLE.at("epoch");
const AT_COUNT: usize = NodeHeader::TABLE.at("count");
const AT_HEAP: usize = NodeHeader::TABLE.at("heap");
const AT_GARBAGE: usize = NodeHeader::TABLE.at("garbage");
const AT_LOW: usize = NodeHeader::TABLE.at("low");
const SLOT_OFFSET: usize = Slot::TABLE.at("offset");
const SLOT_LEN: usize = Slot::TABLE.at("len");

/// The identity of a node, for its header and its verification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeId {
    /// Low half of the volume id.
    pub volume: u64,
    /// Subvolume through which it is reached.
    pub root: RootId,
    /// Tree it belongs to.
    pub tree: TreeId,
}

/// The bytes of a node, known to be well-formed.
pub struct Node {
    raw: Box<[u8; NODE_SIZE]>,
}

impl Node {
    /// Makes an empty node in `raw`, overwriting it.
    pub fn init(mut raw: Box<[u8; NODE_SIZE]>, id: NodeId, level: u8, low: Key) -> Node {
        let head = NodeHeader {
            tree: id.tree,
            level,
            root: id.root,
            volume: id.volume,
            addr: Addr(0),
            epoch: 0,
            count: 0,
            heap: NODE_SIZE as u16,
            garbage: 0,
            len: 0,
            low,
            codec: Codec::None,
        };
        raw[..HEADER].copy_from_slice(&head.store());
        Node { raw }
    }
    /// Allocates a zeroed frame.
    pub fn frame() -> Box<[u8; NODE_SIZE]> {
        Box::new([0; NODE_SIZE])
    }
    /// Returns the frame for reuse.
    pub fn into_frame(self) -> Box<[u8; NODE_SIZE]> {
        self.raw
    }
    /// Copies the node into another frame.
    pub fn copy_into(&self, mut frame: Box<[u8; NODE_SIZE]>) -> Node {
        frame.copy_from_slice(&self.raw[..]);
        Node { raw: frame }
    }
    #[inline]
    fn set_u16(&mut self, at: usize, v: u16) {
        self.raw[at..at + 2].copy_from_slice(&v.to_le_bytes());
    }
    #[inline]
    fn heap(&self) -> usize {
        u16_at(&self.raw[..], AT_HEAP) as usize
    }
    #[inline]
    fn garbage(&self) -> usize {
        u16_at(&self.raw[..], AT_GARBAGE) as usize
    }
    /// Number of entries.
    #[inline]
    pub fn count(&self) -> usize {
        u16_at(&self.raw[..], AT_COUNT) as usize
    }
    /// Its level; 0 for a leaf.
    pub fn level(&self) -> u8 {
        self.raw[AT_LEVEL]
    }
    /// Epoch of the checkpoint that wrote it.
    pub fn epoch(&self) -> u64 {
        u64_at(&self.raw[..], AT_EPOCH)
    }
    /// Subvolume that wrote it. For repair, which finds nodes that nothing points to. The subvolume
    /// through which a node is reached may be another.
    pub fn root(&self) -> RootId {
        RootId(u16_at(&self.raw[..], AT_ROOT))
    }
    /// Lowest key that this node may hold.
    pub fn low(&self) -> Key {
        Key::new(u64_at(&self.raw[..], AT_LOW), u64_at(&self.raw[..], AT_LOW + 8))
    }
    /// The `i`-th key.
    #[inline]
    pub fn key(&self, i: usize) -> Key {
        let slot = &self.raw[HEADER + i * SLOT..][..16];
        Key::new(u64_at(slot, 0), u64_at(slot, 8))
    }
    #[inline]
    fn slot(&self, i: usize) -> (usize, usize) {
        let slot = &self.raw[HEADER + i * SLOT..][..SLOT];
        (u16_at(slot, SLOT_OFFSET) as usize, u16_at(slot, SLOT_LEN) as usize)
    }
    /// The `i`-th value.
    #[inline]
    pub fn value(&self, i: usize) -> &[u8] {
        let (offset, len) = self.slot(i);
        &self.raw[offset..offset + len]
    }
    /// Returns `Ok(i)` if the key is entry `i`, `Err(i)` if it would become entry `i`.
    #[inline]
    pub fn search(&self, key: Key) -> std::result::Result<usize, usize> {
        let (mut low, mut high) = (0, self.count());
        while low < high {
            let mid = (low + high) / 2;
            match self.key(mid).cmp(&key) {
                Ordering::Less => low = mid + 1,
                Ordering::Greater => high = mid,
                Ordering::Equal => return Ok(mid),
            }
        }
        Err(low)
    }
    /// Free bytes, garbage included.
    #[inline]
    pub fn room(&self) -> usize {
        self.heap() - (HEADER + self.count() * SLOT) + self.garbage()
    }
    /// Bytes used by entries.
    pub fn used(&self) -> usize {
        NODE_SIZE - HEADER - self.room()
    }
    /// Returns whether an entry with a value of `len` bytes fits.
    #[inline]
    pub fn fits(&self, len: usize) -> bool {
        self.room() >= SLOT + len
    }

    fn push_heap(&mut self, value: &[u8], slots: usize) -> usize {
        if self.heap() - (HEADER + slots * SLOT) < value.len() {
            self.compact();
        }
        let at = self.heap() - value.len();
        self.raw[at..at + value.len()].copy_from_slice(value);
        self.set_u16(AT_HEAP, at as u16);
        at
    }

    /// Inserts an entry at `i`, as returned by `search`. Returns `false`, and does nothing, if it
    /// does not fit.
    pub fn insert(&mut self, i: usize, key: Key, value: &[u8]) -> bool {
        if !self.fits(value.len()) {
            return false;
        }
        let count = self.count();
        let end = HEADER + count * SLOT;
        // The slot array grows first; the heap must leave it room.
        if self.heap() < end + SLOT + value.len() {
            self.compact();
        }
        let at = self.push_heap(value, count + 1);
        let start = HEADER + i * SLOT;
        self.raw.copy_within(start..end, start + SLOT);
        let slot = Slot { key, offset: at as u16, len: value.len() as u16 };
        self.raw[start..start + SLOT].copy_from_slice(&slot.store());
        self.set_u16(AT_COUNT, count as u16 + 1);
        true
    }

    /// Replaces the value of entry `i`. Returns `false`, and does nothing, if it does not fit.
    pub fn replace(&mut self, i: usize, value: &[u8]) -> bool {
        let (offset, len) = self.slot(i);
        if value.len() > len && self.room() + len < value.len() {
            return false;
        }
        let at = HEADER + i * SLOT;
        if value.len() <= len {
            self.raw[offset..offset + value.len()].copy_from_slice(value);
            self.add_garbage(len - value.len());
        } else {
            // Set to empty first, so that a compaction does not copy the old value.
            self.set_u16(at + SLOT_LEN, 0);
            self.add_garbage(len);
            let offset = self.push_heap(value, self.count());
            self.set_u16(at + SLOT_OFFSET, offset as u16);
        }
        self.set_u16(at + SLOT_LEN, value.len() as u16);
        true
    }

    /// Removes entry `i`.
    pub fn remove(&mut self, i: usize) {
        let (_, len) = self.slot(i);
        let count = self.count();
        let start = HEADER + i * SLOT;
        self.raw.copy_within(start + SLOT..HEADER + count * SLOT, start);
        self.set_u16(AT_COUNT, count as u16 - 1);
        self.add_garbage(len);
    }

    fn add_garbage(&mut self, len: usize) {
        let total = self.garbage() + len;
        self.set_u16(AT_GARBAGE, total as u16);
    }

    /// Compacts the heap: removes its garbage.
    fn compact(&mut self) {
        let old = self.raw.clone();
        let mut heap = NODE_SIZE;
        for i in 0..self.count() {
            let (offset, len) = self.slot(i);
            heap -= len;
            self.raw[heap..heap + len].copy_from_slice(&old[offset..offset + len]);
            self.set_u16(HEADER + i * SLOT + SLOT_OFFSET, heap as u16);
        }
        self.set_u16(AT_HEAP, heap as u16);
        self.set_u16(AT_GARBAGE, 0);
    }

    /// Moves the entries from `at` on to a new node made in `frame`, whose low key is `low`.
    pub fn split_off(&mut self, at: usize, low: Key, frame: Box<[u8; NODE_SIZE]>) -> Node {
        let mut right = Node { raw: frame };
        right.raw[..HEADER].copy_from_slice(&self.raw[..HEADER]);
        right.raw[AT_LOW..AT_LOW + 8].copy_from_slice(&low.hi.to_le_bytes());
        right.raw[AT_LOW + 8..AT_LOW + 16].copy_from_slice(&low.lo.to_le_bytes());
        right.set_u16(AT_COUNT, 0);
        right.set_u16(AT_HEAP, NODE_SIZE as u16);
        right.set_u16(AT_GARBAGE, 0);
        let count = self.count();
        for i in at..count {
            let fitted = right.insert(i - at, self.key(i), self.value(i));
            invariant!(fitted, "half a node does not fit in a node");
        }
        let moved: usize = (at..count).map(|i| self.slot(i).1).sum();
        self.set_u16(AT_COUNT, at as u16);
        self.add_garbage(moved);
        right
    }

    /// Appends all entries of `right`, whose keys must all be larger. They must fit.
    pub fn append_all(&mut self, right: &Node) {
        for i in 0..right.count() {
            let fitted = self.insert(self.count(), right.key(i), right.value(i));
            invariant!(fitted, "merged node does not fit");
        }
    }

    fn broken_rule(&self, id: NodeId, level: Option<u8>, addr: Addr) -> Option<String> {
        let raw = &self.raw[..];
        if raw[..4] != MAGIC.to_le_bytes() {
            return Some("magic".into());
        }
        if raw[AT_TREE] != id.tree as u8 {
            return Some(format!("belongs to tree {}", raw[AT_TREE]));
        }
        if u64_at(raw, AT_VOLUME) != id.volume || u64_at(raw, AT_ADDR) != addr.0 {
            return Some("written for another volume or address".into());
        }
        if level.is_some_and(|l| l != raw[AT_LEVEL]) {
            return Some(format!("level {}, expected {level:?}", raw[AT_LEVEL]));
        }
        let (count, heap, end) = (self.count(), self.heap(), HEADER + self.count() * SLOT);
        if heap > NODE_SIZE || end > heap {
            return Some(format!("{count} entries, heap at {heap}"));
        }
        let mut used = 0;
        for i in 0..count {
            let (offset, len) = self.slot(i);
            // A longer value could make a leaf that no split can fit.
            if offset < heap || offset + len > NODE_SIZE || len > TREE_VALUE_MAX {
                return Some(format!("value {i} at {offset}+{len}"));
            }
            used += len;
            let after = if i == 0 { self.low() } else { self.key(i - 1).next() };
            if self.key(i) < after || self.key(i) == Key::MAX {
                return Some(format!("key {i} out of order"));
            }
        }
        if used + self.garbage() != NODE_SIZE - heap {
            return Some(format!("{used} bytes of values, {} of garbage", self.garbage()));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    pub(super) const ID: NodeId = NodeId { volume: 7, root: RootId(0), tree: TreeId::Dirents };

    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    #[test]
    fn behaves_as_a_map_until_full() {
        for seed in 1..50u64 {
            let mut rng = seed * 7919;
            let mut node = Node::init(Node::frame(), ID, 0, Key::MIN);
            let mut model: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
            for _ in 0..3000 {
                let key = Key::new(random(&mut rng) % 4, random(&mut rng) % 100);
                let value = vec![random(&mut rng) as u8; (random(&mut rng) % 120) as usize];
                match (random(&mut rng) % 3, node.search(key)) {
                    (0, Ok(i)) => {
                        node.remove(i);
                        model.remove(&key);
                    }
                    (_, Ok(i)) => {
                        if node.replace(i, &value) {
                            model.insert(key, value);
                        }
                    }
                    (_, Err(i)) => {
                        if node.insert(i, key, &value) {
                            model.insert(key, value);
                        }
                    }
                }
            }
            let got: Vec<_> =
                (0..node.count()).map(|i| (node.key(i), node.value(i).to_vec())).collect();
            assert_eq!(got, model.into_iter().collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(node.broken_rule(ID, Some(0), Addr(0)), None, "seed {seed}");
            let at = node.count() / 2;
            let low = node.key(at);
            let right = node.split_off(at, low, Node::frame());
            assert_eq!(node.broken_rule(ID, Some(0), Addr(0)), None);
            assert_eq!(right.broken_rule(ID, Some(0), Addr(0)), None);
            node.append_all(&right);
            assert_eq!(got.len(), node.count());
        }
    }
}
