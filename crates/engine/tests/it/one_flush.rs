//! One flush covers data and the records that point to it (docs/crash-model.md, "Data and records
//! with one flush"): what recovery makes of a journal whose data is not all there.

use crate::common::{Dying, copy, flip, options, shown};
use shoal_engine::*;
use shoal_format::extent::HEADER;
use shoal_format::features::INCOMPAT_VERIFIED_TAIL;
use std::sync::Arc;

/// A volume of 64 MiB.
fn device() -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(64 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    device
}

fn open_with(device: Arc<dyn Device>, ring: Option<&Arc<RingMemory>>) -> Volume {
    Volume::open_on(device, &OpenOptions { ring: ring.cloned(), ..options() }).unwrap()
}

/// Bytes that compression and other contents do not have.
fn contents(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

fn make(volume: &Volume, name: &str, bytes: &[u8]) -> Ino {
    let who = Caller::root();
    let ino = volume.namespace().create(&who, Ino::ROOT, name.as_bytes(), 0o644).unwrap().ino;
    volume.files().write(ino, 0, bytes, false).unwrap();
    ino
}

/// Address of these bytes.
fn find(device: &MemDevice, bytes: &[u8]) -> u64 {
    let mut all = vec![0; device.capacity() as usize];
    device.read_at(&mut all, 0).unwrap();
    all.windows(64).position(|place| place == &bytes[..64]).unwrap() as u64
}

/// Names and contents; an error for contents that cannot be read.
fn files(volume: &Volume) -> Vec<(String, Result<Vec<u8>>)> {
    let mut names = Vec::new();
    let mut each = |entry: DirEntry<'_>| {
        names.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.ino));
        true
    };
    volume.directories().readdir(Ino::ROOT, 2, &mut each).unwrap();
    names.sort();
    let read = |ino| {
        let size = volume.attributes().getattr(ino).unwrap().size;
        let mut bytes = vec![0; size as usize];
        volume.files().read(ino, 0, &mut bytes).map(|_| bytes)
    };
    names.into_iter().map(|(name, ino)| (name, read(ino))).collect()
}

fn scrubbed(volume: &Volume) -> Vec<Problem> {
    let (mut report, mut at) = (ScrubReport::default(), Some(ScrubAt::default()));
    while let Some(here) = at {
        at = volume.maintenance().scrub_step(here, 1 << 20, &mut report).unwrap();
    }
    report.problems
}

fn is_verified(device: &MemDevice) -> bool {
    shoal_txn::read_superblock(device).unwrap().incompat & INCOMPAT_VERIFIED_TAIL != 0
}

#[test]
fn a_synced_file_takes_one_flush() {
    let device = device();
    let volume = open_with(device.clone(), None);
    let flushes = || {
        let counters = volume.info().counters;
        counters.iter().find(|(name, _)| *name == "flushes").unwrap().1
    };
    make(&volume, "first", &contents(1, 4096));
    volume.sync().unwrap();
    let before = flushes();
    for n in 0..20 {
        make(&volume, &n.to_string(), &contents(n, 4096));
        volume.sync().unwrap();
    }
    assert_eq!(flushes() - before, 20);
    volume.close().unwrap();
}

