//! `stat` in all its forms.

use super::{ask, bytes, done_or, settled};
use crate::answer::Answer;
use crate::names;
use libc::AT_FDCWD;
use std::ffi::{c_char, c_int, c_uint};
use std::sync::atomic::AtomicPtr;

/// The version of `struct stat` that 64-bit programs have, in the functions of before glibc 2.33.
const VERSIONS: std::ops::RangeInclusive<c_int> = 0..=1;

unsafe fn stat_at(
    dir: c_int,
    path: *const c_char,
    into: *mut libc::stat,
    flags: c_int,
) -> Answer<()> {
    let path = bytes(path)?;
    let found = ask(|| names::stat(dir, path, flags))?;
    Some(found.map(|found| into.write(found)))
}

unsafe fn stat_file(fd: c_int, into: *mut libc::stat) -> Answer<()> {
    if !crate::files::is_file(fd) {
        return None;
    }
    let found = ask(|| names::stat_file(fd))?;
    Some(found.map(|found| into.write(found)))
}

interpose! {
    fn stat | stat64 (path: *const c_char, into: *mut libc::stat) -> c_int {
        done_or(stat_at(AT_FDCWD, path, into, 0), || next::stat(path, into))
    }
    fn lstat | lstat64 (path: *const c_char, into: *mut libc::stat) -> c_int {
        done_or(stat_at(AT_FDCWD, path, into, libc::AT_SYMLINK_NOFOLLOW), || {
            next::lstat(path, into)
        })
    }
    fn fstat | fstat64 (fd: c_int, into: *mut libc::stat) -> c_int {
        done_or(stat_file(fd, into), || next::fstat(settled(fd), into))
    }
    fn fstatat | fstatat64 (
        dir: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int
    ) -> c_int {
        done_or(stat_at(dir, path, into, flags), || next::fstatat(settled(dir), path, into, flags))
    }
    fn __xstat | __xstat64 (version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int {
        match VERSIONS.contains(&version) {
            true => stat(path, into),
            false => next::__xstat(version, path, into),
        }
    }
    fn __lxstat | __lxstat64 (version: c_int, path: *const c_char, into: *mut libc::stat) -> c_int {
        match VERSIONS.contains(&version) {
            true => lstat(path, into),
            false => next::__lxstat(version, path, into),
        }
    }
    fn __fxstat | __fxstat64 (version: c_int, fd: c_int, into: *mut libc::stat) -> c_int {
        match VERSIONS.contains(&version) {
            true => fstat(fd, into),
            false => next::__fxstat(version, settled(fd), into),
        }
    }
    fn __fxstatat | __fxstatat64 (
        version: c_int, dir: c_int, path: *const c_char, into: *mut libc::stat, flags: c_int
    ) -> c_int {
        match VERSIONS.contains(&version) {
            true => fstatat(dir, path, into, flags),
            false => next::__fxstatat(version, settled(dir), path, into, flags),
        }
    }
    fn statx(
        dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, into: *mut libc::statx
    ) -> c_int {
        let answered = match bytes(path) {
            Some(path) if !into.is_null() => ask(|| names::statx(dir, path, flags, mask)),
            _ => None,
        };
        done_or(answered.map(|found| found.map(|found| into.write(found))), || {
            next::statx(settled(dir), path, flags, mask, into)
        })
    }
}
