//! Listings, and the working directory.

use super::{ask, or, set_errno, settled};
use crate::listing::{self, Dir};
use crate::{files, kernel, place};
use std::ffi::{c_char, c_int, c_long};
use std::sync::atomic::AtomicPtr;

/// Returns the entry that comes next; null at the end, or with `errno`.
unsafe fn next_entry(dir: *mut Dir) -> *mut libc::dirent64 {
    // Also where the library must not act: there is nobody else who could.
    let inside = crate::state::enter();
    let found = (*dir).next();
    drop(inside);
    found.unwrap_or_else(|errno| {
        set_errno(errno);
        std::ptr::null_mut()
    })
}

interpose! {
    fn opendir(path: *const c_char) -> *mut Dir {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let path_bytes = super::bytes(path);
        let opened = path_bytes.and_then(|path| {
            ask(|| crate::names::open(libc::AT_FDCWD, path, flags, 0))
        });
        match opened {
            Some(Ok(fd)) => match ask(|| listing::open(fd).map(Ok)) {
                Some(Ok(dir)) => dir,
                _ => next::fdopendir(settled(fd)),
            },
            Some(Err(errno)) => {
                set_errno(errno);
                std::ptr::null_mut()
            }
            None => next::opendir(path),
        }
    }
    fn fdopendir(fd: c_int) -> *mut Dir {
        match ask(|| listing::open(fd).map(Ok)) {
            Some(Ok(dir)) => dir,
            _ => next::fdopendir(settled(fd)),
        }
    }
    fn readdir | readdir64 (dir: *mut Dir) -> *mut libc::dirent64 {
        if listing::is_ours(dir) { next_entry(dir) } else { next::readdir(dir) }
    }
    fn readdir_r | readdir64_r (
        dir: *mut Dir, entry: *mut libc::dirent64, result: *mut *mut libc::dirent64
    ) -> c_int {
        if !listing::is_ours(dir) {
            return next::readdir_r(dir, entry, result);
        }
        let errno = kernel::KeepErrno::here();
        set_errno(0);
        let found = next_entry(dir);
        let failed = *libc::__errno_location();
        drop(errno);
        *result = std::ptr::null_mut();
        if !found.is_null() {
            entry.write(*found);
            *result = entry;
        }
        failed
    }
    fn closedir(dir: *mut Dir) -> c_int {
        if !listing::is_ours(dir) {
            return next::closedir(dir);
        }
        let fd = (*dir).fd;
        let inside = crate::state::enter();
        drop(listing::close(dir));
        drop(inside);
        super::contents::close(fd)
    }
    fn dirfd(dir: *mut Dir) -> c_int {
        if listing::is_ours(dir) { (*dir).fd } else { next::dirfd(dir) }
    }
    fn rewinddir(dir: *mut Dir) {
        if listing::is_ours(dir) { (*dir).seek(0) } else { next::rewinddir(dir) }
    }
    fn telldir(dir: *mut Dir) -> c_long {
        if listing::is_ours(dir) { (*dir).position() } else { next::telldir(dir) }
    }
    fn seekdir(dir: *mut Dir, at: c_long) {
        if listing::is_ours(dir) { (*dir).seek(at) } else { next::seekdir(dir, at) }
    }
    fn scandirat | scandirat64 (
        dir: c_int, path: *const c_char, list: *mut std::ffi::c_void, select: *mut std::ffi::c_void,
        compare: *mut std::ffi::c_void
    ) -> c_int {
        next::scandirat(settled(dir), path, list, select, compare)
    }
    fn getdirentries | getdirentries64 (
        fd: c_int, into: *mut c_char, len: libc::size_t, base: *mut libc::off64_t
    ) -> isize {
        next::getdirentries(settled(fd), into, len, base)
    }
    fn getdents64(fd: c_int, into: *mut std::ffi::c_void, len: libc::size_t) -> isize {
        next::getdents64(settled(fd), into, len)
    }

    fn chdir(path: *const c_char) -> c_int {
        moved(next::chdir(path))
    }
    fn fchdir(fd: c_int) -> c_int {
        let Some(Ok(file)) = ask(|| files::get(fd).filter(|file| file.is_dir).map(Ok)) else {
            return moved(next::fchdir(settled(fd)));
        };
        // The kernel goes there by a descriptor of its own: the program's stays as it is.
        let gone = ask(|| {
            Some(files::reopen(&file).and_then(|opened| {
                let gone = kernel::change_directory(opened);
                kernel::close(opened);
                gone?;
                place::set_working(file);
                Ok(())
            }))
        });
        super::done_or(gone, || moved(next::fchdir(settled(fd))))
    }
}

/// The working directory may have changed.
fn moved(result: c_int) -> c_int {
    if result == 0 {
        let errno = kernel::KeepErrno::here();
        match crate::state::enter() {
            Some(_inside) => place::forget_working(),
            // Nobody tells later where it is: so relative paths are the kernel's from now on.
            None => crate::state::switch_off(),
        }
        drop(errno);
    }
    or(Some(Ok(result)), || -1)
}
