//! Replies: an outcome that the transport must send, and the records in it.

use super::flags::{FOPEN_KEEP_CACHE, FOPEN_NOFLUSH, STATX_BASIC_STATS, STATX_BTIME};
use super::wire::{AttrOut, EntryOut, FuseAttr, OpenOut, Statx, StatxOut, SxTime};
use shoal::raw::{Attr, Time};
use std::cell::RefCell;
use zerocopy::{Immutable, IntoBytes};

/// Time for which names and attributes may be cached, in seconds: for ever. All changes come
/// through this mount, so the kernel knows of each. (The kernel limits larger values.)
pub const TTL_FOREVER: u64 = u64::MAX / 4;

/// Preferred size of reads and writes in bytes; the kernel also takes it as the block size.
const BLKSIZE: u32 = 4096;

/// An errno, positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// Not allowed for this caller.
    pub const EPERM: Errno = Errno(1);
    /// Ordinary failure of a lookup.
    pub const ENOENT: Errno = Errno(2);
    /// The request makes no sense, or the server failed.
    pub const EIO: Errno = Errno(5);
    /// The caller has been interrupted.
    pub const EINTR: Errno = Errno(4);
    /// Too many at a time: again later.
    pub const EAGAIN: Errno = Errno(11);
    /// It exists.
    pub const EEXIST: Errno = Errno(17);
    /// In use.
    pub const EBUSY: Errno = Errno(16);
    /// No changes are allowed.
    pub const EROFS: Errno = Errno(30);
    /// Bad argument.
    pub const EINVAL: Errno = Errno(22);
    /// The value is larger than the room for it.
    pub const ERANGE: Errno = Errno(34);
    /// No such ioctl.
    pub const ENOTTY: Errno = Errno(25);
    /// Name longer than 255 bytes.
    pub const ENAMETOOLONG: Errno = Errno(36);
    /// Not implemented: the kernel must never ask again.
    pub const ENOSYS: Errno = Errno(38);
    /// A control request of another version.
    pub const EPROTONOSUPPORT: Errno = Errno(93);
    /// No such attribute.
    pub const ENODATA: Errno = Errno(61);
    /// Ended in favour of others.
    pub const ECANCELED: Errno = Errno(125);
    /// Not in this combination.
    pub const EOPNOTSUPP: Errno = Errno(95);
    /// The inode is gone.
    pub const ESTALE: Errno = Errno(116);
}

impl From<shoal::raw::Error> for Errno {
    #[inline]
    fn from(error: shoal::raw::Error) -> Errno {
        match error {
            shoal::raw::Error::Code(code) => Errno(code.errno()),
            other => report(&other),
        }
    }
}

impl From<shoal::raw::Code> for Errno {
    #[inline]
    fn from(code: shoal::raw::Code) -> Errno {
        Errno(code.errno())
    }
}

thread_local! {
    /// The last damage that a request of this thread has met.
    static DAMAGE: RefCell<Option<shoal::raw::Error>> = const { RefCell::new(None) };
}

/// Takes the error of the damage that the failed request of this thread has met. A handler turns
/// errors into errnos on its way out of many calls, and only this one is needed later.
#[cold]
pub(crate) fn take_damage() -> Option<shoal::raw::Error> {
    DAMAGE.take()
}

/// Logs the reason: the volume is damaged or failing, and the caller sees an errno only.
#[cold]
fn report(error: &shoal::raw::Error) -> Errno {
    if error.is_damage() {
        DAMAGE.with_borrow_mut(|kept| *kept = Some(error.clone()));
    }
    match error {
        // Logged once by the volume itself; each later write would repeat it.
        shoal::raw::Error::Poisoned(_) => tracing::debug!(%error, "request refused"),
        // The request is made again, by a thread that may wait.
        _ if error.code() == shoal::raw::Code::Again => {}
        _ => tracing::error!(%error, "request failed"),
    }
    Errno(error.errno())
}

