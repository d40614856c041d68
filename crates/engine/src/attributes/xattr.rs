//! Extended attributes: the calls. Names are full, for example `user.x`. Namespaces, permissions
//! and the order of errors are those of Linux.

use super::Attributes;
use crate::clock::now;
use crate::permissions::acl::{ACCESS, Acl, DEFAULT};
use crate::permissions::{self, changed_acl, flag_of};
use crate::records;
use crate::stat::attr_of;
use crate::types::{AclChange, Caller, FileKind, XattrFlags};
use crate::xattr::{Change, Held, Pending, Plan, Side};
use shoal_base::cold::Section;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::attr::{Attr, Id, Namespace, VALUE_MAX};
use shoal_format::inode::{Core, FLAG_ACL, FLAG_DEFAULT_ACL, Inode, Stamp};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::Txn;

/// Attribute with the version of a file ([`crate::Attr::version`]), in decimal. It can only be
/// read, and is not listed, as those of Ceph (`ceph.*`).
const VERSION: &[u8] = b"shoal.version";
/// Maximum bytes of a full name.
const FULL_NAME_MAX: usize = 255;
/// Estimated bytes that a change of an attribute needs in addition to its value.
const ATTR_COST: u64 = 1024;
/// The attribute must exist.
const REPLACE: XattrFlags = XattrFlags { create: false, replace: true, clear_set_group_id: false };

/// Splits a full name into namespace and name; `None` for an unknown namespace.
fn split(full: &[u8]) -> Option<(Namespace, &[u8])> {
    let open = [Namespace::User, Namespace::Trusted, Namespace::Security, Namespace::System];
    let strip = |space: Namespace| full.strip_prefix(space.prefix().as_bytes()).map(|n| (space, n));
    open.into_iter().find_map(strip)
}

/// Converts a full name that is valid in its namespace.
fn resolve(full: &[u8]) -> Result<Id<'_>> {
    let (space, name) = split(full).ok_or(Error::Code(Code::NotSupported))?;
    match space {
        Namespace::System if name != ACCESS && name != DEFAULT => {
            Err(Error::Code(Code::NotSupported))
        }
        _ if name.is_empty() => Err(Error::Code(Code::Invalid)),
        _ => Ok(Id::new(space, name)),
    }
}

/// Checks name and value of an attribute that a batch sets or removes.
///
/// # Errors
/// Those of the single calls; `EOPNOTSUPP` for access control lists, which change who may do what.
pub(crate) fn check_of_batch(full: &[u8], value: Option<&[u8]>) -> Result<()> {
    check_full_name(full)?;
    if value.is_some_and(|value| value.len() > VALUE_MAX) {
        return Err(Error::Code(Code::TooBig));
    }
    match split(full) {
        Some((Namespace::System, _)) => {
            let message = "access control lists change outside of batches only";
            Err(Error::refused(Code::NotSupported, message))
        }
        _ => Ok(()),
    }
}

fn check_full_name(full: &[u8]) -> Result<()> {
    match full.len() {
        1..=FULL_NAME_MAX => Ok(()),
        _ => Err(Error::Code(Code::Range)),
    }
}

