//! Privileges that a change of a file's contents or owner takes away: set-id bits, unless the
//! caller may keep them (`CAP_FSETID`, as root), and capabilities always.

use crate::common::*;
use rustix::fs::{FallocateFlags, OFlags, XattrFlags};
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// A capability to use raw sockets.
const CAPABILITY: &[u8] = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
const NAME: &str = "security.capability";

/// Bytes that `O_DIRECT` takes.
#[repr(align(4096))]
struct Page([u8; 4096]);

type Way = fn(file: &Path, source: &OwnedFd) -> Res<()>;

fn rw(path: &Path) -> Res<OwnedFd> {
    open(path, OFlags::RDWR)
}

fn allocate(path: &Path, mode: FallocateFlags, len: u64) -> Res<()> {
    rustix::fs::fallocate(rw(path)?, mode, 0, len)
}

/// Returns the result of a system call that transfers bytes.
fn moved(result: isize) -> Res<()> {
    match result {
        1.. => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
    }
}

/// The ways to change contents.
const WAYS: [(&str, Way); 13] = [
    ("write", |file, _| rustix::io::write(rw(file)?, b"new").map(drop)),
    ("append", |file, _| {
        let fd = open(file, OFlags::WRONLY | OFlags::APPEND)?;
        rustix::io::writev(fd, &[IoSlice::new(b"a"), IoSlice::new(b"b")]).map(drop)
    }),
    ("pwrite", |file, _| rustix::io::pwrite(rw(file)?, b"new", 4090).map(drop)),
    ("O_DIRECT", |file, _| {
        let (fd, page) = (open(file, OFlags::WRONLY | OFlags::DIRECT)?, Page([7; 4096]));
        rustix::io::pwrite(fd, &page.0, 0).map(drop)
    }),
    ("O_TRUNC", |file, _| open(file, OFlags::WRONLY | OFlags::TRUNC).map(drop)),
    ("truncate", |file, _| truncate(file, 100)),
    ("ftruncate to the same size", |file, _| rustix::fs::ftruncate(rw(file)?, 8192)),
    ("fallocate", |file, _| allocate(file, FallocateFlags::empty(), 20_000)),
    ("fallocate, size kept", |file, _| allocate(file, FallocateFlags::KEEP_SIZE, 20_000)),
    ("punch", |file, _| {
        allocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 4096)
    }),
    ("copy_file_range", |file, source| {
        let mut at = 0;
        rustix::fs::copy_file_range(source, Some(&mut at), rw(file)?, None, 4096).map(drop)
    }),
    ("sendfile", |file, source| {
        let (fd, mut at) = (rw(file)?, 0);
        // SAFETY: two descriptors and the address of a number.
        moved(unsafe { libc::sendfile(fd.as_raw_fd(), source.as_raw_fd(), &raw mut at, 100) })
    }),
    ("splice", |file, _| {
        let (from, to) = std::io::pipe().unwrap();
        rustix::io::write(&to, b"spliced")?;
        let (fd, mut at) = (rw(file)?, 0);
        let null = std::ptr::null_mut();
        // SAFETY: two descriptors and the address of a number.
        moved(unsafe { libc::splice(from.as_raw_fd(), null, fd.as_raw_fd(), &raw mut at, 7, 0) })
    }),
];

fn has_capability(path: &Path) -> bool {
    match rustix::fs::getxattr(path, NAME, &mut [0u8; 64][..]) {
        Ok(_) => true,
        Err(errno) => {
            assert_eq!(errno, Errno::NODATA);
            false
        }
    }
}

/// Creates a file of root's.
fn prepared(path: &Path, mode: u32, capability: bool) {
    std::fs::write(path, [b'o'; 8192]).unwrap();
    chmod(path, mode);
    if capability {
        rustix::fs::setxattr(path, NAME, CAPABILITY, XattrFlags::empty()).unwrap();
    }
}

#[test]
fn each_way_to_change_contents() {
    for kind in ["allow_other,suid", "allow_other,suid,no_default_permissions"] {
        let Some(m) = mount(kind) else { return };
        std::fs::write(m.path("source"), [b's'; 8192]).unwrap();
        let source = open(m.path("source"), OFlags::RDONLY).unwrap();
        let file = m.path("file");
        for mode_before in [0o6777, 0o4777, 0o2777, 0o2767, 0o777] {
            for capability in [false, true] {
                for (name, way) in WAYS {
                    let what = format!("{kind}: {name}, {mode_before:o}, {capability}");
                    prepared(&file, mode_before, capability);
                    way(&file, &source).unwrap();
                    assert_eq!(mode(&file), mode_before, "{what}, root");
                    assert!(!has_capability(&file), "{what}, root");
                    std::fs::remove_file(&file).unwrap();
                    prepared(&file, mode_before, capability);
                    as_user(USER, &[], || way(&file, &source))
                        .unwrap_or_else(|errno| panic!("{what}, a user: {errno}"));
                    assert_eq!(mode(&file), mode_before & 0o777, "{what}, a user");
                    assert!(!has_capability(&file), "{what}, a user");
                    std::fs::remove_file(&file).unwrap();
                }
            }
        }
    }
}

/// Its writes come without the question for capabilities that precedes others.
#[test]
fn the_descriptor_that_has_made_the_file() {
    for kind in ["allow_other,suid", "allow_other,suid,no_default_permissions"] {
        let Some(m) = mount(kind) else { return };
        let file = m.path("file");
        for by_root in [true, false] {
            let fd = create(&file, OFlags::WRONLY, 0o600).unwrap();
            for at in 0..3 {
                chmod(&file, 0o6777);
                rustix::fs::setxattr(&file, NAME, CAPABILITY, XattrFlags::empty()).unwrap();
                assert!(has_capability(&file));
                match by_root {
                    true => pwrite(&fd, at * 100, b"new"),
                    false => as_user(USER, &[], || pwrite(&fd, at * 100, b"new")),
                }
                let kept = if by_root { 0o6777 } else { 0o777 };
                assert_eq!(mode(&file), kept, "{kind}, {by_root}, {at}");
                assert!(!has_capability(&file), "{kind}, {by_root}, {at}");
            }
            std::fs::remove_file(&file).unwrap();
        }
    }
}

#[test]
fn a_change_of_the_owner() {
    let Some(m) = mount("allow_other,suid") else { return };
    let file = m.path("file");
    for (before, after) in [(0o6755, 0o755), (0o2644, 0o2644), (0o4644, 0o644)] {
        for capability in [false, true] {
            prepared(&file, before, capability);
            try_chown(&file, Some(7), None).unwrap();
            assert_eq!(mode(&file), after, "{before:o}, {capability}");
            assert!(!has_capability(&file), "{before:o}");
            std::fs::remove_file(&file).unwrap();
        }
        // Neither owner nor group.
        prepared(&file, before, false);
        try_chown(&file, None, None).unwrap();
        assert_eq!(mode(&file), after, "{before:o}, to nobody");
        std::fs::remove_file(&file).unwrap();
    }
}
