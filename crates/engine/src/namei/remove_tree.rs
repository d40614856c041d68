//! Removing a directory with everything in it: one transaction takes the name, the rest is freed
//! behind the caller (`reap/tree.rs`).

use super::{Loss, check_dir, touch_dir};
use crate::clock::now;
use crate::orphan::Left;
use crate::parent::NameIn;
use crate::perm;
use crate::records;
use crate::types::{Caller, FileKind, TreeCheck};
use crate::volume::Inner;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::dirent::first_key;

impl Inner {
    /// Removes what `name` in `dir` is: a directory with all that is below it, or a file.
    ///
    /// When it returns, the tree is out of the namespace, as one change: after a crash all of it is
    /// there, or none. Its space comes back behind the call; see [`Inner::reap_some`]. Files with
    /// names outside the tree keep those, what is open stays usable. What somebody who is inside
    /// makes below, while the call runs or until that directory's turn has come, goes too; a
    /// directory cannot be moved in.
    ///
    /// Nothing is removed unless all of it may be, as far as `check` asks: other than `rm -rf`,
    /// which goes as far as it can.
    ///
    /// # Errors
    /// Those of `unlink` and `rmdir` for the name itself; with [`TreeCheck::Tree`] `EACCES` or
    /// `EPERM` for what `who` could not remove inside; `EBUSY` for a root.
    pub fn remove_tree(&self, who: &Caller, dir: Ino, name: &[u8], check: TreeCheck) -> Result<()> {
        loop {
            let top = match name {
                b"." | b".." => return Err(Error::Code(Code::Invalid)),
                _ => self.lookup(who, dir, name)?,
            };
            if top.kind != FileKind::Directory {
                match self.unlink(who, dir, name) {
                    // It has become a directory.
                    Err(Error::Code(Code::IsDirectory)) => continue,
                    other => return other,
                }
            }
            if check == TreeCheck::Tree && !who.bypasses() && top.ino.root() == dir.root() {
                self.may_empty(who, top.ino)?;
            }
            let taken = self.reading_first(|| self.take_top(who, dir, name, top.ino))?;
            if let Some(left) = taken {
                return self.settle(left);
            }
        }
    }

    /// Takes the name of a directory. `None`: the name means something else now.
    fn take_top(
        &self,
        who: &Caller,
        dir: Ino,
        name: &[u8],
        top: Ino,
    ) -> Result<Option<Option<Left>>> {
        let root = self.root(dir)?;
        let mut txn = self.begin(records::UNLINK)?;
        // A directory leaves its place: no walk up may come half-way.
        let _renames = root.rename.lock();
        let dir_ref = root.table.get(dir)?;
        let mut parent = dir_ref.write();
        let found = self.entry_to_remove(who, &parent, name)?;
        if found.child != top {
            return Ok(None);
        }
        self.check_removable(dir, &found)?;
        let child_ref = root.table.get(found.child)?;
        let mut child = child_ref.write();
        self.check_child(&found, &child)?;
        perm::check_sticky(who, &parent.inode().core, &child.inode().core)?;
        if found.child == Ino::ROOT {
            return Err(Error::Code(Code::Busy));
        }
        let _shape = self.shape.change();
        let size = self.size_of(found.child, child.inode())?;
        txn.check_memory()?;
        let here = NameIn::new(dir, &parent.inode().core, name);
        self.remove_entry(&mut txn, &found, &here)?;
        let stamp = now();
        let (left, _) = self.drop_link(&mut txn, &mut child, Loss::Last(size), stamp)?;
        touch_dir(&mut txn, &root.table, &mut parent, -1, -1, stamp);
        txn.stamp(&mut child)?;
        txn.stamp(&mut parent)?;
        txn.commit()?;
        Ok(Some(left))
    }

    /// Whether `who` could remove everything below a directory: list, search and change each
    /// directory that has entries, and remove each entry where the sticky bit is set. Without
    /// locks held from one directory to the next.
    fn may_empty(&self, who: &Caller, top: Ino) -> Result<()> {
        let mut below = vec![top];
        while let Some(dir) = below.pop() {
            let inode = match self.inode(dir) {
                Err(Error::Code(Code::Stale)) => continue,
                other => other?,
            };
            let slot = inode.read();
            let core = slot.inode.core;
            if check_dir(&core).is_err() || core.size == 0 {
                continue;
            }
            self.permit(who, dir, &slot.inode, perm::READ | perm::WRITE | perm::EXEC)?;
            drop(slot);
            let sticky = core.mode & 0o1000 != 0;
            let mut entries = Vec::new();
            self.readdir(dir, first_key(dir).lo.saturating_sub(1).max(2), &mut |entry| {
                if sticky || entry.kind == FileKind::Directory {
                    entries.push((entry.ino, entry.kind));
                }
                true
            })?;
            for (child, kind) in entries {
                if sticky && let Ok(inode) = self.inode(child) {
                    perm::check_sticky(who, &core, &inode.read().inode.core)?;
                }
                if kind == FileKind::Directory {
                    below.push(child);
                }
            }
        }
        Ok(())
    }
}
