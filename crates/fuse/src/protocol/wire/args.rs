//! Structures behind the header of a request, one per operation.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

wire! {
    /// FORGET.
    ForgetIn 8 {
        /// References to drop.
        0 nlookup: u64,
    }
    /// BATCH_FORGET; that many [`ForgetOne`] follow.
    BatchForgetIn 8 {
        /// Number of inodes.
        0 count: u32,
        /// Unused.
        4 dummy: u32,
    }
    /// One of a BATCH_FORGET.
    ForgetOne 16 {
        /// Inode.
        0 nodeid: u64,
        /// References to drop.
        8 nlookup: u64,
    }
    /// GETATTR.
    GetattrIn 16 {
        /// 1: the handle is valid.
        0 getattr_flags: u32,
        /// Unused.
        4 dummy: u32,
        /// File handle.
        8 fh: u64,
    }
    /// SETATTR.
    SetattrIn 88 {
        /// Attributes to change: `SETATTR_*`.
        0 valid: u32,
        /// Unused.
        4 padding: u32,
        /// File handle.
        8 fh: u64,
        /// Size.
        16 size: u64,
        /// Lock owner.
        24 lock_owner: u64,
        /// Seconds of access.
        32 atime: u64,
        /// Seconds of modification.
        40 mtime: u64,
        /// Seconds of change.
        48 ctime: u64,
        /// Nanoseconds of access.
        56 atimensec: u32,
        /// Nanoseconds of modification.
        60 mtimensec: u32,
        /// Nanoseconds of change.
        64 ctimensec: u32,
        /// Mode.
        68 mode: u32,
        /// Unused.
        72 unused4: u32,
        /// Owner.
        76 uid: u32,
        /// Group.
        80 gid: u32,
        /// Unused.
        84 unused5: u32,
    }
    /// MKNOD.
    MknodIn 16 {
        /// Type and permissions.
        0 mode: u32,
        /// Device number.
        4 rdev: u32,
        /// Caller's umask.
        8 umask: u32,
        /// Unused.
        12 padding: u32,
    }
    /// MKDIR.
    MkdirIn 8 {
        /// Permissions.
        0 mode: u32,
        /// Caller's umask.
        4 umask: u32,
    }
    /// RENAME.
    RenameIn 8 {
        /// Target directory.
        0 newdir: u64,
    }
    /// RENAME2.
    Rename2In 16 {
        /// Target directory.
        0 newdir: u64,
        /// `RENAME_*`.
        8 flags: u32,
        /// Unused.
        12 padding: u32,
    }
    /// LINK.
    LinkIn 8 {
        /// Inode to link.
        0 oldnodeid: u64,
    }
    /// OPEN and OPENDIR.
    OpenIn 8 {
        /// `O_*`.
        0 flags: u32,
        /// [`crate::protocol::flags::OPEN_KILL_SUIDGID`].
        4 open_flags: u32,
    }
    /// CREATE and TMPFILE.
    CreateIn 16 {
        /// `O_*`.
        0 flags: u32,
        /// Type and permissions.
        4 mode: u32,
        /// Caller's umask.
        8 umask: u32,
        /// [`crate::protocol::flags::OPEN_KILL_SUIDGID`].
        12 open_flags: u32,
    }
    /// READ, WRITE, READDIR, READDIRPLUS.
    ReadIn 40 {
        /// File handle.
        0 fh: u64,
        /// Offset, or cookie.
        8 offset: u64,
        /// Bytes.
        16 size: u32,
        /// Read or write flags.
        20 bits: u32,
        /// Lock owner.
        24 lock_owner: u64,
        /// `O_*` of the open file.
        32 flags: u32,
        /// Unused.
        36 padding: u32,
    }
    /// FSYNC and FSYNCDIR.
    FsyncIn 16 {
        /// File handle.
        0 fh: u64,
        /// [`crate::protocol::flags::FSYNC_DATASYNC`].
        8 fsync_flags: u32,
        /// Unused.
        12 padding: u32,
    }
    /// SETXATTR, in its long form.
    SetxattrIn 16 {
        /// Bytes of the value.
        0 size: u32,
        /// `XATTR_*`.
        4 flags: u32,
        /// [`crate::protocol::flags::SETXATTR_ACL_KILL_SGID`].
        8 setxattr_flags: u32,
        /// Unused.
        12 padding: u32,
    }
    /// GETXATTR and LISTXATTR.
    GetxattrIn 8 {
        /// Room for the reply; 0: return its size only.
        0 size: u32,
        /// Unused.
        4 padding: u32,
    }
    /// ACCESS.
    AccessIn 8 {
        /// `MAY_*`.
        0 mask: u32,
        /// Unused.
        4 padding: u32,
    }
    /// STATX.
    StatxIn 24 {
        /// 1: the handle is valid.
        0 getattr_flags: u32,
        /// Unused.
        4 reserved: u32,
        /// File handle.
        8 fh: u64,
        /// `AT_STATX_*`.
        16 sx_flags: u32,
        /// Wanted fields.
        20 sx_mask: u32,
    }
    /// FALLOCATE.
    FallocateIn 32 {
        /// File handle.
        0 fh: u64,
        /// Start.
        8 offset: u64,
        /// Bytes.
        16 length: u64,
        /// `FALLOC_*`.
        24 mode: u32,
        /// Unused.
        28 padding: u32,
    }
    /// LSEEK.
    LseekIn 24 {
        /// File handle.
        0 fh: u64,
        /// Start of the search.
        8 offset: u64,
        /// `SEEK_*`.
        16 whence: u32,
        /// Unused.
        20 padding: u32,
    }
    /// COPY_FILE_RANGE, both forms.
    CopyRangeIn 56 {
        /// Source handle.
        0 fh_in: u64,
        /// Source offset.
        8 off_in: u64,
        /// Target inode.
        16 nodeid_out: u64,
        /// Target handle.
        24 fh_out: u64,
        /// Target offset.
        32 off_out: u64,
        /// Bytes.
        40 len: u64,
        /// Unused.
        48 flags: u64,
    }
    /// IOCTL.
    IoctlIn 32 {
        /// File handle.
        0 fh: u64,
        /// `FUSE_IOCTL_*`.
        8 flags: u32,
        /// Number.
        12 cmd: u32,
        /// Argument.
        16 arg: u64,
        /// Bytes sent.
        24 in_size: u32,
        /// Room for the answer.
        28 out_size: u32,
    }
    /// INIT.
    InitIn 64 {
        /// Protocol version, 7.
        0 major: u32,
        /// Its revision.
        4 minor: u32,
        /// Largest readahead.
        8 max_readahead: u32,
        /// Capabilities offered, low word.
        12 flags: u32,
        /// Capabilities offered, high word.
        16 flags2: u32,
        /// Unused.
        20 unused: [u32; 11],
    }
}
