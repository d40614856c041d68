//! Attributes in the `attrs` tree: removes records that are invalid, have no inode or are
//! duplicates. Then corrects the attribute flags in the inodes' cores. Lost parent pointers are
//! restored later, from the entries. Other attributes cannot be restored; the affected inodes are
//! reported.

use super::Repair;
use crate::xattr::Side;
use shoal_base::{Ino, Result};
use shoal_format::attr::{Attr, SUFFIX_MASK};
use shoal_format::checkpoint::RootState;
use shoal_format::inode::{FLAG_ACL, FLAG_CAPABILITY, FLAG_DEFAULT_ACL};
use shoal_format::node::{Key, TreeId};
use shoal_txn::Root;
use std::collections::HashSet;

/// Flags of a core that indicate attributes.
pub(super) const ATTR_FLAGS: u32 = FLAG_ACL | FLAG_DEFAULT_ACL | FLAG_CAPABILITY;

impl Repair<'_> {
    pub(crate) fn attributes(&mut self) -> Result<()> {
        let volume = self.volume;
        for root in volume.0.store.roots().iter().filter(|r| r.state() == RootState::Live) {
            self.attr_records(root)?;
        }
        let lost = self.lost_ranges(TreeId::Attrs);
        for ino in self.sorted(|node| node.far_attrs || node.wrong_flags) {
            self.step();
            self.flags(ino)?;
            let far = self.nodes.get(&ino).is_some_and(|node| node.far_attrs);
            if far && lost.iter().any(|range| range.may_hold(ino)) {
                let hint = volume.inspection().path_hint(ino);
                self.lost(format!("inode {ino}{hint}: some of its attributes may be lost"));
            }
        }
        Ok(())
    }

    fn attr_records(&mut self, root: &Root) -> Result<()> {
        let volume = self.volume;
        let geometry = volume.0.store.geometry();
        let mut gone = Vec::new();
        let mut base = (0, 0);
        let mut ids: HashSet<String> = HashSet::new();
        root.attrs.for_each(Key::MIN, Key::MAX, &mut |key, raw| {
            if base != (key.hi, key.lo & !SUFFIX_MASK) {
                base = (key.hi, key.lo & !SUFFIX_MASK);
                ids.clear();
            }
            let ino = key.ino(root.id);
            let owned =
                ino.root() == root.id && self.nodes.get(&ino).is_some_and(|node| node.far_attrs);
            let good = Attr::decode_whole(raw).is_some_and(|attr| {
                let extent = attr.value.extent();
                let inside =
                    |ptr: &shoal_format::Ptr| geometry.contains(ptr.addr, u64::from(ptr.len));
                attr.id(root.id).hash(root.id, volume.0.store.volume()) == base.1
                    && extent.is_none_or(|extent| inside(&extent.ptr))
                    && ids.insert(attr.id(root.id).to_text())
            });
            if !owned || !good {
                gone.push(key);
            }
            Ok(true)
        })?;
        for key in gone {
            root.attrs.delete(key, self.epoch)?;
            let ino = key.ino(root.id);
            self.lost(format!("inode {ino}: invalid attribute {:#x} removed", key.lo));
        }
        Ok(())
    }

    fn flags(&mut self, ino: Ino) -> Result<()> {
        let volume = self.volume;
        let place = volume.0.place_of(ino)?;
        let slot = place.read();
        let mut flags = 0;
        volume.xattrs().each_attr(ino, &slot.inode, Side::Plain, &mut |attr| {
            flags |= crate::permissions::flag_of(&attr.id(ino.root()));
            Ok(true)
        })?;
        let said = slot.inode.core.flags;
        drop(slot);
        if said & ATTR_FLAGS != flags {
            let table = &volume.0.store.root(ino)?.table;
            place.write().edit(table, self.epoch).core.flags = said & !ATTR_FLAGS | flags;
            self.did(format!("inode {ino}: attribute flags {flags:#x}, was {said:#x}"));
        }
        Ok(())
    }
}
