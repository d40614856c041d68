//! Removal of trees by one ioctl, and the kernel's view of them afterwards.

use crate::common::*;
use rustix::fs::{OFlags, fstat};
use rustix::io::Errno;
use shoal::raw::{Caller, OrphanInfo, TreeCheck};
use shoal_session::{Metric, Node};
use shoal_skip::wait_until;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn remove(at: &OwnedFd, name: &str) -> Res<()> {
    remove_tree(at, name, TreeCheck::Tree)
}

fn stats_of(opened: impl AsFd) -> Res<Vec<Metric>> {
    errno(calls(opened).all_metrics(&Caller::root()))
}

fn orphans_of(opened: impl AsFd) -> Res<Vec<OrphanInfo>> {
    errno(calls(opened).all_orphans(&Caller::root()))
}

/// A tree `name` of `dirs` directories below its top with `files` files each, some with data.
fn plant(m: &TestMount, name: &str, dirs: usize, files: usize) {
    plant_with(m, name, dirs, files, 4096);
}

fn plant_with(m: &TestMount, name: &str, dirs: usize, files: usize, size: usize) {
    for d in 0..dirs {
        let below = m.path(name).join(format!("d{}/e{d}", d % 7));
        std::fs::create_dir_all(&below).unwrap();
        for f in 0..files {
            let data = if f % 4 == 0 { pattern(size, f as u64) } else { Vec::new() };
            std::fs::write(below.join(format!("f{f}")), data).unwrap();
        }
    }
}

fn value(stats: &[Metric], name: &str) -> u64 {
    stats.iter().find(|stat| stat.name == name).unwrap().value
}

fn now(m: &TestMount, name: &str) -> u64 {
    value(&stats_of(dir(&m.dir)).unwrap(), name)
}

#[test]
fn the_name_is_gone_when_the_call_returns() {
    let Some(m) = mount_only("") else { return };
    let top = dir(&m.dir);
    for round in 0..20 {
        plant(&m, "t", 5, 8);
        // The kernel has cached everything.
        let known = std::fs::metadata(m.path("t/d0/e0/f0")).unwrap();
        assert_eq!(known.len(), 4096);
        let before = lstat(&m.dir).unwrap();
        // The kernel caches the listing.
        assert_eq!(list(&m.dir), ["t"]);
        remove(&top, "t").unwrap();
        fails!(NOENT, lstat(m.path("t")));
        fails!(NOENT, lstat(m.path("t/d0/e0/f0")));
        fails!(NOENT, open(m.path("t/d0"), OFlags::RDONLY));
        assert_eq!(list(&m.dir), [""; 0], "round {round}");
        let after = lstat(&m.dir).unwrap();
        assert_eq!(after.st_nlink, before.st_nlink - 1);
        assert!((after.st_mtime, after.st_mtime_nsec) >= (before.st_mtime, before.st_mtime_nsec));
        fails!(NOENT, remove(&top, "t"));
        // The name can be used again at once.
        mkdir(m.path("t"), 0o755).unwrap();
        touch(m.path("t/new"));
        assert_eq!(list(m.path("t")), ["new"]);
        remove(&top, "t").unwrap();
    }
    symlink("nowhere", m.path("link")).unwrap();
    lstat(m.path("link")).unwrap();
    remove(&top, "link").unwrap();
    fails!(NOENT, lstat(m.path("link")));
    touch(m.path("file"));
    fails!(NOTDIR, remove(&top, "file"));
    unlink(m.path("file")).unwrap();
    wait_until("space is back", || now(&m, "inodes") == 1);
}

/// Makes a tree `t` of 1,211 files in a directory; returns it, and a file in it.
pub(crate) fn plant_large_tree(parent: &Path) -> (PathBuf, PathBuf) {
    let tree = parent.join("t");
    for d in 0..10 {
        std::fs::create_dir_all(tree.join(d.to_string())).unwrap();
        (0..120).for_each(|f| touch(tree.join(format!("{d}/{f}"))));
    }
    let deep = tree.join("7/119");
    (tree, deep)
}

