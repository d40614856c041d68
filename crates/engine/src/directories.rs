//! Directory entries in the `dirents` tree: finding, inserting, removing. Listing: `listing.rs`.
//!
//! Names whose hashes collide get suffixes 0, 1, 2… without gaps. Each entry except the last of
//! such a chain has a mark, and removing one moves the last into its place. So a lookup ends at the
//! first free suffix. (Cookies of other entries never change; the cookie of a moved one does.)
//!
//! The call checks once that the subvolume is live, before its first change. If the subvolume is
//! deleted meanwhile, the second half of a change must not fail.

use crate::name::NameIn;
use crate::stat::attr_of;
use crate::types::{DirEntry, FileKind};

use crate::state::room;
use shoal_base::{Code, Error, Generation, Ino, Lsn, Result};
use shoal_format::attr::Link;
use shoal_format::dirent::{AT_KIND, Dirent, HEADER, SUFFIX_MASK, VALUE_MAX, name_hash};
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_tree::Action;
use shoal_txn::{RemovedName, Txn};

/// Set in an entry's type if the next suffix is in use too.
pub(crate) const CHAINED: u8 = 0x80;
/// An entry found by a lookup.
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

/// Decodes a directory's entry.
pub(crate) fn decoded(dir: Ino, key: Key, raw: &[u8]) -> Result<DirEntry<'_>> {
    let entry = Dirent::decode(dir.root(), raw).ok_or_else(|| broken(dir))?;
    let kind = FileKind::from_dirent_type(entry.kind & !CHAINED).ok_or_else(|| broken(dir))?;
    Ok(DirEntry { name: entry.name, ino: entry.child, kind, cookie: key.lo })
}

room! {
    /// Entries of directories.
    pub struct Directories {}
}

