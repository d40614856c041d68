//! What becomes of an inode that has lost its last name.
//!
//! | it is | held by nobody | held |
//! | --- | --- | --- |
//! | small: one transaction frees it | freed in the transaction that takes the name | the same for the device; in memory it lives on, *detached*, until the last reference goes |
//! | large, or the detached are too many | loses its name, takes a slot; freed behind it (`reap/`) | loses its name, takes a slot; freed when the last reference goes |
//!
//! Small is what has its data and attributes, or the records of them, in the inode. Held is what is
//! open, or known to the kernel above a mount, which at the moment of an `rm` it always is. So who
//! removes small files never sees the orphan table.
//!
//! A detached inode keeps its number (which is not given out), its place in memory (its block is
//! not evicted) and its space: the bytes of its extents are no longer live, so that a crash frees
//! them, but *pinned*, so that nothing is written over them before. What it changes within itself
//! changes memory alone. What would reach beyond (a write that outgrows the inode, a long
//! attribute) first puts the inode into a record as a whole, with a slot after all.
//!
//! A third that has a slot is a file with a name whose size was cut when its tail was too much for
//! one transaction (`data/truncate.rs`).

use crate::data::{END, inline_extents};
use crate::holds::Orphan;
use crate::records::STEP_RECORDS;
use crate::volume::Inner;
use crossbeam_utils::CachePadded;
use shoal_base::counters::Counter;
use shoal_base::invariant;
use shoal_base::planted::{self, Defect};
use shoal_base::shard::{SHARDS, shard};
use shoal_base::sync::AtomicU64;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::extent::Extent;
use shoal_format::inode::{FLAG_CUT, Form, Inode, Stamp};
use shoal_format::item::Item;
use shoal_format::node::Key;
use shoal_itable::{InodeRef, Locked};
use shoal_tree::Tree;
use shoal_txn::{ExtentChange, OrphanSlot, Txn, remote_extents};
use std::sync::atomic::Ordering;

/// How many inodes are detached: counted by the thread that detaches, so that threads do not share
/// a counter, and bounded for each shard.
pub(crate) struct Detached {
    shards: Box<[CachePadded<AtomicU64>]>,
    inodes_max: u64,
}

impl Detached {
    /// Bounds by memory: an inode may keep a block of 32, about 8 KiB.
    pub fn new(cache_bytes: u64) -> Detached {
        Detached {
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            inodes_max: (cache_bytes / (64 << 10)).clamp(16, 1 << 16),
        }
    }
    /// Counts one more, unless that would be too many.
    fn add(&self) -> Option<u8> {
        let here = shard();
        let room = self.shards[here].load(Ordering::Relaxed) < self.inodes_max;
        room.then(|| {
            self.shards[here].fetch_add(1, Ordering::Relaxed);
            here as u8
        })
    }
    fn sub(&self, shard: u8) {
        self.shards[shard as usize].fetch_sub(1, Ordering::Relaxed);
    }
    /// How many there are.
    pub fn len(&self) -> u64 {
        self.shards.iter().map(|shard| shard.load(Ordering::Relaxed)).sum()
    }
}

/// What an inode is to its last unlink: found out before the first change, because it may fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Size {
    /// All of it is in its block, but for the data that its own records point to.
    Small,
    /// One transaction frees it.
    Medium,
    /// None does.
    Large,
}

/// What is left to do when the transaction that took the last name has been committed and the
/// locks are gone.
#[must_use]
pub(crate) enum Left {
    /// The inode is free: its number can be given out.
    Number(InodeRef),
    /// It has a slot, and nobody holds it.
    Slot(Ino, OrphanSlot),
}

impl Inner {
    /// How much there is to free.
    pub(crate) fn size_of(&self, ino: Ino, inode: &Inode) -> Result<Size> {
        let core = &inode.core;
        // A file being cut has a slot already.
        if core.flags & FLAG_CUT != 0 || core.is_dir() && core.size != 0 {
            return Ok(Size::Large);
        }
        let _ = extents_within(ino, inode)?;
        if core.data_form != Form::Tree && core.attr_form != Form::Tree {
            return Ok(Size::Small);
        }
        let root = self.store.root(ino)?;
        let few = |tree: &Tree| self.records_end(tree, Key::of(ino, 0)).map(|end| end.is_none());
        let medium = (core.data_form != Form::Tree || few(&root.extents)?)
            && (core.attr_form != Form::Tree || few(&root.attrs)?);
        Ok(if medium { Size::Medium } else { Size::Large })
    }

