//! Attributes and permissions.

use super::{Body, Change, Model, Outcome, Touch};
use shoal::raw::{Caller, Code, FileKind, Ino, SetAttr, SetTime};
use shoal_base::limits::FILE_SIZE_MAX;

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;
const ANY_EXECUTE: u32 = 0o111;

impl Model {
    /// The permission check: `mask` 4 read, 2 write, 1 execute or search.
    pub(crate) fn permit(&self, who: &Caller, ino: Ino, mask: u32) -> Outcome<()> {
        let node = self.node(ino).ok_or(Code::Stale)?;
        if who.bypasses() {
            let executable = node.kind == FileKind::Directory || node.perm & ANY_EXECUTE != 0;
            let denied = mask & 1 != 0 && !executable && !who.checked;
            return if denied { Err(Code::Access) } else { Ok(()) };
        }
        let shift = match () {
            () if who.uid == node.uid => 6,
            () if who.in_group(node.gid) => 3,
            () => 0,
        };
        let granted = node.perm >> shift & 7;
        if granted & mask == mask { Ok(()) } else { Err(Code::Access) }
    }

    /// Changes attributes. One kind of change at a time is all that the workload makes.
    pub(crate) fn setattr(&mut self, who: &Caller, ino: Ino, set: &SetAttr) -> Outcome<()> {
        if !self.nodes.contains_key(&ino) {
            return Err(Code::Stale);
        }
        if let Some(size) = set.size {
            self.set_size(who, ino, size, set.by_handle)?;
        }
        if set.uid.is_some() || set.gid.is_some() {
            self.set_owner(who, ino, set.uid, set.gid)?;
        }
        if let Some(mode) = set.mode {
            self.set_mode(who, ino, mode)?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            self.set_times(who, ino, set.atime, set.mtime)?;
        }
        Ok(())
    }

    fn set_size(&mut self, who: &Caller, ino: Ino, size: u64, by_handle: bool) -> Outcome<()> {
        let node = &self.nodes[&ino];
        match node.kind {
            FileKind::Directory => return Err(Code::IsDirectory),
            FileKind::Regular => {}
            _ => return Err(Code::Invalid),
        }
        if !by_handle {
            self.permit(who, ino, 2)?;
        }
        if size > FILE_SIZE_MAX {
            return Err(Code::FileTooBig);
        }
        let node = self.nodes.get_mut(&ino).expect("checked");
        if let Body::File(content) = &mut node.body {
            content.resize(size);
        }
        if who.uid != 0 {
            drop_set_ids(&mut node.perm, who.in_group(node.gid));
        }
        self.touch_contents(ino);
        Ok(())
    }

    fn set_owner(
        &mut self,
        who: &Caller,
        ino: Ino,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> Outcome<()> {
        let node = self.nodes.get_mut(&ino).expect("checked");
        if who.uid != 0 {
            let owner = who.uid == node.uid;
            let uid_kept = uid.is_none_or(|uid| owner && uid == node.uid);
            let gid_known = gid.is_none_or(|gid| owner && (gid == node.gid || who.in_group(gid)));
            if !uid_kept || !gid_known {
                return Err(Code::NotPermitted);
            }
        }
        if node.kind != FileKind::Directory {
            drop_set_ids(&mut node.perm, who.uid == 0 || who.in_group(node.gid));
        }
        node.uid = uid.unwrap_or(node.uid);
        node.gid = gid.unwrap_or(node.gid);
        self.touch_ctime(ino);
        Ok(())
    }

    fn set_mode(&mut self, who: &Caller, ino: Ino, mode: u32) -> Outcome<()> {
        let node = self.nodes.get_mut(&ino).expect("checked");
        if who.uid != 0 && who.uid != node.uid {
            return Err(Code::NotPermitted);
        }
        node.perm = mode & 0o7777;
        if who.uid != 0 && !who.in_group(node.gid) {
            node.perm &= !SET_GID;
        }
        self.touch_ctime(ino);
        Ok(())
    }

    fn set_times(
        &mut self,
        who: &Caller,
        ino: Ino,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
    ) -> Outcome<()> {
        let owner = who.uid == 0 || who.uid == self.nodes[&ino].uid;
        if !owner {
            // Whoever may write may also say "now", but nothing else.
            if (atime, mtime) != (Some(SetTime::Now), Some(SetTime::Now)) {
                return Err(Code::NotPermitted);
            }
            self.permit(who, ino, 2)?;
        }
        let change = |time: Option<SetTime>| match time {
            None => Change::Keep,
            Some(SetTime::Now) => Change::Any,
            Some(SetTime::To(time)) => Change::To(time),
        };
        let (atime, mtime) = (change(atime), change(mtime));
        self.touch(ino, Touch { atime, mtime, ctime: Change::Any, born: false });
        Ok(())
    }
}

/// Drops the set-id bits, as a write by an ordinary user and any change of owner do. Set-group-id
/// without group execution once meant mandatory locking: who is in the group keeps it.
pub(super) fn drop_set_ids(perm: &mut u32, in_group: bool) {
    *perm &= !SET_UID;
    if *perm & GROUP_EXECUTE != 0 || !in_group {
        *perm &= !SET_GID;
    }
}
