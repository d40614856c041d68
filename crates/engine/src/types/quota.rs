//! Quotas of directory trees.

use shoal_base::Ino;

/// Limits of a directory tree; `None`: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaLimits {
    /// Bytes of data, as counted by `st_blocks`.
    pub bytes: Option<u64>,
    /// Number of inodes, with the directory itself.
    pub inodes: Option<u64>,
}

/// A directory tree with a quota: its use and its limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Quota {
    /// The directory.
    pub dir: Ino,
    /// Limits.
    pub limits: QuotaLimits,
    /// Bytes of data in use, as counted by `st_blocks`. Contents that are stored in the inode take
    /// none.
    pub bytes: u64,
    /// Inodes in use, with the directory itself, and with unlinked ones that are not freed yet.
    pub inodes: u64,
    /// The use is known. Otherwise it is being counted, and a lower bound.
    pub is_exact: bool,
}