    /// Where the records of an inode from this key on are cut so that one transaction removes what
    /// is before; `None`: it can remove all.
    pub(crate) fn records_end(&self, tree: &Tree, from: Key) -> Result<Option<Key>> {
        records_end_at(tree, from, self.options.step_records.clamp(1, STEP_RECORDS))
    }

    /// Takes the last name of a locked inode of this size: frees it, detaches it, or gives it a
    /// slot.
    pub(crate) fn drop_last_link(
        &self,
        txn: &mut Txn<'_>,
        inode: &mut Locked<'_>,
        size: Size,
        ctime: Stamp,
    ) -> Result<Option<Left>> {
        let ino = inode.ino();
        // A directory with entries is emptied whoever is in it.
        let full = inode.inode().core.is_dir() && inode.inode().core.size != 0;
        let held = self.holds.is_held(ino) && !full;
        if !held && size != Size::Large {
            self.free_inode(txn, inode)?;
            return Ok(Some(Left::Number(inode.place(self.table(ino)?))));
        }
        let core = &mut inode.edit(self.table(ino)?, txn.epoch).core;
        (core.nlink, core.ctime) = (0, ctime);
        if held && size == Size::Small && self.detach(txn, inode)? {
            return Ok(None);
        }
        txn.log_core(inode, Item::Links { ino, nlink: 0, ctime });
        let slot = self.slot_of(txn, inode)?;
        Ok(match held && self.holds.orphaned(ino, Orphan::Slot(slot)) {
            true => None,
            false => Some(Left::Slot(ino, slot)),
        })
    }

    /// After the commit: numbers can be given out, and what has a slot is freed soon.
    pub(crate) fn settle(&self, left: impl IntoIterator<Item = Left>) -> Result<()> {
        match self.let_go(left)? {
            true => self.reap_soon(),
            false => Ok(()),
        }
    }

    /// The slot of an inode that becomes an orphan: a file being cut has one.
    fn slot_of(&self, txn: &mut Txn<'_>, inode: &Locked<'_>) -> Result<OrphanSlot> {
        let ino = inode.ino();
        // The volume's list of cuts is asked only about files that say they are in it.
        let known = match inode.inode().core.flags & FLAG_CUT {
            0 => None,
            _ => self.cuts.lock().remove(&ino),
        };
        known.map_or_else(|| self.take_slot(txn, ino), Ok)
    }

    /// A slot, in the table and in the record.
    pub(crate) fn take_slot(&self, txn: &mut Txn<'_>, ino: Ino) -> Result<OrphanSlot> {
        let slot = self.store.orphans.take(ino)?;
        if !planted::is(Defect::SlotNotLogged) {
            txn.log(Item::OrphanAdd { ino });
        }
        self.store.counters.add(Counter::OrphanSlots, 1);
        Ok(slot)
    }

    /// A slot is free again, in the table and in the record.
    pub(crate) fn free_slot(&self, txn: &mut Txn<'_>, slot: OrphanSlot, ino: Ino) {
        let was_there = self.store.orphans.free(slot, ino);
        invariant!(was_there, "orphan slot of {ino} is not its own");
        if !planted::is(Defect::SlotNotFreed) {
            txn.log(Item::OrphanDel { ino });
        }
    }

    /// Frees a locked inode without links: its data, its attributes, its number.
    pub(crate) fn free_inode(&self, txn: &mut Txn<'_>, inode: &mut Locked<'_>) -> Result<()> {
        let ino = inode.ino();
        let root = self.store.root(ino)?;
        let core = inode.inode().core;
        if core.data_form == Form::Tree {
            // A failure to read must come before the first change.
            self.read_records(ino, &[], &[], Some(0))?;
            txn.changing();
            self.remove_records(txn, ino, 0, END)?;
        }
        if core.attr_form == Form::Tree {
            self.free_attrs(txn, ino)?;
        }
        for extent in extents_within(ino, inode.inode())? {
            self.store.account(&extent, ExtentChange::Goes);
        }
        *inode.edit(&root.table, txn.epoch) = Inode::free(core.generation);
        if planted::is(Defect::NumberBeforeRecord) {
            root.table.give_back(&inode.place(&root.table));
        }
        txn.log(Item::Free { ino, generation: core.generation });
        root.table.count_inodes(-1);
        Ok(())
    }
}

