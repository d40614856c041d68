//! Attributes: `getattr`, `setattr`, `access`; extended attributes and access control lists
//! (`xattr.rs`).

mod hidden;
mod xattr;

pub(crate) use xattr::check_of_batch;

use crate::clock::now;
use crate::files::Files;
use crate::intents::Intents;
use crate::orphans::Orphans;
use crate::permissions::{self, Permissions};
use crate::records;
use crate::stat::attr_of;
use crate::state::room;
use crate::types::{Attr, Caller, SetAttr, SetTime, Time};
use crate::xattr::{Pending, Plan, Xattrs};
use shoal_base::cold::Section;
use shoal_base::limits::FILE_SIZE_MAX;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Lsn, Result};
use shoal_format::inode::{Core, FLAG_ACL, FLAG_CAPABILITY, FLAG_TRUNCATING};
use shoal_format::inode::{Form, Inode, Stamp};
use shoal_itable::Locked;
use shoal_txn::Txn;

room! {
    /// Attributes of inodes, and their extended attributes.
    pub struct Attributes {
        files: Files,
        intents: Intents,
        orphans: Orphans,
        permissions: Permissions,
        xattrs: Xattrs,
    }
}

fn stamp(t: Time) -> Result<Stamp> {
    match t.nsec {
        0..1_000_000_000 => Ok(Stamp { sec: t.sec, nsec: t.nsec }),
        _ => Err(Error::Code(Code::Invalid)),
    }
}

impl Attributes<'_> {
    /// Returns the attributes of an inode.
    pub fn getattr(self, ino: Ino) -> Result<Attr> {
        self.0.measured(Call::Getattr, || self.0.attr(ino))
    }

    /// Returns the LSN of the record of an inode's last change. A reader that knows all changes
    /// before some LSN can compare it with that.
    pub fn change_lsn(self, ino: Ino) -> Result<Lsn> {
        self.0.root(ino)?.table.look(ino, |inode| match inode.core.in_use() {
            true => Ok(Lsn(inode.core.lsn)),
            false => Err(Error::Code(Code::Stale)),
        })?
    }

    /// Checks whether `who` may read (4), write (2), execute or search (1).
    pub fn access(self, who: &Caller, ino: Ino, mask: u32) -> Result<()> {
        let check = || {
            let inode = self.0.inode(ino)?;
            let _section = Section::begin();
            let slot = inode.read();
            attr_of(ino, &slot.inode)?;
            if mask & 2 != 0 && (slot.inode.core.is_file() || slot.inode.core.is_dir()) {
                self.0.store.writable()?;
            }
            self.permissions().permit(who, ino, &slot.inode, mask)
        };
        self.0.measured(Call::Access, || self.0.reading_first(check))
    }

    /// Changes attributes: all of `set`, or none.
    pub fn setattr(self, who: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.0.measured(Call::Setattr, || match set.size {
            Some(size) if size > FILE_SIZE_MAX => Err(Error::Code(Code::FileTooBig)),
            _ => self.0.reading_first(|| self.try_setattr(who, ino, set)),
        })
    }

    fn try_setattr(self, who: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let mut txn = self.0.begin(records::SETATTR)?;
        let inode = self.0.inode(ino)?;
        let mut locked = inode.write();
        attr_of(ino, locked.inode())?;
        let core = self.changed_core(who, ino, locked.inode(), set)?;
        let list = match set.mode {
            Some(_) => self.permissions().plan_chmod(ino, locked.inode(), core.mode)?,
            None => Plan::Nothing,
        };
        if core.flags & FLAG_TRUNCATING != 0 && set.size.is_some() {
            drop((locked, txn));
            self.files().finish_truncate(ino)?;
            return self.try_setattr(who, ino, set);
        }
        let small = !matches!(core.data_form, Form::Extents | Form::Tree);
        let within = (set.size.is_none() || small) && list.is_within();
        self.orphans().before_change(
            &mut txn,
            &mut locked,
            within && core.flags & FLAG_CAPABILITY == 0,
        )?;
        if let Some(size) = set.size {
            #[cfg(feature = "lab")]
            self.files().set_size_tracked(&mut txn, &mut locked, size)?;
            #[cfg(not(feature = "lab"))]
            self.files().set_size(&mut txn, &mut locked, size)?;
        }
        let now = locked.inode().core;
        let truncating = now.flags & FLAG_TRUNCATING;
        let core = Core {
            size: now.size,
            bytes: now.bytes,
            data_form: now.data_form,
            flags: core.flags | truncating,
            ..core
        };
        self.0.put_core(&mut txn, &mut locked, core)?;
        let list = self.xattrs().apply(&mut txn, &mut locked, list)?;
        let owner = set.uid.is_some() || set.gid.is_some();
        let dropped = match set.size.is_some() || owner {
            true => {
                // After the access list, because both change the same fork.
                let plan = self.permissions().plan_drop_capability(ino, locked.inode())?;
                self.permissions().drop_capability(&mut txn, &mut locked, plan)?
            }
            false => None,
        };
        let attr = attr_of(ino, locked.inode())?;
        self.intents().finish(&mut txn, &mut locked, list)?;
        self.intents().finish(&mut txn, &mut locked, dropped)?;
        txn.stamp(&mut locked)?;
        txn.commit()?;
        drop(locked);
        if truncating != 0 {
            self.files().finish_truncate(ino)?;
            return self.getattr(ino);
        }
        Ok(attr)
    }
}

