//! Functions that take a descriptor.

use super::{ask, done_or, or, set_errno, settle, settled};
use crate::answer::Answer;
use crate::contents::{self, Start};
use crate::files;
use libc::{iovec, off64_t, size_t, ssize_t};
use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::sync::atomic::AtomicPtr;

/// Most parts of a read or write.
const PARTS: c_int = 1024;

unsafe fn read_at(fd: c_int, into: *mut c_void, len: size_t, start: Start) -> Answer<ssize_t> {
    if !files::is_file(fd) || into.is_null() || len > isize::MAX as usize {
        return None;
    }
    let into = std::slice::from_raw_parts_mut(into.cast::<u8>(), len);
    ask(|| contents::read(fd, &mut [IoSliceMut::new(into)], start))
}

unsafe fn write_at(fd: c_int, from: *const c_void, len: size_t, start: Start) -> Answer<ssize_t> {
    if !files::is_file(fd) || from.is_null() || len > isize::MAX as usize {
        return None;
    }
    let from = std::slice::from_raw_parts(from.cast::<u8>(), len);
    ask(|| contents::write(fd, &[IoSlice::new(from)], start))
}

/// The parts of a read or write, of which each may be empty, and without a place then.
unsafe fn parts<'p>(parts: *const iovec, count: c_int) -> Option<&'p [iovec]> {
    let count = usize::try_from(count).ok().filter(|_| (1..=PARTS).contains(&count))?;
    let parts = std::slice::from_raw_parts(parts, count);
    parts.iter().all(|part| !part.iov_base.is_null()).then_some(parts)
}

unsafe fn read_parts(fd: c_int, into: *const iovec, count: c_int, start: Start) -> Answer<ssize_t> {
    if !files::is_file(fd) {
        return None;
    }
    let into = parts(into, count)?.iter().map(|part| {
        let part = std::slice::from_raw_parts_mut(part.iov_base.cast::<u8>(), part.iov_len);
        IoSliceMut::new(part)
    });
    ask(|| contents::read(fd, &mut into.collect::<Vec<_>>(), start))
}

unsafe fn write_parts(
    fd: c_int,
    from: *const iovec,
    count: c_int,
    start: Start,
) -> Answer<ssize_t> {
    if !files::is_file(fd) {
        return None;
    }
    let from = parts(from, count)?.iter().map(|part| {
        IoSlice::new(std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len))
    });
    ask(|| contents::write(fd, &from.collect::<Vec<_>>(), start))
}

/// Places of `preadv2` and its kin: -1 is the position.
fn start_of(at: off64_t) -> Start {
    if at == -1 { Start::Position } else { Start::At(at) }
}

/// Requests of `ioctl` that ask whether a file is a terminal, and change one.
fn is_of_terminals(request: c_ulong) -> bool {
    const CLOEXEC: [c_ulong; 2] = [0x5450, 0x5451];
    let (fionread, fionbio, fioasync, fioqsize) = (0x541b, 0x5421, 0x5452, 0x5460);
    let of_files = [fionread, fionbio, fioasync, fioqsize];
    request & 0xff00 == 0x5400 && !CLOEXEC.contains(&request) && !of_files.contains(&request)
}

/// Makes a file share the bytes of another one, which volumes do not.
const FICLONE: c_ulong = 0x4004_9409;
const FICLONERANGE: c_ulong = 0x4020_940d;

/// After a descriptor has been copied: the copy stands for the same file, with the same position.
/// What had its number before is gone.
fn copied(from: c_int, to: c_int) -> c_int {
    if to >= 0 && from != to && (files::is_file(from) || files::is_file(to)) {
        let errno = crate::kernel::KeepErrno::here();
        let inside = crate::state::enter();
        files::copy(from, to);
        drop(inside);
        drop(errno);
    }
    if is_of_streams(to) {
        settle(to);
    }
    to
}

/// Returns whether the C library reads and writes a descriptor by calls of its own: that of a
/// standard stream.
pub(super) fn is_of_streams(fd: c_int) -> bool {
    (0..=2).contains(&fd)
}

/// After the kernel has given a descriptor.
pub(super) fn fresh(fd: c_int) -> c_int {
    copied(-1, fd)
}

