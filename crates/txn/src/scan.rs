//! Finding unreferenced objects.
//!
//! Inode blocks without `imap`: each records its number, subvolume, volume, address and epoch. The
//! newest one that no later checkpoint could have written is the one that `imap` pointed to.
//!
//! Leaves without the inner nodes above them: they record the same, and the lowest key that they
//! cover, but not the end of their range. So a leaf is assumed to cover the keys from its lowest to
//! its last, and where two overlap, the newer one is used. An entry that was the last of its leaf
//! when it was removed may thereby reappear; that is the cost of not losing all others.

use crate::held::Held;
use crate::read::read_around;
use crate::roots::Root;
use crate::store::Store;
use shoal_base::limits::ALIGN;
use shoal_base::{Addr, Result, SegNo};
use shoal_format::Ptr;
use shoal_format::extent::{DataHeader, Extent, HEADER};
use shoal_format::inode::BlockPlace;
use shoal_format::node::{Key, Node, NodeHeader, NodeId, TreeId};
use shoal_format::usage::SegKind;
use shoal_tree::{Action, Tree};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

/// A leaf found on the device.
struct Leaf {
    epoch: u64,
    node: Node,
}

/// Non-overlapping ranges of keys, ends included.
#[derive(Default)]
struct Taken(BTreeMap<Key, Key>);

impl Taken {
    fn has(&self, key: Key) -> bool {
        self.0.range(..=key).next_back().is_some_and(|(_, last)| key <= *last)
    }
    fn add(&mut self, mut low: Key, mut last: Key) {
        while let Some((l, h)) = self.0.range(..=last).next_back().map(|(l, h)| (*l, *h))
            && h >= low
        {
            self.0.remove(&l);
            (low, last) = (low.min(l), last.max(h));
        }
        self.0.insert(low, last);
    }
}

/// Searches the whole device for leaves of a tree that were below lost inner nodes, which covered
/// `ranges`, and inserts their entries.
pub(crate) fn adopt_entries(
    store: &Store,
    tree: &Tree,
    ranges: &[Range<Key>],
    held: &mut Held,
) -> Result<()> {
    let mut leaves = leaves_of(store, tree, held)?;
    leaves.sort_by_key(|leaf| Reverse(leaf.epoch));
    // From the lowest key to the last, of the earlier leaves, which are newer.
    let mut taken = Taken::default();
    for Leaf { node, .. } in &leaves {
        let Some(last) = node.count().checked_sub(1).map(|i| node.key(i)) else { continue };
        let mut entries = 0;
        for i in 0..node.count() {
            let (key, value) = (node.key(i), node.value(i));
            let wanted = ranges.iter().any(|range| range.contains(&key))
                && !taken.has(key)
                && is_its_own(store, tree.id(), key, value)?;
            if wanted {
                entries += u32::from(tree.update(key, store.epoch(), &mut |was| match was {
                    None => Action::Put(value),
                    Some(_) => Action::Keep,
                })?);
            }
        }
        if entries > 0 {
            taken.add(node.low(), last);
        }
    }
    Ok(())
}

/// Returns whether the target of an extent record belongs to that file.
fn is_its_own(store: &Store, id: NodeId, key: Key, value: &[u8]) -> Result<bool> {
    if id.tree != TreeId::Extents {
        return Ok(true);
    }
    let Some(extent) = Extent::decode_value(key.lo, value) else { return Ok(false) };
    if extent.is_prealloc() {
        return Ok(true);
    }
    let at = Addr(extent.ptr.addr.0.saturating_sub(HEADER as u64));
    if !store.geometry.contains(at, HEADER as u64) {
        return Ok(false);
    }
    let mut raw = [0; HEADER];
    read_around(&*store.device, &mut raw, at.0)?;
    let header = DataHeader::decode(&raw, store.volume);
    Ok(header.is_some_and(|h| h.ino() == key.ino(id.root) && h.may_be_of(&extent.ptr)))
}

fn leaves_of(store: &Store, tree: &Tree, held: &mut Held) -> Result<Vec<Leaf>> {
    let geometry = store.geometry;
    let mut raw = vec![0; geometry.segment_size as usize];
    let mut leaves = Vec::new();
    for seg in (1..geometry.segments).filter(|seg| held.may_hold_metadata(*seg)) {
        let start = geometry.start_of(SegNo(seg));
        read_around(&*store.device, &mut raw, start.0)?;
        for at in (0..raw.len()).step_by(ALIGN) {
            let here = &raw[at..];
            if NodeHeader::read(here).map(|node| node.tree) != Ok(tree.id().tree) {
                continue;
            }
            let place = (tree.id(), Some(0), Addr(start.0 + at as u64));
            let Ok(node) = Node::decode_found(here, Node::frame(), place) else { continue };
            let epoch = node.epoch();
            // A leaf of another subvolume may have the same keys.
            if node.root() == tree.id().root && epoch < store.epoch() {
                leaves.push(Leaf { epoch, node });
            }
        }
    }
    Ok(leaves)
}

/// Searches the whole device for the inode blocks of `root` whose numbers are in `ranges`, and
/// enters them in `imap`.
pub(crate) fn adopt_blocks(
    store: &Store,
    root: &Root,
    ranges: &[Range<u64>],
    held: &mut Held,
) -> Result<()> {
    let geometry = store.geometry;
    let mut raw = vec![0; geometry.segment_size as usize];
    // By number: epoch and pointer.
    let mut found: BTreeMap<u64, (u64, Ptr)> = BTreeMap::new();
    for seg in (1..geometry.segments).filter(|seg| held.may_hold_metadata(*seg)) {
        let start = geometry.start_of(SegNo(seg));
        read_around(&*store.device, &mut raw, start.0)?;
        for at in (0..raw.len()).step_by(ALIGN) {
            let here = &raw[at..];
            let Some(place) = BlockPlace::decode(here) else { continue };
            let number = place.id.number();
            let ours = place.id == root.table.block_id(number)
                && place.addr.0 == start.0 + at as u64
                && place.epoch < store.epoch()
                && place.coding.len as usize <= here.len()
                && number < root.table.next_block()
                && ranges.iter().any(|range| range.contains(&number));
            if ours && found.get(&number).is_none_or(|(epoch, _)| *epoch < place.epoch) {
                let stored = &here[..place.coding.len as usize];
                let ptr = Ptr::coded(place.addr, place.epoch, stored, place.coding);
                found.insert(number, (place.epoch, ptr));
            }
        }
    }
    for (number, (_, ptr)) in found {
        if root.table.salvage().adopt(number, ptr, store.epoch())? {
            held.pointer(&geometry, ptr, SegKind::Meta);
        }
    }
    Ok(())
}
