//! System calls, past the C library and this one.
//!
//! They set no `errno`, take no lock and allocate nothing, so that a signal handler and a child of
//! `fork` may make them.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// An error number.
pub(crate) type Errno = i32;

fn result(value: libc::c_long) -> Result<libc::c_long, Errno> {
    // The numbers are small, or the kernel has returned an error.
    if value == -1 { Err(errno()) } else { Ok(value) }
}

/// Finds the function of the C library that comes after this library's of the same name, once.
#[inline]
pub(crate) fn resolve(at: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    let found = at.load(Ordering::Relaxed);
    if found.is_null() { look_up(at, name) } else { found }
}

#[cold]
fn look_up(at: &AtomicPtr<c_void>, name: &CStr) -> *mut c_void {
    // SAFETY: a name with a NUL.
    let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    if found.is_null() {
        // The C library of this machine has no such function: nobody can have called it but by
        // looking for it.
        found = missing as *mut c_void;
    }
    at.store(found, Ordering::Relaxed);
    found
}

/// In the place of a function that there is not.
extern "C" fn missing() -> isize {
    set_errno(libc::ENOSYS);
    -1
}

/// Returns the milliseconds of a clock that is read without a system call, and is a few late.
#[inline]
pub(crate) fn coarse_milliseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for a time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_COARSE, &raw mut time) };
    time.tv_sec as u64 * 1000 + time.tv_nsec as u64 / 1_000_000
}

pub(crate) fn set_errno(errno: Errno) {
    // SAFETY: the C library's place of the error of this thread.
    unsafe { *libc::__errno_location() = errno };
}

pub(crate) fn errno() -> Errno {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() }
}

type Call = unsafe extern "C" fn(
    libc::c_long,
    libc::c_long,
    libc::c_long,
    libc::c_long,
    libc::c_long,
    libc::c_long,
    libc::c_long,
) -> libc::c_long;

/// The C library's `syscall`. Found when the library is loaded: in a child of `fork` or in a signal
/// handler it could not be looked for.
pub(crate) fn system_call() -> Call {
    static AT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
    // SAFETY: the function of the C library with this name has this type.
    unsafe { std::mem::transmute::<*mut c_void, Call>(resolve(&AT, c"syscall")) }
}

fn padded<const N: usize>(arguments: [libc::c_long; N]) -> [libc::c_long; 6] {
    std::array::from_fn(|at| arguments.get(at).copied().unwrap_or(0))
}

/// Makes a system call.
macro_rules! call {
    ($number:ident $(, $arg:expr)*) => {{
        let [a, b, c, d, e, f] = padded([$($arg as libc::c_long),*]);
        // SAFETY: the arguments are numbers, or point to values that live until the call returns.
        result(unsafe { system_call()(libc::$number, a, b, c, d, e, f) })
    }};
}

/// Keeps `errno` as it is, whatever happens until it is dropped.
#[derive(Debug)]
pub(crate) struct KeepErrno(i32);

impl KeepErrno {
    pub(crate) fn here() -> KeepErrno {
        KeepErrno(errno())
    }
}

impl Drop for KeepErrno {
    fn drop(&mut self) {
        set_errno(self.0);
    }
}

pub(crate) fn open(path: &CStr, flags: i32) -> Result<i32, Errno> {
    call!(SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0).map(|fd| fd as i32)
}

pub(crate) fn close(fd: i32) {
    let _ = call!(SYS_close, fd);
}

pub(crate) fn change_directory(fd: i32) -> Result<(), Errno> {
    call!(SYS_fchdir, fd).map(drop)
}

/// Opens what a descriptor shows of itself while it stands for a file of a session: a file of this
/// process's own, of which nothing can be read, written, mapped, or found below. Whoever opens it
/// anew by its name in `/proc` finds it empty and unchangeable.
pub(crate) fn nothing() -> Result<i32, Errno> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    let file = call!(SYS_memfd_create, c"shoal-run".as_ptr(), flags)? as i32;
    let seals = libc::F_SEAL_SEAL | libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE;
    let made = call!(SYS_fcntl, file, libc::F_ADD_SEALS, seals)
        .and_then(|_| call!(SYS_fchmod, file, 0))
        .and_then(|_| {
            let name = std::ffi::CString::new(format!("/proc/self/fd/{file}"));
            open(&name.map_err(|_| libc::EINVAL)?, libc::O_PATH | libc::O_CLOEXEC)
        });
    close(file);
    made
}

/// Sends a signal to the calling thread.
pub(crate) fn raise(signal: i32) {
    let _errno = KeepErrno::here();
    if let (Ok(process), Ok(thread)) = (call!(SYS_getpid), call!(SYS_gettid)) {
        let _ = call!(SYS_tgkill, process, thread, signal);
    }
}

