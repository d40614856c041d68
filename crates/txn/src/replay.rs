//! Replaying records: items are applied in order to the image of the checkpoint. Replay is
//! idempotent.
//!
//! The journal has no space accounting: the extents of a file before and after an item are
//! compared, and the difference is added to and subtracted from the segments' live bytes.

use crate::extents::{ExtentChange, fork_extents, remote_extents};
use crate::orphans::OrphanSlot;
use crate::record::framed;
use crate::removed::{RemovedName, inodes_named};
use crate::roots::Root;
use crate::store::Store;
use shoal_base::planted::{self, Defect};
use shoal_base::{Addr, Code, Error, Generation, Ino, Lsn, Result, RootId};
use shoal_format::attr::{Attr, Link, parent_bytes};
use shoal_format::bytes::Reader;
use shoal_format::checkpoint::RootState;
use shoal_format::dirent::{self, Dirent};
use shoal_format::extent::{Extent, HEADER};
use shoal_format::inode::{Core, Form, Inode};
use shoal_format::intent::Intent;
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_format::usage::SegKind;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Calls `each` with the extents that a record brings into use. Items that cannot be decoded are
/// left to [`Replay::record`], which reports them.
pub(crate) fn for_each_extent(record: &[u8], each: &mut dyn FnMut(Ino, Extent)) {
    let of_intent =
        |body: &[u8]| Intent::decode(body).and_then(|i| Some((i.ino, i.to_set()?.value.extent()?)));
    let mut r = Reader::new(record);
    while !r.is_empty()
        && let Some(item) = Item::decode(&mut r)
    {
        match item {
            Item::DataFork { ino, form: Form::Extents, bytes } => {
                fork_extents(bytes).into_iter().flatten().for_each(|e| each(ino, e));
            }
            Item::AttrFork { ino, bytes, .. } => {
                remote_extents(bytes).for_each(|e| each(ino, e));
            }
            Item::TreePut { root, tree: TreeId::Extents, key, value } => {
                let extent = Extent::decode_value(key.lo, value);
                extent.into_iter().for_each(|e| each(key.ino(root), e));
            }
            Item::TreePut { root, tree: TreeId::Attrs, key, value } => {
                let extent = Attr::decode_whole(value).and_then(|a| a.value.extent());
                extent.into_iter().for_each(|e| each(key.ino(root), e));
            }
            Item::IntentLog { body, .. } | Item::IntentProgress { body, .. } => {
                of_intent(body).into_iter().for_each(|(ino, e)| each(ino, e));
            }
            Item::DataFork { form: Form::Empty | Form::Inline | Form::Tree, .. }
            | Item::TreePut { tree: TreeId::Imap | TreeId::Dirents, .. }
            | Item::TreeDel { .. }
            | Item::TreeDelRange { .. }
            | Item::Core { .. }
            | Item::DirTouch { .. }
            | Item::Links { .. }
            | Item::Free { .. }
            | Item::OrphanAdd { .. }
            | Item::OrphanDel { .. }
            | Item::IntentDone { .. }
            | Item::Root { .. }
            | Item::Named { .. }
            | Item::Unnamed { .. }
            // The places of the moved data are in the tree or the fork, of which it has items.
            | Item::Moved { .. } => {}
        }
    }
}

/// A replay in progress.
pub(crate) struct Replay<'s> {
    store: &'s Store,
    /// End of the current record.
    lsn: Lsn,
    /// LSN of the current record.
    start: u64,
    /// The slot of each orphan.
    orphans: HashMap<Ino, OrphanSlot>,
    /// Names that the current record removes.
    removed: Vec<RemovedName>,
}

