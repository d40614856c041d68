//! Changing a file's size.
//!
//! A tail with too many records for one transaction is removed in several. The first sets the size,
//! marks the inode ([`FLAG_TRUNCATING`]) and gives it an orphan slot. Each further one removes some
//! records beyond the size. The last removes the mark and frees the slot. Between them the file can
//! be read and changed, but not extended: a call that extends it must first finish the truncate.
//! After a crash, recovery finds the file by its slot.
//!
//! (Punching a hole needs no slot: each of its transactions leaves a consistent file with a part of
//! the hole.)

use crate::files::Files;
use crate::objects::END;
use crate::records;
use shoal_base::counters::Counter;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::{Core, FLAG_TRUNCATING, Form};
use shoal_format::item::Item;
use shoal_format::node::Key;
use shoal_itable::Locked;
use shoal_txn::Txn;

impl Files<'_> {
    /// Sets the size of a locked file: removes data beyond it, or adds a hole. The caller must log
    /// the core and, if it has [`FLAG_TRUNCATING`] afterwards, call [`Files::finish_truncate`].
    pub(crate) fn set_size(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        size: u64,
    ) -> Result<()> {
        let ino = locked.ino();
        let core = locked.inode().core;
        match core.data_form {
            Form::Empty => {}
            Form::Inline => {
                let longer = (locked.inode().data.len() as u64) > size;
                if longer && !planted::is(Defect::StaleTail) {
                    let inode = locked.edit(self.0.table(ino)?, txn.epoch());
                    inode.data = inode.data[..size as usize].into();
                    let form = if size == 0 { Form::Empty } else { Form::Inline };
                    inode.core.data_form = form;
                    txn.log(Item::DataFork { ino, form, bytes: &inode.data });
                }
            }
            Form::Extents | Form::Tree if size < core.size || size == 0 => {
                if core.data_form == Form::Tree && self.begin_truncate(txn, locked, size)? {
                    locked.edit(self.0.table(ino)?, txn.epoch()).core.flags |= FLAG_TRUNCATING;
                } else {
                    self.objects().replace_extents(txn, locked, size, END, &[])?;
                    self.without_records(txn, locked, size)?;
                }
            }
            Form::Extents | Form::Tree => {}
        }
        locked.edit(self.0.table(ino)?, txn.epoch()).core.size = size;
        Ok(())
    }

    /// As [`Files::set_size`], with the file in a table or list meanwhile although this is not
    /// needed ([`TruncateTracking`]).
    #[cfg(feature = "lab")]
    pub(crate) fn set_size_tracked(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        size: u64,
    ) -> Result<()> {
        use crate::types::TruncateTracking;
        let ino = locked.ino();
        match self.0.options.lab.truncate_tracking {
            TruncateTracking::AsNeeded => return self.set_size(txn, locked, size),
            TruncateTracking::Table => {
                let slot = self.orphans().take_slot(txn, ino)?;
                self.set_size(txn, locked, size)?;
                self.orphans().free_slot(txn, slot, ino);
                return Ok(());
            }
            TruncateTracking::List => {}
        }
        self.0.tracked.lock().push_front(ino);
        txn.log(Item::OrphanAdd { ino });
        self.set_size(txn, locked, size)?;
        let mut list = self.0.tracked.lock();
        let place = list.iter().position(|at| *at == ino);
        place.map(|place| list.remove(place));
        txn.log(Item::OrphanDel { ino });
        Ok(())
    }

    /// Changes the form of an empty file whose records in the tree have been removed.
    fn without_records(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>, size: u64) -> Result<()> {
        let ino = locked.ino();
        if size == 0 && locked.inode().core.data_form == Form::Tree {
            locked.edit(self.0.table(ino)?, txn.epoch()).core.data_form = Form::Empty;
            txn.log(Item::DataFork { ino, form: Form::Empty, bytes: &[] });
        }
        Ok(())
    }

    /// Returns whether the tail is too long for this transaction. If so, the extent across the new
    /// size has been shortened, and the file has a slot.
    fn begin_truncate(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>, size: u64) -> Result<bool> {
        let ino = locked.ino();
        let tree = &self.0.store.root(ino)?.extents;
        if self.orphans().records_end(tree, Key::of(ino, size))?.is_none() {
            return Ok(false);
        }
        let over = self.objects().extents_in(ino, locked.inode(), size, size + 1)?;
        txn.check_memory()?;
        if let Some(over) = over.first().filter(|over| over.offset < size) {
            self.objects().replace_extents(txn, locked, size, over.end(), &[])?;
        }
        // An unlinked file has a slot, and must not get a second one: replay finds slots by inode
        // number, and the end of the truncate would free the only one.
        if locked.inode().core.nlink != 0 {
            let slot = self.orphans().take_slot(txn, ino)?;
            self.0.truncates.lock().insert(ino, slot);
        }
        Ok(true)
    }

    /// Finishes a truncate in progress, in as many transactions as necessary. Must be called
    /// without locks; other threads may be doing the same.
    pub(crate) fn finish_truncate(self, ino: Ino) -> Result<()> {
        while self.0.reading_first(|| self.truncate_step(ino))? {}
        Ok(())
    }

    /// Performs one transaction of a truncate. Returns `false` if it is finished.
    pub(crate) fn truncate_step(self, ino: Ino) -> Result<bool> {
        let mut txn = self.0.begin(records::TRUNCATE)?;
        let inode = match self.0.inode(ino) {
            Err(Error::Code(Code::Stale)) => return Ok(false),
            other => other?,
        };
        let mut locked = inode.write();
        let core = locked.inode().core;
        if core.flags & FLAG_TRUNCATING == 0 {
            return Ok(false);
        }
        let tree = &self.0.store.root(ino)?.extents;
        let mut end = self.orphans().records_end(tree, Key::of(ino, core.size))?;
        if planted::is(Defect::TruncateForgotten) {
            end = None;
        }
        self.objects().read_records(ino, &[], &[], None)?;
        txn.changing();
        let to = end.map_or(END, |key| key.lo);
        let to = if planted::is(Defect::TruncateForgotten) { core.size } else { to };
        let gone = self.objects().remove_records(&mut txn, ino, core.size, to)?;
        let bytes = core.bytes.saturating_sub(gone);
        let mut core = Core { bytes, ..core };
        if end.is_none() {
            self.without_records(&mut txn, &mut locked, core.size)?;
            core.flags &= !FLAG_TRUNCATING;
            core.data_form = locked.inode().core.data_form;
            // An unlinked file keeps the slot, as an orphan.
            if let Some(slot) = self.0.truncates.lock().remove(&ino) {
                self.orphans().free_slot(&mut txn, slot, ino);
            }
        }
        self.0.put_core(&mut txn, &mut locked, core)?;
        txn.stamp(&mut locked)?;
        let lsn = txn.commit()?;
        drop(locked);
        self.0.store.counters().add(Counter::ReapSteps, 1);
        self.0.step_done(lsn)?;
        Ok(end.is_some())
    }
}
