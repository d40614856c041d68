//! `rename` and `renameat2`: the matrix of types, and the refusals.

use crate::common::*;
use rustix::fs::{CWD, RenameFlags};
use std::path::Path;

fn rename2(from: impl AsRef<Path>, to: impl AsRef<Path>, flags: RenameFlags) -> Res<()> {
    rustix::fs::renameat_with(CWD, from.as_ref(), CWD, to.as_ref(), flags)
}

#[test]
fn onto_nothing() {
    let Some(m) = mount("") else { return };
    mkdir(m.path("a"), 0o755).unwrap();
    mkdir(m.path("b"), 0o755).unwrap();
    std::fs::write(m.path("a/file"), b"f").unwrap();
    symlink("target", m.path("a/link")).unwrap();
    mkdir(m.path("a/dir"), 0o755).unwrap();
    touch(m.path("a/dir/inside"));
    for name in ["file", "link", "dir"] {
        let before = lstat(m.path("a").join(name)).unwrap();
        rename(m.path("a").join(name), m.path("b").join(name)).unwrap();
        fails!(NOENT, lstat(m.path("a").join(name)));
        assert_eq!(lstat(m.path("b").join(name)).unwrap().st_ino, before.st_ino);
    }
    assert_eq!(list(m.path("b")), ["dir", "file", "link"]);
    assert_eq!(list(m.path("b/dir")), ["inside"]);
    let (a, b) = (stat(m.path("a")).unwrap(), stat(m.path("b")).unwrap());
    if !m.is_native() || a.st_nlink != 1 {
        assert_eq!((a.st_nlink, b.st_nlink), (2, 3));
    }
    let parent = stat(m.path("b/dir/..")).unwrap();
    assert_eq!(parent.st_ino, b.st_ino, "the moved directory knows its parent");
    fails!(NOENT, rename(m.path("none"), m.path("x")));
    fails!(NOENT, rename(m.path("b/file"), m.path("none/x")));
    fails!(NOTDIR, rename(m.path("b/link"), m.path("b/file/x")));
}

