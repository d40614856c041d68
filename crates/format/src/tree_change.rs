//! The state of a change of all inodes below a directory (`chown -R`, `setfacl -R`): value of the
//! attribute [`NAME`] of an unlinked inode with an orphan slot. The engine's `tree_change` says how
//! it is used.
//!
//! ```text
//! version 1 | flags 1 | atime kind 1 | mtime kind 1 | caller's uid 4, gid 4, umask 4
//! | new uid 4, gid 4 | atime 12 | mtime 12 | groups 1 | clauses 1 | levels 1
//! | group 4 ... | clause 8 ... | level 20 ..., up to LEVELS_MAX, padded with zeros
//!
//! clause of a mode:  operator 1 | source 1 | affected 2 | value 2 | mentioned 2
//! clause of a list:  1 to remove, otherwise 0 | tag 1 | permissions 1 | 0 | id 4
//! ```
//!
//! All values of one change have the same length, so each replaces the one before it in place.

use crate::attr::LOCAL_MAX;
use crate::bytes::{Put, Reader};
use crate::inode::Stamp;
use shoal_base::Ino;

/// Name of the attribute, in the namespace `system`.
pub const NAME: &[u8] = b"shoal.tree-change";
/// Version of the layout.
const VERSION: u8 = 1;
/// Maximum number of supplementary groups of the caller.
pub const GROUPS_MAX: usize = 120;
/// Maximum number of clauses of a mode, or of an access control list.
pub const CLAUSES_MAX: usize = 24;
/// Maximum number of levels of directories.
pub const LEVELS_MAX: usize = 12;

const HEADER: usize = 51;
const CLAUSE: usize = 8;
const LEVEL: usize = 20;
const _: () = {
    let lists = 4 * GROUPS_MAX + CLAUSE * CLAUSES_MAX + LEVEL * LEVELS_MAX;
    assert!(HEADER + lists <= LOCAL_MAX);
};

/// The caller's permissions have been checked elsewhere.
const FLAG_CHECKED: u8 = 1;
const FLAG_UID: u8 = 2;
const FLAG_GID: u8 = 4;
const FLAG_MODE: u8 = 8;
/// The clauses are of an access control list.
const FLAG_ACL: u8 = 16;
const FLAG_ACL_DEFAULT: u8 = 32;
const FLAG_ACL_CLEARS: u8 = 64;
const FLAG_ACL_KEEPS_MASK: u8 = 128;
const FLAGS_ACL: u8 = FLAG_ACL_DEFAULT | FLAG_ACL_CLEARS | FLAG_ACL_KEEPS_MASK;

/// Permission of an [`AclEdit`]: execute, if it is a directory or somebody may execute it.
pub const IF_EXECUTABLE: u8 = 8;

/// Source of the bits of a clause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// The bits of the clause.
    Bits = 0,
    /// These, and execute for directories and for files that have an execute bit.
    Executable = 1,
    /// The bits that the file has for the users in the bits of the clause.
    Users = 2,
}

/// One change of permission bits, as of `chmod(1)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clause {
    /// `+`, `-` or `=`.
    pub operator: u8,
    /// Source of the bits.
    pub source: Source,
    /// Bits of the users that it is about; 0: of all users, as far as the umask permits.
    pub affected: u16,
    /// Bits to set or clear, before they are limited to the users.
    pub value: u16,
    /// Bits that are named: others do not change the set-id bits of a directory.
    pub mentioned: u16,
}

/// One change of an entry of an access control list, as of `setfacl(1)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AclEdit {
    /// The entry is removed; otherwise set.
    pub removes: bool,
    /// Tag of the entry, as Linux stores it.
    pub tag: u16,
    /// Permissions, and [`IF_EXECUTABLE`].
    pub perm: u8,
    /// User or group of a named entry; otherwise 0.
    pub id: u32,
}

/// Changes of an access control list, as of `setfacl(1)`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AclEdits {
    /// Of the default list, which only directories have; otherwise of the access list.
    pub default: bool,
    /// First all entries are removed that a list need not have.
    pub clears: bool,
    /// The mask stays as it is.
    pub keeps_mask: bool,
    /// Changes of entries, in this order.
    pub edits: Vec<AclEdit>,
}

/// A new time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewTime {
    /// The time of the change.
    Now,
    /// This time.
    To(Stamp),
}

/// A directory, and how far it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// The directory.
    pub dir: Ino,
    /// Its generation.
    pub generation: u32,
    /// Cookie of the last entry that is done; 0: the directory itself is not done yet.
    pub cookie: u64,
}

/// The state of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeChange {
    /// The caller's effective user, group and umask.
    pub caller: [u32; 3],
    /// The caller's permissions have been checked elsewhere.
    pub is_checked: bool,
    /// The caller's supplementary groups.
    pub groups: Vec<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// Changes of the permission bits.
    pub mode: Option<Vec<Clause>>,
    /// Changes of an access control list; not together with those of the permission bits.
    pub acl: Option<AclEdits>,
    /// New access time.
    pub atime: Option<NewTime>,
    /// New modification time.
    pub mtime: Option<NewTime>,
    /// The directories from the first one down to the current one; at least one.
    pub levels: Vec<Level>,
}

