//! Inodes without a name: subvolumes get their names back, files with an unfinished removal become
//! orphans, and all others move to `lost+found` in the top directory of their subvolume, as `#` and
//! the number.

use super::entries::Entry;
use super::{DIRECTORY, Repair};
use crate::clock::now;
use crate::types::FileKind;
use shoal_base::{Ino, Result, RootId};
use shoal_format::checkpoint::RootState;
use shoal_format::inode::{Core, Inode};
use shoal_txn::OrphanSlot;
use std::collections::HashMap;

const LOST_AND_FOUND: &[u8] = b"lost+found";

impl Repair<'_> {
    pub(crate) fn reattach(&mut self) -> Result<()> {
        let orphans = self.volume.0.store.orphans();
        let slots: HashMap<Ino, OrphanSlot> = orphans.all().into_iter().collect();
        for ino in self.sorted(|node| node.names == 0) {
            let Some(node) = self.nodes.get(&ino) else { continue };
            if ino == Ino::ROOT {
                continue;
            }
            if ino.index() == Ino::ROOT.index() {
                self.name_root(ino)?;
            } else if slots.contains_key(&ino) || node.nlink == 0 {
                if !slots.contains_key(&ino) {
                    let _ = orphans.take(ino)?;
                    self.lost(format!("inode {ino} has no link: to be freed"));
                }
            } else {
                let dir = self.lost_and_found(ino.root())?;
                let name = self.free_name(dir, format!("#{}", ino.index()))?;
                self.name_it(ino, dir, name)?;
            }
        }
        for ino in self.sorted(|node| node.truncating && node.names > 0) {
            if !slots.contains_key(&ino) {
                let _ = orphans.take(ino)?;
                self.did(format!("inode {ino} has an unfinished truncate: to be finished"));
            }
        }
        let mut before = None;
        for (ino, slot) in orphans.all() {
            let dying = self.volume.0.store.root(ino).is_ok_and(|r| r.state() != RootState::Live);
            let wanted = |node: &super::Node| node.names == 0 || node.truncating;
            let stays = dying || self.nodes.get(&ino).is_some_and(wanted);
            if !stays || before.replace(ino) == Some(ino) {
                orphans.free(slot, ino);
                self.did(format!("inode {ino} removed from the orphan table: not an orphan"));
            }
        }
        self.root_names()
    }

    /// Gives an inode a name.
    fn name_it(&mut self, ino: Ino, dir: Ino, name: Vec<u8>) -> Result<()> {
        let kind = self.nodes.get(&ino).map_or(0, |node| node.kind);
        self.accept(ino, dir, &name, !self.volume.0.parents);
        let path = self.volume.inspection().path_below(dir, &name);
        self.lost(format!("inode {ino} had no name: now {path}"));
        self.insert(dir, Entry { child: ino, kind, name })
    }

    /// Returns the name itself if it is free, otherwise with a number.
    fn free_name(&self, dir: Ino, name: String) -> Result<Vec<u8>> {
        let mut found = name.clone().into_bytes();
        let mut n = 0;
        while self.volume.directories().find_entry(dir, &found)?.is_some() {
            n += 1;
            found = format!("{name}.{n}").into_bytes();
        }
        Ok(found)
    }

    fn name_root(&mut self, top: Ino) -> Result<()> {
        let name = self.volume.0.store.root(top)?.name().to_vec();
        let name = String::from_utf8(name).unwrap_or_else(|_| format!("#root-{}", top.root().0));
        let name = if name.is_empty() { format!("#root-{}", top.root().0) } else { name };
        let name = self.free_name(Ino::ROOT, name)?;
        self.name_it(top, Ino::ROOT, name)
    }

    /// Sets the recorded names of subvolumes to those of their top directories.
    fn root_names(&mut self) -> Result<()> {
        let volume = self.volume;
        for root in volume.0.store.roots().iter().skip(1).filter(|r| r.state() == RootState::Live) {
            let Some(name) = self.dir_names.get(&root.top()).cloned() else { continue };
            if *root.name() != *name {
                self.did(format!("subvolume {} is named {}", root.id.0, name.escape_ascii()));
                root.set(RootState::Live, &name);
            }
        }
        Ok(())
    }

    /// Returns the directory for inodes without a name; creates it if necessary.
    fn lost_and_found(&mut self, id: RootId) -> Result<Ino> {
        if let Some(dir) = self.found.get(&id.0) {
            return Ok(*dir);
        }
        let root = self.volume.0.store.root(Ino::new(id, 1))?;
        let top = root.top();
        let dir = match self.volume.directories().find_entry(top, LOST_AND_FOUND)? {
            Some(found) if found.kind == DIRECTORY => found.child,
            _ => self.make_lost_and_found(top)?,
        };
        self.found.insert(id.0, dir);
        Ok(dir)
    }

    fn make_lost_and_found(&mut self, top: Ino) -> Result<Ino> {
        let name = String::from_utf8_lossy(LOST_AND_FOUND).into_owned();
        let name = self.free_name(top, name)?;
        let store = &self.volume.0.store;
        let root = store.root(top)?;
        let place = root.table.numbers().allocate(root.table.get(top)?.at(), 0)?;
        let stamp = now();
        let before = place.read().inode.core.generation;
        let core = Core {
            mode: FileKind::Directory.mode_bits() | 0o700,
            nlink: 2,
            generation: (before + 1).max(store.generation_floor()).max(1),
            parent_or_rdev: top.0,
            atime: stamp,
            mtime: stamp,
            ctime: stamp,
            btime: stamp,
            ..Core::default()
        };
        let inode = Inode { core, ..Inode::default() };
        self.note(place.ino, &inode);
        *place.write().edit(&root.table, self.epoch) = inode;
        root.table.count_inodes(1);
        let path = self.volume.inspection().path_below(top, &name);
        self.did(format!("{path} created"));
        self.accept(place.ino, top, &name, !self.volume.0.parents);
        self.insert(top, Entry { child: place.ino, kind: DIRECTORY, name })?;
        Ok(place.ino)
    }
}