/// Returns whether a descriptor is open.
pub(crate) fn is_open(fd: i32) -> bool {
    let _errno = KeepErrno::here();
    call!(SYS_fcntl, fd, libc::F_GETFD, 0).is_ok()
}

/// Duplicates a descriptor to the lowest free number from `lowest` on.
pub(crate) fn duplicate(fd: i32, lowest: i32, cloexec: bool) -> Result<i32, Errno> {
    let command = if cloexec { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
    call!(SYS_fcntl, fd, command, lowest).map(|fd| fd as i32)
}

/// Puts a copy of a descriptor in the place of another one.
pub(crate) fn replace(fd: i32, place: i32, cloexec: bool) -> Result<(), Errno> {
    call!(SYS_dup3, fd, place, if cloexec { libc::O_CLOEXEC } else { 0 }).map(drop)
}

pub(crate) fn is_cloexec(fd: i32) -> bool {
    call!(SYS_fcntl, fd, libc::F_GETFD, 0).is_ok_and(|flags| flags & 1 != 0)
}

pub(crate) fn seek(fd: i32, to: u64) {
    let _ = call!(SYS_lseek, fd, to, libc::SEEK_SET);
}

pub(crate) fn read(fd: i32, into: &mut [u8]) -> Result<usize, Errno> {
    call!(SYS_read, fd, into.as_mut_ptr(), into.len()).map(|n| n as usize)
}

pub(crate) fn write(fd: i32, bytes: &[u8]) -> Result<usize, Errno> {
    call!(SYS_write, fd, bytes.as_ptr(), bytes.len()).map(|n| n as usize)
}

/// Reads a file of `/proc`.
pub(crate) fn read_whole(path: &CStr) -> Result<Vec<u8>, Errno> {
    let fd = open(path, libc::O_RDONLY | libc::O_CLOEXEC)?;
    let (mut text, mut part) = (Vec::new(), [0; 4096]);
    let done = loop {
        match read(fd, &mut part) {
            Ok(0) => break Ok(()),
            Ok(n) => text.extend_from_slice(&part[..n]),
            Err(libc::EINTR) => {}
            Err(error) => break Err(error),
        }
    };
    close(fd);
    done.map(|()| text)
}

/// Filesystem and inode number of a file: of an open one if the path is empty.
pub(crate) fn identity(fd: i32, path: &CStr) -> Result<(u64, u64), Errno> {
    let mut found = std::mem::MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT | libc::AT_STATX_DONT_SYNC;
    call!(SYS_statx, fd, path.as_ptr(), flags, libc::STATX_INO, found.as_mut_ptr())?;
    // SAFETY: the kernel has written all of it; and every value of its bytes is one.
    let found = unsafe { found.assume_init() };
    let device = libc::makedev(found.stx_dev_major, found.stx_dev_minor);
    Ok((device, found.stx_ino))
}

/// The working directory's path.
pub(crate) fn working_directory() -> Result<Vec<u8>, Errno> {
    let mut path = vec![0; libc::PATH_MAX as usize];
    let len = call!(SYS_getcwd, path.as_mut_ptr(), path.len())?;
    path.truncate((len as usize).saturating_sub(1));
    Ok(path)
}

/// Lists a directory from behind the entry with a cookie on; returns the number of bytes, 0 at the
/// end.
pub(crate) fn list(fd: i32, after: i64, into: &mut [u8]) -> Result<usize, Errno> {
    call!(SYS_lseek, fd, after, libc::SEEK_SET)?;
    call!(SYS_getdents64, fd, into.as_mut_ptr(), into.len()).map(|n| n as usize)
}

/// Limit of open files, as it is now.
pub(crate) fn descriptors_max() -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null::<libc::rlimit64>();
    match call!(SYS_prlimit64, 0, libc::RLIMIT_NOFILE, none, &raw mut limit) {
        Ok(_) => limit.rlim_cur,
        Err(_) => 0,
    }
}

/// The limit of a file's size, as far as it is known.
static SIZE_MAX: AtomicU64 = AtomicU64::new(UNKNOWN);
/// No limit is so small.
const UNKNOWN: u64 = u64::MAX - 1;

/// The limit of a file's size has been changed.
pub(crate) fn forget_size_max() {
    SIZE_MAX.store(UNKNOWN, Ordering::Relaxed);
}

/// Limit of a file's size: as it was when the program began, or has set it. What another process
/// sets for this one comes to nothing.
pub(crate) fn size_max() -> u64 {
    let known = SIZE_MAX.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known;
    }
    let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
    let none = std::ptr::null::<libc::rlimit64>();
    let read = call!(SYS_prlimit64, 0, libc::RLIMIT_FSIZE, none, &raw mut limit);
    let most = if read.is_ok() { limit.rlim_cur } else { u64::MAX };
    SIZE_MAX.store(most, Ordering::Relaxed);
    most
}
