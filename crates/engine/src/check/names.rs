//! Entries against inodes, both ways; link and entry counts; directories that lie within
//! themselves.

use super::Check;
use crate::dir::CHAINED;
use crate::volume::Inner;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Ino, Result, RootId};
use shoal_format::checkpoint::RootState;
use shoal_format::dirent::{Dirent, SUFFIX_MASK, name_hash};
use shoal_format::node::{Key, TreeId};
use std::collections::HashSet;

const DIRECTORY: u8 = 4;

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
        Ok(())
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
        match self.seen.get_mut(&dir) {
            Some(seen) if seen.kind == DIRECTORY => seen.entries += 1,
            _ => {
                self.problem("dirent-dir-missing", format!("{name:?} in {dir}, no directory"));
            }
        }
        let kind = entry.kind & 0x7f;
        if entry.child.root() != dir.root() && (dir != Ino::ROOT || !self.is_top(entry.child)) {
            let message = format!("{name:?} in {dir}: inode {} of another root", entry.child);
            return self.problem("dirent-root", message);
        }
        let Some(child) = self.seen.get_mut(&entry.child) else {
            let path = self.volume.path_below(dir, entry.name);
            let what = if self.is_unreadable(entry.child) { "cannot be read" } else { "is free" };
            let message = format!("{path}: inode {} {what}", entry.child);
            return self.problem("dirent-child-missing", message);
        };
        child.names = child.names.saturating_add(1);
        if child.kind != kind {
            let message = format!("{name:?} in directory {dir}: type {kind}, not {}", child.kind);
            return self.problem("dirent-type", message);
        }
        let parent = Ino(child.parent_or_bytes);
        self.pointed_back(dir, entry.name, entry.child);
        if kind == DIRECTORY {
            if parent != dir {
                let message =
                    format!("directory {} says {parent}, its name is in {dir}", entry.child);
                self.problem("dir-parent", message);
            }
            if let Some(seen) = self.seen.get_mut(&dir) {
                seen.found += 1;
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
        let volume = self.volume;
        for (ino, seen) in self.seen.iter().filter(|(ino, _)| !is_dying(volume, **ino)) {
            let orphan = seen.names == u32::MAX;
            if seen.kind == DIRECTORY {
                self.report.directories += 1;
                let wanted = if *ino == Ino::ROOT { 0 } else { 1 };
                if !orphan && seen.names != wanted {
                    let message = format!("directory {} has {} names", self.who(*ino), seen.names);
                    problems.push(("dir-names", message));
                }
                let links = if orphan { 0 } else { 2 + seen.found };
                if u64::from(seen.nlink) != links {
                    let message = format!("directory {ino}: {} links, not {links}", seen.nlink);
                    problems.push(("dir-links", message));
                }
                if seen.size != seen.entries {
                    let message =
                        format!("directory {ino}: {} entries, says {}", seen.entries, seen.size);
                    problems.push(("dir-size", message));
                }
            } else if !orphan && seen.names != seen.nlink {
                let (names, links) = (seen.names, seen.nlink);
                let who = self.who(*ino);
                problems.push(("links", format!("{who}: {names} names, {links} links")));
            }
        }
        problems.sort();
        problems.into_iter().for_each(|(rule, message)| self.problem(rule, message));
    }

    /// Every directory leads to the top.
    pub(crate) fn loops(&mut self) -> Result<()> {
        // Or to a removed tree's top.
        let orphan = |(ino, seen): (&Ino, &super::Seen)| (seen.names == u32::MAX).then_some(*ino);
        let mut good: HashSet<Ino> = self.seen.iter().filter_map(orphan).collect();
        good.insert(Ino::ROOT);
        let mut problems = Vec::new();
        for (ino, seen) in &self.seen {
            if seen.kind != DIRECTORY || seen.names == u32::MAX || is_dying(self.volume, *ino) {
                continue;
            }
            let (mut at, mut path) = (*ino, Vec::new());
            let mut here = HashSet::new();
            while !good.contains(&at) {
                path.push(at);
                let parent = self.seen.get(&at).filter(|s| s.kind == DIRECTORY);
                match parent.map(|s| Ino(s.parent_or_bytes)) {
                    Some(up) if here.insert(at) => at = up,
                    _ => {
                        problems.push(format!("directory {ino} does not lead to the top"));
                        break;
                    }
                }
            }
            good.extend(path);
        }
        problems.sort();
        problems.into_iter().for_each(|p| self.problem("dir-loop", p));
        Ok(())
    }
}
