//! `name_to_handle_at` and `open_by_handle_at`: handles outlive the kernel's caches, and never open
//! a later inode of the same number.

use crate::common::*;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// `struct file_handle` with room for any handle.
#[repr(C)]
#[derive(Clone)]
struct Handle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

fn handle(path: impl AsRef<Path>) -> Handle {
    let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
    let path = CString::new(path.as_ref().as_os_str().as_bytes()).unwrap();
    let mut mount_id = 0i32;
    // SAFETY: valid pointers; the kernel fills at most `bytes` bytes of data.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            libc::AT_FDCWD,
            path.as_ptr(),
            &mut handle,
            &mut mount_id,
            0,
        )
    };
    assert_eq!(outcome, 0, "{}", std::io::Error::last_os_error());
    handle
}

fn open_handle(mount: &OwnedFd, handle: &Handle, flags: OFlags) -> Res<OwnedFd> {
    let flags = (flags | OFlags::CLOEXEC).bits() as i32;
    // SAFETY: valid pointers; the call reads the handle.
    let fd =
        unsafe { libc::syscall(libc::SYS_open_by_handle_at, mount.as_raw_fd(), handle, flags) };
    if fd < 0 {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap());
    }
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

#[test]
fn files_and_directories_after_the_caches_are_dropped() {
    let Some(mut m) = mount_only("") else { return };
    std::fs::create_dir_all(m.path("a/b/c")).unwrap();
    std::fs::write(m.path("a/b/c/file"), b"contents").unwrap();
    let file = handle(m.path("a/b/c/file"));
    let dir = handle(m.path("a/b/c"));
    for round in 0..3 {
        {
            let top = open(&m.dir, OFlags::DIRECTORY).unwrap();
            let opened = open_handle(&top, &file, OFlags::RDWR).unwrap();
            assert_eq!(pread(&opened, 0, 99), b"contents", "round {round}");
            let opened = open_handle(&top, &dir, OFlags::DIRECTORY).unwrap();
            let path = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd()));
            assert_eq!(path.unwrap(), m.path("a/b/c"), "round {round}");
        }
        match round {
            0 => drop_caches(),
            _ => m.remount(),
        }
    }
    // Renamed: the same file.
    rename(m.path("a/b/c"), m.path("elsewhere")).unwrap();
    drop_caches();
    let top = open(&m.dir, OFlags::DIRECTORY).unwrap();
    let opened = open_handle(&top, &file, OFlags::RDONLY).unwrap();
    assert_eq!(pread(&opened, 0, 99), b"contents");
    let opened = open_handle(&top, &dir, OFlags::DIRECTORY).unwrap();
    let path = std::fs::read_link(format!("/proc/self/fd/{}", opened.as_raw_fd())).unwrap();
    assert_eq!(path, m.path("elsewhere"));
}

#[test]
fn the_dead_are_stale() {
    let Some(m) = mount_only("") else { return };
    touch(m.path("file"));
    mkdir(m.path("dir"), 0o755).unwrap();
    let (file, dir) = (handle(m.path("file")), handle(m.path("dir")));
    unlink(m.path("file")).unwrap();
    rmdir(m.path("dir")).unwrap();
    drop_caches();
    let top = open(&m.dir, OFlags::DIRECTORY).unwrap();
    fails!(STALE, open_handle(&top, &file, OFlags::RDONLY));
    fails!(STALE, open_handle(&top, &dir, OFlags::RDONLY));
    // Reused numbers are other files.
    for number in 0..200 {
        touch(m.path(&format!("new{number}")));
    }
    fails!(STALE, open_handle(&top, &file, OFlags::RDONLY));
    drop_caches();
    fails!(STALE, open_handle(&top, &file, OFlags::RDONLY));
    fails!(STALE, open_handle(&top, &dir, OFlags::RDONLY));
}

#[test]
fn an_unlinked_open_file_can_be_opened_by_handle() {
    let Some(m) = mount_only("") else { return };
    std::fs::write(m.path("file"), b"contents").unwrap();
    let saved = handle(m.path("file"));
    let fd = open(m.path("file"), OFlags::RDONLY).unwrap();
    unlink(m.path("file")).unwrap();
    let top = open(&m.dir, OFlags::DIRECTORY).unwrap();
    // Linux file systems differ here: the open inode may be found or be stale already.
    match open_handle(&top, &saved, OFlags::RDONLY) {
        Ok(again) => assert_eq!(pread(&again, 0, 99), b"contents"),
        Err(errno) => assert_eq!(errno, Errno::STALE),
    }
    assert_eq!(pread(&fd, 0, 99), b"contents");
}
