//! Freeing an unlinked file that is too large for one transaction.

use super::ReapStep;
use crate::reap::Reaper;
use crate::records;
use crate::state::Orphan;
use shoal_base::{Ino, Result};
use shoal_format::inode::{Core, Form};
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_itable::Locked;
use shoal_txn::{OrphanSlot, Txn};

impl Reaper<'_> {
    pub(super) fn file_step(self, ino: Ino, slot: OrphanSlot) -> Result<ReapStep> {
        let mut txn = self.0.begin(records::REAP_FILE)?;
        let inode = self.0.inode(ino)?;
        let mut locked = inode.write();
        let core = locked.inode().core;
        if !core.in_use() || core.nlink != 0 || !self.0.store.orphans().has(slot, ino) {
            return Ok(self.overtaken(ino, slot));
        }
        if self.0.holds.orphaned(ino, Orphan::Slot(slot)) {
            // In use again: releasing the last reference frees it.
            return Ok(ReapStep::Done);
        }
        let more = self.remove_some(&mut txn, &mut locked)?;
        if !more {
            self.orphans().free_inode(&mut txn, &mut locked)?;
            self.orphans().free_slot(&mut txn, slot, ino);
        }
        txn.stamp(&mut locked)?;
        let lsn = txn.commit()?;
        drop(locked);
        self.count_reaped(u64::from(!more));
        self.0.step_done(lsn)?;
        if more {
            return Ok(ReapStep::More);
        }
        self.0.table(ino)?.numbers().give_back(&inode);
        Ok(ReapStep::Done)
    }

    /// Removes records if they are too many for one transaction: data first, then attributes.
    /// Returns whether it did.
    pub(super) fn remove_some(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>) -> Result<bool> {
        let ino = locked.ino();
        let core = locked.inode().core;
        let root = self.0.store.root(ino)?;
        let from = Key::of(ino, 0);
        if core.data_form == Form::Tree
            && let Some(end) = self.orphans().records_end(&root.extents, from)?
        {
            txn.changing();
            let gone = self.objects().remove_records(txn, ino, 0, end.lo)?;
            self.0.put_core(
                txn,
                locked,
                Core { bytes: core.bytes.saturating_sub(gone), ..core },
            )?;
            return Ok(true);
        }
        if core.attr_form == Form::Tree
            && let Some(end) = self.orphans().records_end(&root.attrs, from)?
        {
            txn.changing();
            let mut gone = |_: Key, raw: &[u8]| self.xattrs().value_goes(raw);
            root.attrs.delete_range(from, end, txn.epoch(), &mut gone)?;
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
