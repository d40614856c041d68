//! Two doors of one volume: the mount, and sessions of the library beside it.

use crate::common::*;
use crate::posix_data::Random;
use crate::posix_mapped::Mapping;
use crate::tree::{plant_large_tree, walk};
use rustix::fs::{OFlags, fstat};
use shoal::raw::Caller;
use shoal::{Credentials, Dir, FileOptions, TreeChange, Volume};
use shoal_skip::wait_until;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

fn connect(m: &TestMount) -> (Volume, Dir) {
    let volume = Volume::connect(&m.dir).unwrap();
    let root = volume.root(Credentials::current());
    (volume, root)
}

#[test]
fn the_kernel_is_told_of_names() {
    let Some(m) = mount_only("") else { return };
    let (_volume, root) = connect(&m);
    std::fs::create_dir(m.path("d")).unwrap();
    for name in ["d/a", "d/b", "top"] {
        fails!(NOENT, lstat(m.path(name)));
        root.write(name, "1").unwrap();
        assert_eq!(std::fs::read(m.path(name)).unwrap(), b"1");
    }
    // The kernel keeps the listing and the attributes of the directory.
    assert_eq!(list(m.path("d")), ["a", "b"]);
    assert_eq!(list(m.path("d")), ["a", "b"]);
    let before = lstat(m.path("d")).unwrap();
    root.create_dir("d/e").unwrap();
    assert_eq!(list(m.path("d")), ["a", "b", "e"]);
    let after = lstat(m.path("d")).unwrap();
    assert_eq!(after.st_nlink, before.st_nlink + 1);
    root.rename("d/a", "d/e/moved").unwrap();
    fails!(NOENT, lstat(m.path("d/a")));
    assert_eq!(std::fs::read(m.path("d/e/moved")).unwrap(), b"1");
    root.hard_link("top", "d/also").unwrap();
    assert_eq!(lstat(m.path("top")).unwrap().st_nlink, 2);
    root.remove_file("d/also").unwrap();
    assert_eq!(lstat(m.path("top")).unwrap().st_nlink, 1);
    fails!(NOENT, lstat(m.path("d/also")));
    root.batch(|b| {
        b.write("d/b", "new")?;
        b.rename("top", "d/top")?;
        b.create_dir("d/f")
    })
    .unwrap();
    assert_eq!(std::fs::read(m.path("d/b")).unwrap(), b"new");
    fails!(NOENT, lstat(m.path("top")));
    assert_eq!(list(m.path("d")), ["b", "e", "f", "top"]);
    root.remove_dir_all("d/e").unwrap();
    fails!(NOENT, lstat(m.path("d/e/moved")));
    assert_eq!(list(m.path("d")), ["b", "f", "top"]);
    // And the other way round: nothing is kept at this end.
    std::fs::rename(m.path("d/b"), m.path("d/c")).unwrap();
    assert!(!root.exists("d/b").unwrap() && root.exists("d/c").unwrap());
}

#[test]
fn the_kernel_is_told_of_attributes_and_data() {
    let Some(m) = mount_only("") else { return };
    let (_volume, root) = connect(&m);
    std::fs::write(m.path("f"), vec![b'a'; 10_000]).unwrap();
    assert_eq!(std::fs::read(m.path("f")).unwrap(), vec![b'a'; 10_000]);
    let open = std::fs::File::open(m.path("f")).unwrap();
    root.set_permissions("f", 0o600).unwrap();
    assert_eq!(lstat(m.path("f")).unwrap().st_mode & 0o7777, 0o600);
    let file = FileOptions::new().read(true).write(true).open(&root, "f").unwrap();
    file.write_all_at(b"bbb", 5000).unwrap();
    let mut found = [0; 5];
    open.read_exact_at(&mut found, 4999).unwrap();
    assert_eq!(&found, b"abbba", "pages of an open file");
    file.set_len(3).unwrap();
    assert_eq!(open.metadata().unwrap().len(), 3);
    assert_eq!(std::fs::read(m.path("f")).unwrap(), b"aaa");
    root.create_dir("dir").unwrap();
    assert!(std::fs::metadata(m.path("dir")).unwrap().is_dir());
}