/// Detached inodes.
impl Inner {
    /// Frees a locked inode for the device, and keeps it in memory for those who hold it. `false`,
    /// and nothing done: there are too many such already.
    pub(crate) fn detach(&self, txn: &mut Txn<'_>, inode: &mut Locked<'_>) -> Result<bool> {
        let ino = inode.ino();
        let root = self.store.root(ino)?;
        let extents = extents_within(ino, inode.inode())?;
        // What is pinned cannot be moved out of the way of those who want room.
        if !extents.is_empty() && !self.may_pin() {
            return Ok(false);
        }
        let Some(shard) = self.detached.add() else { return Ok(false) };
        if !self.holds.orphaned(ino, Orphan::Detached(shard)) {
            self.detached.sub(shard);
            return Ok(false);
        }
        for extent in &extents {
            self.store.account(extent, ExtentChange::Goes);
            if !planted::is(Defect::PinForgotten) {
                self.pin(extent);
            }
        }
        let generation = inode.edit(&root.table, txn.epoch).core.generation;
        inode.detach(txn.epoch);
        if planted::is(Defect::NumberTooEarly) {
            root.table.give_back(&inode.place(&root.table));
        }
        txn.log(Item::Free { ino, generation });
        root.table.count_inodes(-1);
        self.store.counters.add(Counter::Detached, 1);
        Ok(true)
    }

    /// Whether space is plenty, and not much of it pinned.
    fn may_pin(&self) -> bool {
        let (space, segments) = (&self.store.space, self.store.geometry.segments);
        space.free_segments() > segments / 8 && space.pinned_segments() < (segments / 16).max(2)
    }

    fn pin(&self, extent: &Extent) {
        if !extent.is_prealloc() {
            self.store.space.pin(extent.data_addr(), extent.stored_len());
        }
    }

    /// To be asked before a locked inode is changed. One that is detached stays so, and nothing is
    /// journaled, when the change stays `within` it; else it takes a slot, and is on the device
    /// again.
    #[inline]
    pub(crate) fn before_change(
        &self,
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

    /// A detached inode outgrows itself.
    #[cold]
    fn take_back(&self, txn: &mut Txn<'_>, inode: &mut Locked<'_>) -> Result<()> {
        let ino = inode.ino();
        let root = self.store.root(ino)?;
        let extents = extents_within(ino, inode.inode())?;
        txn.check_memory()?;
        // The last reference has just gone, and who had it is about to end the inode.
        let Some(Orphan::Detached(shard)) = self.holds.orphan_of(ino) else {
            return Err(Error::Code(Code::Stale));
        };
        let slot = self.take_slot(txn, ino)?;
        self.holds.orphaned(ino, Orphan::Slot(slot));
        inode.attach(&root.table, txn.epoch);
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
            self.store.account(extent, ExtentChange::Appears);
            if !extent.is_prealloc() {
                // Not yet: a record of this epoch points to it.
                self.store.unpin_after_checkpoint(
                    txn.epoch,
                    extent.data_addr(),
                    extent.stored_len(),
                );
            }
        }
        root.table.count_inodes(1);
        self.detached.sub(shard);
        self.store.counters.add(Counter::DetachedBack, 1);
        // A record of its own: what is to come may still fail.
        txn.roll()?;
        txn.stamp(inode)
    }

    /// The last reference to a detached inode is gone.
    pub(crate) fn end_detached(&self, ino: Ino, shard: u8) -> Result<()> {
        let table = self.table(ino)?;
        let inode = table.get(ino)?;
        let mut locked = inode.write();
        if self.holds.orphaned(ino, Orphan::Detached(shard)) {
            // Held again meanwhile.
            return Ok(());
        }
        self.forget_detached(&mut locked, shard)?;
        drop(locked);
        table.give_back(&inode);
        Ok(())
    }

    /// Nobody is to find a locked detached inode any more.
    pub(crate) fn forget_detached(&self, locked: &mut Locked<'_>, shard: u8) -> Result<()> {
        let ino = locked.ino();
        let extents = extents_within(ino, locked.inode())?;
        let unpin =
            |extent: &Extent| self.store.space.unpin(extent.data_addr(), extent.stored_len());
        extents.iter().filter(|extent| !extent.is_prealloc()).for_each(unpin);
        locked.end_detached();
        self.detached.sub(shard);
        Ok(())
    }
}

/// The key of the first of an inode's records from a key on that so many come before; `None`: there
/// are no more.
pub(crate) fn records_end_at(tree: &Tree, from: Key, mut left: usize) -> Result<Option<Key>> {
    let mut end = None;
    tree.for_each(from, Key::new(from.hi + 1, 0), &mut |key, _| {
        if left == 0 {
            end = Some(key);
            return Ok(false);
        }
        left -= 1;
        Ok(true)
    })?;
    Ok(end)
}

/// The extents that an inode itself points to: data, and values of attributes.
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
