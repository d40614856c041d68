//! The contents of a new inode. The steps that can fail are planned before any change; then the
//! inode is filled.

use crate::name::NameIn;
use crate::namei::Namespace;
use crate::permissions::Inherited;
use crate::types::{Caller, FileKind};
use crate::xattr::Pending;
use shoal_base::invariant;
use shoal_base::planted::{self, Defect};
use shoal_base::{Ino, Result};
use shoal_format::attr::{self, Attr, Attrs, Id};
use shoal_format::extent::Extent;
use shoal_format::inode::{Core, FLAG_DEFAULT_ACL, Form, Inode, Stamp};
use shoal_format::intent::Intent;
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::{ExtentChange, Root, Txn, remote_extents};

/// A new inode, as requested.
pub(crate) struct New<'a> {
    /// Type and permissions.
    pub mode: u32,
    pub rdev: u32,
    /// Target of a symlink, contents of a file.
    pub contents: &'a [u8],
    /// The contents as objects that have been written; empty if they fit in the inode.
    pub extents: &'a [Extent],
}

impl New<'static> {
    /// Returns an inode without contents.
    pub(crate) fn empty(mode: u32) -> New<'static> {
        New { mode, rdev: 0, contents: b"", extents: &[] }
    }
}

impl New<'_> {
    /// Its type, as in an entry.
    #[inline]
    pub(crate) fn kind(&self) -> u8 {
        ((self.mode >> 12) & 15) as u8
    }
    #[inline]
    pub(crate) fn is_dir(&self) -> bool {
        self.kind() == FileKind::Directory as u8
    }
}

/// The forks and flags of a new inode.
#[derive(Default)]
pub(crate) struct Birth {
    /// Type and permissions, after inheritance.
    mode: u32,
    /// The umask does not apply.
    inherits: bool,
    flags: u32,
    form: Form,
    data: Box<[u8]>,
    extents: Vec<Extent>,
    attr: Box<[u8]>,
    /// The attribute fork consists of the parent pointer of the entry only.
    pub sole: bool,
    /// Attributes that do not fit in the inode, encoded.
    later: Vec<Vec<u8>>,
}

impl Birth {
    /// Returns a birth with these inherited attributes, which are not in its fork yet.
    pub(crate) fn inheriting(heir: &Inherited) -> Birth {
        Birth { mode: heir.mode, inherits: heir.applies, flags: heir.flags(), ..Birth::default() }
    }
    /// Returns whether the inode has its first parent pointer and nothing else.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.sole && self.form == Form::Empty
    }
    /// Moves the attributes out of the inode, to be added one by one later.
    #[cold]
    fn leave_inode(&mut self) {
        let fork = std::mem::take(&mut self.attr);
        self.later = Attrs::new(&fork).flatten().map(|attr| attr.to_bytes()).collect();
        self.sole = false;
    }
}

