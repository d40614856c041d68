//! Arguments of a journal: its segments, its position and its sizes.

use crate::memory::{RING_BYTES, RingMemory};
use shoal_base::{Addr, Lsn, Result, SegNo};
use std::sync::Arc;
use std::time::Duration;

/// A position in the journal at which reading can begin: a batch starts there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalPos {
    /// Address of the next batch (possibly a link).
    pub addr: Addr,
    /// LSN of its first byte.
    pub lsn: Lsn,
}

/// The source of journal segments.
pub trait SegmentSource: Send + Sync {
    /// Allocates a free segment to the journal.
    fn take(&self) -> Result<SegNo>;
    /// Called before each flush of the device. Data that others write after it must never share a
    /// sector with data that the flush makes durable. Batches are whole sectors.
    fn before_flush(&self) {}
}

/// The position at which a journal starts to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartAt {
    /// The start of a new segment, which the journal allocates.
    Fresh {
        /// LSN of the first record's first byte.
        lsn: Lsn,
    },
    /// A known position in a segment of the journal. Batches after it must not have the same
    /// incarnation.
    At(JournalPos),
}

/// Sizes and intervals.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of the ring for staged records (a power of two).
    pub ring_bytes: usize,
    /// Longest batch in bytes, which also limits the longest record. Never more than half a
    /// segment.
    pub batch_max: usize,
    /// Interval at which the background thread makes everything durable.
    pub interval: Duration,
    /// Approximate number of staged bytes at which the background thread writes.
    pub write_behind: usize,
    /// Start a background thread. Without one, callers do everything, in an order that a simulation
    /// can repeat.
    pub background: bool,
    /// Memory of the ring, if it is to outlive the process.
    pub memory: Option<Arc<RingMemory>>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            ring_bytes: RING_BYTES,
            batch_max: 1 << 20,
            interval: Duration::from_secs(5),
            write_behind: 8 << 20,
            background: true,
            memory: None,
        }
    }
}
