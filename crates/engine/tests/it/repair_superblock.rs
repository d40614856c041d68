//! Volumes without both superblocks: they are found by their backup superblocks, and by no others.

use crate::common::*;
use shoal_engine::*;
use shoal_format::superblock::COPIES;
use std::sync::Arc;

const ROOT: Ino = Ino::ROOT;

fn made(names: &str, count: u32) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(24 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    fill(&device, names, count);
    device
}

fn fill(device: &Arc<MemDevice>, names: &str, count: u32) {
    let volume = open(device);
    for n in 0..count {
        let name = format!("{names} {n}");
        let file =
            volume.namespace().create(&Caller::root(), ROOT, name.as_bytes(), 0o600).unwrap().ino;
        volume.files().write(file, 0, name.repeat(50).as_bytes(), false).unwrap();
    }
    volume.close().unwrap();
}

fn behead(device: &MemDevice) {
    COPIES.iter().for_each(|at| device.write_at(&[0; 4096], *at).unwrap());
}

fn repaired(device: &Arc<MemDevice>) -> Shown {
    let report = repair(device);
    assert!(report.written && report.left.is_empty(), "{report:#?}");
    let again = repair(device);
    assert_eq!((again.found, again.written), (vec![], false));
    shown(&open(device))
}

/// Both the check and the salvage find the damaged copy.
#[test]
fn a_damaged_copy_is_one_problem() {
    let device = made("a", 20);
    flip(&device, COPIES[0] + 100);
    let options = OpenOptions::default();
    let device: Arc<dyn Device> = device;
    let report = Volume::inspect_on(&device, &options, &mut |_, _, _| {}).unwrap();
    let rules: Vec<&str> = report.found.iter().map(|problem| problem.rule).collect();
    assert_eq!(rules, ["superblock-copy"], "{report:#?}");
}

#[test]
fn what_was_acknowledged_since_the_last_checkpoint_is_there() {
    let device = made("a", 20);
    // Closed; opened, which writes only the superblocks; synced and stopped.
    let volume = open(&device);
    volume.namespace().create(&Caller::root(), ROOT, b"acknowledged", 0o600).unwrap();
    volume.sync().unwrap();
    let before = shown(&volume);
    let stopped = copy(&device);
    behead(&stopped);
    assert!(repaired(&stopped) == before);
}

#[test]
fn a_volume_within_a_file_of_the_volume_is_not_taken_for_it() {
    let inner = made("inside", 3);
    let outer = Arc::new(MemDevice::new(96 << 20));
    mkfs_on(outer.clone(), &MkfsOptions::default()).unwrap();
    let volume = open(&outer);
    let file = volume.namespace().create(&Caller::root(), ROOT, b"image", 0o600).unwrap().ino;
    let mut piece = vec![0; 1 << 20];
    for at in (0..inner.capacity()).step_by(piece.len()) {
        inner.read_at(&mut piece, at).unwrap();
        volume.files().write(file, at, &piece, false).unwrap();
    }
    volume.close().unwrap();
    let before = shown(&open(&outer));
    let stopped = copy(&outer);
    behead(&stopped);
    assert!(repaired(&stopped) == before);
}

#[test]
fn of_two_volumes_made_on_one_device_the_later() {
    let device = made("old", 50);
    for round in 0..3 {
        fill(&device, &format!("again {round}"), 50);
    }
    // The creation time has a resolution of seconds.
    let second = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let begun = second();
    shoal_skip::wait_until("the next second", || second() > begun);
    // That of a volume may be read from a clock that is behind by a tick.
    shoal_skip::tick();
    let force = MkfsOptions { force: true, ..MkfsOptions::default() };
    mkfs_on(device.clone(), &force).unwrap();
    fill(&device, "new", 5);
    let before = shown(&open(&device));
    let stopped = copy(&device);
    behead(&stopped);
    assert!(repaired(&stopped) == before);
}

#[test]
fn what_is_no_volume_is_refused_and_not_written_to() {
    let device = Arc::new(MemDevice::new(24 << 20));
    device.write_at(&[0x5a; 70_000], 1000).unwrap();
    let done = Volume::repair_on(device.clone(), &options(), &mut |_, _, _| {}, &mut |_| true);
    let error = done.err().unwrap();
    assert!(error.to_string().contains("not a Shoal volume"), "{error}");
}
