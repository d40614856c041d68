//! Files that are unlinked but open: those in memory only, their limit, and the space that they
//! keep in use.

use shoal_engine::*;
use std::sync::Arc;

const WHO: fn() -> Caller = Caller::root;

fn options() -> OpenOptions {
    OpenOptions { background: false, noatime: true, ..OpenOptions::default() }
}

/// Steps of so many records.
fn steps_of(step_records: usize) -> Lab {
    Lab { step_records, ..Lab::default() }
}

fn device(bytes: u64) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(bytes));
    let options = MkfsOptions { segment_size: 1 << 20, ..MkfsOptions::default() };
    mkfs_on(device.clone(), &options).unwrap();
    device
}

fn open(device: &Arc<MemDevice>, options: &OpenOptions) -> Volume {
    Volume::open_on(device.clone(), options).unwrap()
}

fn counter(volume: &Volume, name: &str) -> u64 {
    let counters = volume.info().counters;
    counters.iter().find(|(of, _)| *of == name).unwrap_or_else(|| panic!("no {name}")).1
}

/// Returns the counters of slots allocated, inodes kept in memory only, and inodes logged again.
fn counters(volume: &Volume) -> (u64, u64, u64) {
    let of = |name| counter(volume, name);
    (of("orphan_slots"), of("detached"), of("detached_back"))
}

/// Returns the number of slots in use, and of files in memory only.
fn left(volume: &Volume) -> (u64, u64) {
    let info = volume.info();
    (info.orphans, info.detached)
}

fn assert_clean(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert_eq!(report.problems, vec![], "{report:?}");
}

/// Checks that nothing is in use, queued or leaked.
fn assert_empty(volume: &Volume) {
    while volume.maintenance().reap_some().unwrap() {}
    volume.maintenance().checkpoint().unwrap();
    assert_eq!((left(volume), volume.references().orphan_list()), ((0, 0), vec![]));
    assert_eq!(volume.info().pinned_bytes, 0);
    assert_clean(volume);
}

fn create(volume: &Volume, dir: Ino, name: &str) -> Ino {
    volume.namespace().create(&WHO(), dir, name.as_bytes(), 0o644).unwrap().ino
}

fn unlink(volume: &Volume, dir: Ino, name: &str) {
    volume.namespace().unlink(&WHO(), dir, name.as_bytes()).unwrap();
}