/// The names below are dropped in the background. Nobody sees them meanwhile, in whatever directory
/// the tree was, and they do not keep the mount in use.
#[test]
fn a_large_cached_tree_goes_at_once_and_its_names_later() {
    let Some(mut m) = mount_only("") else { return };
    for (round, at) in ["", "a", "a/b c/d"].into_iter().cycle().take(9).enumerate() {
        let parent = m.path(at);
        std::fs::create_dir_all(&parent).unwrap();
        let (tree, deep) = plant_large_tree(&parent);
        let (inside, file) = (dir(tree.join("7")), open(&deep, OFlags::RDWR).unwrap());
        assert_eq!(walk(&tree).len(), 1211);
        let known = value(&stats_of(dir(&m.dir)).unwrap(), "inodes");
        assert!(known > 1211);
        remove(&dir(&parent), "t").unwrap();
        fails!(NOENT, lstat(&deep));
        fails!(NOENT, lstat(&tree));
        fails!(NOENT, open(tree.join("7"), OFlags::RDONLY));
        assert!(!list(&parent).contains(&"t".to_owned()));
        match round % 3 {
            // The name again, at once, as a file, and as another tree.
            0 => {
                std::fs::write(&tree, b"new").unwrap();
                assert_eq!(std::fs::read(&tree).unwrap(), b"new");
                fails!(NOTDIR, lstat(&deep));
            }
            1 => {
                std::fs::create_dir_all(tree.join("7")).unwrap();
                fails!(NOENT, lstat(&deep));
                assert_eq!(walk(&tree).len(), 2);
            }
            _ => {}
        }
        wait_until("the kernel has heard", || fstat(&inside).unwrap().st_nlink == 0);
        wait_until("the kernel has heard", || fstat(&file).unwrap().st_nlink == 0);
        pwrite(&file, 0, b"still mine");
        assert_eq!(pread(&file, 0, 20), b"still mine");
        drop((inside, file));
        if round % 3 != 0 {
            let _ = remove(&dir(&parent), "t");
        } else {
            unlink(&tree).unwrap();
            // By the kernel's own call, which neither fails as busy nor hangs.
            rustix::mount::unmount(&m.dir, rustix::mount::UnmountFlags::empty()).unwrap();
            assert!(m.wait_for_server().success());
            m.start(0);
        }
    }
    let top = dir(&m.dir);
    // The kernel holds no names of the trees any more, and forgets their inodes when it wants
    // memory.
    std::fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
    wait_until("space is back", || now(&m, "inodes") == 4 && now(&m, "detached_alive") == 0);
    drop(top);
}

/// A subvolume that is mounted alone has other paths than the volume.
#[test]
fn a_large_cached_tree_of_a_root() {
    let Some(mut m) = mount_only("") else { return };
    m.stop();
    let volume =
        shoal::raw::Volume::open(&m.volume(), &shoal::raw::OpenOptions::default()).unwrap();
    volume.subvolumes().create(&shoal::raw::Caller::root(), b"r", 0o755).unwrap();
    volume.close().unwrap();
    m.remount_with("subvolume=r");
    for at in [".", "a"] {
        plant(&m, &format!("{at}/t"), 9, 40);
        assert_eq!(walk(&m.path(at).join("t")).len(), 1 + 7 + 9 + 360);
        remove(&dir(m.path(at)), "t").unwrap();
        fails!(NOENT, lstat(m.path(at).join("t/d0/e0/f0")));
        fails!(NOENT, lstat(m.path(at).join("t")));
    }
}

