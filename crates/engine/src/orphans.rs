//! Freeing of an inode that has lost its last name.
//!
//! | inode | not in use | in use |
//! | --- | --- | --- |
//! | small: one transaction frees it | freed in the transaction that removes the name | freed on the device in the same way; stays in memory only (*detached*) until it is closed |
//! | large, or too many are detached | loses its name, gets an orphan slot; freed in the background (`reap/`) | loses its name, gets an orphan slot; freed when it is closed |
//!
//! An inode is small if its data and attributes, or their records, are in the inode. It is in use
//! if it is open, or known to the kernel above a mount; during an `rm` it always is. So the removal
//! of small files never uses the orphan table.
//!
//! A detached inode is unlinked but open, and in memory only. It keeps its number (which is not
//! reused), its place in memory (its block is not evicted) and its space: the bytes of its extents
//! are no longer live, so that a crash frees them, but *pinned*, so that they are not overwritten.
//! Changes within the inode only change memory. Before a change that needs more (a write that
//! outgrows the inode, a long attribute), the whole inode is logged with an orphan slot.
//!
//! A file with a name has an orphan slot too while a truncate of several transactions is in
//! progress (`files/truncate.rs`).

use crate::objects::{END, inline_extents};
use crate::objects::{Objects, records_end_at};
use crate::records::STEP_RECORDS;
use crate::state::Orphan;
use crate::state::room;
use crate::xattr::Xattrs;
use shoal_base::counters::Counter;
use shoal_base::invariant;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::extent::Extent;
use shoal_format::inode::{FLAG_TRUNCATING, Form, Inode, Stamp};
use shoal_format::item::Item;
use shoal_format::node::Key;
use shoal_itable::{InodeRef, Locked};
use shoal_tree::Tree;
use shoal_txn::{ExtentChange, OrphanSlot, Txn, remote_extents};

/// Size of an inode for its last unlink. Determined before the first change, because it may fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    /// Everything is in its inode block, except data that its own records point to.
    Small,
    /// One transaction can free it.
    Medium,
    /// Freeing it needs several transactions.
    Large,
}

/// Work that remains after the commit of the transaction that removed the last name, when the locks
/// have been released.
#[must_use]
pub(crate) enum Left {
    /// The inode is free: release its number for reuse.
    Number(InodeRef),
    /// Reap the inode: it has an orphan slot and is not in use.
    Slot(Ino, OrphanSlot),
}

room! {
    /// Inodes without a name, and their orphan slots.
    pub(crate) struct Orphans { objects: Objects, xattrs: Xattrs }
}

