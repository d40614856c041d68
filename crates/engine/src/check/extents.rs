//! Fourth pass: where file data is, and whether it is what was written.

use super::Check;
use crate::data::inline_extents;
use crate::volume::Inner;
use shoal_base::{Addr, Ino, Result};
use shoal_format::extent::{DataHeader, Extent, HEADER};
use shoal_format::inode::Form;
use shoal_format::node::Key;

impl Check<'_> {
    pub(super) fn extents(&mut self) -> Result<()> {
        let volume = self.volume;
        let mut inodes: Vec<Ino> = self.seen.keys().copied().collect();
        inodes.sort_unstable();
        for ino in inodes {
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
            let mut failed = None;
            let walked = root.extents.for_each(Key::MIN, Key::MAX, &mut |key, value| {
                if Ino(key.hi) != owner {
                    if let Err(e) = self.tree_list(owner, &list) {
                        failed = Some(e);
                        return Ok(false);
                    }
                    (owner, list) = (Ino(key.hi), Vec::new());
                }
                match Extent::decode_value(key.lo, value) {
                    Some(extent) => list.push(extent),
                    None => {
                        let who = self.who(owner);
                        self.problem("extent", format!("{who}: record {}", key.lo));
                    }
                }
                Ok(true)
            });
            failed.map_or(Ok(()), Err)?;
            self.damage("extents", walked)?;
            self.tree_list(owner, &list)?;
        }
        self.sums();
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
        if form != Form::Tree || !self.seen.contains_key(&ino) {
            let who = self.who(ino);
            self.problem("extent-owner", format!("{} records of {who}", list.len()));
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
            if let Some(seen) = self.seen.get_mut(&ino) {
                seen.found += u64::from(extent.len);
            }
            if extent.is_prealloc() {
                self.prealloc += u64::from(extent.len);
            } else {
                self.data.push((extent.data_addr().0, extent.len));
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
    fn sums(&mut self) {
        let wrong = self.seen.iter().filter(|(_, s)| s.kind != 4 && s.found != s.parent_or_bytes);
        let line = |(ino, s): (&Ino, &super::Seen)| {
            format!("inode {ino}: {} bytes of extents, says {}", s.found, s.parent_or_bytes)
        };
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
        let text = extent.to_text();
        let at = Addr(extent.ptr.addr.0.saturating_sub(HEADER as u64));
        let len = HEADER + extent.ptr.len as usize;
        if !self.store.geometry.contains(at, len as u64) {
            return Ok(vec![("extent-address", format!("{text} is outside any segment"))]);
        }
        let mut raw = vec![0; len];
        self.store.device.read_at(&mut raw, at.0)?;
        let mut wrong = Vec::new();
        let header = DataHeader::decode(&raw, self.store.volume);
        if header.is_none_or(|h| h.ino != ino || h.len != extent.ptr.len) {
            wrong.push(("data-header", format!("{text}: the object is another's")));
        }
        if let Err(e) = extent.ptr.verify(&raw[HEADER..], "data object") {
            wrong.push(("data-checksum", e.to_string()));
        }
        Ok(wrong)
    }
}
