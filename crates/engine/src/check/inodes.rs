//! Checks all inodes, and the extents, attributes and parent pointers in their forks.

use super::census::{Block, Dir, Seen};
use super::work::{Parts, WORK_INODE, Worker, spread};
use super::{Check, PROBLEMS_MAX, is_dying};
use crate::objects::inline_extents;
use crate::types::FileKind;
use shoal_base::limits::PATH_MAX;
use shoal_base::{Error, Ino, Result};
use shoal_format::Ptr;
use shoal_format::inode::{CORE, FLAG_TRUNCATING, Form, Inode};
use shoal_format::node::{Key, TreeId};
use shoal_itable::Visitor;
use shoal_tree::Part;
use shoal_txn::Root;
use std::ops::Range;

/// `imap` leaves of a piece: one leads to some 10,000 inodes.
const LEAVES: usize = 1;

/// Checks the inodes of one piece.
struct Blocks<'b, 'v> {
    root: &'b Root,
    worker: &'b mut Worker<'v>,
}

impl Visitor for Blocks<'_, '_> {
    fn entry(&mut self, _: u64, ptr: Ptr) {
        self.worker.add_meta(ptr);
        self.worker.found.report.blocks += 1;
    }

    fn lost(&mut self, numbers: Range<u64>, error: Error) {
        let (low, high) = (Key::new(numbers.start, 0), Key::new(numbers.end, 0));
        self.worker.found.lost.push((self.root.id, numbers.start, numbers.end));
        self.worker.lost_nodes(self.root, TreeId::Imap, vec![(error, low, high)]);
    }

    fn block(&mut self, number: u64) {
        self.worker.found.blocks.push(Block::new(number));
    }

    fn inode(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        self.worker.inode(ino, inode)
    }

    fn unreadable(&mut self, number: u64, error: Error) {
        let end = number.saturating_add(1);
        self.worker.found.lost.push((self.root.id, number, end));
        self.worker.found.broken = true;
        let (low, high) = (Key::new(number, 0), Key::new(end, 0));
        let whose = self.worker.volume.whose(self.root.id, TreeId::Imap, low, high);
        self.worker.problem("inode-block", format!("{error}{whose}"));
    }
}

impl Check<'_> {
    pub(crate) fn inodes(&mut self) -> Result<()> {
        let (volume, seed) = (self.volume, self.seed);
        let clean = self.sum.report.problems.is_empty();
        let (census, sum) = (&mut self.census, &mut self.sum);
        let pieces = Parts::new(volume, volume.0.store.roots().iter(), TreeId::Imap, LEAVES);
        let work = |(root, part): (&Root, Part)| {
            let mut worker = Worker::new(volume, seed);
            worker.begin(TreeId::Imap, &part);
            worker.found.root = Some(root.id);
            root.table.read_part(&part, &mut Blocks { root, worker: &mut worker })?;
            Ok((root.id, worker.finish()?))
        };
        spread(volume.0.options.threads, pieces, work, |(root, mut found)| {
            for block in std::mem::take(&mut found.blocks) {
                census.enter(root, &block);
            }
            for (ino, links) in std::mem::take(&mut found.many_links) {
                census.many_links(ino, links);
            }
            census.enter_dirs(std::mem::take(&mut found.dirs));
            sum.add(found)
        })?;
        for root in volume.0.store.roots().iter() {
            self.count(root, clean);
        }
        self.orphans();
        Ok(())
    }

    /// Checks a subvolume's count of inodes and its next block number.
    fn count(&mut self, root: &Root, clean: bool) {
        let (next, found) = self.census.counts(root.id);
        if next > root.table.next_block() {
            let (last, end) = (next - 1, root.table.next_block());
            let message =
                format!("subvolume {}: block {last}, but numbers end at {end}", root.id.0);
            self.problem("next-block", message);
        }
        let said = root.table.inodes();
        if found != said && clean && !self.sum.wrong.contains(&root.id) {
            let message =
                format!("subvolume {}: {found} inodes in use, recorded {said}", root.id.0);
            self.problem("inode-count", message);
        }
    }

    /// Checks that every orphan slot is needed, and that every inode that needs one has it.
    fn orphans(&mut self) {
        let volume = self.volume;
        let mut before = None;
        for (ino, _) in volume.0.store.orphans().all() {
            if before.replace(ino) == Some(ino) {
                self.problem("orphan-twice", format!("inode {ino} has two orphan slots"));
                continue;
            }
            match self.census.get(ino) {
                Some(seen) if seen.links == 0 => self.census.orphan(ino),
                Some(seen) if seen.cut => self.census.cut_known(ino),
                Some(_) => self.problem("orphan-linked", format!("orphan {ino} has links")),
                // If the inode was in use when its subvolume was deleted, releasing it frees the
                // slot. A checkpoint may have omitted the last subvolume from the table.
                None if volume.0.store.root(ino).is_err() || is_dying(volume, ino) => {}
                None => self.problem("orphan-free", format!("orphan {ino} is a free inode")),
            }
        }
        let lost = |seen: Seen| {
            let orphan = seen.links == 0 && !seen.orphan && !is_dying(volume, seen.ino);
            let what = if orphan { "no links" } else { "a truncate in progress" };
            let lost = orphan || seen.cut && !seen.orphan;
            lost.then(|| format!("inode {} has {what}, and no orphan slot", seen.ino))
        };
        let lost = self.census.iter().filter_map(lost).take(PROBLEMS_MAX);
        let mut lost: Vec<String> = lost.collect();
        lost.sort();
        lost.into_iter().for_each(|message| self.problem("orphan-missing", message));
    }
}