impl TreeChange {
    /// Encodes the state. The lists must not be longer than their maximum.
    pub fn to_bytes(&self) -> Vec<u8> {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        let clauses = self.mode.as_deref().unwrap_or_default();
        let acl = self.acl.as_ref();
        let edits = acl.map_or(&[][..], |acl| &acl.edits);
        let of_acl = |is: fn(&AclEdits) -> bool| acl.is_some_and(is);
        let mut out = vec![
            VERSION,
            flag(self.is_checked, FLAG_CHECKED)
                | flag(self.uid.is_some(), FLAG_UID)
                | flag(self.gid.is_some(), FLAG_GID)
                | flag(self.mode.is_some(), FLAG_MODE)
                | flag(acl.is_some(), FLAG_ACL)
                | flag(of_acl(|acl| acl.default), FLAG_ACL_DEFAULT)
                | flag(of_acl(|acl| acl.clears), FLAG_ACL_CLEARS)
                | flag(of_acl(|acl| acl.keeps_mask), FLAG_ACL_KEEPS_MASK),
            kind_of(self.atime),
            kind_of(self.mtime),
        ];
        let ids = [self.uid.unwrap_or(0), self.gid.unwrap_or(0)];
        self.caller.iter().chain(&ids).for_each(|id| out.put_u32(*id));
        for time in [self.atime, self.mtime] {
            let stamp = match time {
                Some(NewTime::To(stamp)) => stamp,
                Some(NewTime::Now) | None => Stamp::default(),
            };
            out.put_u64(stamp.sec as u64);
            out.put_u32(stamp.nsec);
        }
        for len in [self.groups.len(), clauses.len() + edits.len(), self.levels.len()] {
            out.put_u8(len as u8);
        }
        self.groups.iter().for_each(|group| out.put_u32(*group));
        for clause in clauses {
            out.put_u8(clause.operator);
            out.put_u8(clause.source as u8);
            out.put_u16(clause.affected);
            out.put_u16(clause.value);
            out.put_u16(clause.mentioned);
        }
        for edit in edits {
            out.put_bytes(&[edit.removes.into(), edit.tag as u8, edit.perm, 0]);
            out.put_u32(edit.id);
        }
        let end = out.len() + LEVELS_MAX * LEVEL;
        for level in &self.levels {
            out.put_u64(level.dir.0);
            out.put_u32(level.generation);
            out.put_u64(level.cookie);
        }
        out.resize(end, 0);
        out
    }

    /// Decodes a state; `None` if the bytes are not valid.
    pub fn decode(raw: &[u8]) -> Option<TreeChange> {
        let mut r = Reader::new(raw);
        let (version, flags) = (r.u8()?, r.u8()?);
        let of_acl = flags & FLAG_ACL != 0;
        let possible = if of_acl { flags & FLAG_MODE == 0 } else { flags & FLAGS_ACL == 0 };
        if version != VERSION || !possible {
            return None;
        }
        let kinds = [r.u8()?, r.u8()?];
        let caller = [r.u32()?, r.u32()?, r.u32()?];
        let uid = optional(flags & FLAG_UID != 0, r.u32()?)?;
        let gid = optional(flags & FLAG_GID != 0, r.u32()?)?;
        let atime = time(kinds[0], &mut r)?;
        let mtime = time(kinds[1], &mut r)?;
        let lens = [r.u8()?, r.u8()?, r.u8()?].map(usize::from);
        let [groups, clauses, levels] = lens;
        if groups > GROUPS_MAX || clauses > CLAUSES_MAX || !(1..=LEVELS_MAX).contains(&levels) {
            return None;
        }
        let groups = (0..groups).map(|_| r.u32()).collect::<Option<_>>()?;
        let (mut mode, mut acl) = (None, None);
        if of_acl {
            acl = Some(AclEdits {
                default: flags & FLAG_ACL_DEFAULT != 0,
                clears: flags & FLAG_ACL_CLEARS != 0,
                keeps_mask: flags & FLAG_ACL_KEEPS_MASK != 0,
                edits: (0..clauses).map(|_| acl_edit(&mut r)).collect::<Option<_>>()?,
            });
        } else if flags & FLAG_MODE != 0 {
            mode = Some((0..clauses).map(|_| clause(&mut r)).collect::<Option<_>>()?);
        } else if clauses > 0 {
            return None;
        }
        let mut pad = (LEVELS_MAX - levels) * LEVEL;
        let levels = (0..levels).map(|_| level(&mut r)).collect::<Option<_>>()?;
        while pad > 0 {
            pad -= 1;
            if r.u8()? != 0 {
                return None;
            }
        }
        let is_checked = flags & FLAG_CHECKED != 0;
        r.is_empty().then_some(TreeChange {
            caller,
            is_checked,
            groups,
            uid,
            gid,
            mode,
            acl,
            atime,
            mtime,
            levels,
        })
    }
}

