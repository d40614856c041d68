//! What goes in and out of calls: attributes, entries, callers, options.

mod check;
mod options;

pub use check::{CheckReport, Problem, Progress};
pub use options::{OpenOptions, TruncateTracking};

use shoal_base::{Code, Error, Generation, Ino, Result};
use shoal_device::ClaimOptions;
use shoal_format::Compression;
use std::sync::Arc;

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Time {
    /// Seconds, may be negative.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: u32,
}

/// The seven types of file.
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
    /// From a dirent type (`DT_*`), which is also how it is stored.
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
    /// Space used, in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
}

/// What a lookup or creation returns.
pub type Entry = Attr;

/// One time in `SetAttr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    /// The volume's clock (`UTIME_NOW`).
    Now,
    /// This time.
    To(Time),
}

/// What `setattr` shall change; `None` leaves as is.
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
    /// The caller holds the file open for writing: truncation needs no write permission.
    pub by_handle: bool,
}

/// On whose behalf a call is made.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Effective (file-system) user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Umask, applied by create, mkdir, mknod when the directory has no default ACL. 0 when the
    /// front end has applied it.
    pub umask: u32,
    /// Permissions have been checked elsewhere (`default_permissions`): skip the checks here, but
    /// keep the ownership and set-id rules.
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
    /// Whether the caller is in `gid`.
    #[inline]
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
    /// Whether permission checks are skipped altogether.
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
    /// Pass it to continue after this entry.
    pub cookie: u64,
}

/// Flags of `rename`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameFlags {
    /// Fail with `EEXIST` when the target exists.
    pub noreplace: bool,
    /// Swap the two.
    pub exchange: bool,
}

/// Flags of `setxattr`; with neither, the attribute is created or its value replaced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XattrFlags {
    /// Fail with `EEXIST` when it exists.
    pub create: bool,
    /// Fail with `ENODATA` when it does not.
    pub replace: bool,
    /// With an access control list: clears the set-group-ID bit. For callers who have been checked
    /// ([`Caller::checked`]) and found to be outside the file's group; the others Shoal checks.
    pub clear_set_group_id: bool,
}

/// Where a file has a name.
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

/// How large the records of one kind of call can be, and have been.
#[derive(Clone, Copy, Debug)]
pub struct RecordSize {
    /// Kind of call.
    pub name: &'static str,
    /// What such a record holds.
    pub text: &'static str,
    /// Bytes that no such record exceeds.
    pub bytes_max: u32,
    /// Bytes of the largest since the volume was opened; 0: there has been none.
    pub bytes_largest: u32,
}

/// What `statfs` reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StatFs {
    /// Size of the volume in bytes.
    pub bytes_total: u64,
    /// Bytes free, the reserve included.
    pub bytes_free: u64,
    /// Bytes free for ordinary calls.
    pub bytes_available: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Inodes that could still be made.
    pub inodes_free: u64,
    /// Served read-only.
    pub read_only: bool,
}

/// Choices of `mkfs`.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    /// Size in bytes; 0 takes that of the existing file or device (and 8 GiB for a new file).
    pub size: u64,
    /// Bytes of an inode: 256, 512, 1024 or 2048.
    pub inode_size: u32,
    /// Bytes of a segment: a power of two from 1 to 64 MiB; 0 chooses.
    pub segment_size: u64,
    /// Overwrite what looks like a filesystem.
    pub force: bool,
    /// Told what the user may want to know while an earlier volume's claim is watched.
    pub notice: fn(&str),
    /// Owner and mode of the top directory.
    pub root_uid: u32,
    /// Group of the top directory.
    pub root_gid: u32,
    /// Permission bits of the top directory.
    pub root_mode: u32,
    /// Keep a parent pointer for each name (without: for measuring what they cost).
    pub parents: bool,
    /// Codec of nodes, inode blocks and data, each of which is coded where that makes it shorter.
    pub compression: Compression,
    /// The volume's id; `None`: a random one. (Names are hashed with it: a simulation that is to be
    /// repeated exactly chooses it.)
    pub id: Option<[u8; 16]>,
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
            id: None,
        }
    }
}

