//! Permission bits: access checks, and clearing of set-id bits.

use crate::types::Caller;
use shoal_base::{Code, Error, Result};
use shoal_format::inode::Core;

/// Read, write, and execute or search, as in `access(2)`.
pub(crate) const READ: u32 = 4;
pub(crate) const WRITE: u32 = 2;
pub(crate) const EXEC: u32 = 1;

/// Checks `mask` against the mode of an inode. For an inode that may have an access control list,
/// use [`Permissions::permit`](super::Permissions::permit).
#[inline]
pub(crate) fn check(who: &Caller, core: &Core, mask: u32) -> Result<()> {
    if who.checked {
        return Ok(());
    }
    if who.uid == 0 {
        // The superuser may execute only files with at least one execute bit.
        let plain = mask & EXEC == 0 || core.is_dir() || core.mode & 0o111 != 0;
        return if plain { Ok(()) } else { Err(Error::Code(Code::Access)) };
    }
    let granted = if who.uid == core.uid {
        core.mode >> 6
    } else if who.in_group(core.gid) {
        core.mode >> 3
    } else {
        core.mode
    };
    if mask & !granted & 7 == 0 { Ok(()) } else { Err(Error::Code(Code::Access)) }
}

/// Checks that `who` may remove `child`'s name from the directory `dir`: with the sticky bit only
/// the owners may.
#[inline]
pub(crate) fn check_sticky(who: &Caller, dir: &Core, child: &Core) -> Result<()> {
    let sticky = dir.mode & 0o1000 != 0;
    if sticky && !who.bypasses() && who.uid != dir.uid && who.uid != child.uid {
        return Err(Error::Code(Code::NotPermitted));
    }
    Ok(())
}

/// Clears the set-id bits, as after a write or change of owner by an unprivileged caller.
pub(crate) fn kill_set_id(core: &mut Core, in_group: bool) {
    core.mode &= !0o4000;
    // Without group execution the bit once meant mandatory locking: a group member keeps it.
    if core.mode & 0o010 != 0 || !in_group {
        core.mode &= !0o2000;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_do_not_add_up() {
        let core = Core { mode: 0o100_047, uid: 5, gid: 7, ..Core::default() };
        let owner = Caller::user(5, 7);
        let group = Caller { groups: std::sync::Arc::from([7]), ..Caller::user(6, 1) };
        let other = Caller::user(6, 1);
        assert!(check(&owner, &core, 4).is_err(), "the owner class alone decides");
        assert!(check(&group, &core, 4).is_ok());
        assert!(check(&group, &core, WRITE).is_err());
        assert!(check(&other, &core, 7).is_ok());
    }
}