#[test]
fn below_other_directories_and_by_other_links() {
    let Some(m) = mount_only("") else { return };
    plant(&m, "keep/t", 9, 4);
    touch(m.path("keep/t/d0/shared"));
    link(m.path("keep/t/d0/shared"), m.path("keep/one")).unwrap();
    link(m.path("keep/t/d0/shared"), m.path("two")).unwrap();
    std::fs::write(m.path("two"), "text").unwrap();
    assert_eq!(lstat(m.path("keep/one")).unwrap().st_nlink, 3);
    remove(&dir(m.path("keep")), "t").unwrap();
    wait_until("space is back", || now(&m, "inodes") == 3);
    // Before it is read, which makes the kernel ask anyway.
    wait_until("the kernel has heard", || lstat(m.path("two")).unwrap().st_nlink == 2);
    for survivor in ["keep/one", "two"] {
        assert_eq!(lstat(m.path(survivor)).unwrap().st_nlink, 2);
    }
    assert_eq!(list(m.path("keep")), ["one"]);
    assert_eq!(std::fs::read(m.path("keep/one")).unwrap(), b"text");
    let two = calls(open(m.path("two"), OFlags::RDONLY).unwrap());
    let links = two.all_links(&Caller::root(), Node::TOP, None).unwrap().links;
    assert_eq!(links.len(), 2);
}

#[test]
fn who_is_inside_stays_and_can_make_nothing_there() {
    let Some(m) = mount_only("") else { return };
    plant(&m, "t", 9, 4);
    let (top, inside) = (dir(m.path("t")), dir(m.path("t/d1/e1")));
    let flags = OFlags::RDWR;
    let file = open(m.path("t/d1/e1/f0"), flags).unwrap();
    let empty = open(m.path("t/d1/e1/f1"), flags).unwrap();
    let idle = open(m.path("t/d1/e1/f2"), flags).unwrap();
    let mode = rustix::fs::Mode::from_raw_mode(0o755);
    remove(&dir(&m.dir), "t").unwrap();
    let make = |at: &OwnedFd, name: &str| {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        rustix::fs::openat(at, name, flags, mode).map(drop)
    };
    fails!(NOENT, make(&top, "x"));
    fails!(NOENT, rustix::fs::mkdirat(&top, "x", mode));
    assert_eq!(fstat(&top).unwrap().st_nlink, 0);
    assert_eq!(pread(&file, 0, 5000), pattern(4096, 0));
    pwrite(&file, 4000, &pattern(60_000, 9));
    pwrite(&empty, 0, b"some");
    wait_until("the rest is free", || orphans_of(&top).unwrap().iter().all(|orphan| orphan.held));
    fails!(NOENT, make(&inside, "x"));
    for open in [&top, &inside, &file, &empty, &idle] {
        wait_until("the kernel has heard", || fstat(open).unwrap().st_nlink == 0);
    }
    assert_eq!(pread(&file, 4000, 70_000), pattern(60_000, 9));
    assert_eq!(pread(&empty, 0, 9), b"some");
    rustix::fs::fsync(&file).unwrap();
    let held = orphans_of(&top).unwrap();
    assert!(held.len() >= 4, "{held:#?}");
    drop((top, inside, file, empty, idle));
    drop_caches();
    wait_until("all is free", || now(&m, "inodes") == 1 && now(&m, "detached_alive") == 0);
    assert!(orphans_of(dir(&m.dir)).unwrap().is_empty());
}

#[test]
fn a_working_directory_inside() {
    let Some(m) = mount_only("") else { return };
    plant(&m, "t", 2, 2);
    as_user(0, &[], || {
        std::env::set_current_dir(m.path("t/d0")).unwrap();
        remove(&dir(&m.dir), "t").unwrap();
        fails!(NOENT, lstat(m.path("t")));
        wait_until("it is empty", || std::fs::read_dir(".").map_or(0, Iterator::count) == 0);
        fails!(NOENT, mkdir("x", 0o755));
        fails!(NOENT, create("x", OFlags::WRONLY, 0o644));
        std::env::set_current_dir("/").unwrap();
    });
}