impl Orphans<'_> {
    /// Determines how much must be freed.
    pub(crate) fn size_of(self, ino: Ino, inode: &Inode) -> Result<Size> {
        let core = &inode.core;
        // A file with a truncate in progress has a slot already.
        if core.flags & FLAG_TRUNCATING != 0 || core.is_dir() && core.size != 0 {
            return Ok(Size::Large);
        }
        let _ = extents_within(ino, inode)?;
        if core.data_form != Form::Tree && core.attr_form != Form::Tree {
            return Ok(Size::Small);
        }
        let root = self.0.store.root(ino)?;
        let few = |tree: &Tree| self.records_end(tree, Key::of(ino, 0)).map(|end| end.is_none());
        let medium = (core.data_form != Form::Tree || few(&root.extents)?)
            && (core.attr_form != Form::Tree || few(&root.attrs)?);
        Ok(if medium { Size::Medium } else { Size::Large })
    }

    /// Returns the first of an inode's records from this key on that one transaction cannot remove;
    /// `None` if it can remove all.
    pub(crate) fn records_end(self, tree: &Tree, from: Key) -> Result<Option<Key>> {
        records_end_at(tree, from, self.0.options.lab().step_records.clamp(1, STEP_RECORDS))
    }

    /// Removes the last name of a locked inode of this size: frees it, keeps it in memory only, or
    /// gives it an orphan slot.
    pub(crate) fn drop_last_link(
        self,
        txn: &mut Txn<'_>,
        inode: &mut Locked<'_>,
        size: Size,
        ctime: Stamp,
    ) -> Result<Option<Left>> {
        let ino = inode.ino();
        // A directory with entries is emptied even if it is in use.
        let full = inode.inode().core.is_dir() && inode.inode().core.size != 0;
        let held = self.0.holds.may_be_held(ino) && !full;
        // A revocable transaction can neither free many records nor keep an inode in memory only.
        let at_once = match txn.is_revocable() {
            true => size == Size::Small,
            false => size != Size::Large,
        };
        if !held && at_once {
            self.free_inode(txn, inode)?;
            return Ok(Some(Left::Number(inode.place(self.0.table(ino)?))));
        }
        let core = &mut inode.edit(self.0.table(ino)?, txn.epoch()).core;
        (core.nlink, core.ctime) = (0, ctime);
        if held && size == Size::Small && !txn.is_revocable() && self.detach(txn, inode)? {
            return Ok(None);
        }
        txn.log_core(inode, Item::Links { ino, nlink: 0, ctime });
        let slot = self.slot_of(txn, inode)?;
        if txn.is_revocable() {
            return Ok(Some(Left::Slot(ino, slot)));
        }
        Ok(self.left_of(ino, slot, held))
    }

    /// Returns the remaining work for a locked inode that has lost its last name and has a slot.
    pub(crate) fn left_of(self, ino: Ino, slot: OrphanSlot, held: bool) -> Option<Left> {
        match held && self.0.holds.keep(ino, Orphan::Slot(slot)) {
            true => None,
            false => Some(Left::Slot(ino, slot)),
        }
    }

    /// Releases numbers for reuse, and pushes inodes with a slot onto the reap queue. Returns
    /// whether there were any of the latter.
    pub(crate) fn let_go(self, left: impl IntoIterator<Item = Left>) -> Result<bool> {
        let mut waiting = Vec::new();
        for left in left {
            match left {
                Left::Number(inode) => self.0.table(inode.ino)?.numbers().give_back(&inode),
                Left::Slot(ino, slot) => waiting.push((ino, slot)),
            }
        }
        let some = !waiting.is_empty();
        if some {
            self.0.reaping.append(&mut waiting);
        }
        Ok(some)
    }

    /// After the commit: releases numbers for reuse, and has inodes with a slot freed soon.
    pub(crate) fn settle(self, left: impl IntoIterator<Item = Left>) -> Result<()> {
        match self.let_go(left)? {
            true => self.0.reap_soon(),
            false => Ok(()),
        }
    }

    /// Returns the slot of an inode that becomes an orphan. A file with a truncate in progress has
    /// one already.
    fn slot_of(self, txn: &mut Txn<'_>, inode: &Locked<'_>) -> Result<OrphanSlot> {
        let ino = inode.ino();
        // The flag avoids a lookup in the volume's list for all other files.
        let known = match inode.inode().core.flags & FLAG_TRUNCATING {
            0 => None,
            _ => self.0.truncates.lock().remove(&ino),
        };
        known.map_or_else(|| self.take_slot(txn, ino), Ok)
    }

    /// Allocates an orphan slot, in the table and in the record.
    pub(crate) fn take_slot(self, txn: &mut Txn<'_>, ino: Ino) -> Result<OrphanSlot> {
        let slot = self.0.store.orphans().take(ino)?;
        txn.slot_taken(slot, ino);
        if !planted::is(Defect::SlotNotLogged) {
            txn.log(Item::OrphanAdd { ino });
        }
        self.0.store.counters().add(Counter::OrphanSlots, 1);
        Ok(slot)
    }

    /// Frees an orphan slot, in the table and in the record.
    pub(crate) fn free_slot(self, txn: &mut Txn<'_>, slot: OrphanSlot, ino: Ino) {
        let was_there = self.0.store.orphans().free(slot, ino);
        invariant!(was_there, "orphan slot of {ino} is of another inode");
        if !planted::is(Defect::SlotNotFreed) {
            txn.log(Item::OrphanDel { ino });
        }
    }

    /// Frees a locked inode without links: its data, its attributes, its number.
    pub(crate) fn free_inode(self, txn: &mut Txn<'_>, inode: &mut Locked<'_>) -> Result<()> {
        let ino = inode.ino();
        let root = self.0.store.root(ino)?;
        let core = inode.inode().core;
        if core.data_form == Form::Tree {
            // A read error must occur before the first change.
            self.objects().read_records(ino, &[], &[], Some(0))?;
            txn.changing();
            self.objects().remove_records(txn, ino, 0, END)?;
        }
        if core.attr_form == Form::Tree {
            self.xattrs().free_attrs(txn, ino)?;
        }
        for extent in extents_within(ino, inode.inode())? {
            txn.account(&extent, ExtentChange::Goes);
        }
        *inode.edit(&root.table, txn.epoch()) = Inode::free(core.generation);
        self.0.holds.freed(ino);
        if planted::is(Defect::NumberBeforeRecord) {
            root.table.numbers().give_back(&inode.place(&root.table));
        }
        txn.log(Item::Free { ino, generation: core.generation });
        txn.count_inodes(&root.table, -1);
        Ok(())
    }
}

