//! A batch that has been resolved, until it is committed or given up.

use super::Stop;
use super::premises::Premises;
use crate::batch::Batches;
use crate::namei::birth::New;
use crate::namei::rename::Names;
use crate::types::SetAttr;
use shoal_base::{Error, Ino};
use shoal_format::extent::Extent;
use shoal_itable::InodeRef;
use shoal_space::Hold;
use std::cell::Cell;

/// A change of a batch, resolved to directories and names.
pub(super) enum Step<'o> {
    Make(Make<'o>),
    Link {
        /// The name that the file has been found by.
        from_dir: Ino,
        from: &'o [u8],
        file: Ino,
        dir: Ino,
        name: &'o [u8],
    },
    Rename {
        names: Names<'o>,
        /// Free inode that becomes the whiteout.
        whiteout: Option<Ino>,
    },
    Remove {
        dir: Ino,
        name: &'o [u8],
        want_dir: bool,
    },
    SetAttr {
        ino: Ino,
        set: SetAttr,
    },
    SetXattr {
        ino: Ino,
        name: &'o [u8],
        value: Option<&'o [u8]>,
    },
    /// It cannot be resolved, after those before it. An earlier one may fail first.
    Fails(Error),
}

/// A new inode with a name.
pub(super) struct Make<'o> {
    pub dir: Ino,
    pub name: &'o [u8],
    pub ino: Ino,
    pub mode: u32,
    pub contents: &'o [u8],
    /// The contents as objects; empty if they fit in the inode.
    pub extents: Vec<Extent>,
    /// It may take the place of a file.
    pub may_replace: bool,
    /// File that it takes the place of.
    pub replaces: Option<Ino>,
}

impl Make<'_> {
    /// The new inode that it asks for.
    pub(super) fn wanted(&self) -> New<'_> {
        New { contents: self.contents, extents: &self.extents, ..New::empty(self.mode) }
    }
}

/// A batch that has been resolved.
pub(super) struct Prepared<'s, 'o> {
    pub volume: Batches<'s>,
    pub start: Ino,
    pub steps: Vec<Step<'o>>,
    /// All inodes concerned, by number.
    pub inodes: Vec<InodeRef>,
    /// Some change renames.
    pub moves: bool,
    /// Bytes of all contents.
    pub bytes: u64,
    /// New inodes: given back unless they have come into use.
    pub fresh: Vec<Ino>,
    pub used: Cell<bool>,
    /// Keep what has been written until the batch is committed.
    pub holds: Vec<Hold<'s>>,
    pub premises: Premises,
}

impl Prepared<'_, '_> {
    /// Writes the contents that do not fit in inodes.
    pub(super) fn write_contents(&mut self) -> Result<(), Stop> {
        let volume = self.volume;
        for (index, step) in self.steps.iter_mut().enumerate() {
            let Step::Make(make) = step else { continue };
            let named = volume.paths().first_parent_len(make.name);
            if make.contents.len() <= volume.objects().inline_max().saturating_sub(named) {
                continue;
            }
            let written = volume.objects().write_contents(make.ino, make.contents);
            for (extent, hold) in written.map_err(|e| Stop::Failed(index, e))? {
                make.extents.push(extent);
                self.holds.push(hold);
            }
        }
        Ok(())
    }

    /// All changes have been made: the new inodes are in use, also if the commit fails.
    pub(super) fn used(&self) {
        self.used.set(true);
    }
}

impl Drop for Prepared<'_, '_> {
    fn drop(&mut self) {
        if self.used.get() {
            return;
        }
        for ino in &self.fresh {
            let Ok(at) = self.inodes.binary_search_by_key(ino, |inode| inode.ino) else { continue };
            if let Ok(root) = self.volume.0.root(*ino) {
                root.table.numbers().give_back(&self.inodes[at]);
            }
        }
    }
}
