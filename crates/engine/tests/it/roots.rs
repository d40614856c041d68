//! Subvolumes: separate numbers and trees; tops like mount points; deleted at once, and freed in
//! the background.

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
            dir = volume
                .namespace()
                .mkdir(&root, top, format!("d{i}").as_bytes(), 0o755)
                .unwrap()
                .ino;
        }
        let name = format!("file-{i}");
        let file = volume.namespace().create(&root, dir, name.as_bytes(), 0o644).unwrap();
        let len = [0, 10, 5000, 300_000][i % 4];
        volume.files().write(file.ino, 0, &vec![i as u8; len], false).unwrap();
        if i % 7 == 0 {
            volume.namespace().link(&root, file.ino, dir, format!("link-{i}").as_bytes()).unwrap();
            volume
                .namespace()
                .symlink(&root, dir, format!("sym-{i}").as_bytes(), b"target")
                .unwrap();
        }
    }
}

#[test]
fn a_root_has_numbers_of_its_own_and_survives() {
    let (device, volume) = fresh(256 << 20);
    let who = Caller::root();
    let a = volume.subvolumes().create(&who, b"a", 0o755).unwrap();
    let b = volume.subvolumes().create(&who, b"b", 0o700).unwrap();
    assert_eq!((a.ino.root().0, a.ino.index()), (1, 1));
    assert_eq!((b.ino.root().0, b.ino.index()), (2, 1));
    fill(&volume, a.ino, 200);
    fill(&volume, b.ino, 100);
    fill(&volume, Ino::ROOT, 100);
    let found =
        volume.namespace().resolve(&who, Ino::ROOT, b"/a/d0/../../b/d0/file-1", true).unwrap();
    assert_eq!(found.ino.root().0, 2);
    assert_eq!(volume.directories().parent_of(a.ino).unwrap(), Ino::ROOT);
    assert_clean(&volume);
    volume.sync().unwrap();
    drop(volume);
    for closed in [false, true] {
        if closed {
            volume_of(&device).close().unwrap();
        }
        let volume = volume_of(&device);
        let names: Vec<_> = volume.subvolumes().list().into_iter().map(|r| r.name).collect();
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
    let a = volume.subvolumes().create(&who, b"a", 0o755).unwrap();
    let f = volume.namespace().create(&who, a.ino, b"f", 0o644).unwrap();
    let g = volume.namespace().create(&who, Ino::ROOT, b"g", 0o644).unwrap();
    let plain = RenameFlags::default();
    assert_eq!(
        code(volume.namespace().rename(&who, a.ino, b"f", Ino::ROOT, b"f", plain)),
        Code::CrossRoot
    );
    assert_eq!(code(volume.namespace().link(&who, f.ino, Ino::ROOT, b"f")), Code::CrossRoot);
    assert_eq!(code(volume.namespace().link(&who, g.ino, a.ino, b"g")), Code::CrossRoot);
    assert_eq!(code(volume.namespace().rmdir(&who, Ino::ROOT, b"a")), Code::Busy);
    assert_eq!(
        code(volume.namespace().rename(&who, Ino::ROOT, b"a", Ino::ROOT, b"b", plain)),
        Code::Busy
    );
    assert_eq!(
        code(volume.namespace().rename(&who, Ino::ROOT, b"g", Ino::ROOT, b"a", plain)),
        Code::Busy
    );
    assert_clean(&volume);
}

#[test]
fn bad_names_are_refused() {
    let (_device, volume) = fresh(64 << 20);
    let who = Caller::root();
    volume.subvolumes().create(&who, b"a", 0o755).unwrap();
    volume.namespace().mkdir(&who, Ino::ROOT, b"d", 0o755).unwrap();
    let make = |name: &[u8]| code(volume.subvolumes().create(&who, name, 0o755));
    assert_eq!(make(b"a"), Code::Exists);
    assert_eq!(make(b"d"), Code::Exists);
    assert_eq!(make(b""), Code::Invalid);
    assert_eq!(make(b"."), Code::Invalid);
    assert_eq!(make(b".."), Code::Invalid);
    assert_eq!(make(b"x/y"), Code::Invalid);
    assert_eq!(make(&[b'x'; 256]), Code::NameTooLong);
    assert_eq!(
        code(volume.subvolumes().create(&Caller::user(5, 5), b"u", 0o755)),
        Code::NotPermitted
    );
    assert_eq!(code(volume.subvolumes().delete(&who, b"missing")), Code::NotFound);
    assert_eq!(code(volume.subvolumes().delete(&who, b"d")), Code::Invalid);
    assert_eq!(code(volume.subvolumes().delete(&Caller::user(5, 5), b"a")), Code::NotPermitted);
    assert_clean(&volume);
}

#[test]
fn a_deleted_root_is_freed_and_its_number_used_again() {
    let (device, volume) = fresh(256 << 20);
    let who = Caller::root();
    volume.maintenance().checkpoint().unwrap();
    let before = volume.info().live_bytes;
    let a = volume.subvolumes().create(&who, b"a", 0o755).unwrap();
    fill(&volume, a.ino, 1000);
    let held = volume.namespace().resolve(&who, Ino::ROOT, b"/a/d0/file-3", true).unwrap();
    let old = Handle { ino: held.ino, generation: held.generation };
    volume.maintenance().checkpoint().unwrap();
    volume.subvolumes().delete(&who, b"a").unwrap();
    assert_eq!(code(volume.namespace().resolve(&who, Ino::ROOT, b"/a", true)), Code::NotFound);
    assert_eq!(code(volume.attributes().getattr(held.ino)), Code::Stale);
    assert_eq!(code(volume.namespace().create(&who, a.ino, b"x", 0o644)), Code::Stale);
    assert_clean(&volume);
    volume.maintenance().reap_roots(&mut |_| {}).unwrap();
    assert_eq!(volume.subvolumes().list(), []);
    assert_clean(&volume);
    volume.maintenance().checkpoint().unwrap();
    assert_clean(&volume);
    // A record and empty trees remain.
    let after = volume.info().live_bytes;
    assert!(after < before + (256 << 10), "{before} bytes before, {after} after");
    let b = volume.subvolumes().create(&who, b"b", 0o755).unwrap();
    assert_eq!(b.ino, a.ino, "the number is given out again");
    fill(&volume, b.ino, 300);
    assert_eq!(code(volume.namespace().by_handle(old)), Code::Stale);
    assert_clean(&volume);
    volume.sync().unwrap();
    drop(volume);
    let volume = volume_of(&device);
    assert_clean(&volume);
    assert_eq!(code(volume.namespace().by_handle(old)), Code::Stale);
    assert_eq!(volume.subvolumes().list().len(), 1);
}

#[test]
fn reaping_goes_on_after_a_crash_anywhere() {
    let (device, volume) = fresh(256 << 20);
    let who = Caller::root();
    let a = volume.subvolumes().create(&who, b"a", 0o755).unwrap();
    fill(&volume, a.ino, 1000);
    // Too many for the first rounds, whatever the scheduling of threads.
    for i in 0..30_000 {
        volume.namespace().create(&who, a.ino, format!("empty-{i}").as_bytes(), 0o644).unwrap();
    }
    volume.subvolumes().delete(&who, b"a").unwrap();
    volume.sync().unwrap();
    drop(volume);
    let options = OpenOptions { background: true, ..OpenOptions::default() };
    let mut rounds = 0u64;
    loop {
        let volume = Volume::open_on(device.clone(), &options).unwrap();
        let left: u64 = volume.subvolumes().list().iter().map(|r| r.inodes).sum();
        // Longer each time, so that it also completes on a busy machine.
        std::thread::sleep(std::time::Duration::from_millis(rounds));
        volume.namespace().create(&who, Ino::ROOT, format!("r{rounds}").as_bytes(), 0o644).unwrap();
        volume.sync().unwrap();
        // As when the process is killed: the thread's work after the sync is lost.
        drop(volume);
        rounds += 1;
        assert!(rounds < 2000, "{left} inodes left");
        if left == 0 {
            break;
        }
    }
    assert!(rounds > 2, "reaped at once: nothing was interrupted");
    assert_clean(&volume_of(&device));
}

/// A subvolume's unlinked file is held until the end: its slot outlives the subvolume and its
/// number, even if a checkpoint has omitted the vacant subvolume from the table.
#[test]
fn what_was_held_in_a_deleted_root_leaves_nothing_behind_after_a_crash() {
    for checkpoints in 0..4 {
        let (device, volume) = fresh(256 << 20);
        let who = Caller::root();
        let top = volume.subvolumes().create(&who, b"a", 0o755).unwrap();
        let held = volume.namespace().tmpfile(&who, top.ino, 0o600).unwrap();
        volume.files().write(held.ino, 0, &[7; 50_000], false).unwrap();
        volume.subvolumes().delete(&who, b"a").unwrap();
        volume.maintenance().reap_roots(&mut |_| ()).unwrap();
        (0..checkpoints).for_each(|_| volume.maintenance().checkpoint().unwrap());
        volume.sync().unwrap();
        assert_clean(&volume);
        drop(volume);
        let read_only = OpenOptions { read_only: true, ..options() };
        assert_clean(&Volume::open_on(device.clone(), &read_only).unwrap());
        let volume = volume_of(&device);
        assert_clean(&volume);
        assert!(volume.references().orphan_list().is_empty(), "after {checkpoints} checkpoints");
        volume.subvolumes().create(&who, b"b", 0o755).unwrap();
        volume.sync().unwrap();
        assert_clean(&volume);
    }
}
