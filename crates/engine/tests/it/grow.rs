//! A volume becomes larger, whatever happens meanwhile.

use crate::common::*;
use shoal_engine::*;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// A volume of so many MiB on a device of `room`, with files and a directory, closed.
fn sample(size: u64, room: u64) -> (Arc<MemDevice>, Shown) {
    let device = Arc::new(MemDevice::new(room * MIB));
    let wish = MkfsOptions { size: size * MIB, segment_size: MIB, ..MkfsOptions::default() };
    mkfs_on(device.clone(), &wish).unwrap();
    let (volume, who) = (open(&device), Caller::root());
    fill(&volume, &who, b"before", 200);
    let before = shown(&volume);
    volume.close().unwrap();
    (device, before)
}

fn fill(volume: &Volume, who: &Caller, dir: &[u8], files: usize) {
    let dir = volume.namespace().mkdir(who, Ino::ROOT, dir, 0o755).unwrap().ino;
    for n in 0..files {
        let name = format!("file {n}");
        let file = volume.namespace().create(who, dir, name.as_bytes(), 0o644).unwrap().ino;
        volume.files().write(file, 0, name.repeat(n + 1).as_bytes(), false).unwrap();
    }
}

fn growing(size: u64) -> OpenOptions {
    OpenOptions { grow: Some(size * MIB), ..options() }
}

fn check(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// Past the first page of the usage table, from a full page, past an index page.
#[test]
fn to_any_size() {
    for (size, sizes) in [
        (32, vec![33, 64, 1023, 1024, 1025, 5000]),
        (1024, vec![1025]),
        (64, vec![270_000, 270_001]),
    ] {
        let (device, mut before) = sample(size, 300_000);
        for wanted in sizes {
            let volume = Volume::open_on(device.clone(), &growing(wanted)).unwrap();
            assert_eq!(size_of(&volume), wanted);
            assert!(shown(&volume) == before, "{size} to {wanted}");
            assert!(!volume.info().recovery.needed);
            check(&volume);
            fill(&volume, &Caller::root(), format!("at {wanted}").as_bytes(), 20);
            before = shown(&volume);
            volume.close().unwrap();
            let volume = open(&device);
            assert_eq!(size_of(&volume), wanted);
            assert!(shown(&volume) == before, "{size} to {wanted}, opened again");
            check(&volume);
            volume.close().unwrap();
            assert!(!repair(&device).written, "{size} to {wanted}");
        }
    }
}

#[test]
fn the_new_space_can_be_used() {
    let (device, _) = sample(32, 200);
    let full = |volume: &Volume, name: &[u8]| {
        let who = Caller::root();
        let file = volume.namespace().create(&who, Ino::ROOT, name, 0o644).unwrap().ino;
        let piece = vec![7; MIB as usize];
        let wrote = |n: &u64| volume.files().write(file, n * MIB, &piece, false).is_ok();
        (0..).take_while(wrote).count()
    };
    let volume = open(&device);
    let few = full(&volume, b"small");
    assert!(few < 32);
    volume.close().unwrap();
    let volume = Volume::open_on(device.clone(), &growing(200)).unwrap();
    let more = full(&volume, b"large");
    assert!((130..170).contains(&more), "{few}, then {more}");
    check(&volume);
    volume.close().unwrap();
}

/// Interrupts the growth after each number of writes until it succeeds. The volume has one of the
/// two sizes then, and everything that it had.
#[test]
fn a_crash_at_any_write_leaves_one_of_the_two_sizes() {
    for was_closed in [true, false] {
        let (device, mut before) = sample(40, 1100);
        if !was_closed {
            let volume = open(&device);
            fill(&volume, &Caller::root(), b"in the journal", 50);
            volume.sync().unwrap();
            before = shown(&volume);
            // A crash.
            drop(volume);
        }
        let mut sizes = Vec::new();
        for writes in 0.. {
            let cut = copy(&device);
            let dying = Arc::new(Dying::after(&cut, writes));
            let grown = Volume::open_on(dying, &growing(1100)).map(|volume| volume.close());
            let volume = open(&cut);
            sizes.push(size_of(&volume));
            assert!(shown(&volume) == before, "after {writes} writes");
            check(&volume);
            volume.close().unwrap();
            assert!(!repair(&cut).written, "after {writes} writes");
            // Again, or for the first time.
            match Volume::open_on(cut.clone(), &growing(1100)) {
                Ok(volume) => {
                    assert!(shown(&volume) == before && size_of(&volume) == 1100);
                    volume.close().unwrap();
                }
                Err(error) => assert!(error.to_string().contains("would not make it larger")),
            }
            if matches!(grown, Ok(Ok(()))) {
                println!("{writes} writes in all");
                assert!(writes > 4);
                break;
            }
        }
        assert!(sizes.is_sorted() && sizes[0] == 40 && sizes.ends_with(&[1100]), "{sizes:?}");
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let (device, before) = sample(64, 100);
    for (wanted, why) in [
        (63, "would not make it larger: give at least 68157440"),
        (64, "would not make it larger"),
        (101, "too few for a volume of"),
        (100 << 20, "allow"),
    ] {
        let error = Volume::open_on(device.clone(), &growing(wanted)).err().unwrap().to_string();
        assert!(error.contains(why), "{wanted}: {error}");
    }
    let read_only = OpenOptions { read_only: true, ..growing(100) };
    let error = Volume::open_on(device.clone(), &read_only).err().unwrap().to_string();
    assert!(error.contains("opened read-only"), "{error}");
    let volume = open(&device);
    assert!(shown(&volume) == before && size_of(&volume) == 64);
    volume.close().unwrap();
    // All of the device.
    let volume = Volume::open_on(device.clone(), &growing(0)).unwrap();
    assert_eq!(size_of(&volume), 100);
    volume.close().unwrap();
}

#[test]
fn a_file_becomes_longer_only_if_the_volume_can() {
    let path = std::env::temp_dir().join(format!("shoal-grow-{}", std::process::id()));
    let wish = MkfsOptions { size: 64 * MIB, ..MkfsOptions::default() };
    mkfs(&path, &wish).unwrap();
    let length = || std::fs::metadata(&path).unwrap().len() / MIB;
    let options = OpenOptions::default();
    for bad in [0, 10 * MIB, u64::MAX] {
        assert!(grow(&path, bad, &options).is_err());
        assert_eq!(length(), 64);
    }
    let volume = Volume::open(&path, &options).unwrap();
    let error = grow(&path, 128 * MIB, &options).err().unwrap().to_string();
    assert!(error.contains("is in use"), "{error}");
    assert_eq!(length(), 64);
    volume.close().unwrap();
    let grown = grow(&path, 128 * MIB + 5, &options).unwrap();
    assert_eq!(grown, Grown { before: 64 * MIB, now: 128 * MIB });
    assert_eq!(length(), 128);
    std::fs::remove_file(&path).unwrap();
}
