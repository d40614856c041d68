//! Arguments and results of calls: attributes, entries, callers, options.

pub(crate) mod acl_change;
mod base64;
mod batch;
mod bulk;
mod changes;
mod check;
pub(crate) mod lab;
mod listing;
mod mark;
mod mode_change;
mod options;
mod quota;
mod recovery_report;
mod time;
pub(crate) mod token;
mod totals;
mod tree_change;

pub use acl_change::AclChange;
pub use batch::BatchOp;
pub use bulk::{Child, Fields, Freshness, InodeScan, Stat, StatItem};
pub use changes::{Change, ChangeKind, ChangedName};
pub use check::{CheckReport, Problem, Progress};
#[cfg(feature = "lab")]
pub use lab::{Lab, TruncateTracking};
pub use listing::{Cookies, Filter, Listing};
pub use mark::ChangeMark;
pub use mode_change::ModeChange;
pub use options::{DiskCache, HoldLife, OpenOptions};
pub use quota::{Quota, QuotaLimits};
pub use recovery_report::RecoveryReport;
pub use time::Time;
pub use token::{Rights, Token};
pub use totals::{ChildTotals, Totals, TotalsScan};
pub use tree_change::{TreeChange, TreeChanged, TreeFailure, TreeStep};

use shoal_base::{Code, Error, Generation, Ino, Result};
use shoal_device::{ClaimOptions, Fact};
use shoal_format::{Compression, Label};
use std::sync::Arc;

/// The seven file types.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum FileKind {
    /// Named pipe.
    Fifo = 1,
    /// Character device.
    CharDevice = 2,
    /// Directory.
    Directory = 4,
    /// Block device.
    BlockDevice = 6,
    /// Regular file.
    Regular = 8,
    /// Symbolic link.
    Symlink = 10,
    /// Socket.
    Socket = 12,
}

impl FileKind {
    /// The type bits of a mode (`S_IFMT`), or `None`.
    #[inline]
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        FileKind::from_dirent_type(((mode >> 12) & 15) as u8)
    }
    /// Converts a dirent type (`DT_*`), which is also the stored form.
    #[inline]
    pub fn from_dirent_type(byte: u8) -> Option<FileKind> {
        Some(match byte {
            1 => FileKind::Fifo,
            2 => FileKind::CharDevice,
            4 => FileKind::Directory,
            6 => FileKind::BlockDevice,
            8 => FileKind::Regular,
            10 => FileKind::Symlink,
            12 => FileKind::Socket,
            _ => return None,
        })
    }
    /// The `S_IFMT` bits.
    #[inline]
    pub fn mode_bits(self) -> u32 {
        (self as u32) << 12
    }
}

/// Attributes of an inode, as `stat` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Generation of the number.
    pub generation: Generation,
    /// Type.
    pub kind: FileKind,
    /// Full mode, type bits included.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for device files.
    pub rdev: u32,
    /// Size in bytes (directories: number of entries).
    pub size: u64,
    /// Space used, in units of 512 bytes; contents in the inode count, rounded up.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
    /// Number that is larger after each change of the inode: the LSN of the change. A change that a
    /// crash has undone may have had a number that another one gets.
    pub version: u64,
}

/// Result of a lookup or creation.
pub type Entry = Attr;

/// One time in `SetAttr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The volume's clock (`UTIME_NOW`).
    Now,
    /// The given time.
    To(Time),
}

/// Changes for `setattr`; `None` leaves an attribute unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    /// Permission bits, with set-id and sticky (type bits are ignored).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates or extends with a hole.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
    /// Change time (only the kernel's FUSE client sets it).
    pub ctime: Option<Time>,
    /// The caller has the file open for writing: a truncate needs no write permission.
    pub by_handle: bool,
}

/// Identity of the user for whom a call is made.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Effective (file-system) user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Umask, applied by create, mkdir and mknod if the directory has no default ACL. 0 if the
    /// front end has applied it.
    pub umask: u32,
    /// Permissions have been checked elsewhere (`default_permissions`): skips the checks here, but
    /// keeps the ownership and set-id rules.
    pub checked: bool,
}

impl Caller {
    /// The superuser.
    pub fn root() -> Caller {
        Caller::user(0, 0)
    }
    /// An ordinary user without supplementary groups.
    pub fn user(uid: u32, gid: u32) -> Caller {
        Caller { uid, gid, groups: Arc::from([]), umask: 0, checked: false }
    }
    /// Returns whether the caller is in group `gid`.
    #[inline]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
    /// Returns whether all permission checks are skipped.
    #[inline]
    pub fn bypasses(&self) -> bool {
        self.uid == 0 || self.checked
    }
}

