//! POSIX access control lists, in the Linux format of `system.posix_acl_access` and
//! `system.posix_acl_default`: a version and entries of 8 bytes.
//!
//! An inode's mode and its access list agree on owner, others and the group class. A list that is
//! equivalent to a mode is not stored. The default list of a directory determines the initial lists
//! of new files in it, instead of the umask.

use crate::types::Caller;
use crate::types::acl_change::{GROUP, GROUP_OBJ, MASK, OTHER, USER, USER_OBJ};
use shoal_base::{Code, Error, Result};
use shoal_format::bytes::{Put, Reader};
use shoal_format::inode::Core;

/// Name of an access list in the namespace `system`.
pub(crate) const ACCESS: &[u8] = b"posix_acl_access";
/// Name of a directory's default list.
pub(crate) const DEFAULT: &[u8] = b"posix_acl_default";

const VERSION: u32 = 2;
/// Id of an entry that needs none.
pub(super) const NO_ID: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub tag: u16,
    pub perm: u32,
    pub id: u32,
}

/// A valid list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl {
    pub(super) entries: Vec<Entry>,
}

impl Acl {
    /// The list that says the same as a mode.
    pub(crate) fn of_mode(mode: u32) -> Acl {
        let entry = |tag, shift: u32| Entry { tag, perm: mode >> shift & 7, id: NO_ID };
        Acl { entries: vec![entry(USER_OBJ, 6), entry(GROUP_OBJ, 3), entry(OTHER, 0)] }
    }

    /// Decodes a list; `None` for an empty one, which requests the removal. `EINVAL` for an invalid
    /// list, `EOPNOTSUPP` for another version.
    pub(crate) fn parse(raw: &[u8]) -> Result<Option<Acl>> {
        let invalid = Error::Code(Code::Invalid);
        if raw.is_empty() {
            return Ok(None);
        }
        let mut r = Reader::new(raw);
        if r.u32().ok_or(invalid.clone())? != VERSION {
            return Err(Error::Code(Code::NotSupported));
        }
        let mut entries = Vec::with_capacity(raw.len() / 8);
        while !r.is_empty() {
            let next = r.u16().zip(r.u16()).zip(r.u32());
            let ((tag, perm), id) = next.ok_or(invalid.clone())?;
            entries.push(Entry { tag, perm: u32::from(perm), id });
        }
        let acl = Acl { entries };
        match acl.entries.is_empty() {
            true => Ok(None),
            false if acl.is_valid() => Ok(Some(acl)),
            false => Err(invalid),
        }
    }

    /// Checks the rules of Linux: owner, users, group, groups, mask, others, in this order. Owner,
    /// group and others must occur once each, the mask if there are named entries.
    pub(super) fn is_valid(&self) -> bool {
        let tags = || self.entries.iter().map(|e| e.tag);
        let known = [USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER];
        let count = |tag| tags().filter(|t| *t == tag).count();
        let named = count(USER) + count(GROUP) > 0;
        let once = [USER_OBJ, GROUP_OBJ, OTHER].iter().all(|tag| count(*tag) == 1);
        tags().all(|t| known.contains(&t))
            && tags().is_sorted()
            && once
            && (count(MASK) == 1 || count(MASK) == 0 && !named)
            && self
                .entries
                .iter()
                .all(|e| e.perm <= 7 && (e.id != NO_ID || !matches!(e.tag, USER | GROUP)))
    }

