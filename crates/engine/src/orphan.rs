//! Freeing inodes: in the transaction that takes the last link, or later when nothing holds them.

use crate::volume::Inner;
use shoal_base::{Ino, Result};
use shoal_format::inode::{Form, Inode};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::{ExtentChange, Txn, remote_extents};

impl Inner {
    /// Frees a locked inode without links: its data, its attributes, its number.
    pub(crate) fn free_inode(&self, txn: &mut Txn<'_>, inode: &mut Locked<'_>) -> Result<()> {
        let ino = inode.ino();
        let root = self.store.root(ino)?;
        let core = inode.inode().core;
        if core.data_form == Form::Tree {
            // A failure to read must come before the first change.
            self.read_records(ino, &[], &[], Some(0))?;
            txn.changing();
            self.remove_tail(txn, ino, 0)?;
        }
        if core.data_form == Form::Extents {
            for extent in crate::data::inline_extents(ino, inode.inode())? {
                self.store.account(&extent, ExtentChange::Goes);
            }
        }
        match core.attr_form {
            Form::Tree => self.free_attrs(txn, ino)?,
            _ => remote_extents(&inode.inode().attr)
                .for_each(|extent| self.store.account(&extent, ExtentChange::Goes)),
        }
        *inode.edit(&root.table, txn.epoch) = Inode::free(core.generation);
        txn.log(Item::Free { ino, generation: core.generation });
        root.table.count_inodes(-1);
        Ok(())
    }

    /// Frees an orphan that nothing holds any more.
    pub(crate) fn reap(&self, ino: Ino) -> Result<()> {
        let mut txn = self.begin()?;
        let inode = self.inode(ino)?;
        {
            let mut locked = inode.write();
            let core = locked.inode().core;
            let idle = self.store.orphans.contains(ino) && !self.holds.is_held(ino);
            if !idle || !core.in_use() || core.nlink != 0 {
                return Ok(());
            }
            self.free_inode(&mut txn, &mut locked)?;
            self.store.orphans.remove(ino);
            txn.log(Item::OrphanDel { ino });
            txn.commit()?;
        }
        self.table(ino)?.give_back(&inode);
        Ok(())
    }

    /// After recovery: frees what no name and nobody refers to any more. Returns how many.
    pub(crate) fn reap_all(&self) -> Result<u64> {
        let mut reaped = 0;
        for ino in self.store.orphans.all() {
            if self.root(ino).is_err() {
                // It goes with its deleted root.
                continue;
            }
            let core = match self.inode(ino) {
                Ok(inode) => inode.read().inode.core,
                Err(e) => {
                    tracing::warn!(%ino, error = %e, "orphan cannot be read; left for fsck");
                    continue;
                }
            };
            if !core.in_use() || core.nlink != 0 {
                tracing::warn!(%ino, "orphan slot names a free or linked inode; cleared");
                let mut txn = self.begin()?;
                self.store.orphans.remove(ino);
                txn.log(Item::OrphanDel { ino });
                txn.commit()?;
                continue;
            }
            self.reap(ino)?;
            reaped += 1;
        }
        Ok(reaped)
    }
}
