//! Values in separate data objects: writing, reading, and moving them for the cleaner.
//!
//! An object's header has the inode and, instead of the file offset, the hash of the attribute with
//! the top bit set, which no file offset has. Its space is accounted for like an extent's, as long
//! as an attribute points to it.

use super::inline::{broken, spliced};
use crate::records;
use crate::xattr::Xattrs;
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
    /// Its pointer. The hold keeps its segment.
    There(Ptr, Hold<'s>),
}

impl<'v> Xattrs<'v> {
    /// Returns the form in which a value is stored. Writes a long one to the device, as an object
    /// to which nothing points yet.
    pub(crate) fn store_value<'a>(
        self,
        ino: Ino,
        id: &Id<'_>,
        value: &'a [u8],
    ) -> Result<Value<'a>> {
        if value.len() <= LOCAL_MAX {
            return Ok(Value::Local(value));
        }
        if value.len() > VALUE_MAX {
            return Err(Error::Code(Code::TooBig));
        }
        let offset = KEY_HIGH | id.hash(ino.root(), self.0.store.volume());
        Ok(Value::Remote(self.objects().write_object(ino, offset, &[value])?.ptr))
    }

    /// Returns the bytes of a value, wherever they are.
    pub(crate) fn load_value(self, ino: Ino, attr: &Attr<'_>) -> Result<Vec<u8>> {
        match self.hold_value(ino, attr)? {
            Held::Here(bytes) => Ok(bytes),
            Held::There(ptr, _hold) => self.read_value(ino, &attr.id(ino.root()), &ptr),
        }
    }

    /// Finds a value of a locked inode, to be read after the lock is released.
    pub(crate) fn hold_value(self, ino: Ino, attr: &Attr<'_>) -> Result<Held<'v>> {
        match attr.value {
            Value::Local(bytes) => Ok(Held::Here(bytes.to_vec())),
            Value::Remote(ptr)
                if self.0.store.geometry().contains(ptr.addr, u64::from(ptr.len)) =>
            {
                Ok(Held::There(ptr, self.0.store.space().hold(ptr.addr)))
            }
            Value::Remote(_) => {
                let text = attr.to_text(ino.root());
                Err(broken(ino, format!("{text} is outside any segment")))
            }
        }
    }

    /// Reads a value from the device.
    pub(crate) fn read_value(self, ino: Ino, id: &Id<'_>, ptr: &Ptr) -> Result<Vec<u8>> {
        let mut bytes = vec![0; ptr.len as usize];
        self.0.store.device().read_at(&mut bytes, ptr.addr.0)?;
        let object = format_args!("attribute {} of inode {ino}", id.to_text());
        ptr.verify_payload(&bytes, object)?;
        Ok(self.objects().decode(ptr, &bytes, object)?.into_owned())
    }

    /// For the cleaner: copies the value whose object is at `payload` to another segment. Returns
    /// its length, 0 if no attribute points to it.
    pub(crate) fn move_value(self, header: &DataHeader, payload: Addr) -> Result<u32> {
        let ino = header.ino();
        let mut txn = self.0.store.begin(Need::Release, records::CLEAN)?;
        let inode = self.0.store.root(ino)?.table.get(ino)?;
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

    fn rewrite_value(self, header: &DataHeader, attr: &Attr<'_>) -> Result<Extent> {
        let bytes = self.load_value(header.ino(), attr)?;
        let new = self.objects().write_object_as(
            header.ino(),
            header.offset,
            &[&bytes],
            Class::Reserved,
        )?;
        Ok(Extent { offset: 0, ..new })
    }

    fn exchange_extents(self, old: &Extent, new: &Extent) {
        self.0.store.account(old, ExtentChange::Goes);
        self.0.store.account(new, ExtentChange::Appears);
    }
}