#[test]
fn all_or_nothing_as_permissions_say() {
    for options in ["allow_other", "allow_other,no_default_permissions"] {
        let Some(m) = mount_only(options) else { return };
        chmod(&m.dir, 0o777);
        as_user(USER, &[OTHER], || {
            let top = dir(&m.dir);
            plant(&m, "mine", 3, 3);
            remove(&top, "mine").unwrap();
            // A directory of another user with a file in it, deep inside.
            plant(&m, "mine", 3, 3);
            mkdir(m.path("mine/d2/theirs"), 0o755).unwrap();
            touch(m.path("mine/d2/theirs/file"));
            mkdir(m.path("sticky"), 0o1777).unwrap();
            mkdir(m.path("mine/shut"), 0o755).unwrap();
        });
        chown(m.path("mine/d2/theirs"), OTHER, OTHER);
        chown(m.path("sticky"), OTHER, OTHER);
        mkdir(m.path("sticky/roots"), 0o755).unwrap();
        let everything = || {
            let mut all: Vec<_> = walk(&m.path("mine"));
            all.sort();
            all
        };
        let before = everything();
        as_user(USER, &[], || {
            let top = dir(&m.dir);
            fails!(ACCESS, remove(&top, "mine"));
            fails!(PERM, remove_tree(&top, "mine", TreeCheck::Top));
            fails!(PERM, remove(&dir(m.path("sticky")), "roots"));
            fails!(PERM, remove(&top, "sticky"));
        });
        assert_eq!(everything(), before, "nothing was removed");
        // An empty directory of another user is no obstacle, nor is one that a group may change.
        std::fs::remove_file(m.path("mine/d2/theirs/file")).unwrap();
        as_user(USER, &[], || remove(&dir(&m.dir), "mine").unwrap());
        as_user(USER, &[], || plant(&m, "mine", 3, 3));
        chown(m.path("mine/d1"), OTHER, OTHER);
        chmod(m.path("mine/d1"), 0o770);
        as_user(USER, &[], || fails!(ACCESS, remove(&dir(&m.dir), "mine")));
        as_user(USER, &[OTHER], || remove(&dir(&m.dir), "mine").unwrap());
        remove_tree(dir(&m.dir), "sticky", TreeCheck::Top).unwrap();
        assert_eq!(list(&m.dir), [""; 0]);
    }
}

pub(crate) fn walk(top: &Path) -> Vec<std::path::PathBuf> {
    let mut all = vec![top.to_owned()];
    let mut at = 0;
    while at < all.len() {
        if all[at].is_dir() {
            all.extend(std::fs::read_dir(&all[at]).unwrap().map(|entry| entry.unwrap().path()));
        }
        at += 1;
    }
    all
}

#[test]
fn malformed_questions_are_refused() {
    let Some(m) = mount_only("") else { return };
    mkdir(m.path("d"), 0o755).unwrap();
    touch(m.path("f"));
    let top = dir(&m.dir);
    for name in [".", "..", "d/.", "d/.."] {
        fails!(INVAL, remove(&top, name));
    }
    fails!(NOENT, remove(&top, ""));
    fails!(NOENT, remove(&top, "d/x"));
    fails!(NAMETOOLONG, remove(&top, &"x".repeat(256)));
    fails!(NAMETOOLONG, remove(&top, &"x".repeat(257)));
    fails!(NOENT, remove(&top, &"x".repeat(255)));
    fails!(NOTDIR, remove(&open(m.path("f"), OFlags::RDONLY).unwrap(), "x"));
    fails!(INVAL, remove(&dir("/"), "no-such-file-here"));
    assert_eq!(list(&m.dir), ["d", "f"]);
}

