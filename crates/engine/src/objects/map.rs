//! The extent map of a file, and the one function that changes it.

use crate::objects::Objects;
use crate::records::{MAP_RECORDS, RANGE_FROM};
use shoal_base::invariant;
use shoal_base::planted::{self, Defect};
use shoal_base::{Error, Ino, Result};
use shoal_format::extent::{Extent, PREALLOC_MAX, VALUE_MAX};
use shoal_format::inode::{CORE, Form, Inode};
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_itable::Locked;
use shoal_tree::Tree;
use shoal_txn::{ExtentChange, Txn, fork_extents};

/// One past the largest offset of a file.
pub(crate) const END: u64 = u64::MAX;

/// Maximum bytes of a file that one transaction preallocates, which bounds its records.
const STEP_SPAN: u64 = MAP_RECORDS as u64 * PREALLOC_MAX as u64;

/// The difference between two ordered lists of extents.
struct Change {
    gone: Vec<Extent>,
    new: Vec<Extent>,
}

impl Change {
    fn between(old: &[Extent], after: &[Extent]) -> Change {
        let missing = |from: &[Extent], list: &[Extent]| -> Vec<Extent> {
            let same = |e: &Extent| {
                list.binary_search_by_key(&e.offset, |l| l.offset).is_ok_and(|i| list[i] == *e)
            };
            from.iter().filter(|e| !same(e)).copied().collect()
        };
        Change { gone: missing(old, after), new: missing(after, old) }
    }
}

fn broken(ino: Ino, rule: &str) -> Error {
    Error::corrupt(format!("extents of inode {ino}"), None, rule)
}

/// Decodes the records in a data fork of form `Extents`.
pub(crate) fn inline_extents(ino: Ino, inode: &Inode) -> Result<Vec<Extent>> {
    fork_extents(&inode.data).ok_or_else(|| broken(ino, "not records"))
}

/// Returns the key of the record that follows the first `left` records of an inode from a key on;
/// `None` if there are no more.
pub(crate) fn records_end_at(tree: &Tree, from: Key, mut left: usize) -> Result<Option<Key>> {
    let mut end = None;
    tree.for_each(from, Key::new(from.hi + 1, 0), &mut |key, _| {
        if left == 0 {
            end = Some(key);
            return Ok(false);
        }
        left -= 1;
        Ok(true)
    })?;
    Ok(end)
}