impl Namespace<'_> {
    /// Plans the contents of a new inode: inherited attributes, first name, data. All steps that
    /// can fail are here.
    #[inline]
    pub(crate) fn birth(
        self,
        ino: Ino,
        dir: Ino,
        above: &Inode,
        name: Option<&NameIn<'_>>,
        new: &New<'_>,
    ) -> Result<Birth> {
        let mut birth = Birth { mode: new.mode, ..Birth::default() };
        birth.attr =
            name.map(|name| self.paths().first_parent(ino.root(), name)).unwrap_or_default();
        birth.sole = !birth.attr.is_empty();
        if above.core.flags & FLAG_DEFAULT_ACL != 0 {
            self.inherit(ino, (dir, above), new, &mut birth)?;
        }
        self.place_attrs(ino, &mut birth)?;
        if !new.contents.is_empty() {
            self.store_contents(ino, new, &mut birth)?;
        }
        Ok(birth)
    }

    /// Plans an inode without a name and without contents, with one attribute.
    pub(crate) fn birth_with(self, ino: Ino, attr: &Attr<'_>) -> Result<Birth> {
        let mut birth = Birth { attr: attr.to_bytes().into(), ..Birth::default() };
        self.place_attrs(ino, &mut birth)?;
        Ok(birth)
    }

    /// Moves the attributes out of the inode if they do not fit there.
    #[inline]
    fn place_attrs(self, ino: Ino, birth: &mut Birth) -> Result<()> {
        if birth.attr.len() > self.objects().inline_max() || self.0.options.lab().attr_intents {
            birth.leave_inode();
            for attr in birth.later.iter().filter_map(|set| Attr::decode_whole(set)) {
                self.xattrs().can_put_in_tree(ino, &attr.id(ino.root()))?;
            }
        }
        Ok(())
    }

    /// Adds the attributes inherited from the default ACL of the directory.
    #[cold]
    fn inherit(
        self,
        ino: Ino,
        (dir, above): (Ino, &Inode),
        new: &New<'_>,
        birth: &mut Birth,
    ) -> Result<()> {
        let heir = self.permissions().inherited(dir, above, new.mode)?;
        let mut fork = std::mem::take(&mut birth.attr).into_vec();
        let mut sole = birth.sole;
        for (name, bytes) in heir.attrs() {
            let id = Id::new(attr::Namespace::System, name);
            let value = self.xattrs().store_value(ino, &id, &bytes)?;
            Attr { space: id.space, name, value }.encode(&mut fork);
            sole = false;
        }
        *birth = Birth { attr: fork.into(), sole, ..Birth::inheriting(&heir) };
        Ok(())
    }

    /// Plans the data fork with these contents, in the space that the attributes leave.
    fn store_contents(self, ino: Ino, new: &New<'_>, birth: &mut Birth) -> Result<()> {
        let room = self.objects().inline_max() - birth.attr.len();
        if new.contents.len() <= room {
            (birth.form, birth.data) = (Form::Inline, new.contents.into());
            return Ok(());
        }
        birth.extents = match new.extents {
            [] => self
                .objects()
                .write_contents(ino, new.contents)?
                .into_iter()
                .map(|(e, _)| e)
                .collect(),
            written => written.to_vec(),
        };
        if birth.extents.iter().map(Extent::inline_len).sum::<usize>() <= room {
            let mut bytes = Vec::new();
            birth.extents.iter().for_each(|extent| extent.encode_inline(&mut bytes));
            (birth.form, birth.data) = (Form::Extents, bytes.into());
        } else {
            birth.form = Form::Tree;
            self.objects().read_records(ino, &[], &birth.extents, None)?;
        }
        Ok(())
    }

    /// Fills a new inode, in memory and in the record. The caller logs the item for an inode that
    /// has its parent pointer and nothing else. Returns the intents that must be finished
    /// ([`Namespace::finish`]) once the record is complete.
    pub(crate) fn fill(
        self,
        txn: &mut Txn<'_>,
        root: &Root,
        locked: &mut Locked<'_>,
        core: Core,
        birth: Birth,
    ) -> Result<Vec<Pending>> {
        let ino = locked.ino();
        invariant!(!locked.inode().core.in_use(), "inode {ino} was allocated while in use");
        let floor = self.0.store.generation_floor().max(1);
        let step = u32::from(!planted::is(Defect::GenerationKept));
        let generation = locked.inode().core.generation.wrapping_add(step).max(floor);
        txn.will_log_core(locked);
        let slot = locked.edit(&root.table, txn.epoch());
        slot.core = Core { generation, ..core };
        slot.core.flags |= birth.flags;
        slot.core.bytes = birth.extents.iter().map(|e| u64::from(e.stored_len())).sum();
        slot.core.data_form = birth.form;
        slot.core.attr_form = if birth.attr.is_empty() { Form::Empty } else { Form::Inline };
        txn.log(Item::Core { ino, core: slot.core });
        if birth.form != Form::Empty {
            txn.log(Item::DataFork { ino, form: birth.form, bytes: &birth.data });
        }
        if !birth.sole && !birth.attr.is_empty() {
            txn.log(Item::AttrFork { ino, form: Form::Inline, bytes: &birth.attr });
            remote_extents(&birth.attr)
                .for_each(|extent| txn.account(&extent, ExtentChange::Appears));
        }
        (slot.data, slot.attr) = (birth.data, birth.attr);
        txn.count_inodes(&root.table, 1);
        birth.extents.iter().for_each(|extent| txn.account(extent, ExtentChange::Appears));
        if birth.form == Form::Tree {
            self.objects().put_first_records(txn, ino, &birth.extents)?;
        }
        let intent = |set| Intent { ino, generation, remove: Vec::new(), set };
        Ok(birth.later.into_iter().map(|set| self.xattrs().log_intent(txn, intent(set))).collect())
    }
}

/// Returns the core of a new inode. Ownership and mode follow the rules of set-group-id
/// directories; it is in the project of the directory.
pub(crate) fn new_core(
    who: &Caller,
    above: &Core,
    new: &New<'_>,
    birth: &Birth,
    stamp: Stamp,
) -> Core {
    let kind = new.mode & 0o170_000;
    let link = kind == FileKind::Symlink.mode_bits();
    // The umask does not apply to symlinks, nor if a default access control list replaces it.
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
        size: new.contents.len() as u64,
        parent_or_rdev: u64::from(new.rdev),
        project: above.project,
        atime: stamp,
        mtime: stamp,
        ctime: stamp,
        btime: stamp,
        ..Core::default()
    }
}
