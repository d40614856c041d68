//! The cost of staging. Run with
//! `cargo test --release -p shoal-journal speed -- --ignored --nocapture --test-threads 1`.

use super::support::run_threads;
use crate::{Config, Journal, SegmentSource, StartAt};
use shoal_base::counters::Counters;
use shoal_base::{Lsn, Result, SegNo};
use shoal_device::Device;
use shoal_format::Geometry;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

/// A device that accepts everything and stores nothing.
struct Null;

impl Device for Null {
    fn capacity(&self) -> u64 {
        u64::MAX
    }
    fn read_at(&self, _: &mut [u8], _: u64) -> Result<()> {
        Ok(())
    }
    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        Ok(())
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn describe(&self) -> String {
        "null".into()
    }
}

struct Endless(AtomicU32);

impl SegmentSource for Endless {
    fn take(&self) -> Result<SegNo> {
        Ok(SegNo(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

#[test]
#[ignore = "a measurement"]
fn speed_of_stage() {
    let geometry = Geometry { segment_size: 4 << 20, segments: u32::MAX, inode_size: 512 };
    for threads in [1, 2, 4] {
        let journal = Journal::start(
            Arc::new(Null),
            geometry,
            1,
            1,
            StartAt::Fresh { lsn: Lsn(0) },
            Arc::new(Endless(AtomicU32::new(1))),
            Arc::new(Counters::default()),
            Config::default(),
        )
        .unwrap();
        let record = [7; 300];
        for round in 0..4 {
            let each = 1_000_000 / threads;
            let start = Instant::now();
            run_threads(threads, |_| {
                for _ in 0..each {
                    journal.stage(&record).unwrap();
                }
            });
            let nanos = start.elapsed().as_nanos() as u64 / (each * threads);
            println!("{threads} threads, round {round}: {nanos} ns a record (wall, all threads)");
        }
    }
}