    /// Encodes the list in the stored form.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + self.entries.len() * 8);
        out.put_u32(VERSION);
        for e in &self.entries {
            out.put_u16(e.tag);
            out.put_u16(e.perm as u16);
            out.put_u32(if matches!(e.tag, USER | GROUP) { e.id } else { NO_ID });
        }
        out
    }

    pub(super) fn perm(&self, tag: u16) -> Option<u32> {
        self.entries.iter().find(|e| e.tag == tag).map(|e| e.perm)
    }

    /// Returns the equivalent nine permission bits. The mask stands for the group class.
    pub(crate) fn mode(&self) -> u32 {
        let group = self.perm(MASK).or(self.perm(GROUP_OBJ)).unwrap_or(0);
        self.perm(USER_OBJ).unwrap_or(0) << 6 | group << 3 | self.perm(OTHER).unwrap_or(0)
    }

    /// Returns whether the list is equivalent to a mode.
    pub(crate) fn is_a_mode(&self) -> bool {
        self.entries.iter().all(|e| matches!(e.tag, USER_OBJ | GROUP_OBJ | OTHER))
    }

    /// Changes the list to a new mode.
    pub(crate) fn set_mode(&mut self, mode: u32) {
        let group = if self.perm(MASK).is_some() { MASK } else { GROUP_OBJ };
        for e in &mut self.entries {
            match e.tag {
                USER_OBJ => e.perm = mode >> 6 & 7,
                OTHER => e.perm = mode & 7,
                tag if tag == group => e.perm = mode >> 3 & 7,
                _ => {}
            }
        }
    }

    /// Converts a default list to the access list of a new inode with `mode`: both must permit an
    /// access. Returns the mode, with its other bits unchanged.
    pub(crate) fn inherit(&mut self, mode: u32) -> u32 {
        let allowed = self.mode() & mode;
        self.set_mode(allowed);
        mode & !0o777 | allowed
    }

    /// Returns whether `who`, not the owner, has the permissions `want` (read 4, write 2, execute
    /// 1).
    pub(crate) fn permits(&self, who: &Caller, core: &Core, want: u32) -> bool {
        let mask = self.perm(MASK).unwrap_or(7);
        let has = |perm: u32| perm & want == want;
        let user = |e: &&Entry| e.tag == USER && e.id == who.uid;
        if let Some(e) = self.entries.iter().find(user) {
            return has(e.perm & mask);
        }
        let mine = |e: &&Entry| match e.tag {
            GROUP_OBJ => who.in_group(core.gid),
            GROUP => who.in_group(e.id),
            _ => false,
        };
        // One group that grants all permissions is enough. A caller in a group that grants fewer
        // does not get those of others.
        let mut groups = self.entries.iter().filter(mine).peekable();
        match groups.peek() {
            Some(_) => groups.any(|e| has(e.perm & mask)),
            None => has(self.perm(OTHER).unwrap_or(0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// Encodes entries given as `(tag, permissions, id)`.
    pub(crate) fn bytes(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for (tag, perm, id) in entries {
            out.put_u16(*tag);
            out.put_u16(*perm);
            out.put_u32(*id);
        }
        out
    }

    const FULL: &[(u16, u16, u32)] =
        &[(1, 7, NO_ID), (2, 6, 5), (4, 5, NO_ID), (8, 7, 9), (16, 6, NO_ID), (32, 0, NO_ID)];

    #[test]
    fn rules_of_a_list() {
        let parse = |entries: &[(u16, u16, u32)]| Acl::parse(&bytes(entries));
        assert_eq!(parse(FULL).unwrap().unwrap().to_bytes(), bytes(FULL));
        assert_eq!(Acl::parse(b""), Ok(None));
        assert_eq!(parse(&[]), Ok(None));
        let code = |r: Result<Option<Acl>>| r.unwrap_err().code();
        assert_eq!(code(Acl::parse(&[1, 0, 0, 0])), Code::NotSupported);
        assert_eq!(code(Acl::parse(&[2, 0, 0])), Code::Invalid);
        assert_eq!(code(Acl::parse(&bytes(FULL)[..20])), Code::Invalid);
        let (user, group, other) = ((1, 7, 0), (4, 7, 0), (32, 7, 0));
        for wrong in [
            &[user, group][..],
            &[user, user, group, other],
            &[group, user, other],
            &[user, (2, 7, 5), group, other],
            &[user, (2, 7, NO_ID), group, (16, 7, 0), other],
            &[user, (4, 8, 0), other],
            &[user, group, (64, 7, 0), other],
        ] {
            assert_eq!(code(parse(wrong)), Code::Invalid, "{wrong:?}");
        }
    }

    #[test]
    fn modes_and_lists_say_the_same() {
        let mut acl = Acl::parse(&bytes(FULL)).unwrap().unwrap();
        assert_eq!((acl.mode(), acl.is_a_mode()), (0o760, false));
        acl.set_mode(0o640);
        assert_eq!(acl.mode(), 0o640);
        assert_eq!(acl.perm(GROUP_OBJ), Some(5), "the mask stands for the group class");
        let mut default = Acl::parse(&bytes(FULL)).unwrap().unwrap();
        assert_eq!(default.inherit(0o100_755), 0o100_740);
        let plain = Acl::parse(&bytes(&[(1, 7, 0), (4, 5, 0), (32, 5, 0)])).unwrap().unwrap();
        assert_eq!((plain.mode(), plain.is_a_mode()), (0o755, true));
    }

    #[test]
    fn who_may() {
        let acl = Acl::parse(&bytes(FULL)).unwrap().unwrap();
        let core = Core { mode: 0o100_760, uid: 1, gid: 2, ..Core::default() };
        let may = |who: &Caller, want| acl.permits(who, &core, want);
        assert!(may(&Caller::user(5, 2), 6), "named, through the mask");
        assert!(!may(&Caller::user(5, 2), 1));
        assert!(may(&Caller::user(6, 9), 2) && !may(&Caller::user(6, 9), 1), "the mask holds");
        assert!(may(&Caller::user(6, 2), 4) && !may(&Caller::user(6, 2), 2));
        let both = Caller { groups: Arc::from([2]), ..Caller::user(6, 9) };
        assert!(may(&both, 6), "one group is enough");
        assert!(!may(&Caller::user(7, 7), 4), "others");
    }
}
