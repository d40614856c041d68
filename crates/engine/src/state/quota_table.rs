//! The directories with a quota, in memory.

use shoal_base::sync::{AtomicBool, Mutex};
use shoal_format::quota::Table;

/// The directories with a quota (`quotas/`).
#[derive(Default)]
pub(crate) struct QuotaTable {
    /// The table as stored. Its uses are those of the last close.
    pub table: Mutex<Table>,
    /// Held while the numbers in inodes are changed: one at a time.
    pub tagging: Mutex<()>,
    /// Inodes may have wrong numbers: an older Shoal, or a repair, has changed the volume, or a
    /// change of the numbers was interrupted.
    pub is_tag_due: AtomicBool,
}
