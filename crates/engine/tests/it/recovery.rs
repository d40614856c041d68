//! Recovery reads many objects concurrently, tolerates errors of read-ahead, and writes checkpoints
//! if the journal changes more than the cache can hold. Interrupted at any write, it continues
//! there and has the same result.

use crate::common::{blocks, copy, flip, shown};
use shoal_engine::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Concurrent reads of the device.
const DEPTH: usize = 8;
/// Longer than a reader needs to arrive: a group that is not full by then continues.
const PATIENCE: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Groups {
    /// Reads that wait until their group is full.
    waiting: usize,
    /// Groups that have completed.
    gone: u64,
    reads: u64,
}

/// A device that does up to [`DEPTH`] reads concurrently, and counts the groups: these determine
/// the time on any device with latency.
struct Grouping {
    inner: Arc<MemDevice>,
    groups: Mutex<Groups>,
    full: Condvar,
}

/// A device that fails the first read of each of these places, and every write after a number of
/// them.
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
        let read = offset..offset + buf.len() as u64;
        let mut places = self.fails_once.lock().unwrap();
        let before = places.len();
        places.retain(|place| !read.contains(place));
        let failed = before - places.len();
        if failed > 0 {
            self.failed.fetch_add(failed as u64, Ordering::Relaxed);
            return Err(Error::Code(Code::Io));
        }
        drop(places);
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