/// One entry of a directory listing. Cookies stay valid while the directory changes.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// Name, without NUL.
    pub name: &'a [u8],
    /// Child.
    pub ino: Ino,
    /// Child's type.
    pub kind: FileKind,
    /// Cookie for continuing after this entry.
    pub cookie: u64,
}

/// Flags of `rename`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameFlags {
    /// Fail with `EEXIST` if the target exists.
    pub noreplace: bool,
    /// Exchange the two names.
    pub exchange: bool,
    /// Leave a whiteout at the old name: a character device 0/0, as overlays use them. Not together
    /// with `exchange`. Two names of one file stay as they are.
    pub whiteout: bool,
}

/// Flags of `setxattr`. With neither `create` nor `replace`, the attribute is created or its value
/// replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XattrFlags {
    /// Fail with `EEXIST` if the attribute exists.
    pub create: bool,
    /// Fail with `ENODATA` if the attribute does not exist.
    pub replace: bool,
    /// With an access control list: clear the set-group-ID bit. For callers with
    /// [`Caller::checked`] that are outside the file's group; for others Shoal decides.
    pub clear_set_group_id: bool,
}

/// Parent pointer: a directory and name of a file.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Parent {
    /// The directory.
    pub dir: Ino,
    /// Its generation.
    pub generation: Generation,
    /// The name.
    pub name: Vec<u8>,
}

/// Modes of `fallocate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fallocate {
    /// Reserve space; extend the size unless `keep_size`.
    Allocate {
        /// Do not change the size.
        keep_size: bool,
    },
    /// Make the range a hole; the size stays.
    PunchHole,
    /// Make the range read as zeros; extend the size unless `keep_size`.
    ZeroRange {
        /// Do not change the size.
        keep_size: bool,
    },
}

/// `SEEK_DATA` or `SEEK_HOLE`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// First byte of data at or after the offset.
    Data,
    /// First byte of a hole (the end of the file counts) at or after the offset.
    Hole,
}

/// Maximum and largest seen record size of one kind of call.
#[derive(Clone, Copy, Debug)]
pub struct RecordSize {
    /// Kind of call.
    pub name: &'static str,
    /// Contents of such a record.
    pub text: &'static str,
    /// Maximum bytes of such a record.
    pub bytes_max: u32,
    /// Bytes of the largest since the volume was opened; 0 if there was none.
    pub bytes_largest: u32,
}

/// Result of `statfs`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Size of the volume in bytes.
    pub bytes_total: u64,
    /// Bytes free, the reserve included.
    pub bytes_free: u64,
    /// Bytes free for calls that may not use the reserve.
    pub bytes_available: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Inodes that can still be created.
    pub inodes_free: u64,
    /// The volume is read-only.
    pub read_only: bool,
}

/// Options of `mkfs`.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Size in bytes; 0 for that of the existing file or device (8 GiB for a new file).
    pub size: u64,
    /// Bytes of an inode: 256, 512, 1024 or 2048.
    pub inode_size: u32,
    /// Bytes of a segment: a power of two from 1 to 64 MiB; 0 for a default by size.
    pub segment_size: u64,
    /// Overwrite an existing filesystem.
    pub force: bool,
    /// Called with messages for the user while an earlier volume's claim is watched.
    pub notice: fn(&str),
    /// Owner of the top directory.
    pub root_uid: u32,
    /// Group of the top directory.
    pub root_gid: u32,
    /// Permission bits of the top directory.
    pub root_mode: u32,
    /// Keep a parent pointer for each name (`false` only to measure their cost).
    pub parents: bool,
    /// Codec of nodes, inode blocks and data. Each is compressed only if that makes it smaller.
    pub compression: Compression,
    /// The volume's label.
    pub label: Label,
    /// The volume's id; `None` for a random one. Names are hashed with it, so a deterministic
    /// simulation must choose it.
    pub id: Option<[u8; 16]>,
    /// Of a volume in a bucket: do not test whether the store lets only one of many writers create
    /// an object. It must: else the second mount of a volume destroys it.
    pub trust_store: bool,
    /// Called with the objects that this test has tried, and their number.
    pub progress: fn(u64, u64),
}

impl Default for MkfsOptions {
    fn default() -> Self {
        MkfsOptions {
            size: 0,
            inode_size: 512,
            segment_size: 0,
            force: false,
            notice: ClaimOptions::default().notice,
            root_uid: 0,
            root_gid: 0,
            root_mode: 0o755,
            parents: true,
            compression: Compression::NONE,
            label: Label::NONE,
            id: None,
            trust_store: false,
            progress: |_, _| {},
        }
    }
}

