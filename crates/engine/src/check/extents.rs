//! Where file data is, and whether it is what was written.

use super::census::DIRECTORY;
use super::{Check, PROBLEMS_MAX};
use crate::data::inline_extents;
use crate::volume::Inner;
use shoal_base::{Addr, Ino, Result};
use shoal_format::Ptr;
use shoal_format::attr::KEY_HIGH;
use shoal_format::extent::{DataHeader, Extent, HEADER};
use shoal_format::inode::Form;
use shoal_format::node::{Key, TreeId};

impl Check<'_> {
    pub(crate) fn extents(&mut self) -> Result<()> {
        let volume = self.volume;
        let mut last = None;
        while let Some(ino) = self.census.after(last) {
            last = Some(ino);
            self.step();
            let Ok(inode) = volume.place_of(ino) else { continue };
            let slot = inode.read();
            let core = slot.inode.core;
            if core.data_form == Form::Extents {
                let list = self.damage_of(ino, "extents", inline_extents(ino, &slot.inode))?;
                self.list(ino, &list.unwrap_or_default())?;
            }
        }
        for root in volume.store.roots.iter() {
            let (mut owner, mut list) = (Ino(0), Vec::new());
            let mut nodes = Vec::new();
            let mut record = |key: Key, value: &[u8]| {
                if Ino(key.hi) != owner {
                    self.tree_list(owner, &list)?;
                    (owner, list) = (Ino(key.hi), Vec::new());
                }
                match Extent::decode_value(key.lo, value) {
                    Some(extent) => list.push(extent),
                    None => {
                        let who = self.who(owner);
                        self.problem("extent", format!("{who}: record {}", key.lo));
                    }
                }
                Ok(())
            };
            let mut lost = |error, low, high| nodes.push((error, low, high));
            root.extents.for_each_readable(&mut record, &mut lost)?;
            self.tree_list(owner, &list)?;
            nodes.into_iter().for_each(|node| self.lost_node(root, TreeId::Extents, node));
        }
        Ok(())
    }

    fn tree_list(&mut self, ino: Ino, list: &[Extent]) -> Result<()> {
        if list.is_empty() {
            return Ok(());
        }
        let form = match self.volume.place_of(ino) {
            Ok(inode) => inode.read().inode.core.data_form,
            Err(_) => Form::Empty,
        };
        if form != Form::Tree || self.census.get(ino).is_none() {
            let who = self.who(ino);
            self.problem("extent-owner", format!("{} records of {who}", list.len()));
        }
        if self.census.get(ino).is_some_and(|seen| seen.kind != DIRECTORY) {
            let found: u64 = list.iter().map(|extent| u64::from(extent.len)).sum();
            self.census.add_bytes(ino, -i128::from(found));
        }
        self.list(ino, list)
    }

    /// The extents of one file, in order.
    fn list(&mut self, ino: Ino, list: &[Extent]) -> Result<()> {
        let mut end = 0;
        for extent in list {
            self.report.extents += 1;
            if extent.offset < end {
                let text = extent.to_text();
                let who = self.who(ino);
                self.problem("extent-overlap", format!("{who}: {text} begins before {end}"));
            }
            end = extent.end();
            if extent.is_prealloc() {
                self.prealloc += u64::from(extent.len);
            } else {
                self.add_data(extent.data_addr().0, extent.len)?;
                self.object(ino, extent)?;
            }
        }
        Ok(())
    }

    /// The object on the device.
    fn object(&mut self, ino: Ino, extent: &Extent) -> Result<()> {
        let wrong = self.volume.object_problems(ino, extent)?;
        if wrong.iter().all(|(rule, _)| *rule == "data-header") {
            self.report.data_bytes += u64::from(extent.len);
        }
        for (rule, what) in wrong {
            let message = format!("{}: {what}", self.who(ino));
            self.problem(rule, message);
        }
        Ok(())
    }

    /// What the inodes say of their bytes.
    pub(super) fn sums(&mut self) {
        let line = |(ino, left): (Ino, i128)| {
            let place = self.volume.place_of(ino);
            let said = place.map_or(0, |inode| inode.read().inode.core.bytes);
            let (who, found) = (self.who(ino), i128::from(said) - left);
            format!("{who}: {found} bytes of extents, says {said}")
        };
        let wrong = self.census.wrong_bytes().into_iter().take(PROBLEMS_MAX);
        let mut lines: Vec<String> = wrong.map(line).collect();
        lines.sort();
        lines.into_iter().for_each(|l| self.problem("inode-bytes", l));
    }
}

impl Inner {
    /// What is wrong with the object that an extent of this file points to: rule and words.
    pub(super) fn object_problems(
        &self,
        ino: Ino,
        extent: &Extent,
    ) -> Result<Vec<(&'static str, String)>> {
        let Extent { offset, ptr, .. } = extent;
        let mine = |h: DataHeader| h.ino == ino && h.len == ptr.len && h.offset & KEY_HIGH == 0;
        let rules = ["extent-address", "data-unreadable", "data-header", "data-checksum"];
        let part = format!("bytes {offset} to {}", extent.end());
        let wrong = self.objects(*ptr, &mine, rules)?;
        Ok(wrong.into_iter().map(|(rule, what)| (rule, format!("{part}: {what}"))).collect())
    }

    /// The same of a value of one of its attributes.
    pub(super) fn value_problems(&self, ino: Ino, ptr: Ptr) -> Result<Vec<(&'static str, String)>> {
        let mine = |h: DataHeader| h.ino == ino && h.len == ptr.len && h.offset & KEY_HIGH != 0;
        self.objects(
            ptr,
            &mine,
            ["value-address", "value-unreadable", "value-header", "value-checksum"],
        )
    }

    /// The object at a pointer: where it is, whether it can be read, whose it is, its checksum.
    fn objects(
        &self,
        ptr: Ptr,
        mine: &dyn Fn(DataHeader) -> bool,
        [address, unreadable, foreign, checksum]: [&'static str; 4],
    ) -> Result<Vec<(&'static str, String)>> {
        let at = Addr(ptr.addr.0.saturating_sub(HEADER as u64));
        let len = HEADER + ptr.len as usize;
        let place = format!("object at byte {}", at.0);
        if !self.store.geometry.contains(at, len as u64) {
            return Ok(vec![(address, format!("{place} is outside any segment"))]);
        }
        let mut raw = vec![0; len];
        match self.store.device.read_at(&mut raw, at.0) {
            Err(e) if e.is_damage() => return Ok(vec![(unreadable, e.to_string())]),
            read => read?,
        }
        let mut wrong = Vec::new();
        if !DataHeader::decode(&raw, self.store.volume).is_some_and(mine) {
            wrong.push((foreign, format!("{place} is another's")));
        }
        if let Err(e) = ptr.verify(&raw[HEADER..], "data object") {
            wrong.push((checksum, e.to_string()));
        }
        Ok(wrong)
    }
}
