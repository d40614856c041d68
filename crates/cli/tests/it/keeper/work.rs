//! Programs that work on a mount while its servers are killed. Each has a directory of its own, and
//! knows what every call must give: a call that fails, is made twice or is left out ends the test.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, XattrFlags};
use rustix::io::Errno;

/// State shared by the programs.
#[derive(Default)]
pub(super) struct Shared {
    /// They are to end.
    pub stop: AtomicBool,
    /// Calls made.
    pub calls: AtomicU64,
    /// Longest call since it was last taken, in microseconds.
    pub longest_us: AtomicU64,
}

/// One program's view; `D` is its directory.
pub(super) struct Work<'a, D> {
    shared: &'a Shared,
    pub(super) dir: D,
    random: u64,
}

/// A program: runs one piece of work.
pub(super) type Piece<D> = fn(&mut Work<'_, D>, u64);

/// All programs.
pub(super) const PROGRAMS: &[(&str, Piece<PathBuf>)] = &[
    ("names", names),
    ("contents", contents),
    ("unlinked", unlinked),
    ("attributes", attributes),
    ("directories", directories),
];

/// Runs a program until it is stopped.
pub(super) fn run(shared: &Shared, mount: &Path, number: usize) {
    let (name, piece) = PROGRAMS[number % PROGRAMS.len()];
    let dir = mount.join(format!("{name}-{number}"));
    fs::create_dir(&dir).expect("a directory");
    run_in(shared, dir, number, piece);
}

/// Runs a program in a directory until it is stopped.
pub(super) fn run_in<D>(shared: &Shared, dir: D, number: usize, piece: Piece<D>) {
    let mut work = Work { shared, dir, random: number as u64 * 2 + 1 };
    let mut round = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        piece(&mut work, round);
        round += 1;
    }
}

impl<D> Work<'_, D> {
    /// Makes a call, and measures it.
    pub(super) fn measured<T>(&self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let result = call();
        let took = begun.elapsed().as_micros() as u64;
        self.shared.longest_us.fetch_max(took, Ordering::Relaxed);
        self.shared.calls.fetch_add(1, Ordering::Relaxed);
        result
    }

    pub(super) fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 16) % below
    }
}

impl Work<'_, PathBuf> {
    fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        self.measured(call)
    }

    fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T, Errno>, errno: Errno) {
    assert_eq!(result.expect_err("it must be refused"), errno);
}

/// Names that are made, linked, moved and removed, each exactly once.
fn names(work: &mut Work<'_, PathBuf>, round: u64) {
    let (a, b, c) = (work.path(format!("a{round}")), work.path("b"), work.path("c"));
    let exclusive = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    let make = |path: &Path| rustix::fs::open(path, exclusive, Mode::RWXU);
    drop(work.call(|| make(&a)).expect("create"));
    refused(work.call(|| make(&a)), Errno::EXIST);
    work.call(|| fs::hard_link(&a, &b)).expect("link");
    refused(work.call(|| rustix::fs::link(&a, &b)), Errno::EXIST);
    assert_eq!(work.call(|| fs::metadata(&a)).expect("stat").nlink(), 2);
    work.call(|| fs::rename(&b, &c)).expect("rename");
    refused(work.call(|| rustix::fs::stat(&b)).map(drop), Errno::NOENT);
    work.call(|| symlink("a", &b)).expect("symlink");
    assert_eq!(work.call(|| fs::read_link(&b)).expect("readlink"), Path::new("a"));
    let flags = rustix::fs::RenameFlags::EXCHANGE;
    work.call(|| rustix::fs::renameat_with(CWD, &b, CWD, &c, flags)).expect("exchange");
    assert_eq!(work.call(|| fs::symlink_metadata(&b)).expect("stat").nlink(), 2);
    work.call(|| fs::remove_file(&c)).expect("unlink");
    refused(work.call(|| rustix::fs::unlink(&c)), Errno::NOENT);
    work.call(|| fs::remove_file(&b)).expect("unlink");
    assert_eq!(work.call(|| fs::metadata(&a)).expect("stat").nlink(), 1);
    if round % 50 == 49 {
        let listed = work.call(|| fs::read_dir(&work.dir).expect("list").count());
        assert_eq!(listed, 50);
        for n in round - 49..=round {
            let path = work.path(format!("a{n}"));
            work.call(|| fs::remove_file(path)).expect("unlink");
        }
    }
}

/// Contents compared with a copy in memory: writes and truncates anywhere.
fn contents(work: &mut Work<'_, PathBuf>, round: u64) {
    let path = work.path("file");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path);
    let file = work.call(|| file).expect("open");
    let mut copy = Vec::new();
    for step in 0..40 {
        let at = work.random(300_000) as usize;
        let len = 1 + work.random(40_000) as usize;
        match work.random(4) {
            0 => {
                work.call(|| file.set_len(at as u64)).expect("truncate");
                copy.resize(at, 0);
            }
            1 | 2 => {
                let bytes = vec![(round + step) as u8 | 1; len];
                work.call(|| file.write_all_at(&bytes, at as u64)).expect("write");
                copy.resize(copy.len().max(at + len), 0);
                copy[at..at + len].copy_from_slice(&bytes);
            }
            _ => {
                let mut bytes = vec![0; len];
                let end = copy.len().min(at + len);
                let expected = copy.get(at..end).unwrap_or_default();
                match work.call(|| file.read_exact_at(&mut bytes[..expected.len()], at as u64)) {
                    Ok(()) => assert!(bytes[..expected.len()] == *expected, "bytes at {at}"),
                    Err(error) => panic!("read at {at}: {error}"),
                }
            }
        }
        assert_eq!(work.call(|| file.metadata()).expect("stat").len(), copy.len() as u64);
    }
    if round.is_multiple_of(8) {
        work.call(|| file.sync_all()).expect("fsync");
    }
    drop(file);
    assert!(work.call(|| fs::read(&path)).expect("read") == copy, "the whole file");
}

