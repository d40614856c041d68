//! Subvolumes as names: creating, listing, deleting them.
//!
//! The top of a subvolume is an entry of the volume's top directory that names an inode of another
//! subvolume, like a mount point. It cannot be renamed or removed as a directory, and nothing can
//! be renamed or linked across it. The contents of a deleted subvolume are freed by
//! `reap/roots.rs`.

use crate::clock::now;
use crate::directories::Directories;
use crate::name::NameIn;
use crate::namei::birth::New;
use crate::namei::{Namespace, touch_dir};
use crate::records;
use crate::state::room;
use crate::types::{Caller, Entry, FileKind, RootInfo, check_name};
use shoal_base::invariant;
use shoal_base::limits::NODE_SIZE;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::checkpoint::RootState;
use shoal_format::item::Item;

/// Bytes of an empty subvolume: an inner node and a leaf of four trees.
const ROOT_COST: u64 = 8 * NODE_SIZE as u64;
/// Minimum bytes of the volume per subvolume. An empty subvolume takes a few hundred bytes, so one
/// segment could have nodes of thousands. Cleaning that segment would change the records of all of
/// them: pages of 30 KiB, for which a full volume has no space.
const ROOT_SPACE: u64 = 32 << 10;

room! {
    /// Subvolumes by name.
    pub struct Subvolumes { directories: Directories, namespace: Namespace }
}

