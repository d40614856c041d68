//! Quotas of directory trees.

use super::StatFs;
use shoal_base::Ino;

/// Limits of a directory tree; `None`: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaLimits {
    /// Bytes of data, as counted by `st_blocks`; contents in the inode take none.
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

impl Quota {
    /// Returns sizes and free space of the tree, in a volume with these.
    pub(crate) fn shown_in(&self, whole: StatFs) -> StatFs {
        let mut shown = whole;
        if let Some(most) = self.limits.bytes {
            let left = most.saturating_sub(self.bytes).min(whole.bytes_available);
            (shown.bytes_total, shown.bytes_free, shown.bytes_available) = (most, left, left);
        }
        if let Some(most) = self.limits.inodes {
            let left = most.saturating_sub(self.inodes).min(whole.inodes_free);
            (shown.inodes_used, shown.inodes_free) = (self.inodes, left);
        }
        shown
    }
}
