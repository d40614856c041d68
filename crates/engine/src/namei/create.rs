//! Creating files: create, mkdir, mknod, symlink, tmpfile.
//!
//! All but the last use [`Namespace::try_make`]: lock the directory, *check*, allocate a number,
//! *plan* (the steps that can fail), *apply* to memory and record, commit. A batch takes the same
//! steps (`batch/apply.rs`).

use super::birth::{Birth, New, new_core};
use super::{NAME_COST, check_dir, touch_dir, touched};
use crate::clock::now;
use crate::name::NameIn;
use crate::namei::Namespace;
use crate::permissions;
use crate::records;
use crate::stat::attr_of;
use crate::state::Orphan;
use crate::types::{Caller, Entry, FileKind, check_name};
use crate::xattr::Pending;
use shoal_base::invariant;
use shoal_base::limits::PATH_MAX;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::attr::{Attr, Link};
use shoal_format::dirent::Dirent;
use shoal_format::inode::{Core, FLAG_TMPFILE, Form};
use shoal_format::item::{Item, size};
use shoal_format::node::Key;
use shoal_itable::{Charge, InodeRef, InodeTable, Locked};
use shoal_txn::{Root, Txn};

impl<'v> Namespace<'v> {
    /// Creates a regular file; `EEXIST` if the name exists.
    pub fn create(self, who: &Caller, dir: Ino, name: &[u8], mode: u32) -> Result<Entry> {
        let mode = FileKind::Regular.mode_bits() | mode & 0o7777;
        self.0.measured(Call::Create, || self.make(who, dir, name, &New::empty(mode)))
    }

    /// Creates a directory.
    pub fn mkdir(self, who: &Caller, dir: Ino, name: &[u8], mode: u32) -> Result<Entry> {
        let mode = FileKind::Directory.mode_bits() | mode & 0o1777;
        self.0.measured(Call::Mkdir, || self.make(who, dir, name, &New::empty(mode)))
    }

    /// Creates a file of the type in `mode`: regular, pipe, socket or device.
    pub fn mknod(self, who: &Caller, dir: Ino, name: &[u8], mode: u32, rdev: u32) -> Result<Entry> {
        self.0.measured(Call::Create, || self.make_node(who, dir, name, mode, rdev))
    }

    fn make_node(self, who: &Caller, dir: Ino, name: &[u8], mode: u32, rdev: u32) -> Result<Entry> {
        let mode = if mode & 0o170_000 == 0 { mode | FileKind::Regular.mode_bits() } else { mode };
        match FileKind::from_mode(mode) {
            Some(FileKind::Regular | FileKind::Fifo | FileKind::Socket) => {}
            Some(FileKind::CharDevice | FileKind::BlockDevice) if who.bypasses() => {}
            // In overlay filesystems this marks a deleted name (whiteout). It is no usable device.
            Some(FileKind::CharDevice) if rdev == 0 => {}
            Some(FileKind::CharDevice | FileKind::BlockDevice | FileKind::Directory) => {
                return Err(Error::Code(Code::NotPermitted));
            }
            _ => return Err(Error::Code(Code::Invalid)),
        }
        self.make(who, dir, name, &New { rdev, ..New::empty(mode & 0o177_777) })
    }

    /// Creates a symbolic link.
    pub fn symlink(self, who: &Caller, dir: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        self.0.measured(Call::Symlink, || self.make(who, dir, name, &new_symlink(target)?))
    }

    /// Creates a file without a name (`O_TMPFILE`), with one reference. `link` can give it a name.
    pub fn tmpfile(self, who: &Caller, dir: Ino, mode: u32) -> Result<Entry> {
        self.0.measured(Call::Create, || self.0.reading_first(|| self.try_tmpfile(who, dir, mode)))
    }