fn kind_of(time: Option<NewTime>) -> u8 {
    match time {
        None => 0,
        Some(NewTime::Now) => 1,
        Some(NewTime::To(_)) => 2,
    }
}

/// A value that is 0 if there is none.
fn optional(is_there: bool, value: u32) -> Option<Option<u32>> {
    match is_there {
        true => Some(Some(value)),
        false => (value == 0).then_some(None),
    }
}

fn time(kind: u8, r: &mut Reader<'_>) -> Option<Option<NewTime>> {
    let stamp = Stamp { sec: r.u64()? as i64, nsec: r.u32()? };
    match kind {
        0 => (stamp == Stamp::default()).then_some(None),
        1 => (stamp == Stamp::default()).then_some(Some(NewTime::Now)),
        2 => (stamp.nsec < 1_000_000_000).then_some(Some(NewTime::To(stamp))),
        _ => None,
    }
}

fn clause(r: &mut Reader<'_>) -> Option<Clause> {
    let operator = r.u8().filter(|operator| matches!(operator, b'+' | b'-' | b'='))?;
    let source = match r.u8()? {
        0 => Source::Bits,
        1 => Source::Executable,
        2 => Source::Users,
        _ => return None,
    };
    let mut bits = || r.u16().filter(|bits| *bits <= 0o7777);
    Some(Clause { operator, source, affected: bits()?, value: bits()?, mentioned: bits()? })
}

fn acl_edit(r: &mut Reader<'_>) -> Option<AclEdit> {
    let (removes, tag, perm, zero, id) = (r.u8()?, r.u8()?, r.u8()?, r.u8()?, r.u32()?);
    let is_tag = tag.is_power_of_two() && tag <= 0x20;
    let possible = removes <= 1 && is_tag && perm <= 7 | IF_EXECUTABLE && zero == 0;
    possible.then_some(AclEdit { removes: removes == 1, tag: tag.into(), perm, id })
}

fn level(r: &mut Reader<'_>) -> Option<Level> {
    Some(Level { dir: Ino(r.u64()?), generation: r.u32()?, cookie: r.u64()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> TreeChange {
        let clause = Clause {
            operator: b'+',
            source: Source::Users,
            affected: 0o7777,
            value: 0o777,
            mentioned: 0o70,
        };
        TreeChange {
            caller: [1000, 1001, 0o022],
            is_checked: false,
            groups: (0..GROUPS_MAX as u32).collect(),
            uid: Some(7),
            gid: None,
            mode: Some(vec![clause; CLAUSES_MAX]),
            acl: None,
            atime: Some(NewTime::Now),
            mtime: Some(NewTime::To(Stamp { sec: -5, nsec: 999_999_999 })),
            levels: vec![Level { dir: Ino(77), generation: 3, cookie: 9 }; LEVELS_MAX],
        }
    }

    #[test]
    fn a_state_is_what_was_encoded_and_has_one_length() {
        let mut state = full();
        let bytes = state.to_bytes();
        assert!(bytes.len() <= LOCAL_MAX);
        assert_eq!(TreeChange::decode(&bytes).as_ref(), Some(&state));
        for levels in (1..LEVELS_MAX).rev() {
            state.levels.truncate(levels);
            assert_eq!(state.to_bytes().len(), bytes.len());
            assert_eq!(TreeChange::decode(&state.to_bytes()).as_ref(), Some(&state));
        }
        let edit = AclEdit { removes: true, tag: 2, perm: 15, id: 9 };
        let edits = vec![edit; CLAUSES_MAX];
        for flags in 0..8 {
            let [default, clears, keeps_mask] = [1, 2, 4].map(|bit| flags & bit != 0);
            let acl = AclEdits { default, clears, keeps_mask, edits: edits.clone() };
            state = TreeChange { mode: None, acl: Some(acl), ..state };
            assert_eq!(state.to_bytes().len(), bytes.len());
            assert_eq!(TreeChange::decode(&state.to_bytes()).as_ref(), Some(&state));
        }
        let groups = Vec::new();
        state = TreeChange { mode: None, acl: None, atime: None, mtime: None, groups, ..state };
        assert_eq!(TreeChange::decode(&state.to_bytes()), Some(state));
    }

    #[test]
    fn wrong_bytes_are_refused() {
        let right = full().to_bytes();
        for len in 0..right.len() {
            assert_eq!(TreeChange::decode(&right[..len]), None, "{len} bytes");
        }
        for (at, byte) in [(0, 2), (1, 24), (1, 42), (2, 3), (48, 121), (49, 25), (50, 0), (50, 13)]
        {
            let mut wrong = right.clone();
            wrong[at] = byte;
            assert_eq!(TreeChange::decode(&wrong), None, "{byte} at {at}");
        }
    }
}
