//! The calls by inode number, for front ends: a mount, a network server, tools.
//!
//! The rest of this library is made of them, as a kernel's interface to its filesystems is: names
//! are looked up one at a time, open files are counted by [`References::hold`] and
//! [`References::release`], and a call that checks permissions takes a [`Caller`]. Calls on the
//! contents of a file check nothing, like system calls on a descriptor: check first, with
//! `access`. The calls of a [`Volume`] are in rooms, one for each subject, such as
//! [`Volume::namespace`]. This module may change more often than the rest.
//!
//! It has what the front ends of this repository use: an item that one of them needs is added here.

pub use crate::connect::{connect, connect_mount, is_served};
pub use crate::local::Local;
pub use crate::local::metrics::metrics;
pub use crate::path::split_parent;
pub use shoal_engine::{
    AclChange, Action, AtOnce, Attr, BatchOp, Call, CallNote, Caller, Change, ChangeKind,
    ChangeMark, ChangeReader, ChangedName, Changes, CheckReport, Child, Code, Compression, Cookies,
    Copied, CopyKind, Counter, Device, DeviceFailure, DirEntry, DiskCache, Entry, Error, Fact,
    Fallocate, Fields, FileDevice, FileKind, Filter, Freshness, Generation, Grown, Handle,
    HoldLife, Identity, Ino, InodeScan, JournalDump, JournalEnd, JournalItem, JournalRecord, Label,
    Left, Listing, Maintenance, MemDevice, MkfsOptions, ModeChange, OpenIntent, OpenMode,
    OpenOptions, OrphanInfo, OrphanState, Outcome, Outside, Parent, Problem, Quota, QuotaLimits,
    Quotas, RecoveryReport, References, RenameFlags, RepairReport, Result, Rights, RingMemory,
    RootInfo, ScrubAt, ScrubReport, Seek, SetAttr, SetTime, ShrinkPlan, Stat, StatFs, StatItem,
    TIMING_BUCKETS, Teller, Time, Timed, Timing, Timings, Token, Totals, TotalsScan, TreeChange,
    TreeChanged, TreeChanges, TreeCheck, TreeFailure, TreeStep, Volume, VolumeInfo, XattrFlags,
    at_once, call_panicked, check_process, copy_volume, copy_volume_on, dump, glob, grow,
    hand_over, identify, is_bucket, limits, lock_files, memory, mkfs, mkfs_on, must_not_wait,
    open_device, phase, place_of_file, refuse_to_wait, restore, shard, shrink, shrink_on, text,
    timing_bucket_end,
};
#[cfg(feature = "bucket")]
pub use shoal_engine::{
    BucketOwner, BucketRequest, Following, RequestClass, S3_PRICES, bucket_check,
};
#[cfg(feature = "lab")]
pub use shoal_engine::{Lab, TruncateTracking};
