//! The map of a file: which extents it has, and the one function that changes them.

use crate::orphan::records_end_at;
use crate::records::{MAP_RECORDS, RANGE_FROM};
use crate::volume::Inner;
use shoal_base::invariant;
use shoal_base::planted::{self, Defect};
use shoal_base::{Error, Ino, Result};
use shoal_format::extent::{Extent, PREALLOC_MAX, VALUE_MAX};
use shoal_format::inode::{CORE, Form, Inode};
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_itable::Locked;
use shoal_txn::{ExtentChange, Txn, fork_extents};

/// One past the largest offset of a file.
pub(crate) const END: u64 = u64::MAX;

/// Bytes of a file that one transaction preallocates, at most: a bound of its records.
const STEP_SPAN: u64 = MAP_RECORDS as u64 * PREALLOC_MAX as u64;

/// The difference between two lists of extents in order.
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

/// The records in an inode's data fork of form `Extents`.
pub(crate) fn inline_extents(ino: Ino, inode: &Inode) -> Result<Vec<Extent>> {
    fork_extents(&inode.data).ok_or_else(|| broken(ino, "not records"))
}

impl Inner {
    /// Bytes that a data fork can take in a new inode.
    pub(crate) fn inline_max(&self) -> usize {
        self.store.geometry.inode_size as usize - CORE
    }

    /// Bytes that this inode's data fork can take beside its attribute fork.
    fn fork_room(&self, inode: &Inode) -> usize {
        self.inline_max() - inode.attr.len()
    }

    /// Whether `len` bytes of contents fit into the inode.
    pub(crate) fn fits_inline(&self, inode: &Inode, len: u64) -> bool {
        len <= self.fork_room(inode) as u64
    }

