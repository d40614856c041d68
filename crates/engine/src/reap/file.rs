//! Freeing a file without a name, and too large for one transaction.

use super::Step;
use crate::holds::Orphan;
use crate::records;
use crate::volume::Inner;
use shoal_base::{Ino, Result};
use shoal_format::inode::{Core, Form};
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_itable::Locked;
use shoal_txn::{OrphanSlot, Txn};

impl Inner {
    pub(super) fn file_step(&self, ino: Ino, slot: OrphanSlot) -> Result<Step> {
        let mut txn = self.begin(records::REAP_FILE)?;
        let inode = self.inode(ino)?;
        let mut locked = inode.write();
        let core = locked.inode().core;
        if !core.in_use() || core.nlink != 0 || !self.store.orphans.has(slot, ino) {
            return Ok(Step::Done);
        }
        if self.holds.orphaned(ino, Orphan::Slot(slot)) {
            // Held again: the last reference ends it.
            return Ok(Step::Done);
        }
        let more = self.remove_some(&mut txn, &mut locked)?;
        if !more {
            self.free_inode(&mut txn, &mut locked)?;
            self.free_slot(&mut txn, slot, ino);
        }
        txn.stamp(&mut locked)?;
        let lsn = txn.commit()?;
        drop(locked);
        self.count_reaped(u64::from(!more));
        self.step_done(lsn)?;
        if more {
            return Ok(Step::More);
        }
        self.table(ino)?.give_back(&inode);
        Ok(Step::Done)
    }

    /// Removes records if they are too many for one transaction: data first, then attributes.
    pub(super) fn remove_some(&self, txn: &mut Txn<'_>, locked: &mut Locked<'_>) -> Result<bool> {
        let ino = locked.ino();
        let core = locked.inode().core;
        let root = self.store.root(ino)?;
        let from = Key::of(ino, 0);
        if core.data_form == Form::Tree
            && let Some(end) = self.records_end(&root.extents, from)?
        {
            txn.changing();
            let gone = self.remove_records(txn, ino, 0, end.lo)?;
            self.put_core(txn, locked, Core { bytes: core.bytes.saturating_sub(gone), ..core })?;
            return Ok(true);
        }
        if core.attr_form == Form::Tree
            && let Some(end) = self.records_end(&root.attrs, from)?
        {
            txn.changing();
            let mut gone = |_: Key, raw: &[u8]| self.value_goes(raw);
            root.attrs.delete_range(from, end, txn.epoch, &mut gone)?;
            txn.log(Item::TreeDelRange {
                root: ino.root(),
                tree: TreeId::Attrs,
                key: from,
                end: end.lo,
            });
            return Ok(true);
        }
        Ok(false)
    }
}
