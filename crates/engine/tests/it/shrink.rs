//! A volume becomes smaller, whatever it holds and whatever happens meanwhile.

use crate::common::*;
use shoal_engine::*;
use shoal_format::superblock::COPIES;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

fn on_device(size: u64, room: u64, compression: Compression) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(room * MIB));
    let (size, segment_size) = (size * MIB, MIB);
    let wish = MkfsOptions { size, segment_size, compression, ..MkfsOptions::default() };
    mkfs_on(device.clone(), &wish).unwrap();
    device
}

/// A generator of numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) % end
    }

    fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len.div_ceil(4)).flat_map(|_| (self.below(1 << 31) as u32).to_le_bytes()).collect()
    }
}

/// Adds files of these lengths to a directory.
fn fill(volume: &Volume, dir: &str, lengths: impl Iterator<Item = u64>, draw: &mut Draw) {
    let who = Caller::root();
    let dir = volume.namespace().mkdir(&who, Ino::ROOT, dir.as_bytes(), 0o755).unwrap().ino;
    for (n, len) in lengths.enumerate() {
        let name = format!("file {n}");
        let file = volume.namespace().create(&who, dir, name.as_bytes(), 0o644).unwrap().ino;
        volume.files().write(file, 0, &draw.bytes(len), false).unwrap();
    }
}

/// Removes all but each `kept`th file of a directory.
fn thin(volume: &Volume, dir: &str, count: u64, kept: u64) {
    let who = Caller::root();
    let dir = volume.namespace().lookup(&who, Ino::ROOT, dir.as_bytes()).unwrap().ino;
    for n in (0..count).filter(|n| n % kept != 0) {
        volume.namespace().unlink(&who, dir, format!("file {n}").as_bytes()).unwrap();
    }
}

/// A volume with everything there is: files of all sizes all over it, attributes, hard links,
/// symbolic links, a subvolume, a quota, promised space. Closed.
fn sample(size: u64, room: u64, compression: Compression) -> (Arc<MemDevice>, Shown) {
    sample_of(size, room, compression, 600)
}

/// As [`sample`], with so many small files.
fn sample_of(
    size: u64,
    room: u64,
    compression: Compression,
    small: u64,
) -> (Arc<MemDevice>, Shown) {
    let device = on_device(size, room, compression);
    let (volume, who, mut draw) = (open(&device), Caller::root(), Draw(size));
    fill(&volume, "large", (0..size / 4).map(|_| 2 * MIB), &mut draw);
    fill(&volume, "small", (0..small).map(|n| n * 13 % 5000), &mut draw);
    thin(&volume, "large", size / 4, 5);
    volume.maintenance().checkpoint().unwrap();
    let names = volume.namespace();
    let file = |name: &[u8]| names.create(&who, Ino::ROOT, name, 0o600).unwrap().ino;
    let one = file(b"one");
    names.link(&who, one, Ino::ROOT, b"two").unwrap();
    names.symlink(&who, Ino::ROOT, b"link", &[b'x'; 3000]).unwrap();
    let value = draw.bytes(50_000);
    volume.attributes().setxattr(&who, one, b"user.v", &value, XattrFlags::default()).unwrap();
    let promised = file(b"promised");
    let mode = Fallocate::Allocate { keep_size: false };
    volume.files().fallocate(promised, mode, 0, 3 * MIB).unwrap();
    let sub = volume.subvolumes().create(&who, b"sub", 0o755).unwrap().ino;
    let inside = names.create(&who, sub, b"inside", 0o600).unwrap().ino;
    volume.files().write(inside, 7, &draw.bytes(200_000), false).unwrap();
    let limits = QuotaLimits { bytes: Some(30 * MIB), inodes: Some(9000) };
    let small = names.lookup(&who, Ino::ROOT, b"small").unwrap().ino;
    volume.quotas().set(&who, small, limits).unwrap();
    let before = shown(&volume);
    volume.close().unwrap();
    (device, before)
}

