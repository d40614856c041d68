//! Extended attributes: the calls. Names are full, `user.x`; what is in which namespace, and who
//! may see and set it, is as on Linux, and so is the order in which errors are found.

use crate::attr::attr_of;
use crate::clock::now;
use crate::perm;
use crate::records;
use crate::types::{Caller, FileKind, XattrFlags};
use crate::volume::Inner;
use crate::xattr::acl::{ACCESS, Acl, DEFAULT};
use crate::xattr::{Change, Held, Pending, Plan, Side};
use shoal_base::cold::Section;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::attr::{Attr, Id, Namespace, VALUE_MAX};
use shoal_format::inode::{Core, FLAG_ACL, FLAG_CAPABILITY, FLAG_DEFAULT_ACL, Inode, Stamp};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::Txn;

/// Longest full name.
const FULL_NAME_MAX: usize = 255;
/// Bytes that a change of an attribute is taken to want beside its value.
const ATTR_COST: u64 = 1024;
/// Name, in the namespace `security`, of a file's capabilities.
const CAPABILITY: &[u8] = b"capability";
/// The attribute must exist.
const REPLACE: XattrFlags = XattrFlags { create: false, replace: true, clear_set_group_id: false };

/// Takes a full name apart; `None`: no namespace that there is.
fn split(full: &[u8]) -> Option<(Namespace, &[u8])> {
    let open = [Namespace::User, Namespace::Trusted, Namespace::Security, Namespace::System];
    let strip = |space: Namespace| full.strip_prefix(space.prefix().as_bytes()).map(|n| (space, n));
    open.into_iter().find_map(strip)
}

/// What a name means that obeys the rules of its namespace.
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

fn check_full_name(full: &[u8]) -> Result<()> {
    match full.len() {
        1..=FULL_NAME_MAX => Ok(()),
        _ => Err(Error::Code(Code::Range)),
    }
}

/// The flag that says, in an inode's core, that it has this attribute.
pub(crate) fn flag_of(id: &Id<'_>) -> u32 {
    match (id.space, id.name) {
        (Namespace::System, ACCESS) => FLAG_ACL,
        (Namespace::System, DEFAULT) => FLAG_DEFAULT_ACL,
        (Namespace::Security, CAPABILITY) => FLAG_CAPABILITY,
        _ => 0,
    }
}

impl Inner {
    /// The value of an attribute; `ENODATA` when there is none of that name.
    ///
    /// # Errors
    /// `ERANGE` for a name that is empty or longer than 255 bytes, `EOPNOTSUPP` for a namespace
    /// that there is not, `EACCES` when the file may not be read.
    pub fn getxattr(&self, who: &Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        check_full_name(name)?;
        let found = self.reading_first(|| {
            let inode = self.inode(ino)?;
            let _section = Section::begin();
            let slot = inode.read();
            attr_of(ino, &slot.inode)?;
            self.check_space(who, ino, &slot.inode, name, false)?;
            let id = resolve(name)?;
            if id.space == Namespace::System && slot.inode.core.kind() == FileKind::Symlink as u8 {
                return Err(Error::Code(Code::NotSupported));
            }
            // The kernel asks for lists and capabilities of every file; the core says if there are.
            let flag = flag_of(&id);
            if flag != 0 && slot.inode.core.flags & flag == 0 {
                return Ok(None);
            }
            self.with_attr(ino, &slot.inode, &id, |attr| self.hold_value(ino, attr))
        })?;
        match found.ok_or(Error::Code(Code::NoData))? {
            Held::Here(bytes) => Ok(bytes),
            Held::There(ptr, _hold) => self.read_value(ino, &resolve(name)?, &ptr),
        }
    }

    /// Names of all attributes that `who` may know of, each with a NUL behind it.
    pub fn listxattr(&self, who: &Caller, ino: Ino) -> Result<Vec<u8>> {
        self.reading_first(|| self.try_listxattr(who, ino))
    }

