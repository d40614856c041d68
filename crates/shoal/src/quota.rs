//! Quotas of directory trees.

use crate::error::{Doing, Result};
use crate::raw::{self, QuotaLimits};
use crate::{Dir, Ino, Volume};

/// Use and limits of a directory tree; see [`Quota::set`]. The volume keeps the use up to date, so
/// reading it takes no walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota(raw::Quota);

impl Quota {
    /// Gives a directory a quota, or changes its limits: a maximum number of bytes and of inodes,
    /// `None` for no limit. From then on the use of the tree is kept.
    ///
    /// A call that would exceed a limit fails with `EDQUOT`
    /// ([`std::io::ErrorKind::QuotaExceeded`]), also for the superuser. A limit may be lower than
    /// the present use. The tree is the directory and everything below, except subvolumes and
    /// directories that have a quota themselves. Files cannot be linked or renamed out of the tree
    /// or into it (`CrossesDevices`), as between filesystems; the directory itself can be renamed.
    /// A file that has a name elsewhere already counts for the tree whose quota was set last. The
    /// call walks the tree, while others go on.
    ///
    /// ```
    /// # use shoal::{Credentials, Volume};
    /// use shoal::Quota;
    /// use std::io::ErrorKind;
    ///
    /// # fn main() -> shoal::Result<()> {
    /// let volume = Volume::options().size(64 << 20).in_memory()?;
    /// let home = volume.root(Credentials::root()).create_dir("home")?;
    /// Quota::set(&home, Some(1 << 20), Some(100))?;
    /// home.write("small", vec![1; 100_000])?;
    /// let error = home.write("large", vec![1; 1_000_000]).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
    /// let quota = Quota::of(&home)?.expect("it has one");
    /// assert!((100_000..101_000).contains(&quota.bytes()));
    /// assert_eq!(quota.bytes_max(), Some(1 << 20));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `PermissionDenied` if the directory was not opened with credentials of the superuser;
    /// `NotFound` when it has been removed; `StorageFull` when the volume is full or has 1,024
    /// quotas; `ResourceBusy` while a quota of it is being removed; those of the device.
    pub fn set(dir: &Dir, bytes: Option<u64>, inodes: Option<u64>) -> Result<Quota> {
        let limits = QuotaLimits { bytes, inodes };
        dir.calls().set_quota(dir.who(), dir.node(), limits).map(Quota).done("set quota")
    }

    /// The quota of the tree that contains a directory: that of the nearest directory above which
    /// has one, or its own. `None` if there is none.
    ///
    /// # Errors
    /// `ESTALE`, those of the device.
    pub fn of(dir: &Dir) -> Result<Option<Quota>> {
        Ok(dir.calls().quota(dir.who(), dir.node()).done("read quota")?.map(Quota))
    }

    /// Removes the quota of a directory. Its contents then count for the quota of a directory
    /// above, if there is one. The call walks the tree.
    ///
    /// # Errors
    /// `ENODATA` when the directory itself has none; those of [`Quota::set`].
    pub fn remove(dir: &Dir) -> Result<()> {
        dir.calls().remove_quota(dir.who(), dir.node()).done("remove quota")
    }

    /// All quotas of a volume, by the number of the directory. Checks no permissions: the caller
    /// must.
    ///
    /// # Errors
    /// Those of the connection to a volume that another process serves.
    pub fn all(volume: &Volume) -> Result<Vec<Quota>> {
        let all = volume.calls().all_quotas(volume.superuser()).done("list quotas")?;
        Ok(all.into_iter().map(Quota).collect())
    }

    /// The directory that has the quota. [`Volume::paths_of`] has its path.
    pub fn dir(&self) -> Ino {
        self.0.dir
    }
    /// Bytes of data in use: the sum of [`Metadata::blocks`](crate::Metadata::blocks), times 512,
    /// but for contents in inodes, which take none.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }
    /// Inodes in use, including the directory itself and unlinked files that are still open.
    pub fn inodes(&self) -> u64 {
        self.0.inodes
    }
    /// Maximum of [`Quota::bytes`].
    pub fn bytes_max(&self) -> Option<u64> {
        self.0.limits.bytes
    }
    /// Maximum of [`Quota::inodes`].
    pub fn inodes_max(&self) -> Option<u64> {
        self.0.limits.inodes
    }
    /// Returns whether the use is exact. After a crash it is counted again in the background;
    /// meanwhile it is a lower bound, to which the limits apply.
    pub fn is_exact(&self) -> bool {
        self.0.is_exact
    }
}
