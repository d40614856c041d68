//! Changing a file's size.

use super::map::END;
use crate::volume::Inner;
use shoal_base::Result;
use shoal_format::inode::Form;
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::Txn;

impl Inner {
    /// Sets the size of a locked file: what is behind it goes, what comes is a hole. The caller
    /// logs the core.
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
                if (locked.inode().data.len() as u64) > size {
                    let inode = locked.edit(self.table(ino)?, txn.epoch);
                    inode.data = inode.data[..size as usize].into();
                    let form = if size == 0 { Form::Empty } else { Form::Inline };
                    inode.core.data_form = form;
                    txn.log(Item::DataFork { ino, form, bytes: &inode.data });
                }
            }
            Form::Extents | Form::Tree if size < core.size || size == 0 => {
                self.replace_extents(txn, locked, size, END, &[])?;
                let inode = locked.edit(self.table(ino)?, txn.epoch);
                if size == 0 && inode.core.data_form == Form::Tree {
                    inode.core.data_form = Form::Empty;
                    txn.log(Item::DataFork { ino, form: Form::Empty, bytes: &[] });
                }
            }
            Form::Extents | Form::Tree => {}
        }
        locked.edit(self.table(ino)?, txn.epoch).core.size = size;
        Ok(())
    }
}
