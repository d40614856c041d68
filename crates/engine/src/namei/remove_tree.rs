//! Removing a directory with its contents: one transaction removes the name, the rest is freed in
//! the background (`reap/tree.rs`).

use super::{Loss, check_dir, touch_dir};
use crate::clock::now;
use crate::name::NameIn;
use crate::namei::Namespace;
use crate::orphans::Left;
use crate::permissions;
use crate::records;
use crate::types::{Caller, Entry, FileKind, TreeCheck};
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::dirent::first_key;

impl Namespace<'_> {
    /// Removes the file `name` in `dir`, or the directory with everything below it.
    ///
    /// When this returns, the tree is out of the namespace, in one change: after a crash either all
    /// of it exists, or nothing. Its space is freed in the background (`reap/`). Files with names
    /// outside the tree keep those, and open files stay usable. Files that a process creates
    /// inside, during the call or before their directory is reaped, are removed too. Directories
    /// cannot be moved in.
    ///
    /// Nothing is removed unless everything may be removed, as far as `check` requires. In
    /// contrast, `rm -rf` removes as much as it can.
    ///
    /// # Errors
    /// Those of `unlink` and `rmdir` for the name itself. With [`TreeCheck::Tree`] `EACCES` or
    /// `EPERM` if `who` could not remove something inside. `EBUSY` for a subvolume.
    pub fn remove_tree(self, who: &Caller, dir: Ino, name: &[u8], check: TreeCheck) -> Result<()> {
        self.0.measured(Call::RemoveTree, || self.take_tree(who, dir, name, check, true))
    }

    /// As [`Namespace::remove_tree`], but only of a directory or a symlink.
    ///
    /// # Errors
    /// `ENOTDIR` for any other file.
    pub fn remove_dir_tree(
        self,
        who: &Caller,
        dir: Ino,
        name: &[u8],
        check: TreeCheck,
    ) -> Result<()> {
        self.0.measured(Call::RemoveTree, || self.take_tree(who, dir, name, check, false))
    }

    fn take_tree(
        self,
        who: &Caller,
        dir: Ino,
        name: &[u8],
        check: TreeCheck,
        may_be_file: bool,
    ) -> Result<()> {
        loop {
            let top = match name {
                b"." | b".." => return Err(Error::Code(Code::Invalid)),
                _ => self.lookup(who, dir, name)?,
            };
            if top.kind != FileKind::Directory {
                if !may_be_file && top.kind != FileKind::Symlink {
                    return Err(Error::Code(Code::NotDirectory));
                }
                match self.unlink(who, dir, name) {
                    // It has become a directory.
                    Err(Error::Code(Code::IsDirectory)) => continue,
                    other => return other,
                }
            }
            if check == TreeCheck::Tree && !who.bypasses() && top.ino.root() == dir.root() {
                self.may_empty(who, top.ino)?;
            }
            let taken = self.0.reading_first(|| self.take_top(who, dir, name, &top))?;
            if let Some(left) = taken {
                return self.orphans().settle(left);
            }
        }
    }

    /// Removes the name of a directory. Returns `None` if the name now has another inode, or one
    /// that has got the number of this.
    fn take_top(
        self,
        who: &Caller,
        dir: Ino,
        name: &[u8],
        top: &Entry,
    ) -> Result<Option<Option<Left>>> {
        let root = self.0.root(dir)?;
        let mut txn = self.0.begin(records::UNLINK)?;
        // The directory is unlinked: no walk to its ancestors may be in progress.
        let _renames = root.rename.lock();
        let dir_ref = root.table.get(dir)?;
        let mut parent = dir_ref.write();
        let found = self.entry_to_remove(who, &parent, name)?;
        if found.child != top.ino {
            return Ok(None);
        }
        let child_ref = root.table.get(found.child)?;
        let mut child = child_ref.write();
        self.check_child(&found, &child)?;
        if child.inode().core.generation != top.generation.0 {
            return Ok(None);
        }
        permissions::check_sticky(who, &parent.inode().core, &child.inode().core)?;
        if found.child == Ino::ROOT {
            return Err(Error::Code(Code::Busy));
        }
        let _shape = self.0.shape.change();
        let size = self.orphans().size_of(found.child, child.inode())?;
        txn.check_memory()?;
        let here = NameIn::new(dir, &parent.inode().core, name);
        let generation = child.inode().core.generation;
        self.directories().remove_entry(&mut txn, &found, &here, generation)?;
        let stamp = now();
        let (left, _) = self.drop_link(&mut txn, &mut child, Loss::Last(size), stamp)?;
        touch_dir(&mut txn, &root.table, &mut parent, -1, -1, stamp);
        txn.stamp(&mut child)?;
        txn.stamp(&mut parent)?;
        txn.commit()?;
        Ok(Some(left))
    }

    /// Checks whether `who` could remove everything below a directory: list, search and change each
    /// directory with entries, and remove each entry of a sticky directory. No lock is held between
    /// directories.
    fn may_empty(self, who: &Caller, top: Ino) -> Result<()> {
        let mut below = vec![top];
        while let Some(dir) = below.pop() {
            let inode = match self.0.inode(dir) {
                Err(Error::Code(Code::Stale)) => continue,
                other => other?,
            };
            let slot = inode.read();
            let core = slot.inode.core;
            if check_dir(&core).is_err() || core.size == 0 {
                continue;
            }
            self.permissions().permit(
                who,
                dir,
                &slot.inode,
                permissions::READ | permissions::WRITE | permissions::EXEC,
            )?;
            drop(slot);
            let sticky = core.mode & 0o1000 != 0;
            let mut entries = Vec::new();
            self.directories().readdir(
                dir,
                first_key(dir).lo.saturating_sub(1).max(2),
                &mut |entry| {
                    if sticky || entry.kind == FileKind::Directory {
                        entries.push((entry.ino, entry.kind));
                    }
                    true
                },
            )?;
            for (child, kind) in entries {
                if sticky && let Ok(inode) = self.0.inode(child) {
                    permissions::check_sticky(who, &core, &inode.read().inode.core)?;
                }
                if kind == FileKind::Directory {
                    below.push(child);
                }
            }
        }
        Ok(())
    }
}