/// Every directory on a path must be searchable, and below the opened one.
#[test]
fn a_path_stays_below_the_opened_directory() {
    let Some(m) = mount_only("allow_other") else { return };
    chmod(&m.dir, 0o777);
    for name in ["a/t", "b/t", "secret/t"] {
        plant(&m, name, 2, 2);
    }
    symlink("../b", m.path("a/up")).unwrap();
    symlink("t", m.path("a/near")).unwrap();
    chmod(m.path("secret"), 0o700);
    chown(m.path("secret/t"), USER, USER);
    let (top, a) = (dir(&m.dir), dir(m.path("a")));
    let before = walk(&m.dir);
    for path in ["../b/t", "up/t", "/b/t"] {
        fails!(XDEV, remove(&a, path));
    }
    fails!(NOENT, remove(&a, "none/t"));
    as_user(USER, &[], || fails!(ACCESS, remove(&top, "secret/t")));
    assert_eq!(walk(&m.dir), before);
    for (at, path, gone) in [(&a, "near/d1", "a/t/d1"), (&top, "b/t", "b/t"), (&top, "a/", "a")] {
        lstat(m.path(gone)).unwrap();
        remove(at, path).unwrap();
        fails!(NOENT, lstat(m.path(gone)));
    }
    assert_eq!(list(&m.dir), ["b", "secret"]);
    assert!(list(m.path("b")).is_empty());
}

#[test]
fn a_read_only_view_is_respected() {
    let Some(m) = mount_only("") else { return };
    plant(&m, "t", 2, 2);
    let view = m.base().join("view");
    std::fs::create_dir(&view).unwrap();
    let run = |args: &[&str]| {
        let status = std::process::Command::new("mount").args(args).arg(&view).status().unwrap();
        assert!(status.success());
    };
    run(&["--bind", m.dir.to_str().unwrap()]);
    // Without the helper of a package that is installed here.
    run(&["-i", "-o", "remount,bind,ro"]);
    fails!(ROFS, remove(&dir(&view), "t"));
    rustix::mount::unmount(&view, rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(list(&m.dir), ["t"]);
    remove(&dir(&m.dir), "t").unwrap();
}

/// Several threads work in directories while trees in the same directory are removed: nobody waits
/// for ever, and no removed name is shown.
#[test]
fn removal_beside_creations_in_the_same_directory() {
    let Some(m) = mount_only("") else { return };
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let (m, stop) = (&m, &stop);
            scope.spawn(move || {
                let name = format!("w{worker}");
                while !stop.load(Ordering::Relaxed) {
                    touch(m.path(&name));
                    let _ = lstat(m.path("t0"));
                    let _ = lstat(m.path(&format!("none{worker}")));
                    unlink(m.path(&name)).unwrap();
                }
            });
        }
        let removers: Vec<_> = (0..3)
            .map(|remover| {
                let m = &m;
                scope.spawn(move || {
                    let (top, name) = (dir(&m.dir), format!("t{remover}"));
                    for _ in 0..40 {
                        plant(m, &name, 2, 4);
                        remove(&top, &name).unwrap();
                        fails!(NOENT, lstat(m.path(&name)));
                    }
                })
            })
            .collect();
        let failed = removers.into_iter().any(|remover| remover.join().is_err());
        stop.store(true, Ordering::Relaxed);
        assert!(!failed);
    });
}

#[test]
fn small_files_take_no_slot_and_are_counted() {
    let Some(m) = mount_only("") else { return };
    // With 4 KiB of data a file pins its segment while the kernel still knows it. Rings report
    // forgotten inodes late: hundreds are pinned, in one segment or two.
    for size in [100, 4096] {
        plant_with(&m, "t", 200, 100, size);
        let before = stats_of(dir(&m.dir)).unwrap();
        let status = std::process::Command::new("rm").arg("-rf").arg(m.path("t")).status();
        assert!(status.unwrap().success());
        let after = stats_of(dir(&m.dir)).unwrap();
        let grown = |name| value(&after, name) - value(&before, name);
        assert_eq!(grown("orphan_slots"), 0, "{after:#?}");
        assert!(grown("orphan_slots") + grown("detached") >= 20_000, "{after:#?}");
    }
    let after = stats_of(dir(&m.dir)).unwrap();
    plant(&m, "t", 200, 100);
    remove(&dir(&m.dir), "t").unwrap();
    wait_until("space is back", || now(&m, "inodes") == 1);
    let last = stats_of(dir(&m.dir)).unwrap();
    // The top has a slot; files that the kernel still knew as the tree was emptied count as
    // detached or have one.
    let more = |name| value(&last, name) - value(&after, name);
    assert!(more("orphan_slots") > 0 && more("reap_steps") > 0, "{last:#?}");
    assert!(more("orphan_slots") + more("detached") + more("reaped") >= 20_000, "{last:#?}");
}

