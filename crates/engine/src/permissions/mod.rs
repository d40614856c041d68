//! Permissions: mode bits (`mode.rs`), access control lists (`acl.rs`) and their changes
//! (`acl_change.rs`), what a new inode inherits, and a file's capabilities, which go when its
//! contents or owner change.

pub(crate) mod acl;
mod acl_change;
mod mode;

pub(crate) use acl_change::changed_acl;
pub(crate) use mode::{EXEC, READ, WRITE, check, check_sticky, kill_set_id};

use crate::state::room;
use crate::types::{Caller, FileKind};
use crate::xattr::inline::broken;
use crate::xattr::{Change, Pending, Plan, Xattrs};
use acl::{ACCESS, Acl, DEFAULT};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::attr::{Attr, Id, Namespace};
use shoal_format::inode::{Core, FLAG_ACL, FLAG_CAPABILITY, FLAG_DEFAULT_ACL, Inode};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::Txn;

/// Name of a file's capabilities in the namespace `security`.
const CAPABILITY: &[u8] = b"capability";
room! {
    /// Access checks and the attributes that decide them.
    pub(crate) struct Permissions { xattrs: Xattrs }
}

/// Returns the flag in an inode's core that indicates this attribute, 0 if there is none.
pub(crate) fn flag_of(id: &Id<'_>) -> u32 {
    match (id.space, id.name) {
        (Namespace::System, ACCESS) => FLAG_ACL,
        (Namespace::System, DEFAULT) => FLAG_DEFAULT_ACL,
        (Namespace::Security, CAPABILITY) => FLAG_CAPABILITY,
        _ => 0,
    }
}

impl Permissions<'_> {
    pub(crate) fn plan_acl(
        &self,
        ino: Ino,
        inode: &Inode,
        id: &Id<'_>,
        bytes: Option<&[u8]>,
    ) -> Result<Plan> {
        let Some(bytes) = bytes else {
            return self.xattrs().plan(ino, inode, &Change::remove(*id));
        };
        let value = self.xattrs().store_value(ino, id, bytes)?;
        let attr = Attr { space: id.space, name: id.name, value };
        self.xattrs().plan(ino, inode, &Change::set(attr))
    }

    /// Loads the access list, or the default list, of an inode whose flags indicate one.
    pub(crate) fn load_acl(&self, ino: Ino, inode: &Inode, name: &[u8]) -> Result<Option<Acl>> {
        let id = Id::new(Namespace::System, name);
        let raw =
            self.xattrs().with_attr(ino, inode, &id, |attr| self.xattrs().load_value(ino, attr))?;
        let acl = raw.map(|raw| Acl::parse(&raw)).transpose();
        acl.map(Option::flatten).map_err(|_| broken(ino, format!("system.{}", name.escape_ascii())))
    }

    /// Checks `mask` (read 4, write 2, execute or search 1) against mode and access list.
    #[inline]
    pub(crate) fn permit(&self, who: &Caller, ino: Ino, inode: &Inode, mask: u32) -> Result<()> {
        match inode.core.flags & FLAG_ACL {
            0 => check(who, &inode.core, mask),
            _ => self.permit_by_acl(who, ino, inode, mask),
        }
    }

    #[cold]
    fn permit_by_acl(&self, who: &Caller, ino: Ino, inode: &Inode, mask: u32) -> Result<()> {
        let list = match mode_decides(who, &inode.core) {
            true => None,
            false => self.load_acl(ino, inode, ACCESS)?,
        };
        check_list(who, &inode.core, list.as_ref(), mask)
    }

    /// Plans the change of an inode's access list to its new mode.
    pub(crate) fn plan_chmod(&self, ino: Ino, inode: &Inode, mode: u32) -> Result<Plan> {
        if inode.core.flags & FLAG_ACL == 0 {
            return Ok(Plan::Nothing);
        }
        let Some(mut acl) = self.load_acl(ino, inode, ACCESS)? else { return Ok(Plan::Nothing) };
        acl.set_mode(mode);
        self.plan_acl(ino, inode, &Id::new(Namespace::System, ACCESS), Some(&acl.to_bytes()))
    }

    /// Removes a file's capabilities, because its contents or owner change. The caller must finish
    /// the returned intent.
    #[inline]
    pub(crate) fn drop_capability(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        plan: Plan,
    ) -> Result<Option<Pending>> {
        match locked.inode().core.flags & FLAG_CAPABILITY {
            0 => Ok(None),
            _ => self.drop_capability_there(txn, locked, plan),
        }
    }

    /// Plans the removal. Must be called before the first change, because it may read.
    #[inline]
    pub(crate) fn plan_drop_capability(&self, ino: Ino, inode: &Inode) -> Result<Plan> {
        match inode.core.flags & FLAG_CAPABILITY {
            0 => Ok(Plan::Nothing),
            _ => {
                let id = Id::new(Namespace::Security, CAPABILITY);
                self.xattrs().plan(ino, inode, &Change::remove(id))
            }
        }
    }

    #[cold]
    fn drop_capability_there(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        plan: Plan,
    ) -> Result<Option<Pending>> {
        let ino = locked.ino();
        let pending = self.xattrs().apply(txn, locked, plan)?;
        let core = &mut locked.edit(self.0.table(ino)?, txn.epoch()).core;
        core.flags &= !FLAG_CAPABILITY;
        let core = *core;
        txn.log_core(locked, Item::Core { ino, core });
        Ok(pending)
    }

    /// Returns what a new inode inherits from its directory's default list.
    #[cold]
    pub(crate) fn inherited(&self, dir: Ino, inode: &Inode, mode: u32) -> Result<Inherited> {
        let none = inode.core.flags & FLAG_DEFAULT_ACL == 0
            || FileKind::from_mode(mode) == Some(FileKind::Symlink);
        let default = if none { None } else { self.load_acl(dir, inode, DEFAULT)? };
        Ok(Inherited::of(default.as_ref(), mode))
    }
}

