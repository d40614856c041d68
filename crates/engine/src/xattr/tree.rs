//! Attributes in the `attrs` tree: one value each, keyed by inode and hash.
//!
//! Attributes whose hashes collide get the lowest free suffix. Gaps may remain, so a lookup reads
//! all suffixes of its hash, which are adjacent.

use super::inline::{all, broken};
use crate::xattr::Xattrs;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::attr::{Attr, Id, KEY_HIGH, SUFFIX_MASK, Value};
use shoal_format::inode::Form;
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_itable::Locked;
use shoal_tree::{Batch, Tree};
use shoal_txn::{ExtentChange, Txn};

/// Maximum number of attributes that return to the inode.
const GATHER_MAX: usize = 32;

/// An attribute found in the tree.
pub(crate) struct InTree {
    pub key: Key,
    /// The attribute, encoded.
    pub raw: Vec<u8>,
}

/// Selects attributes of an inode.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// All but parent pointers.
    Plain,
    Parents,
}

impl<'v> Xattrs<'v> {
    fn attrs(self, ino: Ino) -> Result<&'v Tree> {
        Ok(&self.0.store.root(ino)?.attrs)
    }

    /// Returns all attributes with the same hash, and the first free key among them.
    fn same_hash(self, ino: Ino, id: &Id<'_>) -> Result<(Vec<InTree>, Option<Key>)> {
        let base = id.key(ino, self.0.store.volume());
        let mut batch = Batch::default();
        let end = Key::new(base.hi, base.lo | SUFFIX_MASK).next();
        self.attrs(ino)?.scan(base, end, SUFFIX_MASK as usize + 1, &mut batch)?;
        let found: Vec<InTree> =
            batch.iter().map(|(key, raw)| InTree { key, raw: raw.to_vec() }).collect();
        // Without the last suffix: the key of all ones is outside every range.
        let mut free = (0..SUFFIX_MASK).map(|suffix| Key::new(base.hi, base.lo | suffix));
        let free = free.find(|key| found.iter().all(|f| f.key != *key));
        Ok((found, free))
    }

    /// Looks up an attribute in the tree.
    pub(crate) fn find_in_tree(self, ino: Ino, id: &Id<'_>) -> Result<Option<InTree>> {
        for found in self.same_hash(ino, id)?.0 {
            let attr = Attr::decode_whole(&found.raw);
            let attr = attr.ok_or_else(|| broken(ino, format!("entry {:#x}", found.key.lo)))?;
            if attr.id(ino.root()) == *id {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Reads everything that a later [`Xattrs::put_in_tree`] needs, so that it cannot fail.
    /// `ENOSPC` if all suffixes of the hash are in use.
    pub(crate) fn can_put_in_tree(self, ino: Ino, id: &Id<'_>) -> Result<()> {
        let there = self.find_in_tree(ino, id)?.is_some();
        match there || self.same_hash(ino, id)?.1.is_some() {
            true => Ok(()),
            false => Err(Error::Code(Code::NoSpace)),
        }
    }

    /// Inserts an attribute into the tree, or replaces the one of that name.
    pub(crate) fn put_in_tree(self, txn: &mut Txn<'_>, ino: Ino, attr: &Attr<'_>) -> Result<()> {
        let key = match self.find_in_tree(ino, &attr.id(ino.root()))? {
            Some(old) => {
                self.value_goes(&old.raw);
                old.key
            }
            None => {
                let free = self.same_hash(ino, &attr.id(ino.root()))?.1;
                free.ok_or(Error::Code(Code::NoSpace))?
            }
        };
        self.put_raw(txn, ino, key, &attr.to_bytes())?;
        if let Some(extent) = attr.value.extent() {
            self.0.store.account(&extent, ExtentChange::Appears);
        }
        Ok(())
    }

    /// Stores a value under a key of an inode, without space accounting.
    pub(crate) fn put_raw(self, txn: &mut Txn<'_>, ino: Ino, key: Key, value: &[u8]) -> Result<()> {
        txn.changing();
        self.attrs(ino)?.put(key, value, txn.epoch())?;
        txn.log(Item::TreePut { root: ino.root(), tree: TreeId::Attrs, key, value });
        Ok(())
    }

    /// Removes an attribute from the tree, if it exists.
    pub(crate) fn remove_from_tree(self, txn: &mut Txn<'_>, ino: Ino, id: &Id<'_>) -> Result<()> {
        let Some(old) = self.find_in_tree(ino, id)? else { return Ok(()) };
        txn.changing();
        self.attrs(ino)?.delete(old.key, txn.epoch())?;
        txn.log(Item::TreeDel { root: ino.root(), tree: TreeId::Attrs, key: old.key });
        self.value_goes(&old.raw);
        Ok(())
    }

    pub(crate) fn value_goes(self, raw: &[u8]) {
        if let Some(extent) = Attr::decode_whole(raw).and_then(|attr| attr.value.extent()) {
            self.0.store.account(&extent, ExtentChange::Goes);
        }
    }

    /// Calls `each` with the attributes of one side in the tree until it returns `false`.
    pub(crate) fn each_in_tree(
        self,
        ino: Ino,
        side: Side,
        each: &mut dyn FnMut(Attr<'_>) -> Result<bool>,
    ) -> Result<()> {
        let (from, to) = match side {
            Side::Plain => (Key::of(ino, 0), Key::of(ino, KEY_HIGH)),
            Side::Parents => (Key::of(ino, KEY_HIGH), Key::behind(ino)),
        };
        self.attrs(ino)?.for_each(from, to, &mut |key, raw| {
            let attr = Attr::decode_whole(raw);
            each(attr.ok_or_else(|| broken(ino, format!("entry {:#x}", key.lo)))?)
        })
    }

    /// Moves all attributes of an inode into the tree; its fork is empty afterwards. Values in
    /// separate objects stay where they are, with unchanged space accounting.
    pub(crate) fn spread_attrs(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>) -> Result<()> {
        let ino = locked.ino();
        let fork = locked.inode().attr.clone();
        // The fork first: its replay subtracts the old values, and that of the tree's values adds
        // them again.
        self.set_fork(txn, locked, Form::Tree, Box::default())?;
        for attr in all(ino, &fork)? {
            let free = self.same_hash(ino, &attr.id(ino.root()))?.1;
            let key = free.ok_or(Error::Code(Code::NoSpace))?;
            self.put_raw(txn, ino, key, &attr.to_bytes())?;
        }
        Ok(())
    }

    /// Reads everything that a later [`Xattrs::gather_attrs`] needs, so that it cannot fail.
    pub(crate) fn can_gather(self, ino: Ino) -> Result<()> {
        let (from, to) = (Key::of(ino, 0), Key::behind(ino));
        self.attrs(ino)?.scan(from, to, GATHER_MAX, &mut Batch::default()).map(|_| ())
    }

    /// Moves the attributes back into the inode if there are few and they need at most their share.
    /// If there are none, the fork is empty afterwards.
    pub(crate) fn gather_attrs(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>) -> Result<()> {
        let ino = locked.ino();
        let (from, to) = (Key::of(ino, 0), Key::behind(ino));
        let mut batch = Batch::default();
        let tree = self.attrs(ino)?;
        if tree.scan(from, to, GATHER_MAX, &mut batch)?.is_some() {
            return Ok(());
        }
        let fork: Vec<u8> = batch.iter().flat_map(|(_, raw)| raw.to_vec()).collect();
        if fork.len() > self.share_of(&fork)
            || fork.len() + locked.inode().data.len() > self.objects().inline_max()
            || all(ino, &fork).is_err()
        {
            return Ok(());
        }
        txn.changing();
        tree.delete_range(from, to, txn.epoch(), &mut |_, _| {})?;
        let end = u64::MAX;
        txn.log(Item::TreeDelRange { root: ino.root(), tree: TreeId::Attrs, key: from, end });
        let form = if fork.is_empty() { Form::Empty } else { Form::Inline };
        self.set_fork(txn, locked, form, fork.into())
    }

    /// Replaces an attribute fork in memory and in the record. The caller must do the space
    /// accounting for its values.
    pub(crate) fn set_fork(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        form: Form,
        bytes: Box<[u8]>,
    ) -> Result<()> {
        let ino = locked.ino();
        let inode = locked.edit(&self.0.store.root(ino)?.table, txn.epoch());
        inode.core.attr_form = form;
        inode.attr = bytes;
        txn.log(Item::AttrFork { ino, form, bytes: &inode.attr });
        Ok(())
    }

    /// Frees the attributes of an inode from the tree.
    pub(crate) fn free_attrs(self, txn: &mut Txn<'_>, ino: Ino) -> Result<()> {
        let (key, to) = (Key::of(ino, 0), Key::behind(ino));
        txn.changing();
        let mut gone = |_: Key, raw: &[u8]| self.value_goes(raw);
        self.attrs(ino)?.delete_range(key, to, txn.epoch(), &mut gone)?;
        txn.log(Item::TreeDelRange { root: ino.root(), tree: TreeId::Attrs, key, end: u64::MAX });
        Ok(())
    }

    /// Makes an attribute in the tree point to a new location of its value.
    pub(crate) fn repoint_in_tree(
        self,
        txn: &mut Txn<'_>,
        ino: Ino,
        found: &InTree,
        new: Value<'_>,
    ) -> Result<()> {
        let attr = Attr::decode_whole(&found.raw).ok_or_else(|| broken(ino, "moved"))?;
        self.put_raw(txn, ino, found.key, &Attr { value: new, ..attr }.to_bytes())
    }

    /// Returns the entries with this hash, regardless of their names: for the cleaner, which does
    /// not know names.
    pub(crate) fn hashed_in_tree(self, ino: Ino, lo: u64) -> Result<Vec<InTree>> {
        let base = Key::of(ino, lo & !SUFFIX_MASK);
        let mut batch = Batch::default();
        let end = Key::new(base.hi, base.lo | SUFFIX_MASK).next();
        self.attrs(ino)?.scan(base, end, SUFFIX_MASK as usize + 1, &mut batch)?;
        Ok(batch.iter().map(|(key, raw)| InTree { key, raw: raw.to_vec() }).collect())
    }
}
