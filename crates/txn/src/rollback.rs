//! Rolling a transaction back.
//!
//! A call makes its checks before its first change, so its transaction never has to be taken back.
//! A batch is many calls in one transaction, and the tenth may fail after nine have changed memory.
//! Such a transaction is *revocable* until [`Txn::settle`]:
//!
//! | a change of | before `settle` | [`Txn::roll_back`] |
//! | --- | --- | --- |
//! | a tree | is made, and the value before it is noted | puts the values back, newest first |
//! | an inode | is made under its lock; the caller keeps the inode as it was | is the caller's to undo, under that lock |
//! | live bytes, the count of inodes | is noted | forgets it |
//! | an orphan slot | is taken, and noted | frees it |
//! | the counts and times of a directory | is made; one item for each directory is logged at the end | as for an inode |
//!
//! Nobody sees the changes meanwhile: the caller holds the locks of all inodes concerned, and no
//! checkpoint can come between, because it waits for the transaction to end. Nothing of it is in
//! the journal: its record is staged by the commit.

use crate::begin::Txn;
use crate::extents::ExtentChange;
use crate::orphans::OrphanSlot;
use crate::undo::Entry;
use shoal_base::invariant;
use shoal_base::{Ino, Result};
use shoal_format::extent::Extent;
use shoal_format::node::Key;
use shoal_itable::{InodeTable, Locked};
use shoal_tree::{Action, Tree};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Txn<'_> {
    /// Makes the transaction revocable. Call it before the first change.
    pub fn make_revocable(&mut self) {
        invariant!(self.is_untouched(), "a transaction that has changed something");
        self.undo = Some(Box::default());
    }

    /// Returns whether the transaction can still be rolled back.
    #[inline]
    pub fn is_revocable(&self) -> bool {
        self.undo.is_some()
    }

    /// Changes the entry of `key` as [`Tree::update`] does.
    ///
    /// # Errors
    /// Those of [`Tree::update`]; nothing has changed then.
    #[inline(always)]
    pub fn update<'v>(
        &mut self,
        tree: &Tree,
        key: Key,
        decide: &mut dyn FnMut(Option<&[u8]>) -> Action<'v>,
    ) -> Result<bool> {
        match self.undo.is_some() {
            false => tree.update(key, self.epoch, decide),
            true => self.update_noted(tree, key, decide),
        }
    }

    #[cold]
    fn update_noted<'v>(
        &mut self,
        tree: &Tree,
        key: Key,
        decide: &mut dyn FnMut(Option<&[u8]>) -> Action<'v>,
    ) -> Result<bool> {
        let mut was = None;
        let changed = tree.update(key, self.epoch, &mut |value| {
            was = value.map(Box::from);
            decide(value)
        })?;
        if let (true, Some(undo)) = (changed, &mut self.undo) {
            self.changing = true;
            let id = tree.id();
            undo.entries.push(Entry { root: id.root, tree: id.tree, key, was });
        }
        Ok(changed)
    }

    /// Puts `value` under `key`, whatever was there.
    ///
    /// # Errors
    /// Those of [`Tree::put`].
    #[inline(always)]
    pub fn put(&mut self, tree: &Tree, key: Key, value: &[u8]) -> Result<()> {
        self.update(tree, key, &mut |_| Action::Put(value)).map(drop)
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    /// Those of [`Tree::delete`].
    #[inline(always)]
    pub fn delete(&mut self, tree: &Tree, key: Key) -> Result<bool> {
        self.update(tree, key, &mut |_| Action::Delete)
    }

    /// Counts an extent that appears or goes.
    #[inline]
    pub fn account(&mut self, extent: &Extent, change: ExtentChange) {
        match &mut self.undo {
            None => self.store.account(extent, change),
            Some(undo) => undo.extents.push((*extent, change)),
        }
    }

    /// Counts inodes that came into use or were freed.
    #[inline]
    pub fn count_inodes(&mut self, table: &Arc<InodeTable>, delta: i64) {
        match &mut self.undo {
            None => table.count_inodes(delta),
            Some(undo) => match undo.inodes.last_mut() {
                Some((last, sum)) if Arc::ptr_eq(last, table) => *sum += delta,
                _ => undo.inodes.push((table.clone(), delta)),
            },
        }
    }

    /// Notes a slot of the orphan table that the transaction has taken.
    pub fn slot_taken(&mut self, slot: OrphanSlot, ino: Ino) {
        if let Some(undo) = &mut self.undo {
            undo.slots.push((slot, ino));
        }
    }

    /// Notes a directory whose counts and times have changed. Returns `false` when the transaction
    /// is not revocable: then the item is to be logged at once.
    #[inline]
    pub fn dir_touched(&mut self, dir: Ino) -> bool {
        match &mut self.undo {
            None => false,
            Some(undo) => {
                undo.dirs.insert(dir);
                true
            }
        }
    }

    /// Directories whose counts and times are still to be logged.
    pub fn dirs_touched(&self) -> usize {
        self.undo.as_ref().map_or(0, |undo| undo.dirs.len())
    }

    /// Ends the time in which the transaction can be rolled back: counts what it has noted. Returns
    /// the directories whose counts and times are still to be logged.
    pub fn settle(&mut self) -> BTreeSet<Ino> {
        let Some(undo) = self.undo.take() else { return BTreeSet::new() };
        undo.extents.iter().for_each(|(extent, change)| self.store.account(extent, *change));
        undo.inodes.iter().for_each(|(table, delta)| table.count_inodes(*delta));
        undo.dirs
    }

    /// Takes back what the transaction has changed beside inodes. The caller has restored those,
    /// under their locks, and told [`Txn::forget`] of each. The transaction is as if it had just
    /// begun, no longer revocable; drop it.
    ///
    /// # Errors
    /// When a tree cannot be read or written: memory is not what it was, and the volume becomes
    /// read-only when the transaction is dropped.
    pub fn roll_back(&mut self) -> Result<()> {
        let Some(undo) = self.undo.take() else { return Ok(()) };
        for Entry { root, tree, key, was } in undo.entries.iter().rev() {
            let tree = self.store.root(Ino::new(*root, 0))?.tree(*tree);
            match was {
                Some(value) => tree.put(*key, value, self.epoch)?,
                None => drop(tree.delete(*key, self.epoch)?),
            }
        }
        for (slot, ino) in undo.slots {
            let was_there = self.store.orphans.free(slot, ino);
            invariant!(was_there, "orphan slot of {ino} is not its own");
        }
        invariant!(self.unstamped == 0, "an inode that was not restored");
        self.record.clear();
        self.removed.clear();
        self.changing = false;
        Ok(())
    }

    /// Forgets that a locked inode was to get the LSN of this transaction: it has been restored.
    pub fn forget(&mut self, inode: &mut Locked<'_>) {
        self.unstamped -= u32::from(inode.take_record().is_some());
    }
}
