//! Files that are made to be written: their descriptor bypasses the page cache, others do not.

use crate::common::*;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::ReadWriteFlags;
use shoal::raw::Caller;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const MADE: OFlags = OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL);

/// Requests so far, by the name of their kind.
fn requests(m: &TestMount, name: &str) -> u64 {
    let all = calls(dir(&m.dir)).operations(&Caller::root(), 0).unwrap();
    let of = |it: &shoal_session::Operation| (it.name == name).then_some(it.timing.count());
    all.iter().find_map(of).unwrap_or(0)
}

/// Through the page cache they were three requests of WRITE, and one of GETXATTR.
#[test]
fn a_write_is_one_request() {
    let Some(m) = mount_only("") else { return };
    if on_rings() {
        return skipped("by rings writes go through the page cache");
    }
    let before = ["write", "getxattr"].map(|name| requests(&m, name));
    let fd = create(m.path("file"), OFlags::WRONLY, 0o600).unwrap();
    for n in 0..4 {
        pwrite(&fd, n * 10_240, &pattern(10_240, n));
    }
    let after = ["write", "getxattr"].map(|name| requests(&m, name));
    assert_eq!([after[0] - before[0], after[1] - before[1]], [4, 0]);
    let all: Vec<u8> = (0..4).flat_map(|n| pattern(10_240, n)).collect();
    assert!(std::fs::read(m.path("file")).unwrap() == all);
}

/// Each piece ends within a page that a reader already has.
#[test]
fn what_was_read_while_it_was_shorter_is_read_again() {
    let Some(m) = mount("") else { return };
    for flags in [MADE, MADE | OFlags::APPEND, MADE | OFlags::DSYNC] {
        let path = m.path("file");
        let fd = create(&path, flags, 0o600).unwrap();
        let reader = open(&path, OFlags::RDONLY).unwrap();
        let mut expected = Vec::new();
        for n in 0..200u64 {
            let piece = pattern(1 + (n as usize * 37) % 300, n);
            assert_eq!(rustix::io::write(&fd, &piece).unwrap(), piece.len());
            expected.extend(piece);
            assert!(pread(&reader, 0, 1 << 17) == expected, "{flags:?}, piece {n}");
        }
        // In the middle, too.
        if !flags.contains(OFlags::APPEND) {
            pwrite(&fd, 5000, b"changed");
            assert_eq!(pread(&reader, 5000, 7), b"changed");
        }
        unlink(&path).unwrap();
    }
}

/// Readers fill pages all the time; each write that has returned is read by its writer.
#[test]
fn what_has_been_written_is_read_beside_readers() {
    let Some(m) = mount("") else { return };
    let (path, stop, reads) = (m.path("file"), AtomicBool::new(false), AtomicUsize::new(0));
    let fd = create(&path, MADE, 0o600).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let file = open(&path, OFlags::RDONLY).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    pread(&file, 0, 1 << 16);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let own = open(&path, OFlags::RDONLY).unwrap();
        let mut stale = None;
        let mut expected = Vec::new();
        for round in 0..600u64 {
            let at = (round as usize * 113) % 40_000;
            let piece = pattern(64, round);
            pwrite(&fd, at as u64, &piece);
            expected.resize(expected.len().max(at + 64), 0);
            expected[at..at + 64].copy_from_slice(&piece);
            if pread(&own, 0, 1 << 16) != expected {
                stale = Some(round);
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(stale, None, "round");
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
}

/// A mapping of another descriptor shows each write.
#[test]
fn a_mapping_shows_what_is_written() {
    let Some(m) = mount("") else { return };
    let path = m.path("file");
    let fd = create(&path, MADE, 0o600).unwrap();
    pwrite(&fd, 0, &[1; 8192]);
    let reader = open(&path, OFlags::RDONLY).unwrap();
    let (null, protection) = (std::ptr::null_mut(), rustix::mm::ProtFlags::READ);
    let flags = rustix::mm::MapFlags::SHARED;
    // SAFETY: a new mapping, at an address of the kernel's choice.
    let map = unsafe { rustix::mm::mmap(null, 8192, protection, flags, &reader, 0).unwrap() };
    let map = map.cast::<u8>();
    for n in 2..100u8 {
        pwrite(&fd, 4000, &[n; 200]);
        // SAFETY: within the mapping, whose file is as long.
        let [first, last] = [4000, 4199].map(|at| unsafe { map.add(at).read_volatile() });
        assert_eq!([first, last], [n, n]);
    }
    // SAFETY: nothing refers to the mapping any more.
    unsafe { rustix::mm::munmap(map.cast(), 8192).unwrap() };
}

fn write_synced(fd: impl AsFd, data: &[u8]) {
    let written = rustix::io::pwritev2(fd, &[IoSlice::new(data)], 0, ReadWriteFlags::DSYNC);
    assert_eq!(written.unwrap(), data.len());
}

/// The kernel leaves that to the server for such a descriptor, and for one by a token.
#[test]
fn a_synchronous_write_is_durable_when_it_returns() {
    let Some(mut m) = mount_only("open") else { return };
    let survives = |m: &mut TestMount, open: OwnedFd, name: &str, data: &[u8]| {
        drop(open);
        m.kill();
        shoal_fuse::unmount_lazy(&m.dir).unwrap();
        m.start(0);
        assert_eq!(std::fs::read(m.path(name)).unwrap(), data, "{name}");
    };
    let fd = create(m.path("flag"), MADE, 0o600).unwrap();
    write_synced(&fd, b"by a flag of the call");
    survives(&mut m, fd, "flag", b"by a flag of the call");
    let fd = create(m.path("open"), MADE | OFlags::DSYNC, 0o600).unwrap();
    pwrite(&fd, 0, b"by a flag of the file");
    survives(&mut m, fd, "open", b"by a flag of the file");
    std::fs::write(m.path("token"), "-").unwrap();
    let rights = shoal::raw::Rights::READ | shoal::raw::Rights::WRITE;
    let hour = std::time::Duration::from_secs(3600);
    let opened = calls(open(m.path("token"), OFlags::RDONLY).unwrap());
    let top = shoal_session::Node::TOP;
    let token = opened.share(&Caller::root(), top, b"", rights, hour).unwrap();
    let name = m.path(".shoal-open").join(token.to_string());
    let fd = open(name, OFlags::WRONLY | OFlags::DSYNC).unwrap();
    pwrite(&fd, 0, b"by a token");
    survives(&mut m, fd, "token", b"by a token");
}

/// Flags may change after the file was made, and its descriptor be passed on.
#[test]
fn appends_after_all_and_copies_of_the_descriptor() {
    let Some(m) = mount("") else { return };
    let path = m.path("file");
    let fd = create(&path, MADE, 0o600).unwrap();
    pwrite(&fd, 0, b"first ");
    let other = open(&path, OFlags::WRONLY).unwrap();
    pwrite(&other, 6, b"second ");
    let flags = fcntl_getfl(&fd).unwrap();
    fcntl_setfl(&fd, flags | OFlags::APPEND).unwrap();
    let copy = rustix::io::dup(&fd).unwrap();
    for fd in [&fd, &copy] {
        assert_eq!(rustix::io::write(fd, b"end ").unwrap(), 4);
    }
    pwrite(&other, 0, b"FIRST");
    assert_eq!(std::fs::read(&path).unwrap(), b"FIRST second end end ");
    truncate(&path, 6).unwrap();
    assert_eq!(rustix::io::write(&copy, b"last").unwrap(), 4);
    assert_eq!(std::fs::read(&path).unwrap(), b"FIRST last");
    fails!(BADF, rustix::io::read(&fd, &mut [0; 1]));
}
