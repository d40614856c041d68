//! A restored volume is the dumped one, and nothing of what the device held after the dump.

use shoal_engine::*;
use std::path::{Path, PathBuf};

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        Place(std::env::temp_dir().join(format!("shoal-dump-{name}-{}", std::process::id())))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn options() -> OpenOptions {
    OpenOptions { background: false, cache_bytes: 8 << 20, ..OpenOptions::default() }
}

fn make(path: &Path, name: &str) {
    let volume = Volume::open(path, &options()).unwrap();
    let names = volume.namespace();
    names.create(&Caller::root(), Ino::ROOT, name.as_bytes(), 0o644).unwrap();
    volume.sync().unwrap();
    // A crash.
    drop(volume);
}

fn has(volume: &Volume, name: &str) -> bool {
    volume.namespace().lookup(&Caller::root(), Ino::ROOT, name.as_bytes()).is_ok()
}

fn dumped(path: &Path) -> Vec<u8> {
    let mut stream = Vec::new();
    let written = dump(path, &mut stream, &options(), &mut |_, _| {}).unwrap();
    assert_eq!(written, stream.len() as u64);
    stream
}

/// The original goes on after the dump, and crashes. Its journal is still on the device where that
/// of the restored volume continues, which crashes before it has written a batch.
#[test]
fn a_restored_volume_replays_nothing_of_the_original() {
    let place = Place::new("journal");
    let path = &place.0;
    mkfs(path, &MkfsOptions { size: 64 << 20, ..MkfsOptions::default() }).unwrap();
    make(path, "before");
    let stream = dumped(path);
    make(path, "after the dump");
    let force = true;
    restore(&mut &stream[..], path, force, &options(), &mut |_, _| {}).unwrap();
    drop(Volume::open(path, &options()).unwrap());
    let volume = Volume::open(path, &options()).unwrap();
    assert!(has(&volume, "before") && !has(&volume, "after the dump"));
    let recovery = volume.info().recovery;
    assert_eq!((recovery.needed, recovery.records), (true, 0));
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    volume.close().unwrap();
}

#[test]
fn a_dump_of_a_volume_in_use_is_refused() {
    let place = Place::new("busy");
    mkfs(&place.0, &MkfsOptions { size: 64 << 20, ..MkfsOptions::default() }).unwrap();
    let volume = Volume::open(&place.0, &options()).unwrap();
    let error = dump(&place.0, &mut Vec::new(), &options(), &mut |_, _| {}).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    volume.close().unwrap();
}
