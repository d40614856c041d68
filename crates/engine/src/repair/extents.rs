//! Extents: removes records that are invalid, have no inode, are outside the volume or overlap
//! others, and sums up the rest. A lost node of records leaves holes in files, which are reported.
//!
//! Data checksums are not verified: nothing can restore the contents, and reading them fails as
//! before.

use super::{Node, Repair};
use shoal_base::{Addr, Ino, Result, RootId};
use shoal_format::checkpoint::RootState;
use shoal_format::extent::{Extent, HEADER};
use shoal_format::inode::Form;
use shoal_format::node::{Key, TreeId};
use shoal_txn::{LostKind, Root, fork_extents};

impl Repair<'_> {
    pub(crate) fn extents(&mut self) -> Result<()> {
        for ino in self.sorted(|node| node.near_data) {
            self.inline(ino)?;
        }
        let volume = self.volume;
        for root in volume.0.store.roots().iter().filter(|r| r.state() == RootState::Live) {
            self.records(root)?;
        }
        self.holes();
        Ok(())
    }

    fn inline(&mut self, ino: Ino) -> Result<()> {
        let place = self.volume.0.place_of(ino)?;
        let slot = place.read();
        if slot.inode.core.data_form != Form::Extents {
            return Ok(());
        }
        let all = fork_extents(&slot.inode.data).unwrap_or_default();
        drop(slot);
        let mut end = 0;
        let good = |e: &&Extent| {
            let good = e.offset >= end && self.is_inside(e);
            end = if good { e.end() } else { end };
            good
        };
        let kept: Vec<Extent> = all.iter().filter(good).copied().collect();
        let bytes = kept.iter().map(|e| u64::from(e.stored_len())).sum();
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.bytes = bytes;
        }
        if kept.len() < all.len() {
            let mut raw = Vec::new();
            kept.iter().for_each(|extent| extent.encode_inline(&mut raw));
            let table = &self.volume.0.store.root(ino)?.table;
            let mut locked = place.write();
            let inode = locked.edit(table, self.epoch);
            inode.core.data_form = if raw.is_empty() { Form::Empty } else { Form::Extents };
            inode.data = raw.into();
            drop(locked);
            let n = all.len() - kept.len();
            let hint = self.volume.inspection().path_hint(ino);
            self.lost(format!("inode {ino}{hint}: {n} invalid extents removed: now holes"));
        }
        Ok(())
    }

    /// Returns whether an extent's object is in a segment.
    fn is_inside(&self, extent: &Extent) -> bool {
        let geometry = self.volume.0.store.geometry();
        let header = Addr(extent.ptr.addr.0.saturating_sub(HEADER as u64));
        let len = u64::from(extent.ptr.len) + HEADER as u64;
        extent.is_prealloc() || geometry.contains(header, len) && geometry.segment_of(header).0 != 0
    }

    fn records(&mut self, root: &Root) -> Result<()> {
        let (mut owner, mut end) = (Ino(0), 0);
        let mut gone = Vec::new();
        root.extents.for_each(Key::MIN, Key::MAX, &mut |key, value| {
            let ino = key.ino(root.id);
            if ino != owner {
                (owner, end) = (ino, 0);
            }
            let extent = Extent::decode_value(key.lo, value);
            let extent = extent.filter(|e| e.offset >= end && self.is_inside(e));
            let owned = |node: &&mut Node| node.far_data && ino.root() == root.id;
            match (extent, self.nodes.get_mut(&ino).filter(owned)) {
                (Some(extent), Some(node)) => {
                    node.bytes += u64::from(extent.stored_len());
                    end = extent.end();
                }
                _ => gone.push(key),
            }
            Ok(true)
        })?;
        for key in gone {
            root.extents.delete(key, self.epoch)?;
            let ino = key.ino(root.id);
            let hint = self.volume.inspection().path_hint(ino);
            self.lost(format!("inode {ino}{hint}: invalid extent at {} removed", key.lo));
        }
        Ok(())
    }

    /// Reports files whose records may have been in lost nodes.
    fn holes(&mut self) {
        let lost = self.lost_ranges(TreeId::Extents);
        for ino in self.sorted(|node| node.far_data && !lost.is_empty()) {
            for range in &lost {
                if range.may_hold(ino) {
                    let LostRange { low, high, .. } = *range;
                    let from = if low.hi == ino.index() { low.lo } else { 0 };
                    let end = high.hi == ino.index();
                    let to = if end { format!(" to {}", high.lo) } else { "".into() };
                    let hint = self.volume.inspection().path_hint(ino);
                    self.lost(format!(
                        "inode {ino}{hint}: extents of its bytes from {from}{to} may be lost: \
                         compare it with a backup; lost ranges read as zeros"
                    ));
                }
            }
        }
    }

    /// Returns the key ranges of a tree's lost nodes.
    pub(super) fn lost_ranges(&self, tree: TreeId) -> Vec<LostRange> {
        let lost = self.losses.iter().filter(|loss| loss.kind == LostKind::Node(tree));
        lost.map(|loss| LostRange { root: loss.root, low: loss.low, high: loss.high }).collect()
    }
}

/// A lost range of keys of a tree.
pub(super) struct LostRange {
    root: RootId,
    low: Key,
    /// One past the last key.
    high: Key,
}

impl LostRange {
    /// Returns whether entries of an inode may be in the range.
    pub(super) fn may_hold(&self, ino: Ino) -> bool {
        self.root == ino.root() && self.low < Key::behind(ino) && Key::of(ino, 0) < self.high
    }
}