/// Outcome of a rename of a row onto a column; all in one directory and across two.
#[test]
fn matrix_of_types() {
    let Some(m) = mount("") else { return };
    let make = |path: &Path, kind: &str| match kind {
        "file" => std::fs::write(path, kind).unwrap(),
        "link" => symlink("nowhere", path).unwrap(),
        "fifo" => {
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(CWD, path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        }
        "empty" => mkdir(path, 0o755).unwrap(),
        "full" => {
            mkdir(path, 0o755).unwrap();
            touch(path.join("inside"));
        }
        _ => unreachable!(),
    };
    let kinds = ["file", "link", "fifo", "empty", "full"];
    for across in [false, true] {
        for from in kinds {
            for to in kinds {
                let dir = m.path(&format!("{across}-{from}-{to}"));
                mkdir(&dir, 0o755).unwrap();
                mkdir(dir.join("other"), 0o755).unwrap();
                let source = dir.join("source");
                let target = if across { dir.join("other/target") } else { dir.join("target") };
                make(&source, from);
                make(&target, to);
                let ino = lstat(&source).unwrap().st_ino;
                let outcome = rename(&source, &target);
                let is_dir = |kind| matches!(kind, "empty" | "full");
                match (is_dir(from), is_dir(to)) {
                    (false, true) => fails!(ISDIR, outcome),
                    (true, false) => fails!(NOTDIR, outcome),
                    (true, true) if to == "full" => fails!(NOTEMPTY, outcome),
                    _ => {
                        outcome.unwrap();
                        assert_eq!(lstat(&target).unwrap().st_ino, ino, "{from} onto {to}");
                        fails!(NOENT, lstat(&source));
                        continue;
                    }
                }
                assert_eq!(lstat(&source).unwrap().st_ino, ino, "{from} onto {to}: untouched");
                lstat(&target).unwrap();
            }
        }
    }
}

#[test]
fn onto_itself_or_another_link_does_nothing() {
    let Some(m) = mount("") else { return };
    touch(m.path("a"));
    rename(m.path("a"), m.path("a")).unwrap();
    link(m.path("a"), m.path("b")).unwrap();
    rename(m.path("a"), m.path("b")).unwrap();
    assert_eq!(list(&m.dir), ["a", "b"]);
    assert_eq!(stat(m.path("a")).unwrap().st_nlink, 2);
}

#[test]
fn a_directory_into_itself() {
    let Some(m) = mount("") else { return };
    std::fs::create_dir_all(m.path("a/b/c")).unwrap();
    fails!(INVAL, rename(m.path("a"), m.path("a/x")));
    fails!(INVAL, rename(m.path("a"), m.path("a/b/c/x")));
    fails!(NOTEMPTY, rename(m.path("a/b/c"), m.path("a")));
    fails!(BUSY, rename(m.path("a/."), m.path("y")));
    fails!(BUSY, rename(m.path("a/b/.."), m.path("y")));
    assert_eq!(list(m.path("a/b")), ["c"]);
}

#[test]
fn replaced_files_live_until_closed() {
    let Some(m) = mount("") else { return };
    std::fs::write(m.path("old"), b"old contents").unwrap();
    std::fs::write(m.path("new"), b"new contents").unwrap();
    let old = open(m.path("old"), rustix::fs::OFlags::RDWR).unwrap();
    rename(m.path("new"), m.path("old")).unwrap();
    assert_eq!(rustix::fs::fstat(&old).unwrap().st_nlink, 0);
    assert_eq!(pread(&old, 0, 99), b"old contents");
    pwrite(&old, 0, b"OLD");
    assert_eq!(pread(&old, 0, 99), b"OLD contents");
    assert_eq!(std::fs::read(m.path("old")).unwrap(), b"new contents");
}

#[test]
fn noreplace() {
    let Some(m) = mount("") else { return };
    touch(m.path("a"));
    touch(m.path("b"));
    mkdir(m.path("dir"), 0o755).unwrap();
    fails!(EXIST, rename2(m.path("a"), m.path("b"), RenameFlags::NOREPLACE));
    fails!(EXIST, rename2(m.path("a"), m.path("dir"), RenameFlags::NOREPLACE));
    fails!(EXIST, rename2(m.path("a"), m.path("a"), RenameFlags::NOREPLACE));
    rename2(m.path("a"), m.path("c"), RenameFlags::NOREPLACE).unwrap();
    assert_eq!(list(&m.dir), ["b", "c", "dir"]);
}

#[test]
fn exchange() {
    let Some(m) = mount("") else { return };
    std::fs::create_dir_all(m.path("dir/sub")).unwrap();
    mkdir(m.path("other"), 0o755).unwrap();
    std::fs::write(m.path("other/file"), b"f").unwrap();
    let (dir, file) = (stat(m.path("dir")).unwrap(), stat(m.path("other/file")).unwrap());
    rename2(m.path("dir"), m.path("other/file"), RenameFlags::EXCHANGE).unwrap();
    assert_eq!(stat(m.path("dir")).unwrap().st_ino, file.st_ino);
    assert_eq!(stat(m.path("other/file")).unwrap().st_ino, dir.st_ino);
    assert_eq!(list(m.path("other/file")), ["sub"]);
    let parent = stat(m.path("other/file/..")).unwrap();
    assert_eq!(parent.st_ino, stat(m.path("other")).unwrap().st_ino);
    if !m.is_native() {
        assert_eq!(stat(&m.dir).unwrap().st_nlink, 3);
        assert_eq!(stat(m.path("other")).unwrap().st_nlink, 3);
    }
    fails!(NOENT, rename2(m.path("dir"), m.path("none"), RenameFlags::EXCHANGE));
    fails!(INVAL, rename2(m.path("other"), m.path("other/file/sub"), RenameFlags::EXCHANGE));
    fails!(INVAL, rename2(m.path("other/file/sub"), m.path("other"), RenameFlags::EXCHANGE));
    let both = RenameFlags::EXCHANGE | RenameFlags::NOREPLACE;
    fails!(INVAL, rename2(m.path("dir"), m.path("other"), both));
}

#[test]
fn whiteouts() {
    for options in ["", "allow_other", "allow_other,no_default_permissions"] {
        let Some(m) = mount(options) else { return };
        let is_whiteout = |name: &str| {
            let found = lstat(m.path(name)).unwrap();
            (found.st_mode, found.st_rdev, found.st_nlink) == (0o020_000, 0, 1)
        };
        chmod(&m.dir, 0o777);
        std::fs::write(m.path("a"), b"a").unwrap();
        rename2(m.path("a"), m.path("b"), RenameFlags::WHITEOUT).unwrap();
        assert!(is_whiteout("a"));
        assert_eq!(std::fs::read(m.path("b")).unwrap(), b"a");
        // Over a file; into another directory, whose counts are right; of a directory.
        mkdir(m.path("dir"), 0o755).unwrap();
        touch(m.path("dir/over"));
        rename2(m.path("b"), m.path("dir/over"), RenameFlags::WHITEOUT).unwrap();
        let links = stat(&m.dir).unwrap().st_nlink;
        mkdir(m.path("to"), 0o755).unwrap();
        rename2(m.path("dir"), m.path("to/dir"), RenameFlags::WHITEOUT).unwrap();
        assert!(is_whiteout("b") && is_whiteout("dir"));
        assert_eq!(stat(&m.dir).unwrap().st_nlink, links);
        assert_eq!(list(&m.dir), ["a", "b", "dir", "to"]);
        // With NOREPLACE, not with EXCHANGE; never over two names of one file.
        let both = RenameFlags::WHITEOUT | RenameFlags::NOREPLACE;
        fails!(EXIST, rename2(m.path("a"), m.path("b"), both));
        let contradictory = RenameFlags::WHITEOUT | RenameFlags::EXCHANGE;
        fails!(INVAL, rename2(m.path("a"), m.path("b"), contradictory));
        link(m.path("to/dir/over"), m.path("one")).unwrap();
        rename2(m.path("to/dir/over"), m.path("one"), RenameFlags::WHITEOUT).unwrap();
        assert_eq!(stat(m.path("to/dir/over")).unwrap().st_nlink, 2);
        if options.is_empty() {
            continue;
        }
        // An unprivileged user leaves a whiteout of its own.
        as_user(USER, &[], || {
            touch(m.path("own"));
            rename2(m.path("own"), m.path("moved"), RenameFlags::WHITEOUT).unwrap();
            fails!(ACCESS, rename2(m.path("to/dir"), m.path("mine"), RenameFlags::WHITEOUT));
        });
        assert!(is_whiteout("own"));
        let found = lstat(m.path("own")).unwrap();
        assert_eq!((found.st_uid, found.st_gid), (USER, USER));
    }
}

/// Moves between two directories from both sides at once must neither deadlock nor lose anything.
#[test]
fn crossing_renames() {
    let Some(m) = mount("") else { return };
    for dir in ["a", "b"] {
        mkdir(m.path(dir), 0o755).unwrap();
        for number in 0..8 {
            mkdir(m.path(&format!("{dir}/{dir}{number}")), 0o755).unwrap();
        }
    }
    std::thread::scope(|scope| {
        for (from, to) in [("a", "b"), ("b", "a")] {
            let m = &m;
            scope.spawn(move || {
                for round in 0..200 {
                    let name = format!("{from}{}", round % 8);
                    let (here, there) = (m.path(from).join(&name), m.path(to).join(&name));
                    rename(&here, &there).unwrap();
                    rename(&there, &here).unwrap();
                }
            });
        }
    });
    assert_eq!(list(m.path("a")).len(), 8);
    assert_eq!(list(m.path("b")).len(), 8);
}
