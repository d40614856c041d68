//! The directories with a quota, in memory.

use shoal_base::RootId;
use shoal_base::sync::{AtomicBool, Mutex};
use shoal_format::quota::Table;
use std::ops::Range;

/// Blocks of a subvolume that are to be counted next.
pub(crate) type QuotaPart = Option<(RootId, Range<u64>)>;

/// The directories with a quota (`quotas/`).
#[derive(Default)]
pub(crate) struct QuotaTable {
    /// The table as stored. Its uses are those of the last close.
    pub table: Mutex<Table>,
    /// Held while the numbers in inodes are changed: one at a time.
    pub tagging: Mutex<()>,
    /// Blocks with which counting continues, if it was begun. Held while the use is counted.
    pub counting: Mutex<QuotaPart>,
    /// Inodes may have wrong numbers: an older Shoal, or a repair, has changed the volume, or a
    /// change of the numbers was interrupted.
    pub is_tag_due: AtomicBool,
}
