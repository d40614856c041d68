//! Answers of a session, as the C library would.

use crate::kernel::Errno;
use shoal_engine::{Attr, Code, Result as Answered, Time};

/// The result of a call; `None`: the kernel is to be asked.
pub(crate) type Answer<T> = Option<Result<T, Errno>>;

/// Passes everyday errors on. For every other one the kernel is asked, which says the same in the
/// order in which it checks, or knows a way that a session does not have: a path out of the volume,
/// a special file. A call that has failed has changed nothing.
#[inline]
pub(crate) fn answer<T>(answered: Answered<T>) -> Answer<T> {
    match answered {
        Ok(value) => Some(Ok(value)),
        Err(error) => match error.code() {
            code @ (Code::NotFound | Code::Exists | Code::NotEmpty | Code::NoData) => {
                Some(Err(code.errno()))
            }
            _ => None,
        },
    }
}

/// Number of bytes in a block of `st_blksize`.
const BLOCK: u32 = 4096;

/// The attributes as of `stat(2)`.
pub(crate) fn stat(attr: &Attr, device: u64) -> libc::stat {
    // SAFETY: numbers alone, of which every value is one.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = device;
    stat.st_ino = attr.ino.0;
    stat.st_mode = attr.mode;
    stat.st_nlink = attr.nlink as _;
    stat.st_uid = attr.uid;
    stat.st_gid = attr.gid;
    stat.st_rdev = device_number(attr);
    stat.st_size = attr.size as i64;
    stat.st_blksize = BLOCK as _;
    stat.st_blocks = attr.blocks as i64;
    (stat.st_atime, stat.st_atime_nsec) = (attr.atime.sec, attr.atime.nsec as _);
    (stat.st_mtime, stat.st_mtime_nsec) = (attr.mtime.sec, attr.mtime.nsec as _);
    (stat.st_ctime, stat.st_ctime_nsec) = (attr.ctime.sec, attr.ctime.nsec as _);
    stat
}

/// The attributes as of `statx(2)`: the basic ones, and the time of birth.
pub(crate) fn statx(attr: &Attr, device: u64) -> libc::statx {
    // SAFETY: numbers alone, of which every value is one.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    let time = |time: Time| {
        // SAFETY: as above.
        let mut out: libc::statx_timestamp = unsafe { std::mem::zeroed() };
        (out.tv_sec, out.tv_nsec) = (time.sec, time.nsec);
        out
    };
    stat.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    stat.stx_blksize = BLOCK;
    stat.stx_nlink = attr.nlink;
    stat.stx_uid = attr.uid;
    stat.stx_gid = attr.gid;
    stat.stx_mode = attr.mode as u16;
    stat.stx_ino = attr.ino.0;
    stat.stx_size = attr.size;
    stat.stx_blocks = attr.blocks;
    stat.stx_atime = time(attr.atime);
    stat.stx_btime = time(attr.btime);
    stat.stx_ctime = time(attr.ctime);
    stat.stx_mtime = time(attr.mtime);
    let rdev = device_number(attr);
    (stat.stx_rdev_major, stat.stx_rdev_minor) = (libc::major(rdev), libc::minor(rdev));
    (stat.stx_dev_major, stat.stx_dev_minor) = (libc::major(device), libc::minor(device));
    stat
}

/// The number of a device file, of the kernel's 32 bits.
fn device_number(attr: &Attr) -> u64 {
    let rdev = attr.rdev;
    let (major, minor) = ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xfff00));
    libc::makedev(major, minor)
}

/// The kernel's 32 bits of a device number of the C library.
pub(crate) fn kernel_device(device: u64) -> u32 {
    let (major, minor) = (libc::major(device), libc::minor(device));
    (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12)
}
