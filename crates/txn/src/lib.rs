//! Transactions over the trees and the inode table of a volume.
//!
//! A call begins a transaction, changes nodes and inodes in memory under its locks, gathers the
//! same changes as items, and commits: the items become one journal record, numbered while the
//! locks are held. A checkpoint closes the gate for the moment in which calls in flight finish,
//! raises the epoch, and writes the image of the epoch that ended while new calls run.
//!
//! Where is...? The order of a checkpoint: `checkpoint.rs`. What opening a volume reads: `open.rs`.
//! How the journal is replayed: `recover.rs`; a record of it: `replay.rs`; what is read for it
//! ahead: `prefetch.rs`. The roots, and their pages on the device: `roots.rs`, `root_pages.rs`. The
//! pages of the segment usage table: `usage_pages.rs`.
//! What can be read of a damaged volume: `salvage.rs`; of lost root pages: `lost_pages.rs`; without
//! a superblock: `spare.rs`. What a call waits for: `begin.rs`; how much room there is: `room.rs`.

mod begin;
mod checkpoint;
mod discard;
mod gate;
mod image;
mod intents;
mod lost_pages;
mod open;
mod orphans;
mod prefetch;
mod record;
mod recover;
mod replay;
mod room;
mod root_pages;
mod roots;
mod salvage;
mod scan;
mod spare;
mod store;
mod usage_pages;
mod writer;

pub use begin::{Need, Txn};
pub use gate::Gate;
pub use image::{Image, ObjectKind};
pub use intents::Intents;
pub use open::{Opened, Recovered, create, open, read_checkpoint, read_object, read_superblock};
pub use orphans::{OrphanSlot, Orphans};
pub use record::RecordKind;
pub use replay::{ExtentChange, fork_extents, remote_extents};
pub use roots::{Root, RootTrees, Roots};
pub use salvage::{Held, Loss, Lost, Salvaged, salvage, superblock_copies};
pub use spare::{find_superblocks, spare_superblock};
pub use store::{Store, StoreOptions};
pub use usage_pages::{UsageImage, with_remedy};