/// Before a descriptor is put in the place of one of the kernel's: that may be a stream's, which
/// the C library reads and writes by calls of its own.
fn settle_for(fd: c_int, place: c_int) {
    if files::is_file(fd) && !files::is_file(place) && crate::kernel::is_open(place) {
        settle(fd);
    }
}

/// Before a program takes a number that the library has: its sessions end, and the kernel goes on.
fn give_way(fd: c_int) {
    if !crate::state::is_inside() && crate::mounts::is_own(fd) {
        let inside = crate::state::enter();
        let _ = files::settle_all();
        drop(inside);
        crate::state::switch_off();
    }
}

interpose! {
    fn read(fd: c_int, into: *mut c_void, len: size_t) -> ssize_t {
        or(read_at(fd, into, len, Start::Position), || next::read(settled(fd), into, len))
    }
    fn __read_chk(fd: c_int, into: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        if len <= room { read(fd, into, len) } else { next::__read_chk(settled(fd), into, len,
        room) }
    }
    fn pread | pread64 (fd: c_int, into: *mut c_void, len: size_t, at: off64_t) -> ssize_t {
        or(read_at(fd, into, len, Start::At(at)), || next::pread(settled(fd), into, len, at))
    }
    fn __pread_chk | __pread64_chk (
        fd: c_int, into: *mut c_void, len: size_t, at: off64_t, room: size_t
    ) -> ssize_t {
        match len <= room {
            true => pread(fd, into, len, at),
            false => next::__pread_chk(settled(fd), into, len, at, room),
        }
    }
    fn readv(fd: c_int, into: *const iovec, count: c_int) -> ssize_t {
        or(read_parts(fd, into, count, Start::Position), || next::readv(settled(fd), into, count))
    }
    fn preadv | preadv64 (fd: c_int, into: *const iovec, count: c_int, at: off64_t) -> ssize_t {
        or(read_parts(fd, into, count, Start::At(at)), || next::preadv(settled(fd), into, count,
        at))
    }
    fn preadv2 | preadv64v2 (
        fd: c_int, into: *const iovec, count: c_int, at: off64_t, flags: c_int
    ) -> ssize_t {
        let answered = match flags {
            0 => read_parts(fd, into, count, start_of(at)),
            _ => None,
        };
        or(answered, || next::preadv2(settled(fd), into, count, at, flags))
    }
    fn write(fd: c_int, from: *const c_void, len: size_t) -> ssize_t {
        or(write_at(fd, from, len, Start::Position), || next::write(settled(fd), from, len))
    }
    fn pwrite | pwrite64 (fd: c_int, from: *const c_void, len: size_t, at: off64_t) -> ssize_t {
        or(write_at(fd, from, len, Start::At(at)), || next::pwrite(settled(fd), from, len, at))
    }
    fn writev(fd: c_int, from: *const iovec, count: c_int) -> ssize_t {
        or(write_parts(fd, from, count, Start::Position), || next::writev(settled(fd), from, count))
    }
    fn pwritev | pwritev64 (fd: c_int, from: *const iovec, count: c_int, at: off64_t) -> ssize_t {
        or(write_parts(fd, from, count, Start::At(at)), || {
            next::pwritev(settled(fd), from, count, at)
        })
    }
    fn pwritev2 | pwritev64v2 (
        fd: c_int, from: *const iovec, count: c_int, at: off64_t, flags: c_int
    ) -> ssize_t {
        let answered = match flags {
            0 => write_parts(fd, from, count, start_of(at)),
            _ => None,
        };
        or(answered, || next::pwritev2(settled(fd), from, count, at, flags))
    }
    fn lseek | lseek64 (fd: c_int, to: off64_t, whence: c_int) -> off64_t {
        or(ask(|| contents::seek(fd, to, whence)), || next::lseek(settled(fd), to, whence))
    }
    fn fsync(fd: c_int) -> c_int {
        done_or(ask(|| contents::sync(fd, false)), || next::fsync(settled(fd)))
    }
    fn fdatasync(fd: c_int) -> c_int {
        done_or(ask(|| contents::sync(fd, true)), || next::fdatasync(settled(fd)))
    }
    fn syncfs(fd: c_int) -> c_int {
        next::syncfs(settled(fd))
    }
    fn sync_file_range(fd: c_int, at: off64_t, len: off64_t, flags: c_uint) -> c_int {
        next::sync_file_range(settled(fd), at, len, flags)
    }
    fn ftruncate | ftruncate64 (fd: c_int, size: off64_t) -> c_int {
        done_or(ask(|| contents::set_size(fd, size)), || next::ftruncate(settled(fd), size))
    }
    fn fallocate | fallocate64 (fd: c_int, mode: c_int, at: off64_t, len: off64_t) -> c_int {
        done_or(ask(|| contents::allocate(fd, mode, at, len)), || {
            next::fallocate(settled(fd), mode, at, len)
        })
    }
    fn posix_fallocate | posix_fallocate64 (fd: c_int, at: off64_t, len: off64_t) -> c_int {
        match ask(|| contents::allocate(fd, 0, at, len)) {
            Some(Ok(())) => 0,
            Some(Err(errno)) => errno,
            None => next::posix_fallocate(settled(fd), at, len),
        }
    }
    fn posix_fadvise | posix_fadvise64 (
        fd: c_int, at: off64_t, len: off64_t, advice: c_int
    ) -> c_int {
        // A session reads ahead as it thinks best.
        if files::is_file(fd) { 0 } else { next::posix_fadvise(fd, at, len, advice) }
    }
    fn readahead(fd: c_int, at: off64_t, len: size_t) -> ssize_t {
        if files::is_file(fd) { 0 } else { next::readahead(fd, at, len) }
    }

    fn close(fd: c_int) -> c_int {
        if crate::state::is_inside() {
            return next::close(fd);
        }
        if crate::mounts::is_own(fd) {
            set_errno(libc::EBADF);
            return -1;
        }
        if !files::is_file(fd) {
            return next::close(fd);
        }
        // The number is another file's as soon as the kernel knows that it is closed.
        let inside = crate::state::enter();
        let file = files::take(fd);
        let closed = next::close(fd);
        if file.is_some() {
            crate::state::count(crate::state::Counted::close, true);
        }
        file.into_iter().for_each(files::drop_file);
        drop(inside);
        closed
    }
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        // The library's own stay open.
        const ON_EXEC: c_int = 4;
        let inside = crate::state::enter();
        if flags & ON_EXEC == 0 {
            for fd in files::between(first, last).collect::<Vec<_>>() {
                files::take(fd).into_iter().for_each(files::drop_file);
            }
        }
        let own = crate::mounts::own_descriptors();
        let mut begin = i64::from(first);
        let mut result = if first > last { next::close_range(first, last, flags) } else { 0 };
        let ends = own.iter().map(|own| i64::from(*own)).filter(|own| *own >= i64::from(first));
        for end in ends.filter(|own| *own <= i64::from(last)).chain([i64::from(last) + 1]) {
            if begin < end {
                result = result.min(next::close_range(begin as c_uint, (end - 1) as c_uint, flags));
            }
            begin = end + 1;
        }
        drop(inside);
        result
    }
    fn closefrom(first: c_int) {
        close_range(first.max(0) as c_uint, c_uint::MAX, 0);
    }
    fn dup(fd: c_int) -> c_int {
        copied(fd, next::dup(fd))
    }
    fn dup2(fd: c_int, place: c_int) -> c_int {
        give_way(place);
        settle_for(fd, place);
        copied(fd, next::dup2(fd, place))
    }
    fn dup3(fd: c_int, place: c_int, flags: c_int) -> c_int {
        give_way(place);
        settle_for(fd, place);
        copied(fd, next::dup3(fd, place, flags))
    }
    fn fcntl | fcntl64 | __fcntl_time64 (fd: c_int, command: c_int, arg: c_long) -> c_int {
        match command {
            libc::F_GETFD | libc::F_SETFD => next::fcntl(fd, command, arg),
            libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
                copied(fd, next::fcntl(fd, command, arg))
            }
            libc::F_GETFL if files::is_file(fd) => match ask(|| files::get(fd).map(Ok)) {
                Some(Ok(file)) => {
                    let flags = file.flags;
                    drop_apart(file);
                    flags
                }
                _ => next::fcntl(settled(fd), command, arg),
            },
            _ => next::fcntl(settled(fd), command, arg),
        }
    }
    fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
        let errno = match files::is_file(fd) {
            true if is_of_terminals(request) => libc::ENOTTY,
            true if matches!(request, FICLONE | FICLONERANGE) => libc::EOPNOTSUPP,
            _ => {
                if matches!(request, FICLONE) {
                    settle(arg as c_int);
                }
                return next::ioctl(settled(fd), request, arg);
            }
        };
        set_errno(errno);
        -1
    }
    fn isatty(fd: c_int) -> c_int {
        if !files::is_file(fd) {
            return next::isatty(fd);
        }
        set_errno(libc::ENOTTY);
        0
    }
    fn tcgetattr(fd: c_int, into: *mut c_void) -> c_int {
        next::tcgetattr(settled(fd), into)
    }
    fn flock(fd: c_int, operation: c_int) -> c_int {
        next::flock(settled(fd), operation)
    }
    fn lockf | lockf64 (fd: c_int, command: c_int, len: off64_t) -> c_int {
        next::lockf(settled(fd), command, len)
    }
    fn mmap | mmap64 (
        at: *mut c_void, len: size_t, protection: c_int, flags: c_int, fd: c_int, offset: off64_t
    ) -> *mut c_void {
        if flags & libc::MAP_ANONYMOUS == 0 {
            settle(fd);
        }
        next::mmap(at, len, protection, flags, fd, offset)
    }
    fn sendfile | sendfile64 (to: c_int, from: c_int, at: *mut off64_t, len: size_t) -> ssize_t {
        next::sendfile(settled(to), settled(from), at, len)
    }
    fn copy_file_range(
        from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t,
        flags: c_uint
    ) -> ssize_t {
        let at = |at: *mut off64_t| if at.is_null() { None } else { Some(*at) };
        let both = files::is_file(from) && files::is_file(to) && flags == 0;
        let answered = match both {
            true => ask(|| contents::copy((from, at(from_at)), (to, at(to_at)), len)),
            false => None,
        };
        if let Some(Ok(copied)) = answered {
            for at in [from_at, to_at] {
                if !at.is_null() {
                    *at += copied as off64_t;
                }
            }
        }
        or(answered, || {
            next::copy_file_range(settled(from), from_at, settled(to), to_at, len, flags)
        })
    }
    fn splice(
        from: c_int, from_at: *mut off64_t, to: c_int, to_at: *mut off64_t, len: size_t,
        flags: c_uint
    ) -> ssize_t {
        next::splice(settled(from), from_at, settled(to), to_at, len, flags)
    }
    fn fopen | fopen64 (path: *const c_char, mode: *const c_char) -> *mut c_void {
        settle_name(path);
        next::fopen(path, mode)
    }
    fn freopen | freopen64 (
        path: *const c_char, mode: *const c_char, stream: *mut c_void
    ) -> *mut c_void {
        settle_name(path);
        next::freopen(path, mode, stream)
    }
    fn vdprintf(fd: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        next::vdprintf(settled(fd), format, arguments)
    }
    fn __vdprintf_chk(
        fd: c_int, flag: c_int, format: *const c_char, arguments: *mut c_void
    ) -> c_int {
        next::__vdprintf_chk(settled(fd), flag, format, arguments)
    }
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void {
        next::fdopen(settled(fd), mode)
    }
    fn fstatfs | fstatfs64 (fd: c_int, into: *mut c_void) -> c_int {
        next::fstatfs(settled(fd), into)
    }
    fn fstatvfs | fstatvfs64 (fd: c_int, into: *mut c_void) -> c_int {
        next::fstatvfs(settled(fd), into)
    }
    fn fpathconf(fd: c_int, name: c_int) -> c_long {
        next::fpathconf(settled(fd), name)
    }
    fn name_to_handle_at(
        dir: c_int, path: *const c_char, handle: *mut c_void, mount: *mut c_int, flags: c_int
    ) -> c_int {
        next::name_to_handle_at(settled(dir), path, handle, mount, flags)
    }
    fn open_by_handle_at(mount: c_int, handle: *mut c_void, flags: c_int) -> c_int {
        fresh(next::open_by_handle_at(settled(mount), handle, flags))
    }

    fn poll(polled: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int) -> c_int {
        settle_polled(polled, count);
        next::poll(polled, count, timeout)
    }
    fn __poll_chk(
        polled: *mut libc::pollfd, count: libc::nfds_t, timeout: c_int, room: size_t
    ) -> c_int {
        settle_polled(polled, count);
        next::__poll_chk(polled, count, timeout, room)
    }
    fn ppoll(
        polled: *mut libc::pollfd, count: libc::nfds_t, timeout: *const c_void, mask: *const c_void
    ) -> c_int {
        settle_polled(polled, count);
        next::ppoll(polled, count, timeout, mask)
    }
    fn select(
        count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void,
        timeout: *mut c_void
    ) -> c_int {
        settle_below(count);
        next::select(count, read, write, except, timeout)
    }
    fn pselect(
        count: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void,
        timeout: *const c_void, mask: *const c_void
    ) -> c_int {
        settle_below(count);
        next::pselect(count, read, write, except, timeout, mask)
    }
    fn tee(from: c_int, to: c_int, len: size_t, flags: c_uint) -> isize {
        next::tee(settled(from), settled(to), len, flags)
    }
    fn vmsplice(fd: c_int, from: *const iovec, count: size_t, flags: c_uint) -> isize {
        next::vmsplice(settled(fd), from, count, flags)
    }
    fn fanotify_mark(
        fd: c_int, flags: c_uint, mask: u64, dir: c_int, path: *const c_char
    ) -> c_int {
        next::fanotify_mark(fd, flags, mask, settled(dir), path)
    }
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut c_void) -> c_int {
        next::epoll_ctl(epoll, operation, settled(fd), event)
    }
    fn sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> ssize_t {
        // It may pass descriptors on.
        if !message.is_null() && (*message).msg_controllen > 0 {
            settle_below(c_int::MAX);
        }
        next::sendmsg(socket, message, flags)
    }
    fn sendmmsg(socket: c_int, messages: *mut c_void, count: c_uint, flags: c_int) -> c_int {
        settle_below(c_int::MAX);
        next::sendmmsg(socket, messages, count, flags)
    }

    fn aio_read | aio_read64 (control: *mut c_void) -> c_int {
        settle_below(c_int::MAX);
        next::aio_read(control)
    }
    fn aio_write | aio_write64 (control: *mut c_void) -> c_int {
        settle_below(c_int::MAX);
        next::aio_write(control)
    }
    fn aio_fsync | aio_fsync64 (operation: c_int, control: *mut c_void) -> c_int {
        settle_below(c_int::MAX);
        next::aio_fsync(operation, control)
    }
    fn lio_listio | lio_listio64 (
        mode: c_int, list: *const c_void, count: c_int, event: *mut c_void
    ) -> c_int {
        settle_below(c_int::MAX);
        next::lio_listio(mode, list, count, event)
    }
}