#[test]
fn a_record_without_its_data_ends_the_journal() {
    let device = device();
    let volume = open_with(device.clone(), None);
    let (first, small, large) = (contents(1, 6000), contents(2, 3000), contents(3, 50_000));
    let (value, parts) = (contents(4, 9000), contents(5, 20 * 700));
    make(&volume, "a", &first);
    volume.sync().unwrap();
    make(&volume, "b", &small);
    let long = make(&volume, "c", &large);
    let who = Caller::root();
    let flags = XattrFlags::default();
    volume.attributes().setxattr(&who, long, b"user.long", &value, flags).unwrap();
    // Grows in place: each record has the sum of a longer last piece.
    for part in parts.chunks(700) {
        let size = volume.attributes().getattr(long).unwrap().size;
        volume.files().write(long, size, part, false).unwrap();
    }
    make(&volume, "d", b"");
    volume.sync().unwrap();
    let before = shown(&volume);
    drop(volume);
    assert!(is_verified(&device));
    let cases = [
        // What is damaged, and how many files are there after it, with how many bytes.
        (find(&device, &small), vec![("a", 6000), ("b", 0)]),
        (find(&device, &small) + 2999, vec![("a", 6000), ("b", 0)]),
        (find(&device, &small) - HEADER as u64, vec![("a", 6000), ("b", 0)]),
        (find(&device, &large) - HEADER as u64 + 8, vec![("a", 6000), ("b", 3000), ("c", 0)]),
        (find(&device, &large) + 49_999, vec![("a", 6000), ("b", 3000), ("c", 0)]),
        (find(&device, &value) + 5000, vec![("a", 6000), ("b", 3000), ("c", 50_000)]),
        (find(&device, &parts[19 * 700..]) + 600, vec![("a", 6000), ("b", 3000), ("c", 63_300)]),
    ];
    for (at, expected) in cases {
        for read_only in [true, false] {
            let damaged = copy(&device);
            flip(&damaged, at);
            let options = OpenOptions { read_only, ..options() };
            let volume = Volume::open_on(damaged.clone(), &options).unwrap();
            let torn = volume.info().recovery.torn.unwrap();
            assert!(torn.contains("did not arrive"), "{torn}");
            let found = files(&volume);
            let sizes: Vec<(&str, usize)> =
                found.iter().map(|(name, read)| (&**name, read.as_ref().unwrap().len())).collect();
            assert_eq!(sizes, expected, "byte {at} damaged: {torn}");
            if read_only {
                continue;
            }
            assert!(scrubbed(&volume).is_empty());
            make(&volume, "later", &small);
            volume.close().unwrap();
            let volume = open_with(damaged.clone(), None);
            assert!(!volume.info().recovery.needed);
            assert_eq!(files(&volume).len(), expected.len() + 1);
        }
    }
    let whole = copy(&device);
    let volume = open_with(whole.clone(), None);
    assert_eq!(volume.info().recovery.torn, None);
    assert!(shown(&volume) == before);
    volume.close().unwrap();
    assert!(!is_verified(&whole), "a volume that was closed is for every Shoal");
}

/// A later batch says that it was durable, so its damage is no torn end.
#[test]
fn damage_to_what_was_durable_is_reported_and_costs_nothing_else() {
    let device = device();
    let volume = open_with(device.clone(), None);
    let (first, second) = (contents(1, 6000), contents(2, 6000));
    make(&volume, "a", &first);
    volume.sync().unwrap();
    make(&volume, "b", &second);
    volume.sync().unwrap();
    drop(volume);
    flip(&device, find(&device, &first) + 4500);
    let volume = open_with(device.clone(), None);
    assert_eq!(volume.info().recovery.torn, None);
    let found = files(&volume);
    assert!(matches!(&found[0].1, Err(e) if e.is_damage()), "{found:?}");
    assert!(found[1].1.as_ref().unwrap() == &second);
}

/// The machine has not stopped: nothing was lost, and nothing is looked at.
#[test]
fn a_killed_process_leaves_all_of_its_data() {
    let (device, ring) = (device(), Arc::new(RingMemory::without_name().unwrap()));
    let volume = open_with(device.clone(), Some(&ring));
    let first = contents(1, 6000);
    make(&volume, "a", &first);
    make(&volume, "b", b"");
    volume.sync().unwrap();
    make(&volume, "c", b"");
    drop(volume);
    flip(&device, find(&device, &first) + 4500);
    let volume = open_with(device.clone(), Some(&ring));
    assert_eq!(volume.info().recovery.torn, None);
    let found = files(&volume);
    assert_eq!(found.len(), 3);
    assert!(matches!(&found[0].1, Err(e) if e.is_damage()), "{found:?}");
}

/// The first recovery writes a checkpoint: after its crash the second one finds the same.
#[test]
fn a_recovery_that_is_interrupted_ends_where_it_would_have() {
    let device = device();
    let volume = open_with(device.clone(), None);
    let (first, second) = (contents(1, 6000), contents(2, 6000));
    make(&volume, "a", &first);
    make(&volume, "b", &second);
    make(&volume, "c", b"");
    volume.sync().unwrap();
    drop(volume);
    flip(&device, find(&device, &second) + 4500);
    for writes in 0.. {
        let interrupted = copy(&device);
        let dying: Arc<dyn Device> = Arc::new(Dying::after(&interrupted, writes));
        let whole = Volume::open_on(dying, &options()).is_ok();
        let volume = open_with(interrupted, None);
        let found = files(&volume);
        let names: Vec<&str> = found.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a", "b"], "after {writes} writes");
        assert!(found[0].1.as_ref().unwrap() == &first);
        assert_eq!(found[1].1.as_ref().unwrap().len(), 0);
        if whole {
            assert!(writes > 3, "{writes}");
            break;
        }
    }
}
