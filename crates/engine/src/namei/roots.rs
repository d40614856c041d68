//! Roots as names: making one, listing them, taking a name away.
//!
//! A root's top is an entry of the volume's top directory that names an inode of another root, like
//! a mount point: it cannot be renamed or removed as a directory, and nothing is renamed or linked
//! across it. What was in a deleted root is freed by `reap.rs`.

use super::create::{Made, New, new_core};
use super::touch_dir;
use crate::clock::now;
use crate::parent::NameIn;
use crate::records;
use crate::types::{Caller, Entry, FileKind, RootInfo, check_name};
use crate::volume::Inner;
use shoal_base::invariant;
use shoal_base::limits::NODE_SIZE;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::checkpoint::RootState;
use shoal_format::item::Item;
use std::sync::atomic::Ordering;

/// Bytes that a root takes before anything is in it: an inner node and a leaf of four trees.
const ROOT_COST: u64 = 8 * NODE_SIZE as u64;
/// Bytes of the volume for each root. An empty root takes a few hundred, so a segment could have
/// nodes of thousands, and whoever empties it changes the records of all of them: pages of 30 KiB,
/// for which a full volume has no room.
const ROOT_SPACE: u64 = 32 << 10;

impl Inner {
    /// Makes an empty root: a directory under the volume's top with inode numbers and trees of its
    /// own. For the superuser alone (`EPERM`).
    ///
    /// # Errors
    /// `EEXIST` when the name is taken, `ENAMETOOLONG`, `EINVAL` for a name that cannot be one,
    /// `ENOSPC` when all 65,536 numbers are taken, when there is one for each 32 KiB of the volume,
    /// or when it is full.
    pub fn root_create(&self, who: &Caller, name: &[u8], mode: u32) -> Result<Entry> {
        check_root_name(who, name)?;
        let _one = self.rooting.lock();
        let mut txn = self.begin_space(ROOT_COST, records::ROOT_CREATE)?;
        let top_root = self.root(Ino::ROOT)?;
        let top_ref = top_root.table.get(Ino::ROOT)?;
        let mut top = top_ref.write();
        if self.find_entry(Ino::ROOT, name)?.is_some() {
            return Err(Error::Code(Code::Exists));
        }
        if top.inode().core.nlink == u32::MAX {
            return Err(Error::Code(Code::TooManyLinks));
        }
        // Who still holds a file of a deleted root calls it by number: it must not become another.
        let held = self.holds.roots();
        let root = self.store.vacant_root(|id| held.contains(&id))?;
        let bytes = self.store.geometry.bytes();
        if u64::from(root.id.0) * ROOT_SPACE > bytes {
            root.set(RootState::Vacant, b"");
            let most = bytes / ROOT_SPACE;
            let message = format!("a volume of {bytes} bytes holds {most} subvolumes");
            return Err(Error::refused(
                Code::NoSpace,
                message + ": delete some, or make it larger",
            ));
        }
        let inode = root.table.allocate_first()?;
        invariant!(inode.ino == root.top(), "the first inode of a root is its top");
        let kind = FileKind::Directory;
        let new = New { mode: kind.mode_bits() | mode & 0o7777, rdev: 0, target: b"" };
        let above = top.inode().core;
        let here = NameIn::new(Ino::ROOT, &above, name);
        let ready = self.birth(inode.ino, Ino::ROOT, top.inode(), Some(&here), &new);
        let ready = ready.and_then(|birth| {
            let key = self.insert_entry(&mut txn, Ino::ROOT, name, inode.ino, kind as u8)?;
            Ok((birth, key))
        });
        let (birth, key) = match ready {
            Ok(ready) => ready,
            Err(e) => {
                // The next checkpoint sweeps it: else another thread would be given another first
                // inode in it.
                root.set(RootState::Vacant, b"");
                return Err(e);
            }
        };
        root.set(RootState::Live, name);
        let floor = self.store.floor.load(Ordering::Relaxed);
        txn.log(Item::Root { ino: inode.ino, state: RootState::Live, floor, name });
        let stamp = now();
        let mut core = new_core(who, &above, &new, &birth, stamp);
        (core.nlink, core.parent_or_rdev) = (2, Ino::ROOT.0);
        let mut locked = inode.write();
        let made = Made { name: &here, key, kind: kind as u8 };
        let entry = self.enter(&mut txn, root, &mut locked, core, birth, made, &mut |txn| {
            touch_dir(txn, &top_root.table, &mut top, 1, 1, stamp);
        })?;
        txn.stamp(&mut top)?;
        txn.stamp(&mut locked)?;
        txn.commit()?;
        Ok(entry)
    }

    /// The roots, by number, without the volume's own.
    pub fn root_list(&self) -> Vec<RootInfo> {
        let info = |root: &shoal_txn::Root| RootInfo {
            id: root.id.0,
            name: root.name().to_vec(),
            top: root.top(),
            deleted: root.state() == RootState::Deleted,
            inodes: root.inodes(),
        };
        let used = |root: &&shoal_txn::Root| root.state() != RootState::Vacant;
        self.store.roots.iter().skip(1).filter(used).map(info).collect()
    }

    /// The top directory of the root with this name; `ENOENT` when there is none.
    pub fn root_top(&self, name: &[u8]) -> Result<Ino> {
        match self.find_entry(Ino::ROOT, name)? {
            Some(found) if found.child.root() != Ino::ROOT.root() => Ok(found.child),
            _ => Err(Error::Code(Code::NotFound)),
        }
    }

    /// Deletes a root and everything in it. Returns as soon as the name is gone; what was in it is
    /// freed behind, also after a crash. Whoever still uses files in it gets `ESTALE`.
    ///
    /// # Errors
    /// `ENOENT` when nothing has that name, `EINVAL` when it is no root, `EPERM`.
    pub fn root_delete(&self, who: &Caller, name: &[u8]) -> Result<()> {
        check_root_name(who, name)?;
        let _one = self.rooting.lock();
        let mut txn = self.begin(records::ROOT_DELETE)?;
        let top_root = self.root(Ino::ROOT)?;
        let top_ref = top_root.table.get(Ino::ROOT)?;
        let mut top = top_ref.write();
        let found = self.find_entry(Ino::ROOT, name)?.ok_or(Error::Code(Code::NotFound))?;
        if found.child.root() == Ino::ROOT.root() {
            return Err(Error::Code(Code::Invalid));
        }
        let root = self.root(found.child)?;
        let here = NameIn::new(Ino::ROOT, &top.inode().core, name);
        self.remove_entry(&mut txn, &found, &here)?;
        root.set(RootState::Deleted, b"");
        let floor = self.store.floor.load(Ordering::Relaxed);
        txn.log(Item::Root { ino: root.top(), state: RootState::Deleted, floor, name: b"" });
        touch_dir(&mut txn, &top_root.table, &mut top, -1, -1, now());
        txn.stamp(&mut top)?;
        txn.commit()?;
        self.wake_reaper();
        Ok(())
    }
}

fn check_root_name(who: &Caller, name: &[u8]) -> Result<()> {
    match check_name(name) {
        // Empty, "." or "..": not missing or there, but no name that a root can have.
        Err(Error::Code(Code::NotFound | Code::Exists)) => Err(Error::Code(Code::Invalid)),
        other => other,
    }?;
    match who.bypasses() {
        true => Ok(()),
        false => Err(Error::Code(Code::NotPermitted)),
    }
}