    fn try_tmpfile(self, who: &Caller, dir: Ino, mode: u32) -> Result<Entry> {
        let mut txn = self.0.begin_space(NAME_COST, records::TMPFILE)?;
        let root = self.0.root(dir)?;
        let dir_ref = root.table.get(dir)?;
        let dir_slot = dir_ref.read();
        let above = dir_slot.inode.core;
        check_dir(&above)?;
        self.permissions().permit(
            who,
            dir,
            &dir_slot.inode,
            permissions::WRITE | permissions::EXEC,
        )?;
        let mode = FileKind::Regular.mode_bits() | mode & 0o7777;
        let inode = Unused::new(
            &root.table,
            Some(root.table.numbers().allocate(dir_ref.at(), above.size)?),
        );
        let new = New::empty(mode);
        let charge = self.charge_of(above.project, &new)?;
        let birth = self.birth(inode.ino()?, dir, &dir_slot.inode, None, &new)?;
        let inode = inode.take()?;
        let core = new_core(who, &above, &new, &birth, now());
        let core = Core { flags: FLAG_TMPFILE, ..core };
        let mut locked = inode.write();
        locked.pay(charge);
        let pending = self.fill(&mut txn, root, &mut locked, core, birth)?;
        let entry = attr_of(inode.ino, locked.inode())?;
        let slot = self.orphans().take_slot(&mut txn, inode.ino)?;
        self.0.holds.add(inode.ino, 1);
        self.0.holds.orphaned(inode.ino, Orphan::Slot(slot));
        self.finish_all(&mut txn, &mut locked, pending)?;
        txn.stamp(&mut locked)?;
        txn.commit()?;
        Ok(entry)
    }

    /// Allocates an inode and inserts its entry in `dir`, in one transaction.
    fn make(self, who: &Caller, dir: Ino, name: &[u8], new: &New<'_>) -> Result<Entry> {
        self.0.reading_first(|| self.try_make(who, dir, name, new))
    }

    #[inline]
    fn try_make(self, who: &Caller, dir: Ino, name: &[u8], new: &New<'_>) -> Result<Entry> {
        let mut txn = self.0.begin_space(NAME_COST + new.contents.len() as u64, records::CREATE)?;
        let root = self.0.root(dir)?;
        let pin = root.table.pin();
        let dir_ref = root.table.borrow(&pin, dir)?;
        // A failure is ignored here: under the lock it occurs again, in the error order of Linux.
        let ahead = root.table.numbers().allocate_ahead(dir_ref.at()).unwrap_or(None);
        let mut number = Unused::new(&root.table, ahead);
        let mut parent = dir_ref.write();
        self.check_make(who, &parent, name, new.is_dir())?;
        if number.is_none() {
            let entries = parent.inode().core.size;
            number = Unused::new(
                &root.table,
                Some(root.table.numbers().allocate(dir_ref.at(), entries)?),
            );
        }
        let charge = self.charge_new(&parent, name, new)?;
        let planned = self.plan_make(&mut txn, who, &parent, name, new, number.ino()?)?;
        let inode = number.take()?;
        let (links, stamp) = (i64::from(new.is_dir()), planned.core.ctime);
        // From here on others can find the inode as soon as the directory is unlocked.
        let mut locked = inode.write();
        locked.pay(charge);
        let entry = if let Some(bytes) = planned.record_size() {
            // The number of its record determines the order of this create. Therefore the directory
            // is unlocked once the number is allocated, before the inode is filled and the record
            // is encoded and staged.
            txn.number(bytes)?;
            let touch = touched(&mut txn, &root.table, &mut parent, 1, links, stamp);
            txn.stamp(&mut parent)?;
            drop(parent);
            let (entry, _) = self.apply_make(&mut txn, root, &mut locked, planned)?;
            txn.log(touch);
            entry
        } else {
            let (entry, pending) = self.apply_make(&mut txn, root, &mut locked, planned)?;
            touch_dir(&mut txn, &root.table, &mut parent, 1, links, stamp);
            self.finish_all(&mut txn, &mut locked, pending)?;
            txn.stamp(&mut parent)?;
            entry
        };
        txn.stamp(&mut locked)?;
        txn.commit()?;
        Ok(entry)
    }

