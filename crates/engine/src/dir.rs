//! Directory entries in the `dirents` tree: finding, inserting, removing, listing.
//!
//! Names whose hashes collide take suffixes 0, 1, 2… without gaps: the entry before each further
//! one carries a mark, and removing one moves the last into its place. So a name is absent as soon
//! as a suffix is. (Cookies of other entries never change; of two colliding names one may.)
//!
//! Whether the root is alive is asked by the call, once, before it changes anything: a root that is
//! deleted meanwhile must not make the second half of a change fail.

use crate::attr::attr_of;
use crate::parent::NameIn;
use crate::types::{Attr, DirEntry, FileKind};
use crate::volume::Inner;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::attr::Link;
use shoal_format::dirent::{
    AT_KIND, Dirent, FIRST_COOKIE, HEADER, SUFFIX_MASK, VALUE_MAX, first_key, name_hash,
};
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_tree::{Action, Batch};
use shoal_txn::Txn;

/// Set in an entry's type when the next suffix is taken too.
pub(crate) const CHAINED: u8 = 0x80;
/// Entries read at a time by a listing.
const LIST: usize = 256;

/// An entry that was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub dir: Ino,
    pub key: Key,
    pub child: Ino,
    /// Type of the child.
    pub kind: u8,
    chained: bool,
}

fn broken(dir: Ino) -> Error {
    Error::corrupt(format!("entry of directory {dir}"), None, "not an entry")
}

impl Inner {
    /// Looks `name` up in `dir`.
    #[inline]
    pub(crate) fn find_entry(&self, dir: Ino, name: &[u8]) -> Result<Option<Found>> {
        let base = name_hash(self.store.volume, name);
        let dirents = &self.store.root(dir)?.dirents;
        for suffix in 0..=SUFFIX_MASK {
            let key = Key::of(dir, base | suffix);
            let look = |raw: &[u8]| {
                let entry = Dirent::decode(dir.root(), raw).ok_or_else(|| broken(dir))?;
                let found = Found {
                    dir,
                    key,
                    child: entry.child,
                    kind: entry.kind & !CHAINED,
                    chained: entry.kind & CHAINED != 0,
                };
                Ok::<_, Error>((entry.name == name, found))
            };
            match dirents.get(key, look)?.transpose()? {
                None => return Ok(None),
                Some((true, found)) => return Ok(Some(found)),
                Some((false, found)) if !found.chained => return Ok(None),
                Some(_) => {}
            }
        }
        Ok(None)
    }

    /// Inserts an entry; `EEXIST`, and nothing done, when the name is there. Only the call's first
    /// change may be this one: it can fail. `Some`: it stands by itself under this key, and its
    /// item is left to the caller, who may have one that says more ([`Inner::log_entry`]).
    #[inline]
    pub(crate) fn insert_entry(
        &self,
        txn: &mut Txn<'_>,
        dir: Ino,
        name: &[u8],
        child: Ino,
        kind: u8,
    ) -> Result<Option<Key>> {
        txn.check_memory()?;
        let dirents = &self.store.root(dir)?.dirents;
        let base = Key::of(dir, name_hash(self.store.volume, name));
        let mut room = [0; VALUE_MAX];
        let value = &*Dirent { child, kind, name }.value_in(dir.root(), &mut room);
        let put = dirents.update(base, txn.epoch, &mut |was| match was {
            None => Action::Put(value),
            Some(_) => Action::Keep,
        })?;
        if put {
            txn.changing();
            return Ok(Some(base));
        }
        self.insert_collision(txn, dir, base, name, value).map(|()| None)
    }

    /// The item of an entry that was inserted into `dir`.
    #[inline]
    pub(crate) fn log_entry(&self, txn: &mut Txn<'_>, dir: Ino, key: Key, entry: Dirent<'_>) {
        let (root, mut room) = (dir.root(), [0; VALUE_MAX]);
        let value = entry.value_in(root, &mut room);
        txn.log(Item::TreePut { root, tree: TreeId::Dirents, key, value });
    }

    /// The name's hash is taken: by the name itself, or by others.
    #[cold]
    fn insert_collision(
        &self,
        txn: &mut Txn<'_>,
        dir: Ino,
        base: Key,
        name: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let mut last = base;
        for suffix in 0..=SUFFIX_MASK {
            let key = Key::new(base.hi, base.lo | suffix);
            let same = |raw: &[u8]| Dirent::decode(dir.root(), raw).is_some_and(|d| d.name == name);
            match self.store.root(dir)?.dirents.get(key, same)? {
                Some(true) => return Err(Error::Code(Code::Exists)),
                Some(false) => last = key,
                None => {
                    self.put_entry(txn, dir, key, value)?;
                    return self.mark_chained(txn, dir, last, true);
                }
            }
        }
        Err(Error::Code(Code::NoSpace))
    }

    fn put_entry(&self, txn: &mut Txn<'_>, dir: Ino, key: Key, value: &[u8]) -> Result<()> {
        self.store.root(dir)?.dirents.put(key, value, txn.epoch)?;
        txn.log(Item::TreePut { root: dir.root(), tree: TreeId::Dirents, key, value });
        Ok(())
    }

    fn mark_chained(&self, txn: &mut Txn<'_>, dir: Ino, key: Key, chained: bool) -> Result<()> {
        let dirents = &self.store.root(dir)?.dirents;
        let value = dirents.get(key, <[u8]>::to_vec)?;
        let mut value = value.filter(|v| v.len() > 9).ok_or_else(|| broken(dir))?;
        value[AT_KIND] = if chained { value[AT_KIND] | CHAINED } else { value[AT_KIND] & !CHAINED };
        self.put_entry(txn, dir, key, &value)
    }