impl<'s> Replay<'s> {
    pub(crate) fn new(store: &'s Store) -> Replay<'s> {
        let orphans = store.orphans.by_ino();
        Replay { store, lsn: Lsn(0), start: 0, orphans, removed: Vec::new() }
    }

    /// Applies one record.
    pub(crate) fn record(&mut self, lsn: Lsn, record: &[u8]) -> Result<()> {
        self.lsn = lsn;
        self.start = lsn.0.saturating_sub(framed(record.len()));
        if self.store.intents.any() {
            self.close_intents(record)?;
        }
        let mut r = Reader::new(record);
        while !r.is_empty() {
            let item = Item::decode(&mut r).ok_or_else(|| self.broken("item of unknown shape"))?;
            self.item(&item)?;
        }
        if !self.removed.is_empty() {
            let named = inodes_named(record);
            for mut removed in self.removed.drain(..) {
                removed.moved = named.contains(&removed.ino);
                self.store.removed_names.add(&removed);
            }
        }
        Ok(())
    }

    /// Ends the replay: frees claimed numbers that are not in use.
    pub(crate) fn finish(self) {
        let live = self.store.roots.iter().filter(|root| root.state() == RootState::Live);
        live.filter_map(|root| root.used())
            .for_each(|trees| trees.table.numbers().give_back_unused());
    }

    fn broken(&self, rule: &str) -> Error {
        Error::corrupt(format!("journal record that ends at LSN {}", self.lsn.0), None, rule)
    }

    fn item(&mut self, item: &Item<'_>) -> Result<()> {
        match *item {
            Item::Core { ino, ref core } => self.core(ino, core),
            Item::DataFork { ino, form, bytes } => self.data_fork(ino, form, bytes),
            Item::AttrFork { ino, form, bytes } => self.attr_fork(ino, form, bytes.into()),
            Item::DirTouch { ino, nlink, size, stamp } => self.edit_core(ino, |inode| {
                inode.core.nlink = nlink;
                inode.core.size = size;
                inode.core.mtime = stamp;
                inode.core.ctime = stamp;
            }),
            Item::Links { ino, nlink, ctime } => self.edit_core(ino, |inode| {
                inode.core.nlink = nlink;
                inode.core.ctime = ctime;
            }),
            Item::Moved { ino, bytes } => self.edit(ino, |inode| inode.core.bytes = bytes),
            Item::Free { ino, generation } => self.free(ino, generation),
            Item::TreePut { root, tree, key, value } => self.put(root, tree, key, value),
            Item::TreeDel { root, tree, key } => self.delete(root, tree, key, key.next()),
            Item::TreeDelRange { root, tree, key, end } => {
                self.delete(root, tree, key, Key::new(key.hi, end))
            }
            Item::OrphanAdd { ino } => self.orphan(ino),
            Item::OrphanDel { ino } => {
                if let Some(slot) = self.orphans.remove(&ino) {
                    self.store.orphans.free(slot, ino);
                }
                Ok(())
            }
            Item::Root { ino, state, floor, name } => {
                self.store.roots.claim(ino.root())?.set(state, name);
                self.store.raise_generation_floor(floor);
                Ok(())
            }
            Item::IntentLog { id, body } | Item::IntentProgress { id, body } => {
                self.intent(id, body)
            }
            // Usually closed already: see `close_intents`.
            Item::IntentDone { id } => self.close_intent(id),
            Item::Named { dir, generation, lo, ref entry } => {
                let mut value = Vec::with_capacity(dirent::HEADER + entry.name.len());
                entry.encode(dir.root(), &mut value);
                self.put(dir.root(), TreeId::Dirents, Key::of(dir, lo), &value)?;
                let link = Link { dir, generation };
                let fork = parent_bytes(entry.child.root(), link, entry.name);
                self.attr_fork(entry.child, Form::Inline, fork)
            }
            Item::Unnamed { dir, generation, lo, ref entry } => {
                let key = Key::of(dir, lo);
                self.name_removed(dir, generation, entry.child, entry.name);
                self.delete(dir.root(), TreeId::Dirents, key, key.next())
            }
        }
    }

    fn orphan(&mut self, ino: Ino) -> Result<()> {
        if ino.0 == 0 {
            return Err(self.broken("orphan without a number"));
        }
        if let Entry::Vacant(place) = self.orphans.entry(ino) {
            place.insert(self.store.orphans.take(ino)?);
        }
        Ok(())
    }

    fn edit(&mut self, ino: Ino, change: impl FnOnce(&mut Inode)) -> Result<()> {
        let root = self.store.root(ino).map_err(|_| self.broken("inode of a missing root"))?;
        let inode = root.table.numbers().claim(ino)?;
        let mut locked = inode.write();
        let before = locked.inode().core.in_use();
        let inode = locked.edit(&root.table, self.store.epoch());
        change(inode);
        let after = inode.core.in_use();
        root.table.count_inodes(i64::from(after) - i64::from(before));
        Ok(())
    }

    /// Applies an item of the core ([`Core::lsn`]).
    fn edit_core(&mut self, ino: Ino, change: impl FnOnce(&mut Inode)) -> Result<()> {
        let lsn = self.start;
        self.edit(ino, |inode| {
            change(inode);
            inode.core.lsn = lsn;
        })
    }

    fn core(&mut self, ino: Ino, core: &Core) -> Result<()> {
        self.edit_core(ino, |inode| {
            // Forms and fork lengths belong to the fork items.
            let Core { data_form, attr_form, data_len, attr_len, .. } = inode.core;
            let fresh = !inode.core.in_use() || inode.core.generation != core.generation;
            inode.core = *core;
            if fresh {
                inode.core.data_form = Form::Empty;
                inode.core.attr_form = Form::Empty;
                inode.data = Box::default();
                inode.attr = Box::default();
            } else {
                inode.core.data_form = data_form;
                inode.core.attr_form = attr_form;
                inode.core.data_len = data_len;
                inode.core.attr_len = attr_len;
            }
        })
    }

    fn data_fork(&mut self, ino: Ino, form: Form, bytes: &[u8]) -> Result<()> {
        let after = match form {
            Form::Extents => fork_extents(bytes).ok_or_else(|| self.broken("extent records"))?,
            _ => Vec::new(),
        };
        let mut before = Some(Vec::new());
        self.edit(ino, |inode| {
            if inode.core.data_form == Form::Extents {
                before = fork_extents(&inode.data);
            }
            inode.core.data_form = form;
            inode.data = bytes.into();
        })?;
        // Subtract first: parts of one object must not count twice.
        for extent in before.ok_or_else(|| self.broken("extent records it replaces"))? {
            self.store.account(&extent, ExtentChange::Goes);
        }
        after.iter().try_for_each(|extent| self.appears(extent))
    }

    fn attr_fork(&mut self, ino: Ino, form: Form, bytes: Box<[u8]>) -> Result<()> {
        let after: Vec<Extent> = remote_extents(&bytes).collect();
        let mut before = Vec::new();
        self.edit(ino, |inode| {
            before.extend(remote_extents(&inode.attr));
            inode.core.attr_form = form;
            inode.attr = bytes;
        })?;
        before.iter().for_each(|extent| self.store.account(extent, ExtentChange::Goes));
        after.iter().try_for_each(|extent| self.appears(extent))
    }

    /// Closes the intents that this record closes. This is done first: the same record stores their
    /// values in the right place, and those must not count twice.
    fn close_intents(&self, record: &[u8]) -> Result<()> {
        let mut r = Reader::new(record);
        while !r.is_empty() {
            let item = Item::decode(&mut r).ok_or_else(|| self.broken("item of unknown shape"))?;
            if let Item::IntentDone { id } = item {
                self.close_intent(id)?;
            }
        }
        Ok(())
    }

    fn close_intent(&self, id: u64) -> Result<()> {
        self.intent_changes(self.store.intents.done(id), ExtentChange::Goes)
    }

    /// Opens or replaces an intent. The intent holds the value that it will set.
    fn intent(&mut self, id: u64, body: &[u8]) -> Result<()> {
        let intent = Intent::decode(body).ok_or_else(|| self.broken("intent"))?;
        let before = self.store.intents.note(id, intent.clone());
        self.intent_changes(before, ExtentChange::Goes)?;
        self.intent_changes(Some(intent), ExtentChange::Appears)
    }

    fn intent_changes(&self, intent: Option<Intent>, change: ExtentChange) -> Result<()> {
        let extent = intent.as_ref().and_then(|i| i.to_set()?.value.extent());
        match (extent, change) {
            (Some(extent), ExtentChange::Appears) => self.appears(&extent),
            (Some(extent), ExtentChange::Goes) => {
                self.store.account(&extent, ExtentChange::Goes);
                Ok(())
            }
            (None, _) => Ok(()),
        }
    }

    /// Accounts for an extent that comes into use. Its segment may have been free at the
    /// checkpoint.
    fn appears(&self, extent: &Extent) -> Result<()> {
        if !extent.is_prealloc() {
            let (ptr, geometry) = (&extent.ptr, &self.store.geometry);
            let header = Addr(ptr.addr.0.saturating_sub(HEADER as u64));
            if !geometry.contains(header, u64::from(ptr.len) + HEADER as u64) {
                return Err(self.broken("extent outside any segment"));
            }
            self.store.space.recovery().claim(geometry.segment_of(ptr.addr), SegKind::Data)?;
            self.store.space.recovery().bump(Addr(ptr.addr.0 + u64::from(ptr.len)));
        }
        self.store.account(extent, ExtentChange::Appears);
        if planted::is(Defect::CountedTwice) {
            self.store.account(extent, ExtentChange::Appears);
        }
        Ok(())
    }

    fn free(&mut self, ino: Ino, generation: u32) -> Result<()> {
        let mut before = Some(Vec::new());
        let mut values = Vec::new();
        self.edit(ino, |inode| {
            if inode.core.data_form == Form::Extents {
                before = fork_extents(&inode.data);
            }
            values.extend(remote_extents(&inode.attr));
            *inode = Inode::free(generation);
        })?;
        let before = before.ok_or_else(|| self.broken("extents of the inode it frees"))?;
        for extent in before.into_iter().chain(values) {
            self.store.account(&extent, ExtentChange::Goes);
        }
        Ok(())
    }

    fn root(&self, id: RootId) -> Result<&'s Root> {
        self.store.roots.get(id).ok_or_else(|| self.broken("a missing root"))
    }