#[test]
fn who_may_look() {
    let Some(m) = mount_only("allow_other") else { return };
    chmod(&m.dir, 0o777);
    as_user(USER, &[], || {
        let top = dir(&m.dir);
        assert!(value(&stats_of(&top).unwrap(), "transactions") > 0, "counters are for everybody");
        fails!(PERM, orphans_of(&top));
    });
    fails!(INVAL, stats_of(dir("/")));
}

#[test]
fn orphans_come_page_by_page() {
    let Some(m) = mount_only("") else { return };
    const FILES: usize = 1500;
    let name = |n: usize| format!("{}-{n}", "a-long-name".repeat(5));
    let open_files: Vec<OwnedFd> = (0..FILES)
        .map(|n| {
            let file = create(m.path(&name(n)), OFlags::WRONLY, 0o644).unwrap();
            pwrite(&file, 0, &pattern(10, 1));
            unlink(m.path(&name(n))).unwrap();
            file
        })
        .collect();
    let found = orphans_of(dir(&m.dir)).unwrap();
    assert_eq!(found.len(), FILES);
    assert!(found.is_sorted_by(|a, b| a.ino < b.ino), "each once");
    for orphan in &found {
        assert!(orphan.held && orphan.size == 10, "{orphan:?}");
    }
    drop(open_files);
    wait_until("none is left", || orphans_of(dir(&m.dir)).unwrap().is_empty());
}

/// If the server dies at any moment, the tree is all there or not at all; and the next server frees
/// the rest.
#[test]
fn a_killed_server_leaves_all_or_nothing() {
    let Some(mut m) = mount_only("") else { return };
    let mut gone = 0;
    for round in 0..6u64 {
        let _ = std::fs::remove_dir_all(m.path("t"));
        plant(&m, "t", 60, 50);
        let count = walk(&m.path("t")).len();
        let top = dir(&m.dir);
        shoal_fuse::sync(&m.dir).unwrap();
        remove(&top, "t").unwrap();
        if round % 2 == 1 {
            std::thread::sleep(Duration::from_millis(round));
            rustix::fs::fsync(&top).unwrap();
        }
        m.kill();
        drop(top);
        shoal_fuse::unmount_lazy(&m.dir).unwrap();
        m.start(0);
        match lstat(m.path("t")) {
            Ok(_) => assert_eq!(walk(&m.path("t")).len(), count, "round {round}"),
            Err(error) => {
                assert_eq!(error, Errno::NOENT);
                gone += 1;
                wait_until("the rest is freed", || now(&m, "inodes") == 1);
                assert!(orphans_of(dir(&m.dir)).unwrap().is_empty());
            }
        }
        assert!(round % 2 == 0 || lstat(m.path("t")).is_err(), "what was synced stays");
    }
    assert!(gone >= 3);
}

/// On a full volume the space of a removed tree can be written again as soon as the kernel has
/// released its files, which is not when the removal returns.
#[test]
fn space_is_there_when_it_is_wanted() {
    let Some(m) = mount_only("") else { return };
    let data = pattern(1 << 20, 3);
    let fill = |name: &str, most: usize| {
        mkdir(m.path(name), 0o755).unwrap();
        (0..most)
            .take_while(|n| std::fs::write(m.path(name).join(n.to_string()), &data).is_ok())
            .count()
    };
    let top = dir(&m.dir);
    let room = fill("t0", usize::MAX);
    assert!(room > 150, "{room}");
    for round in 1..4 {
        remove(&top, &format!("t{}", round - 1)).unwrap();
        wait_until("the tree is let go of", || now(&m, "inodes") == 1);
        let written = fill(&format!("t{round}"), room * 9 / 10);
        assert_eq!(written, room * 9 / 10, "round {round} of room for {room}");
    }
    remove(&top, "t3").unwrap();
}
