//! Changing a file's size.
//!
//! A tail whose records are too many for one transaction is cut off in several. The first sets the
//! size, marks the inode ([`FLAG_CUT`]) and gives it a slot in the orphan table; each further one
//! removes some records beyond the size; the last takes mark and slot away. Between them the file
//! can be read and changed, but not be made longer: who wants that ends the cut first. After a
//! crash the slot leads recovery here.
//!
//! (Punching a hole needs no slot: each of its transactions leaves a file that is as it should be,
//! only with less of the hole.)

use super::map::END;
use crate::records;
use crate::types::TruncateTracking;
use crate::volume::Inner;
use shoal_base::counters::Counter;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::{Core, FLAG_CUT, Form};
use shoal_format::item::Item;
use shoal_format::node::Key;
use shoal_itable::Locked;
use shoal_txn::Txn;

impl Inner {
    /// Sets the size of a locked file: what is behind it goes, what comes is a hole. The caller
    /// logs the core, and when [`FLAG_CUT`] is in it afterwards, calls [`Inner::finish_cut`].
    pub(crate) fn set_size(
        &self,
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
                    let inode = locked.edit(self.table(ino)?, txn.epoch);
                    inode.data = inode.data[..size as usize].into();
                    let form = if size == 0 { Form::Empty } else { Form::Inline };
                    inode.core.data_form = form;
                    txn.log(Item::DataFork { ino, form, bytes: &inode.data });
                }
            }
            Form::Extents | Form::Tree if size < core.size || size == 0 => {
                if core.data_form == Form::Tree && self.begin_cut(txn, locked, size)? {
                    locked.edit(self.table(ino)?, txn.epoch).core.flags |= FLAG_CUT;
                } else {
                    self.replace_extents(txn, locked, size, END, &[])?;
                    self.without_records(txn, locked, size)?;
                }
            }
            Form::Extents | Form::Tree => {}
        }
        locked.edit(self.table(ino)?, txn.epoch).core.size = size;
        Ok(())
    }

    /// The same, with the file in a table or a list meanwhile although it need not be
    /// ([`TruncateTracking`]).
    #[cold]
    pub(crate) fn set_size_tracked(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        size: u64,
        tracking: TruncateTracking,
    ) -> Result<()> {
        let ino = locked.ino();
        if tracking == TruncateTracking::Table {
            let slot = self.take_slot(txn, ino)?;
            self.set_size(txn, locked, size)?;
            self.free_slot(txn, slot, ino);
            return Ok(());
        }
        self.tracked.lock().push_front(ino);
        txn.log(Item::OrphanAdd { ino });
        self.set_size(txn, locked, size)?;
        let mut list = self.tracked.lock();
        let place = list.iter().position(|at| *at == ino);
        place.map(|place| list.remove(place));
        txn.log(Item::OrphanDel { ino });
        Ok(())
    }

    /// A file that is empty, and all of whose records in the tree are gone, has none there.
    fn without_records(&self, txn: &mut Txn<'_>, locked: &mut Locked<'_>, size: u64) -> Result<()> {
        let ino = locked.ino();
        if size == 0 && locked.inode().core.data_form == Form::Tree {
            locked.edit(self.table(ino)?, txn.epoch).core.data_form = Form::Empty;
            txn.log(Item::DataFork { ino, form: Form::Empty, bytes: &[] });
        }
        Ok(())
    }

    /// Whether the tail is too long for this transaction. If so, the extent that reaches over the
    /// new size has been cut, and the file has a slot.
    fn begin_cut(&self, txn: &mut Txn<'_>, locked: &mut Locked<'_>, size: u64) -> Result<bool> {
        let ino = locked.ino();
        let tree = &self.store.root(ino)?.extents;
        if self.records_end(tree, Key::of(ino, size))?.is_none() {
            return Ok(false);
        }
        let over = self.extents_in(ino, locked.inode(), size, size + 1)?;
        txn.check_memory()?;
        if let Some(over) = over.first().filter(|over| over.offset < size) {
            self.replace_extents(txn, locked, size, over.end(), &[])?;
        }
        // Without a name it has a slot, and must not have two: replay knows them by number alone,
        // and the end of the cut would take away the only one.
        if locked.inode().core.nlink != 0 {
            let slot = self.take_slot(txn, ino)?;
            self.cuts.lock().insert(ino, slot);
        }
        Ok(true)
    }

    /// Removes what is left beyond the size of a file that is being cut, in as many transactions as
    /// that takes. Without locks; others may be doing the same.
    pub(crate) fn finish_cut(&self, ino: Ino) -> Result<()> {
        while self.reading_first(|| self.cut_step(ino))? {}
        Ok(())
    }

    /// One transaction of it; `false`: it is done.
    pub(crate) fn cut_step(&self, ino: Ino) -> Result<bool> {
        let mut txn = self.begin(records::TRUNCATE)?;
        let inode = match self.inode(ino) {
            Err(Error::Code(Code::Stale)) => return Ok(false),
            other => other?,
        };
        let mut locked = inode.write();
        let core = locked.inode().core;
        if core.flags & FLAG_CUT == 0 {
            return Ok(false);
        }
        let tree = &self.store.root(ino)?.extents;
        let mut end = self.records_end(tree, Key::of(ino, core.size))?;
        if planted::is(Defect::CutForgotten) {
            end = None;
        }
        self.read_records(ino, &[], &[], None)?;
        txn.changing();
        let to = end.map_or(END, |key| key.lo);
        let to = if planted::is(Defect::CutForgotten) { core.size } else { to };
        let gone = self.remove_records(&mut txn, ino, core.size, to)?;
        let bytes = core.bytes.saturating_sub(gone);
        let mut core = Core { bytes, ..core };
        if end.is_none() {
            self.without_records(&mut txn, &mut locked, core.size)?;
            core.flags &= !FLAG_CUT;
            core.data_form = locked.inode().core.data_form;
            // Without a name it keeps the slot, which is then that of an orphan.
            if let Some(slot) = self.cuts.lock().remove(&ino) {
                self.free_slot(&mut txn, slot, ino);
            }
        }
        self.put_core(&mut txn, &mut locked, core)?;
        txn.stamp(&mut locked)?;
        let lsn = txn.commit()?;
        drop(locked);
        self.store.counters.add(Counter::ReapSteps, 1);
        self.step_done(lsn)?;
        Ok(end.is_some())
    }
}