/// Permission check for the removal of a tree ([`crate::Namespace::remove_tree`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeCheck {
    /// As `rm -rf`: permission to remove the top's name, and to list and empty every directory
    /// below. Privileged callers skip the check.
    Tree,
    /// Permission to remove the top's name. Only for callers that could remove everything below.
    Top,
}

/// A file handle that survives a remount (`name_to_handle_at`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Handle {
    /// Inode.
    pub ino: Ino,
    /// Its generation when the handle was made.
    pub generation: Generation,
}

/// Reason for an inode's entry in the orphan table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OrphanState {
    /// Its last name was removed, or it never had one.
    Unlinked,
    /// A directory removed with its contents, which is being emptied.
    Tree,
    /// A file with names and a truncate in progress.
    Truncating,
    /// The state of a change of a tree that is in progress ([`crate::TreeChanges`]).
    Changing,
    /// Invalid: the slot's inode is free or has a name, or the slot never existed.
    #[default]
    Broken,
}

/// An inode in the orphan table, or an unlinked but open one that exists only in memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OrphanInfo {
    /// Inode.
    pub ino: Ino,
    /// Reason for its entry.
    pub state: OrphanState,
    /// It has an orphan slot; without one, it is free on the device.
    pub slot: bool,
    /// It is open, or the kernel knows it.
    pub held: bool,
    /// File: size in bytes. Directory: entries left.
    pub size: u64,
    /// Bytes of its data.
    pub bytes: u64,
    /// Its path when it lost its last name, if that directory still has a path.
    pub path: Option<Vec<u8>>,
}

/// A subvolume of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootInfo {
    /// Its number: the top 16 bits of its inode numbers.
    pub id: u16,
    /// Its name in the volume's top directory; empty if it has been deleted.
    pub name: Vec<u8>,
    /// Its top directory.
    pub top: Ino,
    /// It has been deleted; its contents are being freed.
    pub deleted: bool,
    /// Inodes in use.
    pub inodes: u64,
}

/// Facts about a volume for `shoal info`: (name, value) rows, in order, plus counters.
#[derive(Clone, Debug, Default)]
pub struct VolumeInfo {
    /// Volume id, as a UUID string.
    pub id: String,
    /// Label, empty for none.
    pub label: String,
    /// Seconds since 1970 at which it was made.
    pub created: i64,
    /// Format version.
    pub version: u32,
    /// Names of feature bits set.
    pub features: Vec<&'static str>,
    /// Bytes of a segment.
    pub segment_size: u64,
    /// Number of segments.
    pub segments: u32,
    /// Segments that are free.
    pub segments_free: u32,
    /// Bytes of an inode.
    pub inode_size: u32,
    /// Codec of new objects, in the syntax of `mkfs --compress`.
    pub compression: String,
    /// Live bytes of metadata and data.
    pub live_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Number of the newest checkpoint.
    pub checkpoint: u64,
    /// Its LSN.
    pub checkpoint_lsn: u64,
    /// Seconds since it was written; `None`: before the volume was opened.
    pub checkpoint_age: Option<u64>,
    /// Newest LSN.
    pub lsn: u64,
    /// Slots of the orphan table in use.
    pub orphans: u64,
    /// Parts of interrupted changes of trees, which are continued in the background.
    pub tree_changes: u64,
    /// Unlinked but open files that exist only in memory.
    pub detached: u64,
    /// Pinned bytes: free on the device except for these files, some until the next checkpoint.
    pub pinned_bytes: u64,
    /// Bytes of cache in use.
    pub cache_bytes: u64,
    /// The process whose claim is in the volume. This is the current process or, if the volume is
    /// open for reading, one that ended without closing it.
    pub claim: Option<String>,
    /// Numbers of the storage below, by name: those of a bucket are its requests since the volume
    /// was opened, and its objects.
    pub storage: Vec<Fact>,
    /// The file system of the volume's file has less space than the volume itself.
    pub limited_by_host: bool,
    /// The volume's file has been removed: everything is lost when it is closed.
    pub unlinked: bool,
    /// Reason why the volume is read-only, if it is.
    pub read_only: Option<String>,
    /// Counters since it was opened.
    pub counters: Vec<(&'static str, u64)>,
    /// Report of the recovery at open.
    pub recovery: RecoveryReport,
}

/// Checks that a name is valid for a directory entry.
#[inline]
pub fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > shoal_base::limits::NAME_MAX {
        return Err(Error::Code(Code::NameTooLong));
    }
    if name.is_empty() {
        return Err(Error::Code(Code::NotFound));
    }
    if name == b"." || name == b".." {
        return Err(Error::Code(Code::Exists));
    }
    if name.iter().any(|b| *b == b'/' || *b == 0) {
        return Err(Error::Code(Code::Invalid));
    }
    Ok(())
}
