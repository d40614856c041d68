//! The whiteout of a rename: a character device 0/0 that takes the place of the source. The upper
//! layer of an overlay hides a name of a lower layer by it.
//!
//! It is part of the rename's transaction. Otherwise a crash between the two would show the file of
//! the lower layer again. It inherits from its directory what any new file inherits there.

use super::birth::{Birth, New, new_core};
use super::create::Unused;
use crate::directories::Found;
use crate::name::NameIn;
use crate::namei::Namespace;
use crate::types::{Caller, FileKind, RenameFlags};
use crate::xattr::Pending;
use shoal_base::{Ino, Result};
use shoal_format::inode::{Core, Form, Stamp};
use shoal_format::item::Item;
use shoal_itable::{Charge, InodeRef, Locked};
use shoal_txn::{Root, Txn};

/// A planned whiteout.
pub(crate) struct Whiteout {
    birth: Birth,
    core: Core,
}

/// Returns the inode of a whiteout. Nobody may open it, so it has no permission bits.
fn new_whiteout() -> New<'static> {
    New::empty(FileKind::CharDevice.mode_bits())
}

impl<'v> Namespace<'v> {
    /// Allocates the number of a whiteout in a locked directory, if a rename leaves one.
    pub(super) fn whiteout_number<'r>(
        self,
        root: &'r Root,
        at: &InodeRef,
        dir: &Locked<'_>,
        flags: RenameFlags,
    ) -> Result<Option<Unused<'r>>> {
        if !flags.whiteout {
            return Ok(None);
        }
        let number = root.table.numbers().allocate(at.at(), dir.inode().core.size)?;
        Ok(Some(Unused::new(&root.table, Some(number))))
    }

    /// Takes in advance the share of a whiteout in the quota of its directory.
    ///
    /// # Errors
    /// `EDQUOT`.
    pub(crate) fn charge_whiteout(self, dir: &Locked<'_>) -> Result<Charge<'v>> {
        match dir.inode().core.project {
            0 => Ok(Charge::none()),
            project => self.charge_of(project, &new_whiteout()),
        }
    }

    /// Plans a whiteout of this number and name in a locked directory: all steps that can fail.
    pub(super) fn plan_whiteout(
        self,
        who: &Caller,
        dir: &Locked<'_>,
        name: &NameIn<'_>,
        ino: Ino,
        stamp: Stamp,
    ) -> Result<Whiteout> {
        let (above, new) = (dir.inode(), new_whiteout());
        let birth = self.birth(ino, dir.ino(), above, Some(name), &new)?;
        let core = Core { nlink: 1, ..new_core(who, &above.core, &new, &birth, stamp) };
        Ok(Whiteout { birth, core })
    }

    /// Puts a whiteout in the place of the entry `found`, whose inode has this generation. Returns
    /// the intents that must be finished once the record is complete.
    pub(super) fn apply_whiteout(
        self,
        txn: &mut Txn<'_>,
        root: &Root,
        locked: &mut Locked<'_>,
        whiteout: Whiteout,
        (found, generation): (&Found, u32),
        name: &NameIn<'_>,
    ) -> Result<Vec<Pending>> {
        let (ino, Whiteout { birth, core }) = (locked.ino(), whiteout);
        let new = (ino, new_whiteout().kind());
        self.directories().replace_entry(txn, found, name, generation, new, true)?;
        let sole = birth.sole;
        let pending = self.fill(txn, root, locked, core, birth)?;
        if sole {
            txn.log(Item::AttrFork { ino, form: Form::Inline, bytes: &locked.inode().attr });
        }
        Ok(pending)
    }
}
