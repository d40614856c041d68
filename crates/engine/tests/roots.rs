//! Roots: separate numbers and trees, like mount points at their tops; deleted at once and freed
//! behind.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use shoal_engine::*;
use std::sync::Arc;

fn options() -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::default() }
}

fn fresh(bytes: u64) -> (Arc<MemDevice>, Volume) {
    let device = Arc::new(MemDevice::new(bytes));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device.clone(), &options()).unwrap();
    (device, volume)
}

fn assert_clean(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    let first: Vec<_> = report.problems.iter().take(5).collect();
    assert!(first.is_empty(), "{first:?}");
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> Code {
    match result.unwrap_err() {
        Error::Code(code) => code,
        other => panic!("{other}"),
    }
}

/// Fills a directory with subdirectories, files of all sizes, links and symlinks.
fn fill(volume: &Volume, top: Ino, files: usize) {
    let root = Caller::root();
    let mut dir = top;
    for i in 0..files {
        if i % 50 == 0 {
            dir = volume.mkdir(&root, top, format!("d{i}").as_bytes(), 0o755).unwrap().ino;
        }
        let name = format!("file-{i}");
        let file = volume.create(&root, dir, name.as_bytes(), 0o644).unwrap();
        let len = [0, 10, 5000, 300_000][i % 4];
        volume.write(file.ino, 0, &vec![i as u8; len], false).unwrap();
        if i % 7 == 0 {
            volume.link(&root, file.ino, dir, format!("link-{i}").as_bytes()).unwrap();
            volume.symlink(&root, dir, format!("sym-{i}").as_bytes(), b"target").unwrap();
        }
    }
}

#[test]
fn a_root_has_numbers_of_its_own_and_survives() {
    let (device, volume) = fresh(256 << 20);
    let who = Caller::root();
    let a = volume.root_create(&who, b"a", 0o755).unwrap();
    let b = volume.root_create(&who, b"b", 0o700).unwrap();
    assert_eq!((a.ino.root().0, a.ino.index()), (1, 1));
    assert_eq!((b.ino.root().0, b.ino.index()), (2, 1));
    fill(&volume, a.ino, 200);
    fill(&volume, b.ino, 100);
    fill(&volume, Ino::ROOT, 100);
    let found = volume.resolve(&who, Ino::ROOT, b"/a/d0/../../b/d0/file-1", true).unwrap();
    assert_eq!(found.ino.root().0, 2);
    assert_eq!(volume.parent_of(a.ino).unwrap(), Ino::ROOT);
    assert_clean(&volume);
    volume.sync().unwrap();
    drop(volume);
    for closed in [false, true] {
        if closed {
            volume_of(&device).close().unwrap();
        }
        let volume = volume_of(&device);
        let names: Vec<_> = volume.root_list().into_iter().map(|r| r.name).collect();
        assert_eq!(names, [b"a".to_vec(), b"b".to_vec()]);
        assert_clean(&volume);
    }
}

fn volume_of(device: &Arc<MemDevice>) -> Volume {
    Volume::open_on(device.clone(), &options()).unwrap()
}

#[test]
fn nothing_crosses_and_tops_stay() {
    let (_device, volume) = fresh(64 << 20);
    let who = Caller::root();
    let a = volume.root_create(&who, b"a", 0o755).unwrap();
    let f = volume.create(&who, a.ino, b"f", 0o644).unwrap();
    let g = volume.create(&who, Ino::ROOT, b"g", 0o644).unwrap();
    let plain = RenameFlags::default();
    assert_eq!(code(volume.rename(&who, a.ino, b"f", Ino::ROOT, b"f", plain)), Code::CrossRoot);
    assert_eq!(code(volume.link(&who, f.ino, Ino::ROOT, b"f")), Code::CrossRoot);
    assert_eq!(code(volume.link(&who, g.ino, a.ino, b"g")), Code::CrossRoot);
    assert_eq!(code(volume.rmdir(&who, Ino::ROOT, b"a")), Code::Busy);
    assert_eq!(code(volume.rename(&who, Ino::ROOT, b"a", Ino::ROOT, b"b", plain)), Code::Busy);
    assert_eq!(code(volume.rename(&who, Ino::ROOT, b"g", Ino::ROOT, b"a", plain)), Code::Busy);
    assert_clean(&volume);
}

#[test]
fn bad_names_are_refused() {
    let (_device, volume) = fresh(64 << 20);
    let who = Caller::root();
    volume.root_create(&who, b"a", 0o755).unwrap();
    volume.mkdir(&who, Ino::ROOT, b"d", 0o755).unwrap();
    let make = |name: &[u8]| code(volume.root_create(&who, name, 0o755));
    assert_eq!(make(b"a"), Code::Exists);
    assert_eq!(make(b"d"), Code::Exists);
    assert_eq!(make(b""), Code::Invalid);
    assert_eq!(make(b"."), Code::Invalid);
    assert_eq!(make(b".."), Code::Invalid);
    assert_eq!(make(b"x/y"), Code::Invalid);
    assert_eq!(make(&[b'x'; 256]), Code::NameTooLong);
    assert_eq!(code(volume.root_create(&Caller::user(5, 5), b"u", 0o755)), Code::NotPermitted);
    assert_eq!(code(volume.root_delete(&who, b"missing")), Code::NotFound);
    assert_eq!(code(volume.root_delete(&who, b"d")), Code::Invalid);
    assert_eq!(code(volume.root_delete(&Caller::user(5, 5), b"a")), Code::NotPermitted);
    assert_clean(&volume);
}

#[test]
fn a_deleted_root_is_freed_and_its_number_used_again() {
    let (device, volume) = fresh(256 << 20);
    let who = Caller::root();
    volume.checkpoint().unwrap();
    let before = volume.info().live_bytes;
    let a = volume.root_create(&who, b"a", 0o755).unwrap();
    fill(&volume, a.ino, 1000);
    let held = volume.resolve(&who, Ino::ROOT, b"/a/d0/file-3", true).unwrap();
    let old = Handle { ino: held.ino, generation: held.generation };
    volume.checkpoint().unwrap();
    volume.root_delete(&who, b"a").unwrap();
    assert_eq!(code(volume.resolve(&who, Ino::ROOT, b"/a", true)), Code::NotFound);
    assert_eq!(code(volume.getattr(held.ino)), Code::Stale);
    assert_eq!(code(volume.create(&who, a.ino, b"x", 0o644)), Code::Stale);
    assert_clean(&volume);
    volume.reap_roots(&mut |_| {}).unwrap();
    assert_eq!(volume.root_list(), []);
    assert_clean(&volume);
    volume.checkpoint().unwrap();
    assert_clean(&volume);
    // What is left of it: a record and its empty trees.
    let after = volume.info().live_bytes;
    assert!(after < before + (256 << 10), "{before} bytes before, {after} after");
    let b = volume.root_create(&who, b"b", 0o755).unwrap();
    assert_eq!(b.ino, a.ino, "the number is given out again");
    fill(&volume, b.ino, 300);
    assert_eq!(code(volume.by_handle(old)), Code::Stale);
    assert_clean(&volume);
    volume.sync().unwrap();
    drop(volume);
    let volume = volume_of(&device);
    assert_clean(&volume);
    assert_eq!(code(volume.by_handle(old)), Code::Stale);
    assert_eq!(volume.root_list().len(), 1);
}

#[test]
fn reaping_goes_on_after_a_crash_anywhere() {
    let (device, volume) = fresh(256 << 20);
    let who = Caller::root();
    let a = volume.root_create(&who, b"a", 0o755).unwrap();
    fill(&volume, a.ino, 1000);
    // Too many for the first rounds, however the threads are scheduled.
    for i in 0..30_000 {
        volume.create(&who, a.ino, format!("empty-{i}").as_bytes(), 0o644).unwrap();
    }
    volume.root_delete(&who, b"a").unwrap();
    volume.sync().unwrap();
    drop(volume);
    let options = OpenOptions { background: true, ..OpenOptions::default() };
    let mut rounds = 0u64;
    loop {
        let volume = Volume::open_on(device.clone(), &options).unwrap();
        let left: u64 = volume.root_list().iter().map(|r| r.inodes).sum();
        // Longer each time: a busy machine gets there too.
        std::thread::sleep(std::time::Duration::from_millis(rounds));
        volume.create(&who, Ino::ROOT, format!("r{rounds}").as_bytes(), 0o644).unwrap();
        volume.sync().unwrap();
        // As when the process is killed: what the thread does after the sync is lost.
        drop(volume);
        rounds += 1;
        assert!(rounds < 200, "{left} inodes left");
        if left == 0 {
            break;
        }
    }
    assert!(rounds > 2, "reaped at once: nothing was interrupted");
    assert_clean(&volume_of(&device));
}

/// A root's unnamed file is held until the end: its slot outlives the root and the number, also
/// where a checkpoint has left the vacant root out of the table.
#[test]
fn what_was_held_in_a_deleted_root_leaves_nothing_behind_after_a_crash() {
    for checkpoints in 0..4 {
        let (device, volume) = fresh(256 << 20);
        let who = Caller::root();
        let top = volume.root_create(&who, b"a", 0o755).unwrap();
        let held = volume.tmpfile(&who, top.ino, 0o600).unwrap();
        volume.write(held.ino, 0, &[7; 50_000], false).unwrap();
        volume.root_delete(&who, b"a").unwrap();
        volume.reap_roots(&mut |_| ()).unwrap();
        (0..checkpoints).for_each(|_| volume.checkpoint().unwrap());
        volume.sync().unwrap();
        assert_clean(&volume);
        drop(volume);
        let read_only = OpenOptions { read_only: true, ..options() };
        assert_clean(&Volume::open_on(device.clone(), &read_only).unwrap());
        let volume = volume_of(&device);
        assert_clean(&volume);
        assert!(volume.orphans().is_empty(), "after {checkpoints} checkpoints");
        volume.root_create(&who, b"b", 0o755).unwrap();
        volume.sync().unwrap();
        assert_clean(&volume);
    }
}