    fn try_listxattr(&self, who: &Caller, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let _section = Section::begin();
        let slot = inode.read();
        attr_of(ino, &slot.inode)?;
        let mut names = Vec::new();
        self.each_attr(ino, &slot.inode, Side::Plain, &mut |attr| {
            if attr.space != Namespace::Trusted || who.uid == 0 {
                names.extend_from_slice(attr.space.prefix().as_bytes());
                names.extend_from_slice(attr.name);
                names.push(0);
            }
            Ok(true)
        })?;
        Ok(names)
    }

    /// Sets an attribute: creates it, or replaces its value, or only one of the two. When that
    /// fails, the old value is as it was.
    ///
    /// # Errors
    /// Those of [`Inner::getxattr`], and: `E2BIG` for a value of more than 65,536 bytes, `EINVAL`,
    /// `EEXIST` and `ENODATA` by the flags, `EPERM` for what `who` may not set here, `ENOSPC`.
    pub fn setxattr(
        &self,
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
                .reading_first(|| self.set_acl(who, ino, name, value, flags.clear_set_group_id));
        }
        self.reading_first(|| self.try_setxattr(who, ino, name, value, flags))
    }

    fn try_setxattr(
        &self,
        who: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: XattrFlags,
    ) -> Result<()> {
        let mut txn = self.begin_space(ATTR_COST + value.len() as u64, records::XATTR)?;
        let inode = self.inode(ino)?;
        let mut locked = inode.write();
        attr_of(ino, locked.inode())?;
        self.check_space(who, ino, locked.inode(), name, true)?;
        let id = resolve(name)?;
        self.check_flags(ino, locked.inode(), &id, flags)?;
        let value = self.store_value(ino, &id, value)?;
        let attr = Attr { space: id.space, name: id.name, value };
        let plan = self.plan(ino, locked.inode(), &Change::set(attr))?;
        let core = locked.inode().core;
        let flags = core.flags | flag_of(&id);
        self.change_with(&mut txn, &mut locked, plan, Core { flags, ..core })?;
        txn.stamp(&mut locked)?;
        txn.commit().map(|_| ())
    }

    /// Removes an attribute; `ENODATA` when there is none of that name.
    pub fn removexattr(&self, who: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        check_full_name(name)?;
        if split(name).is_some_and(|(space, _)| space == Namespace::System) {
            return self.reading_first(|| self.set_acl(who, ino, name, b"", false));
        }
        self.reading_first(|| self.try_removexattr(who, ino, name))
    }

    fn try_removexattr(&self, who: &Caller, ino: Ino, name: &[u8]) -> Result<()> {
        let mut txn = self.begin(records::XATTR)?;
        let inode = self.inode(ino)?;
        let mut locked = inode.write();
        attr_of(ino, locked.inode())?;
        self.check_space(who, ino, locked.inode(), name, true)?;
        let id = resolve(name)?;
        self.check_flags(ino, locked.inode(), &id, REPLACE)?;
        let plan = self.plan(ino, locked.inode(), &Change::remove(id))?;
        let core = locked.inode().core;
        let flags = core.flags & !flag_of(&id);
        self.change_with(&mut txn, &mut locked, plan, Core { flags, ..core })?;
        txn.stamp(&mut locked)?;
        txn.commit().map(|_| ())
    }

    /// `EEXIST` and `ENODATA`; and what the volume cannot keep.
    fn check_flags(&self, ino: Ino, inode: &Inode, id: &Id<'_>, flags: XattrFlags) -> Result<()> {
        if !flags.create && !flags.replace {
            return Ok(());
        }
        match self.with_attr(ino, inode, id, |_| Ok(()))? {
            Some(()) if flags.create => Err(Error::Code(Code::Exists)),
            None if flags.replace => Err(Error::Code(Code::NoData)),
            _ => Ok(()),
        }
    }

    /// Applies a plan, and the core that goes with it; its ctime is set here. The chain of an
    /// intent, if one is needed, ends in the record that the caller commits.
    fn change_with(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        plan: Plan,
        core: Core,
    ) -> Result<()> {
        txn.check_memory()?;
        self.before_change(txn, locked, plan.is_within())?;
        let pending = self.apply(txn, locked, plan)?;
        self.put_attr_core(txn, locked, core, now());
        self.finish(txn, locked, pending)
    }

    /// Mode, flags and ctime of an inode whose attributes changed: the whole core is recorded only
    /// when more than the ctime is new.
    fn put_attr_core(&self, txn: &mut Txn<'_>, locked: &mut Locked<'_>, new: Core, ctime: Stamp) {
        let ino = locked.ino();
        let Ok(table) = self.table(ino) else { return };
        let core = &mut locked.edit(table, txn.epoch).core;
        let plain = (core.mode, core.flags) == (new.mode, new.flags);
        (core.mode, core.flags, core.ctime) = (new.mode, new.flags, ctime);
        let core = *core;
        let item = match plain {
            true => Item::Links { ino, nlink: core.nlink, ctime },
            false => Item::Core { ino, core },
        };
        txn.log_core(locked, item);
    }

    /// Whether `who` may get or set attributes of this namespace here, in Linux's order.
    fn check_space(
        &self,
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
            _ => self.permit(who, ino, inode, if write { perm::WRITE } else { perm::READ }),
        }
    }
}