/// Returns whether the mode alone decides what `who` may do with an inode that has an access list:
/// for owner and superuser, and for all others if the group class has no rights.
fn mode_decides(who: &Caller, core: &Core) -> bool {
    who.bypasses() || who.uid == core.uid || core.mode & 0o070 == 0
}

/// Checks `mask` against a mode and an access list, if there is one.
pub(crate) fn check_list(who: &Caller, core: &Core, list: Option<&Acl>, mask: u32) -> Result<()> {
    match list {
        Some(list) if !mode_decides(who, core) => match list.permits(who, core, mask & 7) {
            true => Ok(()),
            false => Err(Error::Code(Code::Access)),
        },
        _ => check(who, core, mask),
    }
}

/// Attributes that a new inode inherits from its directory's default list.
#[derive(Default)]
pub(crate) struct Inherited {
    /// There is a default list: the umask does not apply.
    pub applies: bool,
    /// Its mode.
    pub mode: u32,
    /// Its access list, if a mode does not say the same.
    pub access: Option<Acl>,
    /// Its default list.
    pub default: Option<Acl>,
}

impl Inherited {
    /// Returns the attributes of a new inode with `mode` in a directory with this default list.
    pub(crate) fn of(default: Option<&Acl>, mode: u32) -> Inherited {
        let kind = FileKind::from_mode(mode);
        let (Some(default), false) = (default, kind == Some(FileKind::Symlink)) else {
            return Inherited { mode, ..Inherited::default() };
        };
        let mut access = default.clone();
        let mode = access.inherit(mode);
        Inherited {
            applies: true,
            mode,
            access: (!access.is_a_mode()).then_some(access),
            default: (kind == Some(FileKind::Directory)).then(|| default.clone()),
        }
    }

    /// Returns the flags of its core.
    pub(crate) fn flags(&self) -> u32 {
        let access = if self.access.is_some() { FLAG_ACL } else { 0 };
        let default = if self.default.is_some() { FLAG_DEFAULT_ACL } else { 0 };
        access | default
    }

    /// Returns its lists: names in the namespace `system`, and values.
    pub(crate) fn attrs(&self) -> impl Iterator<Item = (&'static [u8], Vec<u8>)> {
        let lists = [(ACCESS, &self.access), (DEFAULT, &self.default)];
        lists.into_iter().filter_map(|(name, list)| Some((name, list.as_ref()?.to_bytes())))
    }
}
