//! Compares parent pointers and directory entries one by one. Needed only if their sums differ
//! (`cross.rs`), or if the check has found another problem.

use super::census::Census;
use super::work::{LEAVES, Parts, Worker};
use super::{Check, is_dying, may_name};
use crate::name::NameIn;
use shoal_base::{Ino, Result};
use shoal_format::attr::Link;
use shoal_format::checkpoint::RootState;
use shoal_format::dirent::Dirent;
use shoal_format::inode::Inode;
use shoal_format::node::{Key, TreeId};
use shoal_tree::Part;
use shoal_txn::Root;
use std::ops::Range;

/// Inode blocks in a piece.
const BLOCKS: usize = if cfg!(debug_assertions) { 4 } else { 256 };

impl Check<'_> {
    /// Looks up the entry of each parent pointer.
    pub(crate) fn pointers(&mut self) -> Result<()> {
        if !self.is_doubtful() {
            self.sum.report.parents = self.sum.pointers.count();
            return Ok(());
        }
        let pieces: Vec<_> = self.census.pieces(BLOCKS).collect();
        let pieces = pieces.into_iter().map(Ok);
        self.spread(pieces, |worker, census, piece| worker.pointers(census, piece))
    }

    /// Looks up the parent pointer of each entry whose inode is in use.
    pub(super) fn names_against_pointers(&mut self) -> Result<()> {
        let volume = self.volume;
        let live = |root: &&Root| root.state() == RootState::Live;
        let roots = volume.0.store.roots().iter().filter(live);
        let pieces = Parts::new(volume, roots, TreeId::Dirents, LEAVES);
        self.spread(pieces, |worker, census, (root, part): (&Root, Part)| {
            let mut entry = |key: Key, value: &[u8]| {
                let dir = key.ino(root.id);
                if let Some(entry) = Dirent::decode(root.id, value)
                    && may_name(volume, dir, entry.child)
                    && let Some(child) = census.get(entry.child)
                    && child.kind == entry.kind & 0x7f
                {
                    worker.pointed_back(dir, entry.name, entry.child);
                }
                Ok(())
            };
            let mut lost = |_, _, _| {};
            root.dirents.for_each_readable(part.low, part.high, &mut entry, &mut lost)
        })
    }
}

impl Worker<'_> {
    fn pointers(&mut self, census: &Census, (root, blocks): (usize, Range<usize>)) -> Result<()> {
        let volume = self.volume;
        for seen in census.in_blocks(root, blocks).filter(|seen| !is_dying(volume, seen.ino)) {
            let Ok(inode) = volume.0.place_of(seen.ino) else { continue };
            let slot = inode.read();
            match self.parents(seen.ino, &slot.inode) {
                // Damaged attributes have been reported by their own pass.
                Err(e) if e.is_damage() => {}
                checked => checked?,
            }
        }
        Ok(())
    }

    /// Checks that each pointer has an entry that names this inode, and that there are as many as
    /// links.
    fn parents(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let parents = self.volume.paths().parents_in(ino, inode)?;
        let wanted = self.pointers_wanted(ino, inode);
        if parents.len() != wanted {
            let who = self.who(ino);
            let message = format!("{who}: {} parent pointers, not {wanted}", parents.len());
            self.problem("parent-count", message);
        }
        for parent in parents {
            self.found.report.parents += 1;
            let name = parent.name.escape_ascii();
            let line = |what: &str| format!("inode {ino}: {name} in {}: {what}", parent.dir);
            if self.generation_of(parent.dir) != Some(parent.generation.0) {
                self.problem("parent-dir", line("no such directory of that generation"));
                continue;
            }
            match self.volume.directories().find_entry(parent.dir, &parent.name) {
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
        let inode = self.volume.0.place_of(dir).ok()?;
        let core = inode.read().inode.core;
        (core.in_use() && core.is_dir()).then_some(core.generation)
    }

    /// Checks that an entry's child has the parent pointer.
    pub(super) fn pointed_back(&mut self, dir: Ino, name: &[u8], child: Ino) {
        if !self.volume.0.parents {
            return;
        }
        let Some(generation) = self.generation_of(dir) else { return };
        let Ok(inode) = self.volume.0.place_of(child) else { return };
        let here = NameIn { link: Link { dir, generation }, name };
        let slot = inode.read();
        match self.volume.paths().has_parent(child, &slot.inode, &here) {
            Ok(true) => {}
            Ok(false) => {
                let name = name.escape_ascii();
                let message =
                    format!("{name} in directory {dir}: inode {child} has no such parent pointer");
                self.problem("parent-missing", message);
            }
            // The message of the error has no path, so it is added here.
            Err(e) if e.is_damage() => {
                let path = self.volume.path_below(dir, name);
                let message = format!("{path}: attributes of inode {child} cannot be read");
                self.problem("parent-unreadable", message);
            }
            Err(_) => {}
        }
    }
}
