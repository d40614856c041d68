//! Defects that can be planted on purpose, to prove that the tests catch them. Each is one
//! condition in the code that it breaks: `planted::is(Defect::…)`. Without the feature `planted`
//! that is a constant `false`; only the simulator's tests enable the feature.
//!
//! `crates/sim/tests/planted/defects.rs` plants each in turn and asserts that a check reports it.
//! `crates/sim/tests/scheduled.rs` does so for those that only concurrent threads reveal.

/// Declares the defects: variant, name in output, description.
macro_rules! defects {
    ($($variant:ident $name:literal $what:literal;)*) => {
        /// A defect.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Defect { $(#[doc = $what] $variant,)* }
        impl Defect {
            /// All defects.
            pub const ALL: &'static [Defect] = &[$(Defect::$variant,)*];
            /// Its name in output.
            pub fn name(self) -> &'static str { match self { $(Defect::$variant => $name,)* } }
            /// Describes the wrong behaviour.
            pub fn what(self) -> &'static str { match self { $(Defect::$variant => $what,)* } }
        }
    };
}

defects! {
    JournalFlush "journal-flush" "a commit does not flush the device";
    DataUnverified "data-unverified" "recovery takes a record whose data did not arrive";
    DataDoubted "data-doubted" "recovery drops a record that was durable for its data";
    CheckpointFlush "checkpoint-flush" "the superblock is written before the checkpoint is durable";
    SuperblockFlush "superblock-flush" "segments are reused before the superblock is durable";
    SyncReturns "sync-returns" "sync does not wait for the journal";
    BatchChecksum "batch-checksum" "the checksum of a journal batch is not verified";
    NodeChecksum "node-checksum" "the checksum of a tree node is not verified";
    InodeChecksum "inode-checksum" "the checksum of an inode block is not verified";
    DataChecksum "data-checksum" "the checksum of file data is not verified";
    RecordSkipped "record-skipped" "replay leaves out the last record of a batch";
    CountedTwice "counted-twice" "replay counts an extent that appears twice, as if applied twice";
    IntentDropped "intent-dropped" "recovery does not resume intents";
    OrphansIgnored "orphans-ignored" "recovery does not look at the orphan table";
    SlotNotLogged "slot-not-logged" "an orphan slot is taken in memory only";
    SlotNotFreed "slot-not-freed" "an orphan slot is freed in memory only";
    PointerMissing "pointer-missing" "a link adds no parent pointer";
    PointerLeft "pointer-left" "an unlink leaves the parent pointer";
    LinksKept "links-kept" "an unlink leaves the link count";
    EntriesKept "entries-kept" "an unlink leaves the directory's count of entries";
    ParentKept "parent-kept" "a directory that is moved keeps its old parent";
    GenerationKept "generation-kept" "a number used again keeps its generation";
    OldExtentCounted "old-extent-counted" "an extent that is replaced stays counted as live";
    OldValueCounted "old-value-counted" "the data of an attribute that is replaced stays counted";
    StaleTail "stale-tail" "inline contents are not truncated when the file is";
    TruncateForgotten "truncate-forgotten" "a truncate in several transactions stops too early";
    BlockNotWritten "block-not-written" "a checkpoint leaves out inode blocks that changed";
    UnlinkedWritten "unlinked-written" "a checkpoint writes an unlinked but open inode as in use";
    PinForgotten "pin-forgotten" "the space of an unlinked but open inode is allocated again";
    SegmentTooEarly "segment-too-early" "a segment is free as soon as nothing in it is live";
    GrownOverOthers "grown-over-others" "an object grows over the one behind it";
    SectorShared "sector-shared" "data is written into a sector that a flush has made durable";
    CheckpointUnaligned "checkpoint-unaligned" "a checkpoint begins in the last one's sector";
    NumberTooEarly "number-too-early" "an inode number is free while the inode is held";
    EntryLeft "entry-left" "a directory of a removed tree is freed with an entry left in it";
    IntentsTooLate "intents-too-late" "a repair fixes names before it completes open intents";
    MemoryTooLate "memory-too-late" "a call fails for lack of memory after all its changes";
    ReserveIgnored "reserve-ignored" "ordinary calls may use the space reserve";
    BatchTimeLost "batch-time-lost" "a batch logs one time of a directory whose two times differ";
    QuotaForgotten "quota-forgotten" "a file that is freed stays counted for its quota";
    QuotaBelieved "quota-believed" "the use of a quota is believed after a crash";
    LookupUnlocked "lookup-unlocked" "a lookup unlocks the directory before it has finished";
    UnlockedTooEarly "unlocked-too-early" "a rename unlocks before its record has a number";
    QuiesceIgnored "quiesce-ignored" "a checkpoint does not wait for the transactions in flight";
    DurableTooEarly "durable-too-early" "a commit says what is durable before its flush";
    NumberBeforeRecord "number-before-record" "a number is free before the record that frees it";
    BatchNameUnchecked "batch-name-unchecked" "a batch trusts a name that it found without locks";
    BatchFailureUnchecked "batch-failure-unchecked" "a batch fails for what was there before";
}

impl Defect {
    /// Returns whether only concurrent threads reveal it: see `crates/sim/tests/scheduled.rs`.
    pub fn needs_threads(self) -> bool {
        matches!(
            self,
            Defect::LookupUnlocked
                | Defect::UnlockedTooEarly
                | Defect::QuiesceIgnored
                | Defect::DurableTooEarly
                | Defect::NumberBeforeRecord
                | Defect::BatchNameUnchecked
                | Defect::BatchFailureUnchecked
        )
    }
}

#[cfg(feature = "planted")]
mod switch {
    use super::Defect;
    use std::sync::atomic::{AtomicU8, Ordering};

    static PLANTED: AtomicU8 = AtomicU8::new(u8::MAX);

    /// Plants a defect in this process, or none.
    pub fn plant(defect: Option<Defect>) {
        PLANTED.store(defect.map_or(u8::MAX, |d| d as u8), Ordering::SeqCst);
    }

    /// Returns whether this defect is planted.
    pub fn is(defect: Defect) -> bool {
        PLANTED.load(Ordering::Relaxed) == defect as u8
    }
}

#[cfg(feature = "planted")]
pub use switch::{is, plant};

/// Returns `false`: this build has no defects.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is(_: Defect) -> bool {
    false
}