fn to(device: &Arc<MemDevice>, size: u64) -> Result<Shrunk> {
    shrink_on(&as_dyn(device), size, &options(), &mut |_, _| true)
}

fn as_dyn(device: &Arc<MemDevice>) -> Arc<dyn Device> {
    device.clone()
}

fn check(volume: &Volume) {
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    let (mut at, mut report) = (Some(ScrubAt::default()), ScrubReport::default());
    while let Some(here) = at {
        at = volume.maintenance().scrub_step(here, 8 * MIB, &mut report).unwrap();
    }
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

/// The volume has this size and contents, nothing wrong, and can be used.
fn is_whole(device: &Arc<MemDevice>, size: u64, before: &Shown, context: &str) {
    assert!(!repair(device).written, "{context}");
    let volume = open(device);
    assert_eq!(size_of(&volume), size, "{context}");
    assert!(shown(&volume) == *before, "{context}");
    check(&volume);
    let quotas: Vec<_> = volume.quotas().list().iter().map(|quota| quota.limits).collect();
    assert!(quotas.iter().all(|limits| limits.bytes == Some(30 * MIB)), "{context}");
    volume.close().unwrap();
}

/// Overwrites everything after the volume's end, as another owner of that part of a device would.
fn spoil_after(device: &MemDevice, size: u64) {
    for at in (size * MIB..device.capacity()).step_by(MIB as usize) {
        device.write_at(&vec![0x55; MIB as usize], at).unwrap();
    }
}

#[test]
fn down_in_steps_and_up_again() {
    for compression in [Compression::NONE, Compression::LZ4, Compression::zstd(1).unwrap()] {
        let (device, before) = sample(200, 220, compression);
        for size in [190, 120, 80] {
            let shrunk = to(&device, size * MIB + 5).unwrap();
            assert_eq!(shrunk.now, size * MIB);
            spoil_after(&device, size);
            is_whole(&device, size, &before, &format!("to {size}"));
        }
        let grown = OpenOptions { grow: Some(220 * MIB), ..options() };
        Volume::open_on(device.clone(), &grown).unwrap().close().unwrap();
        is_whole(&device, 220, &before, "grown");
        let volume = open(&device);
        fill(&volume, "more", (0..60).map(|_| 2 * MIB), &mut Draw(1));
        thin(&volume, "more", 60, 3);
        let after = shown(&volume);
        volume.close().unwrap();
        let shrunk = to(&device, 0).unwrap();
        assert!(shrunk.before == 220 * MIB && shrunk.now < 150 * MIB, "{shrunk:?}");
        spoil_after(&device, shrunk.now / MIB);
        is_whole(&device, shrunk.now / MIB, &after, "as small as it can be");
    }
}

/// As small as it can be, from random states: the size is one that works, and little is left over.
#[test]
fn as_small_as_it_can_be() {
    for seed in 0..12 {
        let mut draw = Draw(seed);
        let coded = if seed % 3 == 2 { Compression::LZ4 } else { Compression::NONE };
        let device = on_device(400, 400, coded);
        let volume = open(&device);
        for round in 0..4 {
            let (count, most) = (40 + draw.below(400), 1 << (10 + draw.below(9)));
            let lengths: Vec<u64> = (0..count).map(|_| draw.below(most)).collect();
            let dir = format!("round {round}");
            fill(&volume, &dir, lengths.into_iter(), &mut draw);
            thin(&volume, &dir, count, 1 + draw.below(6));
            if draw.below(2) == 0 {
                volume.maintenance().checkpoint().unwrap();
            }
        }
        let (before, live) = (shown(&volume), volume.info().live_bytes);
        volume.close().unwrap();
        let plan = ShrinkPlan::of(&open(&device), 0).unwrap();
        let shrunk = to(&device, 0).unwrap();
        println!("seed {seed}: {} KiB live, {plan:?}, {shrunk:?}", live >> 10);
        assert!(shrunk.now >= plan.least);
        // The reserve, the journal, and what else calls never get.
        assert!(shrunk.now <= (live + live / 3).next_multiple_of(MIB) + 16 * MIB, "seed {seed}");
        is_whole(&device, shrunk.now / MIB, &before, &format!("seed {seed}"));
        let error = to(&device, 0).err().map(|error| error.to_string());
        assert!(error.is_none_or(|error| error.contains("cannot be smaller")), "seed {seed}");
    }
}

/// A volume on which calls found no more space, of small files or of large ones.
#[test]
fn a_full_volume() {
    for len in [900, 100 << 10] {
        let device = on_device(64, 64, Compression::NONE);
        let (volume, who, mut draw) = (open(&device), Caller::root(), Draw(len));
        let mut count = 0;
        loop {
            let name = format!("file {count}");
            let made = volume.namespace().create(&who, Ino::ROOT, name.as_bytes(), 0o644);
            let Ok(made) = made else { break };
            if volume.files().write(made.ino, 0, &draw.bytes(len), false).is_err() {
                volume.namespace().unlink(&who, Ino::ROOT, name.as_bytes()).unwrap();
                break;
            }
            count += 1;
        }
        let full = shown(&volume);
        volume.close().unwrap();
        let error = to(&device, 40 * MIB).unwrap_err();
        assert!(error.code() == Code::NoSpace, "{error}");
        assert!(error.to_string().contains("need at least"), "{error}");
        is_whole(&device, 64, &full, "refused");
        // Every other file: dead space everywhere, nothing of it free.
        let volume = open(&device);
        for n in (0..count).step_by(2) {
            let name = format!("file {n}");
            volume.namespace().unlink(&who, Ino::ROOT, name.as_bytes()).unwrap();
        }
        let half = shown(&volume);
        volume.close().unwrap();
        let shrunk = to(&device, 0).unwrap();
        println!("{count} files of {len}: {shrunk:?}");
        assert!(shrunk.now <= 48 * MIB, "{shrunk:?}");
        spoil_after(&device, shrunk.now / MIB);
        is_whole(&device, shrunk.now / MIB, &half, "half of it");
    }
}

/// More than one page of the usage table, of which the last ones go.
#[test]
fn past_pages_of_the_usage_table() {
    let (device, draw) = (on_device(2200, 2200, Compression::NONE), &mut Draw(3));
    let volume = open(&device);
    let piece = draw.bytes(MIB);
    let who = Caller::root();
    for n in 0..2000 {
        let name = format!("file {n}");
        let file = volume.namespace().create(&who, Ino::ROOT, name.as_bytes(), 0o644).unwrap();
        volume.files().write(file.ino, 0, &piece[n..], false).unwrap();
    }
    for n in (0..2000).filter(|n| n % 100 != 99) {
        volume.namespace().unlink(&who, Ino::ROOT, format!("file {n}").as_bytes()).unwrap();
    }
    let before = shown(&volume);
    volume.close().unwrap();
    for size in [2048, 1025, 1024, 1023, 60] {
        let shrunk = to(&device, size * MIB).unwrap();
        assert_eq!(shrunk.now, size * MIB);
        let volume = open(&device);
        assert!(shown(&volume) == before, "{size}");
        check(&volume);
        volume.close().unwrap();
        assert!(!repair(&device).written, "{size}");
    }
    // The same segments, and pages, again.
    let grown = OpenOptions { grow: Some(2200 * MIB), ..options() };
    let volume = Volume::open_on(device.clone(), &grown).unwrap();
    assert!(shown(&volume) == before);
    check(&volume);
    volume.close().unwrap();
}

/// Interrupts it after each number of writes and flushes until it succeeds. The volume has one of
/// the two sizes then, and everything that it had, and can be made smaller.
#[test]
fn a_crash_at_any_write_leaves_one_of_the_two_sizes() {
    const LARGE: u64 = 60;
    const SMALL: u64 = 25;
    for was_closed in [true, false] {
        let (device, mut before) = sample_of(LARGE, LARGE, Compression::NONE, 60);
        if !was_closed {
            let volume = open(&device);
            fill(&volume, "journal", (0..30).map(|n| n * 300), &mut Draw(9));
            volume.sync().unwrap();
            before = shown(&volume);
            // A crash.
            drop(volume);
        }
        let plan = ShrinkPlan::of(&open(&copy(&device)), SMALL * MIB).unwrap();
        assert!(plan.moved > MIB / 4, "{plan:?}");
        let mut sizes = Vec::new();
        for writes in 0.. {
            let cut = copy(&device);
            let dying: Arc<dyn Device> = Arc::new(Dying::after(&cut, writes));
            let shrunk = shrink_on(&dying, SMALL * MIB, &options(), &mut |_, _| true);
            let volume = open(&cut);
            let size = size_of(&volume);
            assert!(shown(&volume) == before, "after {writes} writes");
            volume.close().unwrap();
            assert!(!repair(&cut).written, "after {writes} writes");
            if size == LARGE && writes % 8 == 0 {
                assert_eq!(to(&cut, SMALL * MIB).unwrap().now, SMALL * MIB);
            }
            if size == SMALL || writes % 8 == 0 {
                spoil_after(&cut, SMALL);
                is_whole(&cut, SMALL, &before, &format!("again after {writes} writes"));
            }
            sizes.push(size);
            if shrunk.is_ok() {
                println!("{writes} writes in all");
                assert!(writes > 40);
                break;
            }
        }
        assert!(sizes.is_sorted_by(|a, b| a >= b) && sizes[0] == LARGE, "{sizes:?}");
        assert!(sizes.ends_with(&[SMALL, SMALL]), "{sizes:?}");
    }
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let (device, before) = sample(64, 100, Compression::NONE);
    for (wanted, code, why) in [
        (64 * MIB, Code::Invalid, "has 67108864 bytes, and 67108864 would not make it smaller"),
        (99 * MIB, Code::Invalid, "would not make it smaller"),
        (15 * MIB, Code::Invalid, "give at least 16777216"),
        (1, Code::Invalid, "give at least 16777216"),
        (16 * MIB, Code::NoSpace, "cannot have 16777216 bytes: its contents need at least"),
    ] {
        let error = to(&device, wanted).unwrap_err();
        assert!(error.code() == code && error.to_string().contains(why), "{wanted}: {error}");
        is_whole(&device, 64, &before, why);
    }
    let read_only = OpenOptions { read_only: true, ..options() };
    assert!(shrink_on(&as_dyn(&device), 40 * MIB, &read_only, &mut |_, _| true).is_err());
    is_whole(&device, 64, &before, "read-only");
}

/// Promised space must be there afterwards.
#[test]
fn promised_space_counts() {
    let device = on_device(100, 100, Compression::NONE);
    let (volume, who) = (open(&device), Caller::root());
    let file = volume.namespace().create(&who, Ino::ROOT, b"promised", 0o600).unwrap().ino;
    let mode = Fallocate::Allocate { keep_size: false };
    volume.files().fallocate(file, mode, 0, 40 * MIB).unwrap();
    volume.close().unwrap();
    let error = to(&device, 40 * MIB).unwrap_err();
    assert!(error.code() == Code::NoSpace, "{error}");
    let shrunk = to(&device, 0).unwrap();
    assert!((52 * MIB..62 * MIB).contains(&shrunk.now), "{shrunk:?}");
    let volume = open(&device);
    for n in 0..40 {
        volume.files().write(file, n * MIB, &vec![n as u8 + 1; MIB as usize], false).unwrap();
    }
    volume.sync().unwrap();
    check(&volume);
    volume.close().unwrap();
}

/// Inodes that a crash has left to be freed are freed first, so that it need neither be moved nor
/// fit.
#[test]
fn orphans_and_deleted_subvolumes_are_freed_first() {
    let device = on_device(80, 80, Compression::NONE);
    let (volume, who, mut draw) = (open(&device), Caller::root(), Draw(1));
    let sub = volume.subvolumes().create(&who, b"sub", 0o755).unwrap().ino;
    let names = volume.namespace();
    let inside = names.create(&who, sub, b"inside", 0o600).unwrap().ino;
    volume.files().write(inside, 0, &draw.bytes(20 * MIB), false).unwrap();
    let held = names.create(&who, Ino::ROOT, b"held", 0o600).unwrap().ino;
    volume.files().write(held, 0, &draw.bytes(20 * MIB), false).unwrap();
    volume.references().hold(held, 1).unwrap();
    names.unlink(&who, Ino::ROOT, b"held").unwrap();
    volume.subvolumes().delete(&who, b"sub").unwrap();
    fill(&volume, "kept", (0..20).map(|_| 30_000), &mut draw);
    volume.sync().unwrap();
    let before = shown(&volume);
    drop(volume);
    assert_eq!(to(&device, 24 * MIB).unwrap().now, 24 * MIB);
    is_whole(&device, 24, &before, "all of it freed");
}

/// The caller stops it at each moment when it may.
#[test]
fn stopped_it_keeps_its_size_and_goes_on_later() {
    let (device, before) = sample(100, 100, Compression::NONE);
    for rounds in 0.. {
        let cut = copy(&device);
        let mut left = rounds;
        let mut watch = |done: u64, total: u64| {
            assert!(done <= total);
            left -= 1;
            left >= 0
        };
        let shrunk = shrink_on(&as_dyn(&cut), 50 * MIB, &options(), &mut watch).unwrap();
        is_whole(&cut, shrunk.now / MIB, &before, &format!("after {rounds} rounds"));
        if shrunk.now < shrunk.before {
            assert!(rounds > 0);
            break;
        }
        assert_eq!(to(&cut, 50 * MIB).unwrap().now, 50 * MIB);
        is_whole(&cut, 50, &before, "on later");
    }
}

/// Data that cannot be read cannot be moved: nothing is given up.
#[test]
fn a_damaged_object_keeps_the_volume_at_its_size() {
    let (device, _) = sample(100, 100, Compression::NONE);
    let volume = open(&device);
    let who = Caller::root();
    let names = volume.namespace();
    let dir = names.lookup(&who, Ino::ROOT, b"large").unwrap().ino;
    let last = names.lookup(&who, dir, b"file 20").unwrap().ino;
    let mut bytes = vec![0; 4096];
    volume.files().read(last, 0, &mut bytes).unwrap();
    volume.close().unwrap();
    let mut piece = vec![0; MIB as usize];
    let at = (0..100).find_map(|seg| {
        device.read_at(&mut piece, seg * MIB).unwrap();
        let at = piece.windows(64).position(|window| window == &bytes[..64])?;
        Some(seg * MIB + at as u64)
    });
    let at = at.unwrap();
    assert!(at > 40 * MIB, "a file in the second half: {at}");
    flip(&device, at + 1000);
    let error = to(&device, at / MIB * MIB).unwrap_err().to_string();
    assert!(error.contains("cannot be moved") && error.contains("shoal fsck"), "{error}");
    let volume = open(&device);
    assert_eq!(size_of(&volume), 100);
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert!(report.problems.iter().all(|problem| problem.rule == "data-checksum"));
    assert!(volume.files().read(last, 0, &mut bytes).is_err());
    // Without the file, it becomes smaller.
    volume.namespace().unlink(&who, dir, b"file 20").unwrap();
    let before = shown(&volume);
    volume.close().unwrap();
    to(&device, at / MIB * MIB).unwrap();
    is_whole(&device, at / MIB, &before, "without it");
}

/// Both superblocks are lost after it: the newest backup superblock has the new size, although
/// those of before are still on the device, within the volume and after its end.
#[test]
fn a_search_for_superblocks_finds_the_new_size() {
    let (device, before) = sample(100, 100, Compression::NONE);
    let volume = open(&device);
    let dir = volume.quotas().list()[0].dir;
    volume.quotas().remove(&Caller::root(), dir).unwrap();
    // Checkpoints all over the device, also after the new end.
    for n in 0..30 {
        fill(&volume, &format!("passing {n}"), std::iter::once(2 * MIB), &mut Draw(n));
        volume.maintenance().checkpoint().unwrap();
    }
    let who = Caller::root();
    for n in 0..30 {
        thin(&volume, &format!("passing {n}"), 0, 1);
        let dir = format!("passing {n}");
        let names = volume.namespace();
        let ino = names.lookup(&who, Ino::ROOT, dir.as_bytes()).unwrap().ino;
        names.unlink(&who, ino, b"file 0").unwrap();
        names.rmdir(&who, Ino::ROOT, dir.as_bytes()).unwrap();
    }
    assert!(shown(&volume) == before);
    volume.close().unwrap();
    to(&device, 50 * MIB).unwrap();
    let behead = |device: &MemDevice| {
        COPIES.iter().for_each(|at| device.write_at(&[0; 4096], *at).unwrap());
    };
    let found =
        |device: &Arc<MemDevice>| shoal_txn::find_superblocks(&**device, &mut |_, _| {}).unwrap();
    let headless = copy(&device);
    let larger = found(&headless).iter().filter(|sb| sb.geometry.segments > 50).count();
    println!("{larger} backup superblocks of the larger volume");
    behead(&headless);
    let report = repair(&headless);
    assert!(report.written && report.left.is_empty(), "{report:#?}");
    is_whole(&headless, 50, &before, "without superblocks");
    // Grown again, over what was there before.
    let grown = OpenOptions { grow: Some(100 * MIB), ..options() };
    Volume::open_on(device.clone(), &grown).unwrap().close().unwrap();
    behead(&device);
    let report = repair(&device);
    assert!(report.written && report.left.is_empty(), "{report:#?}");
    is_whole(&device, 100, &before, "grown, without superblocks");
}

#[test]
fn a_file_is_cut_off_when_the_volume_is_smaller() {
    let path = std::env::temp_dir().join(format!("shoal-shrink-{}", std::process::id()));
    let wish = MkfsOptions { size: 128 * MIB, ..MkfsOptions::default() };
    mkfs(&path, &wish).unwrap();
    let length = || std::fs::metadata(&path).unwrap().len() / MIB;
    let to = |size| shrink(&path, size, &OpenOptions::default(), &mut |_, _| true);
    let volume = Volume::open(&path, &OpenOptions::default()).unwrap();
    fill(&volume, "some", (0..40).map(|n| n * 50_000), &mut Draw(4));
    let before = shown(&volume);
    let error = to(100 * MIB).unwrap_err().to_string();
    assert!(error.contains("is in use"), "{error}");
    volume.close().unwrap();
    assert!(to(30 * MIB).is_err() && to(200 * MIB).is_err() && length() == 128);
    assert_eq!(to(100 * MIB).unwrap(), Shrunk { before: 128 * MIB, now: 100 * MIB });
    assert_eq!(length(), 100);
    // Interrupted before the file was cut off.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(128 * MIB).unwrap();
    assert_eq!(to(100 * MIB).unwrap(), Shrunk { before: 128 * MIB, now: 100 * MIB });
    assert_eq!(length(), 100);
    assert!(to(100 * MIB).unwrap_err().to_string().contains("would not make it smaller"));
    grow(&path, 200 * MIB, &OpenOptions::default()).unwrap();
    let volume = Volume::open(&path, &OpenOptions::default()).unwrap();
    assert!(shown(&volume) == before);
    check(&volume);
    volume.close().unwrap();
    std::fs::remove_file(&path).unwrap();
}
