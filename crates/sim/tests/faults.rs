//! The device fails at the n-th operation, for every n that a short run reaches.

use shoal_sim::deadline::{from_environment, within};
use shoal_sim::device::{EIO, ENOSPC, Fault, Kind};
use shoal_sim::faults::{Outcome, run_with};
use shoal_sim::runner::Settings;

const OPS: usize = 80;

/// Runs `seed` with the fault at 1, 2, 3, … until the run no longer reaches it, stepping faster the
/// further it gets. Returns how many runs met it.
fn at_every(on: Kind, errno: i32, sticky: bool, seed: u64) -> u64 {
    let (mut nth, mut met) = (1, 0);
    loop {
        let fault = Fault { on, nth, errno, sticky };
        let what = format!("seed {seed}, {fault:?}");
        let outcome: Outcome = within(120, &what.clone(), move || {
            let mut settings = Settings::of_seed(seed);
            settings.explain = true;
            // Small enough that checkpoints happen, and that not everything stays in the cache.
            settings.open.checkpoint_bytes = 64 << 10;
            settings.open.cache_bytes = 4 << 20;
            run_with(&settings, seed, OPS, fault).unwrap_or_else(|e| panic!("{e}"))
        });
        if outcome.failures == 0 {
            return met;
        }
        met += 1;
        nth += 1 + nth / from_environment("SHOAL_SIM_SEEDS", 24).max(1);
    }
}

fn seeds() -> std::ops::Range<u64> {
    0..from_environment("SHOAL_SIM_SEEDS", 24).div_ceil(12)
}

#[test]
fn a_write_fails_once() {
    assert!(seeds().map(|seed| at_every(Kind::Write, EIO, false, seed)).sum::<u64>() > 0);
}

#[test]
fn writes_fail_for_good() {
    assert!(seeds().map(|seed| at_every(Kind::Write, EIO, true, seed)).sum::<u64>() > 0);
}

#[test]
fn the_device_runs_out_of_space_beneath() {
    assert!(seeds().map(|seed| at_every(Kind::Write, ENOSPC, true, seed)).sum::<u64>() > 0);
}

#[test]
fn a_flush_fails_once() {
    assert!(seeds().map(|seed| at_every(Kind::Flush, EIO, false, seed)).sum::<u64>() > 0);
}

#[test]
fn a_read_fails_once() {
    for seed in seeds() {
        at_every(Kind::Read, EIO, false, seed);
    }
}

#[test]
fn reads_fail_for_good() {
    for seed in seeds() {
        at_every(Kind::Read, EIO, true, seed);
    }
}

#[test]
fn discards_fail() {
    for seed in seeds() {
        at_every(Kind::Discard, EIO, true, seed);
    }
}