/// What has to be permitted for a tree to be removed ([`crate::Inner::remove_tree`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeCheck {
    /// What `rm -rf` would need: to remove the top's name, and to list and empty every directory
    /// below. Who bypasses permissions has nothing to be looked at.
    Tree,
    /// To remove the top's name. Only for callers that could remove all the rest anyway.
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

/// Why an inode stands in the orphan table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OrphanState {
    /// It has lost its last name, or never had one.
    Unlinked,
    /// A directory that was removed with what is below it: it is being emptied.
    Tree,
    /// A file with names whose tail is being removed.
    Cut,
    /// It should not: the slot names what is free, or has a name, or was never there.
    #[default]
    Broken,
}

/// An inode in the orphan table, or one that lives on in memory alone.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OrphanInfo {
    /// Inode.
    pub ino: Ino,
    /// Why.
    pub state: OrphanState,
    /// It has a slot in the table; without one, it is free as far as the device goes.
    pub slot: bool,
    /// Somebody has it open, or knows it.
    pub held: bool,
    /// File: size in bytes. Directory: entries left.
    pub size: u64,
    /// Bytes of data that it keeps.
    pub bytes: u64,
    /// Where it was when it lost its last name, if that directory still has a path.
    pub path: Option<Vec<u8>>,
}

/// A root (subvolume) of a volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RootInfo {
    /// Its number: the top 16 bits of its inode numbers.
    pub id: u16,
    /// Its name under the volume's top; empty when it has been deleted.
    pub name: Vec<u8>,
    /// Its top directory.
    pub top: Ino,
    /// It has lost its name; what was in it is being freed.
    pub deleted: bool,
    /// Inodes in use.
    pub inodes: u64,
}

/// Facts about a volume for `shoal info`: (name, value) rows, in order, plus counters.
#[derive(Clone, Debug, Default)]
pub struct VolumeInfo {
    /// Volume id, as a UUID string.
    pub id: String,
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
    /// Codec of new objects, as `mkfs --compress` takes it.
    pub compression: String,
    /// Live bytes of metadata and data.
    pub live_bytes: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Number of the newest checkpoint.
    pub checkpoint: u64,
    /// Its LSN.
    pub checkpoint_lsn: u64,
    /// Newest LSN.
    pub lsn: u64,
    /// Slots of the orphan table in use.
    pub orphans: u64,
    /// Files without a name that live on in memory alone.
    pub detached: u64,
    /// Bytes that are free but for these files, some until the next checkpoint.
    pub pinned_bytes: u64,
    /// Bytes of cache in use.
    pub cache_bytes: u64,
    /// The process whose claim is in the volume: this one, or, of a volume opened for reading, one
    /// that has ended without closing it.
    pub claim: Option<String>,
    /// Why the volume is read-only, if it is.
    pub read_only: Option<String>,
    /// Counters since it was opened.
    pub counters: Vec<(&'static str, u64)>,
    /// What recovery did when the volume was opened.
    pub recovery: RecoveryReport,
}

/// What recovery did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecoveryReport {
    /// The volume had not been closed.
    pub needed: bool,
    /// Records replayed.
    pub records: u64,
    /// Bytes of journal read.
    pub bytes: u64,
    /// Slots of the orphan table in use, whose inodes are freed behind the calls.
    pub orphans: u64,
    /// Blocks of the orphan table that could not be read: what stood in them keeps its space until
    /// a repair.
    pub damage: Vec<String>,
    /// Intents completed.
    pub intents: u64,
    /// Where and why the journal's tail was cut, if it was.
    pub torn: Option<String>,
    /// Time it took.
    pub seconds: f64,
}

/// Checks a name for a directory entry.
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
