//! System calls as the kernel sees them: no library checks, rounds or translates an argument.

use crate::common::Res;
use rustix::io::Errno;
use std::ffi::CStr;
use zerocopy::FromBytes;

/// An argument of a system call: a number, or the address of something that outlives the call.
pub(super) trait Arg {
    fn word(self) -> i64;
}

macro_rules! numbers {
    ($($kind:ty)*) => { $(impl Arg for $kind {
        fn word(self) -> i64 {
            self as i64
        }
    })* };
}

numbers!(i32 u32 i64 u64 usize);

impl Arg for &CStr {
    fn word(self) -> i64 {
        self.as_ptr() as i64
    }
}

impl<T> Arg for *const T {
    fn word(self) -> i64 {
        self as i64
    }
}

impl<T> Arg for *mut T {
    fn word(self) -> i64 {
        self as i64
    }
}

/// Makes a system call.
pub(super) fn call(number: i64, args: [i64; 6]) -> Res<i64> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: addresses among the arguments are of values that the caller of `sys!` holds on to,
    // each as large as the call it names reads or writes.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
        value => Ok(value),
    }
}

/// `sys!(mkdirat, AT_FDCWD, path, 0o755)`.
macro_rules! sys {
    ($number:expr $(, $arg:expr)*) => {{
        let mut args = [0i64; 6];
        let given = [$($crate::posix_differential::sys::Arg::word($arg)),*];
        args[..given.len()].copy_from_slice(&given);
        $crate::posix_differential::sys::call($number, args)
    }};
}

/// A descriptor that closes itself.
pub(super) struct Fd(pub i64);

impl Drop for Fd {
    fn drop(&mut self) {
        let _ = sys!(libc::SYS_close, self.0);
    }
}

/// `openat`. Never waits for the other end of a FIFO.
pub(super) fn open_at(path: &CStr, flags: i32, mode: u32) -> Res<Fd> {
    let flags = flags | libc::O_NONBLOCK | libc::O_CLOEXEC;
    sys!(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode).map(Fd)
}

/// Returns the fields of `fstatat` on which file systems should agree.
pub(super) fn stat_words(dir: i64, path: &CStr, flags: i32) -> Res<String> {
    let facts = raw_stat(dir, path, flags)?;
    let size = if facts.st_mode & libc::S_IFMT == libc::S_IFDIR { 0 } else { facts.st_size };
    Ok(format!(
        "{:o} {} {} links {} size {size}",
        facts.st_mode, facts.st_uid, facts.st_gid, facts.st_nlink
    ))
}

fn raw_stat(dir: i64, path: &CStr, flags: i32) -> Res<libc::stat> {
    // SAFETY: all bits zero are a valid `stat`.
    let mut facts: libc::stat = unsafe { std::mem::zeroed() };
    sys!(libc::SYS_newfstatat, dir, path, &raw mut facts, flags)?;
    Ok(facts)
}

/// Describes an open descriptor.
pub(super) fn describe(fd: &Fd) -> Res<String> {
    stat_words(fd.0, c"", libc::AT_EMPTY_PATH)
}

/// Returns times for `utimensat`: seconds and nanoseconds of access and change.
pub(super) fn both_times(access: (i64, i64), change: (i64, i64)) -> [libc::timespec; 2] {
    [access, change].map(|(tv_sec, tv_nsec)| libc::timespec { tv_sec, tv_nsec })
}

/// Returns the names in an open directory, sorted.
pub(super) fn names(fd: &Fd) -> Res<Vec<String>> {
    let mut found = Vec::new();
    loop {
        let mut room = [0u8; 4096];
        let got = sys!(libc::SYS_getdents64, fd.0, room.as_mut_ptr(), room.len())? as usize;
        if got == 0 {
            found.sort();
            return Ok(found);
        }
        let mut records = &room[..got];
        while !records.is_empty() {
            let len = usize::from(u16::read_from_bytes(&records[16..18]).unwrap());
            let name = CStr::from_bytes_until_nul(&records[19..len]).unwrap();
            found.push(format!("{}:{}", name.to_string_lossy(), records[18]));
            records = &records[len..];
        }
    }
}

/// Returns the name of an errno, as `ENOENT`.
pub(super) fn name(errno: Errno) -> String {
    macro_rules! names {
        ($($name:ident)*) => {
            match errno.raw_os_error() {
                $(libc::$name => stringify!($name).to_owned(),)*
                other => format!("errno {other}"),
            }
        };
    }
    names!(EPERM ENOENT EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV
        ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK
        EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY ELOOP ENODATA EOVERFLOW
        EOPNOTSUPP EADDRINUSE ECONNREFUSED ESTALE EDQUOT ECANCELED)
}
