//! Recovery reads many objects at a time, forgives a read ahead that fails, and writes checkpoints
//! on its way when the journal changes more than the cache holds; cut off at any write, it is begun
//! again where it was and leads to the same.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{blocks, copy, shown};
use shoal_engine::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Reads that a device does at the same time.
const DEPTH: usize = 8;
/// Longer than a reader takes to come: a group that is not full by then goes on as it is.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Groups {
    /// Reads that wait for their group to be full.
    waiting: usize,
    /// Groups that have gone on.
    gone: u64,
    reads: u64,
}

/// A device that does up to [`DEPTH`] reads at a time, and counts how often it did: what matters on
/// a device with a latency, whatever the latency.
struct Grouping {
    inner: Arc<MemDevice>,
    groups: Mutex<Groups>,
    full: Condvar,
}

/// A device that fails the first read of each of these places, and every write after so many.
struct Failing {
    inner: Arc<MemDevice>,
    fails_once: Mutex<HashSet<u64>>,
    failed: AtomicU64,
    writes: AtomicI64,
}

impl Device for Grouping {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut groups = self.groups.lock().unwrap();
        groups.reads += 1;
        groups.waiting += 1;
        let own = groups.gone;
        while groups.gone == own {
            let late = match groups.waiting < DEPTH {
                true => {
                    let (now, late) = self.full.wait_timeout(groups, PATIENCE).unwrap();
                    groups = now;
                    late.timed_out()
                }
                false => true,
            };
            if late && groups.gone == own {
                groups.gone += 1;
                groups.waiting = 0;
                self.full.notify_all();
            }
        }
        drop(groups);
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)
    }
    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
    fn describe(&self) -> String {
        "a device that reads in groups".into()
    }
}

impl Failing {
    fn new(inner: Arc<MemDevice>, fails_once: HashSet<u64>, writes: i64) -> Arc<Failing> {
        let fails_once = Mutex::new(fails_once);
        Arc::new(Failing { inner, fails_once, failed: 0.into(), writes: writes.into() })
    }
    fn alive(&self) -> Result<()> {
        match self.writes.fetch_sub(1, Ordering::Relaxed) {
            ..=0 => Err(Error::Code(Code::Io)),
            _ => Ok(()),
        }
    }
}

impl Device for Failing {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        if self.fails_once.lock().unwrap().remove(&offset) {
            self.failed.fetch_add(1, Ordering::Relaxed);
            return Err(Error::Code(Code::Io));
        }
        self.inner.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.alive()?;
        self.inner.write_at(buf, offset)
    }
    fn flush(&self) -> Result<()> {
        self.alive()?;
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
    fn describe(&self) -> String {
        "a device that fails".into()
    }
}

fn options(background: bool, cache_bytes: u64) -> OpenOptions {
    OpenOptions { background, cache_bytes, checkpoint_bytes: u64::MAX, ..OpenOptions::default() }
}

fn counter(volume: &Volume, name: &str) -> u64 {
    volume.info().counters.iter().find(|(n, _)| *n == name).map_or(0, |(_, count)| *count)
}

/// A volume that was not closed after a change of one inode in each of `blocks` blocks.
fn scattered(blocks: usize) -> (Arc<MemDevice>, Vec<Ino>) {
    let device = Arc::new(MemDevice::new(256 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device.clone(), &options(false, 256 << 20)).unwrap();
    let who = Caller::root();
    let dir = volume.mkdir(&who, Ino::ROOT, b"d", 0o755).unwrap().ino;
    let create = |i| volume.create(&who, dir, format!("{i}").as_bytes(), 0o644).unwrap().ino;
    let inodes: Vec<Ino> = (0..blocks * 32).map(create).collect();
    volume.checkpoint().unwrap();
    // Each in another block, in an order that no device has.
    let changed: Vec<Ino> = (0..blocks).map(|i| inodes[(i * 7919 % blocks) * 32 + 5]).collect();
    for ino in &changed {
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        volume.setattr(&who, *ino, &set).unwrap();
    }
    volume.sync().unwrap();
    drop(volume);
    (device, changed)
}

fn assert_changed(volume: &Volume, changed: &[Ino]) {
    assert!(volume.info().recovery.needed);
    assert!(changed.iter().all(|ino| volume.getattr(*ino).unwrap().mode & 0o777 == 0o600));
    assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, vec![]);
}

#[test]
fn scattered_changes_are_read_many_at_a_time() {
    let (device, changed) = scattered(1000);
    let groups = Mutex::default();
    let slow = Arc::new(Grouping { inner: device, groups, full: Condvar::new() });
    let volume = Volume::open_on(slow.clone(), &options(true, 256 << 20)).unwrap();
    let Groups { gone, reads, .. } = *slow.groups.lock().unwrap();
    println!("{reads} reads in {gone} rounds");
    assert_eq!(counter(&volume, "inode_block_reads"), 1000, "each block is read once");
    assert!(reads >= 1000);
    assert!(gone * 4 <= reads, "{reads} reads took {gone} rounds");
    // Its own reads would come one by one.
    drop(volume);
    let volume = Volume::open_on(slow.inner.clone(), &options(false, 256 << 20)).unwrap();
    assert!(changed.iter().all(|ino| volume.getattr(*ino).unwrap().mode & 0o777 == 0o600));
}

