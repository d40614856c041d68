//! A device with read errors: the affected data is lost and reported, and everything else works. A
//! device that disappears is not damage.

#![allow(clippy::single_range_in_vec_init, reason = "one bad place is a list of one range")]

use crate::common::*;
use shoal_base::error::DeviceFailure;
use shoal_engine::*;
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

const ROOT: Ino = Ino::ROOT;

/// A device with bad places, which are good again after a write, and which disappears after a
/// number of reads.
struct Failing {
    device: Arc<MemDevice>,
    bad: Mutex<Vec<Range<u64>>>,
    reads: AtomicI64,
}

impl Failing {
    fn new(device: &Arc<MemDevice>, bad: Vec<Range<u64>>) -> Arc<Failing> {
        let (device, reads) = (device.clone(), AtomicI64::new(i64::MAX));
        Arc::new(Failing { device, bad: Mutex::new(bad), reads })
    }
    fn failure(&self, offset: u64, len: usize, errno: i32) -> Error {
        let (operation, device, len) = ("read", self.describe(), len as u64);
        Error::Device(Box::new(DeviceFailure { operation, device, offset, len, errno }))
    }
}

impl Device for Failing {
    fn capacity(&self) -> u64 {
        self.device.capacity()
    }
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<()> {
        if self.reads.fetch_sub(1, Ordering::Relaxed) <= 0 {
            // ENODEV
            return Err(self.failure(offset, bytes.len(), 19));
        }
        let end = offset + bytes.len() as u64;
        if self.bad.lock().unwrap().iter().any(|bad| bad.start < end && offset < bad.end) {
            return Err(self.failure(offset, bytes.len(), 5));
        }
        self.device.read_at(bytes, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let end = offset + bytes.len() as u64;
        self.bad.lock().unwrap().retain(|bad| bad.start >= end || offset >= bad.end);
        self.device.write_at(bytes, offset)
    }
    fn flush(&self) -> Result<()> {
        self.device.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.device.discard(offset, len)
    }
    fn describe(&self) -> String {
        "a failing device".into()
    }
}

fn sample() -> (Arc<MemDevice>, Shown) {
    let device = Arc::new(MemDevice::new(24 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let (volume, who) = (open(&device), Caller::root());
    for d in 0..4 {
        let dir =
            volume.namespace().mkdir(&who, ROOT, format!("d{d}").as_bytes(), 0o755).unwrap().ino;
        for f in 0..80 {
            let name = format!("file {f} in {d}");
            let file = volume.namespace().create(&who, dir, name.as_bytes(), 0o644).unwrap().ino;
            volume.files().write(file, 0, name.repeat(f + 1).as_bytes(), false).unwrap();
            if f == 30 {
                for n in 0..40u64 {
                    let (name, flags) = (format!("user.{n}"), XattrFlags::default());
                    volume.files().write(file, n * 9000, &[n as u8 + 1; 2000], false).unwrap();
                    volume
                        .attributes()
                        .setxattr(&who, file, name.as_bytes(), &[1; 50], flags)
                        .unwrap();
                }
            }
        }
    }
    let before = shown(&volume);
    let orphan = volume.namespace().tmpfile(&who, ROOT, 0o600).unwrap().ino;
    volume.files().write(orphan, 0, &[1; 10_000], false).unwrap();
    volume.maintenance().checkpoint().unwrap();
    volume.sync().unwrap();
    (device, before)
}

fn text(problems: &[Problem]) -> String {
    problems.iter().map(|p| format!("{}: {}\n", p.rule, p.message)).collect()
}

fn repaired(device: Arc<Failing>) -> Result<RepairReport> {
    Volume::repair_on(device, &options(), &mut |_, _, _| {}, &mut |_| true)
}

/// One page of each kind of block is unreadable.
#[test]
fn a_block_that_cannot_be_read_is_lost_and_named() {
    let (device, before) = sample();
    for (kind, ptrs) in blocks(&device) {
        let ptr = ptrs[ptrs.len() / 2];
        let page = ptr.addr.0 / 4096 * 4096;
        let bad = vec![page..page + 4096];
        let damaged = copy(&device);
        let dev: Arc<dyn Device> = Failing::new(&damaged, bad.clone());
        let found = Volume::inspect_on(&dev, &options(), &mut |_, _, _| {}).unwrap();
        let said = text(&found.found);
        assert!(said.contains("Input/output error") && said.contains("at byte"), "{kind}: {said}");

        let failing = Failing::new(&damaged, bad);
        let report = repaired(failing.clone()).unwrap();
        assert!(report.written, "{kind}");
        let contents = |p: &Problem| p.rule.starts_with("data-");
        assert!(report.left.iter().all(contents), "{kind}: {}", text(&report.left));
        let again = repaired(failing.clone()).unwrap();
        assert!(
            !again.written && again.found.iter().all(contents),
            "{kind}: {}",
            text(&again.found)
        );
        let volume = Volume::open_on(failing, &options()).unwrap();
        let lossy = ["inode block", "extents leaf"].contains(&kind.as_str());
        // Several blocks share a page: with a node, parts of two inode blocks may be lost.
        if !lossy && report.left.is_empty() {
            let after = shown(&volume);
            assert!(
                after.len() >= before.len() - 64,
                "{kind}: {} of {}",
                after.len(),
                before.len()
            );
        }
        volume.close().unwrap();
    }
}

/// Both copies of the superblock are on unreadable pages.
#[test]
fn no_superblock_can_be_read() {
    let (device, before) = sample();
    let failing = Failing::new(&copy(&device), vec![0..4096, 65_536..69_632]);
    let refused = Volume::open_on(failing.clone(), &options()).err().unwrap();
    assert!(refused.to_string().contains("failed"), "{refused}");
    let report = repaired(failing.clone()).unwrap();
    assert_eq!((report.written, text(&report.left)), (true, String::new()));
    assert!(!repaired(failing.clone()).unwrap().written);
    let volume = Volume::open_on(failing, &options()).unwrap();
    assert!(shown(&volume) == before);
}

/// Contents on an unreadable page: reads of that range fail, others succeed, and every repair
/// leaves it and reports it by path and range.
#[test]
fn contents_that_cannot_be_read_cost_their_range_alone() {
    let device = Arc::new(MemDevice::new(24 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let (volume, who) = (open(&device), Caller::root());
    let file = volume.namespace().create(&who, ROOT, b"large", 0o644).unwrap().ino;
    let bytes: Vec<u8> = (0..600_000u32).map(|n| (n / 7) as u8).collect();
    volume.files().write(file, 0, &bytes, false).unwrap();
    volume.close().unwrap();
    // The object with byte 300,000 of the file.
    let header = |at: &u64| {
        let mut raw = [0; 32];
        device.read_at(&mut raw, *at).unwrap();
        let volume = shoal_txn::read_superblock(&*device).unwrap().volume();
        let header = shoal_format::extent::DataHeader::decode(&raw, volume);
        header.filter(|h| (h.offset..h.offset + u64::from(h.len.get())).contains(&300_000))
    };
    let at = (0..device.capacity()).step_by(8).find(|at| header(at).is_some()).unwrap();
    let object = header(&at).unwrap();
    let (start, end) = (object.offset, object.offset + u64::from(object.len.get()));
    let failing = Failing::new(&device, vec![at + 9000..at + 9512]);
    for _ in 0..2 {
        let report = repaired(failing.clone()).unwrap();
        assert!(!report.written && report.actions.is_empty());
        let [problem] = &report.left[..] else { panic!("{}", text(&report.left)) };
        assert_eq!(problem.rule, "data-unreadable");
        let range = format!("(/large): bytes {start} to {end}");
        assert!(problem.message.contains(&range), "{}", problem.message);
    }
    let volume = Volume::open_on(failing, &options()).unwrap();
    let read = |from: u64, to: u64| -> Result<u64> {
        let mut found = vec![0; (to - from) as usize];
        let n = volume.files().read(file, from, &mut found)?;
        assert!(found[..n] == bytes[from as usize..][..n]);
        Ok(n as u64)
    };
    // The piece of 4096 bytes with the bad sector; the object's header precedes its bytes.
    let (bad, behind) = (start + 8192, start + 12_288);
    assert_eq!(read(0, bad), Ok(bad));
    assert_eq!(read(behind, 600_000), Ok(600_000 - behind));
    for at in [bad, start + 9100, behind - 1] {
        assert_eq!(read(at, at + 1).unwrap_err().errno(), 5, "byte {at}");
    }
    // After it is written again, it is readable.
    volume.files().write(file, start, &bytes[start as usize..end as usize], false).unwrap();
    assert_eq!(read(0, 600_000), Ok(600_000));
    assert_eq!(text(&volume.check(&mut |_, _| {}).unwrap().problems), "");
}

/// A scrub reports every bad place of a volume in use, and ends.
#[test]
fn a_scrub_goes_on_behind_bad_places() {
    let (device, _) = sample();
    let failing = Failing::new(&device, vec![]);
    let volume = Volume::open_on(failing.clone(), &options()).unwrap();
    let found = blocks(&device);
    let kinds = [
        "superblock",
        "checkpoint",
        "usage root",
        "usage index",
        "usage page",
        "root page",
        "inode block",
        "dirents leaf",
        "attrs leaf",
    ];
    let places: Vec<u64> = kinds.iter().map(|kind| found[*kind][0].addr.0).collect();
    *failing.bad.lock().unwrap() = places.iter().map(|at| *at..at + 8).collect();
    let (mut report, mut at) = (ScrubReport::default(), Some(ScrubAt::default()));
    while let Some(here) = at {
        at = volume.maintenance().scrub_step(here, 50_000, &mut report).unwrap();
    }
    let said = text(&report.problems);
    for place in places {
        assert!(said.contains(&format!("at byte {place} of")), "{place}: {said}");
    }
}

/// A missing device ends every operation with its error, and nothing is written.
#[test]
fn a_device_that_goes_away_is_no_damage() {
    let (device, _) = sample();
    flip(&device, blocks(&device)["dirents leaf"][0].addr.0 + 99);
    let whole = Failing::new(&copy(&device), vec![]);
    repaired(whole.clone()).unwrap();
    let used = i64::MAX - whole.reads.load(Ordering::Relaxed);
    let image = copy(&device);
    let mut asked = 0;
    for reads in (0..used).step_by(7) {
        let failing = Failing::new(&copy(&image), vec![]);
        failing.reads.store(reads, Ordering::Relaxed);
        let mut ask = |report: &RepairReport| {
            asked += 1;
            assert!(!report.found.is_empty());
            false
        };
        match Volume::repair_on(failing.clone(), &options(), &mut |_, _, _| {}, &mut ask) {
            Err(e) => assert!(e.to_string().contains("failed"), "{e}"),
            Ok(report) => assert!(!report.written),
        }
        assert_eq!(repair(&failing.device).left, vec![], "after {reads} reads");
    }
    assert!(asked > 0);
}
