//! Functions that take a path.

use super::contents::{fresh, is_of_streams};
use super::{ask, bytes, done_or, or, settled};
use crate::names::{self, Of};
use crate::state::Counted;
use libc::{AT_FDCWD, dev_t, gid_t, mode_t, size_t, ssize_t, timespec, timeval, uid_t};
use shoal_engine::SetAttr;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::AtomicPtr;

/// Asks at a path.
unsafe fn at<T>(
    path: *const c_char,
    call: impl FnOnce(&[u8]) -> crate::answer::Answer<T>,
) -> crate::answer::Answer<T> {
    let path = bytes(path)?;
    ask(|| call(path))
}

/// The same at two paths.
unsafe fn at_both<T>(
    one: *const c_char,
    other: *const c_char,
    call: impl FnOnce(&[u8], &[u8]) -> crate::answer::Answer<T>,
) -> crate::answer::Answer<T> {
    let (one, other) = (bytes(one)?, bytes(other)?);
    ask(|| call(one, other))
}

unsafe fn open_at(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> Option<c_int> {
    let opened = at(path, |path| names::open(dir, path, flags, mode))?;
    let fd = or(Some(opened), || -1);
    Some(if is_of_streams(fd) { settled(fd) } else { fd })
}

fn mode_of(mode: mode_t) -> SetAttr {
    SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() }
}

unsafe fn chmod_at(dir: c_int, path: *const c_char, mode: mode_t) -> crate::answer::Answer<()> {
    at(path, |path| names::set(Counted::chmod, (dir, path), true, mode_of(mode)))
}

unsafe fn chown_at(
    dir: c_int,
    path: *const c_char,
    owner: (uid_t, gid_t),
    follow: bool,
) -> crate::answer::Answer<()> {
    let owner = names::owner(owner.0, owner.1);
    at(path, |path| names::set(Counted::chown, (dir, path), follow, owner))
}

unsafe fn times_at(
    dir: c_int,
    path: *const c_char,
    times: Option<[timespec; 2]>,
    follow: bool,
) -> crate::answer::Answer<()> {
    let set = names::times(times)?;
    if path.is_null() {
        return ask(|| names::set_file(Counted::times, dir, set));
    }
    at(path, |path| names::set(Counted::times, (dir, path), follow, set))
}

/// Times with microseconds; `None`: they are no times.
unsafe fn of_micros(times: *const timeval) -> Option<Option<[timespec; 2]>> {
    if times.is_null() {
        return Some(None);
    }
    let time = |time: timeval| {
        let valid = (0..1_000_000).contains(&time.tv_usec);
        valid.then_some(timespec { tv_sec: time.tv_sec, tv_nsec: time.tv_usec * 1000 })
    };
    Some(Some([time(*times)?, time(*times.add(1))?]))
}

/// Room that the caller has for a value.
unsafe fn room<'r>(into: *mut c_void, len: size_t) -> &'r mut [u8] {
    if into.is_null() || len == 0 {
        &mut []
    } else {
        std::slice::from_raw_parts_mut(into.cast(), len)
    }
}

unsafe fn value<'r>(from: *const c_void, len: size_t) -> &'r [u8] {
    if from.is_null() || len == 0 { &[] } else { std::slice::from_raw_parts(from.cast(), len) }
}

unsafe fn get_value(
    of: Option<Of<'_>>,
    name: *const c_char,
    into: *mut c_void,
    len: size_t,
) -> crate::answer::Answer<ssize_t> {
    let (of, name, into) = (of?, bytes(name)?, room(into, len));
    ask(|| names::xattr(of, name, into))
}

unsafe fn get_names(
    of: Option<Of<'_>>,
    into: *mut c_char,
    len: size_t,
) -> crate::answer::Answer<ssize_t> {
    let (of, into) = (of?, room(into.cast(), len));
    ask(|| names::xattrs(of, into))
}