/// Inodes that are unlinked but open, and in memory only.
impl Orphans<'_> {
    /// Frees a locked inode on the device, and keeps it in memory until it is closed. Returns
    /// `false`, without a change, if there are too many such inodes.
    pub(crate) fn detach(self, txn: &mut Txn<'_>, inode: &mut Locked<'_>) -> Result<bool> {
        let ino = inode.ino();
        let root = self.0.store.root(ino)?;
        let extents = extents_within(ino, inode.inode())?;
        // Pinned segments cannot be cleaned when space is needed.
        if !extents.is_empty() && !self.may_pin() {
            return Ok(false);
        }
        let Some(shard) = self.0.detached.add() else { return Ok(false) };
        if !self.0.holds.orphaned(ino, Orphan::Detached(shard)) {
            self.0.detached.sub(shard);
            return Ok(false);
        }
        for extent in &extents {
            self.0.store.account(extent, ExtentChange::Goes);
            if !planted::is(Defect::PinForgotten) {
                self.pin(extent);
            }
        }
        let generation = inode.edit(&root.table, txn.epoch()).core.generation;
        inode.detach(txn.epoch());
        if planted::is(Defect::NumberTooEarly) {
            root.table.numbers().give_back(&inode.place(&root.table));
        }
        txn.log(Item::Free { ino, generation });
        root.table.count_inodes(-1);
        self.0.store.counters().add(Counter::Detached, 1);
        Ok(true)
    }

    /// Returns whether enough space is free, and not too much of it pinned.
    fn may_pin(self) -> bool {
        let (space, segments) = (self.0.store.space(), self.0.store.geometry().segments);
        space.counts().free_segments() > segments / 8
            && space.counts().pinned_segments() < (segments / 16).max(2)
    }

    fn pin(self, extent: &Extent) {
        if !extent.is_prealloc() {
            self.0.store.space().pin(extent.data_addr(), extent.stored_len());
        }
    }

    /// Must be called before a locked inode is changed. If the inode is in memory only and the
    /// change stays `within` it, nothing is journaled. Otherwise the inode gets an orphan slot and
    /// is logged.
    #[inline]
    pub(crate) fn before_change(
        self,
        txn: &mut Txn<'_>,
        inode: &mut Locked<'_>,
        within: bool,
    ) -> Result<()> {
        match inode.is_detached() {
            false => Ok(()),
            true if within => {
                txn.stay_in_memory();
                Ok(())
            }
            true => self.take_back(txn, inode),
        }
    }

    /// Logs an inode that is in memory only, with an orphan slot.
    #[cold]
    fn take_back(self, txn: &mut Txn<'_>, inode: &mut Locked<'_>) -> Result<()> {
        let ino = inode.ino();
        let root = self.0.store.root(ino)?;
        let extents = extents_within(ino, inode.inode())?;
        txn.check_memory()?;
        // The last reference has just been released; that call is about to evict the inode.
        let Some(Orphan::Detached(shard)) = self.0.holds.orphan_of(ino) else {
            return Err(Error::Code(Code::Stale));
        };
        let slot = self.take_slot(txn, ino)?;
        self.0.holds.orphaned(ino, Orphan::Slot(slot));
        inode.attach(&root.table, txn.epoch());
        let core = inode.inode().core;
        txn.log_core(inode, Item::Core { ino, core });
        let Inode { core, data, attr } = inode.inode();
        if core.data_form != Form::Empty {
            txn.log(Item::DataFork { ino, form: core.data_form, bytes: data });
        }
        if core.attr_form != Form::Empty {
            txn.log(Item::AttrFork { ino, form: core.attr_form, bytes: attr });
        }
        for extent in &extents {
            self.0.store.account(extent, ExtentChange::Appears);
            if !extent.is_prealloc() {
                // Stays pinned until the checkpoint, because a record of this epoch points to it.
                self.0.store.checkpoints().unpin_after(
                    txn.epoch(),
                    extent.data_addr(),
                    extent.stored_len(),
                );
            }
        }
        root.table.count_inodes(1);
        self.0.detached.sub(shard);
        self.0.store.counters().add(Counter::DetachedBack, 1);
        // A separate record, because later steps may still fail.
        txn.roll()?;
        txn.stamp(inode)
    }

    /// Frees an inode that is in memory only, after its last reference was released.
    pub(crate) fn end_detached(self, ino: Ino, shard: u8) -> Result<()> {
        let table = self.0.table(ino)?;
        let inode = table.get(ino)?;
        let mut locked = inode.write();
        if self.0.holds.orphaned(ino, Orphan::Detached(shard)) {
            // It is in use again.
            return Ok(());
        }
        self.forget_detached(&mut locked, shard)?;
        drop(locked);
        table.numbers().give_back(&inode);
        Ok(())
    }

    /// Evicts a locked inode that is in memory only.
    pub(crate) fn forget_detached(self, locked: &mut Locked<'_>, shard: u8) -> Result<()> {
        let ino = locked.ino();
        let extents = extents_within(ino, locked.inode())?;
        let unpin =
            |extent: &Extent| self.0.store.space().unpin(extent.data_addr(), extent.stored_len());
        extents.iter().filter(|extent| !extent.is_prealloc()).for_each(unpin);
        locked.end_detached();
        self.0.detached.sub(shard);
        Ok(())
    }
}

/// Returns the extents that an inode itself points to: data, and values of attributes.
fn extents_within(ino: Ino, inode: &Inode) -> Result<Vec<Extent>> {
    let mut extents = match inode.core.data_form {
        Form::Extents => inline_extents(ino, inode)?,
        _ => Vec::new(),
    };
    if inode.core.attr_form == Form::Inline {
        extents.extend(remote_extents(&inode.attr));
    }
    Ok(extents)
}
