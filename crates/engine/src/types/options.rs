//! Choices when a volume is opened.

use shoal_device::ClaimOptions;

/// Choices when a volume is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Refuse every change, write nothing.
    pub read_only: bool,
    /// Open also if another process has a claim on the volume ([`ClaimOptions::force`]).
    pub force: bool,
    /// Told what the user may want to know while the opening waits for another process.
    pub notice: fn(&str),
    /// Bytes for tree nodes and inode blocks; 0: a quarter of the machine's memory.
    pub cache_bytes: u64,
    /// Longest time that an acknowledged call stays only in memory, in milliseconds.
    pub commit_interval_ms: u64,
    /// Journal bytes after which a checkpoint starts; 0: chosen by the volume's size.
    pub checkpoint_bytes: u64,
    /// Run the background threads (journal writer, checkpoints, cleaner). Without them the same
    /// work is done by the calls that need it, deterministically: for simulation.
    pub background: bool,
    /// Checkpoints follow each other without pause (a measuring aid).
    pub checkpoint_always: bool,
    /// Never update access times.
    pub noatime: bool,
    /// Free segments are discarded: a volume in a sparse file shrinks, and a solid-state disk knows
    /// what it need not keep. See [`crate::Inner::trim`].
    pub discard: bool,
    /// Every change of an attribute or parent pointer goes through an intent, also where one
    /// transaction would do (a debugging and measuring aid).
    pub attr_intents: bool,
    /// The journal is written after each transaction of an intent (a testing aid: a crash can come
    /// between them then).
    pub attr_intents_flushed: bool,
    /// How files being cut in one transaction are kept track of (a measuring aid).
    pub truncate_tracking: TruncateTracking,
    /// Records of extents or attributes that one transaction removes, at most; entries of a tree
    /// that is being removed, likewise. Small numbers are a testing aid.
    pub step_records: usize,
    /// Limit for the estimated memory of a repair, in bytes; 0 for none.
    pub memory_bytes: u64,
    /// Threads of a check, 1 by default. The report does not depend on it. With more than one the
    /// order of reads is not deterministic: not for simulation.
    pub threads: usize,
}

impl OpenOptions {
    pub(crate) fn claim(&self) -> ClaimOptions {
        ClaimOptions { force: self.force, notice: self.notice }
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            force: false,
            notice: ClaimOptions::default().notice,
            cache_bytes: 0,
            commit_interval_ms: 5000,
            checkpoint_bytes: 0,
            background: true,
            memory_bytes: 0,
            threads: 1,
            checkpoint_always: false,
            noatime: false,
            discard: true,
            attr_intents: false,
            attr_intents_flushed: false,
            truncate_tracking: TruncateTracking::AsNeeded,
            step_records: 2048,
        }
    }
}

/// What a truncate that one transaction can do costs more, for measurements of the orphan table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TruncateTracking {
    /// Nothing: it needs none. One that takes several transactions has its slot.
    #[default]
    AsNeeded,
    /// Nothing at all, as `AsNeeded` for such truncates: what the others are compared with.
    Off,
    /// A slot of the orphan table, taken before and freed after, both in the record: as ext4 does
    /// with its orphan file.
    Table,
    /// An entry in a list under one mutex for the volume, and the same in the record: as ext4 did
    /// before.
    List,
}
