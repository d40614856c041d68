//! Hard links.

use super::{NAME_COST, check_project, set_links, touch_dir};
use crate::clock::now;
use crate::name::NameIn;
use crate::namei::Namespace;
use crate::records;
use crate::stat::attr_of;
use crate::types::{Caller, Entry, check_name};
use crate::xattr::{Pending, Plan};
use shoal_base::limits::LINK_MAX;
use shoal_base::planted::{self, Defect};
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::dirent::Dirent;
use shoal_format::inode::{FLAG_TMPFILE, FLAG_TRUNCATING, Stamp};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::{Root, Txn};

impl Namespace<'_> {
    /// Adds a name to `ino`. A file created by `tmpfile` gets its first one.
    pub fn link(self, who: &Caller, ino: Ino, dir: Ino, name: &[u8]) -> Result<Entry> {
        self.0.measured(Call::Link, || match ino.root() == dir.root() {
            true => self.0.reading_first(|| self.try_link(who, ino, dir, name)),
            false => Err(Error::Code(Code::CrossRoot)),
        })
    }

    fn try_link(self, who: &Caller, ino: Ino, dir: Ino, name: &[u8]) -> Result<Entry> {
        let mut txn = self.0.begin_space(NAME_COST, records::LINK)?;
        let root = self.0.root(dir)?;
        let (dir_ref, file_ref) = (root.table.get(dir)?, root.table.get(ino)?);
        // A directory must not be locked after `dir`: it could be `dir` or one of its ancestors.
        let is_dir = file_ref.read().inode.core.is_dir();
        let mut parent = dir_ref.write();
        self.check_search(who, dir, parent.inode())?;
        check_name(name)?;
        self.check_change(who, dir, parent.inode()).map_err(|e| self.exists_first(e, dir, name))?;
        if is_dir {
            let exists = self.directories().find_entry(dir, name)?.is_some();
            return Err(Error::Code(if exists { Code::Exists } else { Code::NotPermitted }));
        }
        let mut file = file_ref.write();
        let core = file.inode().core;
        attr_of(ino, file.inode())?;
        if core.is_dir() {
            return Err(Error::Code(Code::NotPermitted));
        }
        let orphan = core.nlink == 0;
        // The caller has the file open, so its orphan slot is kept.
        let slot = match orphan {
            true => self.0.holds.slot_of(ino),
            false => None,
        };
        // An existing name is reported first, as in Linux.
        if orphan && self.directories().find_entry(dir, name)?.is_some() {
            return Err(Error::Code(Code::Exists));
        }
        if orphan && (core.flags & FLAG_TMPFILE == 0 || slot.is_none()) {
            return Err(Error::Code(Code::NotFound));
        }
        if core.nlink == LINK_MAX {
            return Err(Error::Code(Code::TooManyLinks));
        }
        check_project(&core, &parent.inode().core)?;
        let here = NameIn::new(dir, &parent.inode().core, name);
        let plan = self.plan_link(&file, &here)?;
        let stamp = now();
        let pending = self.apply_link(&mut txn, root, &mut file, &here, plan, stamp)?;
        if let Some(slot) = slot {
            let core = &mut file.edit(&root.table, txn.epoch()).core;
            core.flags &= !FLAG_TMPFILE;
            let core = *core;
            txn.log_core(&mut file, Item::Core { ino, core });
            self.0.holds.adopted(ino);
            if core.flags & FLAG_TRUNCATING == 0 {
                self.orphans().free_slot(&mut txn, slot, ino);
            } else {
                // A truncate of several transactions is in progress; its last transaction frees the
                // slot.
                self.0.truncates.lock().insert(ino, slot);
            }
        }
        touch_dir(&mut txn, &root.table, &mut parent, 1, 0, stamp);
        let entry = attr_of(ino, file.inode())?;
        self.intents().finish(&mut txn, &mut file, pending)?;
        txn.stamp(&mut file)?;
        txn.stamp(&mut parent)?;
        txn.commit()?;
        Ok(entry)
    }

    /// Plans another name for a locked inode: all steps that can fail.
    pub(crate) fn plan_link(self, file: &Locked<'_>, name: &NameIn<'_>) -> Result<Plan> {
        match planted::is(Defect::PointerMissing) {
            true => Ok(Plan::Nothing),
            false => self.paths().plan_parent(file.ino(), file.inode(), None, Some(name)),
        }
    }

    /// Adds a name to a locked inode, in memory and in the record. Its entry is the first change.
    /// The caller updates counts and times of the directory.
    pub(crate) fn apply_link(
        self,
        txn: &mut Txn<'_>,
        root: &Root,
        file: &mut Locked<'_>,
        name: &NameIn<'_>,
        plan: Plan,
        stamp: Stamp,
    ) -> Result<Option<Pending>> {
        let (ino, core) = (file.ino(), file.inode().core);
        let (dir, kind) = (name.link.dir, core.kind());
        if let Some(key) = self.directories().insert_entry(txn, dir, name.name, ino, kind)? {
            self.directories().log_entry(
                txn,
                dir,
                key,
                Dirent { child: ino, kind, name: name.name },
            );
        }
        let pending = self.xattrs().apply(txn, file, plan)?;
        set_links(txn, &root.table, file, core.nlink + 1, stamp);
        Ok(pending)
    }
}
