//! Making files: create, mkdir, mknod, symlink, tmpfile.

use super::{NAME_COST, check_dir, touch_dir, touched};
use crate::attr::attr_of;
use crate::clock::now;
use crate::holds::Orphan;
use crate::parent::NameIn;
use crate::perm;
use crate::records;
use crate::types::{Caller, Entry, FileKind, check_name};
use crate::volume::Inner;
use crate::xattr::Pending;
use shoal_base::invariant;
use shoal_base::limits::PATH_MAX;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::attr::{Attr, Attrs, Id, Link, Namespace};
use shoal_format::dirent::Dirent;
use shoal_format::extent::Extent;
use shoal_format::inode::{Core, FLAG_DEFAULT_ACL, FLAG_TMPFILE, Form, Inode, Stamp};
use shoal_format::intent::Intent;
use shoal_format::item::{Item, size};
use shoal_format::node::Key;
use shoal_itable::{InodeRef, InodeTable, Locked};
use shoal_txn::{ExtentChange, Root, Txn, remote_extents};
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
            // Stands for a name that is not there, in overlays; as a device it is none.
            Some(FileKind::CharDevice) if rdev == 0 => {}
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
        self.reading_first(|| self.try_tmpfile(who, dir, mode))
    }

    fn try_tmpfile(&self, who: &Caller, dir: Ino, mode: u32) -> Result<Entry> {
        let mut txn = self.begin_space(NAME_COST, records::TMPFILE)?;
        let root = self.root(dir)?;
        let dir_ref = root.table.get(dir)?;
        let dir_slot = dir_ref.read();
        let above = dir_slot.inode.core;
        check_dir(&above)?;
        self.permit(who, dir, &dir_slot.inode, perm::WRITE | perm::EXEC)?;
        let mode = FileKind::Regular.mode_bits() | mode & 0o7777;
        let inode = root.table.allocate(dir_ref.at(), above.size)?;
        let new = New { mode, rdev: 0, target: b"" };
        let birth = match self.birth(inode.ino, dir, &dir_slot.inode, None, &new) {
            Ok(birth) => birth,
            Err(e) => {
                root.table.give_back(&inode);
                return Err(e);
            }
        };
        let core = new_core(who, &above, &new, &birth, now());
        let core = Core { flags: FLAG_TMPFILE, ..core };
        let mut locked = inode.write();
        let pending = self.fill(&mut txn, root, &mut locked, core, birth)?;
        let entry = attr_of(inode.ino, locked.inode())?;
        let slot = self.take_slot(&mut txn, inode.ino)?;
        self.holds.add(inode.ino, 1);
        self.holds.orphaned(inode.ino, Orphan::Slot(slot));
        for intent in pending {
            self.finish(&mut txn, &mut locked, Some(intent))?;
        }
        txn.stamp(&mut locked)?;
        txn.commit()?;
        Ok(entry)
    }

    /// Allocates an inode and enters it in `dir`: one transaction.
    fn make(&self, who: &Caller, dir: Ino, name: &[u8], new: &New<'_>) -> Result<Entry> {
        self.reading_first(|| self.try_make(who, dir, name, new))
    }

    #[inline]
    fn try_make(&self, who: &Caller, dir: Ino, name: &[u8], new: &New<'_>) -> Result<Entry> {
        let mut txn = self.begin_space(NAME_COST + new.target.len() as u64, records::CREATE)?;
        let root = self.root(dir)?;
        let pin = root.table.pin();
        let dir_ref = root.table.borrow(&pin, dir)?;
        // A failure is found again under the lock, in the order of errors that Linux has.
        let ahead = root.table.allocate_ahead(dir_ref.at()).unwrap_or(None);
        let ahead = Unused(&root.table, ahead);
        let mut parent = dir_ref.write();
        let above = parent.inode().core;
        self.check_search(who, dir, parent.inode())?;
        check_name(name)?;
        self.check_change(who, dir, parent.inode()).map_err(|e| self.exists_first(e, dir, name))?;
        let is_dir = new.mode & 0o170_000 == FileKind::Directory.mode_bits();
        if is_dir && above.nlink == u32::MAX {
            return Err(Error::Code(Code::TooManyLinks));
        }
        let inode = match ahead.take() {
            Some(inode) => inode,
            None => root.table.allocate(dir_ref.at(), above.size)?,
        };
        let kind = ((new.mode >> 12) & 15) as u8;
        // What can fail comes first: lists to inherit, a long target that goes to the device, then
        // the entry to its leaf.
        let here = NameIn::new(dir, &above, name);
        let ready =
            self.birth(inode.ino, dir, parent.inode(), Some(&here), new).and_then(|birth| {
                let key = self.insert_entry(&mut txn, dir, name, inode.ino, kind)?;
                Ok((birth, key))
            });
        let (birth, key) = match ready {
            Ok(ready) => ready,
            Err(e) => {
                root.table.give_back(&inode);
                return Err(e);
            }
        };
        let stamp = now();
        let mut core = new_core(who, &above, new, &birth, stamp);
        core.nlink = if is_dir { 2 } else { 1 };
        if is_dir {
            core.parent_or_rdev = dir.0;
        }
        core.size = new.target.len() as u64;
        let made = Made { name: &here, key, kind };
        let links = i64::from(is_dir);
        // From here on others can find the inode as soon as they have the directory.
        let mut locked = inode.write();
        let entry = if let Some(bytes) = record_size(&birth, &made) {
            // What orders this create is the number of its record: the directory is released with
            // it, before the inode is filled and the record encoded and staged.
            txn.number(bytes)?;
            let touch = touched(&mut txn, &root.table, &mut parent, 1, links, stamp);
            txn.stamp(&mut parent)?;
            drop(parent);
            self.enter(&mut txn, root, &mut locked, core, birth, made, &mut |txn| {
                txn.log(touch.clone());
            })?
        } else {
            let entry = self.enter(&mut txn, root, &mut locked, core, birth, made, &mut |txn| {
                touch_dir(txn, &root.table, &mut parent, 1, links, stamp);
            })?;
            txn.stamp(&mut parent)?;
            entry
        };
        txn.stamp(&mut locked)?;
        txn.commit()?;
        Ok(entry)
    }

    /// Fills the inode of an entry that has been inserted, and completes the record: with what
    /// `touch` adds for the directory, and with the item of the entry if it is still wanting.
    #[inline]
    pub(super) fn enter(
        &self,
        txn: &mut Txn<'_>,
        root: &Root,
        locked: &mut Locked<'_>,
        core: Core,
        birth: Birth,
        made: Made<'_>,
        touch: &mut dyn FnMut(&mut Txn<'_>),
    ) -> Result<Entry> {
        let (ino, sole, name) = (locked.ino(), birth.sole, made.name);
        let pending = self.fill(txn, root, locked, core, birth)?;
        invariant!(core.nlink > 0, "inode {ino} is entered without links");
        let named =
            |attr: Attr<'_>| attr.name == name.name && attr.link(ino.root()) == Some(name.link);
        invariant!(
            !sole || Attr::decode_whole(&locked.inode().attr).is_some_and(named),
            "inode {ino} does not know its name"
        );
        let entry = Dirent { child: ino, kind: made.kind, name: name.name };
        match made.key {
            Some(Key { lo, .. }) if sole => {
                let Link { dir, generation } = name.link;
                txn.log(Item::Named { dir, generation, lo, entry });
            }
            Some(key) => self.log_entry(txn, name.link.dir, key, entry),
            None if sole => {
                txn.log(Item::AttrFork { ino, form: Form::Inline, bytes: &locked.inode().attr });
            }
            None => {}
        }
        let entry = attr_of(ino, locked.inode())?;
        touch(txn);
        for intent in pending {
            self.finish(txn, locked, Some(intent))?;
        }
        Ok(entry)
    }

    /// Who may search the directory learns that a name exists before being told that writing is not
    /// permitted, as on Linux.
    #[cold]
    pub(super) fn exists_first(&self, e: Error, dir: Ino, name: &[u8]) -> Error {
        match e {
            Error::Code(Code::Access) => match self.find_entry(dir, name) {
                Ok(Some(_)) => Error::Code(Code::Exists),
                Err(cold @ Error::Cold(_)) => cold,
                Ok(None) | Err(_) => e,
            },
            other => other,
        }
    }

    /// All that a new inode is to hold, so far as it can fail: what it inherits, its first
    /// name, its target.
    #[inline]
    pub(super) fn birth(
        &self,
        ino: Ino,
        dir: Ino,
        above: &Inode,
        name: Option<&NameIn<'_>>,
        new: &New<'_>,
    ) -> Result<Birth> {
        let mut birth = Birth { mode: new.mode, ..Birth::default() };
        birth.attr = name.map(|name| self.first_parent(ino.root(), name)).unwrap_or_default();
        birth.sole = !birth.attr.is_empty();
        if above.core.flags & FLAG_DEFAULT_ACL != 0 {
            self.inherit(ino, (dir, above), new, &mut birth)?;
        }
        if birth.attr.len() > self.inline_max() || self.options.attr_intents {
            birth.leave_inode();
            for attr in birth.later.iter().filter_map(|set| Attr::decode_whole(set)) {
                self.can_put_in_tree(ino, &attr.id(ino.root()))?;
            }
        }
        if !new.target.is_empty() {
            self.store_target(ino, new.target, &mut birth)?;
        }
        Ok(birth)
    }

    /// Adds what a new inode has from the default list of its directory.
    #[cold]
    fn inherit(
        &self,
        ino: Ino,
        (dir, above): (Ino, &Inode),
        new: &New<'_>,
        birth: &mut Birth,
    ) -> Result<()> {
        let heir = self.inherited(dir, above, new.mode)?;
        (birth.mode, birth.inherits, birth.flags) = (heir.mode, heir.applies, heir.flags);
        let mut fork = std::mem::take(&mut birth.attr).into_vec();
        for (name, bytes) in &heir.attrs {
            let id = Id::new(Namespace::System, name);
            let value = self.store_value(ino, &id, bytes)?;
            Attr { space: id.space, name, value }.encode(&mut fork);
            birth.sole = false;
        }
        birth.attr = fork.into();
        Ok(())
    }

    /// The data fork of a symlink with this target, in the room that its attributes leave.
    fn store_target(&self, ino: Ino, target: &[u8], birth: &mut Birth) -> Result<()> {
        let room = self.inline_max() - birth.attr.len();
        if target.len() <= room {
            (birth.form, birth.data) = (Form::Inline, target.into());
            return Ok(());
        }
        let extent = self.write_object(ino, 0, &[target])?;
        birth.extent = Some(extent);
        if extent.inline_len() <= room {
            let mut bytes = Vec::with_capacity(extent.inline_len());
            extent.encode_inline(&mut bytes);
            (birth.form, birth.data) = (Form::Extents, bytes.into());
        } else {
            birth.form = Form::Tree;
            self.read_records(ino, &[], &[extent], None)?;
        }
        Ok(())
    }

    /// Makes the inode what it shall be, in memory and in the record; all but the item that says
    /// that it has its parent pointer and nothing else, which is left to the caller.
    pub(super) fn fill(
        &self,
        txn: &mut Txn<'_>,
        root: &Root,
        locked: &mut Locked<'_>,
        core: Core,
        birth: Birth,
    ) -> Result<Vec<Pending>> {
        let ino = locked.ino();
        invariant!(!locked.inode().core.in_use(), "inode {ino} was given out while in use");
        let floor = self.store.floor.load(Ordering::Relaxed).max(1);
        let step = u32::from(!planted::is(Defect::GenerationKept));
        let generation = locked.inode().core.generation.wrapping_add(step).max(floor);
        txn.will_log_core(locked);
        let slot = locked.edit(&root.table, txn.epoch);
        slot.core = Core { generation, ..core };
        slot.core.flags |= birth.flags;
        slot.core.bytes = birth.extent.map_or(0, |e| u64::from(e.stored_len()));
        slot.core.data_form = birth.form;
        slot.core.attr_form = if birth.attr.is_empty() { Form::Empty } else { Form::Inline };
        txn.log(Item::Core { ino, core: slot.core });
        if birth.form != Form::Empty {
            txn.log(Item::DataFork { ino, form: birth.form, bytes: &birth.data });
        }
        if !birth.sole && !birth.attr.is_empty() {
            txn.log(Item::AttrFork { ino, form: Form::Inline, bytes: &birth.attr });
            remote_extents(&birth.attr)
                .for_each(|extent| self.store.account(&extent, ExtentChange::Appears));
        }
        (slot.data, slot.attr) = (birth.data, birth.attr);
        root.table.count_inodes(1);
        if let Some(extent) = &birth.extent {
            self.store.account(extent, ExtentChange::Appears);
            if birth.form == Form::Tree {
                self.put_first_record(txn, ino, extent)?;
            }
        }
        let intent = |set| Intent { ino, generation, remove: Vec::new(), set };
        Ok(birth.later.into_iter().map(|set| self.log_intent(txn, intent(set))).collect())
    }
}

