//! Parent pointers: each one with an existing directory restores its entry if that is lost. Others
//! are removed, and missing ones are written. Also removes directories from below themselves.

use super::entries::Entry;
use super::{Name, Node, Repair};
use crate::name::NameIn;
use crate::records;
use crate::repair::Mending;
use crate::types::{Parent, check_name};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::attr::Link;
use std::collections::HashSet;

impl Repair<'_> {
    pub(crate) fn pointers(&mut self) -> Result<()> {
        if self.volume.0.parents {
            for ino in self.sorted(|node| node.nlink > 0) {
                self.step();
                let parents = {
                    let place = self.volume.0.place_of(ino)?;
                    let slot = place.read();
                    self.volume.paths().parents_in(ino, &slot.inode)?
                };
                for parent in parents {
                    self.pointer(ino, parent)?;
                }
            }
        }
        self.settle()
    }

    /// Processes one parent pointer.
    fn pointer(&mut self, ino: Ino, parent: Parent) -> Result<()> {
        let Parent { dir, generation, name } = parent;
        let above = self.nodes.get(&dir).filter(|node| node.is_dir());
        let there = above.is_some_and(|node| node.generation == generation.0);
        if there && self.may_be_in(ino, dir) && check_name(&name).is_ok() {
            let Some(node) = self.nodes.get(&ino) else { return Ok(()) };
            let (kind, may) = (node.kind, !node.is_dir() || node.names == 0);
            match self.volume.directories().find_entry(dir, &name)? {
                Some(found) if found.child == ino => return Ok(()),
                None if may => {
                    self.accept(ino, dir, &name, true);
                    let path = self.path(dir, &name);
                    self.did(format!("{path}: entry restored, inode {ino}"));
                    return self.insert(dir, Entry { child: ino, kind, name });
                }
                _ => {}
            }
        }
        self.volume.drop_pointer(ino, Link { dir, generation: generation.0 }, &name)?;
        let name = name.escape_ascii();
        self.lost(format!("inode {ino}: pointer to {name} in directory {dir} removed"));
        Ok(())
    }

    /// Accepts the doubtful entries of directories for which no better name was found.
    fn settle(&mut self) -> Result<()> {
        for Name { child, dir, name } in std::mem::take(&mut self.doubtful) {
            if self.nodes.get(&child).is_some_and(|node| node.names == 0) {
                self.accept(child, dir, &name, !self.volume.0.parents);
                continue;
            }
            self.remove(dir, &name)?;
            let path = self.volume.inspection().path_below(dir, &name);
            self.lost(format!("{path}: entry removed: directory {child} has another name"));
        }
        Ok(())
    }

    /// Removes the name of a directory in every loop that does not lead to the top.
    pub(crate) fn loops(&mut self) -> Result<()> {
        let mut good: HashSet<Ino> = HashSet::from([Ino::ROOT]);
        for ino in self.sorted(Node::is_dir) {
            let (mut at, mut path) = (ino, Vec::new());
            let mut here = HashSet::new();
            while !good.contains(&at) {
                if !here.insert(at) {
                    self.unname(at)?;
                    break;
                }
                path.push(at);
                match self.nodes.get(&at).filter(|node| node.names > 0) {
                    Some(node) => at = node.parent,
                    // It has no name, and will get one.
                    None => break,
                }
            }
            good.extend(path);
        }
        Ok(())
    }

    fn unname(&mut self, ino: Ino) -> Result<()> {
        let Some(name) = self.dir_names.remove(&ino) else { return Ok(()) };
        let Some(node) = self.nodes.get_mut(&ino) else { return Ok(()) };
        node.names = 0;
        let dir = node.parent;
        let generation = self.nodes.get(&dir).map(|above| above.generation);
        if let Some(above) = self.nodes.get_mut(&dir) {
            above.entries = above.entries.saturating_sub(1);
            above.subdirs = above.subdirs.saturating_sub(1);
        }
        self.remove(dir, &name)?;
        self.missing.retain(|missing| missing.child != ino);
        if let Some(generation) = generation {
            self.volume.drop_pointer(ino, Link { dir, generation }, &name)?;
        }
        self.lost(format!(
            "directory {ino} was below itself: entry {} in {dir} removed",
            name.escape_ascii()
        ));
        Ok(())
    }

    pub(crate) fn missing_pointers(&mut self) -> Result<()> {
        if !self.volume.0.parents {
            return Ok(());
        }
        for name in std::mem::take(&mut self.missing) {
            let path = self.path(name.dir, &name.name);
            let what = format!("{path}: parent pointer of inode {}", name.child);
            match self.volume.write_pointer(&name, false) {
                Ok(()) => self.did(format!("{what} written")),
                // The inode's data must move out, for which the free space must be known.
                Err(Error::Code(Code::NoSpace)) => {
                    self.did(format!("{what} to be written, its contents moved out of the inode"));
                    self.later.push(name);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }
}

impl Mending<'_> {
    /// Writes the parent pointer of an existing name of an inode.
    pub(crate) fn write_pointer(self, name: &Name, journaled: bool) -> Result<()> {
        let mut txn = match journaled {
            true => self.0.begin_space(4096, records::REPAIR)?,
            false => self.0.store.begin_in_memory(),
        };
        let generation = self.0.place_of(name.dir)?.read().inode.core.generation;
        let here = NameIn { link: Link { dir: name.dir, generation }, name: &name.name };
        let place = self.0.place_of(name.child)?;
        let mut locked = place.write();
        let plan = self.paths().plan_parent(name.child, locked.inode(), None, Some(&here))?;
        let pending = self.paths().apply_parent(&mut txn, &mut locked, plan, &here)?;
        self.intents().finish(&mut txn, &mut locked, pending)?;
        txn.stamp(&mut locked)?;
        txn.commit().map(|_| ())
    }

    /// Removes a parent pointer, in memory.
    fn drop_pointer(self, ino: Ino, link: Link, name: &[u8]) -> Result<()> {
        let mut txn = self.0.store.begin_in_memory();
        let place = self.0.place_of(ino)?;
        let mut locked = place.write();
        let old = NameIn { link, name };
        let plan = self.paths().plan_parent(ino, locked.inode(), Some(&old), None)?;
        let pending = self.xattrs().apply(&mut txn, &mut locked, plan)?;
        self.intents().finish(&mut txn, &mut locked, pending)?;
        txn.commit().map(|_| ())
    }
}
