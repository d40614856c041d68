//! Every inode block, every inode.

use super::census::Seen;
use super::names::is_dying;
use super::{Check, PROBLEMS_MAX, add_meta};
use crate::data::inline_extents;
use crate::types::FileKind;
use shoal_base::limits::{INODES_PER_BLOCK, PATH_MAX};
use shoal_base::{Code, Ino, Result};
use shoal_format::inode::{CORE, FLAG_CUT, Form, Inode};
use shoal_format::node::{Key, TreeId};
use shoal_txn::Root;

impl Check<'_> {
    pub(crate) fn inodes(&mut self) -> Result<()> {
        let volume = self.volume;
        for root in volume.store.roots.iter() {
            let before = self.census.count();
            let mut numbers = root.table.blocks_in_memory();
            let mut nodes = Vec::new();
            let (sums, blocks) = (&mut self.sums, &mut self.report.blocks);
            root.table.for_each_readable_block(
                &mut |number, ptr| {
                    numbers.push(number);
                    add_meta(volume, sums, ptr);
                    *blocks += 1;
                },
                &mut |error, range| nodes.push((error, range)),
            )?;
            numbers.sort_unstable();
            numbers.dedup();
            for (error, range) in nodes {
                let (low, high) = (Key::new(range.start, 0), Key::new(range.end, 0));
                self.lost.push((root.id, range.start, range.end));
                self.lost_node(root, TreeId::Imap, (error, low, high));
            }
            self.census.begin(root.id, numbers.clone());
            let next = numbers.last().map_or(0, |last| last.saturating_add(1));
            for number in numbers {
                self.block(root, number)?;
                self.some_values()?;
            }
            if next > root.table.next_block() {
                let (last, end) = (next - 1, root.table.next_block());
                let message = format!("root {}: block {last}, but numbers end at {end}", root.id.0);
                self.problem("next-block", message);
            }
            let (found, said) = (self.census.count() - before, root.table.inodes());
            if found != said && self.report.problems.is_empty() {
                self.problem(
                    "inode-count",
                    format!("root {}: {found} inodes in use, counted {said}", root.id.0),
                );
            }
        }
        self.report.inodes = self.census.count();
        self.orphans();
        Ok(())
    }

    /// Slots name what needs one, and what needs one has one.
    fn orphans(&mut self) {
        let volume = self.volume;
        let mut before = None;
        for (ino, _) in volume.store.orphans.all() {
            if before.replace(ino) == Some(ino) {
                self.problem("orphan-twice", format!("inode {ino} has two orphan slots"));
                continue;
            }
            match self.census.get(ino) {
                Some(seen) if seen.links == 0 => self.census.orphan(ino),
                Some(seen) if seen.cut => self.census.cut_known(ino),
                Some(_) => self.problem("orphan-linked", format!("orphan {ino} has links")),
                // Whoever held it when its root was deleted clears the slot.
                None if volume.store.root(ino).is_ok() && is_dying(volume, ino) => {}
                None => self.problem("orphan-free", format!("orphan {ino} is a free inode")),
            }
        }
        let lost = |seen: Seen| {
            let orphan = seen.links == 0 && !seen.orphan && !is_dying(volume, seen.ino);
            let what = if orphan { "no links" } else { "a tail that is being removed" };
            let lost = orphan || seen.cut && !seen.orphan;
            lost.then(|| format!("inode {} has {what}, and no orphan slot", seen.ino))
        };
        let lost = self.census.iter().filter_map(lost).take(PROBLEMS_MAX);
        let mut lost: Vec<String> = lost.collect();
        lost.sort();
        lost.into_iter().for_each(|message| self.problem("orphan-missing", message));
    }

    fn block(&mut self, root: &Root, number: u64) -> Result<()> {
        for slot in 0..INODES_PER_BLOCK as u64 {
            let ino = Ino::new(root.id, number * INODES_PER_BLOCK as u64 + slot);
            let inode = match root.table.get(ino) {
                // Begun by a thread and never written.
                Err(e) if e.is(Code::Stale) => return Ok(()),
                Err(e) if e.is_damage() => {
                    self.lost.push((root.id, number, number + 1));
                    self.broken = true;
                    let (low, high) = (Key::new(number, 0), Key::new(number + 1, 0));
                    let whose = self.volume.whose(root.id, TreeId::Imap, low, high);
                    self.problem("inode-block", format!("{e}{whose}"));
                    return Ok(());
                }
                other => other?,
            };
            let locked = inode.read();
            // Detached: as far as the volume goes, it is free.
            if locked.inode.core.in_use() && !inode.is_detached() {
                self.inode(ino, &locked.inode);
            }
        }
        Ok(())
    }

    fn inode(&mut self, ino: Ino, inode: &Inode) {
        self.step();
        let core = &inode.core;
        let kind = FileKind::from_mode(core.mode);
        if kind.is_none() || ino.index() == 0 {
            self.problem("inode-mode", format!("inode {ino}: {}", inode.to_text()));
            return;
        }
        let size = self.volume.store.geometry.inode_size as usize;
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
        self.census.insert(ino, core.kind(), core.nlink, core.flags & FLAG_CUT != 0);
        if core.is_dir() {
            let (parent, generation) = (Ino(core.parent_or_rdev), core.generation);
            self.census.insert_dir(ino, parent, core.size, generation);
        } else {
            // What the tree has is counted when it is read.
            let inline = match core.data_form {
                Form::Extents => inline_extents(ino, inode).unwrap_or_default(),
                _ => Vec::new(),
            };
            let found: u64 = inline.iter().map(|extent| u64::from(extent.len)).sum();
            self.census.add_bytes(ino, i128::from(core.bytes) - i128::from(found));
        }
        self.fork(ino, inode);
    }
}