/// Lets go of a file that has only been looked at.
fn drop_apart(file: std::sync::Arc<files::File>) {
    let inside = crate::state::enter();
    files::drop_file(file);
    drop(inside);
}

/// Before the C library opens a path by a call of its own: it may be the name of a descriptor.
unsafe fn settle_name(path: *const c_char) {
    if files::any()
        && let Some(path) = super::bytes(path)
    {
        let inside = crate::state::enter();
        crate::place::settle_named(path);
        drop(inside);
    }
}

unsafe fn settle_polled(polled: *const libc::pollfd, count: libc::nfds_t) {
    if files::any() && !polled.is_null() {
        std::slice::from_raw_parts(polled, count as usize).iter().for_each(|it| settle(it.fd));
    }
}

/// Makes all descriptors below a number the mount's.
pub(super) fn settle_below(count: c_int) {
    if files::any() && count > 0 {
        files::between(0, count as u32 - 1).for_each(settle);
    }
}

/// The functions that print to a descriptor any number of arguments: they go on to the C library's
/// with all of them, after this.
pub(super) extern "C" fn before_print(which: c_int, fd: c_int) -> *mut c_void {
    static NEXT: [AtomicPtr<c_void>; 2] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 2];
    settle(fd);
    match which {
        0 => crate::kernel::resolve(&NEXT[0], c"dprintf"),
        _ => crate::kernel::resolve(&NEXT[1], c"__dprintf_chk"),
    }
}
