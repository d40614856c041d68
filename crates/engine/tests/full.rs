//! The full volume: `statfs` says what can be written, a refusal is cheap, and what is freed can be
//! used at once. The host's full disk is in `host.rs`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use shoal_engine::*;
use std::sync::Arc;
use std::time::Instant;

fn fresh(size: u64) -> Volume {
    let device = Arc::new(MemDevice::new(size));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let options = OpenOptions { background: false, cache_bytes: 64 << 20, ..Default::default() };
    Volume::open_on(device, &options).unwrap()
}

fn create(volume: &Volume, name: &str) -> Result<Ino> {
    volume.create(&Caller::root(), Ino::ROOT, name.as_bytes(), 0o644).map(|entry| entry.ino)
}

fn checkpoints(volume: &Volume) -> u64 {
    let info = volume.info();
    info.counters.iter().find(|(name, _)| *name == "checkpoints").unwrap().1
}

/// Writes files of `size` bytes until there is no space; returns them and the bytes in them.
fn fill(volume: &Volume, prefix: &str, size: usize) -> (Vec<Ino>, u64) {
    let (mut files, mut bytes) = (Vec::new(), 0);
    let data = vec![7; size];
    loop {
        let file = match create(volume, &format!("{prefix}{}", files.len())) {
            Ok(file) => file,
            Err(e) if e.is(Code::NoSpace) => return (files, bytes),
            Err(e) => panic!("{e}"),
        };
        files.push(file);
        let mut written = 0;
        let mut piece = size;
        // What no longer fits as a whole may in parts, as a program that writes on would find.
        while written < size && piece >= 4096.min(size) {
            let part = &data[written..size.min(written + piece)];
            match volume.write(file, written as u64, part, false) {
                Ok(n) => written += n,
                Err(e) if e.is(Code::NoSpace) => piece /= 2,
                Err(e) => panic!("{e}"),
            }
        }
        bytes += written as u64;
        if written < size {
            return (files, bytes);
        }
    }
}

/// What `statfs` calls available is what can be written, in large pieces to within 2 %; of small
/// files the names and inodes take a part, and nothing is left that is promised.
#[test]
fn statfs_says_what_can_be_written() {
    for size in [64 << 20, 256 << 20, 1 << 30] {
        for piece in [1 << 20, 100_000, 16 << 10] {
            let volume = fresh(size);
            let said = volume.statfs().bytes_available;
            let (_, written) = fill(&volume, "f", piece);
            let left = volume.statfs().bytes_available;
            let share = written as f64 / said as f64;
            let text = format!(
                "{} MiB, {piece} at a time: said {said}, written {written} ({share:.4}), {left}",
                size >> 20
            );
            println!("{text}");
            let metadata = if piece < 100_000 { 0.04 } else { 0.0 };
            assert!(share < 1.02 && share > 0.98 - metadata, "{text}");
            assert!(left as f64 <= 0.02 * said as f64 + 3.0 * piece as f64, "{text}");
        }
    }
}

/// The same for what has been written and overwritten, half of it removed again: dead space counts,
/// and can be had.
#[test]
fn dead_space_that_statfs_promises_can_be_had() {
    let volume = fresh(128 << 20);
    let (files, _) = fill(&volume, "f", 50_000);
    for n in (0..files.len()).step_by(2) {
        volume.unlink(&Caller::root(), Ino::ROOT, format!("f{n}").as_bytes()).unwrap();
    }
    let said = volume.statfs().bytes_available;
    assert!(said > 40 << 20, "{said}");
    let (_, written) = fill(&volume, "g", 200_000);
    let share = written as f64 / said as f64;
    println!("said {said}, written {written} ({share:.4})");
    assert!(share > 0.97 && share < 1.03, "said {said}, written {written}");
}

/// The first refusal may have to look for space. Those after it know that nothing has been freed.
#[test]
fn a_refused_call_is_cheap() {
    let volume = fresh(128 << 20);
    let (files, _) = fill(&volume, "f", 100_000);
    for n in (0..files.len()).step_by(50) {
        volume.unlink(&Caller::root(), Ino::ROOT, format!("f{n}").as_bytes()).unwrap();
    }
    fill(&volume, "g", 30_000);
    let data = vec![8; 64 << 10];
    let refused = |file| volume.write(file, 0, &data, false).is_err_and(|e| e.is(Code::NoSpace));
    let some = files[files.len() - 2];
    (0..).find(|n| create(&volume, &format!("more{n}")).is_err());
    while !refused(some) {}
    assert!(create(&volume, "new").is_err());
    let (before, begun) = (checkpoints(&volume), Instant::now());
    let count = 2000;
    for n in 0..count {
        assert!(refused(files[1 + n % 7]), "{n}");
        assert!(create(&volume, "new").is_err());
    }
    let each = begun.elapsed() / (2 * count as u32);
    println!("{each:?} a refusal");
    assert_eq!(checkpoints(&volume) - before, 0);
    // As soon as something goes there is room again, for what is as large.
    for n in 1..8 {
        volume.unlink(&Caller::root(), Ino::ROOT, format!("f{n}").as_bytes()).unwrap();
    }
    let (fs, wrote) = (volume.statfs(), volume.write(some, 0, &data, false));
    assert!(wrote.is_ok(), "{wrote:?}: {fs:?}, then {:?}", volume.statfs());
    assert!(create(&volume, "new").is_ok());
}

