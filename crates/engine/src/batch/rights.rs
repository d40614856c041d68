//! Permissions of a directory as the changes of a batch so far leave them. Paths of later changes
//! are walked with these.

use crate::attributes::change_rights;
use crate::namei::birth::{Birth, New, new_core};
use crate::permissions::acl::{ACCESS, Acl, DEFAULT};
use crate::permissions::{self, Inherited, Permissions};
use crate::types::{Caller, SetAttr};
use shoal_base::{Ino, Result};
use shoal_format::inode::{Core, FLAG_ACL, FLAG_DEFAULT_ACL, Inode, Stamp};

/// Mode, owner and access control lists of a directory.
pub(super) struct Rights {
    core: Core,
    access: Option<Acl>,
    default: Option<Acl>,
}

impl Rights {
    /// Returns those of an existing directory.
    pub(super) fn of(permissions: Permissions<'_>, dir: Ino, inode: &Inode) -> Result<Rights> {
        let load = |flag, name| match inode.core.flags & flag {
            0 => Ok(None),
            _ => permissions.load_acl(dir, inode, name),
        };
        let (access, default) = (load(FLAG_ACL, ACCESS)?, load(FLAG_DEFAULT_ACL, DEFAULT)?);
        Ok(Rights { core: inode.core, access, default })
    }

    /// Returns those of a directory that `who` makes in this one.
    pub(super) fn of_new(&self, who: &Caller, mode: u32) -> Rights {
        let heir = Inherited::of(self.default.as_ref(), mode);
        let birth = Birth::inheriting(&heir);
        let core = new_core(who, &self.core, &New::empty(mode), &birth, Stamp::default());
        Rights { core, access: heir.access, default: heir.default }
    }

    /// Changes mode and owner, if `who` has the permission.
    pub(super) fn change(&mut self, who: &Caller, set: &SetAttr) -> Result<()> {
        self.core = change_rights(who, &self.core, set)?;
        if let (Some(_), Some(list)) = (set.mode, &mut self.access) {
            list.set_mode(self.core.mode);
        }
        Ok(())
    }

    /// Returns whether `who` may look names up.
    pub(super) fn may_search(&self, who: &Caller) -> bool {
        let list = self.access.as_ref();
        permissions::check_list(who, &self.core, list, permissions::EXEC).is_ok()
    }

    /// Returns the values that decide them, without the lists themselves.
    pub(super) fn decided_by(core: &Core) -> [u32; 4] {
        [core.mode, core.uid, core.gid, core.flags & (FLAG_ACL | FLAG_DEFAULT_ACL)]
    }

    /// Returns the values that decide these.
    pub(super) fn base(&self) -> [u32; 4] {
        Rights::decided_by(&self.core)
    }
}