#[test]
fn the_kernel_is_told_of_changes_of_trees() {
    let Some(m) = mount_only("") else { return };
    let (_volume, root) = connect(&m);
    std::fs::create_dir_all(m.path("t/d")).unwrap();
    let mut all = vec![m.path("t"), m.path("t/d")];
    for n in 0..300 {
        let path = m.path(&format!("t/d/{n}"));
        std::fs::write(&path, "1").unwrap();
        all.push(path);
    }
    for uid in [1000, 1001] {
        // The kernel knows them all.
        assert!(all.iter().all(|path| lstat(path).unwrap().st_uid != uid));
        let change = TreeChange::new().owner(Some(uid), None).mode("u=rwX,go=").unwrap();
        let done = change.make(&root.open_dir("t").unwrap()).unwrap();
        assert_eq!((done.changed(), done.failed()), (302, 0));
        let seen = |path| (lstat(path).unwrap().st_uid, lstat(path).unwrap().st_mode & 0o077);
        assert!(all.iter().all(|path| seen(path) == (uid, 0)));
    }
}

/// Stores to a mapping that only the kernel knows: a session reads them, and does not undo them.
#[test]
fn stores_to_a_mapping_are_neither_missed_nor_undone() {
    let Some(m) = mount_only("") else { return };
    let (_volume, root) = connect(&m);
    let fd = create(m.path("f"), OFlags::RDWR | OFlags::EXCL, 0o644).unwrap();
    rustix::fs::ftruncate(&fd, 8192).unwrap();
    let mapping = Mapping::new(&fd, 8192);
    mapping.store(10, b"mapped");
    assert_eq!(&root.read("f").unwrap()[10..16], b"mapped");
    mapping.store(20, b"again");
    let file = FileOptions::new().read(true).write(true).open(&root, "f").unwrap();
    file.write_all_at(b"session", 100).unwrap();
    let text = std::fs::read(m.path("f")).unwrap();
    assert_eq!((&text[20..25], &text[100..107]), (&b"again"[..], &b"session"[..]));
    mapping.sync();
    let text = root.read("f").unwrap();
    assert_eq!((&text[20..25], &text[100..107]), (&b"again"[..], &b"session"[..]));
}

/// Another thread had taken a name from the file, and made no call since: the kernel kept no
/// attributes of it for ten seconds, and read up to the size that it had before.
#[test]
fn a_name_that_was_taken_lately_hides_no_size() {
    let Some(m) = mount_only("") else { return };
    let (_volume, root) = connect(&m);
    std::fs::write(m.path("f"), "old").unwrap();
    std::fs::hard_link(m.path("f"), m.path("g")).unwrap();
    let (taken, is_taken) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let name = m.path("g");
        scope.spawn(move || {
            std::fs::remove_file(name).unwrap();
            taken.send(()).unwrap();
            // It stays in no system call of this mount.
            let _ = ended.recv();
        });
        is_taken.recv().unwrap();
        let file = FileOptions::new().write(true).open(&root, "f").unwrap();
        for len in [3000, 10, 5000] {
            file.set_len(0).unwrap();
            file.write_all_at(&vec![7; len], 0).unwrap();
            assert_eq!(std::fs::read(m.path("f")).unwrap(), vec![7; len]);
        }
        drop(end);
    });
    assert_eq!(lstat(m.path("f")).unwrap().st_nlink, 1);
}

/// A tree as a door shows it.
type Seen = BTreeMap<String, (u32, u64, u64, Vec<u8>)>;

fn by_mount(dir: &Path) -> Seen {
    let mut seen = Seen::new();
    let mut waiting = vec![(dir.to_owned(), String::new())];
    while let Some((dir, prefix)) = waiting.pop() {
        for name in list(&dir) {
            let (path, shown) = (dir.join(&name), format!("{prefix}{name}"));
            let found = std::fs::symlink_metadata(&path).unwrap();
            let content = if found.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
            if found.is_dir() {
                waiting.push((path, format!("{shown}/")));
            }
            let size = if found.is_dir() { 0 } else { found.len() };
            seen.insert(shown, (found.permissions().mode() & 0o7777, found.nlink(), size, content));
        }
    }
    seen
}

fn by_session(root: &Dir) -> Seen {
    let mut seen = Seen::new();
    for entry in root.walk().threads(1) {
        let entry = entry.unwrap();
        let (path, found) = (entry.path(), entry.metadata());
        let content = if found.is_file() { root.read(&path).unwrap() } else { Vec::new() };
        let size = if found.is_dir() { 0 } else { found.len() };
        let shown = (found.permissions(), u64::from(found.nlink()), size, content);
        seen.insert(path.to_str().unwrap().to_owned(), shown);
    }
    seen
}

