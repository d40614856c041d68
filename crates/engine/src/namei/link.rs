//! Hard links.

use super::{NAME_COST, set_links, touch_dir};
use crate::attr::attr_of;
use crate::clock::now;
use crate::parent::NameIn;
use crate::records;
use crate::types::{Caller, Entry, check_name};
use crate::volume::Inner;
use shoal_base::limits::LINK_MAX;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::dirent::Dirent;
use shoal_format::inode::{FLAG_CUT, FLAG_TMPFILE};
use shoal_format::item::Item;

impl Inner {
    /// Gives `ino` one more name. A file made by `tmpfile` gets its first.
    pub fn link(&self, who: &Caller, ino: Ino, dir: Ino, name: &[u8]) -> Result<Entry> {
        if ino.root() != dir.root() {
            return Err(Error::Code(Code::CrossRoot));
        }
        self.reading_first(|| self.try_link(who, ino, dir, name))
    }

    fn try_link(&self, who: &Caller, ino: Ino, dir: Ino, name: &[u8]) -> Result<Entry> {
        let mut txn = self.begin_space(NAME_COST, records::LINK)?;
        let root = self.root(dir)?;
        let (dir_ref, file_ref) = (root.table.get(dir)?, root.table.get(ino)?);
        // A directory must not be locked after `dir`: it could be above it, or be it.
        let is_dir = file_ref.read().inode.core.is_dir();
        let mut parent = dir_ref.write();
        self.check_search(who, dir, parent.inode())?;
        check_name(name)?;
        self.check_change(who, dir, parent.inode()).map_err(|e| self.exists_first(e, dir, name))?;
        if is_dir {
            let exists = self.find_entry(dir, name)?.is_some();
            return Err(Error::Code(if exists { Code::Exists } else { Code::NotPermitted }));
        }
        let mut file = file_ref.write();
        let core = file.inode().core;
        attr_of(ino, file.inode())?;
        if core.is_dir() {
            return Err(Error::Code(Code::NotPermitted));
        }
        let orphan = core.nlink == 0;
        // Whoever gives it a name has it open, and with it its slot.
        let slot = match orphan {
            true => self.holds.slot_of(ino),
            false => None,
        };
        // That the name exists is said first, as on Linux.
        if orphan && self.find_entry(dir, name)?.is_some() {
            return Err(Error::Code(Code::Exists));
        }
        if orphan && (core.flags & FLAG_TMPFILE == 0 || slot.is_none()) {
            return Err(Error::Code(Code::NotFound));
        }
        if core.nlink == LINK_MAX {
            return Err(Error::Code(Code::TooManyLinks));
        }
        let here = NameIn::new(dir, &parent.inode().core, name);
        let plan = match planted::is(Defect::PointerMissing) {
            true => crate::xattr::Plan::Nothing,
            false => self.plan_parent(ino, file.inode(), None, Some(&here))?,
        };
        let kind = core.kind();
        if let Some(key) = self.insert_entry(&mut txn, dir, name, ino, kind)? {
            self.log_entry(&mut txn, dir, key, Dirent { child: ino, kind, name });
        }
        let pending = self.apply(&mut txn, &mut file, plan)?;
        let stamp = now();
        set_links(&mut txn, &root.table, &mut file, core.nlink + 1, stamp);
        if let Some(slot) = slot {
            let core = &mut file.edit(&root.table, txn.epoch).core;
            core.flags &= !FLAG_TMPFILE;
            let core = *core;
            txn.log_core(&mut file, Item::Core { ino, core });
            self.holds.adopted(ino);
            if core.flags & FLAG_CUT == 0 {
                self.free_slot(&mut txn, slot, ino);
            } else {
                // Another call is cutting it, in several transactions: the last frees the slot.
                self.cuts.lock().insert(ino, slot);
            }
        }
        touch_dir(&mut txn, &root.table, &mut parent, 1, 0, stamp);
        let entry = attr_of(ino, file.inode())?;
        self.finish(&mut txn, &mut file, pending)?;
        txn.stamp(&mut file)?;
        txn.stamp(&mut parent)?;
        txn.commit()?;
        Ok(entry)
    }
}
