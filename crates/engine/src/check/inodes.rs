//! First pass: every inode block, every inode.

use super::names::is_dying;
use super::{Check, Seen};
use crate::types::FileKind;
use shoal_base::limits::{INODES_PER_BLOCK, PATH_MAX};
use shoal_base::{Code, Ino, Result};
use shoal_format::inode::{CORE, FLAG_CUT, Form, Inode};
use shoal_txn::Root;

impl Check<'_> {
    pub(super) fn inodes(&mut self) -> Result<()> {
        let volume = self.volume;
        for root in volume.store.roots.iter() {
            let before = self.seen.len() as u64;
            let mut blocks = 0;
            let walked = root.table.for_each_block(&mut |_, ptr, _| {
                blocks += 1;
                self.meta.push(ptr);
                Ok(true)
            });
            self.report.blocks += blocks;
            self.damage("imap", walked)?;
            let mut next = 0;
            while let Some(number) = self.damage("imap", root.table.next_in_use(next))?.flatten() {
                self.block(root, number)?;
                next = number.saturating_add(1);
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
        for damage in &volume.store.orphan_damage {
            self.problem("orphan-block", damage.clone());
        }
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
                other => match self.damage("inode-block", other)? {
                    Some(inode) => inode,
                    None => return Ok(()),
                },
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