    /// The extents that overlap `[from, to)`, whole, in order.
    pub(crate) fn extents_in(
        &self,
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

    /// Where a change of `[from, to)` of a file's map must end so that it concerns no more records
    /// than one transaction may replace.
    pub(crate) fn step_end(&self, ino: Ino, inode: &Inode, from: u64, to: u64) -> Result<u64> {
        let to = to.min(from.saturating_add(STEP_SPAN));
        if inode.core.data_form != Form::Tree {
            return Ok(to);
        }
        let tree = &self.store.root(ino)?.extents;
        let end = records_end_at(tree, Key::of(ino, from), MAP_RECORDS)?;
        Ok(end.map_or(to, |key| to.min(key.lo)))
    }

    fn tree_extents_in(&self, ino: Ino, from: u64, to: u64) -> Result<Vec<Extent>> {
        let tree = &self.store.root(ino)?.extents;
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

    /// Makes `[from, to)` of the file consist of `new` (extents inside the range, in order; holes
    /// between them). Extents that reach over the ends keep what is outside. Counts what appears
    /// and goes, keeps `bytes` of the core, and logs all but the core.
    pub(crate) fn replace_extents(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        from: u64,
        to: u64,
        new: &[Extent],
    ) -> Result<()> {
        let ino = locked.ino();
        invariant!(locked.inode().core.data_form != Form::Inline, "extents of inline {ino}");
        // Reading can fail, so it comes before the first change.
        let mut old = Vec::new();
        let whole = to == END && new.is_empty() && locked.inode().core.data_form == Form::Tree;
        if whole {
            // Only the extent that reaches over the cut is read; the rest is removed as a range.
            old.extend(self.tree_extents_in(ino, from, from + 1)?);
            old.retain(|e| e.offset < from);
        } else {
            old = self.extents_in(ino, locked.inode(), from, to)?;
        }
        let mut kept = Vec::new();
        for extent in &old {
            if extent.offset < from {
                kept.push(extent.slice(extent.offset, from));
            }
            if extent.end() > to {
                kept.push(extent.slice(to, extent.end()));
            }
        }
        let mut after: Vec<Extent> = kept.iter().chain(new).copied().collect();
        after.sort_unstable_by_key(|e| e.offset);
        let change = Change::between(&old, &after);
        // What a damaged inode says may be too little, or far too much; a check sees that.
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
        // What goes is taken off first: parts of one object must not count twice.
        for extent in &change.gone {
            if !planted::is(Defect::OldExtentCounted) {
                self.store.account(extent, ExtentChange::Goes);
            }
            bytes = bytes.saturating_sub(u64::from(extent.stored_len()));
        }
        for extent in &change.new {
            self.store.account(extent, ExtentChange::Appears);
            bytes = bytes.saturating_add(u64::from(extent.stored_len()));
        }
        locked.edit(self.table(ino)?, txn.epoch).core.bytes = bytes;
        Ok(())
    }

    /// Whether a map has its records in the inode, and will when these become those.
    fn stays_in_fork(&self, inode: &Inode, old: &[Extent], new: &[Extent]) -> bool {
        let now = match inode.core.data_form {
            Form::Tree | Form::Inline => return false,
            Form::Extents => inode.data.len(),
            Form::Empty => 0,
        };
        (now + inline_len(new)).saturating_sub(inline_len(old)) <= self.fork_room(inode)
    }

    /// Reads the leaves that a change of the map will touch: a failure to read must come before the
    /// first change, not in the middle.
    pub(crate) fn read_records(
        &self,
        ino: Ino,
        old: &[Extent],
        after: &[Extent],
        tail: Option<u64>,
    ) -> Result<()> {
        let tree = &self.store.root(ino)?.extents;
        if let Some(from) = tail {
            tree.for_each(Key::of(ino, from), Key::of(ino, END), &mut |_, _| Ok(true))?;
        }
        // The whole map of a file whose records are in its inode may go to the tree: a leaf or two.
        let ends = [Key::of(ino, 0), Key::of(ino, END)];
        let keys = old.iter().chain(after).map(|e| Key::of(ino, e.offset));
        keys.chain(ends).try_for_each(|key| tree.get(key, |_| ()).map(|_| ()))
    }

    /// Removes all records from `from` to before `to`; returns their bytes.
    pub(crate) fn remove_records(
        &self,
        txn: &mut Txn<'_>,
        ino: Ino,
        from: u64,
        to: u64,
    ) -> Result<u64> {
        let (key, mut bytes) = (Key::of(ino, from), 0);
        let tree = &self.store.root(ino)?.extents;
        tree.delete_range(key, Key::of(ino, to), txn.epoch, &mut |key, raw| {
            if let Some(extent) = Extent::decode_value(key.lo, raw) {
                self.store.account(&extent, ExtentChange::Goes);
                bytes += u64::from(extent.stored_len());
            }
        })?;
        txn.log(Item::TreeDelRange { root: ino.root(), tree: TreeId::Extents, key, end: to });
        Ok(bytes)
    }

    /// Makes the records `old` of a file `after`, both in order. Many that go are named as one
    /// range in the record, whose size thus depends on `after` alone.
    fn replace_in_tree(
        &self,
        txn: &mut Txn<'_>,
        ino: Ino,
        old: &[Extent],
        after: &[Extent],
    ) -> Result<()> {
        let tree = &self.store.root(ino)?.extents;
        let key_of = |offset: u64| Key::of(ino, offset);
        let change = Change::between(old, after);
        // A record that is put again under its key need not be removed.
        let stays = |e: &&Extent| after.binary_search_by_key(&e.offset, |a| a.offset).is_ok();
        let gone = change.gone.iter().filter(|e| !stays(e)).map(|e| key_of(e.offset));
        let gone: Vec<Key> = gone.collect();
        let mut put = &change.new[..];
        if let (true, Some(first), Some(last)) = (gone.len() > RANGE_FROM, old.first(), old.last())
        {
            let (key, end) = (key_of(first.offset), last.offset + 1);
            tree.delete_range(key, key_of(end), txn.epoch, &mut |_, _| {})?;
            txn.log(Item::TreeDelRange { root: ino.root(), tree: TreeId::Extents, key, end });
            put = after;
        } else {
            for key in gone {
                tree.delete(key, txn.epoch)?;
                txn.log(Item::TreeDel { root: ino.root(), tree: TreeId::Extents, key });
            }
        }
        let mut value = Vec::with_capacity(VALUE_MAX);
        for extent in put {
            value.clear();
            extent.encode_value(&mut value);
            let key = key_of(extent.offset);
            tree.put(key, &value, txn.epoch)?;
            txn.log(Item::TreePut { root: ino.root(), tree: TreeId::Extents, key, value: &value });
        }
        Ok(())
    }

    /// Puts the only record of a new inode, already counted, into the tree.
    pub(crate) fn put_first_record(
        &self,
        txn: &mut Txn<'_>,
        ino: Ino,
        extent: &Extent,
    ) -> Result<()> {
        self.replace_in_tree(txn, ino, &[], &[*extent])
    }

    /// Moves the records in an inode to the tree: the fork is needed otherwise.
    pub(crate) fn spread_extents(&self, txn: &mut Txn<'_>, locked: &mut Locked<'_>) -> Result<()> {
        let ino = locked.ino();
        let all = inline_extents(ino, locked.inode())?;
        let inode = locked.edit(self.table(ino)?, txn.epoch);
        inode.core.data_form = Form::Tree;
        inode.data = Box::default();
        // The fork first: replaying it takes back what it counted, the tree's records count anew.
        txn.log(Item::DataFork { ino, form: Form::Tree, bytes: &[] });
        self.replace_in_tree(txn, ino, &[], &all)
    }

    /// The records stay in the inode while they fit, and go to the tree when they do not.
    fn replace_in_fork(
        &self,
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
        let inode = locked.edit(self.table(ino)?, txn.epoch);
        inode.core.data_form = form;
        inode.data = fork.into();
        // The fork first: replaying it takes back what it counted, the tree's records count anew.
        txn.log(Item::DataFork { ino, form, bytes: &inode.data });
        if form == Form::Tree {
            self.replace_in_tree(txn, ino, &[], &all)?;
        }
        Ok(())
    }
}

/// Bytes of these records in an inode.
fn inline_len(extents: &[Extent]) -> usize {
    extents.iter().map(Extent::inline_len).sum()
}
