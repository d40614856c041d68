//! Values in data objects of their own: writing, reading, and moving them for the cleaner.
//!
//! An object says for which inode it was written and, in the place of the file offset, the hash of
//! the attribute with the top bit set, which no file offset has. Its space is counted as that of an
//! extent: it appears when an attribute points to it, and goes when none does any more.

use super::inline::{broken, spliced};
use crate::records;
use crate::volume::Inner;
use shoal_base::{Addr, Code, Error, Ino, Result};
use shoal_format::Ptr;
use shoal_format::attr::{Attr, Attrs, Id, KEY_HIGH, LOCAL_MAX, VALUE_MAX, Value};
use shoal_format::extent::{DataHeader, Extent};
use shoal_format::inode::Form;
use shoal_space::{Class, Hold};
use shoal_txn::{ExtentChange, Need};

/// A value that was found.
pub(crate) enum Held<'s> {
    /// Its bytes.
    Here(Vec<u8>),
    /// Where it is on the device; it stays there as long as it is held.
    There(Ptr, Hold<'s>),
}

impl Inner {
    /// The value as it is to be stored: a long one is written to the device. Nobody points to it
    /// yet.
    pub(crate) fn store_value<'v>(
        &self,
        ino: Ino,
        id: &Id<'_>,
        value: &'v [u8],
    ) -> Result<Value<'v>> {
        if value.len() <= LOCAL_MAX {
            return Ok(Value::Local(value));
        }
        if value.len() > VALUE_MAX {
            return Err(Error::Code(Code::TooBig));
        }
        let offset = KEY_HIGH | id.hash(ino.root(), self.store.volume);
        Ok(Value::Remote(self.write_object(ino, offset, &[value])?.ptr))
    }

    /// The bytes of a value, from wherever they are.
    pub(crate) fn load_value(&self, ino: Ino, attr: &Attr<'_>) -> Result<Vec<u8>> {
        match self.hold_value(ino, attr)? {
            Held::Here(bytes) => Ok(bytes),
            Held::There(ptr, _hold) => self.read_value(ino, &attr.id(ino.root()), &ptr),
        }
    }

    /// Finds a value of an inode that is locked, to be read when the lock is gone.
    pub(crate) fn hold_value(&self, ino: Ino, attr: &Attr<'_>) -> Result<Held<'_>> {
        match attr.value {
            Value::Local(bytes) => Ok(Held::Here(bytes.to_vec())),
            Value::Remote(ptr) if self.store.geometry.contains(ptr.addr, u64::from(ptr.len)) => {
                Ok(Held::There(ptr, self.store.space.hold(ptr.addr)))
            }
            Value::Remote(_) => {
                let text = attr.to_text(ino.root());
                Err(broken(ino, format!("{text} is outside any segment")))
            }
        }
    }

    /// Reads a value from the device.
    pub(crate) fn read_value(&self, ino: Ino, id: &Id<'_>, ptr: &Ptr) -> Result<Vec<u8>> {
        let mut bytes = vec![0; ptr.len as usize];
        self.store.device.read_at(&mut bytes, ptr.addr.0)?;
        let object = format_args!("attribute {} of inode {ino}", id.to_text());
        ptr.verify_payload(&bytes, object)?;
        Ok(self.decode(ptr, &bytes, object)?.into_owned())
    }

    /// For the cleaner: writes the value whose object is at `payload` elsewhere. Returns its
    /// length, 0 if no attribute points to it.
    pub(crate) fn move_value(&self, header: &DataHeader, payload: Addr) -> Result<u32> {
        let ino = header.ino();
        let mut txn = self.store.begin(Need::Release, records::CLEAN)?;
        let inode = self.store.root(ino)?.table.get(ino)?;
        let mut locked = inode.write();
        if !locked.inode().core.in_use() || locked.is_detached() {
            return Ok(0);
        }
        let here = |attr: &Attr<'_>| attr.value.extent().filter(|e| e.ptr.addr == payload);
        let mut len = 0;
        match locked.inode().core.attr_form {
            Form::Inline => {
                let fork = locked.inode().attr.clone();
                let (mut attrs, mut start) = (Attrs::new(&fork), 0);
                while let Some(attr) = attrs.next() {
                    let attr = attr.ok_or_else(|| broken(ino, "not attributes"))?;
                    let range = start..attrs.position();
                    if let Some(old) = here(&attr) {
                        let new = self.rewrite_value(header, &attr)?;
                        let moved = Attr { value: Value::Remote(new.ptr), ..attr };
                        let fork = spliced(&fork, Some(&range), Some(&moved));
                        self.set_fork(&mut txn, &mut locked, Form::Inline, fork.into())?;
                        self.exchange_extents(&old, &new);
                        len = old.ptr.len;
                        break;
                    }
                    start = range.end;
                }
            }
            Form::Tree => {
                for found in self.hashed_in_tree(ino, header.offset & !KEY_HIGH)? {
                    let Some(attr) = Attr::decode_whole(&found.raw) else { continue };
                    if let Some(old) = here(&attr) {
                        let new = self.rewrite_value(header, &attr)?;
                        let value = Value::Remote(new.ptr);
                        self.repoint_in_tree(&mut txn, ino, &found, value)?;
                        self.exchange_extents(&old, &new);
                        len = old.ptr.len;
                    }
                }
            }
            Form::Empty | Form::Extents => {}
        }
        txn.commit().map(|_| len)
    }

    fn rewrite_value(&self, header: &DataHeader, attr: &Attr<'_>) -> Result<Extent> {
        let bytes = self.load_value(header.ino(), attr)?;
        let new = self.write_object_as(header.ino(), header.offset, &[&bytes], Class::Reserved)?;
        Ok(Extent { offset: 0, ..new })
    }

    fn exchange_extents(&self, old: &Extent, new: &Extent) {
        self.store.account(old, ExtentChange::Goes);
        self.store.account(new, ExtentChange::Appears);
    }
}
