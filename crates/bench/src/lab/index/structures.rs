//! The structures that are compared: the XArray, and what else maps an inode number to an inode.
//!
//! All of them map a `u64` to a `u64` that stands for the pointer to an inode, and all may be used
//! by many threads. What a structure needs for an entry and would have anyway, because it is part
//! of the inode (the red-black tree's links), is made before the clock runs.

use intrusive_collections::{KeyAdapter, RBTree, RBTreeAtomicLink, intrusive_adapter};
use parking_lot::RwLock;
use shoal_xarray::{Guard, Value, XArray};
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

/// Operations of a structure that are measured.
pub(super) trait Index: Sync {
    /// As printed.
    const NAME: &str;
    /// Memory that an entry brings along.
    type Spare: Send;
    /// A thread that uses it for a while.
    type Reader<'a>
    where
        Self: 'a;

    fn new() -> Self;
    fn spare(key: u64) -> Self::Spare;
    fn insert(&self, key: u64, spare: Self::Spare);
    fn insert_with(reader: &Self::Reader<'_>, key: u64, spare: Self::Spare);
    fn remove(&self, key: u64);
    fn reader(&self) -> Self::Reader<'_>;
    fn get(reader: &Self::Reader<'_>, key: u64) -> Option<u64>;
    /// The same by a thread that reads once.
    fn get_once(&self, key: u64) -> Option<u64> {
        Self::get(&self.reader(), key)
    }
    /// Bytes that it takes for `entries`, where that is known exactly.
    fn bytes(&self, _entries: u64) -> Option<u64> {
        None
    }
}

/// The value that belongs to a key, so that a wrong answer is seen.
pub(super) fn value_of(key: u64) -> u64 {
    key ^ 0x5a5a
}

impl Index for XArray<Value> {
    const NAME: &str = "xarray";
    type Spare = ();
    type Reader<'a> = Guard<'a, Value>;

    fn new() -> Self {
        XArray::new()
    }
    fn spare(_key: u64) {}
    #[inline]
    fn insert(&self, key: u64, _spare: ()) {
        let value = Value::new(value_of(key) as usize).expect("far from 62 bits");
        XArray::insert(self, key, value).expect("memory");
    }
    #[inline]
    fn insert_with(reader: &Guard<'_, Value>, key: u64, _spare: ()) {
        let value = Value::new(value_of(key) as usize).expect("far from 62 bits");
        reader.insert(key, value).expect("memory");
    }
    fn remove(&self, key: u64) {
        XArray::remove(self, key);
    }
    fn reader(&self) -> Guard<'_, Value> {
        self.pin()
    }
    #[inline]
    fn get(reader: &Guard<'_, Value>, key: u64) -> Option<u64> {
        reader.get(key).map(|value| value.get() as u64)
    }
    #[inline]
    fn get_once(&self, key: u64) -> Option<u64> {
        XArray::get(self, key).map(|value| value.get() as u64)
    }
    fn bytes(&self, _entries: u64) -> Option<u64> {
        Some(self.memory_bytes() as u64)
    }
}

/// A node of the red-black tree, as it would be embedded in an inode.
pub(super) struct RbNode {
    link: RBTreeAtomicLink,
    key: u64,
    value: u64,
}

intrusive_adapter!(pub(super) RbAdapter = Box<RbNode>: RbNode { link => RBTreeAtomicLink });

impl<'a> KeyAdapter<'a> for RbAdapter {
    type Key = u64;
    fn get_key(&self, node: &'a RbNode) -> u64 {
        node.key
    }
}

impl Index for RwLock<RBTree<RbAdapter>> {
    const NAME: &str = "rbtree";
    type Spare = Box<RbNode>;
    type Reader<'a> = &'a Self;

