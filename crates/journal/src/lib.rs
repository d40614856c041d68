//! The journal: an endless stream of records, numbered by position ([`Lsn`](shoal_base::Lsn)), that
//! makes changes durable in order. It knows where records begin and end, not what they contain.
//!
//! ```text
//! stage     copies a record into the ring (ring.rs); its number is fixed here, without a lock
//! write     splits complete records into batches and writes them (writer.rs)
//! commit    writes, flushes, and wakes all callers whose records are durable now (commit.rs)
//! boundary  a batch boundary for a checkpoint, and its address (below)
//! memory    the ring of a process that was killed: what recovery finds in it (memory.rs)
//! scan      after a crash: reads records back, tells a torn tail from corruption (scan.rs)
//! ```
//!
//! # Guarantees
//!
//! 1. Records become durable in the order of their numbers: after a crash, [`scan`] finds a prefix.
//! 2. When [`Journal::commit`] returns `Ok`, every record up to that number is durable.
//! 3. Data that was written before a record was staged is durable when that record is known to be
//!    ([`ScanEnd::durable`]). Behind that, a record may be there without its data: a replay
//!    must verify the data, and end the journal before the first record that lacks it.
//! 4. A failed write or flush is never repeated: its effect on the device is unknown, and the
//!    kernel may report success for pages that it dropped. The journal is *poisoned*: nothing more
//!    becomes durable, and every caller gets the reason.
//!
//! # Segments
//!
//! Batches follow each other in a segment, at multiples of 4096, so that a torn write cannot damage
//! an earlier one. One block is always kept free for the link to the next segment. That segment is
//! chosen when the current one is begun: every batch names it, so that a lost link does not hide
//! acknowledged records behind it ([`scan`], case F).
//!
//! Modules bottom-up; each uses only those above it in this list.

mod call_cell;
mod sum;

mod memory;

mod calls;
mod ring;
mod types;

mod core;
mod scan;

mod writer;

mod commit;

mod background;

mod journal;

#[cfg(test)]
mod tests;

pub use calls::{CallNote, Housekeeping, Left, Outcome, call_panicked, housekeeping};
pub use journal::{Journal, Numbered};
pub use memory::{RING_BYTES, RingMemory};
pub use scan::{ScanEnd, Scanner, scan};
pub use types::{Config, JournalPos, SegmentSource, StartAt};
