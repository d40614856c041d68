//! A change of all inodes below a directory, and its progress.

use super::{AclChange, Caller, ModeChange, SetTime, Time};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::Stamp;
use shoal_format::tree_change::{self as stored, CLAUSES_MAX, GROUPS_MAX, Level, NewTime};

/// A change of all inodes below a directory, as of `chown -R`, `chmod -R`, `setfacl -R` or `touch`
/// ([`crate::TreeChanges`]).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TreeChange {
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// Changes of the permission bits; symlinks have none.
    pub mode: Option<ModeChange>,
    /// Changes of an access control list, without any other change. Symlinks have none, and only
    /// directories have a default list.
    pub acl: Option<AclChange>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
}

/// Progress of a change, after each step.
#[derive(Clone, Copy, Debug)]
pub struct TreeStep<'a> {
    /// Inodes changed so far.
    pub inodes: u64,
    /// Inodes that this step could not change, and directories that could not be listed.
    pub failures: &'a [TreeFailure],
}

/// An inode that a change left as it was, or a directory that could not be listed.
#[derive(Clone, Debug)]
pub struct TreeFailure {
    /// Path below the directory of the change; empty for that directory.
    pub path: Vec<u8>,
    /// The inode.
    pub ino: Ino,
    /// The reason.
    pub error: Error,
}

/// Result of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TreeChanged {
    /// Inodes changed. One with several names below the directory counts once for each.
    pub inodes: u64,
    /// Inodes that were not changed, and directories that could not be listed.
    pub failures: u64,
    /// The change was cancelled: the inodes of the steps before it stay changed.
    pub cancelled: bool,
}

impl TreeChange {
    /// Returns the change as bytes, for another process.
    ///
    /// # Errors
    /// `EINVAL` and `E2BIG`, as of [`crate::TreeChanges::change_tree`].
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let top = Level { dir: Ino::ROOT, generation: 0, cookie: 0 };
        self.to_state(&Caller::root(), top).map(|state| state.to_bytes())
    }

    /// Reads a change from bytes.
    ///
    /// # Errors
    /// `EINVAL` for bytes that no change has.
    pub fn from_bytes(bytes: &[u8]) -> Result<TreeChange> {
        let state = stored::TreeChange::decode(bytes).ok_or(Code::Invalid)?;
        Ok(TreeChange::of_state(&state).0)
    }

    /// Returns the state from which the change begins.
    ///
    /// # Errors
    /// `EINVAL` for an invalid time, or a list together with something else; `E2BIG` for more
    /// clauses of a mode or list, or more groups of an unprivileged caller, than a state has room
    /// for.
    pub(crate) fn to_state(&self, who: &Caller, top: Level) -> Result<stored::TreeChange> {
        let groups = if who.uid == 0 { Vec::new() } else { who.groups.to_vec() };
        let clauses = self.mode.as_ref().map(|mode| mode.clauses().to_vec());
        let acl = self.acl.as_ref().map(|acl| acl.edits().clone());
        if acl.is_some() && *self != (TreeChange { acl: self.acl.clone(), ..Default::default() }) {
            let message = "change of a tree: an access control list is changed by itself";
            return Err(Error::refused(Code::Invalid, message));
        }
        let of_acl = acl.as_ref().map_or(0, |acl| acl.edits.len());
        let count = clauses.as_ref().map_or(of_acl, Vec::len);
        if groups.len() > GROUPS_MAX || count > CLAUSES_MAX {
            let message = format!(
                "change of a tree: {} groups of the caller and {count} clauses, of at most \
                 {GROUPS_MAX} and {CLAUSES_MAX}: change the files one by one",
                groups.len(),
            );
            return Err(Error::refused(Code::TooBig, message));
        }
        Ok(stored::TreeChange {
            caller: [who.uid, who.gid, who.umask],
            is_checked: who.checked,
            groups,
            uid: self.uid,
            gid: self.gid,
            mode: clauses,
            acl,
            atime: self.atime.map(to_stored).transpose()?,
            mtime: self.mtime.map(to_stored).transpose()?,
            levels: vec![top],
        })
    }

    /// Returns the change and the caller of a stored state.
    pub(crate) fn of_state(state: &stored::TreeChange) -> (TreeChange, Caller) {
        let [uid, gid, umask] = state.caller;
        let groups = state.groups.clone().into();
        let checked = state.is_checked;
        let change = TreeChange {
            uid: state.uid,
            gid: state.gid,
            mode: state.mode.clone().map(ModeChange::of),
            acl: state.acl.clone().map(AclChange::of),
            atime: state.atime.map(of_stored),
            mtime: state.mtime.map(of_stored),
        };
        (change, Caller { uid, gid, groups, umask, checked })
    }
}

fn to_stored(time: SetTime) -> Result<NewTime> {
    match time {
        SetTime::Now => Ok(NewTime::Now),
        SetTime::To(Time { sec, nsec }) if nsec < 1_000_000_000 => {
            Ok(NewTime::To(Stamp { sec, nsec }))
        }
        SetTime::To(_) => Err(Error::Code(Code::Invalid)),
    }
}

fn of_stored(time: NewTime) -> SetTime {
    match time {
        NewTime::Now => SetTime::Now,
        NewTime::To(stamp) => SetTime::To(stamp.into()),
    }
}
