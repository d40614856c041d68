//! Programs that work on a volume by sessions while its servers are killed. Each has a directory of
//! its own, and knows what every call must give: a call that fails, is made twice or is left out
//! ends the test.

use std::io::{ErrorKind, Write};

use shoal::{Dir, FileOptions};

use super::work::{Piece, Shared, Work, run_in};

/// All programs.
pub(super) const PROGRAMS: &[(&str, Piece<Dir>)] = &[
    ("names", names),
    ("appends", appends),
    ("contents", contents),
    ("unlinked", unlinked),
    ("whole", whole),
    ("directories", directories),
];

/// Runs a program below a directory until it is stopped.
pub(super) fn run(shared: &Shared, top: &Dir, number: usize) {
    let (name, piece) = PROGRAMS[number % PROGRAMS.len()];
    let dir = top.create_dir(format!("{name}-{number}")).expect("a directory");
    run_in(shared, dir, number, piece);
}

impl Work<'_, Dir> {
    fn call<T>(&self, call: impl FnOnce(&Dir) -> T) -> T {
        self.measured(|| call(&self.dir))
    }
}

#[track_caller]
fn refused<T>(result: shoal::Result<T>, kind: ErrorKind) {
    assert_eq!(result.map(drop).expect_err("it must be refused").kind(), kind);
}

/// Names that are made, linked, moved and removed, each exactly once.
fn names(work: &mut Work<'_, Dir>, round: u64) {
    let a = format!("a{round}");
    drop(work.call(|dir| dir.create_new(&a)).expect("create"));
    refused(work.call(|dir| dir.create_new(&a)), ErrorKind::AlreadyExists);
    work.call(|dir| dir.hard_link(&a, "b")).expect("link");
    refused(work.call(|dir| dir.hard_link(&a, "b")), ErrorKind::AlreadyExists);
    assert_eq!(work.call(|dir| dir.metadata(&a)).expect("stat").nlink(), 2);
    work.call(|dir| dir.rename("b", "c")).expect("rename");
    refused(work.call(|dir| dir.metadata("b")), ErrorKind::NotFound);
    work.call(|dir| dir.symlink("target", "b")).expect("symlink");
    assert_eq!(work.call(|dir| dir.read_link("b")).expect("readlink").as_os_str(), "target");
    work.call(|dir| dir.set_permissions(&a, 0o600)).expect("chmod");
    assert_eq!(work.call(|dir| dir.metadata("c")).expect("stat").permissions() & 0o7777, 0o600);
    work.call(|dir| dir.set_xattr_of("c", "user.name", round.to_string())).expect("setxattr");
    let value = work.call(|dir| dir.xattr_of(&a, "user.name")).expect("getxattr");
    assert_eq!(value, Some(round.to_string().into_bytes()));
    work.call(|dir| dir.remove_xattr_of("c", "user.name")).expect("removexattr");
    work.call(|dir| dir.remove_file("c")).expect("unlink");
    refused(work.call(|dir| dir.remove_file("c")), ErrorKind::NotFound);
    work.call(|dir| dir.remove_file("b")).expect("unlink");
    assert_eq!(work.call(|dir| dir.metadata(&a)).expect("stat").nlink(), 1);
    if round % 50 == 49 {
        let listed = work.call(|dir| dir.entries().expect("list").count());
        assert_eq!(listed, 50);
        for n in round - 49..=round {
            work.call(|dir| dir.remove_file(format!("a{n}"))).expect("unlink");
        }
    }
}

/// Lines at the end of a file, which stays open: each is there once, in order, where the call said.
fn appends(work: &mut Work<'_, Dir>, round: u64) {
    let name = format!("log{round}");
    let options = FileOptions::new().append(true).read(true).create_new(true);
    let mut file = work.call(|dir| options.open(dir, &name)).expect("create");
    let mut expected = Vec::new();
    for n in 0..60 {
        let mut line = format!("{round} {n} ").into_bytes();
        line.resize(line.len() + work.random(300) as usize, b'x');
        line.push(b'\n');
        work.call(|_| file.write_all(&line)).expect("append");
        expected.extend_from_slice(&line);
        let size = work.call(|_| file.metadata()).expect("stat").len();
        assert_eq!(size, expected.len() as u64, "line {n}");
        assert_eq!(std::io::Seek::stream_position(&mut file).expect("position"), size);
    }
    assert!(work.call(|dir| dir.read(&name)).expect("read") == expected, "the whole file");
    drop(file);
    work.call(|dir| dir.remove_file(&name)).expect("unlink");
}

