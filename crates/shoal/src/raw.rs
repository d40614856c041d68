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
    open_device, phase, refuse_to_wait, restore, shard, shrink, shrink_on, text, timing_bucket_end,
};
#[cfg(feature = "bucket")]
pub use shoal_engine::{
    BucketOwner, BucketRequest, Following, RequestClass, S3_PRICES, bucket_check,
};
#[cfg(feature = "lab")]
pub use shoal_engine::{Lab, TruncateTracking};

/// Splits `a/b/c` into `a/b` and `c`: the directory and the name in it. A single name is in "", the
/// directory that the path starts from.
pub fn split_parent(path: &[u8]) -> (&[u8], &[u8]) {
    let trimmed = path.strip_suffix(b"/").unwrap_or(path);
    match trimmed.iter().rposition(|b| *b == b'/') {
        Some(0) => (b"/", &trimmed[1..]),
        Some(at) => (&trimmed[..at], &trimmed[at + 1..]),
        None => (b"", trimmed),
    }
}

#[cfg(test)]
mod tests {
    use super::split_parent;

    #[test]
    fn paths_are_split_at_the_last_slash() {
        let split = |path: &'static str| split_parent(path.as_bytes());
        assert_eq!(split("/a/b/c"), (&b"/a/b"[..], &b"c"[..]));
        assert_eq!(split("/a/"), (&b"/"[..], &b"a"[..]));
        assert_eq!(split("a"), (&b""[..], &b"a"[..]));
    }
}