/// Intents of a change of attributes, which must be finished once its record is complete.
pub(crate) type Changed = [Option<Pending>; 2];

impl Attributes<'_> {
    /// Returns whether a change without a new size changes only the core of a locked inode.
    #[inline]
    pub(crate) fn is_of_core(self, locked: &Locked<'_>, set: &SetAttr) -> bool {
        let list = if set.mode.is_some() { FLAG_ACL } else { 0 };
        let owner = set.uid.is_some() || set.gid.is_some();
        let capability = if owner { FLAG_CAPABILITY } else { 0 };
        locked.inode().core.flags & (list | capability) == 0 && !locked.is_detached()
    }

    /// Makes a change without a new size in a locked inode, as [`Attributes::setattr`]. If it
    /// fails, nothing has been changed.
    pub(crate) fn change_locked(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        who: &Caller,
        set: &SetAttr,
    ) -> Result<Changed> {
        let ino = locked.ino();
        let core = self.changed_core(who, ino, locked.inode(), set)?;
        let list = match set.mode {
            Some(_) => self.permissions().plan_chmod(ino, locked.inode(), core.mode)?,
            None => Plan::Nothing,
        };
        let within = list.is_within() && core.flags & FLAG_CAPABILITY == 0;
        self.orphans().before_change(txn, locked, within)?;
        self.0.put_core(txn, locked, core)?;
        let list = self.xattrs().apply(txn, locked, list)?;
        let dropped = match set.uid.is_some() || set.gid.is_some() {
            true => {
                // After the access list, because both change the same fork.
                let plan = self.permissions().plan_drop_capability(ino, locked.inode())?;
                self.permissions().drop_capability(txn, locked, plan)?
            }
            false => None,
        };
        Ok([list, dropped])
    }

    /// Returns the core as changed by `set`, if `who` has the permission.
    pub(crate) fn changed_core(
        self,
        who: &Caller,
        ino: Ino,
        inode: &Inode,
        set: &SetAttr,
    ) -> Result<Core> {
        let core = &inode.core;
        let time = now();
        let mut new = Core { ctime: time, ..change_rights(who, core, set)? };
        let owner = who.bypasses() || who.uid == core.uid;
        let denied = |code: Code| Err(Error::Code(code));
        if let Some(size) = set.size {
            match core.kind() {
                8 => {}
                4 => return denied(Code::IsDirectory),
                _ => return denied(Code::Invalid),
            }
            if !set.by_handle {
                self.permissions().permit(who, ino, inode, permissions::WRITE)?;
            }
            if size != core.size || set.mtime.is_none() {
                new.mtime = time;
            }
            if who.uid != 0 {
                permissions::kill_set_id(&mut new, who.in_group(core.gid));
            }
        }
        let explicit = |t: &Option<SetTime>| matches!(t, Some(SetTime::To(_)));
        // Setting only one of the times to now counts as an explicit time; only both are a plain
        // touch.
        let one = set.size.is_none() && set.atime.is_some() != set.mtime.is_some();
        if (explicit(&set.atime) || explicit(&set.mtime) || one) && !owner {
            return denied(Code::NotPermitted);
        }
        if (set.atime.is_some() || set.mtime.is_some()) && !owner && set.size.is_none() {
            self.permissions().permit(who, ino, inode, permissions::WRITE)?;
        }
        let resolve = |t: SetTime| match t {
            SetTime::Now => Ok(time),
            SetTime::To(t) => stamp(t),
        };
        if let Some(t) = set.atime {
            new.atime = resolve(t)?;
        }
        if let Some(t) = set.mtime {
            new.mtime = resolve(t)?;
        }
        if let Some(t) = set.ctime {
            new.ctime = stamp(t)?;
        }
        Ok(new)
    }
}

/// Returns the core with mode and owner as changed by `set`, if `who` has the permission.
pub(crate) fn change_rights(who: &Caller, core: &Core, set: &SetAttr) -> Result<Core> {
    let mut new = *core;
    if let Some(mode) = set.mode {
        if !who.bypasses() && who.uid != core.uid {
            return Err(Error::Code(Code::NotPermitted));
        }
        new.mode = core.mode & !0o7777 | mode & 0o7777;
        if !who.bypasses() && !who.in_group(core.gid) {
            new.mode &= !0o2000;
        }
    }
    if set.uid.is_some() || set.gid.is_some() {
        change_owner(who, core, set, &mut new)?;
    }
    Ok(new)
}

fn change_owner(who: &Caller, core: &Core, set: &SetAttr, new: &mut Core) -> Result<()> {
    let (uid, gid) = (set.uid.unwrap_or(core.uid), set.gid.unwrap_or(core.gid));
    if !who.bypasses() {
        let owner = who.uid == core.uid;
        let group_ok = gid == core.gid || who.in_group(gid);
        if !owner || uid != core.uid || !group_ok {
            return Err(Error::Code(Code::NotPermitted));
        }
    }
    (new.uid, new.gid) = (uid, gid);
    if !core.is_dir() && set.mode.is_none() {
        permissions::kill_set_id(new, who.uid == 0 || who.in_group(core.gid));
    }
    Ok(())
}
