//! Removing names: unlink, rmdir.

use super::{names_itself, set_links, touch_dir, touched};
use crate::clock::now;
use crate::dir::Found;
use crate::orphan::{Left, Size};
use crate::parent::NameIn;
use crate::perm;
use crate::records;
use crate::types::{Caller, FileKind};
use crate::volume::Inner;
use crate::xattr::{Pending, Plan};
use shoal_base::limits::NAME_MAX;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::{Core, Inode, Stamp};
use shoal_format::item::size;
use shoal_itable::Locked;
use shoal_txn::Txn;

/// What a file loses with a name, planned.
#[derive(Debug)]
pub(crate) enum Loss {
    /// One of several names: its parent pointer.
    Name(Plan),
    /// The last, and with it all.
    Last(Size),
}

impl Loss {
    /// Bytes of record, at most, that the change of attributes takes.
    pub(crate) fn record_bytes(&self, inode: &Inode) -> usize {
        match self {
            Loss::Name(plan) => plan.record_bytes(inode),
            Loss::Last(_) => 0,
        }
    }
}

impl Inner {
    /// Removes a name of a file that is not a directory; its last makes the file go, at once or
    /// when nothing holds it any more.
    pub fn unlink(&self, who: &Caller, dir: Ino, name: &[u8]) -> Result<()> {
        self.remove(who, dir, name, false)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, who: &Caller, dir: Ino, name: &[u8]) -> Result<()> {
        match name {
            b"." => Err(Error::Code(Code::Invalid)),
            b".." => Err(Error::Code(Code::NotEmpty)),
            _ => self.remove(who, dir, name, true),
        }
    }

    fn remove(&self, who: &Caller, dir: Ino, name: &[u8], want_dir: bool) -> Result<()> {
        let left = self.reading_first(|| self.try_remove(who, dir, name, want_dir))?;
        self.settle(left)
    }

    #[inline]
    fn try_remove(
        &self,
        who: &Caller,
        dir: Ino,
        name: &[u8],
        want_dir: bool,
    ) -> Result<Option<Left>> {
        let mut txn = self.begin(records::UNLINK)?;
        let root = self.root(dir)?;
        let pin = root.table.pin();
        let dir_ref = root.table.borrow(&pin, dir)?;
        let mut parent = dir_ref.write();
        let found = self.entry_to_remove(who, &parent, name)?;
        let is_dir = found.kind == FileKind::Directory as u8;
        self.check_removable(dir, &found)?;
        let child_ref = root.table.get(found.child)?;
        let mut child = child_ref.write();
        self.check_child(&found, &child)?;
        // Permissions before types, as on Linux.
        perm::check_sticky(who, &parent.inode().core, &child.inode().core)?;
        match (is_dir, want_dir) {
            (true, false) => return Err(Error::Code(Code::IsDirectory)),
            (false, true) => return Err(Error::Code(Code::NotDirectory)),
            _ => {}
        }
        if is_dir && child.inode().core.size != 0 {
            return Err(Error::Code(Code::NotEmpty));
        }
        if found.child == Ino::ROOT {
            return Err(Error::Code(Code::Busy));
        }
        let here = NameIn::new(dir, &parent.inode().core, name);
        let loss = self.plan_drop(&child, &here)?;
        self.remove_entry(&mut txn, &found, &here)?;
        let stamp = now();
        child.leaves(dir);
        let (left, pending) = self.drop_link(&mut txn, &mut child, loss, stamp)?;
        let gone = if planted::is(Defect::EntriesKept) { 0 } else { -1 };
        let links = -i64::from(is_dir);
        if pending.is_some() {
            touch_dir(&mut txn, &root.table, &mut parent, gone, links, stamp);
            self.finish(&mut txn, &mut child, pending)?;
            txn.stamp(&mut parent)?;
        } else {
            // The record lacks but this: its number is all that others in the directory wait for.
            txn.number(size::DIR_TOUCH)?;
            let touch = touched(&mut txn, &root.table, &mut parent, gone, links, stamp);
            txn.stamp(&mut parent)?;
            drop(parent);
            txn.log(touch);
        }
        txn.stamp(&mut child)?;
        txn.commit()?;
        Ok(left)
    }

    pub(super) fn entry_to_remove(
        &self,
        who: &Caller,
        dir: &Locked<'_>,
        name: &[u8],
    ) -> Result<Found> {
        self.check_search(who, dir.ino(), dir.inode())?;
        match name {
            b"" => return Err(Error::Code(Code::NotFound)),
            b"." | b".." => return Err(Error::Code(Code::IsDirectory)),
            _ if name.len() > NAME_MAX => return Err(Error::Code(Code::NameTooLong)),
            _ => {}
        }
        let found = self.find_entry(dir.ino(), name)?.ok_or(Error::Code(Code::NotFound))?;
        self.check_change(who, dir.ino(), dir.inode())?;
        Ok(found)
    }

    /// The top of another root is like a mount point: `EBUSY`. And an entry that names its own
    /// directory is damage, and locking it would never end.
    pub(super) fn check_removable(&self, dir: Ino, found: &Found) -> Result<()> {
        if found.child.root() != dir.root() {
            return Err(Error::Code(Code::Busy));
        }
        if found.child == dir {
            return Err(names_itself(dir));
        }
        Ok(())
    }

    /// What an entry names must be an inode of that type: a damaged volume may say otherwise.
    pub(super) fn check_child(&self, found: &Found, child: &Locked<'_>) -> Result<()> {
        let core = &child.inode().core;
        if !core.in_use() || core.kind() != found.kind || core.nlink == 0 {
            let object = format!("entry of directory {}", found.dir);
            let rule = format!("names inode {}: {}", found.child, child.inode().to_text());
            return Err(Error::corrupt(object, None, rule));
        }
        Ok(())
    }

    /// Plans that a locked inode loses this name. Its last takes the parent pointer along.
    #[inline]
    pub(crate) fn plan_drop(&self, child: &Locked<'_>, name: &NameIn<'_>) -> Result<Loss> {
        let (ino, inode) = (child.ino(), child.inode());
        match links_left(&inode.core) {
            0 => self.size_of(ino, inode).map(Loss::Last),
            _ if planted::is(Defect::PointerLeft) => Ok(Loss::Name(Plan::Nothing)),
            _ => self.plan_parent(ino, inode, Some(name), None).map(Loss::Name),
        }
    }

    /// Takes one link off a locked inode (a directory loses its only name), and its parent pointer
    /// as planned; with the last, what `orphan.rs` says happens. The caller gives what is left to
    /// [`Inner::settle`].
    pub(crate) fn drop_link(
        &self,
        txn: &mut Txn<'_>,
        child: &mut Locked<'_>,
        loss: Loss,
        stamp: Stamp,
    ) -> Result<(Option<Left>, Option<Pending>)> {
        match loss {
            Loss::Last(size) => Ok((self.drop_last_link(txn, child, size, stamp)?, None)),
            Loss::Name(plan) => {
                let kept = u32::from(planted::is(Defect::LinksKept));
                let left = links_left(&child.inode().core) + kept;
                set_links(txn, self.table(child.ino())?, child, left, stamp);
                Ok((None, self.apply(txn, child, plan)?))
            }
        }
    }
}

/// Links that are left when one goes.
#[inline]
fn links_left(core: &Core) -> u32 {
    if core.is_dir() { 0 } else { core.nlink - 1 }
}