impl Attributes<'_> {
    /// Returns the value of an attribute; `ENODATA` if there is none of that name. `shoal.version`
    /// has the version of the file ([`crate::Attr::version`]), in decimal.
    ///
    /// # Errors
    /// `ERANGE` for a name that is empty or longer than 255 bytes, `EOPNOTSUPP` for an unknown
    /// namespace, `EACCES` if the file may not be read.
    pub fn getxattr(self, who: &Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.0.measured(Call::Getxattr, || self.value_of(who, ino, name))
    }

    fn value_of(self, who: &Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_full_name(name)?;
        if name == VERSION {
            let version = self.getattr(ino)?.version;
            return Ok(version.to_string().into_bytes());
        }
        let found = self.0.reading_first(|| {
            let inode = self.0.inode(ino)?;
            let _section = Section::begin();
            let slot = inode.read();
            attr_of(ino, &slot.inode)?;
            self.check_space(who, ino, &slot.inode, name, false)?;
            let id = resolve(name)?;
            if id.space == Namespace::System && slot.inode.core.kind() == FileKind::Symlink as u8 {
                return Err(Error::Code(Code::NotSupported));
            }
            // The kernel requests lists and capabilities of every file; the core indicates if there
            // are any.
            let flag = flag_of(&id);
            if flag != 0 && slot.inode.core.flags & flag == 0 {
                return Ok(None);
            }
            self.xattrs()
                .with_attr(ino, &slot.inode, &id, |attr| self.xattrs().hold_value(ino, attr))
        })?;
        match found.ok_or(Error::Code(Code::NoData))? {
            Held::Here(bytes) => Ok(bytes),
            Held::There(ptr, _hold) => self.xattrs().read_value(ino, &resolve(name)?, &ptr),
        }
    }

    /// Returns the names of all attributes visible to `who`, each followed by a NUL.
    pub fn listxattr(self, who: &Caller, ino: Ino) -> Result<Vec<u8>> {
        self.0.measured(Call::Listxattr, || self.0.reading_first(|| self.try_listxattr(who, ino)))
    }

    fn try_listxattr(self, who: &Caller, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.0.inode(ino)?;
        let _section = Section::begin();
        let slot = inode.read();
        attr_of(ino, &slot.inode)?;
        let mut names = Vec::new();
        self.xattrs().each_attr(ino, &slot.inode, Side::Plain, &mut |attr| {
            let hidden =
                attr.space == Namespace::System && flag_of(&Id::new(attr.space, attr.name)) == 0;
            if !hidden && (attr.space != Namespace::Trusted || who.uid == 0) {
                names.extend_from_slice(attr.space.prefix().as_bytes());
                names.extend_from_slice(attr.name);
                names.push(0);
            }
            Ok(true)
        })?;
        Ok(names)
    }

    /// Sets an attribute: creates it or replaces its value, or only one of the two by `flags`. On
    /// failure the old value is unchanged.
    ///
    /// # Errors
    /// Those of [`Attributes::getxattr`], and: `E2BIG` for a value of more than 65,536 bytes,
    /// `EINVAL`, `EEXIST` and `ENODATA` by the flags, `EPERM` if `who` may not set it, `ENOSPC`.
    pub fn setxattr(
        self,
        who: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        self.0.measured(Call::Setxattr, || self.set_value(who, ino, name, value, flags))
    }

    fn set_value(
        self,
        who: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        check_full_name(name)?;
        if value.len() > VALUE_MAX {
            return Err(Error::Code(Code::TooBig));
        }
        if split(name).is_some_and(|(space, _)| space == Namespace::System) {
            return self
                .0
                .reading_first(|| self.set_acl(who, ino, name, value, flags.clear_set_group_id));
        }
        self.0.reading_first(|| self.try_setxattr(who, ino, name, value, flags))
    }

    fn try_setxattr(
        self,
        who: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        let txn = self.0.begin_space(ATTR_COST + value.len() as u64, records::XATTR)?;
        self.change_as(txn, ino, |inode| {
            self.plan_set(who, ino, inode, name, value, flags).map(Some)
        })
    }

    /// Changes attributes of an inode as planned under its lock; `None`: nothing is to be changed.
    fn change_as(
        self,
        mut txn: Txn<'_>,
        ino: Ino,
        plan: impl FnOnce(&Inode) -> Result<Option<(Plan, Core)>>,
    ) -> Result<()> {
        let inode = self.0.inode(ino)?;
        let mut locked = inode.write();
        let Some((plan, core)) = plan(locked.inode())? else { return Ok(()) };
        self.change_with(&mut txn, &mut locked, plan, core)?;
        txn.stamp(&mut locked)?;
        txn.commit().map(|_| ())
    }

    /// Plans a new value of an attribute of a locked inode. Returns also the core that goes with
    /// it.
    pub(crate) fn plan_set(
        self,
        who: &Caller,
        ino: Ino,
        inode: &Inode,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<(Plan, Core)> {
        attr_of(ino, inode)?;
        self.check_space(who, ino, inode, name, true)?;
        let id = resolve(name)?;
        self.check_flags(ino, inode, &id, flags)?;
        let value = self.xattrs().store_value(ino, &id, value)?;
        let attr = Attr { space: id.space, name: id.name, value };
        let plan = self.xattrs().plan(ino, inode, &Change::set(attr))?;
        Ok((plan, Core { flags: inode.core.flags | flag_of(&id), ..inode.core }))
    }

    /// Removes an attribute; `ENODATA` if there is none of that name.
    pub fn removexattr(self, who: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        self.0.measured(Call::Removexattr, || self.remove_value(who, ino, name))
    }

    fn remove_value(self, who: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        check_full_name(name)?;
        if split(name).is_some_and(|(space, _)| space == Namespace::System) {
            return self.0.reading_first(|| self.set_acl(who, ino, name, b"", false));
        }
        self.0.reading_first(|| self.try_removexattr(who, ino, name))
    }

    fn try_removexattr(self, who: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        let txn = self.0.begin(records::XATTR)?;
        self.change_as(txn, ino, |inode| self.plan_remove(who, ino, inode, name).map(Some))
    }

    /// Plans the removal of an attribute of a locked inode. Returns also the core that goes with
    /// it.
    pub(crate) fn plan_remove(
        self,
        who: &Caller,
        ino: Ino,
        inode: &Inode,
        name: &[u8],
    ) -> Result<(Plan, Core)> {
        attr_of(ino, inode)?;
        self.check_space(who, ino, inode, name, true)?;
        let id = resolve(name)?;
        self.check_flags(ino, inode, &id, REPLACE)?;
        let plan = self.xattrs().plan(ino, inode, &Change::remove(id))?;
        Ok((plan, Core { flags: inode.core.flags & !flag_of(&id), ..inode.core }))
    }

    /// Checks the flags against the existing attribute.
    fn check_flags(self, ino: Ino, inode: &Inode, id: &Id<'_>, flags: XattrFlags) -> Result<()> {
        if !flags.create && !flags.replace {
            return Ok(());
        }
        match self.xattrs().with_attr(ino, inode, id, |_| Ok(()))? {
            Some(()) if flags.create => Err(Error::Code(Code::Exists)),
            None if flags.replace => Err(Error::Code(Code::NoData)),
            _ => Ok(()),
        }
    }

    /// Applies a plan, and the core that goes with it; sets the ctime. If the plan needs an intent,
    /// its last step is in the record that the caller commits.
    pub(super) fn change_with(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        plan: Plan,
        core: Core,
    ) -> Result<()> {
        txn.check_memory()?;
        self.orphans().before_change(txn, locked, plan.is_within())?;
        let pending = self.apply_with(txn, locked, plan, core)?;
        self.intents().finish(txn, locked, pending)
    }

    /// Applies a plan, and the core that goes with it; sets the ctime. The caller must finish the
    /// returned intent.
    pub(crate) fn apply_with(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        plan: Plan,
        core: Core,
    ) -> Result<Option<Pending>> {
        let pending = self.xattrs().apply(txn, locked, plan)?;
        self.put_attr_core(txn, locked, core, now());
        Ok(pending)
    }

    /// Sets mode, flags and ctime of an inode whose attributes changed. Logs the whole core only if
    /// more than the ctime changed.
    fn put_attr_core(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>, new: Core, ctime: Stamp) {
        let ino = locked.ino();
        let Ok(table) = self.0.table(ino) else { return };
        let core = &mut locked.edit(table, txn.epoch()).core;
        let plain = (core.mode, core.flags) == (new.mode, new.flags);
        (core.mode, core.flags, core.ctime) = (new.mode, new.flags, ctime);
        let core = *core;
        let item = match plain {
            true => Item::Links { ino, nlink: core.nlink, ctime },
            false => Item::Core { ino, core },
        };
        txn.log_core(locked, item);
    }

    /// Checks whether `who` may get or set attributes of this namespace, in the order of Linux.
    fn check_space(
        self,
        who: &Caller,
        ino: Ino,
        inode: &Inode,
        full: &[u8],
        write: bool,
    ) -> Result<()> {
        let core = &inode.core;
        let denied = |yes: Code, no: Code| Err(Error::Code(if write { yes } else { no }));
        match split(full) {
            Some((Namespace::System, _)) => Ok(()),
            Some((Namespace::Security, _)) if write && !who.bypasses() => {
                Err(Error::Code(Code::NotPermitted))
            }
            Some((Namespace::Security, _)) => Ok(()),
            Some((Namespace::Trusted, _)) => match who.bypasses() {
                true => Ok(()),
                false => denied(Code::NotPermitted, Code::NoData),
            },
            Some((Namespace::User, _)) if !core.is_file() && !core.is_dir() => {
                denied(Code::NotPermitted, Code::NoData)
            }
            Some((Namespace::User, _))
                if write
                    && core.is_dir()
                    && core.mode & 0o1000 != 0
                    && who.uid != core.uid
                    && !who.bypasses() =>
            {
                Err(Error::Code(Code::NotPermitted))
            }
            _ => self.permissions().permit(
                who,
                ino,
                inode,
                if write { permissions::WRITE } else { permissions::READ },
            ),
        }
    }
}