impl Subvolumes<'_> {
    /// Creates an empty subvolume: a directory in the volume's top directory with its own inode
    /// numbers and trees. Only for privileged callers (`EPERM`).
    ///
    /// # Errors
    /// `EEXIST` if the name exists, `ENAMETOOLONG`, `EINVAL` for an invalid name, `ENOSPC` if all
    /// 65,536 numbers are in use, if there is one for each 32 KiB of the volume, or if the volume
    /// is full.
    pub fn create(self, who: &Caller, name: &[u8], mode: u32) -> Result<Entry> {
        self.0.measured(Call::Subvolume, || self.make(who, name, mode))
    }

    fn make(self, who: &Caller, name: &[u8], mode: u32) -> Result<Entry> {
        check_root_name(who, name)?;
        let _one = self.0.rooting.lock();
        let mut txn = self.0.begin_space(ROOT_COST, records::ROOT_CREATE)?;
        let top_root = self.0.root(Ino::ROOT)?;
        let top_ref = top_root.table.get(Ino::ROOT)?;
        let mut top = top_ref.write();
        if self.directories().find_entry(Ino::ROOT, name)?.is_some() {
            return Err(Error::Code(Code::Exists));
        }
        if top.inode().core.nlink == u32::MAX {
            return Err(Error::Code(Code::TooManyLinks));
        }
        // A file of a deleted subvolume that is still in use is addressed by number, so the
        // subvolume's number must not be reused.
        let held = self.0.holds.roots();
        let unknown = self.0.holds.may_be_inherited();
        // While quotas are counted, no block may be used for the first time that was there before.
        let counts = !self.0.store.roots().projects().is_counted();
        let root = self.0.store.roots().vacant(|id| counts || unknown || held.contains(&id))?;
        let bytes = self.0.store.geometry().bytes();
        if u64::from(root.id.0) * ROOT_SPACE > bytes {
            root.set(RootState::Vacant, b"");
            let most = bytes / ROOT_SPACE;
            let message = format!("a volume of {bytes} bytes holds {most} subvolumes");
            return Err(Error::refused(
                Code::NoSpace,
                message + ": delete some, or make it larger",
            ));
        }
        let inode = root.table.numbers().allocate_first()?;
        invariant!(inode.ino == root.top(), "the first inode of a subvolume is its top");
        let kind = FileKind::Directory;
        let new = New::empty(kind.mode_bits() | mode & 0o7777);
        let planned = self.namespace().plan_make(&mut txn, who, &top, name, &new, inode.ino);
        // Vacant until the next checkpoint clears it. Otherwise another thread could be given
        // another first inode in it.
        let planned = planned.inspect_err(|_| root.set(RootState::Vacant, b""))?;
        root.set(RootState::Live, name);
        let floor = self.0.store.generation_floor();
        txn.log(Item::Root { ino: inode.ino, state: RootState::Live, floor, name });
        let stamp = planned.core.ctime;
        let mut locked = inode.write();
        let (entry, pending) = self.namespace().apply_make(&mut txn, root, &mut locked, planned)?;
        touch_dir(&mut txn, &top_root.table, &mut top, 1, 1, stamp);
        self.namespace().finish_all(&mut txn, &mut locked, pending)?;
        txn.stamp(&mut top)?;
        txn.stamp(&mut locked)?;
        txn.commit()?;
        Ok(entry)
    }

    /// Returns the subvolumes by number, without the volume's own.
    pub fn list(self) -> Vec<RootInfo> {
        let info = |root: &shoal_txn::Root| RootInfo {
            id: root.id.0,
            name: root.name().to_vec(),
            top: root.top(),
            deleted: root.state() == RootState::Deleted,
            inodes: root.inodes(),
        };
        let used = |root: &&shoal_txn::Root| root.state() != RootState::Vacant;
        self.0.store.roots().iter().skip(1).filter(used).map(info).collect()
    }

    /// Returns the top directory of the subvolume with this name; `ENOENT` if there is none.
    pub fn top(self, name: &[u8]) -> Result<Ino> {
        self.0.store.origin.check()?;
        match self.directories().find_entry(Ino::ROOT, name)? {
            Some(found) if found.child.root() != Ino::ROOT.root() => Ok(found.child),
            _ => Err(Error::Code(Code::NotFound)),
        }
    }

    /// Deletes a subvolume and everything in it. Returns as soon as the name is removed; the
    /// contents are freed in the background, also after a crash. Calls on files in it fail with
    /// `ESTALE`.
    ///
    /// # Errors
    /// `ENOENT` if the name does not exist, `EINVAL` if it is not a subvolume, `EPERM`.
    pub fn delete(self, who: &Caller, name: &[u8]) -> Result<()> {
        self.0.measured(Call::Subvolume, || self.take(who, name))
    }

    fn take(self, who: &Caller, name: &[u8]) -> Result<()> {
        check_root_name(who, name)?;
        let _one = self.0.rooting.lock();
        let mut txn = self.0.begin(records::ROOT_DELETE)?;
        let top_root = self.0.root(Ino::ROOT)?;
        let top_ref = top_root.table.get(Ino::ROOT)?;
        let mut top = top_ref.write();
        let found =
            self.directories().find_entry(Ino::ROOT, name)?.ok_or(Error::Code(Code::NotFound))?;
        if found.child.root() == Ino::ROOT.root() {
            return Err(Error::Code(Code::Invalid));
        }
        let root = self.0.root(found.child)?;
        let here = NameIn::new(Ino::ROOT, &top.inode().core, name);
        // Its generation is of no use: its number is not reused without another one.
        self.directories().remove_entry(&mut txn, &found, &here, 0)?;
        root.set(RootState::Deleted, b"");
        let floor = self.0.store.generation_floor();
        txn.log(Item::Root { ino: root.top(), state: RootState::Deleted, floor, name: b"" });
        touch_dir(&mut txn, &top_root.table, &mut top, -1, -1, now());
        txn.stamp(&mut top)?;
        txn.commit()?;
        self.0.reaping.wake();
        Ok(())
    }
}

fn check_root_name(who: &Caller, name: &[u8]) -> Result<()> {
    match check_name(name) {
        // Empty, "." or "..": invalid as names of a subvolume.
        Err(Error::Code(Code::NotFound | Code::Exists)) => Err(Error::Code(Code::Invalid)),
        other => other,
    }?;
    match who.bypasses() {
        true => Ok(()),
        false => Err(Error::Code(Code::NotPermitted)),
    }
}
