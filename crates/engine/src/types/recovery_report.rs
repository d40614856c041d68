//! Report of the recovery with which a volume was opened.

use shoal_base::Ino;

/// Report of a recovery.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecoveryReport {
    /// The volume had not been closed cleanly.
    pub needed: bool,
    /// Records replayed.
    pub records: u64,
    /// Those of them that only the ring of a killed process had.
    pub kept: u64,
    /// Bytes of journal read.
    pub bytes: u64,
    /// Orphan slots in use.
    pub orphans: u64,
    /// Unreadable blocks of the orphan table, whose inodes keep their space until a repair.
    pub damage: Vec<String>,
    /// Intents completed.
    pub intents: u64,
    /// Inodes in the last records, with [`HoldLife::Inherited`](super::HoldLife).
    pub recent: Vec<Ino>,
    /// Position and reason of a truncated journal tail.
    pub torn: Option<String>,
    /// Duration in seconds.
    pub seconds: f64,
}