/// A small request is not refused because a large one was.
#[test]
fn requests_of_different_sizes_are_refused_each_for_itself() {
    let volume = fresh(64 << 20);
    let (files, _) = fill(&volume, "f", 1 << 20);
    let file = files[0];
    while volume.write(file, 0, &vec![1; 1 << 20], false).is_ok() {}
    let last = create(&volume, "small");
    let wrote = last.and_then(|file| volume.write(file, 0, &[1; 20_000], false));
    let left = volume.statfs().bytes_available;
    assert!(wrote.is_ok() || left < 64 << 10, "{wrote:?}, {left} left");
}

/// Nearly full, blocks overwritten at random: every call succeeds that `statfs` has room for.
fn overwrites(size: u64, file_bytes: usize, keep: u64) {
    let volume = fresh(size);
    let mut files = Vec::new();
    let all = volume.statfs().bytes_available;
    while volume.statfs().bytes_available > all / keep {
        let file = create(&volume, &format!("f{}", files.len())).unwrap();
        volume.write(file, 0, &vec![3; file_bytes], false).unwrap();
        files.push(file);
        if files.len() % 64 == 0 {
            volume.checkpoint().unwrap();
        }
    }
    let (before, mut state) = (checkpoints(&volume), 1_u64);
    let blocks = file_bytes >> 14;
    let count = 2 * files.len() * blocks;
    for n in 0..count {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let chosen = (state >> 33) as usize;
        let (file, block) = (files[chosen % files.len()], chosen / files.len() % blocks);
        let wrote = volume.write(file, (block << 14) as u64, &vec![n as u8; 16 << 10], false);
        let (fs, info) = (volume.statfs(), volume.info());
        assert!(wrote.is_ok(), "{n}: {wrote:?}, {fs:?}, {info:?}");
    }
    let made = checkpoints(&volume) - before;
    println!("{count} overwrites, {made} checkpoints");
    assert!(made < count as u64 / 8, "{made} checkpoints for {count} overwrites");
}

#[test]
fn overwrites_of_a_nearly_full_volume_succeed() {
    overwrites(96 << 20, 16 << 10, 12);
}

#[test]
fn overwrites_of_large_files_on_a_nearly_full_volume_succeed() {
    overwrites(96 << 20, 1 << 20, 8);
}

/// Hard-cut objects: one that is used in thousands of pieces is moved in bounded transactions.
#[test]
fn the_cleaner_moves_an_object_of_many_pieces() {
    let volume = fresh(64 << 20);
    let file = create(&volume, "pieces").unwrap();
    let data: Vec<u8> = (0..128 << 10).map(|n| (n % 251) as u8).collect();
    volume.write(file, 0, &data, false).unwrap();
    for at in (0..data.len() as u64).step_by(64) {
        volume.fallocate(file, Fallocate::PunchHole, at, 32).unwrap();
    }
    // Its segment is filled and emptied but for it.
    let fills: Vec<Ino> = (0..24).map(|n| create(&volume, &format!("{n}")).unwrap()).collect();
    for f in fills {
        volume.write(f, 0, &vec![1; 256 << 10], false).unwrap();
    }
    (0..24).for_each(|n| {
        volume.unlink(&Caller::root(), Ino::ROOT, format!("{n}").as_bytes()).unwrap();
    });
    for _ in 0..3 {
        volume.clean().unwrap();
    }
    assert!(volume.read_only_reason().is_none(), "{:?}", volume.read_only_reason());
    let mut back = vec![9; data.len()];
    volume.read(file, 0, &mut back).unwrap();
    let right = back.iter().enumerate().all(|(n, b)| *b == if n % 64 < 32 { 0 } else { data[n] });
    assert!(right, "the pieces are where they were");
    let moved = volume.info().counters.iter().find(|(name, _)| *name == "bytes_moved").unwrap().1;
    assert!(moved > 0);
}

/// A volume full of metadata: names and inodes go one by one, whatever the checkpoints need.
#[test]
fn tiny_files_that_fill_a_volume_can_be_removed() {
    let volume = fresh(32 << 20);
    let (files, _) = fill(&volume, "a", 100);
    for n in 0..files.len() {
        let gone = volume.unlink(&Caller::root(), Ino::ROOT, format!("a{n}").as_bytes());
        let reason = volume.read_only_reason();
        assert!(gone.is_ok(), "{n}: {gone:?}, {reason:?}, {:?}", volume.info());
    }
    let (again, _) = fill(&volume, "b", 100);
    assert!(again.len() * 10 >= files.len() * 9, "{} files, then {}", files.len(), again.len());
}
