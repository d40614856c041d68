//! Removing names: unlink, rmdir. Lock the directory, find the entry, lock the inode, *check*,
//! *plan* (the steps that can fail), *apply*, commit. A batch takes the same steps
//! (`batch/apply.rs`).

use super::{names_itself, set_links, touch_dir, touched};
use crate::clock::now;
use crate::directories::Found;
use crate::name::NameIn;
use crate::namei::Namespace;
use crate::orphans::{Left, Size};
use crate::permissions;
use crate::records;
use crate::types::{Caller, FileKind};
use crate::xattr::{Pending, Plan};
use shoal_base::limits::NAME_MAX;
use shoal_base::planted::{self, Defect};
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::{Core, Inode, Stamp};
use shoal_format::item::size;
use shoal_itable::Locked;
use shoal_txn::Txn;

/// The planned effect of removing a name on the file.
#[derive(Debug)]
pub(crate) enum Loss {
    /// One of several names: its parent pointer is removed.
    Name(Plan),
    /// The last name: the whole file is removed.
    Last(Size),
}

impl Loss {
    /// Maximum bytes of the record for the change of attributes.
    pub(crate) fn record_bytes(&self, inode: &Inode) -> usize {
        match self {
            Loss::Name(plan) => plan.record_bytes(inode),
            Loss::Last(_) => 0,
        }
    }
}