fn read(volume: &Volume, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0xA5; volume.attributes().getattr(ino).unwrap().size as usize];
    assert_eq!(volume.files().read(ino, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn set(change: impl FnOnce(&mut SetAttr)) -> SetAttr {
    let mut set = SetAttr::default();
    change(&mut set);
    set
}

/// Makes an open file of each kind that one transaction can free.
fn small_ones(volume: &Volume, dir: Ino) -> Vec<(&'static str, Ino)> {
    let plain = XattrFlags::default();
    let names = ["empty", "inline", "extent", "attribute", "value", "dir", "symlink"];
    let made = names.map(|name| {
        let ino = match name {
            "dir" => volume.namespace().mkdir(&WHO(), dir, b"dir", 0o755).unwrap().ino,
            "symlink" => {
                volume.namespace().symlink(&WHO(), dir, b"symlink", b"target").unwrap().ino
            }
            _ => create(volume, dir, name),
        };
        volume.references().hold(ino, 1).unwrap();
        match name {
            "inline" => _ = volume.files().write(ino, 0, &[1; 100], false).unwrap(),
            "extent" => _ = volume.files().write(ino, 0, &[2; 9_000], false).unwrap(),
            "attribute" => {
                volume.attributes().setxattr(&WHO(), ino, b"user.a", &[3; 50], plain).unwrap()
            }
            "value" => {
                volume.attributes().setxattr(&WHO(), ino, b"user.v", &[4; 5_000], plain).unwrap()
            }
            _ => {}
        }
        (name, ino)
    });
    made.into()
}

fn remove(volume: &Volume, dir: Ino, name: &str) {
    match name {
        "dir" => volume.namespace().rmdir(&WHO(), dir, b"dir").unwrap(),
        _ => unlink(volume, dir, name),
    }
}

#[test]
fn a_small_file_in_use_needs_no_slot_and_no_journal() {
    let device = device(64 << 20);
    let volume = open(&device, &options());
    let top = volume.namespace().mkdir(&WHO(), Ino::ROOT, b"top", 0o755).unwrap().ino;
    let files = small_ones(&volume, top);
    let before = volume.statfs();
    for (name, _) in &files {
        remove(&volume, top, name);
    }
    assert_eq!(counters(&volume), (0, files.len() as u64, 0));
    assert_eq!(left(&volume), (0, files.len() as u64));
    // They are still in use, although they are free on the device.
    assert_eq!(volume.statfs().inodes_used, before.inodes_used);
    assert_eq!(volume.info().inodes + files.len() as u64, before.inodes_used);
    assert_clean(&volume);
    volume.maintenance().checkpoint().unwrap();
    // Changes within the inode only change memory.
    let (lsn, plain) = (volume.staged_lsn(), XattrFlags::default());
    for (name, ino) in &files {
        let attr = volume.attributes().getattr(*ino).unwrap();
        assert_eq!(attr.nlink, 0, "{name}");
        volume.attributes().setattr(&WHO(), *ino, &set(|s| s.mode = Some(0o600))).unwrap();
        volume.attributes().setattr(&WHO(), *ino, &set(|s| s.uid = Some(7))).unwrap();
        volume.attributes().setattr(&WHO(), *ino, &set(|s| s.mtime = Some(SetTime::Now))).unwrap();
        let attr = volume.attributes().getattr(*ino).unwrap();
        assert_eq!((attr.mode & 0o777, attr.uid), (0o600, 7), "{name}");
        if *name != "symlink" {
            volume.attributes().setxattr(&WHO(), *ino, b"user.s", b"short", plain).unwrap();
            assert_eq!(
                volume.attributes().getxattr(&WHO(), *ino, b"user.s").unwrap(),
                b"short",
                "{name}"
            );
            volume.attributes().removexattr(&WHO(), *ino, b"user.s").unwrap();
        }
    }
    for name in ["empty", "inline", "attribute"] {
        let ino = files.iter().find(|(of, _)| *of == name).unwrap().1;
        volume.files().write(ino, 0, &[9; 120], false).unwrap();
        volume.files().append(ino, &[8; 10], false).unwrap();
        assert_eq!(read(&volume, ino), [&[9; 120][..], &[8; 10]].concat(), "{name}");
        volume.attributes().setattr(&WHO(), ino, &set(|s| s.size = Some(30))).unwrap();
        assert_eq!(read(&volume, ino), [9; 30], "{name}");
    }
    assert_eq!(volume.staged_lsn(), lsn, "nothing was journaled");
    assert_eq!(counters(&volume), (0, files.len() as u64, 0));
    let value = files.iter().find(|(of, _)| *of == "value").unwrap().1;
    assert_eq!(volume.attributes().getxattr(&WHO(), value, b"user.v").unwrap(), [4; 5_000]);
    let extent = files.iter().find(|(of, _)| *of == "extent").unwrap().1;
    assert_eq!(read(&volume, extent), [2; 9_000]);
    for (name, ino) in &files {
        volume.references().release(*ino, 1);
        assert!(volume.attributes().getattr(*ino).unwrap_err().is(Code::Stale), "{name}");
    }
    assert_eq!(volume.staged_lsn(), lsn, "nor their end");
    assert_empty(&volume);
}

#[test]
fn one_that_outgrows_its_inode_takes_a_slot() {
    type Grow = fn(&Volume, Ino) -> Result<()>;
    let grows: [(&str, Grow); 6] = [
        ("write", |v, ino| v.files().write(ino, 0, &[7; 20_000], false).map(|_| ())),
        ("append", |v, ino| v.files().append(ino, &[7; 20_000], false).map(|_| ())),
        ("truncate", |v, ino| {
            v.attributes().setattr(&WHO(), ino, &set(|s| s.size = Some(5))).map(|_| ())?;
            v.files().write(ino, 1 << 30, &[7; 600], false).map(|_| ())
        }),
        ("setxattr", |v, ino| {
            v.attributes().setxattr(&WHO(), ino, b"user.l", &[7; 9_000], XattrFlags::default())
        }),
        ("fallocate", |v, ino| {
            v.files().fallocate(ino, Fallocate::Allocate { keep_size: false }, 0, 100_000)
        }),
        ("punch", |v, ino| {
            v.files().write(ino, 0, &[7; 20_000], false)?;
            v.files().fallocate(ino, Fallocate::PunchHole, 4096, 4096)
        }),
    ];
    let device = device(64 << 20);
    let volume = open(&device, &options());
    for (how, grow) in grows {
        for kind in ["empty", "inline", "extent", "attribute", "value"] {
            let files = small_ones(&volume, Ino::ROOT);
            files.iter().for_each(|(name, _)| remove(&volume, Ino::ROOT, name));
            let ino = files.iter().find(|(of, _)| *of == kind).unwrap().1;
            let (slots, _, back) = counters(&volume);
            let old = read(&volume, ino);
            grow(&volume, ino).unwrap_or_else(|e| panic!("{how} of {kind}: {e}"));
            let after = counters(&volume);
            assert_eq!((after.0 - slots, after.2 - back), (1, 1), "{how} of {kind}");
            assert_eq!(left(&volume).0, 1, "{how} of {kind}");
            let info = volume
                .references()
                .orphan_list()
                .into_iter()
                .find(|orphan| orphan.ino == ino)
                .unwrap();
            assert!(info.held && info.slot && info.state == OrphanState::Unlinked, "{info:?}");
            if how == "setxattr" {
                assert_eq!(read(&volume, ino), old, "{kind}");
                assert_eq!(
                    volume.attributes().getxattr(&WHO(), ino, b"user.l").unwrap(),
                    [7; 9_000]
                );
            }
            assert_clean(&volume);
            files.iter().for_each(|(_, ino)| volume.references().release(*ino, 1));
            assert_eq!(left(&volume), (0, 0), "{how} of {kind}");
        }
    }
    assert_empty(&volume);
}

/// A crash while they are in use: they are free on the device already.
#[test]
fn a_crash_leaves_nothing_of_them() {
    let device = device(64 << 20);
    let volume = open(&device, &options());
    let used = volume.statfs().inodes_used;
    for round in 0..2 {
        let files = small_ones(&volume, Ino::ROOT);
        files.iter().for_each(|(name, _)| remove(&volume, Ino::ROOT, name));
        if round == 1 {
            volume.files().write(files[0].1, 0, &[1; 50_000], false).unwrap();
        }
    }
    volume.sync().unwrap();
    drop(volume);
    let volume = open(&device, &options());
    assert_eq!(volume.info().recovery.orphans, 1, "the one that outgrew its inode");
    assert_eq!(volume.statfs().inodes_used, used);
    assert_empty(&volume);
}

/// Each inode has two references, released in two steps.
#[test]
fn too_many_of_them_take_slots() {
    let device = device(64 << 20);
    // Limits: 64 in memory only; for those with extents, the data in four segments of 1 MiB.
    let volume = open(&device, &OpenOptions { cache_bytes: 4 << 20, ..options() });
    for (len, range) in [(10, 64..=64), (3_000, 64..=64), (200_000, 10..=25)] {
        let files: Vec<Ino> = (0..150)
            .map(|i| {
                let ino = create(&volume, Ino::ROOT, &format!("f{i}"));
                volume.files().write(ino, 0, &vec![i as u8; len], false).unwrap();
                volume.references().hold(ino, 2).unwrap();
                unlink(&volume, Ino::ROOT, &format!("f{i}"));
                ino
            })
            .collect();
        let most = left(&volume).1;
        assert!(range.contains(&most), "{most} files of {len} bytes are in memory alone");
        assert_eq!(left(&volume), (150 - most, most));
        assert_clean(&volume);
        volume.maintenance().checkpoint().unwrap();
        for (i, ino) in files.iter().enumerate() {
            volume.references().release(*ino, 1);
            assert_eq!(read(&volume, *ino), vec![i as u8; len]);
        }
        assert_eq!(left(&volume), (150 - most, most));
        files.iter().for_each(|ino| volume.references().release(*ino, 1));
        assert_eq!(left(&volume), (0, 0));
    }
    assert_empty(&volume);
}

/// Creates files of `len` bytes in `pieces`, open and unlinked, until there is no space.
fn fill(volume: &Volume, len: usize, pieces: u64) -> Vec<Ino> {
    let mut files = Vec::new();
    loop {
        let name = format!("f{}", files.len());
        let file = match volume.namespace().create(&WHO(), Ino::ROOT, name.as_bytes(), 0o644) {
            Err(e) if e.is(Code::NoSpace) => break,
            other => other.unwrap(),
        };
        volume.references().hold(file.ino, 1).unwrap();
        let part = vec![files.len() as u8 | 1; len / pieces as usize];
        let written = (0..pieces).try_for_each(|piece| {
            volume
                .files()
                .write(file.ino, piece << 20, &part, false)
                .map(|n| assert_eq!(n, part.len()))
        });
        unlink(volume, Ino::ROOT, &name);
        files.push(file.ino);
        match written {
            Ok(()) => {}
            Err(e) if e.is(Code::NoSpace) => break,
            Err(e) => panic!("{e}"),
        }
        assert!(files.len() < 100_000, "it never gets full");
    }
    files
}

/// A volume filled by unlinked but open files must be fully usable again after they are closed,
/// repeatedly.
#[test]
fn space_of_open_files_without_names_comes_back() {
    for background in [false, true] {
        let device = device(64 << 20);
        let volume = open(&device, &OpenOptions { background, lab: steps_of(4), ..options() });
        for (len, pieces) in [(20_000, 1), (300_000, 1), (600_000, 40)] {
            let mut first = 0;
            for round in 0..3 {
                let files = fill(&volume, len, pieces);
                assert!(files.len() * len > 30 << 20, "{} files of {len}", files.len());
                let refused = volume.files().write(files[0], 1 << 40, &[1; 2 << 20], false);
                assert!(refused.is_err_and(|e| e.is(Code::NoSpace)), "it is full");
                // Their contents are intact, however full the volume is.
                for (i, ino) in files.iter().enumerate().take(files.len() - 1) {
                    let mut bytes = vec![0; len / pieces as usize];
                    assert_eq!(volume.files().read(*ino, 0, &mut bytes).unwrap(), bytes.len());
                    assert!(bytes.iter().all(|b| *b == i as u8 | 1), "file {i}");
                }
                assert_clean(&volume);
                files.iter().for_each(|ino| volume.references().release(*ino, 1));
                first = if round == 0 { files.len() } else { first };
                let (now, what) = (files.len(), (background, len, round));
                assert!(now * 20 >= first * 19, "{what:?}: {now} files fit, at first {first}");
            }
            assert_empty(&volume);
        }
        let keep = create(&volume, Ino::ROOT, "keep");
        assert_eq!(volume.files().write(keep, 0, &vec![5; 30 << 20], false).unwrap(), 30 << 20);
        volume.close().unwrap();
        let volume = open(&device, &options());
        assert_empty(&volume);
    }
}

/// Space that can still be reaped must not cause `ENOSPC`.
#[test]
fn a_call_waits_for_reaping_before_there_is_no_space() {
    let device = device(128 << 20);
    let volume = open(&device, &OpenOptions { background: true, lab: steps_of(8), ..options() });
    for round in 0..6 {
        let dir = volume.namespace().mkdir(&WHO(), Ino::ROOT, b"tree", 0o755).unwrap().ino;
        let mut files = 0;
        // What is being reaped is not available yet, but calls wait for it.
        while volume.maintenance().is_reaping() || volume.statfs().bytes_available > 4 << 20 {
            let ino = create(&volume, dir, &format!("f{files}"));
            files += 1;
            let full =
                (0..8).find_map(|i| volume.files().write(ino, i << 20, &[7; 40_000], false).err());
            if full.is_some() {
                break;
            }
        }
        assert!(files > 200, "{files}");
        volume.namespace().remove_tree(&WHO(), Ino::ROOT, b"tree", TreeCheck::Tree).unwrap();
        let name = format!("large{round}");
        let large = create(&volume, Ino::ROOT, &name);
        for i in 0..60 {
            let written = volume.files().write(large, i << 20, &vec![round as u8; 1 << 20], false);
            assert_eq!(written.unwrap_or_else(|e| panic!("{round}, {i}: {e}")), 1 << 20);
        }
        assert_clean(&volume);
        unlink(&volume, Ino::ROOT, &name);
    }
    assert_empty(&volume);
}

/// Threads open, unlink, change and close the same files, some of which outgrow their inodes; with
/// checkpoints without pause.
#[test]
fn threads_detach_and_come_back() {
    let device = device(128 << 20);
    let options = OpenOptions {
        background: true,
        lab: Lab { checkpoint_always: true, ..steps_of(2) },
        cache_bytes: 4 << 20,
        ..options()
    };
    let volume = open(&device, &options);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let volume = &volume;
            scope.spawn(move || {
                for i in 0..3_000_u64 {
                    let name = format!("{thread}-{i}");
                    let ino = create(volume, Ino::ROOT, &name);
                    let generation = volume.attributes().getattr(ino).unwrap().generation;
                    let len = [0, 50, 3_000, 9_000][(i % 4) as usize];
                    let bytes = vec![i as u8 | 1; len];
                    volume.files().write(ino, 0, &bytes, false).unwrap();
                    volume.references().hold(ino, 1).unwrap();
                    unlink(volume, Ino::ROOT, &name);
                    assert_eq!(read(volume, ino), bytes);
                    if i % 5 == 0 {
                        for piece in 1..6 {
                            volume.files().write(ino, piece << 20, &[3; 700], false).unwrap();
                        }
                        volume
                            .attributes()
                            .setattr(&WHO(), ino, &set(|s| s.size = Some(10)))
                            .unwrap();
                    }
                    volume.references().release(ino, 1);
                    // It is free, or its number was reused by another thread.
                    match volume.attributes().getattr(ino) {
                        Ok(attr) => assert_ne!(attr.generation, generation),
                        Err(e) => assert!(e.is(Code::Stale), "{e}"),
                    }
                }
            });
        }
    });
    assert_empty(&volume);
    assert_eq!(volume.statfs().inodes_used, 1);
    volume.close().unwrap();
}

/// A file gets its first name during a truncate by another thread: the truncate keeps the slot.
#[test]
fn a_file_is_linked_while_it_is_cut() {
    let device = device(64 << 20);
    let volume = open(&device, &OpenOptions { lab: steps_of(1), ..options() });
    for round in 0..20 {
        let file = volume.namespace().tmpfile(&WHO(), Ino::ROOT, 0o644).unwrap().ino;
        for piece in 0..300 {
            volume.files().write(file, piece << 20, &[1; 600], false).unwrap();
        }
        let name = format!("f{round}");
        std::thread::scope(|scope| {
            let cutting = scope.spawn(|| {
                volume.attributes().setattr(&WHO(), file, &set(|s| s.size = Some(100))).unwrap();
            });
            while volume.attributes().getattr(file).unwrap().size != 100 {
                std::hint::spin_loop();
            }
            volume.namespace().link(&WHO(), file, Ino::ROOT, name.as_bytes()).unwrap();
            assert_clean(&volume);
            cutting.join().unwrap();
        });
        assert_eq!(left(&volume), (0, 0));
        volume.references().release(file, 1);
        assert_eq!(read(&volume, file), [1; 100]);
    }
    assert_empty(&volume);
}
