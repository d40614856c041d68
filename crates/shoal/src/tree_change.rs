//! A change of everything below a directory.

use crate::Dir;
use crate::error::{Doing, Error, Result};
use crate::metadata::times;
use crate::raw::{self, Code, ModeChange, TreeStep};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// A change of owners, permissions, lists or times of a directory and everything below it, as by
/// `chown -R`, `chmod -R` and `setfacl -R`.
///
/// It is made in steps, on all processors: other calls run between them. If the process ends or the
/// machine crashes, the next open for writing completes the change in the background. Each step is
/// one transaction, so no file is left out or changed twice.
///
/// ```
/// # use shoal::{Credentials, Volume};
/// use shoal::TreeChange;
///
/// # fn main() -> shoal::Result<()> {
/// let volume = Volume::options().size(64 << 20).in_memory()?;
/// let root = volume.root(Credentials::root());
/// let mail = root.create_dir("mail")?;
/// mail.write("1", b"hello")?;
/// let done = TreeChange::new().owner(Some(1000), None).mode("u=rwX,go=")?.make(&mail)?;
/// assert_eq!((done.changed(), done.failed()), (2, 0));
/// assert_eq!(mail.metadata("1")?.uid(), 1000);
/// assert_eq!(mail.metadata("1")?.permissions() & 0o777, 0o600);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct TreeChange(raw::TreeChange);

/// Changes of an access control list, as by setfacl(1).
///
/// Entries are written `u::rwx` (owner), `u:1000:rwx`, `g::rwx`, `g:100:rwx`, `m::rwx` (mask) and
/// `o::rwx` (others), with numbers for users and groups, separated by commas; permissions also as
/// one octal digit. `X` is `x` for directories, and for files that somebody may execute.
///
/// Unless the mask is changed or kept, it becomes the union of the entries that it limits. A
/// default list that gets its first entry takes owner, group and others from the access list.
///
/// ```
/// # use shoal::{Credentials, Volume};
/// use shoal::{AclChange, TreeChange};
///
/// # fn main() -> shoal::Result<()> {
/// let volume = Volume::options().size(64 << 20).in_memory()?;
/// let root = volume.root(Credentials::root());
/// let team = root.create_dir("team")?;
/// team.write("plan", b"...")?;
/// let list = AclChange::of_access().set("u:1000:rwX,g:50:rX")?;
/// assert_eq!(TreeChange::new().list(list).make(&team)?.changed(), 2);
/// let ada = volume.root(Credentials::user(1000, 1000));
/// ada.write("team/plan", b"new")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AclChange(raw::AclChange);

/// Result of a [`TreeChange`], and its progress.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TreeChanged {
    changed: u64,
    failed: u64,
}

impl TreeChange {
    /// A change of nothing.
    pub fn new() -> TreeChange {
        TreeChange::default()
    }

    /// Changes owner and group; `None` leaves it as it is. Symlinks are changed themselves, not
    /// their targets.
    #[must_use]
    pub fn owner(mut self, uid: Option<u32>, gid: Option<u32>) -> TreeChange {
        (self.0.uid, self.0.gid) = (uid, gid);
        self
    }

    /// Changes permission bits as chmod(1): octal, or clauses such as `u=rwX,g+w`. Each file's own
    /// bits are changed. Symlinks are left alone.
    ///
    /// # Errors `InvalidInput` if the text is no mode.
    pub fn mode(mut self, text: &str) -> Result<TreeChange> {
        let mode = ModeChange::parse(text);
        let message = || raw::Error::refused(Code::Invalid, format!("\"{text}\" is no mode"));
        self.0.mode = Some(mode.ok_or_else(message).done("change a tree")?);
        Ok(self)
    }

    /// Changes an access control list, which excludes any other change. Symlinks are left alone; a
    /// change of the default list applies to directories only.
    #[must_use]
    pub fn list(mut self, change: AclChange) -> TreeChange {
        self.0.acl = Some(change.0);
        self
    }