    /// Checks that `who` may create a file of this name in a locked directory.
    #[inline(always)]
    pub(crate) fn check_make(
        self,
        who: &Caller,
        parent: &Locked<'_>,
        name: &[u8],
        is_dir: bool,
    ) -> Result<()> {
        let (dir, inode) = (parent.ino(), parent.inode());
        self.check_search(who, dir, inode)?;
        check_name(name)?;
        self.check_change(who, dir, inode).map_err(|e| self.exists_first(e, dir, name))?;
        match is_dir && inode.core.nlink == u32::MAX {
            true => Err(Error::Code(Code::TooManyLinks)),
            false => Ok(()),
        }
    }

    /// Takes in advance the share of a new inode in the quota of its directory, which is locked.
    ///
    /// # Errors
    /// `EDQUOT`, or `EEXIST` if the name exists: this is first, as in Linux.
    #[inline]
    pub(crate) fn charge_new(
        self,
        parent: &Locked<'_>,
        name: &[u8],
        new: &New<'_>,
    ) -> Result<Charge<'v>> {
        match parent.inode().core.project {
            0 => Ok(Charge::none()),
            project => {
                self.charge_of(project, new).map_err(|e| self.exists_first(e, parent.ino(), name))
            }
        }
    }

    /// Takes in advance the share of a new inode in the quota of a project.
    pub(super) fn charge_of(self, project: u32, new: &New<'_>) -> Result<Charge<'v>> {
        let bytes = match new.extents {
            [] if new.contents.len() <= self.objects().inline_max() => 0,
            [] => new.contents.len() as u64,
            extents => extents.iter().map(|extent| u64::from(extent.stored_len())).sum(),
        };
        self.0.store.roots().projects().charge(project, 1, bytes)
    }

    /// Plans a new inode in a locked directory, and inserts its entry, which is the first change.
    /// If this fails, nothing has changed. The steps after it do not fail.
    // Inlined, as its kin: returned through memory, a plan costs a create 5 %.
    #[inline(always)]
    pub(crate) fn plan_make<'n>(
        self,
        txn: &mut Txn<'_>,
        who: &Caller,
        parent: &Locked<'_>,
        name: &'n [u8],
        new: &New<'_>,
        ino: Ino,
    ) -> Result<Making<'n>> {
        let (dir, above) = (parent.ino(), parent.inode());
        let name = NameIn::new(dir, &above.core, name);
        let birth = self.birth(ino, dir, above, Some(&name), new)?;
        let mut core = new_core(who, &above.core, new, &birth, now());
        core.nlink = if new.is_dir() { 2 } else { 1 };
        if ino.root() != dir.root() {
            core.project = 0;
        }
        if new.is_dir() {
            core.parent_or_rdev = dir.0;
        }
        let key = self.directories().insert_entry(txn, dir, name.name, ino, new.kind())?;
        Ok(Making { name, kind: new.kind(), key, birth, core })
    }

    /// Fills the inode of an inserted entry, in memory and in the record. Returns the intents that
    /// must be finished once the record has the directory's item too.
    #[inline(always)]
    pub(crate) fn apply_make(
        self,
        txn: &mut Txn<'_>,
        root: &Root,
        locked: &mut Locked<'_>,
        making: Making<'_>,
    ) -> Result<(Entry, Vec<Pending>)> {
        let Making { name, kind, key, birth, core } = making;
        let (ino, sole) = (locked.ino(), birth.sole);
        let pending = self.fill(txn, root, locked, core, birth)?;
        invariant!(core.nlink > 0, "inode {ino} has an entry but no links");
        let named =
            |attr: Attr<'_>| attr.name == name.name && attr.link(ino.root()) == Some(name.link);
        invariant!(
            !sole || Attr::decode_whole(&locked.inode().attr).is_some_and(named),
            "inode {ino} has no parent pointer of its name"
        );
        let entry = Dirent { child: ino, kind, name: name.name };
        match key {
            Some(Key { lo, .. }) if sole => {
                let Link { dir, generation } = name.link;
                txn.log(Item::Named { dir, generation, lo, entry });
            }
            Some(key) => self.directories().log_entry(txn, name.link.dir, key, entry),
            None if sole => {
                txn.log(Item::AttrFork { ino, form: Form::Inline, bytes: &locked.inode().attr });
            }
            None => {}
        }
        Ok((attr_of(ino, locked.inode())?, pending))
    }

    /// Finishes the intents of one inode, in order.
    #[inline]
    pub(crate) fn finish_all(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        pending: Vec<Pending>,
    ) -> Result<()> {
        pending.into_iter().try_for_each(|intent| self.intents().finish(txn, locked, Some(intent)))
    }

    /// Turns `EACCES` or `EDQUOT` into `EEXIST` if the name exists: a caller who may search the
    /// directory learns this first, as in Linux.
    #[cold]
    pub(super) fn exists_first(self, e: Error, dir: Ino, name: &[u8]) -> Error {
        match e {
            Error::Code(Code::Access | Code::Quota) => {
                match self.directories().find_entry(dir, name) {
                    Ok(Some(_)) => Error::Code(Code::Exists),
                    Err(cold @ Error::Cold(_)) => cold,
                    Ok(None) | Err(_) => e,
                }
            }
            other => other,
        }
    }
}