impl Namespace<'_> {
    /// Removes a name of a file other than a directory. After its last name the file is freed, at
    /// once or when it is no longer in use.
    pub fn unlink(self, who: &Caller, dir: Ino, name: &[u8]) -> Result<()> {
        self.0.measured(Call::Unlink, || self.remove(who, dir, name, false))
    }

    /// Removes an empty directory.
    pub fn rmdir(self, who: &Caller, dir: Ino, name: &[u8]) -> Result<()> {
        self.0.measured(Call::Rmdir, || match name {
            b"." => Err(Error::Code(Code::Invalid)),
            b".." => Err(Error::Code(Code::NotEmpty)),
            _ => self.remove(who, dir, name, true),
        })
    }

    fn remove(self, who: &Caller, dir: Ino, name: &[u8], want_dir: bool) -> Result<()> {
        let left = self.0.reading_first(|| self.try_remove(who, dir, name, want_dir))?;
        self.orphans().settle(left)
    }

    #[inline]
    fn try_remove(
        self,
        who: &Caller,
        dir: Ino,
        name: &[u8],
        want_dir: bool,
    ) -> Result<Option<Left>> {
        let mut txn = self.0.begin(records::UNLINK)?;
        let root = self.0.root(dir)?;
        let pin = root.table.pin();
        let dir_ref = root.table.borrow(&pin, dir)?;
        let mut parent = dir_ref.write();
        let found = self.entry_to_remove(who, &parent, name)?;
        let child_ref = root.table.get(found.child)?;
        let mut child = child_ref.write();
        self.check_remove(who, &parent, &child, &found, want_dir)?;
        let here = NameIn::new(dir, &parent.inode().core, name);
        let loss = self.plan_drop(&child, &here)?;
        let stamp = now();
        let (left, pending) =
            self.apply_remove(&mut txn, &mut child, &found, &here, loss, stamp)?;
        let gone = if planted::is(Defect::EntriesKept) { 0 } else { -1 };
        let links = -i64::from(want_dir);
        if pending.is_some() {
            touch_dir(&mut txn, &root.table, &mut parent, gone, links, stamp);
            self.intents().finish(&mut txn, &mut child, pending)?;
            txn.stamp(&mut parent)?;
        } else {
            // Only this item is missing from the record: others that wait for the directory need
            // only the record's number.
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

    /// Finds the entry to remove from a locked directory. Checks that `who` may change the
    /// directory, and that the entry can be removed at all.
    #[inline(always)]
    pub(crate) fn entry_to_remove(
        self,
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
        let found =
            self.directories().find_entry(dir.ino(), name)?.ok_or(Error::Code(Code::NotFound))?;
        self.check_change(who, dir.ino(), dir.inode())?;
        self.check_removable(dir.ino(), &found)?;
        Ok(found)
    }

    /// Checks that `who` may remove this entry, as a directory or as a file. Directory and inode
    /// must be locked.
    #[inline(always)]
    pub(crate) fn check_remove(
        self,
        who: &Caller,
        parent: &Locked<'_>,
        child: &Locked<'_>,
        found: &Found,
        want_dir: bool,
    ) -> Result<()> {
        self.check_child(found, child)?;
        // Permissions before types, as in Linux.
        permissions::check_sticky(who, &parent.inode().core, &child.inode().core)?;
        let is_dir = found.kind == FileKind::Directory as u8;
        match (is_dir, want_dir) {
            (true, false) => Err(Error::Code(Code::IsDirectory)),
            (false, true) => Err(Error::Code(Code::NotDirectory)),
            (true, true) if child.inode().core.size != 0 => Err(Error::Code(Code::NotEmpty)),
            _ if found.child == Ino::ROOT => Err(Error::Code(Code::Busy)),
            _ => Ok(()),
        }
    }

    /// Removes an entry, and the link of its inode as planned. The caller updates the directory's
    /// counts and times, and passes the returned rest to [`Namespace::settle`].
    #[inline(always)]
    pub(crate) fn apply_remove(
        self,
        txn: &mut Txn<'_>,
        child: &mut Locked<'_>,
        found: &Found,
        name: &NameIn<'_>,
        loss: Loss,
        stamp: Stamp,
    ) -> Result<(Option<Left>, Option<Pending>)> {
        let generation = child.inode().core.generation;
        self.directories().remove_entry(txn, found, name, generation)?;
        child.leaves(found.dir);
        self.drop_link(txn, child, loss, stamp)
    }

    /// Refuses the top of another subvolume with `EBUSY`, like a mount point. Also refuses an entry
    /// that names its own directory: this is damage, and locking it would deadlock.
    pub(crate) fn check_removable(self, dir: Ino, found: &Found) -> Result<()> {
        if found.child.root() != dir.root() {
            return Err(Error::Code(Code::Busy));
        }
        if found.child == dir {
            return Err(names_itself(dir));
        }
        Ok(())
    }

    /// Checks that an entry names an inode in use of its type. On a damaged volume it may not.
    pub(crate) fn check_child(self, found: &Found, child: &Locked<'_>) -> Result<()> {
        let core = &child.inode().core;
        if !core.in_use() || core.kind() != found.kind || core.nlink == 0 {
            let object = format!("entry of directory {}", found.dir);
            let rule = format!("names inode {}: {}", found.child, child.inode().to_text());
            return Err(Error::corrupt(object, None, rule));
        }
        Ok(())
    }

    /// Plans the removal of this name of a locked inode. The parent pointer of the last name stays
    /// in the inode, and is freed with it.
    #[inline]
    pub(crate) fn plan_drop(self, child: &Locked<'_>, name: &NameIn<'_>) -> Result<Loss> {
        let (ino, inode) = (child.ino(), child.inode());
        match links_left(&inode.core) {
            0 => self.orphans().size_of(ino, inode).map(Loss::Last),
            _ if planted::is(Defect::PointerLeft) => Ok(Loss::Name(Plan::Nothing)),
            _ => self.paths().plan_parent(ino, inode, Some(name), None).map(Loss::Name),
        }
    }

    /// Removes one link of a locked inode (of a directory, its only name), and its parent pointer
    /// as planned. For the last link see `orphans.rs`. The caller must pass the returned rest to
    /// [`Namespace::settle`].
    pub(crate) fn drop_link(
        self,
        txn: &mut Txn<'_>,
        child: &mut Locked<'_>,
        loss: Loss,
        stamp: Stamp,
    ) -> Result<(Option<Left>, Option<Pending>)> {
        match loss {
            Loss::Last(size) => Ok((self.orphans().drop_last_link(txn, child, size, stamp)?, None)),
            Loss::Name(plan) => {
                let kept = u32::from(planted::is(Defect::LinksKept));
                let left = links_left(&child.inode().core) + kept;
                set_links(txn, self.0.table(child.ino())?, child, left, stamp);
                Ok((None, self.xattrs().apply(txn, child, plan)?))
            }
        }
    }
}

/// Links that remain after one is removed.
#[inline]
fn links_left(core: &Core) -> u32 {
    if core.is_dir() { 0 } else { core.nlink - 1 }
}