/// Bytes of the record of a new inode that has its name and nothing else, in the directory that it
/// is made in. `None`: it has more.
#[inline]
fn record_size(birth: &Birth, made: &Made<'_>) -> Option<usize> {
    let plain = birth.sole && birth.form == Form::Empty && made.key.is_some();
    plain.then_some(size::CORE + size::named(made.name.name.len()) + size::DIR_TOUCH)
}

/// A number that was taken and is given back, unless it is used.
struct Unused<'t>(&'t InodeTable, Option<InodeRef>);

impl Unused<'_> {
    fn take(mut self) -> Option<InodeRef> {
        self.1.take()
    }
}

impl Drop for Unused<'_> {
    fn drop(&mut self) {
        if let Some(inode) = &self.1 {
            self.0.give_back(inode);
        }
    }
}

/// An entry that was made for a new inode.
pub(super) struct Made<'a> {
    pub name: &'a NameIn<'a>,
    /// Its item is still wanting.
    pub key: Option<Key>,
    pub kind: u8,
}

/// What a new inode holds.
#[derive(Default)]
pub(super) struct Birth {
    /// Type and permissions, after what it inherits.
    mode: u32,
    /// The umask does not count.
    inherits: bool,
    flags: u32,
    form: Form,
    data: Box<[u8]>,
    extent: Option<Extent>,
    attr: Box<[u8]>,
    /// The attribute fork is the parent pointer of the entry, nothing else.
    sole: bool,
    /// Attributes that have no room in the inode, encoded.
    later: Vec<Vec<u8>>,
}

impl Birth {
    /// The attributes do not fit: they follow one by one.
    #[cold]
    fn leave_inode(&mut self) {
        let fork = std::mem::take(&mut self.attr);
        self.later = Attrs::new(&fork).flatten().map(|attr| attr.to_bytes()).collect();
        self.sole = false;
    }
}

/// Core of a new inode: ownership and mode by the rules of set-group-id directories.
pub(super) fn new_core(
    who: &Caller,
    above: &Core,
    new: &New<'_>,
    birth: &Birth,
    stamp: Stamp,
) -> Core {
    let kind = new.mode & 0o170_000;
    let link = kind == FileKind::Symlink.mode_bits();
    // The umask is not for symlinks, nor where a default access control list stands in its place.
    let masked = !link && !birth.inherits;
    let mut mode = if masked { birth.mode & !(who.umask & 0o777) } else { birth.mode };
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
