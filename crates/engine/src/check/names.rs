//! Entries against inodes in both directions, link and entry counts, directories below themselves.

use super::census::{Census, DIRECTORY, Dir};
use super::sum::{Sum, follows};
use super::work::{LEAVES, Parts, WORK_ENTRY, Worker};
use super::{Check, PROBLEMS_MAX, is_dying, may_name};
use crate::directories::CHAINED;
use shoal_base::{Ino, Result, RootId};
use shoal_format::attr::Link;
use shoal_format::checkpoint::RootState;
use shoal_format::dirent::{Dirent, SUFFIX_MASK, name_hash};
use shoal_format::node::{Key, TreeId};
use shoal_tree::Part;
use shoal_txn::Root;
use std::sync::atomic::Ordering;

/// Checks the entries of one piece.
struct Names<'n, 'v> {
    worker: &'n mut Worker<'v>,
    census: &'n Census,
    /// Inode blocks that cannot be read.
    lost: &'n [(RootId, u64, u64)],
    root: RootId,
    /// Positions of the last directories in the census.
    dir_at: usize,
    child_at: usize,
}

impl Check<'_> {
    pub(crate) fn names(&mut self) -> Result<()> {
        let volume = self.volume;
        // The others are being freed: their entries may name free inodes.
        let live = |root: &&Root| root.state() == RootState::Live;
        let roots = volume.0.store.roots().iter().filter(live);
        let pieces = Parts::new(volume, roots, TreeId::Dirents, LEAVES);
        let unreadable = self.sum.lost.clone();
        self.spread(pieces, |worker, census, (root, part): (&Root, Part)| {
            worker.begin(TreeId::Dirents, &part);
            let mut nodes = Vec::new();
            let (lost, root_id) = (&unreadable[..], root.id);
            let mut names = Names { worker, census, lost, root: root_id, dir_at: 0, child_at: 0 };
            let mut entry = |key: Key, value: &[u8]| {
                names.entry(key, value);
                Ok(())
            };
            let mut lost = |error, low, high| nodes.push((error, low, high));
            root.dirents.for_each_readable(part.low, part.high, &mut entry, &mut lost)?;
            worker.lost_nodes(root, TreeId::Dirents, nodes);
            Ok(())
        })?;
        self.sum.end_chain();
        if self.is_doubtful() { self.names_against_pointers() } else { Ok(()) }
    }
}

impl Names<'_, '_> {
    fn problem(&mut self, rule: &'static str, message: String) {
        self.worker.problem(rule, message);
    }

    fn entry(&mut self, key: Key, value: &[u8]) {
        self.worker.found.done += WORK_ENTRY;
        self.worker.found.report.dirents += 1;
        let dir = key.ino(self.root);
        let Some(entry) = Dirent::decode(self.root, value) else {
            return self.problem("dirent", format!("entry {:#x} of directory {dir}", key.lo));
        };
        self.chain(key, entry.kind & CHAINED != 0);
        let (volume, census) = (self.worker.volume, self.census);
        let name = || String::from_utf8_lossy(entry.name).into_owned();
        if name_hash(volume.0.store.volume(), entry.name) != key.lo & !SUFFIX_MASK {
            self.problem("dirent-hash", format!("{:?} in directory {dir}: wrong key", name()));
        }
        // A lookup never finds an entry whose key is of a directory in another subvolume.
        let within = census.dir(dir, &mut self.dir_at).filter(|_| dir.root() == self.root);
        match within {
            Some(found) => drop(found.entries.fetch_add(1, Ordering::Relaxed)),
            None => self.problem(
                "dirent-dir-missing",
                format!("{:?} in inode {dir}, not a directory", name()),
            ),
        }
        let kind = entry.kind & 0x7f;
        if !may_name(volume, dir, entry.child) {
            let message =
                format!("{:?} in {dir}: inode {} of another subvolume", name(), entry.child);
            return self.problem("dirent-root", message);
        }
        let Some(child) = census.get(entry.child) else {
            let path = volume.path_below(dir, entry.name);
            let is_lost = Sum::is_unreadable(self.lost, entry.child);
            let what = if is_lost { "cannot be read" } else { "is free" };
            let message = format!("{path}: inode {} {what}", entry.child);
            return self.problem("dirent-child-missing", message);
        };
        census.name(entry.child);
        if child.kind != kind {
            let (name, known) = (name(), child.kind);
            let message = format!("{name:?} in directory {dir}: type {kind}, not {known}");
            return self.problem("dirent-type", message);
        }
        if let Some(within) = within {
            let link = Link { dir, generation: within.generation };
            self.worker.add_name(link, entry.name, entry.child);
        }
        if kind == DIRECTORY {
            self.subdirectory(within, dir, entry.child);
        }
    }