impl Directories<'_> {
    /// Looks up `name` in `dir`.
    #[inline]
    pub(crate) fn find_entry(self, dir: Ino, name: &[u8]) -> Result<Option<Found>> {
        let base = name_hash(self.0.store.volume(), name);
        let dirents = &self.0.store.root(dir)?.dirents;
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

    /// Inserts an entry; `EEXIST`, without a change, if the name exists. It can fail, so it must be
    /// the first change of the call. Returns the entry's key if its hash did not collide; then the
    /// caller must log the item, possibly as part of another one ([`Directories::log_entry`]).
    #[inline]
    pub(crate) fn insert_entry(
        self,
        txn: &mut Txn<'_>,
        dir: Ino,
        name: &[u8],
        child: Ino,
        kind: u8,
    ) -> Result<Option<Key>> {
        txn.check_memory()?;
        let dirents = &self.0.store.root(dir)?.dirents;
        let base = Key::of(dir, name_hash(self.0.store.volume(), name));
        let mut room = [0; VALUE_MAX];
        let value = &*Dirent { child, kind, name }.value_in(dir.root(), &mut room);
        let put = txn.update(dirents, base, &mut |was| match was {
            None => Action::Put(value),
            Some(_) => Action::Keep,
        })?;
        if put {
            txn.changing();
            return Ok(Some(base));
        }
        self.insert_collision(txn, dir, base, name, value).map(|()| None)
    }

    /// Logs the item of an entry that was inserted into `dir`.
    #[inline]
    pub(crate) fn log_entry(self, txn: &mut Txn<'_>, dir: Ino, key: Key, entry: Dirent<'_>) {
        let (root, mut room) = (dir.root(), [0; VALUE_MAX]);
        let value = entry.value_in(root, &mut room);
        txn.log(Item::TreePut { root, tree: TreeId::Dirents, key, value });
    }

    /// Inserts an entry whose hash is in use, by the name itself or by others.
    #[cold]
    fn insert_collision(
        self,
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
            match self.0.store.root(dir)?.dirents.get(key, same)? {
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

    fn put_entry(self, txn: &mut Txn<'_>, dir: Ino, key: Key, value: &[u8]) -> Result<()> {
        txn.put(&self.0.store.root(dir)?.dirents, key, value)?;
        txn.log(Item::TreePut { root: dir.root(), tree: TreeId::Dirents, key, value });
        Ok(())
    }

    fn mark_chained(self, txn: &mut Txn<'_>, dir: Ino, key: Key, chained: bool) -> Result<()> {
        let dirents = &self.0.store.root(dir)?.dirents;
        let value = dirents.get(key, <[u8]>::to_vec)?;
        let mut value = value.filter(|v| v.len() > 9).ok_or_else(|| broken(dir))?;
        value[AT_KIND] = if chained { value[AT_KIND] | CHAINED } else { value[AT_KIND] & !CHAINED };
        self.put_entry(txn, dir, key, &value)
    }

    /// Changes the child of an entry to `child` of type `kind`. With `removes` the old child, of
    /// this generation, loses a name, which is logged; without, two children exchange their names.
    pub(crate) fn replace_entry(
        self,
        txn: &mut Txn<'_>,
        found: &Found,
        name: &NameIn<'_>,
        generation: u32,
        (child, kind): (Ino, u8),
        removes: bool,
    ) -> Result<()> {
        let mut value = Vec::with_capacity(HEADER + name.name.len());
        let kind = if found.chained { kind | CHAINED } else { kind };
        Dirent { child, kind, name: name.name }.encode(found.dir.root(), &mut value);
        let Found { dir, key, .. } = *found;
        txn.put(&self.0.store.root(dir)?.dirents, key, &value)?;
        self.note_removal(txn, found, name, generation);
        if removes {
            self.log_removal(txn, found, name);
        }
        txn.log(Item::TreePut { root: dir.root(), tree: TreeId::Dirents, key, value: &value });
        Ok(())
    }

    /// Logs the removal of a name. Must precede the item of the entry that replaces it, if there is
    /// one.
    #[inline]
    fn log_removal(self, txn: &mut Txn<'_>, found: &Found, name: &NameIn<'_>) {
        let (Link { dir, generation }, lo) = (name.link, found.key.lo);
        let entry = Dirent { child: found.child, kind: found.kind, name: name.name };
        txn.log(Item::Unnamed { dir, generation, lo, entry });
    }

    /// Notes for the change feed that an inode of this generation loses a name.
    #[inline]
    fn note_removal(self, txn: &mut Txn<'_>, found: &Found, name: &NameIn<'_>, generation: u32) {
        if self.0.store.removed_names.is_on() {
            txn.name_removed(RemovedName {
                lsn: Lsn(0),
                dir: name.link.dir,
                dir_generation: Generation(name.link.generation),
                ino: found.child,
                generation: Generation(generation),
                moved: false,
                name: name.name.to_vec(),
            });
        }
    }

    /// Removes an entry that was found by this name; its inode has this generation. The directory
    /// must be locked since.
    pub(crate) fn remove_entry(
        self,
        txn: &mut Txn<'_>,
        found: &Found,
        name: &NameIn<'_>,
        generation: u32,
    ) -> Result<()> {
        let Found { dir, key, .. } = *found;
        let dirents = &self.0.store.root(dir)?.dirents;
        self.note_removal(txn, found, name, generation);
        if found.chained || key.lo & SUFFIX_MASK != 0 {
            return self.remove_collision(txn, found, name);
        }
        if !txn.delete(dirents, key)? {
            return Err(broken(dir));
        }
        self.log_removal(txn, found, name);
        Ok(())
    }

    /// Removes one of several names with the same hash; the last one moves into its place. The
    /// record contains the removed name and, as changes of the tree only, the move of the other
    /// one.
    #[cold]
    fn remove_collision(self, txn: &mut Txn<'_>, found: &Found, name: &NameIn<'_>) -> Result<()> {
        let Found { dir, key, .. } = *found;
        let dirents = &self.0.store.root(dir)?.dirents;
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
        txn.delete(dirents, last)?;
        self.log_removal(txn, found, name);
        if last != key {
            txn.log(Item::TreeDel { root: dir.root(), tree: TreeId::Dirents, key: last });
            self.put_entry(txn, dir, key, &moved)?;
            // It was the last of the chain; in its new place it may not be.
            let after = chain.last().map(|(at, _)| *at).filter(|at| *at != key);
            self.mark_chained(txn, dir, key, after.is_some())?;
        }
        match chain.last() {
            Some((end, _)) => self.mark_chained(txn, dir, *end, false),
            None => Ok(()),
        }
    }

    /// Returns the parent of a directory ("..").
    pub fn parent_of(self, dir: Ino) -> Result<Ino> {
        let inode = self.0.inode(dir)?;
        let slot = inode.read();
        let core = &slot.inode.core;
        attr_of(dir, &slot.inode)?;
        if !core.is_dir() {
            return Err(Error::Code(Code::NotDirectory));
        }
        Ok(Ino(core.parent_or_rdev))
    }
}
