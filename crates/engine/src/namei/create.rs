//! Making files: create, mkdir, mknod, symlink, tmpfile.

use super::{NAME_COST, check_change, check_dir, check_search, touch_dir};
use crate::attr::attr_of;
use crate::clock::now;
use crate::perm;
use crate::types::{Caller, Entry, FileKind, check_name};
use crate::volume::Inner;
use shoal_base::counters::Counter;
use shoal_base::limits::PATH_MAX;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::extent::Extent;
use shoal_format::inode::{Core, FLAG_TMPFILE, Form, Stamp};
use shoal_format::item::Item;
use shoal_itable::InodeRef;
use shoal_txn::{ExtentChange, Root, Txn};
use std::sync::atomic::Ordering;

/// What a new inode shall be.
pub(super) struct New<'a> {
    /// Type and permissions.
    pub mode: u32,
    pub rdev: u32,
    /// Target of a symlink.
    pub target: &'a [u8],
}

impl Inner {
    /// Creates a regular file; `EEXIST` when the name is there.
    pub fn create(&self, who: &Caller, dir: Ino, name: &[u8], mode: u32) -> Result<Entry> {
        let mode = FileKind::Regular.mode_bits() | mode & 0o7777;
        self.make(who, dir, name, &New { mode, rdev: 0, target: b"" })
    }

    /// Makes a directory.
    pub fn mkdir(&self, who: &Caller, dir: Ino, name: &[u8], mode: u32) -> Result<Entry> {
        let mode = FileKind::Directory.mode_bits() | mode & 0o1777;
        self.make(who, dir, name, &New { mode, rdev: 0, target: b"" })
    }

