//! Attributes: forks and the `attrs` tree; values in data objects; and the parent pointers against
//! the entries, both ways.

use super::Check;
use crate::parent::NameIn;
use crate::xattr::Side;
use shoal_base::{Ino, Result};
use shoal_format::attr::{Attr, Attrs, Link, SUFFIX_MASK, verify_fork};
use shoal_format::extent::Extent;
use shoal_format::inode::{FLAG_ACL, FLAG_CAPABILITY, FLAG_DEFAULT_ACL, Form, Inode};
use shoal_format::node::{Key, TreeId};
use shoal_txn::Root;
use std::collections::HashSet;

/// Values in data objects that are remembered before they are looked at.
const VALUES: usize = 1 << 16;

impl Check<'_> {
    /// The attribute fork of an inode: its form, and what is in it.
    pub(super) fn fork(&mut self, ino: Ino, inode: &Inode) {
        let fork = &inode.attr[..];
        let possible = match inode.core.attr_form {
            Form::Empty | Form::Tree => fork.is_empty(),
            Form::Inline => !fork.is_empty(),
            Form::Extents => false,
        };
        if !possible {
            let message = format!("inode {ino}: {}", inode.to_text());
            return self.problem("inode-attr-fork", message);
        }
        match verify_fork(fork) {
            Err(rule) => self.problem("attr-fork", format!("attributes of inode {ino}: {rule}")),
            Ok(()) => {
                self.report.attributes += Attrs::new(fork).count() as u64;
                let extents = Attrs::new(fork).flatten().filter_map(|attr| attr.value.extent());
                self.values.extend(extents.map(|extent| (ino, extent)));
            }
        }
    }

    /// Attributes in the trees, what flags say of them, and values in data objects.
    pub(crate) fn attributes(&mut self) -> Result<()> {
        let volume = self.volume;
        for root in volume.store.roots.iter() {
            self.tree_attrs(root)?;
        }
        let mut last = None;
        while let Some(ino) = self.census.after(last) {
            last = Some(ino);
            self.step();
            let Ok(inode) = volume.place_of(ino) else { continue };
            let slot = inode.read();
            let checked = self.inode_attrs(ino, &slot.inode);
            self.damage_of(ino, "attrs", checked)?;
            self.add_pointers(ino, &slot.inode);
        }
        self.all_values()
    }

    /// Looks at the values in data objects when there are many to look at.
    pub(super) fn some_values(&mut self) -> Result<()> {
        if self.values.len() >= VALUES { self.all_values() } else { Ok(()) }
    }

    fn all_values(&mut self) -> Result<()> {
        for (ino, extent) in std::mem::take(&mut self.values) {
            self.value(ino, &extent)?;
        }
        Ok(())
    }

    /// The entries of an `attrs` tree: of an inode whose attributes are there, under their own key,
    /// and none twice.
    fn tree_attrs(&mut self, root: &Root) -> Result<()> {
        let volume = self.volume;
        let (mut owner, mut form) = (Ino(0), Form::Empty);
        let mut ids: HashSet<Vec<u8>> = HashSet::new();
        let mut nodes = Vec::new();
        let mut entry = |key: Key, raw: &[u8]| {
            let ino = Ino(key.hi);
            if ino != owner {
                owner = ino;
                form = match (self.census.get(ino).is_some(), volume.place_of(ino)) {
                    (true, Ok(inode)) => inode.read().inode.core.attr_form,
                    _ => Form::Empty,
                };
                ids.clear();
            }
            if form != Form::Tree {
                let message = format!("entry {:#x} of inode {ino}, which has none there", key.lo);
                self.problem("attr-owner", message);
            }
            let Some(attr) = Attr::decode_whole(raw) else {
                self.problem("attr", format!("entry {:#x} of inode {ino}: broken", key.lo));
                return Ok(());
            };
            self.report.attributes += 1;
            let text = attr.id().to_text();
            if attr.id().hash(volume.store.volume) != key.lo & !SUFFIX_MASK {
                self.problem("attr-hash", format!("{text} of inode {ino}: wrong key"));
            }
            // Only attributes of one hash can be the same.
            if key.lo & SUFFIX_MASK == 0 {
                ids.clear();
            }
            if !ids.insert(text.clone().into_bytes()) {
                self.problem("attr-twice", format!("{text} of inode {ino}"));
            }
            self.values.extend(attr.value.extent().map(|extent| (ino, extent)));
            self.some_values()
        };
        let mut lost = |error, low, high| nodes.push((error, low, high));
        root.attrs.for_each_readable(&mut entry, &mut lost)?;
        nodes.into_iter().for_each(|node| self.lost_node(root, TreeId::Attrs, node));
        Ok(())
    }

    /// Flags of the core against what is there.
    fn inode_attrs(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let mut flags = 0;
        self.volume.each_attr(ino, inode, Side::Plain, &mut |attr| {
            flags |= crate::attributes::flag_of(&attr.id());
            Ok(true)
        })?;
        let said = inode.core.flags & (FLAG_ACL | FLAG_DEFAULT_ACL | FLAG_CAPABILITY);
        if flags != said {
            self.problem("attr-flags", format!("inode {ino}: flags {said:#x}, not {flags:#x}"));
        }
        Ok(())
    }

    /// Parent pointers against entries. (The other way round is looked at with the entries.)
    pub(crate) fn pointers(&mut self) -> Result<()> {
        let volume = self.volume;
        if !self.is_doubtful() {
            self.report.parents = self.cross.pointers();
            return Ok(());
        }
        let mut last = None;
        while let Some(ino) = self.census.after(last) {
            last = Some(ino);
            if super::names::is_dying(volume, ino) {
                continue;
            }
            let Ok(inode) = volume.place_of(ino) else { continue };
            let slot = inode.read();
            match self.parents(ino, &slot.inode) {
                // What is wrong with its attributes has been said where they were looked at.
                Err(e) if e.is_damage() => {}
                checked => checked?,
            }
        }
        Ok(())
    }

    /// Each pointer leads to an entry that names this inode, and there are as many as links.
    fn parents(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let parents = self.volume.parents_in(ino, inode)?;
        let wanted = self.pointers_wanted(ino, inode);
        if parents.len() != wanted {
            let who = self.who(ino);
            let message = format!("{who}: {} parent pointers, not {wanted}", parents.len());
            self.problem("parent-count", message);
        }
        for parent in parents {
            self.report.parents += 1;
            let name = parent.name.escape_ascii();
            let line = |what: &str| format!("inode {ino}: {name} in {}: {what}", parent.dir);
            if self.generation_of(parent.dir) != Some(parent.generation.0) {
                self.problem("parent-dir", line("no such directory of that generation"));
                continue;
            }
            match self.volume.find_entry(parent.dir, &parent.name) {
                Ok(Some(found)) if found.child == ino => {}
                Ok(Some(found)) => {
                    self.problem("parent-entry", line(&format!("names inode {}", found.child)));
                }
                Ok(None) => self.problem("parent-entry", line("no such entry")),
                Err(e) if e.is_damage() => {
                    let path = self.volume.path_below(parent.dir, &parent.name);
                    let message = format!("{path} (inode {ino}): its entry cannot be read");
                    self.problem("parent-entry", message);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn generation_of(&self, dir: Ino) -> Option<u32> {
        let inode = self.volume.place_of(dir).ok()?;
        let core = inode.read().inode.core;
        (core.in_use() && core.is_dir()).then_some(core.generation)
    }

    /// An entry's child has the parent pointer.
    pub(super) fn pointed_back(&mut self, dir: Ino, name: &[u8], child: Ino) {
        if !self.volume.parents {
            return;
        }
        let Some(generation) = self.generation_of(dir) else { return };
        let Ok(inode) = self.volume.place_of(child) else { return };
        let here = NameIn { link: Link { dir, generation }, name };
        let slot = inode.read();
        match self.volume.has_parent(child, &slot.inode, &here) {
            Ok(true) => {}
            Ok(false) => {
                let name = name.escape_ascii();
                let message = format!("{name} in directory {dir}: inode {child} does not say so");
                self.problem("parent-missing", message);
            }
            // They say no path themselves; so this does.
            Err(e) if e.is_damage() => {
                let path = self.volume.path_below(dir, name);
                let message = format!("{path}: attributes of inode {child} cannot be read");
                self.problem("parent-unreadable", message);
            }
            Err(_) => {}
        }
    }

    /// A value in a data object.
    fn value(&mut self, ino: Ino, extent: &Extent) -> Result<()> {
        self.add_data(extent.data_addr().0, extent.len)?;
        let wrong = self.volume.value_problems(ino, extent.ptr)?;
        if wrong.is_empty() {
            self.report.data_bytes += u64::from(extent.len);
        }
        for (rule, what) in wrong {
            let message = format!("value of an attribute of {}: {what}", self.who(ino));
            self.problem(rule, message);
        }
        Ok(())
    }
}
