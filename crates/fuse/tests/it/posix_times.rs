//! Times, `statx`, `statvfs`.

use crate::common::*;
use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use shoal_skip::tick;
use std::path::Path;

fn utimens(path: impl AsRef<Path>, atime: (i64, i64), mtime: (i64, i64)) -> Res<()> {
    let time = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: time(atime), last_modification: time(mtime) };
    rustix::fs::utimensat(CWD, path.as_ref(), &times, AtFlags::SYMLINK_NOFOLLOW)
}

fn times(path: impl AsRef<Path>) -> [(i64, i64); 3] {
    let facts = lstat(path).unwrap();
    [
        (facts.st_atime as i64, facts.st_atime_nsec as i64),
        (facts.st_mtime as i64, facts.st_mtime_nsec as i64),
        (facts.st_ctime as i64, facts.st_ctime_nsec as i64),
    ]
}

const ATIME: usize = 0;
const MTIME: usize = 1;
const CTIME: usize = 2;

#[test]
fn set_by_hand() {
    let Some(mut m) = mount("") else { return };
    touch(m.path("file"));
    symlink("file", m.path("link")).unwrap();
    mkdir(m.path("dir"), 0o755).unwrap();
    for name in ["file", "link", "dir"] {
        let path = m.path(name);
        utimens(&path, (1_000_000_000, 123_456_789), (2_000_000_000, 987_654_321)).unwrap();
        let before = times(&path);
        assert_eq!(before[ATIME], (1_000_000_000, 123_456_789), "{name}");
        assert_eq!(before[MTIME], (2_000_000_000, 987_654_321), "{name}");
        utimens(&path, (0, UTIME_OMIT), (5, 6)).unwrap();
        assert_eq!(times(&path)[..2], [(1_000_000_000, 123_456_789), (5, 6)], "{name}");
        // Before 1970 and after 2106.
        utimens(&path, (-1_000_000, 999_999_999), (6_000_000_000, 0)).unwrap();
        assert_eq!(times(&path)[..2], [(-1_000_000, 999_999_999), (6_000_000_000, 0)], "{name}");
        utimens(&path, (0, UTIME_OMIT), (0, UTIME_NOW)).unwrap();
        let now = times(&path);
        assert_eq!(now[ATIME], (-1_000_000, 999_999_999), "{name}");
        assert!(now[MTIME].0 > 1_600_000_000, "{name}");
    }
    utimens(m.path("file"), (7, 8), (-9, 10)).unwrap();
    m.remount();
    assert_eq!(times(m.path("file"))[..2], [(7, 8), (-9, 10)]);
    fails!(INVAL, utimens(m.path("file"), (0, 1_000_000_000), (0, 0)));
    fails!(NOENT, utimens(m.path("none"), (0, 0), (0, 0)));
}

/// Times of the inode and of its directory that each call changes.
#[test]
fn set_by_calls() {
    let Some(m) = mount("") else { return };
    let dir = m.path("dir");
    let file = m.path("dir/file");
    mkdir(&dir, 0o755).unwrap();
    let moved = |path: &Path, call: &dyn Fn()| {
        let before = times(path);
        tick();
        call();
        let after = times(path);
        [before[MTIME] != after[MTIME], before[CTIME] != after[CTIME]]
    };
    assert_eq!(moved(&dir, &|| touch(&file)), [true, true], "create");
    assert_eq!(moved(&dir, &|| std::fs::write(&file, b"x").unwrap()), [false, false], "write");
    assert_eq!(moved(&file, &|| std::fs::write(&file, b"xy").unwrap()), [true, true], "write");
    assert_eq!(moved(&file, &|| chmod(&file, 0o600)), [false, true], "chmod");
    assert_eq!(moved(&file, &|| chown(&file, 1, 1)), [false, true], "chown");
    assert_eq!(moved(&file, &|| truncate(&file, 1).unwrap()), [true, true], "truncate");
    let other = m.path("dir/other");
    assert_eq!(moved(&file, &|| link(&file, &other).unwrap()), [false, true], "link");
    assert_eq!(moved(&file, &|| unlink(&other).unwrap()), [false, true], "unlink of a link");
    let sub = m.path("dir/sub");
    assert_eq!(moved(&dir, &|| mkdir(&sub, 0o755).unwrap()), [true, true], "mkdir");
    assert_eq!(moved(&dir, &|| symlink("x", &other).unwrap()), [true, true], "symlink");
    assert_eq!(moved(&dir, &|| rename(&other, sub.join("o")).unwrap()), [true, true], "rename");
    assert_eq!(moved(&sub, &|| rename(sub.join("o"), &other).unwrap()), [true, true], "rename");
    assert_eq!(moved(&dir, &|| rmdir(&sub).unwrap()), [true, true], "rmdir");
    assert_eq!(moved(&dir, &|| unlink(&other).unwrap()), [true, true], "unlink");
    let renamed = m.path("renamed");
    let before = times(&file);
    tick();
    rename(&file, &renamed).unwrap();
    let after = times(&renamed);
    assert_eq!(before[MTIME], after[MTIME]);
    assert_ne!(before[CTIME], after[CTIME], "rename changes the inode");
    assert_eq!(moved(&renamed, &|| drop(std::fs::read(&renamed))), [false, false], "read");
}