/// Outcome of a request. The transport that sent the request must send this, or its caller waits
/// for ever.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the caller waits until this is sent"]
pub enum Reply {
    /// Success: length of the reply, at the start of the request's body.
    Body(usize),
    /// Failure.
    Error(Errno),
    /// The kernel expects nothing (on a ring: an empty success).
    Silent,
    /// The handler would have to wait for the device, and has done nothing: the request must be
    /// given to one that may wait ([`Request::let_wait`](super::Request::let_wait)).
    Later {
        /// For the device itself, which may last as long as that hangs.
        device: bool,
    },
}

/// Puts `record` at byte `at` of `body`; returns its end.
#[inline]
pub fn put<T: IntoBytes + Immutable>(
    body: &mut [u8],
    at: usize,
    record: &T,
) -> Result<usize, Errno> {
    let room = body.get_mut(at..).ok_or(Errno::EIO)?;
    record.write_to_prefix(room).map_err(|_| Errno::EIO)?;
    Ok(at + size_of::<T>())
}

/// Encodes attributes.
#[inline]
pub fn fuse_attr(attr: &Attr) -> FuseAttr {
    FuseAttr {
        ino: attr.ino.0,
        size: attr.size,
        blocks: attr.blocks,
        // Times before 1970 are negative numbers in the same bits.
        atime: attr.atime.sec as u64,
        mtime: attr.mtime.sec as u64,
        ctime: attr.ctime.sec as u64,
        atimensec: attr.atime.nsec,
        mtimensec: attr.mtime.nsec,
        ctimensec: attr.ctime.nsec,
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLKSIZE,
        flags: 0,
    }
}

/// Returns an entry whose inode the kernel may keep; the caller has taken the reference.
#[inline]
pub fn entry(attr: &Attr) -> EntryOut {
    EntryOut {
        nodeid: attr.ino.0,
        generation: u64::from(attr.generation.0),
        entry_valid: TTL_FOREVER,
        attr_valid: TTL_FOREVER,
        entry_valid_nsec: 0,
        attr_valid_nsec: 0,
        attr: fuse_attr(attr),
    }
}

/// Returns an entry without an inode: there is no such name, which the kernel may cache.
#[inline]
pub fn negative_entry() -> EntryOut {
    EntryOut { entry_valid: TTL_FOREVER, ..EntryOut::default() }
}

/// Returns the reply to GETATTR and SETATTR.
#[inline]
pub fn attr_out(attr: &Attr) -> AttrOut {
    AttrOut { attr_valid: TTL_FOREVER, attr_valid_nsec: 0, dummy: 0, attr: fuse_attr(attr) }
}

/// Returns the reply to OPEN, CREATE, TMPFILE. Open files have no state, so the handle is 0.
#[inline]
pub fn open_out() -> OpenOut {
    OpenOut { fh: 0, open_flags: FOPEN_KEEP_CACHE | FOPEN_NOFLUSH, backing_id: 0 }
}

/// Returns the reply to STATX.
pub fn statx_out(attr: &Attr) -> StatxOut {
    let time = |time: Time| SxTime { sec: time.sec, nsec: time.nsec, reserved: 0 };
    let (rdev_major, rdev_minor) = split_device(attr.rdev);
    StatxOut {
        attr_valid: TTL_FOREVER,
        stat: Statx {
            mask: STATX_BASIC_STATS | STATX_BTIME,
            blksize: BLKSIZE,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            mode: attr.mode as u16,
            ino: attr.ino.0,
            size: attr.size,
            blocks: attr.blocks,
            atime: time(attr.atime),
            btime: time(attr.btime),
            ctime: time(attr.ctime),
            mtime: time(attr.mtime),
            rdev_major,
            rdev_minor,
            ..Statx::default()
        },
        ..StatxOut::default()
    }
}