    /// Makes a file of the type in `mode`: regular, pipe, socket or device.
    pub fn mknod(
        &self,
        who: &Caller,
        dir: Ino,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Entry> {
        let mode = if mode & 0o170_000 == 0 { mode | FileKind::Regular.mode_bits() } else { mode };
        match FileKind::from_mode(mode) {
            Some(FileKind::Regular | FileKind::Fifo | FileKind::Socket) => {}
            Some(FileKind::CharDevice | FileKind::BlockDevice) if who.bypasses() => {}
            Some(FileKind::CharDevice | FileKind::BlockDevice | FileKind::Directory) => {
                return Err(Error::Code(Code::NotPermitted));
            }
            _ => return Err(Error::Code(Code::Invalid)),
        }
        self.make(who, dir, name, &New { mode: mode & 0o177_777, rdev, target: b"" })
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, who: &Caller, dir: Ino, name: &[u8], target: &[u8]) -> Result<Entry> {
        if target.is_empty() {
            return Err(Error::Code(Code::NotFound));
        }
        if target.len() >= PATH_MAX {
            return Err(Error::Code(Code::NameTooLong));
        }
        let mode = FileKind::Symlink.mode_bits() | 0o777;
        self.make(who, dir, name, &New { mode, rdev: 0, target })
    }

    /// Makes a file without a name (`O_TMPFILE`), held once; `link` can give it one.
    pub fn tmpfile(&self, who: &Caller, dir: Ino, mode: u32) -> Result<Entry> {
        let mut txn = self.begin_space(NAME_COST)?;
        let root = self.root(dir)?;
        let dir_ref = root.table.get(dir)?;
        let dir_slot = dir_ref.read();
        let above = dir_slot.inode.core;
        check_dir(&above)?;
        perm::check(who, &above, perm::WRITE | perm::EXEC)?;
        let mode = FileKind::Regular.mode_bits() | mode & 0o7777;
        let inode = root.table.allocate()?;
        let new = New { mode, rdev: 0, target: b"" };
        let core = Core { flags: FLAG_TMPFILE, ..new_core(who, &above, &new, now()) };
        let entry = self.fill(&mut txn, root, &inode, core, Fork::default())?;
        self.store.orphans.add(inode.ino);
        txn.log(Item::OrphanAdd { ino: inode.ino });
        self.store.counters.add(Counter::Orphans, 1);
        self.holds.add(inode.ino, 1);
        txn.commit()?;
        Ok(entry)
    }

    /// Allocates an inode and enters it in `dir`: one transaction.
    fn make(&self, who: &Caller, dir: Ino, name: &[u8], new: &New<'_>) -> Result<Entry> {
        let mut txn = self.begin_space(NAME_COST + new.target.len() as u64)?;
        let root = self.root(dir)?;
        let dir_ref = root.table.get(dir)?;
        let mut parent = dir_ref.write();
        let above = parent.inode().core;
        check_search(who, &above)?;
        check_name(name)?;
        check_change(who, &above).map_err(|e| self.exists_first(e, dir, name))?;
        let is_dir = new.mode & 0o170_000 == FileKind::Directory.mode_bits();
        if is_dir && above.nlink == u32::MAX {
            return Err(Error::Code(Code::TooManyLinks));
        }
        let inode = root.table.allocate()?;
        let kind = ((new.mode >> 12) & 15) as u8;
        // What can fail comes first: a long target goes to the device, then the entry to its leaf.
        let ready = self.store_target(inode.ino, new.target).and_then(|target| {
            self.insert_entry(&mut txn, dir, name, inode.ino, kind).map(|()| target)
        });
        let target = match ready {
            Ok(target) => target,
            Err(e) => {
                root.table.give_back(&inode);
                return Err(e);
            }
        };
        let stamp = now();
        let mut core = new_core(who, &above, new, stamp);
        core.nlink = if is_dir { 2 } else { 1 };
        if is_dir {
            core.parent_or_rdev = dir.0;
        }
        core.size = new.target.len() as u64;
        let entry = self.fill(&mut txn, root, &inode, core, target)?;
        touch_dir(&mut txn, &root.table, &mut parent, 1, i64::from(is_dir), stamp);
        txn.commit()?;
        Ok(entry)
    }

    /// Who may search the directory learns that a name exists before being told that writing is not
    /// permitted, as on Linux.
    #[cold]
    pub(super) fn exists_first(&self, e: Error, dir: Ino, name: &[u8]) -> Error {
        match e {
            Error::Code(Code::Access) if matches!(self.find_entry(dir, name), Ok(Some(_))) => {
                Error::Code(Code::Exists)
            }
            other => other,
        }
    }

    /// The data fork of a symlink with this target.
    fn store_target(&self, ino: Ino, target: &[u8]) -> Result<Fork> {
        if target.is_empty() {
            return Ok(Fork::default());
        }
        if target.len() <= self.inline_max() {
            return Ok(Fork { form: Form::Inline, bytes: target.into(), extent: None });
        }
        let extent = self.write_object(ino, 0, &[target])?;
        let mut bytes = Vec::new();
        extent.encode_inline(&mut bytes);
        Ok(Fork { form: Form::Extents, bytes: bytes.into(), extent: Some(extent) })
    }

    /// Makes the inode what it shall be, in memory and in the record.
    pub(super) fn fill(
        &self,
        txn: &mut Txn<'_>,
        root: &Root,
        inode: &InodeRef,
        core: Core,
        fork: Fork,
    ) -> Result<Entry> {
        let ino = inode.ino;
        let mut locked = inode.write();
        let floor = self.store.floor.load(Ordering::Relaxed).max(1);
        let generation = locked.inode().core.generation.wrapping_add(1).max(floor);
        let slot = locked.edit(&root.table, txn.epoch);
        slot.core = Core { generation, lsn: txn.lsn_before(), ..core };
        slot.core.bytes = fork.extent.map_or(0, |e| u64::from(e.len));
        slot.core.data_form = fork.form;
        slot.attr = Box::default();
        txn.log(Item::Core { ino, core: slot.core });
        if fork.form != Form::Empty {
            txn.log(Item::DataFork { ino, form: fork.form, bytes: &fork.bytes });
        }
        if let Some(extent) = &fork.extent {
            self.store.account(extent, ExtentChange::Appears);
        }
        slot.data = fork.bytes;
        root.table.count_inodes(1);
        attr_of(ino, locked.inode())
    }
}

/// A data fork ready to be put in a new inode.
#[derive(Default)]
pub(super) struct Fork {
    form: Form,
    bytes: Box<[u8]>,
    extent: Option<Extent>,
}

/// Core of a new inode: ownership and mode by the rules of set-group-id directories.
pub(super) fn new_core(who: &Caller, above: &Core, new: &New<'_>, stamp: Stamp) -> Core {
    let kind = new.mode & 0o170_000;
    let link = kind == FileKind::Symlink.mode_bits();
    let mut mode = if link { new.mode } else { new.mode & !(who.umask & 0o777) };
    let mut gid = who.gid;
    if above.mode & 0o2000 != 0 {
        gid = above.gid;
        if kind == FileKind::Directory.mode_bits() {
            mode |= 0o2000;
        } else if mode & 0o2010 == 0o2010 && !who.bypasses() && !who.in_group(gid) {
            mode &= !0o2000;
        }
    }
    Core {
        mode,
        uid: who.uid,
        gid,
        parent_or_rdev: u64::from(new.rdev),
        atime: stamp,
        mtime: stamp,
        ctime: stamp,
        btime: stamp,
        ..Core::default()
    }
}
