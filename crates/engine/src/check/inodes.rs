//! Every inode block, every inode.

use super::names::is_dying;
use super::{Check, Seen};
use crate::types::FileKind;
use shoal_base::limits::{INODES_PER_BLOCK, PATH_MAX};
use shoal_base::{Code, Ino, Result};
use shoal_format::inode::{CORE, FLAG_CUT, Form, Inode};
use shoal_format::node::{Key, TreeId};
use shoal_txn::Root;
use std::collections::BTreeSet;

impl Check<'_> {
    pub(crate) fn inodes(&mut self) -> Result<()> {
        let volume = self.volume;
        for root in volume.store.roots.iter() {
            let before = self.seen.len() as u64;
            let mut numbers = BTreeSet::from_iter(root.table.blocks_in_memory());
            let (mut ptrs, mut nodes) = (Vec::new(), Vec::new());
            root.table.for_each_readable_block(
                &mut |number, ptr| {
                    numbers.insert(number);
                    ptrs.push(ptr);
                },
                &mut |error, range| nodes.push((error, range)),
            )?;
            self.report.blocks += ptrs.len() as u64;
            self.meta.append(&mut ptrs);
            for (error, range) in nodes {
                let (low, high) = (Key::new(range.start, 0), Key::new(range.end, 0));
                self.lost.push((root.id, range.start, range.end));
                self.lost_node(root, TreeId::Imap, (error, low, high));
            }
            let next = numbers.last().map_or(0, |last| last.saturating_add(1));
            for number in numbers {
                self.block(root, number)?;
            }
            if next > root.table.next_block() {
                let (last, end) = (next - 1, root.table.next_block());
                let message = format!("root {}: block {last}, but numbers end at {end}", root.id.0);
                self.problem("next-block", message);
            }
            let (found, said) = (self.seen.len() as u64 - before, root.table.inodes());
            if found != said && self.report.problems.is_empty() {
                self.problem(
                    "inode-count",
                    format!("root {}: {found} inodes in use, counted {said}", root.id.0),
                );
            }
        }
        self.report.inodes = self.seen.len() as u64;
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
            match self.seen.get_mut(&ino) {
                Some(seen) if seen.nlink == 0 => seen.names = u32::MAX,
                Some(seen) if seen.cut => seen.cut = false,
                Some(_) => self.problem("orphan-linked", format!("orphan {ino} has links")),
                // Whoever held it when its root was deleted clears the slot.
                None if volume.store.root(ino).is_ok() && is_dying(volume, ino) => {}
                None => self.problem("orphan-free", format!("orphan {ino} is a free inode")),
            }
        }
        let lost = |(ino, seen): (&Ino, &Seen)| {
            let orphan = seen.nlink == 0 && seen.names == 0 && !is_dying(volume, *ino);
            let what = if orphan { "no links" } else { "a tail that is being removed" };
            let lost = orphan || seen.cut && seen.names != u32::MAX;
            lost.then(|| format!("inode {ino} has {what}, and no orphan slot"))
        };
        let mut lost: Vec<String> = self.seen.iter().filter_map(lost).collect();
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
        let parent_or_bytes = if core.is_dir() { core.parent_or_rdev } else { core.bytes };
        let seen = Seen {
            kind: core.kind(),
            nlink: core.nlink,
            cut: core.flags & FLAG_CUT != 0,
            names: 0,
            size: core.size,
            parent_or_bytes,
            found: 0,
            entries: 0,
        };
        self.fork(ino, inode);
        self.seen.insert(ino, seen);
    }
}
