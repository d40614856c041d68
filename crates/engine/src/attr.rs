//! Attributes: `getattr`, `setattr`, `access`.

use crate::clock::now;
use crate::perm;
use crate::records;
use crate::types::{Attr, Caller, FileKind, SetAttr, SetTime, Time, TruncateTracking};
use crate::volume::Inner;
use crate::xattr::Plan;
use shoal_base::cold::Section;
use shoal_base::limits::FILE_SIZE_MAX;
use shoal_base::{Code, Error, Generation, Ino, Lsn, Result};
use shoal_format::inode::{Core, FLAG_CAPABILITY, FLAG_CUT, Form, Inode, Stamp};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::Txn;

impl From<Stamp> for Time {
    fn from(s: Stamp) -> Time {
        Time { sec: s.sec, nsec: s.nsec }
    }
}

fn stamp(t: Time) -> Result<Stamp> {
    match t.nsec {
        0..1_000_000_000 => Ok(Stamp { sec: t.sec, nsec: t.nsec }),
        _ => Err(Error::Code(Code::Invalid)),
    }
}

/// What `stat` shows of an inode in use.
#[inline]
pub(crate) fn attr_of(ino: Ino, inode: &Inode) -> Result<Attr> {
    let c = &inode.core;
    if !c.in_use() {
        return Err(Error::Code(Code::Stale));
    }
    let Some(kind) = FileKind::from_mode(c.mode) else {
        let rule = format!("mode {:o} has no file type", c.mode);
        return Err(Error::corrupt(format!("inode {ino}"), None, rule));
    };
    let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    Ok(Attr {
        ino,
        generation: Generation(c.generation),
        kind,
        mode: c.mode,
        nlink: c.nlink,
        uid: c.uid,
        gid: c.gid,
        rdev: if device { c.parent_or_rdev as u32 } else { 0 },
        size: c.size,
        blocks: c.bytes.div_ceil(512),
        atime: c.atime.into(),
        mtime: c.mtime.into(),
        ctime: c.ctime.into(),
        btime: c.btime.into(),
    })
}