/// Contents compared with a copy in memory: writes and truncates anywhere.
fn contents(work: &mut Work<'_, Dir>, round: u64) {
    let options = FileOptions::new().read(true).write(true).create(true).truncate(true);
    let file = work.call(|dir| options.open(dir, "file")).expect("open");
    let mut copy = Vec::new();
    for step in 0..30 {
        let at = work.random(300_000) as usize;
        let len = 1 + work.random(40_000) as usize;
        match work.random(4) {
            0 => {
                work.call(|_| file.set_len(at as u64)).expect("truncate");
                copy.resize(at, 0);
            }
            1 | 2 => {
                let bytes = vec![(round + step) as u8 | 1; len];
                work.call(|_| file.write_all_at(&bytes, at as u64)).expect("write");
                copy.resize(copy.len().max(at + len), 0);
                copy[at..at + len].copy_from_slice(&bytes);
            }
            _ => {
                let end = copy.len().min(at + len);
                let expected = copy.get(at..end).unwrap_or_default();
                let mut bytes = vec![0; expected.len()];
                work.call(|_| file.read_exact_at(&mut bytes, at as u64)).expect("read");
                assert!(bytes == *expected, "bytes at {at}");
            }
        }
        assert_eq!(work.call(|_| file.metadata()).expect("stat").len(), copy.len() as u64);
    }
    if round.is_multiple_of(8) {
        work.call(|_| file.sync_all()).expect("fsync");
    }
    assert!(work.call(|dir| dir.read("file")).expect("read") == copy, "the whole file");
}

/// Files that are in use and have no name.
fn unlinked(work: &mut Work<'_, Dir>, round: u64) {
    let large = round.is_multiple_of(3);
    let bytes = vec![round as u8 | 1; if large { 200_000 } else { 50 }];
    let options = FileOptions::new().read(true).write(true).create_new(true);
    let file = work.call(|dir| options.open(dir, "gone")).expect("create");
    work.call(|_| file.write_all_at(&bytes, 0)).expect("write");
    work.call(|dir| dir.remove_file("gone")).expect("unlink");
    let mut read = vec![0; bytes.len()];
    for n in 0..6 {
        work.call(|_| file.read_exact_at(&mut read, 0)).expect("read without a name");
        assert!(read == bytes, "contents without a name");
        let facts = work.call(|_| file.metadata()).expect("stat without a name");
        assert_eq!((facts.nlink(), facts.len()), (0, (bytes.len() + n) as u64));
        work.call(|_| file.write_all_at(&[7], (bytes.len() + n) as u64)).expect("append");
    }
}

/// Whole files, and several changes as one.
fn whole(work: &mut Work<'_, Dir>, round: u64) {
    let bytes = vec![round as u8; 1 + work.random(30_000) as usize];
    work.call(|dir| dir.write("file", &bytes)).expect("write");
    assert!(work.call(|dir| dir.read("file")).expect("read") == bytes);
    // A part of it must stay if the file is not cut a second time.
    work.call(|dir| dir.write("file", "short")).expect("write");
    assert_eq!(work.call(|dir| dir.read("file")).expect("read"), b"short");
    let changes = |dir: &Dir| {
        dir.batch(|batch| {
            batch.create_new("one", "1")?;
            batch.hard_link("one", "two")?;
            batch.rename("file", "three")
        })
    };
    work.call(changes).expect("batch");
    refused(work.call(changes), ErrorKind::AlreadyExists);
    assert_eq!(work.call(|dir| dir.metadata("one")).expect("stat").nlink(), 2);
    for name in ["one", "two", "three"] {
        work.call(|dir| dir.remove_file(name)).expect("unlink");
    }
    // Longer than one question.
    if round.is_multiple_of(4) {
        let long: Vec<u8> = (0..2_500_000u32).map(|n| (u64::from(n) * 7 + round) as u8).collect();
        work.call(|dir| dir.write("long", &long)).expect("write");
        assert!(work.call(|dir| dir.read("long")).expect("read") == long);
        work.call(|dir| dir.remove_file("long")).expect("unlink");
    }
}

/// Directories, listed and removed, one of them in use.
fn directories(work: &mut Work<'_, Dir>, round: u64) {
    let top = format!("d{round}");
    let dir = work.call(|dir| dir.create_dir(&top)).expect("mkdir");
    refused(work.call(|dir| dir.create_dir(&top)), ErrorKind::AlreadyExists);
    for n in 0..20 {
        work.call(|_| dir.write(format!("f{n}"), n.to_string())).expect("write");
    }
    let held = work.call(|_| dir.create_dir_all("sub/below")).expect("mkdirs");
    let entries = work.call(|_| dir.entries().expect("list"));
    let mut found: Vec<_> =
        entries.map(|entry| entry.expect("an entry").name().to_owned()).collect();
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 21);
    assert_eq!(work.call(|work| work.metadata(&top)).expect("stat").nlink(), 3);
    refused(work.call(|work| work.remove_dir(&top)), ErrorKind::DirectoryNotEmpty);
    work.call(|work| work.remove_dir_all(&top)).expect("rm -r");
    refused(work.call(|work| work.metadata(&top)), ErrorKind::NotFound);
    work.call(|_| held.metadata(".")).expect("a directory without a name");
}