/// Random changes by both doors: after each, both show the same.
#[test]
fn both_doors_show_the_same_after_each_change() {
    let Some(m) = mount_only("") else { return };
    let (_volume, root) = connect(&m);
    let mut random = Random(37);
    let names = ["a", "b", "d", "d/a", "d/b", "d/e", "d/e/a"];
    let mut seen = 0;
    for step in 0..400 {
        let mut name = || names[random.below(names.len() as u64) as usize];
        let (one, two) = (name(), name());
        let (a, b) = (m.path(one), m.path(two));
        let (what, by_kernel, number) = (random.below(9), random.below(2) == 0, random.below(5000));
        let bytes = vec![number as u8; number as usize];
        // Whether a call succeeds does not matter: both doors must agree on what it did.
        let _done = match (what, by_kernel) {
            (0, true) => std::fs::write(&a, &bytes).is_ok(),
            (0, false) => root.write(one, &bytes).is_ok(),
            (1, true) => std::fs::create_dir(&a).is_ok(),
            (1, false) => root.create_dir(one).is_ok(),
            (2, true) => std::fs::rename(&a, &b).is_ok(),
            (2, false) => root.rename(one, two).is_ok(),
            (3, true) => std::fs::hard_link(&a, &b).is_ok(),
            (3, false) => root.hard_link(one, two).is_ok(),
            (4, true) => std::fs::remove_file(&a).is_ok(),
            (4, false) => root.remove_file(one).is_ok(),
            (5, true) => std::fs::remove_dir(&a).is_ok(),
            (5, false) => root.remove_dir(one).is_ok(),
            (6, true) => {
                let mode = PermissionsExt::from_mode(0o600 | (number as u32 % 0o100));
                std::fs::set_permissions(&a, mode).is_ok()
            }
            (6, false) => root.set_permissions(one, 0o600 | (number as u32 % 0o100)).is_ok(),
            (7, true) => {
                let file = std::fs::File::options().write(true).open(&a);
                file.is_ok_and(|file| file.write_all_at(b"part", number).is_ok())
            }
            (7, false) => {
                let file = FileOptions::new().write(true).open(&root, one);
                file.is_ok_and(|file| file.write_all_at(b"part", number).is_ok())
            }
            _ => {
                let batch = root.batch(|b| {
                    b.write(one, bytes.clone())?;
                    b.set_permissions(one, 0o640)
                });
                batch.is_ok()
            }
        };
        let (kernel, session) = (by_mount(&m.dir), by_session(&root));
        assert_eq!(kernel, session, "step {step}: {what} by_kernel={by_kernel} {one} {two}");
        seen += kernel.len();
    }
    assert!(seen > 400, "the tree was never empty for long: {seen}");
}

