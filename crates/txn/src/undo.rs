//! The notes by which a revocable transaction can be rolled back (`rollback.rs`).

use crate::extents::ExtentChange;
use crate::orphans::OrphanSlot;
use shoal_base::{Ino, RootId};
use shoal_format::extent::Extent;
use shoal_format::node::{Key, TreeId};
use shoal_itable::InodeTable;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Changes of a revocable transaction, and counts that are applied when it is settled.
#[derive(Default)]
pub(crate) struct Undo {
    /// Entries of trees before their changes, oldest first.
    pub entries: Vec<Entry>,
    /// Extents that appear or go.
    pub extents: Vec<(Extent, ExtentChange)>,
    /// Inodes that came into use, by table; negative: that were freed.
    pub inodes: Vec<(Arc<InodeTable>, i64)>,
    /// Slots of the orphan table taken.
    pub slots: Vec<(OrphanSlot, Ino)>,
    /// Directories whose counts and times are still to be logged.
    pub dirs: BTreeSet<Ino>,
}

/// An entry of a tree before a change.
pub(crate) struct Entry {
    pub root: RootId,
    pub tree: TreeId,
    pub key: Key,
    pub was: Option<Box<[u8]>>,
}
