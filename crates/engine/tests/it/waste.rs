//! A device that is never full, as a bucket: every byte that it stores is paid for, and few free
//! segments are no reason to clean, because there are always many.

use shoal_engine::*;
use shoal_skip::PATIENCE;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SEGMENT: u64 = 1 << 20;
/// So much may be dead in any case.
const LEAST: u64 = 64 * SEGMENT;
/// Bytes of a file; every fourth one stays.
const FILE: usize = 20_000;
const FILES: usize = 12_000;

struct Endless(Arc<MemDevice>);

impl Device for Endless {
    fn capacity(&self) -> u64 {
        self.0.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.0.write_at(buf, offset)
    }
    fn flush(&self) -> Result<()> {
        self.0.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.0.discard(offset, len)
    }
    fn never_full(&self) -> bool {
        true
    }
    fn describe(&self) -> String {
        "endless".into()
    }
}

fn volume(device: Arc<dyn Device>) -> Volume {
    let options = MkfsOptions {
        segment_size: SEGMENT,
        compression: Compression::NONE,
        ..MkfsOptions::default()
    };
    mkfs_on(device.clone(), &options).unwrap();
    Volume::open_on(device, &OpenOptions { cache_bytes: 64 << 20, ..OpenOptions::default() })
        .unwrap()
}

fn name(n: usize) -> Vec<u8> {
    format!("f{n}").into_bytes()
}

fn content(n: usize) -> Vec<u8> {
    (0..FILE).map(|at| (at / 7 + n) as u8).collect()
}

/// Makes files, and removes all but every fourth one. Of those that are removed, `held` says which
/// stay open.
fn fill(volume: &Volume, held: impl Fn(usize) -> bool) {
    let root = Caller::root();
    for n in 0..FILES {
        let ino = volume.namespace().create(&root, Ino::ROOT, &name(n), 0o644).unwrap().ino;
        volume.files().write(ino, 0, &content(n), false).unwrap();
        volume.files().fsync(ino, true).unwrap();
        if held(n) {
            volume.references().hold(ino, 1).unwrap();
        }
    }
    for n in (0..FILES).filter(|n| n % 4 != 0) {
        volume.namespace().unlink(&root, Ino::ROOT, &name(n)).unwrap();
    }
}

fn dead(volume: &Volume) -> (u64, u64) {
    let info = volume.info();
    let used = u64::from(info.segments - 1 - info.segments_free) * SEGMENT;
    (used.saturating_sub(info.live_bytes + info.pinned_bytes), info.live_bytes)
}

/// Uses the volume, so that it is never idle, until `end`.
fn use_until(volume: &Volume, mut end: impl FnMut() -> bool) {
    let (root, busy) = (Caller::root(), b"busy");
    while !end() {
        for _ in 0..40 {
            volume.namespace().create(&root, Ino::ROOT, busy, 0o644).unwrap();
            volume.namespace().unlink(&root, Ino::ROOT, busy).unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_volume_that_is_never_idle_stores_at_most_twice_as_much_that_is_dead_as_is_live() {
    let device = Arc::new(MemDevice::new(4 << 30));
    let volume = volume(Arc::new(Endless(device.clone())));
    fill(&volume, |_| false);
    volume.maintenance().checkpoint().unwrap();
    let begun = Instant::now();
    use_until(&volume, || {
        let (dead, live) = dead(&volume);
        assert!(begun.elapsed() < PATIENCE, "{dead} bytes are dead, {live} live");
        dead <= (2 * live).max(LEAST)
    });
    for n in (0..FILES).step_by(4) {
        let found = volume.namespace().lookup(&Caller::root(), Ino::ROOT, &name(n)).unwrap();
        let mut read = vec![0; FILE];
        volume.files().read(found.ino, 0, &mut read).unwrap();
        assert!(read == content(n), "{n}");
    }
    volume.close().unwrap();
}

/// The same amount is dead, but beside a deleted file that somebody has open, in each segment.
#[test]
fn what_cannot_be_gained_is_not_tried_again_and_again() {
    let device = Arc::new(MemDevice::new(4 << 30));
    let volume = volume(Arc::new(Endless(device)));
    // So few that they are kept in memory alone, without a slot in the orphan table.
    fill(&volume, |n| n % 16 == 1);
    volume.maintenance().checkpoint().unwrap();
    let written = || volume.info().counters.iter().find(|it| it.0 == "checkpoints").unwrap().1;
    let (before, begun) = (written(), Instant::now());
    use_until(&volume, || begun.elapsed() > Duration::from_secs(4));
    let (dead, live) = dead(&volume);
    let least = (2 * live).max(LEAST);
    assert!(dead > least, "the test shows nothing: {dead} bytes are dead, {live} live");
    assert!(written() - before <= 4, "{} checkpoints", written() - before);
}