impl Objects<'_> {
    /// Maximum bytes of a data fork in a new inode.
    pub(crate) fn inline_max(self) -> usize {
        self.0.store.geometry().inode_size as usize - CORE
    }

    /// Maximum bytes of the data fork beside this inode's attribute fork.
    fn fork_room(self, inode: &Inode) -> usize {
        self.inline_max() - inode.attr.len()
    }

    /// Returns whether `len` bytes of contents fit in the inode.
    pub(crate) fn fits_inline(self, inode: &Inode, len: u64) -> bool {
        len <= self.fork_room(inode) as u64
    }

    /// Returns the extents that overlap `[from, to)`, whole, in order.
    pub(crate) fn extents_in(
        self,
        ino: Ino,
        inode: &Inode,
        from: u64,
        to: u64,
    ) -> Result<Vec<Extent>> {
        match inode.core.data_form {
            Form::Empty | Form::Inline => Ok(Vec::new()),
            Form::Extents => {
                let mut extents = inline_extents(ino, inode)?;
                extents.retain(|e| e.offset < to && e.end() > from);
                Ok(extents)
            }
            Form::Tree => self.tree_extents_in(ino, from, to),
        }
    }

    /// Returns the end up to which a change of `[from, to)` of a file's map affects at most the
    /// number of records that one transaction may replace.
    pub(crate) fn step_end(self, ino: Ino, inode: &Inode, from: u64, to: u64) -> Result<u64> {
        self.hole_end(ino, inode, from, to.min(from.saturating_add(STEP_SPAN)))
    }

    /// The same for a change that only takes records away, of a range of any length.
    pub(crate) fn hole_end(self, ino: Ino, inode: &Inode, from: u64, to: u64) -> Result<u64> {
        if inode.core.data_form != Form::Tree {
            return Ok(to);
        }
        let tree = &self.0.store.root(ino)?.extents;
        let end = records_end_at(tree, Key::of(ino, from), MAP_RECORDS)?;
        Ok(end.map_or(to, |key| to.min(key.lo)))
    }

    fn tree_extents_in(self, ino: Ino, from: u64, to: u64) -> Result<Vec<Extent>> {
        let tree = &self.0.store.root(ino)?.extents;
        let decode = |key: Key, raw: &[u8]| Extent::decode_value(key.lo, raw);
        let (floor, at) = (Key::of(ino, 0), Key::of(ino, from));
        let mut found = Vec::new();
        if let Some(before) = tree.before(floor, at, decode)? {
            let before = before.ok_or_else(|| broken(ino, "not a record"))?;
            if before.end() > from {
                found.push(before);
            }
        }
        tree.for_each(at, Key::of(ino, to), &mut |key, raw| {
            found.push(decode(key, raw).ok_or_else(|| broken(ino, "not a record"))?);
            Ok(true)
        })?;
        Ok(found)
    }

    /// Replaces `[from, to)` of the file by `new` (extents inside the range, in order; holes
    /// between them). Extents across the ends keep their outer parts. Updates the space accounting
    /// and `bytes` of the core, and logs everything except the core.
    pub(crate) fn replace_extents(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        from: u64,
        to: u64,
        new: &[Extent],
    ) -> Result<()> {
        let ino = locked.ino();
        invariant!(locked.inode().core.data_form != Form::Inline, "extents of inline {ino}");
        // Reading can fail, so it must precede the first change.
        let mut old = Vec::new();
        let whole = to == END && new.is_empty() && locked.inode().core.data_form == Form::Tree;
        if whole {
            // Only the extent across the new end is read; the rest is removed as a range.
            old.extend(self.tree_extents_in(ino, from, from + 1)?);
            old.retain(|e| e.offset < from);
        } else {
            old = self.extents_in(ino, locked.inode(), from, to)?;
        }
        let after = replaced(&old, from, to, new);
        let change = Change::between(&old, &after);
        // In a damaged inode the value may be wrong, hence saturating; a check reports it.
        let mut bytes = locked.inode().core.bytes;
        if !self.stays_in_fork(locked.inode(), &old, &after) {
            self.read_records(ino, &old, &after, whole.then_some(from))?;
        }
        txn.changing();
        if whole {
            bytes = bytes.saturating_sub(self.remove_records(txn, ino, from, END)?);
        }
        match locked.inode().core.data_form {
            Form::Tree => self.replace_in_tree(txn, ino, &old, &after)?,
            _ => self.replace_in_fork(txn, locked, &old, &after)?,
        }
        // Removed extents are subtracted first: parts of one object must not be counted twice.
        for extent in &change.gone {
            if !planted::is(Defect::OldExtentCounted) {
                txn.account(extent, ExtentChange::Goes);
            }
            bytes = bytes.saturating_sub(u64::from(extent.stored_len()));
        }
        for extent in &change.new {
            txn.account(extent, ExtentChange::Appears);
            bytes = bytes.saturating_add(u64::from(extent.stored_len()));
        }
        locked.edit(self.0.table(ino)?, txn.epoch()).core.bytes = bytes;
        Ok(())
    }

    /// Takes in advance what a replacement of `[from, to)` by `new` adds to the use of the file's
    /// project. Must be called before the first change.
    ///
    /// # Errors
    /// `EDQUOT`.
    #[inline]
    pub(crate) fn charge_growth(
        self,
        locked: &mut Locked<'_>,
        from: u64,
        to: u64,
        new: &[Extent],
    ) -> Result<()> {
        match locked.inode().core.project {
            0 => Ok(()),
            _ => self.charge_project(locked, from, to, new),
        }
    }

    #[cold]
    fn charge_project(
        self,
        locked: &mut Locked<'_>,
        from: u64,
        to: u64,
        new: &[Extent],
    ) -> Result<()> {
        let old = self.extents_in(locked.ino(), locked.inode(), from, to)?;
        let Change { gone, new } = Change::between(&old, &replaced(&old, from, to, new));
        let sum = |all: &[Extent]| all.iter().map(|e| u64::from(e.stored_len())).sum::<u64>();
        locked.charge(sum(&new).saturating_sub(sum(&gone)))
    }

    /// Returns whether the records are in the inode, and still fit there after `new` replaces
    /// `old`.
    fn stays_in_fork(self, inode: &Inode, old: &[Extent], new: &[Extent]) -> bool {
        let now = match inode.core.data_form {
            Form::Tree | Form::Inline => return false,
            Form::Extents => inode.data.len(),
            Form::Empty => 0,
        };
        (now + inline_len(new)).saturating_sub(inline_len(old)) <= self.fork_room(inode)
    }

    /// Reads the leaves that a change of the map will modify: a read error must occur before the
    /// first change.
    pub(crate) fn read_records(
        self,
        ino: Ino,
        old: &[Extent],
        after: &[Extent],
        tail: Option<u64>,
    ) -> Result<()> {
        let tree = &self.0.store.root(ino)?.extents;
        if let Some(from) = tail {
            tree.for_each(Key::of(ino, from), Key::of(ino, END), &mut |_, _| Ok(true))?;
        }
        // If the records move from the inode to the tree, the whole map is written to a leaf or
        // two.
        let ends = [Key::of(ino, 0), Key::of(ino, END)];
        let keys = old.iter().chain(after).map(|e| Key::of(ino, e.offset));
        keys.chain(ends).try_for_each(|key| tree.get(key, |_| ()).map(|_| ()))
    }

    /// Removes all records in `[from, to)`. Returns the bytes of their extents.
    pub(crate) fn remove_records(
        self,
        txn: &mut Txn<'_>,
        ino: Ino,
        from: u64,
        to: u64,
    ) -> Result<u64> {
        let (key, mut bytes) = (Key::of(ino, from), 0);
        let tree = &self.0.store.root(ino)?.extents;
        tree.delete_range(key, Key::of(ino, to), txn.epoch(), &mut |key, raw| {
            if let Some(extent) = Extent::decode_value(key.lo, raw) {
                self.0.store.account(&extent, ExtentChange::Goes);
                bytes += u64::from(extent.stored_len());
            }
        })?;
        txn.log(Item::TreeDelRange { root: ino.root(), tree: TreeId::Extents, key, end: to });
        Ok(bytes)
    }

    /// Replaces the records `old` of a file by `after`, both in order. Many removals are logged as
    /// one range, so that the size of the journal record depends only on `after`.
    fn replace_in_tree(
        self,
        txn: &mut Txn<'_>,
        ino: Ino,
        old: &[Extent],
        after: &[Extent],
    ) -> Result<()> {
        let tree = &self.0.store.root(ino)?.extents;
        let key_of = |offset: u64| Key::of(ino, offset);
        let change = Change::between(old, after);
        // A record that is replaced under its key need not be removed.
        let stays = |e: &&Extent| after.binary_search_by_key(&e.offset, |a| a.offset).is_ok();
        let gone = change.gone.iter().filter(|e| !stays(e)).map(|e| key_of(e.offset));
        let gone: Vec<Key> = gone.collect();
        let mut put = &change.new[..];
        if let (true, Some(first), Some(last)) = (gone.len() > RANGE_FROM, old.first(), old.last())
        {
            let (key, end) = (key_of(first.offset), last.offset + 1);
            tree.delete_range(key, key_of(end), txn.epoch(), &mut |_, _| {})?;
            txn.log(Item::TreeDelRange { root: ino.root(), tree: TreeId::Extents, key, end });
            put = after;
        } else {
            for key in gone {
                txn.delete(tree, key)?;
                txn.log(Item::TreeDel { root: ino.root(), tree: TreeId::Extents, key });
            }
        }
        let mut value = Vec::with_capacity(VALUE_MAX);
        for extent in put {
            value.clear();
            extent.encode_value(&mut value);
            let key = key_of(extent.offset);
            txn.put(tree, key, &value)?;
            txn.log(Item::TreePut { root: ino.root(), tree: TreeId::Extents, key, value: &value });
        }
        Ok(())
    }

    /// Inserts the records of a new inode into the tree. Their space must have been accounted for.
    pub(crate) fn put_first_records(
        self,
        txn: &mut Txn<'_>,
        ino: Ino,
        extents: &[Extent],
    ) -> Result<()> {
        self.replace_in_tree(txn, ino, &[], extents)
    }

    /// Moves the records of an inode to the tree, because the attributes need the space.
    pub(crate) fn spread_extents(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>) -> Result<()> {
        let ino = locked.ino();
        let all = inline_extents(ino, locked.inode())?;
        let inode = locked.edit(self.0.table(ino)?, txn.epoch());
        inode.core.data_form = Form::Tree;
        inode.data = Box::default();
        // The fork first: its replay subtracts the old records, and that of the tree's records adds
        // them again.
        txn.log(Item::DataFork { ino, form: Form::Tree, bytes: &[] });
        self.replace_in_tree(txn, ino, &[], &all)
    }

    /// Empties the fork of a file whose contents are no longer inline.
    pub(crate) fn outgrow_inline(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>) -> Result<()> {
        if locked.inode().core.data_form != Form::Inline {
            return Ok(());
        }
        let ino = locked.ino();
        // The map is changed next: a read error must occur before this change.
        self.read_records(ino, &[], &[], None)?;
        let inode = locked.edit(self.0.table(ino)?, txn.epoch());
        inode.core.data_form = Form::Empty;
        inode.data = Box::default();
        txn.log(Item::DataFork { ino, form: Form::Empty, bytes: &[] });
        Ok(())
    }

    /// Replaces records in the inode. If they no longer fit, all move to the tree.
    fn replace_in_fork(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        old: &[Extent],
        after: &[Extent],
    ) -> Result<()> {
        let ino = locked.ino();
        let mut all = match locked.inode().core.data_form {
            Form::Extents => inline_extents(ino, locked.inode())?,
            _ => Vec::new(),
        };
        all.retain(|e| !old.iter().any(|o| o.offset == e.offset));
        all.extend(after);
        all.sort_unstable_by_key(|e| e.offset);
        let len = inline_len(&all);
        let mut fork = Vec::new();
        let form = if len <= self.fork_room(locked.inode()) {
            fork.reserve_exact(len);
            all.iter().for_each(|e| e.encode_inline(&mut fork));
            if all.is_empty() { Form::Empty } else { Form::Extents }
        } else {
            Form::Tree
        };
        let inode = locked.edit(self.0.table(ino)?, txn.epoch());
        inode.core.data_form = form;
        inode.data = fork.into();
        // The fork first: its replay subtracts the old records, and that of the tree's records adds
        // them again.
        txn.log(Item::DataFork { ino, form, bytes: &inode.data });
        if form == Form::Tree {
            self.replace_in_tree(txn, ino, &[], &all)?;
        }
        Ok(())
    }
}

/// Returns the extents after a replacement of `[from, to)` by `new`, in order. Those across the
/// ends keep their outer parts.
fn replaced(old: &[Extent], from: u64, to: u64, new: &[Extent]) -> Vec<Extent> {
    let mut after = new.to_vec();
    for extent in old {
        if extent.offset < from {
            after.push(extent.slice(extent.offset, from));
        }
        if extent.end() > to {
            after.push(extent.slice(to, extent.end()));
        }
    }
    after.sort_unstable_by_key(|e| e.offset);
    after
}

/// Bytes of these records in an inode.
fn inline_len(extents: &[Extent]) -> usize {
    extents.iter().map(Extent::inline_len).sum()
}