    fn new() -> Self {
        RwLock::new(RBTree::new(RbAdapter::NEW))
    }
    fn spare(key: u64) -> Box<RbNode> {
        Box::new(RbNode { link: RBTreeAtomicLink::new(), key, value: value_of(key) })
    }
    #[inline]
    fn insert(&self, _key: u64, spare: Box<RbNode>) {
        self.write().insert(spare);
    }
    #[inline]
    fn insert_with(reader: &&Self, key: u64, spare: Box<RbNode>) {
        reader.insert(key, spare);
    }
    fn remove(&self, key: u64) {
        self.write().find_mut(&key).remove();
    }
    fn reader(&self) -> &Self {
        self
    }
    #[inline]
    fn get(reader: &&Self, key: u64) -> Option<u64> {
        reader.read().find(&key).get().map(|node| node.value)
    }
    fn bytes(&self, entries: u64) -> Option<u64> {
        Some(entries * size_of::<RbNode>() as u64)
    }
}

impl Index for RwLock<BTreeMap<u64, u64>> {
    const NAME: &str = "btreemap";
    type Spare = ();
    type Reader<'a> = &'a Self;

    fn new() -> Self {
        RwLock::default()
    }
    fn spare(_key: u64) {}
    #[inline]
    fn insert(&self, key: u64, _spare: ()) {
        self.write().insert(key, value_of(key));
    }
    #[inline]
    fn insert_with(reader: &&Self, key: u64, spare: ()) {
        reader.insert(key, spare);
    }
    fn remove(&self, key: u64) {
        self.write().remove(&key);
    }
    fn reader(&self) -> &Self {
        self
    }
    #[inline]
    fn get(reader: &&Self, key: u64) -> Option<u64> {
        reader.read().get(&key).copied()
    }
}

/// Shards of the hash map.
const SHARDS: usize = 128;

/// Numbers that are dense need no more of a hash than being spread.
#[derive(Default)]
pub(super) struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(self.0 ^ u64::from(*byte));
        }
    }
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

type Shard = RwLock<HashMap<u64, u64, BuildHasherDefault<Spread>>>;

/// A hash map in shards, each behind a lock: what the inode table was before.
pub(super) struct Sharded(Box<[Shard]>);

impl Sharded {
    #[inline]
    fn shard(&self, key: u64) -> &Shard {
        // Not the bits that the map inside uses.
        &self.0[(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % SHARDS]
    }
}

impl Index for Sharded {
    const NAME: &str = "hashmap";
    type Spare = ();
    type Reader<'a> = &'a Self;

    fn new() -> Self {
        Sharded((0..SHARDS).map(|_| Shard::default()).collect())
    }
    fn spare(_key: u64) {}
    #[inline]
    fn insert(&self, key: u64, _spare: ()) {
        self.shard(key).write().insert(key, value_of(key));
    }
    #[inline]
    fn insert_with(reader: &&Self, key: u64, spare: ()) {
        reader.insert(key, spare);
    }
    fn remove(&self, key: u64) {
        self.shard(key).write().remove(&key);
    }
    fn reader(&self) -> &Self {
        self
    }
    #[inline]
    fn get(reader: &&Self, key: u64) -> Option<u64> {
        reader.shard(key).read().get(&key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finds_what_was_inserted<I: Index>() {
        let index = I::new();
        for key in 0..1000 {
            index.insert(key, I::spare(key));
        }
        index.remove(500);
        let reader = index.reader();
        for key in 0..1001 {
            let expected = (key != 500 && key < 1000).then(|| value_of(key));
            assert_eq!(I::get(&reader, key), expected, "{} {key}", I::NAME);
            assert_eq!(index.get_once(key), expected, "{} {key}", I::NAME);
        }
    }

    #[test]
    fn all_of_them_are_maps() {
        finds_what_was_inserted::<XArray<Value>>();
        finds_what_was_inserted::<RwLock<RBTree<RbAdapter>>>();
        finds_what_was_inserted::<RwLock<BTreeMap<u64, u64>>>();
        finds_what_was_inserted::<Sharded>();
    }
}