    /// Changes the times of the last access and of the last change of the contents.
    #[must_use]
    pub fn times(mut self, accessed: SystemTime, modified: SystemTime) -> TreeChange {
        let set = times(accessed, modified);
        (self.0.atime, self.0.mtime) = (set.atime, set.mtime);
        self
    }

    /// Makes the change in a directory and everything below it, subvolumes included, each directory
    /// before its contents. Files that the directory's credentials may not change are counted and
    /// left as they are.
    ///
    /// A file with several names below the directory is changed once for each. A file that is
    /// created, moved in or moved out during the call may be left out. The call first completes
    /// changes that earlier sessions have left.
    ///
    /// In a directory that has been removed nothing is changed.
    ///
    /// # Errors `StorageFull` when there is no space to begin, `ArgumentListTooLong` for a mode or
    /// list of more than 24 changes or credentials with more than 120 groups, `InvalidInput` for a
    /// list together with something else: nothing has been changed. After the start only those of
    /// the device and of short memory; the change then goes on in the background. On a volume that
    /// another process serves, also those of the session; the change then ends.
    pub fn make(&self, dir: &Dir) -> Result<TreeChanged> {
        self.make_watched(dir, |_, _| ControlFlow::Continue(()))
    }

    /// As [`TreeChange::make`]. After each step, `watch` is called with the progress so far and
    /// with the paths, relative to the directory, that this step could not change or list. Several
    /// threads call it. If it breaks, the change ends there, and what has been changed stays.
    ///
    /// # Errors
    /// Those of [`TreeChange::make`].
    pub fn make_watched(
        &self,
        dir: &Dir,
        watch: impl Fn(TreeChanged, &[Error]) -> ControlFlow<()> + Sync,
    ) -> Result<TreeChanged> {
        let failed = AtomicU64::new(0);
        let watch = |step: &TreeStep<'_>| {
            let error = |failure: &raw::TreeFailure| {
                Error::new("change", Some(&failure.path), failure.error.clone())
            };
            let errors: Vec<Error> = step.failures.iter().map(error).collect();
            let new = errors.len() as u64;
            let before = failed.fetch_add(new, Ordering::Relaxed);
            watch(TreeChanged { changed: step.inodes, failed: before + new }, &errors)
        };
        let done = dir.calls().change_tree(dir.who(), dir.node(), &self.0, &watch);
        let done = done.done("change a tree")?;
        Ok(TreeChanged { changed: done.inodes, failed: done.failures })
    }
}

impl AclChange {
    /// Changes of the access list.
    pub fn of_access() -> AclChange {
        AclChange(raw::AclChange::of_access())
    }

    /// Changes of the default list of directories, which new files in them inherit.
    pub fn of_default() -> AclChange {
        AclChange(raw::AclChange::of_default())
    }

    /// First removes all entries of a default list, or the named entries and the mask of an access
    /// list. The group of an access list keeps only what the mask allowed.
    #[must_use]
    pub fn clear(self) -> AclChange {
        AclChange(self.0.clear())
    }

    /// Leaves the mask as it is.
    #[must_use]
    pub fn keep_mask(self) -> AclChange {
        AclChange(self.0.keep_mask())
    }

    /// Adds entries, or replaces them.
    ///
    /// # Errors
    /// `InvalidInput` if the text is no list of entries.
    pub fn set(self, entries: &str) -> Result<AclChange> {
        self.0.set(entries).map(AclChange).done("change a list")
    }

    /// Removes entries, which are written without permissions. Entries that a list does not have
    /// are ignored.
    ///
    /// # Errors
    /// `InvalidInput` if the text is no list of entries.
    pub fn remove(self, entries: &str) -> Result<AclChange> {
        self.0.remove(entries).map(AclChange).done("change a list")
    }
}

impl TreeChanged {
    /// Number of files and directories changed. A file counts once for each of its names.
    pub fn changed(&self) -> u64 {
        self.changed
    }

    /// Number of those that could not be changed, and of directories that could not be listed.
    pub fn failed(&self) -> u64 {
        self.failed
    }
}
