//! POSIX semantics on top of transactions.
//!
//! Modules bottom-up; each uses only those above it in this list (and the crates below).

pub mod glob;
pub mod text;
pub mod types;

mod clock;
mod name;
mod random;
mod records;
mod stat;

mod state;
mod succession;

mod directories;
mod listing;
mod objects;

mod xattr;

mod intents;
mod orphans;
mod paths;
mod permissions;

mod files;

mod attributes;

mod namei;
mod tokens;

mod tree_change;

mod batch;
mod bulk;
mod changes;
mod quotas;
mod reap;
mod subvolumes;

mod clean;
mod references;
mod waste;

mod relief;
mod vacate;

mod background;
mod check;
mod logdump;

mod repair;

mod passes;

mod maintenance;

mod growth;
mod storage;

mod identity;

mod volume;

mod dump;

mod copy;
#[cfg(feature = "bucket")]
mod following;
mod fsck;
mod grow;
mod handing_over;
mod mkfs;
mod shrink;

pub use attributes::Attributes;
pub use bulk::Bulk;
pub use changes::{ChangeReader, Changes};
pub use check::{ScrubAt, ScrubReport};
pub use copy::{Copied, CopyKind, copy_volume, copy_volume_on};
pub use directories::Directories;
pub use dump::{Moved, dump, restore};
pub use files::Files;
#[cfg(feature = "bucket")]
pub use following::Following;
pub use grow::{Grown, grow};
pub use handing_over::{hand_over, lock_files};
pub use identity::{Identity, identify};
pub use logdump::{JournalDump, JournalEnd, JournalItem, JournalRecord, OpenIntent};
pub use maintenance::Maintenance;
pub use mkfs::{mkfs, mkfs_on};
pub use namei::Namespace;
pub use paths::Paths;
pub use quotas::Quotas;
pub use references::References;
pub use repair::{Action, RepairReport};
pub use shoal_base::cold::{AtOnce, at_once, must_not_wait, refuse as refuse_to_wait};
pub use shoal_base::counters::Counter;
pub use shoal_base::timing::{
    BUCKETS as TIMING_BUCKETS, Call, Timed, Timing, Timings, bucket_end as timing_bucket_end,
};
pub use shoal_base::{
    Code, Corrupt, DeviceFailure, Error, Generation, Ino, Lsn, Result, limits, memory, phase, shard,
};
#[cfg(feature = "bucket")]
pub use shoal_bucket::{
    Class as RequestClass, Owner as BucketOwner, Request as BucketRequest, S3 as S3_PRICES,
    check as bucket_check,
};
pub use shoal_device::{
    ClaimOptions, Device, Fact, FileDevice, MemDevice, OpenMode, place_of_file,
};
pub use shoal_format::{Compression, Label};
pub use shoal_journal::{CallNote, Left, Outcome, RingMemory, call_panicked, housekeeping};
pub use shrink::{ShrinkPlan, Shrunk, shrink, shrink_on};
pub use state::{Outside, Teller};
pub use storage::{is_bucket, open as open_device};
pub use subvolumes::Subvolumes;
pub use tokens::Tokens;
pub use tree_change::TreeChanges;
pub use types::*;
pub use volume::{Volume, check_process};
