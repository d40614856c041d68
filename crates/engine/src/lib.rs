//! POSIX meaning on top of transactions.
//!
//! Modules bottom-up; each uses only those above it in this list (and the crates below).

pub mod types;

mod clock;
mod shape;
mod volume;

mod records;

mod attr;
mod dir;
mod holds;
mod perm;

mod data;
mod xattr;

mod intents;

mod attributes;
mod names;
mod parent;

mod orphan;

mod namei;
mod reap;

mod background;
mod check;
mod clean;
mod logdump;
mod mkfs;
mod open;
mod repair;

mod passes;

mod fsck;

pub use check::{ScrubAt, ScrubReport};
pub use logdump::{JournalDump, JournalEnd, JournalItem, JournalRecord, OpenIntent};
pub use mkfs::{mkfs, mkfs_on};
pub use repair::{Action, RepairReport};
pub use shoal_base::counters::Counter;
pub use shoal_base::{Code, Error, Generation, Ino, Lsn, Result, limits, memory};
pub use shoal_device::{ClaimOptions, Device, FileDevice, MemDevice, OpenMode};
pub use shoal_format::Compression;
pub use types::*;
pub use volume::{Inner, Volume};