#[test]
fn access_times() {
    for (options, moves) in [("", true), ("noatime", false)] {
        let Some(m) = mount_only(options) else { return };
        let file = m.path("file");
        std::fs::write(&file, b"contents").unwrap();
        utimens(&file, (1000, 0), (2000, 0)).unwrap();
        drop_caches();
        let fd = open(&file, OFlags::RDONLY | OFlags::NOATIME).unwrap();
        assert_eq!(pread(&fd, 0, 8), b"contents");
        assert_eq!(times(&file)[ATIME].0, 1000, "{options}");
        drop(fd);
        drop_caches();
        std::fs::read(&file).unwrap();
        assert_eq!(times(&file)[ATIME].0 > 1000, moves, "{options}");
    }
}

#[test]
fn birth() {
    let Some(m) = mount("") else { return };
    touch(m.path("file"));
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let facts = |path: &Path| rustix::fs::statx(CWD, path, AtFlags::empty(), wanted).unwrap();
    let born = facts(&m.path("file")).stx_btime;
    assert!(born.tv_sec > 1_600_000_000);
    tick();
    std::fs::write(m.path("file"), b"later").unwrap();
    utimens(m.path("file"), (1, 1), (1, 1)).unwrap();
    rename(m.path("file"), m.path("other")).unwrap();
    let later = facts(&m.path("other"));
    assert_eq!((later.stx_btime.tv_sec, later.stx_btime.tv_nsec), (born.tv_sec, born.tv_nsec));
    assert_eq!(later.stx_size, 5);
    assert!(StatxFlags::from_bits_retain(later.stx_mask).contains(wanted));
}

/// The kernel stops asking, and shows everything else.
#[test]
fn without_times_of_birth() {
    let Some(m) = mount("no_btime") else { return };
    std::fs::write(m.path("file"), b"contents").unwrap();
    utimens(m.path("file"), (1, 1), (2, 2)).unwrap();
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    for flags in [AtFlags::empty(), AtFlags::STATX_FORCE_SYNC] {
        let facts = rustix::fs::statx(CWD, m.path("file"), flags, wanted).unwrap();
        let mask = StatxFlags::from_bits_retain(facts.stx_mask);
        assert!(mask.contains(StatxFlags::BASIC_STATS) && !mask.contains(StatxFlags::BTIME));
        assert_eq!((facts.stx_size, facts.stx_mtime.tv_sec), (8, 2));
    }
}

#[test]
fn figures_of_the_volume() {
    let Some(m) = mount_only("") else { return };
    let before = rustix::fs::statvfs(&m.dir).unwrap();
    assert_eq!(before.f_namemax, 255);
    assert!(before.f_blocks * before.f_frsize > 200 << 20);
    assert!(before.f_bavail <= before.f_bfree && before.f_bfree <= before.f_blocks);
    assert!(before.f_files >= before.f_ffree && before.f_ffree > 1000);
    for number in 0..100 {
        touch(m.path(&number.to_string()));
    }
    std::fs::write(m.path("big"), pattern(16 << 20, 1)).unwrap();
    shoal_fuse::sync(&m.dir).unwrap();
    let after = rustix::fs::statvfs(&m.dir).unwrap();
    let inodes = |facts: &rustix::fs::StatVfs| facts.f_files - facts.f_ffree;
    assert_eq!(inodes(&after), inodes(&before) + 101);
    let taken = (before.f_bavail - after.f_bavail.min(before.f_bavail)) * after.f_frsize;
    assert!(taken >= 15 << 20, "{taken}");
}

#[test]
fn a_file_open_for_long_shows_its_size() {
    let Some(m) = mount("") else { return };
    let fd = create(m.path("file"), OFlags::RDWR, 0o600).unwrap();
    for number in 1..=50 {
        rustix::io::write(&fd, &[b'x'; 100]).unwrap();
        assert_eq!(stat(m.path("file")).unwrap().st_size, number * 100);
        assert_eq!(rustix::fs::fstat(&fd).unwrap().st_size, number * 100);
    }
}