#[test]
fn a_small_cache_replays_in_small_windows_and_reads_nothing_twice() {
    // Of a cache of 8 MiB half is for blocks, of 8 KiB each; the records may all be in one batch.
    let (device, changed) = scattered(1000);
    for background in [false, true] {
        let device = copy(&device);
        let volume = Volume::open_on(device, &options(background, 8 << 20)).unwrap();
        let reads = counter(&volume, "inode_block_reads");
        // With a few that were dropped between reading ahead and use.
        assert!((1000..1100).contains(&reads), "{reads} reads");
        assert_changed(&volume, &changed);
    }
}

/// Whoever needs the object reads it again, and finds out for himself whether it can be read.
#[test]
fn a_read_ahead_that_fails_does_not_fail_recovery() {
    let (device, changed) = scattered(200);
    let found = blocks(&device);
    let kinds = ["inode block", "imap leaf", "dirents leaf"];
    let places = kinds.iter().flat_map(|kind| found[*kind].iter().map(|ptr| ptr.addr.0));
    let places: HashSet<u64> = places.collect();
    for background in [false, true] {
        let failing = Failing::new(copy(&device), places.clone(), i64::MAX);
        let volume = Volume::open_on(failing.clone(), &options(background, 64 << 20)).unwrap();
        assert!(failing.failed.load(Ordering::Relaxed) >= 200);
        failing.fails_once.lock().unwrap().clear();
        assert_changed(&volume, &changed);
    }
}

/// A journal of about 3 MiB that changes everything that there is: names, inodes, contents in
/// objects, large attributes, extents in their tree; and frees much of it.
fn busy() -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(192 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device.clone(), &options(false, 256 << 20)).unwrap();
    let who = Caller::root();
    let dirs = [b"a", b"b", b"c"].map(|n| volume.mkdir(&who, Ino::ROOT, n, 0o755).unwrap().ino);
    let name = |i: usize| format!("{i:0>30}").into_bytes();
    for i in 0..1500 {
        volume.create(&who, dirs[i % 3], &name(i), 0o644).unwrap();
    }
    volume.checkpoint().unwrap();
    let pieces = volume.create(&who, dirs[0], b"pieces", 0o644).unwrap().ino;
    for i in 0..9000 {
        let file = volume.create(&who, dirs[i % 3], &name(2000 + i), 0o644).unwrap().ino;
        match i % 16 {
            0 => drop(volume.write(file, 0, &vec![i as u8; 6000], false).unwrap()),
            1 => drop(volume.write(file, 0, &[i as u8; 60], false).unwrap()),
            2 => {
                let value = vec![i as u8; 3000];
                volume.setxattr(&who, file, b"user.large", &value, XattrFlags::default()).unwrap();
            }
            3 => drop(volume.write(pieces, i as u64 * 9000, b"piece", false).unwrap()),
            4 => volume.unlink(&who, dirs[(i - 4) % 3], &name(2000 + i - 4)).unwrap(),
            5 => volume.unlink(&who, dirs[(i / 16) % 3], &name(i / 16)).unwrap(),
            6 => {
                let (from, to) = (dirs[i % 3], dirs[(i + 1) % 3]);
                let plain = RenameFlags::default();
                volume.rename(&who, from, &name(2000 + i), to, &name(2000 + i), plain).unwrap();
            }
            _ => {}
        }
        // Batches between which there can be a checkpoint.
        if i % 50 == 0 {
            volume.sync().unwrap();
        }
    }
    volume.sync().unwrap();
    drop(volume);
    device
}

#[test]
fn a_replay_larger_than_the_cache_writes_checkpoints_on_its_way() {
    let device = busy();
    let whole = Volume::open_on(copy(&device), &options(false, 256 << 20)).unwrap();
    assert_eq!(counter(&whole, "checkpoints"), 1);
    let expected = shown(&whole);
    for background in [false, true] {
        let volume = Volume::open_on(copy(&device), &options(background, 4 << 20)).unwrap();
        let checkpoints = counter(&volume, "checkpoints");
        assert!(checkpoints > 2, "{checkpoints} checkpoints");
        assert_eq!(volume.info().recovery.records, whole.info().recovery.records);
        assert!(shown(&volume) == expected);
        assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, vec![]);
        volume.close().unwrap();
    }
    // Read-only, nothing can be written: the cache is exceeded.
    let look = OpenOptions { read_only: true, ..options(false, 4 << 20) };
    let volume = Volume::open_on(device, &look).unwrap();
    assert!(shown(&volume) == expected);
}

/// Cut off after any number of writes, the next recovery leads to the same; those cut off behind a
/// checkpoint on the way have less to replay.
#[test]
fn a_recovery_that_is_cut_off_is_begun_again_where_it_was() {
    let device = busy();
    let whole = Volume::open_on(copy(&device), &options(false, 256 << 20)).unwrap();
    let (expected, records) = (shown(&whole), whole.info().recovery.records);
    let (mut shortened, mut cuts) = (0, 0);
    for writes in 0.. {
        let cut = copy(&device);
        let dying = Failing::new(cut.clone(), HashSet::new(), writes);
        let first = Volume::open_on(dying, &options(false, 4 << 20));
        let done = first.is_ok();
        drop(first);
        // And once more in the midst of the second one.
        let dying = Failing::new(cut.clone(), HashSet::new(), writes % 23);
        drop(Volume::open_on(dying, &options(false, 4 << 20)));
        let volume = Volume::open_on(cut, &options(false, 4 << 20)).unwrap();
        shortened += u64::from(volume.info().recovery.records < records);
        assert!(shown(&volume) == expected, "after {writes} writes");
        assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, vec![], "{writes} writes");
        cuts += 1;
        if done {
            break;
        }
    }
    println!("{cuts} cuts, {shortened} of them with less to replay");
    assert!(cuts > 12 && shortened > cuts / 4);
}