    /// Lets an entry name another child. With `removes` the old one has lost a name, which the
    /// record tells; without, the two exchange theirs.
    pub(crate) fn replace_entry(
        &self,
        txn: &mut Txn<'_>,
        found: &Found,
        name: &NameIn<'_>,
        child: Ino,
        kind: u8,
        removes: bool,
    ) -> Result<()> {
        let mut value = Vec::with_capacity(HEADER + name.name.len());
        let kind = if found.chained { kind | CHAINED } else { kind };
        Dirent { child, kind, name: name.name }.encode(found.dir.root(), &mut value);
        let Found { dir, key, .. } = *found;
        self.store.root(dir)?.dirents.put(key, &value, txn.epoch)?;
        if removes {
            self.log_removal(txn, found, name);
        }
        txn.log(Item::TreePut { root: dir.root(), tree: TreeId::Dirents, key, value: &value });
        Ok(())
    }

    /// Adds to the record that a name goes, before the item of what takes its place, if anything
    /// does.
    #[inline]
    fn log_removal(&self, txn: &mut Txn<'_>, found: &Found, name: &NameIn<'_>) {
        let (Link { dir, generation }, lo) = (name.link, found.key.lo);
        let entry = Dirent { child: found.child, kind: found.kind, name: name.name };
        txn.log(Item::Unnamed { dir, generation, lo, entry });
    }

    /// Removes an entry that was found, by this name, under the directory's lock.
    pub(crate) fn remove_entry(
        &self,
        txn: &mut Txn<'_>,
        found: &Found,
        name: &NameIn<'_>,
    ) -> Result<()> {
        let Found { dir, key, .. } = *found;
        let dirents = &self.store.root(dir)?.dirents;
        if found.chained || key.lo & SUFFIX_MASK != 0 {
            return self.remove_collision(txn, found, name);
        }
        if !dirents.delete(key, txn.epoch)? {
            return Err(broken(dir));
        }
        self.log_removal(txn, found, name);
        Ok(())
    }

    /// Removes one of several names of one hash: the last takes its place. The record tells which
    /// name goes and then, as changes of the tree alone, that another one moves.
    #[cold]
    fn remove_collision(&self, txn: &mut Txn<'_>, found: &Found, name: &NameIn<'_>) -> Result<()> {
        let Found { dir, key, .. } = *found;
        let dirents = &self.store.root(dir)?.dirents;
        let base = key.lo & !SUFFIX_MASK;
        let mut chain = Vec::new();
        for suffix in 0..=SUFFIX_MASK {
            let at = Key::new(key.hi, base | suffix);
            match dirents.get(at, <[u8]>::to_vec)? {
                Some(value) => chain.push((at, value)),
                None => break,
            }
        }
        let Some((last, moved)) = chain.pop() else { return Err(broken(dir)) };
        dirents.delete(last, txn.epoch)?;
        self.log_removal(txn, found, name);
        if last != key {
            txn.log(Item::TreeDel { root: dir.root(), tree: TreeId::Dirents, key: last });
            self.put_entry(txn, dir, key, &moved)?;
            // It was the last; in its new place it may not be.
            let after = chain.last().map(|(at, _)| *at).filter(|at| *at != key);
            self.mark_chained(txn, dir, key, after.is_some())?;
        }
        match chain.last() {
            Some((end, _)) => self.mark_chained(txn, dir, *end, false),
            None => Ok(()),
        }
    }

    /// Lists entries after `cookie` (0: from the start), "." and ".." first, until `each` returns
    /// `false`; that entry counts as not delivered.
    pub fn readdir(
        &self,
        dir: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> Result<()> {
        let parent = self.parent_of(dir)?;
        let kind = FileKind::Directory;
        let dots = [(&b"."[..], dir, 1), (&b".."[..], parent, 2)];
        for (name, ino, at) in dots {
            if cookie < at && !each(DirEntry { name, ino, kind, cookie: at }) {
                return Ok(());
            }
        }
        let dirents = &self.root(dir)?.dirents;
        let end = Key::behind(dir);
        let mut next = Some(match cookie < FIRST_COOKIE {
            true => first_key(dir),
            false => Key::of(dir, cookie).next(),
        });
        let mut batch = Batch::default();
        while let Some(from) = next {
            next = dirents.scan(from, end, LIST, &mut batch)?;
            for (key, raw) in batch.iter() {
                let entry = Dirent::decode(dir.root(), raw).ok_or_else(|| broken(dir))?;
                let kind = FileKind::from_dirent_type(entry.kind & !CHAINED);
                let kind = kind.ok_or_else(|| broken(dir))?;
                let entry = DirEntry { name: entry.name, ino: entry.child, kind, cookie: key.lo };
                if !each(entry) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// The same with the attributes of each entry.
    pub fn readdirplus(
        &self,
        dir: Ino,
        cookie: u64,
        each: &mut dyn FnMut(DirEntry<'_>, &Attr) -> bool,
    ) -> Result<()> {
        let mut failed = None;
        self.readdir(dir, cookie, &mut |entry| {
            match self.getattr(entry.ino) {
                Ok(attr) => each(entry, &attr),
                // Removed since it was read: not there any more.
                Err(Error::Code(Code::Stale)) => true,
                Err(e) => {
                    failed = Some(e);
                    false
                }
            }
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Parent of a directory ("..").
    pub fn parent_of(&self, dir: Ino) -> Result<Ino> {
        let inode = self.inode(dir)?;
        let slot = inode.read();
        let core = &slot.inode.core;
        attr_of(dir, &slot.inode)?;
        if !core.is_dir() {
            return Err(Error::Code(Code::NotDirectory));
        }
        Ok(Ino(core.parent_or_rdev))
    }
}
