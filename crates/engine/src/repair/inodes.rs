//! Inodes: notes every inode in use, frees invalid ones, and empties forks of an invalid form.

use super::attrs::ATTR_FLAGS;
use super::{Node, Repair, Said};
use crate::types::FileKind;
use shoal_base::limits::{INODES_PER_BLOCK, PATH_MAX};
use shoal_base::{Code, Error, Ino, Result, RootId};
use shoal_format::attr::{Attrs, verify_fork};
use shoal_format::checkpoint::RootState;
use shoal_format::inode::{FLAG_TMPFILE, FLAG_TRUNCATING, Form, Inode};
use shoal_txn::{Root, fork_extents};

impl Repair<'_> {
    pub(crate) fn inodes(&mut self) -> Result<()> {
        let volume = self.volume;
        for root in volume.0.store.roots().iter().filter(|r| r.state() != RootState::Vacant) {
            let (mut next, mut inodes) = (0, 0);
            while let Some(number) = root.table.next_in_use(next)? {
                inodes += self.block(root, number)?;
                next = number.saturating_add(1);
            }
            root.table.salvage().raise_next_block(next);
            if root.table.inodes() != inodes {
                let (id, said) = (root.id.0, root.table.inodes());
                self.did(format!("subvolume {id}: {inodes} inodes in use, not {said}"));
                root.table.salvage().set_inodes(inodes);
            }
        }
        Ok(())
    }

    /// Returns the number of inodes in use in a block.
    fn block(&mut self, root: &Root, number: u64) -> Result<u64> {
        let mut count = 0;
        for slot in 0..INODES_PER_BLOCK as u64 {
            let ino = Ino::new(root.id, number * INODES_PER_BLOCK as u64 + slot);
            let place = match root.table.get(ino) {
                Err(Error::Code(Code::Stale)) => return Ok(count),
                other => other?,
            };
            let inode = place.read();
            if !inode.inode.core.in_use() {
                continue;
            }
            self.step();
            let mended = mended(ino, &inode.inode);
            drop(inode);
            if let Some((what, inode)) = mended {
                self.lost(format!(
                    "inode {ino}{}: {what}",
                    self.volume.inspection().path_hint(ino)
                ));
                let in_use = inode.core.in_use();
                *place.write().edit(&root.table, self.epoch) = inode;
                if !in_use {
                    root.table.numbers().give_back(&place);
                    continue;
                }
            }
            count += 1;
            if root.state() == RootState::Live {
                self.note(ino, &place.read().inode);
            }
        }
        Ok(count)
    }

    pub(super) fn note(&mut self, ino: Ino, inode: &Inode) {
        let core = &inode.core;
        let far_attrs = core.attr_form == Form::Tree;
        let parent = if core.is_dir() { Ino(core.parent_or_rdev) } else { Ino(0) };
        let node = Node {
            kind: core.kind(),
            generation: core.generation,
            nlink: core.nlink,
            truncating: core.flags & FLAG_TRUNCATING != 0,
            names: 0,
            subdirs: 0,
            entries: 0,
            parent,
            bytes: 0,
            said: Said {
                entries: core.size,
                bytes: core.bytes,
                parent,
                tmpfile: core.flags & FLAG_TMPFILE != 0,
            },
            near_data: core.data_form == Form::Extents,
            far_data: core.data_form == Form::Tree,
            far_attrs,
            wrong_flags: !far_attrs && core.flags & ATTR_FLAGS != flags(ino.root(), &inode.attr),
        };
        self.nodes.insert(ino, node);
    }
}

/// Returns the flags of the attributes in a fork of an inode of `root`.
fn flags(root: RootId, fork: &[u8]) -> u32 {
    let attrs = Attrs::new(fork).flatten().filter(|attr| !attr.is_parent());
    attrs.fold(0, |flags, attr| flags | crate::permissions::flag_of(&attr.id(root)))
}

/// Returns the corrected form of an invalid inode, with a message; `None` if it is valid.
fn mended(ino: Ino, inode: &Inode) -> Option<(String, Inode)> {
    let core = &inode.core;
    let text = || inode.to_text();
    let kind = match FileKind::from_mode(core.mode) {
        Some(kind) if ino.index() != 0 => kind,
        _ => return Some((format!("freed: {}", text()), Inode::free(core.generation))),
    };
    let mut new = None;
    let target = |len| (1..PATH_MAX as u64).contains(&len);
    match kind {
        FileKind::Regular => match core.data_form {
            Form::Inline if inode.data.len() as u64 > core.size => {
                let whole = new.get_or_insert_with(|| inode.clone());
                whole.core.size = inode.data.len() as u64;
            }
            Form::Empty | Form::Tree if !inode.data.is_empty() => empty_data(&mut new, inode),
            Form::Extents if fork_extents(&inode.data).is_none() => empty_data(&mut new, inode),
            _ => {}
        },
        FileKind::Symlink
            if core.data_form == Form::Inline
                && target(inode.data.len() as u64)
                && inode.data.len() as u64 != core.size =>
        {
            let whole = new.get_or_insert_with(|| inode.clone());
            whole.core.size = inode.data.len() as u64;
        }
        FileKind::Symlink if !target(core.size) || core.data_form == Form::Empty => {
            let what = format!("symbolic link without a target freed: {}", text());
            return Some((what, Inode::free(core.generation)));
        }
        FileKind::Symlink => {}
        _ if core.data_form != Form::Empty || !inode.data.is_empty() => {
            empty_data(&mut new, inode);
        }
        _ => {}
    }
    let possible = match core.attr_form {
        Form::Empty | Form::Tree => inode.attr.is_empty(),
        Form::Inline => !inode.attr.is_empty() && verify_fork(ino.root(), &inode.attr).is_ok(),
        Form::Extents => false,
    };
    if !possible {
        let whole = new.get_or_insert_with(|| inode.clone());
        whole.core.attr_form = Form::Empty;
        whole.attr = Box::default();
    }
    new.map(|new| (format!("was {}, is {}", text(), new.to_text()), new))
}

fn empty_data(new: &mut Option<Inode>, inode: &Inode) {
    let whole = new.get_or_insert_with(|| inode.clone());
    // Records in the tree, if there are any, remain the inode's.
    if inode.core.data_form != Form::Tree {
        whole.core.data_form = Form::Empty;
    }
    whole.data = Box::default();
}
