//! Entries against inodes, both ways; link and entry counts; directories that lie within
//! themselves.

use super::census::{DIRECTORY, Dir};
use super::{Check, PROBLEMS_MAX};
use crate::dir::CHAINED;
use crate::volume::Inner;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Ino, Result, RootId};
use shoal_format::attr::Link;
use shoal_format::checkpoint::RootState;
use shoal_format::dirent::{Dirent, SUFFIX_MASK, name_hash};
use shoal_format::node::{Key, TreeId};

/// Whether an inode is in a root that has been deleted: it may have lost its names, or the names in
/// it, already.
pub(super) fn is_dying(volume: &Inner, ino: Ino) -> bool {
    volume.store.root(ino).is_ok_and(|root| root.state() != RootState::Live)
}

impl Check<'_> {
    pub(crate) fn names(&mut self) -> Result<()> {
        let volume = self.volume;
        for root in volume.store.roots.iter() {
            if root.state() != RootState::Live {
                // What is in it is being freed: names may already lead nowhere.
                continue;
            }
            let mut nodes = Vec::new();
            let mut entry = |key: Key, value: &[u8]| {
                self.entry(key, value);
                Ok(())
            };
            let mut lost = |error, low, high| nodes.push((error, low, high));
            root.dirents.for_each_readable(&mut entry, &mut lost)?;
            self.chain(Key::MIN, false);
            nodes.into_iter().for_each(|node| self.lost_node(root, TreeId::Dirents, node));
        }
        if self.is_doubtful() { self.names_against_pointers() } else { Ok(()) }
    }

    /// Looks up the parent pointer of each name whose inode is there.
    fn names_against_pointers(&mut self) -> Result<()> {
        let volume = self.volume;
        for root in volume.store.roots.iter().filter(|root| root.state() == RootState::Live) {
            let mut entry = |key: Key, value: &[u8]| {
                let dir = Ino(key.hi);
                if let Some(entry) = Dirent::decode(value)
                    && self.may_name(dir, entry.child)
                    && let Some(child) = self.census.get(entry.child)
                    && child.kind == entry.kind & 0x7f
                {
                    self.pointed_back(dir, entry.name, entry.child);
                }
                Ok(())
            };
            root.dirents.for_each_readable(&mut entry, &mut |_, _, _| {})?;
        }
        Ok(())
    }

    /// Whether a directory may have an entry of this inode: it is of the same root, or another's
    /// top.
    fn may_name(&self, dir: Ino, child: Ino) -> bool {
        child.root() == dir.root() || dir == Ino::ROOT && self.is_top(child)
    }

    fn entry(&mut self, key: Key, value: &[u8]) {
        self.step();
        self.report.dirents += 1;
        let dir = Ino(key.hi);
        let Some(entry) = Dirent::decode(value) else {
            return self.problem("dirent", format!("entry {:#x} of directory {dir}", key.lo));
        };
        self.chain(key, entry.kind & CHAINED != 0);
        let name = String::from_utf8_lossy(entry.name).into_owned();
        if name_hash(self.volume.store.volume, entry.name) != key.lo & !SUFFIX_MASK {
            self.problem("dirent-hash", format!("{name:?} in directory {dir}: wrong key"));
        }
        let parent_dir = self.census.dir(dir).map(|found| {
            found.entries += 1;
            found.generation
        });
        if parent_dir.is_none() {
            self.problem("dirent-dir-missing", format!("{name:?} in {dir}, no directory"));
        }
        let kind = entry.kind & 0x7f;
        if !self.may_name(dir, entry.child) {
            let message = format!("{name:?} in {dir}: inode {} of another root", entry.child);
            return self.problem("dirent-root", message);
        }
        let Some(child) = self.census.get(entry.child) else {
            let path = self.volume.path_below(dir, entry.name);
            let what = if self.is_unreadable(entry.child) { "cannot be read" } else { "is free" };
            let message = format!("{path}: inode {} {what}", entry.child);
            return self.problem("dirent-child-missing", message);
        };
        self.census.name(entry.child);
        if child.kind != kind {
            let message = format!("{name:?} in directory {dir}: type {kind}, not {}", child.kind);
            return self.problem("dirent-type", message);
        }
        if let Some(generation) = parent_dir {
            self.cross.name(Link { dir, generation }, entry.name, entry.child);
        }
        if kind == DIRECTORY {
            let parent = self.census.dir(entry.child).map(|child| child.parent);
            if let Some(parent) = parent.filter(|parent| *parent != dir) {
                let message =
                    format!("directory {} says {parent}, its name is in {dir}", entry.child);
                self.problem("dir-parent", message);
            }
            if let Some(found) = self.census.dir(dir) {
                found.subdirs += 1;
            }
        }
    }

    /// Whether an inode is in a block that cannot be read.
    fn is_unreadable(&self, ino: Ino) -> bool {
        let number = ino.index() / INODES_PER_BLOCK as u64;
        let in_block = |(root, from, to): &(RootId, u64, u64)| {
            *root == ino.root() && (*from..*to).contains(&number)
        };
        self.lost.iter().any(in_block)
    }

    /// Entries of one hash follow each other without a gap, each but the last saying so.
    fn chain(&mut self, key: Key, more: bool) {
        let good = match self.chained {
            Some(next) => key == next,
            None => key.lo & SUFFIX_MASK == 0,
        };
        if !good {
            let at = self.chained.unwrap_or(key);
            let message = format!("entry {:#x} of directory {} and those before it", at.lo, at.hi);
            self.problem("dirent-chain", message);
        }
        self.chained = more.then(|| key.next());
    }

    /// Whether an inode is the top of a live root.
    fn is_top(&self, ino: Ino) -> bool {
        ino.index() == Ino::ROOT.index() && !is_dying(self.volume, ino)
    }

    /// Every root is where its name says, and only there.
    pub(crate) fn root_tops(&mut self) -> Result<()> {
        let volume = self.volume;
        for root in volume.store.roots.iter().skip(1).filter(|r| r.state() == RootState::Live) {
            let name = root.name();
            let found = volume.find_entry(Ino::ROOT, &name);
            if !matches!(found, Ok(Some(f)) if f.child == root.top()) {
                let name = String::from_utf8_lossy(&name).into_owned();
                self.problem("root-name", format!("root {}: {name:?} does not name it", root.id.0));
            }
        }
        Ok(())
    }

    /// What inodes say of themselves and others know better: links, entries, bytes.
    pub(crate) fn counts(&mut self) -> Result<()> {
        self.links();
        self.sums();
        Ok(())
    }

    fn links(&mut self) {
        let mut problems = Vec::new();
        for dir in self.census.dirs() {
            if is_dying(self.volume, dir.ino) {
                continue;
            }
            self.report.directories += 1;
            if problems.len() < PROBLEMS_MAX {
                self.links_of_dir(dir, &mut problems);
            }
        }
        for seen in self.census.iter().filter(|seen| seen.kind != DIRECTORY && !seen.orphan) {
            let (names, links) = (seen.names, seen.links);
            if names != links && problems.len() < PROBLEMS_MAX && !is_dying(self.volume, seen.ino) {
                let who = self.who(seen.ino);
                problems.push(("links", format!("{who}: {names} names, {links} links")));
            }
        }
        problems.sort();
        problems.into_iter().for_each(|(rule, message)| self.problem(rule, message));
    }

    fn links_of_dir(&self, dir: &Dir, problems: &mut Vec<(&'static str, String)>) {
        let ino = dir.ino;
        let Some(seen) = self.census.get(ino) else { return };
        let wanted = if ino == Ino::ROOT { 0 } else { 1 };
        if !seen.orphan && seen.names != wanted {
            problems.push((
                "dir-names",
                format!("directory {} has {} names", self.who(ino), seen.names),
            ));
        }
        let links = if seen.orphan { 0 } else { 2 + dir.subdirs };
        if u64::from(seen.links) != links {
            let message = format!("directory {ino}: {} links, not {links}", seen.links);
            problems.push(("dir-links", message));
        }
        if dir.size != dir.entries {
            let message = format!("directory {ino}: {} entries, says {}", dir.entries, dir.size);
            problems.push(("dir-size", message));
        }
    }

    /// Every directory leads to the top.
    pub(crate) fn loops(&mut self) -> Result<()> {
        let dirs = self.census.dirs();
        let rank = |ino: Ino| dirs.binary_search_by_key(&ino, |dir| dir.ino).ok();
        let is_orphan = |ino| self.census.get(ino).is_some_and(|seen| seen.orphan);
        // A walk that came by here: which, from 1 on. Every later one ends here.
        let mut walked = vec![0u32; dirs.len()];
        let mut problems = Vec::new();
        for (walk, dir) in (1..).zip(dirs) {
            if is_orphan(dir.ino) || is_dying(self.volume, dir.ino) {
                continue;
            }
            let mut at = dir.ino;
            // To the top, or to that of a removed tree.
            while at != Ino::ROOT && !is_orphan(at) {
                match rank(at) {
                    Some(here) if walked[here] == 0 => {
                        walked[here] = walk;
                        at = dirs[here].parent;
                    }
                    Some(here) if walked[here] != walk => break,
                    _ => {
                        problems.push(format!("directory {} does not lead to the top", dir.ino));
                        break;
                    }
                }
            }
        }
        problems.sort();
        problems.into_iter().for_each(|p| self.problem("dir-loop", p));
        Ok(())
    }
}
