//! Limits that `docs/posix.md` states, and the meaning of a directory's figures.

use crate::common::*;
use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use shoal_skip::wait_until;
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// Converts the result of a system call that returns -1 for an error.
fn outcome(value: i64) -> Res<i64> {
    match value {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap()),
        value => Ok(value),
    }
}

#[test]
fn no_swap_and_no_places_on_the_device() {
    let Some(m) = mount_only("") else { return };
    let file = m.path("file");
    std::fs::write(&file, pattern(1 << 20, 1)).unwrap();
    chmod(&file, 0o600);
    let path = CString::new(file.as_os_str().as_bytes()).unwrap();
    // SAFETY: a valid string and a number.
    fails!(INVAL, outcome(unsafe { libc::syscall(libc::SYS_swapon, path.as_ptr(), 0) }));
    let fd = open(&file, OFlags::RDONLY).unwrap();
    let mut block = 0i32;
    // SAFETY: FIBMAP (1) reads and writes one int.
    let mapped = unsafe { libc::ioctl(fd.as_raw_fd(), 1, &raw mut block) };
    assert_eq!((outcome(mapped.into()), block), (Ok(0), 0), "nowhere");
    let mut map = [0u64; 64];
    // SAFETY: FIEMAP reads and writes 32 bytes, and as many records as they say: none.
    let mapped = unsafe { libc::ioctl(fd.as_raw_fd(), 0xc020_660b, map.as_mut_ptr()) };
    fails!(OPNOTSUPP, outcome(mapped.into()));
}

#[test]
fn no_pieces_are_cut_out_or_put_in() {
    let Some(m) = mount_only("") else { return };
    let fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    pwrite(&fd, 0, &pattern(1 << 16, 1));
    for mode in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        fails!(OPNOTSUPP, rustix::fs::fallocate(&fd, mode, 4096, 4096));
    }
    assert_eq!(pread(&fd, 0, 1 << 17), pattern(1 << 16, 1));
}

#[test]
fn a_program_that_runs_cannot_be_written() {
    let Some(m) = mount("") else { return };
    let path = m.path("sleep");
    copy_program("/bin/sleep", &path);
    let mut child = Command::new(&path).arg("60").spawn().unwrap();
    let opened = open(&path, OFlags::WRONLY);
    child.kill().unwrap();
    child.wait().unwrap();
    fails!(TXTBSY, opened);
    open(&path, OFlags::WRONLY).unwrap();
}

#[test]
fn devices_and_set_id_bits_mean_nothing_by_default() {
    let Some(m) = mount_only("allow_other") else { return };
    let device = m.path("null");
    let bits = rustix::fs::Mode::from_raw_mode(0o666);
    let number = rustix::fs::makedev(1, 3);
    let kind = rustix::fs::FileType::CharacterDevice;
    rustix::fs::mknodat(rustix::fs::CWD, &device, kind, bits, number).unwrap();
    fails!(ACCESS, open(&device, OFlags::RDONLY));
    copy_program("/usr/bin/id", m.path("id"));
    chmod(m.path("id"), 0o4755);
    let id = Command::new("setpriv")
        .args(["--reuid=61001", "--clear-groups"])
        .arg(m.path("id"))
        .arg("-u")
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&id.stdout).trim(), "61001");
}

#[test]
fn figures_of_a_directory() {
    let Some(m) = mount_only("") else { return };
    mkdir(m.path("dir"), 0o755).unwrap();
    assert_eq!(stat(m.path("dir")).unwrap().st_size, 0);
    mkdir(m.path("dir/sub"), 0o755).unwrap();
    touch(m.path("dir/file"));
    let facts = stat(m.path("dir")).unwrap();
    // The number of names; the links are its name, its "." and each "..".
    assert_eq!((facts.st_size, facts.st_nlink), (2, 3));
}

#[test]
fn locks_are_seen_by_other_processes() {
    let Some(m) = mount("") else { return };
    let path = m.path("file");
    let fd = create(&path, OFlags::RDWR, 0o600).unwrap();
    // Asks another process whether it gets the lock.
    let free = || {
        let flock = Command::new("flock").arg("--nonblock").arg(&path).arg("true").status();
        flock.unwrap().success()
    };
    assert!(free());
    rustix::fs::flock(&fd, FlockOperation::LockExclusive).unwrap();
    assert!(!free());
    drop(fd);
    assert!(free(), "given back with the last descriptor");
}

#[test]
fn without_its_server_a_mount_answers_at_once() {
    let Some(mut m) = mount_only("") else { return };
    let fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    pwrite(&fd, 0, b"data");
    m.kill();
    // Rings are dismantled after the process, and return ECANCELED until then.
    let is_there = || stat(m.path("other")).unwrap_err() == Errno::CANCELED;
    wait_until("the rings are dismantled", || !is_there());
    fails!(NOTCONN, stat(m.path("other")));
    fails!(NOTCONN, rustix::io::pwrite(&fd, b"x", 0));
    fails!(NOTCONN, rustix::fs::fsync(&fd));
}