/// Checks that an inode can have an access list, or a default list.
///
/// # Errors
/// `EOPNOTSUPP` for a symlink, `EACCES` for the default list of a file that is no directory.
fn check_has_list(ino: Ino, inode: &Inode, default: bool) -> Result<()> {
    attr_of(ino, inode)?;
    match inode.core.kind() == FileKind::Symlink as u8 {
        true => Err(Error::Code(Code::NotSupported)),
        false if default && !inode.core.is_dir() => Err(Error::Code(Code::Access)),
        false => Ok(()),
    }
}

/// Access control lists.
impl Attributes<'_> {
    /// Sets or, if it is empty, removes an access control list, and updates the mode. Setting the
    /// access list clears the set-group-ID bit if the caller is outside the file's group, as
    /// determined here or indicated by `outside_group`.
    fn set_acl(
        self,
        who: &Caller,
        ino: Ino,
        full: &[u8],
        raw: &[u8],
        outside_group: bool,
    ) -> Result<()> {
        let id = resolve(full)?;
        let acl = Acl::parse(raw)?;
        let txn = self.0.begin_space(ATTR_COST + raw.len() as u64, records::XATTR)?;
        self.change_as(txn, ino, |inode| {
            let has_list = check_has_list(ino, inode, id.name == DEFAULT);
            // Where there can be no default list, there is none to remove.
            if acl.is_none() && has_list.as_ref().is_err_and(|error| error.is(Code::Access)) {
                return Ok(None);
            }
            has_list?;
            self.plan_list(who, ino, inode, &id, acl, outside_group).map(Some)
        })
    }

    /// Changes the access list or the default list of a file, as setfacl(1).
    ///
    /// # Errors
    /// `EPERM` if `who` does not own the file, `EOPNOTSUPP` for a symlink, `EACCES` for the default
    /// list of a file that is no directory, `EINVAL` if the result is no list, `E2BIG` if it is
    /// longer than a value can be, `ENOSPC`.
    pub fn change_acl(self, who: &Caller, ino: Ino, change: &AclChange) -> Result<()> {
        self.0.measured(Call::Setxattr, || {
            self.0.reading_first(|| self.try_change_acl(who, ino, change))
        })
    }

    fn try_change_acl(self, who: &Caller, ino: Ino, change: &AclChange) -> Result<()> {
        let txn = self.0.begin_space(ATTR_COST + VALUE_MAX as u64, records::XATTR)?;
        self.change_as(txn, ino, |inode| {
            check_has_list(ino, inode, change.edits().default)?;
            self.plan_acl_change(who, ino, inode, change).map(Some)
        })
    }

    /// Plans a new access list or default list of a locked inode, or its removal. Returns also the
    /// core that goes with it.
    fn plan_list(
        self,
        who: &Caller,
        ino: Ino,
        inode: &Inode,
        id: &Id<'_>,
        acl: Option<Acl>,
        outside_group: bool,
    ) -> Result<(Plan, Core)> {
        let core = inode.core;
        if !who.bypasses() && who.uid != core.uid {
            return Err(Error::Code(Code::NotPermitted));
        }
        let mut new = core;
        let mut stored = acl;
        if let (true, Some(acl)) = (id.name == ACCESS, &stored) {
            new.mode = core.mode & !0o777 | acl.mode();
            if outside_group || !who.bypasses() && !who.in_group(core.gid) {
                new.mode &= !0o2000;
            }
            if acl.is_a_mode() {
                stored = None;
            }
        }
        let bytes = stored.map(|acl| acl.to_bytes());
        // A change of a list of the largest size may make it longer.
        if bytes.as_ref().is_some_and(|bytes| bytes.len() > VALUE_MAX) {
            return Err(Error::Code(Code::TooBig));
        }
        let plan = self.permissions().plan_acl(ino, inode, id, bytes.as_deref())?;
        new.flags = match bytes {
            Some(_) => core.flags | flag_of(id),
            None => core.flags & !flag_of(id),
        };
        Ok((plan, new))
    }

    /// Plans changes of a list of a locked inode, which must not be a symlink, nor without a list
    /// of that kind. Returns also the core that goes with it.
    pub(crate) fn plan_acl_change(
        self,
        who: &Caller,
        ino: Ino,
        inode: &Inode,
        change: &AclChange,
    ) -> Result<(Plan, Core)> {
        let edits = change.edits();
        let list = |flag: u32, name: &[u8]| match inode.core.flags & flag {
            0 => Ok(None),
            _ => self.permissions().load_acl(ino, inode, name),
        };
        let access = list(FLAG_ACL, ACCESS)?;
        let default = if edits.default { list(FLAG_DEFAULT_ACL, DEFAULT)? } else { None };
        let acl = changed_acl(edits, &inode.core, access.as_ref(), default.as_ref())?;
        let name = if edits.default { DEFAULT } else { ACCESS };
        self.plan_list(who, ino, inode, &Id::new(Namespace::System, name), acl, false)
    }
}