impl Worker<'_> {
    fn inode(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        self.found.done += WORK_INODE;
        let core = &inode.core;
        let kind = FileKind::from_mode(core.mode);
        if kind.is_none() || ino.index() == 0 {
            self.problem("inode-mode", format!("inode {ino}: {}", inode.to_text()));
            return Ok(());
        }
        self.found.report.inodes += 1;
        let size = self.volume.0.store.geometry().inode_size as usize;
        if CORE + inode.data.len() + inode.attr.len() > size {
            self.problem("inode-forks", format!("inode {ino}: forks exceed {size} bytes"));
        }
        let data_ok = match kind {
            Some(FileKind::Regular) => match core.data_form {
                Form::Inline => inode.data.len() as u64 <= core.size,
                Form::Empty | Form::Tree => inode.data.is_empty(),
                Form::Extents => true,
            },
            Some(FileKind::Symlink) => {
                let len = match core.data_form {
                    Form::Inline => inode.data.len() as u64,
                    _ => core.size,
                };
                let target = (1..PATH_MAX as u64).contains(&len) && core.size == len;
                target && core.data_form != Form::Empty
            }
            _ => core.data_form == Form::Empty && inode.data.is_empty(),
        };
        if !data_ok {
            self.problem("inode-data-fork", format!("inode {ino}: {}", inode.to_text()));
        }
        let is_cut = core.flags & FLAG_TRUNCATING != 0;
        let block = self.found.blocks.last_mut();
        if block.is_some_and(|block| block.insert(ino, core.kind(), core.nlink, is_cut)) {
            self.found.many_links.push((ino, core.nlink));
        }
        if core.is_dir() {
            let parent = Ino(core.parent_or_rdev);
            self.found.dirs.push(Dir::new(ino, parent, core.size, core.generation));
        }
        self.project(ino, inode)?;
        self.inline_data(ino, inode)?;
        self.attributes(ino, inode)
    }

    /// Checks the extents in the data fork.
    fn inline_data(&mut self, ino: Ino, inode: &Inode) -> Result<()> {
        let (core, mut list) = (&inode.core, Vec::new());
        if core.data_form == Form::Extents {
            let read = self.damage_of(ino, "extents", inline_extents(ino, inode))?;
            list = read.unwrap_or_default();
            let mut end = 0;
            for extent in &list {
                self.extent(ino, extent, end)?;
                end = extent.end();
            }
        }
        if !core.is_dir() {
            // Records in the tree are counted when it is read.
            let found: u64 = list.iter().map(|extent| u64::from(extent.stored_len())).sum();
            let left = i128::from(core.bytes) - i128::from(found);
            self.found.bytes.extend((left != 0).then_some((ino, left)));
        }
        Ok(())
    }
}