impl Inner {
    /// Attributes of an inode.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.root(ino)?.table.look(ino, |inode| attr_of(ino, inode))?
    }

    /// LSN of the record of an inode's last change: what a reader that knows all changes before an
    /// LSN compares with it.
    pub fn change_lsn(&self, ino: Ino) -> Result<Lsn> {
        self.root(ino)?.table.look(ino, |inode| match inode.core.in_use() {
            true => Ok(Lsn(inode.core.lsn)),
            false => Err(Error::Code(Code::Stale)),
        })?
    }

    /// Whether `who` may read (4), write (2), execute or search (1).
    pub fn access(&self, who: &Caller, ino: Ino, mask: u32) -> Result<()> {
        self.reading_first(|| {
            let inode = self.inode(ino)?;
            let _section = Section::begin();
            let slot = inode.read();
            attr_of(ino, &slot.inode)?;
            if mask & 2 != 0 && (slot.inode.core.is_file() || slot.inode.core.is_dir()) {
                self.store.writable()?;
            }
            self.permit(who, ino, &slot.inode, mask)
        })
    }

    /// Changes attributes: all of `set`, or nothing.
    pub fn setattr(&self, who: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr> {
        if set.size.is_some_and(|size| size > FILE_SIZE_MAX) {
            return Err(Error::Code(Code::FileTooBig));
        }
        self.reading_first(|| self.try_setattr(who, ino, set))
    }

    fn try_setattr(&self, who: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let mut txn = self.begin(records::SETATTR)?;
        let inode = self.inode(ino)?;
        let mut locked = inode.write();
        attr_of(ino, locked.inode())?;
        let core = self.changed_core(who, ino, locked.inode(), set)?;
        let list = match set.mode {
            Some(_) => self.plan_chmod(ino, locked.inode(), core.mode)?,
            None => Plan::Nothing,
        };
        if core.flags & FLAG_CUT != 0 && set.size.is_some() {
            drop((locked, txn));
            self.finish_cut(ino)?;
            return self.try_setattr(who, ino, set);
        }
        let small = !matches!(core.data_form, Form::Extents | Form::Tree);
        let within = (set.size.is_none() || small) && list.is_within();
        self.before_change(&mut txn, &mut locked, within && core.flags & FLAG_CAPABILITY == 0)?;
        if let Some(size) = set.size {
            match self.options.truncate_tracking {
                TruncateTracking::AsNeeded | TruncateTracking::Off => {
                    self.set_size(&mut txn, &mut locked, size)?;
                }
                as_told => self.set_size_tracked(&mut txn, &mut locked, size, as_told)?,
            }
        }
        let now = locked.inode().core;
        let cut = now.flags & FLAG_CUT;
        let core = Core {
            size: now.size,
            bytes: now.bytes,
            data_form: now.data_form,
            flags: core.flags | cut,
            ..core
        };
        self.put_core(&mut txn, &mut locked, core)?;
        let list = self.apply(&mut txn, &mut locked, list)?;
        let owner = set.uid.is_some() || set.gid.is_some();
        let dropped = match set.size.is_some() || owner {
            true => {
                // After the list: both change the same fork.
                let plan = self.plan_drop_capability(ino, locked.inode())?;
                self.drop_capability(&mut txn, &mut locked, plan)?
            }
            false => None,
        };
        let attr = attr_of(ino, locked.inode())?;
        self.finish(&mut txn, &mut locked, list)?;
        self.finish(&mut txn, &mut locked, dropped)?;
        txn.stamp(&mut locked)?;
        txn.commit()?;
        drop(locked);
        if cut != 0 {
            self.finish_cut(ino)?;
            return self.getattr(ino);
        }
        Ok(attr)
    }

    /// Replaces the core of a locked inode, in memory and in the record.
    pub(crate) fn put_core(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        core: Core,
    ) -> Result<()> {
        let ino = locked.ino();
        locked.edit(self.table(ino)?, txn.epoch).core = core;
        txn.log_core(locked, Item::Core { ino, core });
        Ok(())
    }
}

impl Inner {
    /// The core as `set` would make it, if `who` may do that.
    fn changed_core(&self, who: &Caller, ino: Ino, inode: &Inode, set: &SetAttr) -> Result<Core> {
        let core = &inode.core;
        let time = now();
        let mut new = Core { ctime: time, ..*core };
        let owner = who.bypasses() || who.uid == core.uid;
        let denied = |code: Code| Err(Error::Code(code));
        if let Some(mode) = set.mode {
            if !owner {
                return denied(Code::NotPermitted);
            }
            new.mode = core.mode & !0o7777 | mode & 0o7777;
            if !who.bypasses() && !who.in_group(core.gid) {
                new.mode &= !0o2000;
            }
        }
        if set.uid.is_some() || set.gid.is_some() {
            change_owner(who, core, set, &mut new)?;
        }
        if let Some(size) = set.size {
            match core.kind() {
                8 => {}
                4 => return denied(Code::IsDirectory),
                _ => return denied(Code::Invalid),
            }
            if !set.by_handle {
                self.permit(who, ino, inode, perm::WRITE)?;
            }
            if size != core.size || set.mtime.is_none() {
                new.mtime = time;
            }
            if who.uid != 0 {
                perm::kill_set_id(&mut new, who.in_group(core.gid));
            }
        }
        let explicit = |t: &Option<SetTime>| matches!(t, Some(SetTime::To(_)));
        // One time set to now while the other stays is a choice, too: only both are a mere touch.
        let one = set.size.is_none() && set.atime.is_some() != set.mtime.is_some();
        if (explicit(&set.atime) || explicit(&set.mtime) || one) && !owner {
            return denied(Code::NotPermitted);
        }
        if (set.atime.is_some() || set.mtime.is_some()) && !owner && set.size.is_none() {
            self.permit(who, ino, inode, perm::WRITE)?;
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
        perm::kill_set_id(new, who.uid == 0 || who.in_group(core.gid));
    }
    Ok(())
}