    fn put(&mut self, root: RootId, tree: TreeId, key: Key, value: &[u8]) -> Result<()> {
        let possible = tree != TreeId::Imap && key.hi <= Ino::INDEX_MASK;
        if !possible || value.len() > shoal_base::limits::TREE_VALUE_MAX {
            return Err(self.broken("tree entry that no transaction makes"));
        }
        let root = self.root(root)?;
        if tree == TreeId::Extents {
            let decode = |raw: &[u8]| Extent::decode_value(key.lo, raw);
            if let Some(was) = root.extents.get(key, decode)? {
                let was = was.ok_or_else(|| self.broken("extent record it replaces"))?;
                self.store.account(&was, ExtentChange::Goes);
            }
            let extent = decode(value).ok_or_else(|| self.broken("extent record"))?;
            self.appears(&extent)?;
        }
        if tree == TreeId::Attrs {
            let decode = |raw: &[u8]| Attr::decode_whole(raw).map(|attr| attr.value.extent());
            if let Some(was) = root.attrs.get(key, decode)? {
                let was = was.ok_or_else(|| self.broken("attribute it replaces"))?;
                was.iter().for_each(|extent| self.store.account(extent, ExtentChange::Goes));
            }
            let extent = decode(value).ok_or_else(|| self.broken("attribute"))?;
            extent.iter().try_for_each(|extent| self.appears(extent))?;
        }
        if tree == TreeId::Dirents {
            self.entry_put(root, key, value)?;
        }
        root.tree(tree).put(key, value, self.store.epoch())
    }