/// Access control lists.
impl Inner {
    /// Sets or removes (with an empty one) an access control list, and keeps the mode in step. An
    /// access list that is set by a caller outside the file's group clears the set-group-ID bit:
    /// Shoal finds that out, or `outside_group` says so.
    fn set_acl(
        &self,
        who: &Caller,
        ino: Ino,
        full: &[u8],
        raw: &[u8],
        outside_group: bool,
    ) -> Result<()> {
        let id = resolve(full)?;
        let acl = Acl::parse(raw)?;
        let mut txn = self.begin_space(ATTR_COST + raw.len() as u64, records::XATTR)?;
        let inode = self.inode(ino)?;
        let mut locked = inode.write();
        attr_of(ino, locked.inode())?;
        let core = locked.inode().core;
        if core.kind() == FileKind::Symlink as u8 {
            return Err(Error::Code(Code::NotSupported));
        }
        let default = id.name == DEFAULT;
        if default && !core.is_dir() {
            return if acl.is_some() { Err(Error::Code(Code::Access)) } else { Ok(()) };
        }
        if !who.bypasses() && who.uid != core.uid {
            return Err(Error::Code(Code::NotPermitted));
        }
        let mut new = core;
        let mut stored = acl;
        if let (false, Some(acl)) = (default, &stored) {
            new.mode = core.mode & !0o777 | acl.mode();
            if outside_group || !who.bypasses() && !who.in_group(core.gid) {
                new.mode &= !0o2000;
            }
            if acl.is_a_mode() {
                stored = None;
            }
        }
        let bytes = stored.map(|acl| acl.to_bytes());
        let plan = self.plan_acl(ino, locked.inode(), &id, bytes.as_deref())?;
        new.flags = match bytes {
            Some(_) => core.flags | flag_of(&id),
            None => core.flags & !flag_of(&id),
        };
        self.change_with(&mut txn, &mut locked, plan, new)?;
        txn.stamp(&mut locked)?;
        txn.commit().map(|_| ())
    }

    fn plan_acl(&self, ino: Ino, inode: &Inode, id: &Id<'_>, bytes: Option<&[u8]>) -> Result<Plan> {
        let Some(bytes) = bytes else {
            return self.plan(ino, inode, &Change::remove(*id));
        };
        let value = self.store_value(ino, id, bytes)?;
        let attr = Attr { space: id.space, name: id.name, value };
        self.plan(ino, inode, &Change::set(attr))
    }

    /// The access list, or the default list, of an inode whose flags say that it has one.
    fn load_acl(&self, ino: Ino, inode: &Inode, name: &[u8]) -> Result<Option<Acl>> {
        let id = Id::new(Namespace::System, name);
        let raw = self.with_attr(ino, inode, &id, |attr| self.load_value(ino, attr))?;
        let acl = raw.map(|raw| Acl::parse(&raw)).transpose();
        acl.map(Option::flatten).map_err(|_| {
            crate::xattr::inline::broken(ino, format!("system.{}", name.escape_ascii()))
        })
    }

    /// Checks `mask` (read 4, write 2, execute or search 1) against mode and access list.
    #[inline]
    pub(crate) fn permit(&self, who: &Caller, ino: Ino, inode: &Inode, mask: u32) -> Result<()> {
        match inode.core.flags & FLAG_ACL {
            0 => perm::check(who, &inode.core, mask),
            _ => self.permit_by_acl(who, ino, inode, mask),
        }
    }

