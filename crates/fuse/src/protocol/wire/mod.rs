//! The structures of the protocol, each with its size and the offset of every field asserted.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! wire {
    ($(
        $(#[$doc:meta])* $name:ident $size:literal
        { $($(#[$field_doc:meta])* $offset:literal $field:ident: $type:ty,)* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $size);
        $(const _: () = assert!(std::mem::offset_of!($name, $field) == $offset);)*
    )*};
}
mod args;
mod ring;

pub use args::*;
pub use ring::*;

wire! {
    /// Head of every request.
    InHeader 40 {
        /// Bytes of the whole request.
        0 len: u32,
        /// Request code.
        4 opcode: u32,
        /// Number of the request, to be put in the reply.
        8 unique: u64,
        /// Inode of the request.
        16 nodeid: u64,
        /// Caller's file-system user.
        24 uid: u32,
        /// Caller's file-system group.
        28 gid: u32,
        /// Caller's thread; 0 for the kernel itself or an invisible one.
        32 pid: u32,
        /// Length of the extensions at the end, in units of 8 bytes.
        36 total_extlen: u16,
        /// Unused.
        38 padding: u16,
    }
    /// Reply to GETXATTR and LISTXATTR when only the size is asked for.
    GetxattrOut 8 {
        /// Bytes of the value, or of the names.
        0 size: u32,
        /// Unused.
        4 padding: u32,
    }
    /// Head of every reply and notification.
    OutHeader 16 {
        /// Bytes of the whole reply.
        0 len: u32,
        /// Negated errno; 0 for success. In a notification, its code.
        4 error: i32,
        /// Number of the request; 0 in a notification.
        8 unique: u64,
    }
    /// Attributes of an inode.
    FuseAttr 88 {
        /// Inode number.
        0 ino: u64,
        /// Size in bytes.
        8 size: u64,
        /// Space used, in 512-byte units.
        16 blocks: u64,
        /// Seconds of the last access.
        24 atime: u64,
        /// Seconds of the last modification.
        32 mtime: u64,
        /// Seconds of the last change.
        40 ctime: u64,
        /// Nanoseconds of the last access.
        48 atimensec: u32,
        /// Nanoseconds of the last modification.
        52 mtimensec: u32,
        /// Nanoseconds of the last change.
        56 ctimensec: u32,
        /// Type and permissions.
        60 mode: u32,
        /// Links.
        64 nlink: u32,
        /// Owner.
        68 uid: u32,
        /// Group.
        72 gid: u32,
        /// Device number.
        76 rdev: u32,
        /// Preferred size of reads and writes.
        80 blksize: u32,
        /// Unused here.
        84 flags: u32,
    }
    /// Reply that makes a directory entry known.
    EntryOut 128 {
        /// Inode; 0: there is no such name, and that may be cached.
        0 nodeid: u64,
        /// Generation of the number; the kernel looks at the low 32 bits.
        8 generation: u64,
        /// Seconds for which the name may be cached.
        16 entry_valid: u64,
        /// Seconds for which the attributes may be cached.
        24 attr_valid: u64,
        /// Nanoseconds of the former.
        32 entry_valid_nsec: u32,
        /// Nanoseconds of the latter.
        36 attr_valid_nsec: u32,
        /// Attributes.
        40 attr: FuseAttr,
    }
    /// Reply to GETATTR and SETATTR.
    AttrOut 104 {
        /// Seconds for which the attributes may be cached.
        0 attr_valid: u64,
        /// Nanoseconds.
        8 attr_valid_nsec: u32,
        /// Unused.
        12 dummy: u32,
        /// Attributes.
        16 attr: FuseAttr,
    }
    /// Reply to OPEN and OPENDIR.
    OpenOut 16 {
        /// File handle; always 0.
        0 fh: u64,
        /// `FOPEN_*`.
        8 open_flags: u32,
        /// Passthrough file; unused.
        12 backing_id: i32,
    }
    /// Head of a directory record; the name follows, padded to 8.
    Dirent 24 {
        /// Inode number.
        0 ino: u64,
        /// Cookie of the next entry.
        8 off: u64,
        /// Bytes of the name.
        16 namelen: u32,
        /// Type, as `DT_*`.
        20 kind: u32,
    }
    /// Reply to WRITE and COPY_FILE_RANGE.
    WriteOut 8 {
        /// Bytes written.
        0 size: u32,
        /// Unused.
        4 padding: u32,
    }
    /// A time in statx.
    SxTime 16 {
        /// Seconds.
        0 sec: i64,
        /// Nanoseconds.
        8 nsec: u32,
        /// Unused.
        12 reserved: i32,
    }
    /// Extended attributes of an inode.
    Statx 256 {
        /// Fields present.
        0 mask: u32,
        /// Preferred size of reads and writes.
        4 blksize: u32,
        /// `STATX_ATTR_*`.
        8 attributes: u64,
        /// Links.
        16 nlink: u32,
        /// Owner.
        20 uid: u32,
        /// Group.
        24 gid: u32,
        /// Type and permissions.
        28 mode: u16,
        /// Unused.
        30 spare0: u16,
        /// Inode number.
        32 ino: u64,
        /// Size in bytes.
        40 size: u64,
        /// Space used, in 512-byte units.
        48 blocks: u64,
        /// Attributes that are supported.
        56 attributes_mask: u64,
        /// Last access.
        64 atime: SxTime,
        /// Birth.
        80 btime: SxTime,
        /// Last change.
        96 ctime: SxTime,
        /// Last modification.
        112 mtime: SxTime,
        /// Major number of a device file.
        128 rdev_major: u32,
        /// Minor number of a device file.
        132 rdev_minor: u32,
        /// Major number of the mount (the kernel knows better).
        136 dev_major: u32,
        /// Minor number of the mount.
        140 dev_minor: u32,
        /// Unused.
        144 spare2: [u64; 14],
    }
    /// Reply to STATX.
    StatxOut 288 {
        /// Seconds for which the attributes may be cached.
        0 attr_valid: u64,
        /// Nanoseconds.
        8 attr_valid_nsec: u32,
        /// Unused.
        12 flags: u32,
        /// Unused.
        16 spare: [u64; 2],
        /// Attributes.
        32 stat: Statx,
    }
    /// Reply to STATFS.
    StatfsOut 80 {
        /// Blocks in all.
        0 blocks: u64,
        /// Blocks free.
        8 bfree: u64,
        /// Blocks free for everybody.
        16 bavail: u64,
        /// Inodes in all.
        24 files: u64,
        /// Inodes free.
        32 ffree: u64,
        /// Preferred size of reads and writes.
        40 bsize: u32,
        /// Longest name.
        44 namelen: u32,
        /// Size of a block.
        48 frsize: u32,
        /// Unused.
        52 padding: u32,
        /// Unused.
        56 spare: [u32; 6],
    }
    /// Reply to LSEEK, and to COPY_FILE_RANGE_64.
    OffsetOut 8 {
        /// Offset, or count.
        0 value: u64,
    }
    /// Reply to IOCTL; its data follow.
    IoctlOut 16 {
        /// Return value of the call.
        0 result: i32,
        /// `FUSE_IOCTL_*`.
        4 flags: u32,
        /// Unused.
        8 in_iovs: u32,
        /// Unused.
        12 out_iovs: u32,
    }
    /// Reply to INIT.
    InitOut 64 {
        /// Protocol version, 7.
        0 major: u32,
        /// Its revision that the server speaks.
        4 minor: u32,
        /// Largest readahead.
        8 max_readahead: u32,
        /// Capabilities taken, low word.
        12 flags: u32,
        /// Requests in the background at once.
        16 max_background: u16,
        /// Number of requests from which on the device counts as congested.
        18 congestion_threshold: u16,
        /// Largest write.
        20 max_write: u32,
        /// Granularity of times in nanoseconds.
        24 time_gran: u32,
        /// Largest request in pages.
        28 max_pages: u16,
        /// DAX; unused.
        30 map_alignment: u16,
        /// Capabilities taken, high word.
        32 flags2: u32,
        /// Stacking depth; unused.
        36 max_stack_depth: u32,
        /// Unused.
        40 request_timeout: u16,
        /// Unused.
        42 unused: [u16; 11],
    }
    /// Head of one extension.
    ExtHeader 8 {
        /// Bytes, this head included.
        0 size: u32,
        /// 32: groups; below: security contexts.
        4 kind: u32,
    }
    /// Notification: invalidate an inode.
    NotifyInvalInode 24 {
        /// Inode.
        0 ino: u64,
        /// Start of the data; negative: attributes only.
        8 off: i64,
        /// Bytes; 0 or less: to the end.
        16 len: i64,
    }
    /// Notification: invalidate a name, which follows with its NUL.
    NotifyInvalEntry 16 {
        /// Directory.
        0 parent: u64,
        /// Bytes of the name.
        8 namelen: u32,
        /// 1: only let it expire.
        12 flags: u32,
    }
    /// Notification: a name is gone; it follows with its NUL.
    NotifyDelete 24 {
        /// Directory.
        0 parent: u64,
        /// Inode it named.
        8 child: u64,
        /// Bytes of the name.
        16 namelen: u32,
        /// Unused.
        20 padding: u32,
    }
    /// Notification: drop unused inodes; their numbers follow.
    NotifyPrune 16 {
        /// Number of inodes.
        0 count: u32,
        /// Unused.
        4 padding: u32,
        /// Unused.
        8 spare: u64,
    }
}
