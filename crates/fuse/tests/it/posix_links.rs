//! Symbolic links.

use crate::common::*;
use rustix::fs::OFlags;

fn readlink(path: impl AsRef<std::path::Path>) -> Res<Vec<u8>> {
    rustix::fs::readlink(path.as_ref(), Vec::new()).map(|target| target.into_bytes())
}

#[test]
fn targets_of_all_lengths() {
    let Some(mut m) = mount("") else { return };
    let lengths = [1, 2, 59, 60, 61, 200, 255, 256, 300, 400, 500, 1000, 2000, 4000, 4095];
    for length in lengths {
        symlink("t".repeat(length), m.path(&length.to_string())).unwrap();
    }
    for round in 0..2 {
        for length in lengths {
            let path = m.path(&length.to_string());
            assert_eq!(readlink(&path).unwrap(), vec![b't'; length], "round {round}");
            let facts = lstat(&path).unwrap();
            assert_eq!(facts.st_size, length as i64);
            assert_eq!(facts.st_mode, 0o120_777);
        }
        m.remount();
    }
    fails!(NOENT, symlink("", m.path("empty")));
    fails!(NAMETOOLONG, symlink("t".repeat(4096), m.path("longer")));
    touch(m.path("file"));
    fails!(INVAL, readlink(m.path("file")));
    fails!(INVAL, readlink(&m.dir));
    fails!(NOENT, readlink(m.path("none")));
}

#[test]
fn chains_and_loops() {
    let Some(m) = mount("") else { return };
    std::fs::write(m.path("0"), b"end").unwrap();
    for number in 1..=41 {
        symlink((number - 1).to_string(), m.path(&number.to_string())).unwrap();
    }
    assert_eq!(std::fs::read(m.path("40")).unwrap(), b"end");
    fails!(LOOP, open(m.path("41"), OFlags::RDONLY));
    symlink("loop-b", m.path("loop-a")).unwrap();
    symlink("loop-a", m.path("loop-b")).unwrap();
    symlink("self", m.path("self")).unwrap();
    fails!(LOOP, open(m.path("loop-a"), OFlags::RDONLY));
    fails!(LOOP, stat(m.path("self")));
    fails!(LOOP, create(m.path("self/file"), OFlags::WRONLY, 0o600));
    lstat(m.path("self")).unwrap();
    unlink(m.path("self")).unwrap();
}

#[test]
fn through_directories() {
    let Some(m) = mount("") else { return };
    std::fs::create_dir_all(m.path("real/sub")).unwrap();
    symlink("real", m.path("relative")).unwrap();
    symlink(m.path("real"), m.path("absolute")).unwrap();
    symlink("../relative/sub", m.path("real/up")).unwrap();
    touch(m.path("relative/sub/one"));
    touch(m.path("absolute/up/two"));
    assert_eq!(list(m.path("real/sub")), ["one", "two"]);
    fails!(NOTDIR, rmdir(m.path("relative")));
    assert_eq!(lstat(m.path("relative/")).unwrap().st_mode & 0o170_000, 0o040_000);
}