/// Files that are in use and have no name.
fn unlinked(work: &mut Work<'_, PathBuf>, round: u64) {
    let path = work.path("gone");
    let large = round.is_multiple_of(3);
    let bytes = vec![round as u8 | 1; if large { 200_000 } else { 50 }];
    let open = || OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = work.call(open).expect("create");
    work.call(|| file.write_all_at(&bytes, 0)).expect("write");
    work.call(|| fs::remove_file(&path)).expect("unlink");
    let mut read = vec![0; bytes.len()];
    for n in 0..4 {
        work.call(|| file.read_exact_at(&mut read, 0)).expect("read without a name");
        assert!(read == bytes, "contents without a name");
        let facts = work.call(|| file.metadata()).expect("stat without a name");
        assert_eq!((facts.nlink(), facts.len()), (0, (bytes.len() + n) as u64));
        work.call(|| file.write_all_at(&[7], (bytes.len() + n) as u64)).expect("append");
    }
    drop(file);
    let unnamed = OFlags::TMPFILE | OFlags::RDWR;
    let unnamed = work.call(|| rustix::fs::open(&work.dir, unnamed, Mode::RUSR)).expect("tmpfile");
    work.call(|| rustix::io::pwrite(&unnamed, b"unnamed", 0)).expect("write");
    let by_descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&unnamed));
    let follow = AtFlags::SYMLINK_FOLLOW;
    work.call(|| rustix::fs::linkat(CWD, &by_descriptor, CWD, &path, follow)).expect("linkat");
    assert_eq!(work.call(|| fs::read(&path)).expect("read"), b"unnamed");
    work.call(|| fs::remove_file(&path)).expect("unlink");
}

/// Attributes, extended ones, times, locks.
fn attributes(work: &mut Work<'_, PathBuf>, round: u64) {
    let path = work.path("file");
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let file = work.call(|| file).expect("open");
    // A program that another test starts has a copy of the last descriptor for a moment.
    rustix::fs::flock(&file, FlockOperation::LockExclusive).expect("lock");
    let value = vec![round as u8; if round.is_multiple_of(5) { 3000 } else { 20 }];
    let set = |flags| rustix::fs::setxattr(&path, "user.name", &value, flags);
    work.call(|| set(XattrFlags::CREATE)).expect("setxattr");
    refused(work.call(|| set(XattrFlags::CREATE)), Errno::EXIST);
    let mut read = vec![0; 4000];
    let len = work.call(|| rustix::fs::getxattr(&path, "user.name", &mut read)).expect("getxattr");
    assert!(read[..len] == value, "the attribute's value");
    for mode in [0o600, 0o640, 0o755] {
        work.call(|| rustix::fs::chmod(&path, Mode::from_raw_mode(mode))).expect("chmod");
        let facts = work.call(|| fs::metadata(&path)).expect("stat");
        assert_eq!(facts.mode() & 0o7777, mode);
    }
    let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000 + round);
    work.call(|| file.set_modified(time)).expect("utimens");
    let facts = work.call(|| file.metadata()).expect("stat");
    assert_eq!(facts.modified().expect("a time"), time);
    work.call(|| rustix::fs::removexattr(&path, "user.name")).expect("removexattr");
    refused(work.call(|| rustix::fs::removexattr(&path, "user.name")), Errno::NODATA);
    let other = File::open(&path).expect("open");
    let locked = rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(locked, Err(Errno::WOULDBLOCK), "the lock is held");
}

/// Directories, listed and removed, one of them in use.
fn directories(work: &mut Work<'_, PathBuf>, round: u64) {
    let top = work.path(format!("d{round}"));
    work.call(|| fs::create_dir(&top)).expect("mkdir");
    refused(work.call(|| rustix::fs::mkdir(&top, Mode::RWXU)), Errno::EXIST);
    for n in 0..20 {
        let path = top.join(format!("f{n}"));
        work.call(|| fs::write(path, n.to_string())).expect("write");
    }
    work.call(|| fs::create_dir(top.join("sub"))).expect("mkdir");
    let held = work.call(|| File::open(top.join("sub"))).expect("open");
    let mut found: Vec<_> = work
        .call(|| fs::read_dir(&top))
        .expect("list")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 21);
    assert_eq!(work.call(|| fs::metadata(&top)).expect("stat").nlink(), 3);
    refused(work.call(|| rustix::fs::rmdir(&top)), Errno::NOTEMPTY);
    work.call(|| fs::remove_dir_all(&top)).expect("rm -r");
    refused(work.call(|| rustix::fs::stat(&top)).map(drop), Errno::NOENT);
    work.call(|| held.metadata()).expect("a directory without a name");
}