/// Splits a device number in the kernel's 32-bit encoding into major and minor.
fn split_device(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & 0xf_ff00))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use shoal::raw::{FileKind, Generation, Ino};

    /// Returns attributes with a different value in every field.
    pub(crate) fn sample() -> Attr {
        let time = |sec, nsec| Time { sec, nsec };
        Attr {
            ino: Ino(0x1122_3344_5566_7788),
            generation: Generation(0xfedc_ba98),
            kind: FileKind::Regular,
            mode: 0o100_644,
            nlink: 3,
            uid: 1000,
            gid: 1001,
            rdev: 0x0801,
            size: 0x1_0000_0001,
            blocks: 9,
            atime: time(11, 12),
            mtime: time(-1, 14),
            ctime: time(15, 16),
            btime: time(17, 18),
            version: 0,
        }
    }

    fn u64_at(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
    }
    fn u32_at(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
    }

    #[test]
    fn entry_bytes() {
        let mut body = [0xAAu8; 200];
        let end = put(&mut body, 0, &entry(&sample())).unwrap();
        assert_eq!(end, 128);
        assert_eq!(u64_at(&body, 0), 0x1122_3344_5566_7788);
        assert_eq!(u64_at(&body, 8), 0xfedc_ba98);
        assert_eq!(u64_at(&body, 16), TTL_FOREVER);
        assert_eq!(u64_at(&body, 24), TTL_FOREVER);
        assert_eq!(u64_at(&body, 40), 0x1122_3344_5566_7788);
        assert_eq!(u64_at(&body, 48), 0x1_0000_0001);
        assert_eq!(u64_at(&body, 56), 9);
        assert_eq!(u64_at(&body, 72), u64::MAX, "mtime -1");
        assert_eq!(u32_at(&body, 88), 12);
        assert_eq!(u32_at(&body, 92), 14);
        assert_eq!(u32_at(&body, 96), 16);
        assert_eq!(u32_at(&body, 100), 0o100_644);
        assert_eq!(u32_at(&body, 104), 3);
        assert_eq!(u32_at(&body, 108), 1000);
        assert_eq!(u32_at(&body, 112), 1001);
        assert_eq!(u32_at(&body, 116), 0x801);
        assert_eq!(body[128], 0xAA, "nothing behind it");
    }

    #[test]
    fn negative_entries_may_be_cached() {
        let out = negative_entry();
        assert_eq!((out.nodeid, out.entry_valid, out.attr.ino), (0, TTL_FOREVER, 0));
    }

    #[test]
    fn attr_and_statx_bytes() {
        let mut body = [0u8; 300];
        assert_eq!(put(&mut body, 0, &attr_out(&sample())).unwrap(), 104);
        assert_eq!(u64_at(&body, 16), 0x1122_3344_5566_7788);
        assert_eq!(u32_at(&body, 16 + 60), 0o100_644);
        assert_eq!(put(&mut body, 0, &statx_out(&sample())).unwrap(), 288);
        assert_eq!(u32_at(&body, 32), 0xfff);
        assert_eq!(u64_at(&body, 32 + 32), 0x1122_3344_5566_7788);
        assert_eq!(u64_at(&body, 32 + 80), 17, "birth");
        assert_eq!(u64_at(&body, 32 + 96), 15, "change");
        assert_eq!(u64_at(&body, 32 + 112), u64::MAX, "modification");
        assert_eq!((u32_at(&body, 32 + 128), u32_at(&body, 32 + 132)), (8, 1));
    }

    #[test]
    fn a_short_body_is_an_error_not_a_panic() {
        assert_eq!(put(&mut [0; 100], 0, &entry(&sample())), Err(Errno::EIO));
        assert_eq!(put(&mut [0; 100], 101, &open_out()), Err(Errno::EIO));
    }

    #[test]
    fn errors_fold_to_errnos() {
        assert_eq!(Errno::from(shoal::raw::Error::Code(shoal::raw::Code::NotEmpty)), Errno(39));
        let damage = shoal::raw::Error::corrupt("node", None, "x");
        assert_eq!(Errno::from(damage.clone()), Errno::EIO);
        assert_eq!((take_damage(), take_damage()), (Some(damage), None));
    }

    #[test]
    fn device_numbers_split_as_the_kernel_does() {
        assert_eq!(split_device(0x0801), (8, 1));
        assert_eq!(split_device(0x1230_0ff0 | 0x4), (0xf, 0x123f4));
    }
}