/// Makes a volume that was not closed after a change of one inode in each of `blocks` blocks, which
/// are this many blocks `apart`.
fn scattered(blocks: usize, apart: usize) -> (Arc<MemDevice>, Vec<Ino>) {
    let device = Arc::new(MemDevice::new(256 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device.clone(), &options(false, 256 << 20)).unwrap();
    let who = Caller::root();
    let dir = volume.namespace().mkdir(&who, Ino::ROOT, b"d", 0o755).unwrap().ino;
    let create =
        |i| volume.namespace().create(&who, dir, format!("{i}").as_bytes(), 0o644).unwrap().ino;
    let inodes: Vec<Ino> = (0..blocks * apart * 32).map(create).collect();
    volume.maintenance().checkpoint().unwrap();
    // Each in another block, in an order unlike that on the device.
    let block = |i: usize| i * 7919 % blocks * apart;
    let changed: Vec<Ino> = (0..blocks).map(|i| inodes[block(i) * 32 + 5]).collect();
    for ino in &changed {
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        volume.attributes().setattr(&who, *ino, &set).unwrap();
    }
    volume.sync().unwrap();
    drop(volume);
    (device, changed)
}

fn assert_changed(volume: &Volume, changed: &[Ino]) {
    assert!(volume.info().recovery.needed);
    assert!(
        changed.iter().all(|ino| volume.attributes().getattr(*ino).unwrap().mode & 0o777 == 0o600)
    );
    assert_eq!(volume.check(&mut |_, _| {}).unwrap().problems, vec![]);
}

#[test]
fn scattered_changes_are_read_many_at_a_time() {
    let (device, changed) = scattered(1000, 6);
    let groups = Mutex::default();
    let slow = Arc::new(Grouping { inner: device, groups, full: Condvar::new() });
    let volume = Volume::open_on(slow.clone(), &options(true, 256 << 20)).unwrap();
    let Groups { gone, reads, .. } = *slow.groups.lock().unwrap();
    println!("{reads} reads in {gone} rounds");
    assert_eq!(counter(&volume, "inode_block_reads"), 1000, "each block is read once");
    assert!(reads >= 1000);
    assert!(gone * 4 <= reads, "{reads} reads took {gone} rounds");
    // Without read-ahead the reads are sequential.
    drop(volume);
    let volume = Volume::open_on(slow.inner.clone(), &options(false, 256 << 20)).unwrap();
    assert!(
        changed.iter().all(|ino| volume.attributes().getattr(*ino).unwrap().mode & 0o777 == 0o600)
    );
}

#[test]
fn adjacent_blocks_are_read_together() {
    let (device, changed) = scattered(1000, 1);
    let reads = Mutex::default();
    let slow = Arc::new(Grouping { inner: device, groups: reads, full: Condvar::new() });
    let volume = Volume::open_on(slow.clone(), &options(true, 256 << 20)).unwrap();
    let reads = slow.groups.lock().unwrap().reads;
    assert_eq!(counter(&volume, "inode_block_reads"), 1000, "each block is read once");
    assert!(reads <= 200, "{reads} reads");
    assert_changed(&volume, &changed);
}

#[test]
fn a_small_cache_replays_in_small_windows_and_reads_nothing_twice() {
    // Half of a cache of 8 MiB is for blocks of 8 KiB each; the records may all be in one batch.
    let (device, changed) = scattered(1000, 1);
    for background in [false, true] {
        let device = copy(&device);
        let volume = Volume::open_on(device, &options(background, 8 << 20)).unwrap();
        let reads = counter(&volume, "inode_block_reads");
        // Including a few that were evicted between read-ahead and use.
        assert!((1000..1100).contains(&reads), "{reads} reads");
        assert_changed(&volume, &changed);
    }
}

/// The object is read again when it is needed, and only that error counts.
#[test]
fn a_read_ahead_that_fails_does_not_fail_recovery() {
    let (device, changed) = scattered(200, 1);
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

/// Makes a journal of about 3 MiB that changes everything: names, inodes, contents in objects,
/// large attributes, extents in their tree; and frees much of it.
fn busy() -> Arc<MemDevice> {
    busy_until(|_| {})
}

/// The same, with `last` as the last thing that is done.
fn busy_until(last: impl FnOnce(&Volume)) -> Arc<MemDevice> {
    let device = Arc::new(MemDevice::new(192 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let volume = Volume::open_on(device.clone(), &options(false, 256 << 20)).unwrap();
    let who = Caller::root();
    let dirs = [b"a", b"b", b"c"]
        .map(|n| volume.namespace().mkdir(&who, Ino::ROOT, n, 0o755).unwrap().ino);
    let name = |i: usize| format!("{i:0>30}").into_bytes();
    for i in 0..1500 {
        volume.namespace().create(&who, dirs[i % 3], &name(i), 0o644).unwrap();
    }
    volume.maintenance().checkpoint().unwrap();
    let pieces = volume.namespace().create(&who, dirs[0], b"pieces", 0o644).unwrap().ino;
    for i in 0..9000 {
        let file =
            volume.namespace().create(&who, dirs[i % 3], &name(2000 + i), 0o644).unwrap().ino;
        match i % 16 {
            0 => drop(volume.files().write(file, 0, &vec![i as u8; 6000], false).unwrap()),
            1 => drop(volume.files().write(file, 0, &[i as u8; 60], false).unwrap()),
            2 => {
                let value = vec![i as u8; 3000];
                volume
                    .attributes()
                    .setxattr(&who, file, b"user.large", &value, XattrFlags::default())
                    .unwrap();
            }
            3 => drop(volume.files().write(pieces, i as u64 * 9000, b"piece", false).unwrap()),
            4 => volume.namespace().unlink(&who, dirs[(i - 4) % 3], &name(2000 + i - 4)).unwrap(),
            5 => volume.namespace().unlink(&who, dirs[(i / 16) % 3], &name(i / 16)).unwrap(),
            6 => {
                let (from, to) = (dirs[i % 3], dirs[(i + 1) % 3]);
                let plain = RenameFlags::default();
                volume
                    .namespace()
                    .rename(&who, from, &name(2000 + i), to, &name(2000 + i), plain)
                    .unwrap();
            }
            _ => {}
        }
        // Several batches, so that checkpoints are possible between them.
        if i % 50 == 0 {
            volume.sync().unwrap();
        }
    }
    last(&volume);
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
    // Read-only, nothing can be written: the cache limit is exceeded.
    let look = OpenOptions { read_only: true, ..options(false, 4 << 20) };
    let volume = Volume::open_on(device, &look).unwrap();
    assert!(shown(&volume) == expected);
}

/// The checkpoints of a recovery are newer than data that the crash has lost: the next one must not
/// take that for durable.
#[test]
fn a_recovery_that_is_cut_off_verifies_the_data_of_the_rest() {
    let device = busy_until(|volume| {
        let who = Caller::root();
        for name in ["arrived", "lost", "behind"] {
            let file = volume.namespace().create(&who, Ino::ROOT, name.as_bytes(), 0o644).unwrap();
            volume.files().write(file.ino, 0, name.repeat(1500).as_bytes(), false).unwrap();
        }
    });
    let mut all = vec![0; device.capacity() as usize];
    device.read_at(&mut all, 0).unwrap();
    let place = all.windows(40).position(|bytes| bytes == &b"lost".repeat(10)[..]).unwrap();
    flip(&device, place as u64 + 4500);
    let mut shortened = 0;
    for writes in 0.. {
        let cut = copy(&device);
        let dying = Failing::new(cut.clone(), HashSet::new(), writes);
        let done = Volume::open_on(dying, &options(false, 4 << 20)).is_ok();
        let volume = Volume::open_on(cut, &options(false, 4 << 20)).unwrap();
        let size = |name: &str| {
            let found = volume.namespace().lookup(&Caller::root(), Ino::ROOT, name.as_bytes());
            found.ok().map(|file| file.size)
        };
        let sizes = ["arrived", "lost", "behind"].map(size);
        assert_eq!(sizes, [Some(10_500), Some(0), None], "after {writes} writes");
        shortened += u64::from(volume.info().recovery.records < 5000);
        if done {
            break;
        }
    }
    assert!(shortened > 3, "{shortened}");
}

/// Interrupted after any number of writes, the next recovery has the same result. After a
/// checkpoint during the replay there are fewer records to replay.
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
        // The second recovery is interrupted too.
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
