//! Attributes of the engine's own: in the namespace `system`, under names that the calls for users
//! neither show nor accept ([`super::xattr`]). A check, a repair and a checkpoint treat them as all
//! others.

use super::Attributes;
use crate::records;
use crate::stat::attr_of;
use crate::xattr::{Change, Held};
use shoal_base::cold::Section;
use shoal_base::{Ino, Result};
use shoal_format::attr::{Attr, Id, LOCAL_MAX, Namespace};
use shoal_format::inode::Core;
use shoal_format::item::Item;

/// Estimated bytes that a change needs: a value is at most [`LOCAL_MAX`] bytes.
const COST: u64 = 1024 + LOCAL_MAX as u64;

impl Attributes<'_> {
    /// Returns the value of a hidden attribute.
    pub(crate) fn hidden(self, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let id = Id::new(Namespace::System, name);
        let found = self.0.reading_first(|| {
            let inode = self.0.inode(ino)?;
            let _section = Section::begin();
            let slot = inode.read();
            attr_of(ino, &slot.inode)?;
            self.xattrs()
                .with_attr(ino, &slot.inode, &id, |attr| self.xattrs().hold_value(ino, attr))
        })?;
        match found {
            None => Ok(None),
            Some(Held::Here(bytes)) => Ok(Some(bytes)),
            Some(Held::There(ptr, _hold)) => self.xattrs().read_value(ino, &id, &ptr).map(Some),
        }
    }

    /// Sets a hidden attribute to a value of at most [`LOCAL_MAX`] bytes.
    pub(crate) fn set_hidden(self, ino: Ino, name: &[u8], value: &[u8]) -> Result<()> {
        let id = Id::new(Namespace::System, name);
        self.0.reading_first(|| {
            let mut txn = self.0.begin_space(COST, records::XATTR)?;
            let inode = self.0.inode(ino)?;
            let mut locked = inode.write();
            attr_of(ino, locked.inode())?;
            let value = self.xattrs().store_value(ino, &id, value)?;
            let attr = Attr { space: id.space, name: id.name, value };
            let plan = self.xattrs().plan(ino, locked.inode(), &Change::set(attr))?;
            let core = locked.inode().core;
            self.change_with(&mut txn, &mut locked, plan, core)?;
            txn.stamp(&mut locked)?;
            txn.commit().map(|_| ())
        })
    }

    /// Sets a hidden attribute to a value of at most 64 KiB, or removes it. The inode's times stay.
    pub(crate) fn keep_hidden(self, ino: Ino, name: &[u8], value: Option<&[u8]>) -> Result<()> {
        let id = Id::new(Namespace::System, name);
        if value.is_none() && self.hidden(ino, name)?.is_none() {
            return Ok(());
        }
        self.0.reading_first(|| {
            let bytes = value.map_or(0, |value| value.len() as u64);
            let mut txn = self.0.begin_space(COST + bytes, records::XATTR)?;
            let inode = self.0.inode(ino)?;
            let mut locked = inode.write();
            attr_of(ino, locked.inode())?;
            let set = value.map(|value| self.xattrs().store_value(ino, &id, value)).transpose()?;
            let change = match set {
                Some(value) => Change::set(Attr { space: id.space, name: id.name, value }),
                None => Change::remove(id),
            };
            let plan = self.xattrs().plan(ino, locked.inode(), &change)?;
            txn.check_memory()?;
            let pending = self.xattrs().apply(&mut txn, &mut locked, plan)?;
            let Core { nlink, ctime, .. } = locked.inode().core;
            txn.log_core(&mut locked, Item::Links { ino, nlink, ctime });
            self.intents().finish(&mut txn, &mut locked, pending)?;
            txn.stamp(&mut locked)?;
            txn.commit().map(|_| ())
        })
    }
}
