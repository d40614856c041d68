//! Flag bits of requests and replies (those of the handshake are in [`super::init`]).

/// `SetattrIn::valid`: the mode is to change.
pub const SETATTR_MODE: u32 = 1 << 0;
/// The owner is to change.
pub const SETATTR_UID: u32 = 1 << 1;
/// The group is to change.
pub const SETATTR_GID: u32 = 1 << 2;
/// The size is to change.
pub const SETATTR_SIZE: u32 = 1 << 3;
/// The access time is to change.
pub const SETATTR_ATIME: u32 = 1 << 4;
/// The modification time is to change.
pub const SETATTR_MTIME: u32 = 1 << 5;
/// The request comes from an open file.
pub const SETATTR_FH: u32 = 1 << 6;
/// The access time becomes now.
pub const SETATTR_ATIME_NOW: u32 = 1 << 7;
/// The modification time becomes now.
pub const SETATTR_MTIME_NOW: u32 = 1 << 8;
/// The change time is to change (only when the kernel owns times).
pub const SETATTR_CTIME: u32 = 1 << 10;
/// The request has an owner of locks, which decides nothing here.
pub const SETATTR_LOCK_OWNER: u32 = 1 << 9;
/// Set-id bits are to be cleared.
pub const SETATTR_KILL_SUIDGID: u32 = 1 << 11;

/// `ReadIn::bits`: a program's read or write that bypasses the page cache; requests for the page
/// cache have no owner of locks.
pub const BY_LOCK_OWNER: u32 = 1 << 1;
/// `ReadIn::bits` of a write: pages that were stored in a mapping, or collected by the kernel, not
/// written by the caller that the header names.
pub const WRITE_CACHE: u32 = 1 << 0;
/// `ReadIn::bits` of a write: clear set-id bits.
pub const WRITE_KILL_SUIDGID: u32 = 1 << 2;

/// `OpenIn::open_flags`, `CreateIn::open_flags`: clear set-id bits with `O_TRUNC`.
pub const OPEN_KILL_SUIDGID: u32 = 1 << 0;

/// Reply to open: reads and writes bypass the page cache.
pub const FOPEN_DIRECT_IO: u32 = 1 << 0;
/// Reply to open: keep the file's page cache (else each open drops it).
pub const FOPEN_KEEP_CACHE: u32 = 1 << 1;
/// Reply to open: no FLUSH at close. Writes have reached the server by then, so it could report
/// nothing.
pub const FOPEN_NOFLUSH: u32 = 1 << 5;

/// `FsyncIn::fsync_flags`: data only.
pub const FSYNC_DATASYNC: u32 = 1 << 0;

/// `Rename2In::flags`: fail when the target exists.
pub const RENAME_NOREPLACE: u32 = 1 << 0;
/// Swap the two files.
pub const RENAME_EXCHANGE: u32 = 1 << 1;
/// `renameat2`: leave a whiteout.
pub const RENAME_WHITEOUT: u32 = 1 << 2;

/// `FallocateIn::mode`: leave the size.
pub const FALLOC_KEEP_SIZE: u32 = 1 << 0;
/// Make a hole.
pub const FALLOC_PUNCH_HOLE: u32 = 1 << 1;
/// Make zeros.
pub const FALLOC_ZERO_RANGE: u32 = 1 << 4;

/// `LseekIn::whence`: next data.
pub const SEEK_DATA: u32 = 3;
/// Next hole.
pub const SEEK_HOLE: u32 = 4;

/// Bits of open flags that hold the access mode.
pub const O_ACCMODE: u32 = 3;
/// For writing only.
pub const O_WRONLY: u32 = 1;
/// For reading and writing.
pub const O_RDWR: u32 = 2;
/// Fail if it exists.
pub const O_EXCL: u32 = 0o200;
/// Empty it.
pub const O_TRUNC: u32 = 0o1000;
/// Each write goes to the end.
pub const O_APPEND: u32 = 0o2000;
/// Each write is durable when it returns; part of `O_SYNC`.
pub const O_DSYNC: u32 = 0o10000;
/// Reads leave the access time alone.
pub const O_NOATIME: u32 = 0o1_000_000;
/// Not in any header: the kernel's own mark of an open for execution.
pub const O_EXEC: u32 = 0o40;

/// `access` mask: read.
pub const MAY_READ: u32 = 4;
/// `access` mask: write.
pub const MAY_WRITE: u32 = 2;
/// `access` mask: execute, or search a directory.
pub const MAY_EXEC: u32 = 1;

/// Mode: set user id.
pub const S_ISUID: u32 = 0o4000;
/// Mode: set group id.
pub const S_ISGID: u32 = 0o2000;
/// Mode: executable by the group.
pub const S_IXGRP: u32 = 0o010;

/// `setxattr`: fail if it exists.
pub const XATTR_CREATE: u32 = 1;
/// `setxattr`: fail if it does not exist.
pub const XATTR_REPLACE: u32 = 2;
/// `SetxattrIn::setxattr_flags`: the caller is outside the file's group, so an access control list
/// clears the set-group-ID bit.
pub const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;

/// Statx mask: the fields of `stat`.
pub const STATX_BASIC_STATS: u32 = 0x7ff;
/// Statx mask: birth time.
pub const STATX_BTIME: u32 = 0x800;

/// Number of an ioctl without an argument.
const fn io(letter: u8, number: u8) -> u32 {
    (letter as u32) << 8 | number as u32
}
/// Number of an ioctl that returns `size` bytes.
const fn ior(letter: u8, number: u8, size: u32) -> u32 {
    2 << 30 | size << 16 | io(letter, number)
}

/// Number of an ioctl that takes and returns `size` bytes.
const fn iowr(letter: u8, number: u8, size: u32) -> u32 {
    1 << 30 | ior(letter, number, size)
}

/// Shoal's ioctl on any file or directory of a mount: everything acknowledged so far becomes
/// durable, and a failure to do so is reported (`sync(2)` and, on ordinary FUSE mounts,
/// `syncfs(2)` never reach the server). `_IO('S', 1)`.
pub const IOCTL_SYNC: u32 = io(b'S', 1);
/// Shoal's ioctl that returns the process id of the server as a `u32`. `_IOR('S', 2, u32)`.
pub const IOCTL_SERVER_PID: u32 = ior(b'S', 2, 4);
/// Shoal's ioctl for all calls to a server ([`shoal_session::page`]). `_IOWR('S', 7, page)`; 3
/// to 6, and 8, were in use before.
pub const IOCTL_CALL: u32 = iowr(b'S', 7, shoal_session::page::PAGE as u32);

const _: () = assert!(IOCTL_SYNC == 0x5301 && IOCTL_SERVER_PID == 0x8004_5302);
const _: () = assert!(IOCTL_CALL == 0xfff8_5307);
