//! Counters without contention. Each counter is one row below; each thread shard has its own cell.
//! They carry the histograms of a volume with them, which are needed in the same places.

use crate::shard::{SHARDS, shard};
use crate::timing::{Call, Timed, Timing, Timings};
use crossbeam_utils::CachePadded;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Declares the counters: variant, name in the output of `shoal info --json`, description.
macro_rules! counters {
    ($($variant:ident $name:literal $what:literal;)*) => {
        /// The counters of a volume.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Counter { $(#[doc = $what] $variant,)* }
        impl Counter {
            /// All counters, in the order of declaration.
            pub const ALL: &'static [Counter] = &[$(Counter::$variant,)*];
            /// The counter's name in output.
            pub fn name(self) -> &'static str { match self { $(Counter::$variant => $name,)* } }
            /// Describes what the counter counts.
            pub fn what(self) -> &'static str { match self { $(Counter::$variant => $what,)* } }
        }
    };
}

counters! {
    Transactions "transactions" "transactions committed to the journal";
    JournalBytes "journal_bytes" "bytes of records staged";
    JournalWrites "journal_writes" "journal batches written";
    Flushes "flushes" "device flushes";
    Syncs "syncs" "waits until changes are durable (fsync and others); several may share one flush";
    Checkpoints "checkpoints" "checkpoints completed";
    CheckpointBytes "checkpoint_bytes" "bytes of nodes and inode blocks written by checkpoints";
    CheckpointCells "checkpoint_cells" "tree nodes in memory looked at by checkpoints";
    NodeReads "node_reads" "tree nodes read from the device";
    InodeBlockReads "inode_block_reads" "inode blocks read from the device";
    NodeSplits "node_splits" "tree nodes split";
    NodeEvictions "node_evictions" "tree nodes dropped from the cache";
    InodeBlockEvictions "inode_block_evictions" "inode blocks dropped from the cache";
    DataBytesWritten "data_bytes_written" "bytes of file data written to extents";
    ObjectsGrown "objects_grown" "writes that made the object before them longer";
    SegmentsCleaned "segments_cleaned" "segments emptied by the cleaner";
    BytesMoved "bytes_moved" "live bytes that the cleaner moved";
    DiscardedBytes "discarded_bytes" "bytes of free segments given back to the device";
    OrphanSlots "orphan_slots" "slots of the orphan table taken";
    Detached "detached" "files unlinked while open, freed on disk at once and kept in memory only";
    DetachedBack "detached_back" "such files that outgrew their inode and took an orphan slot";
    ReapSteps "reap_steps" "transactions that free something in the background";
    Reaped "reaped" "inodes freed in the background";
    AttrShortcuts "attr_shortcuts" "attributes changed in the caller's transaction";
    AttrIntents "attr_intents" "attributes changed through intents";
}

const COUNT: usize = Counter::ALL.len();

/// A set of counters, sharded by thread.
pub struct Counters {
    shards: Box<[CachePadded<[AtomicU64; COUNT]>]>,
    timings: Timings,
    calls: Timings,
}

impl Default for Counters {
    fn default() -> Self {
        let shards = (0..SHARDS)
            .map(|_| CachePadded::new(std::array::from_fn(|_| AtomicU64::new(0))))
            .collect();
        Counters { shards, timings: Timings::of_volume(), calls: Timings::of_calls() }
    }
}

impl Counters {
    /// Adds `n` to the calling thread's cell.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        self.shards[shard()][counter as usize].fetch_add(n, Ordering::Relaxed);
    }
    /// Returns the sum over all threads.
    pub fn get(&self, counter: Counter) -> u64 {
        self.shards.iter().map(|s| s[counter as usize].load(Ordering::Relaxed)).sum()
    }
    /// Records a duration, whether what took it failed, and the bytes that it moved.
    #[inline]
    pub fn took(&self, kind: Timed, took: Duration, failed: bool, bytes: u64) {
        self.timings.record(kind as usize, took, failed, bytes);
    }
    /// Records a call of the library: its duration if it was timed, and whether it failed.
    pub fn called(&self, call: Call, took: Option<Duration>, failed: bool) {
        match took {
            Some(took) => self.calls.record(call as usize, took, failed, 0),
            None if failed => self.calls.failed(call as usize),
            None => {}
        }
    }
    /// Returns the durations of a call of the library. Each that was timed counts for
    /// [`Call::weight`]; failures are exact.
    pub fn calls(&self, call: Call) -> Timing {
        self.calls.get(call as usize).weighted(call.weight())
    }
    /// Returns the durations of a kind.
    pub fn timing(&self, kind: Timed) -> Timing {
        self.timings.get(kind as usize)
    }
}