    /// Notes a removed name for the change feed. Its inode still has its generation: items that
    /// free it follow.
    fn name_removed(&mut self, dir: Ino, generation: u32, ino: Ino, name: &[u8]) {
        if !self.store.removed_names.is_on() {
            return;
        }
        let table = self.store.root(ino).map(|root| &root.table);
        let known = table.and_then(|table| table.look(ino, |inode| inode.core.generation));
        self.removed.push(RemovedName {
            lsn: Lsn(self.start),
            dir,
            dir_generation: Generation(generation),
            ino,
            generation: Generation(known.unwrap_or(0)),
            moved: false,
            name: name.to_vec(),
        });
    }

    /// Notes for the change feed the name of an inode that another one gets, without an item that
    /// removes it: two inodes exchange their names.
    fn entry_put(&mut self, root: &Root, key: Key, value: &[u8]) -> Result<()> {
        let Some(entry) = Dirent::decode(root.id, value) else { return Ok(()) };
        let loses = |raw: &[u8]| {
            let was = Dirent::decode(root.id, raw)?;
            (was.name == entry.name && was.child != entry.child).then_some(was.child)
        };
        if let Some(loser) = root.dirents.get(key, loses)?.flatten() {
            let dir = key.ino(root.id);
            let generation = root.table.look(dir, |inode| inode.core.generation).unwrap_or(0);
            self.name_removed(dir, generation, loser, entry.name);
        }
        Ok(())
    }

    fn delete(&mut self, root: RootId, tree: TreeId, from: Key, to: Key) -> Result<()> {
        if tree == TreeId::Imap {
            return Err(Error::Code(Code::Io));
        }
        let store = self.store;
        let root = self.root(root)?;
        root.tree(tree).delete_range(from, to, store.epoch(), &mut |key, value| {
            let extent = match tree {
                TreeId::Extents => Extent::decode_value(key.lo, value),
                TreeId::Attrs => Attr::decode_whole(value).and_then(|attr| attr.value.extent()),
                TreeId::Imap | TreeId::Dirents => None,
            };
            if let Some(extent) = extent {
                store.account(&extent, ExtentChange::Goes);
            }
        })?;
        Ok(())
    }
}
