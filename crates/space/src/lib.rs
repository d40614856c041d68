//! Segments: their allocation, their live bytes, and when they can be reused.
//!
//! The volume is divided into segments. Segment 0 holds the superblocks. Every other one is free,
//! or belongs to the journal, or is appended to by a *stream* ([`Stream`]): one for metadata,
//! several for data. A stream fills its open segment from start to end, then *seals* it and
//! allocates the free segment with the lowest number, so that a sparse file stays small.
//!
//! # When a segment can be reused
//!
//! A crash restores the newest durable checkpoint and replays the journal after it. So nothing may
//! be overwritten (a) that the newest durable checkpoint points to, or (b) that a record after it
//! points to, or (c) that is being written and will be pointed to. The rules:
//!
//! 1. Live counts may drop to zero at any time; the segment stays allocated. Only
//!    [`Checkpointing::committed`], called when a newer checkpoint has become durable, frees
//!    segments.
//! 2. It frees a data segment only if, at the *freeze* of that checkpoint, it was sealed and had no
//!    live byte. (a) The checkpoint, which is the state at the freeze, does not point to it. (b)
//!    Later records could point to it only through bytes allocated in it later, and it was sealed.
//!    A segment sealed after the freeze is left for the next checkpoint, whatever it holds.
//! 3. It frees a metadata segment if the checkpoint, as written, has no live byte in it and no
//!    stream appends to it. Journal records never point to metadata, so (b) does not arise.
//! 4. In both cases the *current* live count must be zero too: this is (c), and a second check of 2
//!    and 3.
//! 5. A segment must not be freed while bytes in it are *pinned*: nothing in checkpoint or journal
//!    points to them any more, but an unlinked but open file does ([`Space::pin`]).
//! 6. Journal segments are freed by the caller, which knows those that the newest checkpoint needs.
//! 7. A segment must not be freed while it is *held* ([`Hold`]): somebody reads or writes in it
//!    outside of a transaction. A data segment in which something became live after the freeze
//!    waits for the next checkpoint even if it is dead again: a record after the freeze points to
//!    it (b).
//!
//! For (c) the caller must guarantee that an allocation and the [`Space::add_live`] of the data
//! written there happen within one transaction, that is, without a freeze between them; or that the
//! allocation is held ([`Space::alloc_held`]) until that transaction has ended. An object that
//! grows ([`Sectors::extend`], or into space allocated with it) must be held likewise.
//!
//! Data that a flush made durable never shares a sector with data written later: `sectors.rs`.
//!
//! # The table on disk
//!
//! The usage table is part of the checkpoint, so it must describe the state *after* the checkpoint
//! is durable: segments that rule 2 or 3 will free are already `Free` in it. Journal segments are
//! `Journal`, which means free when the table is loaded: recovery [`claim`](Recovery::claim)s those
//! that it still needs, and the segments to which replayed records point, before anything is
//! allocated. The table is in pages, of which a checkpoint writes the changed ones
//! (`checkpoint.rs`).
//!
//! Modules bottom-up; each uses only those above it in this list.

mod bits;
mod changed;
mod ends;
mod segment;
mod shadow;
mod totals;

mod free;
mod host_state;

mod space;

mod count;

mod host;
mod recovery;

mod take;

mod checkpoint;
mod choice;
mod sectors;
mod vacate;

pub use checkpoint::{Checkpointing, Frozen};
pub use choice::{Cleaning, Victim};
pub use count::Counts;
pub use ends::Writing;
pub use host::{FreeRun, Host};
pub use recovery::Recovery;
pub use sectors::{End, Placed, Sectors};
pub use segment::{Hold, Life};
pub use shoal_format::usage::{SegKind, UsageEntry, UsageTable};
pub use space::{COLD, Class, DATA_STREAMS, HOT_STREAMS, Space, Stream, default_reserve};
pub use totals::Rest;
pub use vacate::{Occupied, Vacating};
