//! Defects that can be planted on purpose, to see that the tests would catch them. Each is one
//! condition in the code that it spoils: `planted::is(Defect::…)`, which is `false`, and nothing
//! at all, unless this crate is built with the feature `planted`, as the simulator's tests do.
//!
//! `crates/sim/tests/planted.rs` plants each in turn and asserts that something notices; those that
//! only threads can notice, `crates/sim/tests/scheduled.rs`.

/// One row per defect: name, and what is wrong then.
macro_rules! defects {
    ($($variant:ident $name:literal $what:literal;)*) => {
        /// A defect.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Defect { $(#[doc = $what] $variant,)* }
        impl Defect {
            /// All of them.
            pub const ALL: &'static [Defect] = &[$(Defect::$variant,)*];
            /// Its name in output.
            pub fn name(self) -> &'static str { match self { $(Defect::$variant => $name,)* } }
            /// What is wrong.
            pub fn what(self) -> &'static str { match self { $(Defect::$variant => $what,)* } }
        }
    };
}

defects! {
    JournalFlush "journal-flush" "a commit does not flush the device";
    DataFlush "data-flush" "a record is written before the data that it points to is durable";
    CheckpointFlush "checkpoint-flush" "the superblock is swung before the checkpoint is durable";
    SuperblockFlush "superblock-flush" "segments are given out before the superblock is durable";
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
    StaleTail "stale-tail" "contents in an inode are not cut when the file is";
    CutForgotten "cut-forgotten" "a cut in several transactions ends before the tail is gone";
    BlockNotWritten "block-not-written" "a checkpoint leaves out inode blocks that changed";
    DetachedWritten "detached-written" "a checkpoint writes a detached inode as in use";
    PinForgotten "pin-forgotten" "the space of a detached inode is given out";
    SegmentTooEarly "segment-too-early" "a segment is free as soon as nothing in it is live";
    GrownOverOthers "grown-over-others" "an object grows over the one that lies behind it";
    SectorShared "sector-shared" "data is written into a sector that a flush has made durable";
    CheckpointUnaligned "checkpoint-unaligned" "a checkpoint begins in the last one's sector";
    NumberTooEarly "number-too-early" "an inode's number is free while the inode is held";
    EntryLeft "entry-left" "a removed tree's directory is freed with an entry left in it";
    IntentsTooLate "intents-too-late" "a repair mends names before it completes open intents";
    MemoryTooLate "memory-too-late" "a call refuses for want of memory after it has changed all";
    ReserveIgnored "reserve-ignored" "ordinary calls may take the reserve";
    LookupUnlocked "lookup-unlocked" "a lookup lets go of the directory before it looks further";
    UnlockedTooEarly "unlocked-too-early" "a rename lets go before its record is numbered";
    GateNotAwaited "gate-not-awaited" "a checkpoint does not wait for the calls in flight";
    DurableTooEarly "durable-too-early" "a commit says what is durable before its flush";
    NumberBeforeRecord "number-before-record" "a number is free before the record that frees it";
}

impl Defect {
    /// Whether only threads can notice: those of `crates/sim/tests/scheduled.rs`.
    pub fn needs_threads(self) -> bool {
        matches!(
            self,
            Defect::LookupUnlocked
                | Defect::UnlockedTooEarly
                | Defect::GateNotAwaited
                | Defect::DurableTooEarly
                | Defect::NumberBeforeRecord
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

    /// Whether this defect is planted.
    pub fn is(defect: Defect) -> bool {
        PLANTED.load(Ordering::Relaxed) == defect as u8
    }
}

#[cfg(feature = "planted")]
pub use switch::{is, plant};

/// Whether this defect is planted: never, in this build.
#[cfg(not(feature = "planted"))]
#[inline(always)]
pub const fn is(_: Defect) -> bool {
    false
}
