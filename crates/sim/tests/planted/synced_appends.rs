//! Appends that are each synced, as databases write logs and mail servers their queues: what it
//! costs that a flush closes sectors, beside an object that goes on growing in them (the planted
//! defect `sector-shared`). Figures: `docs/design.md`.

use shoal::raw::{Caller, Device, Ino, MemDevice, OpenOptions, Volume, mkfs_on};
use shoal_base::Result;
use shoal_base::limits::SECTOR;
use shoal_base::planted::{Defect, plant};
use shoal_sim::runner::Settings;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device in memory that counts the sectors written to it.
struct Counted {
    device: MemDevice,
    sectors: AtomicU64,
}

impl Counted {
    fn note(&self, len: usize, offset: u64) {
        let end = (offset + len as u64).div_ceil(SECTOR);
        self.sectors.fetch_add(end - offset / SECTOR, Ordering::Relaxed);
    }
}

impl Device for Counted {
    fn capacity(&self) -> u64 {
        self.device.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.device.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.note(buf.len(), offset);
        self.device.write_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.note(bufs.iter().map(|b| b.len()).sum(), offset);
        self.device.write_vectored_at(bufs, offset)
    }
    fn flush(&self) -> Result<()> {
        self.device.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.device.discard(offset, len)
    }
    fn describe(&self) -> String {
        self.device.describe()
    }
}

/// Cost of a workload.
#[derive(Debug)]
#[allow(dead_code, reason = "shown")]
struct Cost {
    /// Extents of a file.
    extents: f64,
    /// Sectors written for each append, the journal's included.
    sectors: f64,
    /// Bytes of objects written for each byte.
    data: f64,
    /// Bytes of data segments taken for each byte, before any cleaning.
    space: f64,
}

/// Appends `piece` bytes to each of `files` in turns, and syncs each, `rounds` times.
fn cost(files: u64, piece: usize, rounds: u64) -> Cost {
    let memory = MemDevice::new(512 << 20);
    let device = Arc::new(Counted { device: memory, sectors: AtomicU64::new(0) });
    mkfs_on(device.clone(), &Settings::small(512 << 20).mkfs).unwrap();
    let open = OpenOptions { background: false, cache_bytes: 64 << 20, ..Default::default() };
    let volume = Volume::open_on(device.clone(), &open).unwrap();
    let name = |n: u64| format!("f{n}").into_bytes();
    let make =
        |n| volume.namespace().create(&Caller::root(), Ino::ROOT, &name(n), 0o644).unwrap().ino;
    let inos: Vec<Ino> = (0..files).map(make).collect();
    let taken = || {
        let info = volume.info();
        let size = info.segment_size;
        u64::from(info.segments - info.segments_free) * size
    };
    let (before, sectors, bytes) =
        (taken(), device.sectors.load(Ordering::Relaxed), vec![7; piece]);
    for _ in 0..rounds {
        for ino in &inos {
            volume.files().append(*ino, &bytes, false).unwrap();
            volume.files().fsync(*ino, true).unwrap();
        }
    }
    let sectors = device.sectors.load(Ordering::Relaxed) - sectors;
    let total = (files * rounds) as f64;
    let info = volume.info();
    let written = info.counters.iter().find(|(n, _)| *n == "data_bytes_written").unwrap().1;
    volume.maintenance().checkpoint().unwrap();
    let space = taken() - before;
    let report = volume.check(&mut |_, _| {}).unwrap();
    assert!(report.problems.is_empty(), "{:?}", report.problems);
    Cost {
        extents: report.extents as f64 / files as f64,
        sectors: sectors as f64 / total,
        data: written as f64 / (total * piece as f64),
        space: space as f64 / (total * piece as f64),
    }
}

#[test]
fn synced_appends_cost_a_sector_and_few_extents() {
    let _alone = super::alone();
    for (files, piece, rounds) in [
        (1, 100, 4000),
        (1, 1000, 4000),
        (1, 4096, 4000),
        (1, 5000, 4000),
        (8, 100, 500),
        (8, 1000, 500),
        (8, 4096, 500),
        (100, 1000, 40),
    ] {
        plant(Some(Defect::SectorShared));
        let shared = cost(files, piece, rounds);
        plant(None);
        let own = cost(files, piece, rounds);
        println!("{files} files, {piece} bytes: in shared sectors {shared:?}\n    {own:?}");
        // Half a sector more at most, and a few objects in each window.
        assert!(own.sectors <= shared.sectors * 1.5 && own.data < 8.0);
        let windows = (rounds * piece as u64).div_ceil(128 << 10) as f64;
        assert!(own.extents <= 9.0 * windows + 1.0);
        // What ends with a sector grows on.
        if piece.is_multiple_of(SECTOR as usize) {
            assert!(
                own.data < 1.1 && own.space <= shared.space && own.extents < 1.2 * shared.extents
            );
        }
    }
}
