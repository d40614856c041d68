//! Processor time of creates in a directory with a quota and in one without, in turns.
//!
//! `cargo test --release -p shoal-engine --test it -- quota_speed:: --ignored --nocapture`

use rustix::time::{ClockId, clock_gettime};
use shoal_engine::*;
use std::sync::Arc;

const ROUNDS: usize = 41;
const FILES: usize = 50_000;

/// Processor time of this thread, in nanoseconds.
fn used() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

#[test]
#[ignore = "a measurement: run it in release"]
fn creates_with_a_quota_and_without() {
    let device = Arc::new(MemDevice::new(1 << 30));
    mkfs_on(device.clone(), &MkfsOptions::default()).unwrap();
    let options = OpenOptions { background: false, ..OpenOptions::default() };
    let volume = Volume::open_on(device, &options).unwrap();
    let (who, names) = (Caller::root(), volume.namespace());
    let dirs: [Ino; 2] =
        [b"without", b"with---"].map(|name| names.mkdir(&who, Ino::ROOT, name, 0o755).unwrap().ino);
    let limits = QuotaLimits { bytes: Some(1 << 40), inodes: Some(1 << 40) };
    volume.quotas().set(&who, dirs[1], limits).unwrap();
    let mut took = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS {
        // Which one is first alternates.
        for turn in 0..2 {
            let at = (round + turn) % 2;
            let top = format!("{round}");
            let dir = names.mkdir(&who, dirs[at], top.as_bytes(), 0o755).unwrap().ino;
            let start = used();
            for n in 0..FILES {
                names.create(&who, dir, format!("file {n}").as_bytes(), 0o644).unwrap();
            }
            took[at].push((used() - start) / FILES as f64);
            names.remove_tree(&who, dirs[at], top.as_bytes(), TreeCheck::Tree).unwrap();
            volume.maintenance().checkpoint().unwrap();
        }
    }
    let mut ratios: Vec<f64> =
        took[1].iter().zip(&took[0]).map(|(with, none)| with / none).collect();
    ratios.sort_by(f64::total_cmp);
    took.iter_mut().for_each(|took| took.sort_by(f64::total_cmp));
    let median = |all: &[f64]| all[all.len() / 2];
    println!(
        "processor time of a create: without a quota {:.0} ns, with one {:.0} ns; median of the \
         ratios of {ROUNDS} pairs {:.3}",
        median(&took[0]),
        median(&took[1]),
        median(&ratios)
    );
}