    fn subdirectory(&mut self, within: Option<&Dir>, dir: Ino, child: Ino) {
        let parent = self.census.dir(child, &mut self.child_at).map(|child| child.parent);
        if let Some(parent) = parent.filter(|parent| *parent != dir) {
            let message = format!("directory {child}: parent {parent}, but its name is in {dir}");
            self.problem("dir-parent", message);
        }
        if let Some(within) = within {
            within.subdirs.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Checks an entry against the one before. The first entry of a piece is checked when the piece
    /// is merged.
    fn chain(&mut self, key: Key, more: bool) {
        let next = more.then(|| key.next());
        match self.worker.found.chain {
            None => self.worker.found.chain = Some((self.root, key, next)),
            Some((root, first, last)) => {
                if let Err(problem) = follows(self.root, last, key) {
                    self.problem("dirent-chain", problem);
                }
                self.worker.found.chain = Some((root, first, next));
            }
        }
    }
}

impl Check<'_> {
    /// Checks that every subvolume has the recorded name.
    pub(crate) fn root_tops(&mut self) -> Result<()> {
        let volume = self.volume;
        for root in volume.0.store.roots().iter().skip(1).filter(|r| r.state() == RootState::Live) {
            let name = root.name();
            let found = volume.directories().find_entry(Ino::ROOT, &name);
            if !matches!(found, Ok(Some(f)) if f.child == root.top()) {
                let name = String::from_utf8_lossy(&name).into_owned();
                self.problem(
                    "root-name",
                    format!("subvolume {}: {name:?} does not name it", root.id.0),
                );
            }
        }
        Ok(())
    }

    /// Checks the counts in inodes: links, entries, bytes.
    pub(crate) fn counts(&mut self) -> Result<()> {
        self.links();
        self.sums();
        Ok(())
    }

    fn links(&mut self) {
        let worker = self.worker();
        let (mut problems, mut directories) = (Vec::new(), 0);
        for dir in self.census.dirs() {
            if is_dying(self.volume, dir.ino) {
                continue;
            }
            directories += 1;
            if problems.len() < PROBLEMS_MAX {
                self.links_of_dir(dir, &mut problems);
            }
        }
        for seen in self.census.iter().filter(|seen| seen.kind != DIRECTORY && !seen.orphan) {
            let (names, links) = (seen.names, seen.links);
            if names != links && problems.len() < PROBLEMS_MAX && !is_dying(self.volume, seen.ino) {
                let who = worker.who(seen.ino);
                problems.push(("links", format!("{who}: {names} names, {links} links")));
            }
        }
        problems.sort();
        self.sum.report.directories = directories;
        problems.into_iter().for_each(|(rule, message)| self.problem(rule, message));
    }

    fn links_of_dir(&self, dir: &Dir, problems: &mut Vec<(&'static str, String)>) {
        let ino = dir.ino;
        let Some(seen) = self.census.get(ino) else { return };
        let wanted = if ino == Ino::ROOT { 0 } else { 1 };
        if !seen.orphan && seen.names != wanted {
            problems.push((
                "dir-names",
                format!("directory {} has {} names", self.worker().who(ino), seen.names),
            ));
        }
        let (entries, subdirs) =
            (dir.entries.load(Ordering::Relaxed), dir.subdirs.load(Ordering::Relaxed));
        let links = if seen.orphan { 0 } else { 2 + subdirs };
        if u64::from(seen.links) != links {
            let message = format!("directory {ino}: {} links, not {links}", seen.links);
            problems.push(("dir-links", message));
        }
        if dir.size != entries {
            let message = format!("directory {ino}: {entries} entries, recorded {}", dir.size);
            problems.push(("dir-size", message));
        }
    }

    /// Checks that the parents of every directory lead to the top.
    pub(crate) fn loops(&mut self) -> Result<()> {
        let dirs = self.census.dirs();
        let rank = |ino: Ino| dirs.binary_search_by_key(&ino, |dir| dir.ino).ok();
        let is_orphan = |ino| self.census.get(ino).is_some_and(|seen| seen.orphan);
        // Number of the walk that visited the directory, from 1 on. Later walks end here.
        let mut walked = vec![0u32; dirs.len()];
        let mut problems = Vec::new();
        for (walk, dir) in (1..).zip(dirs) {
            if is_orphan(dir.ino) || is_dying(self.volume, dir.ino) {
                continue;
            }
            let mut at = dir.ino;
            // To the top, or to the top of a removed tree.
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
