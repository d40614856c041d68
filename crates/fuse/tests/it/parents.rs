//! The names of files, asked for through the mount.

use crate::common::*;
use rustix::fs::OFlags;
use rustix::io::Errno;
use shoal::raw::{Caller, Ino};
use shoal_session::{HardLinks, Node};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Returns the links of an inode of the mount; `None`: of the opened file.
fn ask(opened: &OwnedFd, ino: Option<u64>) -> Res<HardLinks> {
    errno(calls(opened).all_links(&Caller::root(), Node::TOP, ino.map(Ino)))
}

fn ino(path: impl AsRef<Path>) -> u64 {
    lstat(path).unwrap().st_ino
}

fn paths(names: &HardLinks) -> BTreeSet<String> {
    let paths = names.links.iter().map(|link| String::from_utf8(link.path.clone()).unwrap());
    paths.collect()
}

fn set(paths: &[&str]) -> BTreeSet<String> {
    paths.iter().map(|path| path.to_string()).collect()
}

#[test]
fn every_link_of_every_type() {
    let Some(mut m) = mount_only("") else { return };
    std::fs::create_dir_all(m.path("a/b")).unwrap();
    touch(m.path("a/f"));
    link(m.path("a/f"), m.path("a/b/g")).unwrap();
    link(m.path("a/f"), m.path("h")).unwrap();
    symlink("nowhere", m.path("a/link")).unwrap();
    for _ in 0..2 {
        let top = dir(&m.dir);
        let names = ask(&top, Some(ino(m.path("h")))).unwrap();
        assert_eq!(paths(&names), set(&["/a/f", "/a/b/g", "/h"]));
        assert!(!names.is_top && names.ino.0 == ino(m.path("h")));
        for link in &names.links {
            let parent = m.dir.join(Path::new(std::str::from_utf8(&link.path[1..]).unwrap()));
            assert_eq!(link.dir.0, ino(parent.parent().unwrap()));
        }
        // Of the opened file itself, and of others through it.
        let file = open(m.path("a/f"), OFlags::RDONLY).unwrap();
        assert_eq!(ask(&file, None).unwrap(), names);
        assert_eq!(paths(&ask(&file, Some(ino(m.path("a/link")))).unwrap()), set(&["/a/link"]));
        assert_eq!(paths(&ask(&dir(m.path("a/b")), None).unwrap()), set(&["/a/b"]));
        let names = ask(&top, None).unwrap();
        assert!(names.is_top && paths(&names) == set(&["/"]));
        drop((top, file));
        m.remount();
    }
    let file = open(m.path("h"), OFlags::RDONLY).unwrap();
    rename(m.path("a"), m.path("c")).unwrap();
    unlink(m.path("h")).unwrap();
    assert_eq!(paths(&ask(&file, None).unwrap()), set(&["/c/f", "/c/b/g"]));
    unlink(m.path("c/f")).unwrap();
    unlink(m.path("c/b/g")).unwrap();
    assert_eq!(ask(&file, None).unwrap().links, [], "open, without a name");
}

#[test]
fn what_is_not_there_is_stale() {
    let Some(m) = mount_only("") else { return };
    let top = dir(&m.dir);
    for number in [0, 2, 1000, 1 << 40, 1 << 48 | 1, 1 << 63, u64::MAX] {
        fails!(STALE, ask(&top, Some(number)));
    }
    fails!(INVAL, ask(&dir("/"), None));
}

#[test]
fn thousands_of_links_come_page_by_page() {
    let Some(m) = mount_only("") else { return };
    const LINKS: usize = 20_000;
    for d in 0..10 {
        mkdir(m.path(&format!("dir-{d}")), 0o755).unwrap();
    }
    touch(m.path("f"));
    let mut wanted = set(&["/f"]);
    for n in 0..LINKS {
        let path = format!("dir-{}/the-link-number-{n}", n % 10);
        link(m.path("f"), m.path(&path)).unwrap();
        wanted.insert(format!("/{path}"));
    }
    let file = open(m.path("f"), OFlags::RDONLY).unwrap();
    let names = ask(&file, None).unwrap();
    assert_eq!(names.links.len(), LINKS + 1, "none twice");
    assert_eq!(paths(&names), wanted);
    // Links that are there all the time are listed while others come and go.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                for n in 0..50 {
                    link(m.path("f"), m.path(&format!("dir-3/other-{n}"))).unwrap();
                }
                for n in 0..50 {
                    unlink(m.path(&format!("dir-3/other-{n}"))).unwrap();
                }
            }
        });
        for _ in 0..5 {
            let names = ask(&file, None).unwrap();
            let listed = paths(&names);
            assert!(listed.is_superset(&wanted));
            assert_eq!(names.links.len(), listed.len(), "none twice");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_path_is_that_of_one_moment() {
    let Some(m) = mount_only("") else { return };
    std::fs::create_dir_all(m.path("one/deep/er")).unwrap();
    mkdir(m.path("two"), 0o755).unwrap();
    touch(m.path("one/deep/er/f"));
    let file = open(m.path("one/deep/er/f"), OFlags::RDONLY).unwrap();
    let legal = set(&["/one/deep/er/f", "/two/deep/er/f"]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                rename(m.path("one/deep"), m.path("two/deep")).unwrap();
                rename(m.path("two/deep"), m.path("one/deep")).unwrap();
            }
        });
        for _ in 0..2000 {
            let found = paths(&ask(&file, None).unwrap());
            assert!(found.len() == 1 && found.is_subset(&legal), "{found:?}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn only_the_superuser_may_ask() {
    let Some(m) = mount_only("allow_other") else { return };
    chmod(&m.dir, 0o777);
    as_user(USER, &[], || {
        touch(m.path("mine"));
        let file = open(m.path("mine"), OFlags::RDONLY).unwrap();
        fails!(PERM, ask(&file, None));
        fails!(PERM, ask(&file, Some(1)));
    });
    let file = open(m.path("mine"), OFlags::RDONLY).unwrap();
    assert_eq!(paths(&ask(&file, None).unwrap()), set(&["/mine"]));
}

#[test]
fn a_path_longer_than_a_page_is_refused() {
    let Some(m) = mount_only("") else { return };
    let name = "d".repeat(250);
    let mut at = dir(&m.dir);
    for depth in 0..70 {
        rustix::fs::mkdirat(&at, &name, 0o755.into()).unwrap();
        let below = OFlags::RDONLY | OFlags::DIRECTORY;
        at = rustix::fs::openat(&at, &name, below, 0.into()).unwrap();
        match ask(&at, None) {
            Ok(names) => assert_eq!(names.links[0].path.len(), (depth + 1) * 251),
            Err(error) => {
                assert_eq!(error, Errno::NAMETOOLONG);
                assert!(depth * 251 > 16_000, "{depth}");
                return;
            }
        }
    }
    panic!("never too long");
}