    #[cold]
    fn permit_by_acl(&self, who: &Caller, ino: Ino, inode: &Inode, mask: u32) -> Result<()> {
        let core = &inode.core;
        // Owner and superuser go by the mode, and so do all when the group class has no rights.
        if who.bypasses() || who.uid == core.uid || core.mode & 0o070 == 0 {
            return perm::check(who, core, mask);
        }
        match self.load_acl(ino, inode, ACCESS)? {
            Some(acl) if acl.permits(who, core, mask & 7) => Ok(()),
            Some(_) => Err(Error::Code(Code::Access)),
            None => perm::check(who, core, mask),
        }
    }

    /// Plans that the access list of an inode follows its new mode.
    pub(crate) fn plan_chmod(&self, ino: Ino, inode: &Inode, mode: u32) -> Result<Plan> {
        if inode.core.flags & FLAG_ACL == 0 {
            return Ok(Plan::Nothing);
        }
        let Some(mut acl) = self.load_acl(ino, inode, ACCESS)? else { return Ok(Plan::Nothing) };
        acl.set_mode(mode);
        self.plan_acl(ino, inode, &Id::new(Namespace::System, ACCESS), Some(&acl.to_bytes()))
    }

    /// Takes away a file's capabilities, because its contents or its owner change. The caller logs
    /// the core, and finishes what may be pending.
    #[inline]
    pub(crate) fn drop_capability(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        plan: Plan,
    ) -> Result<Option<Pending>> {
        match locked.inode().core.flags & FLAG_CAPABILITY {
            0 => Ok(None),
            _ => self.drop_capability_there(txn, locked, plan),
        }
    }

    /// Plans it: to be called before the first change, because it may read.
    #[inline]
    pub(crate) fn plan_drop_capability(&self, ino: Ino, inode: &Inode) -> Result<Plan> {
        match inode.core.flags & FLAG_CAPABILITY {
            0 => Ok(Plan::Nothing),
            _ => {
                let id = Id::new(Namespace::Security, CAPABILITY);
                self.plan(ino, inode, &Change::remove(id))
            }
        }
    }

    #[cold]
    fn drop_capability_there(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        plan: Plan,
    ) -> Result<Option<Pending>> {
        let ino = locked.ino();
        let pending = self.apply(txn, locked, plan)?;
        let core = &mut locked.edit(self.table(ino)?, txn.epoch).core;
        core.flags &= !FLAG_CAPABILITY;
        let core = *core;
        txn.log_core(locked, Item::Core { ino, core });
        Ok(pending)
    }

    /// What something made in a directory with a default list inherits.
    #[cold]
    pub(crate) fn inherited(&self, dir: Ino, inode: &Inode, mode: u32) -> Result<Inherited> {
        let mut heir = Inherited { mode, ..Inherited::default() };
        let kind = FileKind::from_mode(mode);
        if inode.core.flags & FLAG_DEFAULT_ACL == 0 || kind == Some(FileKind::Symlink) {
            return Ok(heir);
        }
        let Some(default) = self.load_acl(dir, inode, DEFAULT)? else { return Ok(heir) };
        let mut access = default.clone();
        heir.mode = access.inherit(mode);
        heir.applies = true;
        let mut add = |name: &'static [u8], acl: &Acl, flag: u32| {
            heir.attrs.push((name, acl.to_bytes()));
            heir.flags |= flag;
        };
        if !access.is_a_mode() {
            add(ACCESS, &access, FLAG_ACL);
        }
        if kind == Some(FileKind::Directory) {
            add(DEFAULT, &default, FLAG_DEFAULT_ACL);
        }
        Ok(heir)
    }
}

/// What a new inode has from its directory's default list.
#[derive(Default)]
pub(crate) struct Inherited {
    /// There is a default list: the umask does not count.
    pub applies: bool,
    /// Its mode.
    pub mode: u32,
    /// Flags of its core.
    pub flags: u32,
    /// Its lists: names in the namespace `system`, and values.
    pub attrs: Vec<(&'static [u8], Vec<u8>)>,
}