unsafe fn set_value(
    of: Option<Of<'_>>,
    name: *const c_char,
    (from, len): (*const c_void, size_t),
    flags: c_int,
) -> crate::answer::Answer<()> {
    let (of, name, value) = (of?, bytes(name)?, value(from, len));
    ask(|| names::set_xattr(of, name, value, flags))
}

unsafe fn remove_value(of: Option<Of<'_>>, name: *const c_char) -> crate::answer::Answer<()> {
    let (of, name) = (of?, bytes(name)?);
    ask(|| names::remove_xattr(of, name))
}

unsafe fn of_path<'p>(path: *const c_char, follow: bool) -> Option<Of<'p>> {
    bytes(path).map(|path| Of::Path(path, follow))
}

interpose! {
    fn open | open64 (path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        match open_at(AT_FDCWD, path, flags, mode) {
            Some(fd) => fd,
            None => fresh(next::open(path, flags, mode)),
        }
    }
    fn openat | openat64 (dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        match open_at(dir, path, flags, mode) {
            Some(fd) => fd,
            None => fresh(next::openat(settled(dir), path, flags, mode)),
        }
    }
    fn creat | creat64 (path: *const c_char, mode: mode_t) -> c_int {
        open(path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode)
    }
    fn __open_2 | __open64_2 (path: *const c_char, flags: c_int) -> c_int {
        match open_at(AT_FDCWD, path, flags & !libc::O_CREAT, 0) {
            Some(fd) if flags & libc::O_CREAT == 0 => fd,
            // Without a mode it may not create: the C library says so.
            Some(_) | None => fresh(next::__open_2(path, flags)),
        }
    }
    fn __openat_2 | __openat64_2 (dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        match flags & libc::O_CREAT {
            0 => openat(dir, path, flags, 0),
            _ => fresh(next::__openat_2(settled(dir), path, flags)),
        }
    }

    fn access(path: *const c_char, mask: c_int) -> c_int {
        let answered = match is_one_user() {
            true => at(path, |path| names::access(AT_FDCWD, path, mask)),
            false => None,
        };
        done_or(answered, || next::access(path, mask))
    }
    fn faccessat(dir: c_int, path: *const c_char, mask: c_int, flags: c_int) -> c_int {
        let answered = match flags == libc::AT_EACCESS || flags == 0 && is_one_user() {
            true => at(path, |path| names::access(dir, path, mask)),
            false => None,
        };
        done_or(answered, || next::faccessat(settled(dir), path, mask, flags))
    }
    fn euidaccess | eaccess (path: *const c_char, mask: c_int) -> c_int {
        done_or(at(path, |path| names::access(AT_FDCWD, path, mask)), || {
            next::euidaccess(path, mask)
        })
    }

    fn unlink(path: *const c_char) -> c_int {
        done_or(at(path, |path| names::unlink(AT_FDCWD, path, 0)), || next::unlink(path))
    }
    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        done_or(at(path, |path| names::unlink(dir, path, flags)), || {
            next::unlinkat(settled(dir), path, flags)
        })
    }
    fn rmdir(path: *const c_char) -> c_int {
        let answered = at(path, |path| names::unlink(AT_FDCWD, path, libc::AT_REMOVEDIR));
        done_or(answered, || next::rmdir(path))
    }
    fn remove(path: *const c_char) -> c_int {
        // The C library tries both ways too.
        match at(path, |path| names::unlink(AT_FDCWD, path, 0)) {
            None => next::remove(path),
            answered => done_or(answered, || -1),
        }
    }

    fn rename(from: *const c_char, to: *const c_char) -> c_int {
        let answered = at_both(from, to, |from, to| {
            names::rename((AT_FDCWD, from), (AT_FDCWD, to), 0)
        });
        done_or(answered, || next::rename(from, to))
    }
    fn renameat(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int {
        let answered = at_both(from, to, |from, to| names::rename((from_dir, from), (to_dir, to),
        0));
        done_or(answered, || next::renameat(settled(from_dir), from, settled(to_dir), to))
    }
    fn renameat2(
        from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint
    ) -> c_int {
        let answered = at_both(from, to, |from, to| {
            names::rename((from_dir, from), (to_dir, to), flags)
        });
        done_or(answered, || next::renameat2(settled(from_dir), from, settled(to_dir), to, flags))
    }

    fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
        done_or(at(path, |path| names::mkdir(AT_FDCWD, path, mode)), || next::mkdir(path, mode))
    }
    fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
        done_or(at(path, |path| names::mkdir(dir, path, mode)), || {
            next::mkdirat(settled(dir), path, mode)
        })
    }
    fn mknod(path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        done_or(at(path, |path| names::mknod(AT_FDCWD, path, mode, device)), || {
            next::mknod(path, mode, device)
        })
    }
    fn mknodat(dir: c_int, path: *const c_char, mode: mode_t, device: dev_t) -> c_int {
        done_or(at(path, |path| names::mknod(dir, path, mode, device)), || {
            next::mknodat(settled(dir), path, mode, device)
        })
    }
    fn mkfifo(path: *const c_char, mode: mode_t) -> c_int {
        let fifo = mode & 0o7777 | libc::S_IFIFO;
        done_or(at(path, |path| names::mknod(AT_FDCWD, path, fifo, 0)), || {
            next::mkfifo(path, mode)
        })
    }
    fn mkfifoat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
        let fifo = mode & 0o7777 | libc::S_IFIFO;
        done_or(at(path, |path| names::mknod(dir, path, fifo, 0)), || {
            next::mkfifoat(settled(dir), path, mode)
        })
    }

    fn link(from: *const c_char, to: *const c_char) -> c_int {
        let answered = at_both(from, to, |from, to| {
            names::link((AT_FDCWD, from), (AT_FDCWD, to), 0)
        });
        done_or(answered, || next::link(from, to))
    }
    fn linkat(
        from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_int
    ) -> c_int {
        let answered = at_both(from, to, |from, to| {
            names::link((from_dir, from), (to_dir, to), flags)
        });
        done_or(answered, || next::linkat(settled(from_dir), from, settled(to_dir), to, flags))
    }
    fn symlink(target: *const c_char, path: *const c_char) -> c_int {
        let answered = at_both(target, path, |target, path| {
            names::symlink(target, AT_FDCWD, path)
        });
        done_or(answered, || next::symlink(target, path))
    }
    fn symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int {
        let answered = at_both(target, path, |target, path| names::symlink(target, dir, path));
        done_or(answered, || next::symlinkat(target, settled(dir), path))
    }
    fn readlink(path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t {
        or(read_link(AT_FDCWD, path, into, len), || next::readlink(path, into, len))
    }
    fn readlinkat(dir: c_int, path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t {
        or(read_link(dir, path, into, len), || next::readlinkat(settled(dir), path, into, len))
    }
    fn __readlink_chk(
        path: *const c_char, into: *mut c_char, len: size_t, room: size_t
    ) -> ssize_t {
        match len <= room {
            true => readlink(path, into, len),
            false => next::__readlink_chk(path, into, len, room),
        }
    }
    fn __readlinkat_chk(
        dir: c_int, path: *const c_char, into: *mut c_char, len: size_t, room: size_t
    ) -> ssize_t {
        match len <= room {
            true => readlinkat(dir, path, into, len),
            false => next::__readlinkat_chk(settled(dir), path, into, len, room),
        }
    }

    fn chmod(path: *const c_char, mode: mode_t) -> c_int {
        done_or(chmod_at(AT_FDCWD, path, mode), || next::chmod(path, mode))
    }
    fn fchmodat(dir: c_int, path: *const c_char, mode: mode_t, flags: c_int) -> c_int {
        let answered = if flags == 0 { chmod_at(dir, path, mode) } else { None };
        done_or(answered, || next::fchmodat(settled(dir), path, mode, flags))
    }
    fn fchmod(fd: c_int, mode: mode_t) -> c_int {
        let answered = ask(|| names::set_file(Counted::chmod, fd, mode_of(mode)));
        done_or(answered, || next::fchmod(settled(fd), mode))
    }
    fn chown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        done_or(chown_at(AT_FDCWD, path, (uid, gid), true), || next::chown(path, uid, gid))
    }
    fn lchown(path: *const c_char, uid: uid_t, gid: gid_t) -> c_int {
        done_or(chown_at(AT_FDCWD, path, (uid, gid), false), || next::lchown(path, uid, gid))
    }
    fn fchownat(dir: c_int, path: *const c_char, uid: uid_t, gid: gid_t, flags: c_int) -> c_int {
        let answered = match flags {
            0 => chown_at(dir, path, (uid, gid), true),
            libc::AT_SYMLINK_NOFOLLOW => chown_at(dir, path, (uid, gid), false),
            _ => None,
        };
        done_or(answered, || next::fchownat(settled(dir), path, uid, gid, flags))
    }
    fn fchown(fd: c_int, uid: uid_t, gid: gid_t) -> c_int {
        let answered = ask(|| names::set_file(Counted::chown, fd, names::owner(uid, gid)));
        done_or(answered, || next::fchown(settled(fd), uid, gid))
    }

    fn utimensat(
        dir: c_int, path: *const c_char, times: *const timespec, flags: c_int
    ) -> c_int {
        let given = (!times.is_null()).then(|| [*times, *times.add(1)]);
        let answered = match flags {
            0 => times_at(dir, path, given, true),
            libc::AT_SYMLINK_NOFOLLOW if !path.is_null() => times_at(dir, path, given, false),
            _ => None,
        };
        done_or(answered, || next::utimensat(settled(dir), path, times, flags))
    }
    fn futimens(fd: c_int, times: *const timespec) -> c_int {
        let given = (!times.is_null()).then(|| [*times, *times.add(1)]);
        done_or(times_at(fd, std::ptr::null(), given, true), || {
            next::futimens(settled(fd), times)
        })
    }
    fn utimes(path: *const c_char, times: *const timeval) -> c_int {
        let answered = match of_micros(times) {
            Some(given) if !path.is_null() => times_at(AT_FDCWD, path, given, true),
            _ => None,
        };
        done_or(answered, || next::utimes(path, times))
    }
    fn lutimes(path: *const c_char, times: *const timeval) -> c_int {
        let answered = match of_micros(times) {
            Some(given) if !path.is_null() => times_at(AT_FDCWD, path, given, false),
            _ => None,
        };
        done_or(answered, || next::lutimes(path, times))
    }
    fn futimes(fd: c_int, times: *const timeval) -> c_int {
        let answered = match of_micros(times) {
            Some(given) => times_at(fd, std::ptr::null(), given, true),
            None => None,
        };
        done_or(answered, || next::futimes(settled(fd), times))
    }
    fn futimesat(dir: c_int, path: *const c_char, times: *const timeval) -> c_int {
        let answered = match of_micros(times) {
            Some(given) if !path.is_null() => times_at(dir, path, given, true),
            _ => None,
        };
        done_or(answered, || next::futimesat(settled(dir), path, times))
    }
    fn utime(path: *const c_char, times: *const libc::utimbuf) -> c_int {
        let time = |sec| timespec { tv_sec: sec, tv_nsec: 0 };
        let given = (!times.is_null()).then(|| [time((*times).actime), time((*times).modtime)]);
        let answered = if path.is_null() { None } else { times_at(AT_FDCWD, path, given, true) };
        done_or(answered, || next::utime(path, times))
    }

    fn truncate | truncate64 (path: *const c_char, size: i64) -> c_int {
        let set = u64::try_from(size).ok().filter(|_| crate::kernel::size_max() == u64::MAX);
        let answered = set.and_then(|size| {
            let set = SetAttr { size: Some(size), ..SetAttr::default() };
            at(path, |path| names::set(Counted::size, (AT_FDCWD, path), true, set))
        });
        done_or(answered, || next::truncate(path, size))
    }

    fn getxattr(
        path: *const c_char, name: *const c_char, into: *mut c_void, len: size_t
    ) -> ssize_t {
        or(get_value(of_path(path, true), name, into, len), || next::getxattr(path, name, into,
        len))
    }
    fn lgetxattr(
        path: *const c_char, name: *const c_char, into: *mut c_void, len: size_t
    ) -> ssize_t {
        or(get_value(of_path(path, false), name, into, len), || {
            next::lgetxattr(path, name, into, len)
        })
    }
    fn fgetxattr(fd: c_int, name: *const c_char, into: *mut c_void, len: size_t) -> ssize_t {
        or(get_value(Some(Of::File(fd)), name, into, len), || {
            next::fgetxattr(settled(fd), name, into, len)
        })
    }
    fn listxattr(path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t {
        or(get_names(of_path(path, true), into, len), || next::listxattr(path, into, len))
    }
    fn llistxattr(path: *const c_char, into: *mut c_char, len: size_t) -> ssize_t {
        or(get_names(of_path(path, false), into, len), || next::llistxattr(path, into, len))
    }
    fn flistxattr(fd: c_int, into: *mut c_char, len: size_t) -> ssize_t {
        or(get_names(Some(Of::File(fd)), into, len), || next::flistxattr(settled(fd), into, len))
    }
    fn setxattr(
        path: *const c_char, name: *const c_char, from: *const c_void, len: size_t, flags: c_int
    ) -> c_int {
        done_or(set_value(of_path(path, true), name, (from, len), flags), || {
            next::setxattr(path, name, from, len, flags)
        })
    }
    fn lsetxattr(
        path: *const c_char, name: *const c_char, from: *const c_void, len: size_t, flags: c_int
    ) -> c_int {
        done_or(set_value(of_path(path, false), name, (from, len), flags), || {
            next::lsetxattr(path, name, from, len, flags)
        })
    }
    fn fsetxattr(
        fd: c_int, name: *const c_char, from: *const c_void, len: size_t, flags: c_int
    ) -> c_int {
        done_or(set_value(Some(Of::File(fd)), name, (from, len), flags), || {
            next::fsetxattr(settled(fd), name, from, len, flags)
        })
    }
    fn removexattr(path: *const c_char, name: *const c_char) -> c_int {
        done_or(remove_value(of_path(path, true), name), || next::removexattr(path, name))
    }
    fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int {
        done_or(remove_value(of_path(path, false), name), || next::lremovexattr(path, name))
    }
    fn fremovexattr(fd: c_int, name: *const c_char) -> c_int {
        done_or(remove_value(Some(Of::File(fd)), name), || next::fremovexattr(settled(fd), name))
    }
}

unsafe fn read_link(
    dir: c_int,
    path: *const c_char,
    into: *mut c_char,
    len: size_t,
) -> crate::answer::Answer<ssize_t> {
    if into.is_null() || len == 0 {
        return None;
    }
    let target = at(path, |path| names::readlink(dir, path))?;
    Some(target.map(|target| {
        let copied = target.len().min(len);
        std::slice::from_raw_parts_mut(into.cast::<u8>(), copied)
            .copy_from_slice(&target[..copied]);
        copied as ssize_t
    }))
}

/// Returns whether the real user and group are the effective ones, of which a session is.
fn is_one_user() -> bool {
    // SAFETY: they always succeed.
    unsafe { libc::getuid() == libc::geteuid() && libc::getgid() == libc::getegid() }
}