#[test]
fn a_read_only_mount_refuses_changes() {
    let Some(m) = mount_only("ro") else { return };
    let (_volume, root) = connect(&m);
    let error = root.write("f", "x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{error}");
    assert_eq!(root.create_dir("d").unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(root.entries().unwrap().count(), 0);
}

/// The part of [`users_are_who_they_are`] that runs as another user.
#[test]
fn another_user() {
    let Some(dir) = std::env::var_os("SHOAL_TEST_SESSION") else { return };
    let found = Volume::connect(&dir);
    if std::env::var_os("SHOAL_TEST_REFUSED").is_some() {
        assert_eq!(found.unwrap_err().kind(), ErrorKind::PermissionDenied);
        return;
    }
    let volume = found.unwrap();
    let root = volume.root(Credentials::current());
    assert_eq!(root.read("secret").unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(root.read("closed/x").unwrap_err().kind(), ErrorKind::PermissionDenied);
    root.write("open/mine", "x").unwrap();
    assert_eq!(root.metadata("open/mine").unwrap().uid(), USER);
    // Nobody becomes another.
    let pretended = volume.root(Credentials::root());
    assert_eq!(pretended.read("secret").unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(volume.revoke_tokens().unwrap_err().kind(), ErrorKind::PermissionDenied);
}

#[test]
fn users_are_who_they_are() {
    let run = |m: &TestMount, refused: bool| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "sessions::another_user"]).env("SHOAL_TEST_SESSION", &m.dir);
        if refused {
            command.env("SHOAL_TEST_REFUSED", "1");
        }
        let output = command.uid(USER).gid(USER).output();
        match output {
            Ok(output) => assert!(output.status.success(), "{output:?}"),
            // The program lies where that user may not go.
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::PermissionDenied);
                skipped("the test program lies where another user may not go");
            }
        }
    };
    let Some(m) = mount_only("") else { return };
    run(&m, true);
    drop(m);
    let Some(m) = mount_only("allow_other") else { return };
    std::fs::write(m.path("secret"), "x").unwrap();
    std::fs::set_permissions(m.path("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::create_dir(m.path("closed")).unwrap();
    std::fs::write(m.path("closed/x"), "x").unwrap();
    std::fs::set_permissions(m.path("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    std::fs::create_dir(m.path("open")).unwrap();
    std::fs::set_permissions(m.path("open"), PermissionsExt::from_mode(0o777)).unwrap();
    run(&m, false);
    assert_eq!(lstat(m.path("open/mine")).unwrap().st_uid, USER);
}

#[test]
fn no_sessions_where_they_are_not_wanted() {
    let Some(m) = mount_only("session=off") else { return };
    let error = Volume::connect(&m.dir).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}

/// Its names are dropped in the background, as after the mount's own call: nobody sees them
/// meanwhile, wherever the tree was, and the name can be used again at once.
#[test]
fn a_large_cached_tree_is_removed_by_a_session() {
    let Some(m) = mount_only("") else { return };
    let (_volume, root) = connect(&m);
    for (round, at) in ["", "a", "a/b c/d"].into_iter().cycle().take(6).enumerate() {
        let parent = m.path(at);
        std::fs::create_dir_all(&parent).unwrap();
        let (tree, deep) = plant_large_tree(&parent);
        let inside = dir(tree.join("7"));
        assert_eq!(walk(&tree).len(), 1211);
        root.remove_dir_all(Path::new(at).join("t")).unwrap();
        fails!(NOENT, lstat(&deep));
        fails!(NOENT, lstat(&tree));
        fails!(NOENT, open(tree.join("7"), OFlags::RDONLY));
        assert!(!list(&parent).contains(&"t".to_owned()));
        if round % 2 == 0 {
            std::fs::create_dir_all(tree.join("7")).unwrap();
            fails!(NOENT, lstat(&deep));
            root.remove_dir_all(Path::new(at).join("t")).unwrap();
            fails!(NOENT, lstat(&tree));
        }
        wait_until("the kernel has heard", || fstat(&inside).unwrap().st_nlink == 0);
    }
}

/// The kernel has sizes, times and data that the volume has not.
#[test]
fn a_mount_that_collects_writes_is_only_read() {
    let Some(m) = mount_only("writeback") else { return };
    let (_volume, root) = connect(&m);
    std::fs::create_dir(m.path("d")).unwrap();
    std::fs::write(m.path("d/file"), "collected").unwrap();
    assert_eq!(root.read("d/file").unwrap(), b"collected");
    let names: Vec<_> =
        root.open_dir("d").unwrap().entries().unwrap().map(|it| it.unwrap().path()).collect();
    assert_eq!(names, [Path::new("file")]);
    for refused in [
        root.write("d/file", "x").unwrap_err(),
        root.create_dir("e").unwrap_err(),
        root.remove_file("d/file").unwrap_err(),
        TreeChange::new().owner(Some(1), None).make(&root).map(drop).unwrap_err(),
    ] {
        assert_eq!(refused.kind(), ErrorKind::Unsupported, "{refused}");
        assert!(refused.to_string().contains("writeback"), "{refused}");
    }
    assert_eq!(std::fs::read(m.path("d/file")).unwrap(), b"collected");
}

/// The load of a process has its calls by sessions in it, as long as somebody watches.
#[test]
fn the_load_of_sessions_is_shown() {
    let Some(m) = mount_only("") else { return };
    let (_volume, root) = connect(&m);
    let of_this = || {
        let mut loads = calls(dir(&m.dir)).all_loads(&Caller::root()).unwrap().into_iter();
        let own = loads.find(|load| load.is_process && load.key == std::process::id());
        own.map_or((0, 0, 0), |load| (load.requests, load.read, load.written))
    };
    // A look makes somebody watch for some seconds, within which a round is made.
    wait_until("a round while somebody watches", || {
        of_this();
        let before = of_this();
        for _ in 0..100 {
            root.write("file", [7; 1000]).unwrap();
            assert_eq!(root.read("file").unwrap().len(), 1000);
        }
        let after = of_this();
        let made = after.0.saturating_sub(before.0);
        let moved = [after.1.saturating_sub(before.1), after.2.saturating_sub(before.2)];
        made >= 200 && moved.iter().all(|bytes| *bytes >= 100_000)
    });
}
