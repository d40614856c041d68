//! Transactions over the trees and the inode table of a volume.
//!
//! A call begins a transaction, changes nodes and inodes in memory under its locks, collects the
//! same changes as items, and commits: the items become one journal record, numbered while the
//! locks are held. A checkpoint quiesces transactions for a moment, increments the epoch, and
//! writes the image of the epoch that ended while new calls run.
//!
//! Modules bottom-up; each uses only those above it in this list (and the crates below). First the
//! parts of a [`Store`], then the store, then its work: free space ([`Room`]), checkpoints
//! ([`Checkpoints`]), transactions ([`Txn`]), recovery, reading a damaged volume.
//!
//! Files: the steps of a checkpoint: `checkpoint.rs`; when one is due: `pressure.rs`. The order of
//! reading in an open: `open.rs`. Replay of the journal: `recover.rs`; of one record: `replay.rs`;
//! reading ahead for it: `prefetch.rs`; whether its data is there: `arrived.rs`. Subvolumes and
//! their pages on the device: `roots.rs`, `root_pages.rs`. The pages of the segment usage table:
//! `usage_image.rs`, `usage_pages.rs`. Reading a damaged volume: `salvage.rs`; with lost root
//! pages: `lost_pages.rs`; without a superblock: `backup_superblock.rs`. Space accounting:
//! `room.rs`. Removed names: `removed.rs`.

mod helpers;
mod object;
mod promises;
mod quiesce;
mod read;
mod record;
mod removed;
mod states;

mod backup_superblock;
mod intents;
mod orphans;
mod roots;
mod usage_image;

mod held;
mod image;
mod store;

mod extents;
mod parts;
mod room;
mod writer;

mod discard;
mod pressure;
mod root_pages;
mod undo;
mod usage_pages;

mod checkpoint;

mod begin;

mod prefetch;
mod recent;
mod replay;
mod rollback;

mod arrived;

mod recover;

mod lost_pages;
mod open;
mod scan;

mod salvage;

pub use backup_superblock::{backup_superblock, find_superblocks};
pub use begin::{Need, Txn};
pub use checkpoint::Checkpoints;
pub use extents::{ExtentChange, fork_extents, remote_extents};
pub use held::Held;
pub use image::Image;
pub use intents::Intents;
pub use object::ObjectKind;
pub use open::{Opened, Recovery, create, open};
pub use orphans::{OrphanSlot, Orphans};
pub use prefetch::ReadAhead;
pub use promises::Promises;
pub use quiesce::Quiesce;
pub use read::{read_checkpoint, read_object, read_superblock, superblock_copies, unfinished_copy};
pub use record::RecordKind;
pub use recover::Recovered;
pub use removed::{CHUNK_MAX, CHUNKS, RemovedChunk, RemovedHeader, RemovedName, RemovedNames};
pub use room::Room;
pub use roots::{Root, RootTrees, Roots};
pub use salvage::{LostKind, LostObject, Salvaged, salvage};
pub use states::States;
pub use store::{Store, StoreOptions};
pub use usage_image::{UsageImage, with_remedy};