/// Returns a new symlink with this target.
///
/// # Errors
/// `ENOENT` for an empty target, `ENAMETOOLONG` for one of [`PATH_MAX`] bytes or more.
pub(crate) fn new_symlink(target: &[u8]) -> Result<New<'_>> {
    match target.len() {
        0 => Err(Error::Code(Code::NotFound)),
        PATH_MAX.. => Err(Error::Code(Code::NameTooLong)),
        _ => Ok(New { contents: target, ..New::empty(FileKind::Symlink.mode_bits() | 0o777) }),
    }
}

/// A new inode whose entry has been inserted.
pub(crate) struct Making<'n> {
    name: NameIn<'n>,
    kind: u8,
    /// Key of the entry, whose item has not been logged yet; `None` if it has.
    key: Option<Key>,
    birth: Birth,
    pub core: Core,
}

impl Making<'_> {
    /// Size in bytes of the record of a new inode whose only content is the name in its directory.
    /// `None` if it has more.
    #[inline]
    fn record_size(&self) -> Option<usize> {
        let plain = self.birth.is_plain() && self.key.is_some();
        plain.then_some(size::CORE + size::named(self.name.name.len()) + size::DIR_TOUCH)
    }
}

/// An inode number that is released on drop unless it has been taken.
pub(crate) struct Unused<'t>(&'t InodeTable, Option<InodeRef>);

impl<'t> Unused<'t> {
    pub(crate) fn new(table: &'t InodeTable, inode: Option<InodeRef>) -> Unused<'t> {
        Unused(table, inode)
    }
    #[inline]
    pub(crate) fn is_none(&self) -> bool {
        self.1.is_none()
    }
    #[inline]
    pub(crate) fn ino(&self) -> Result<Ino> {
        self.1.as_ref().map(|inode| inode.ino).ok_or(Error::Code(Code::Stale))
    }
    pub(crate) fn place(&self) -> Result<InodeRef> {
        self.1.clone().ok_or(Error::Code(Code::Stale))
    }
    #[inline]
    pub(crate) fn take(mut self) -> Result<InodeRef> {
        self.1.take().ok_or(Error::Code(Code::Stale))
    }
}

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        if let Some(inode) = &self.1 {
            self.0.numbers().give_back(inode);
        }
    }
}
