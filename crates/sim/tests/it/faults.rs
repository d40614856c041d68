//! The device fails at the n-th operation, for every n that a short run reaches.

use shoal_sim::deadline::{from_environment, within};
use shoal_sim::device::{EIO, ENOSPC, Fault, Kind};
use shoal_sim::faults::{Injury, Outcome, run_with};
use shoal_sim::runner::Settings;

const OPS: usize = 80;

/// Runs `seed` with the fault at 1, 2, 3, … until the run no longer reaches it, stepping faster the
/// further it gets. Returns how many runs met it.
fn at_every(on: Kind, errno: i32, sticky: bool, seed: u64) -> u64 {
    [false, true].map(|batches| at_each(on, errno, sticky, seed, batches)).iter().sum()
}

fn at_each(on: Kind, errno: i32, sticky: bool, seed: u64, batches: bool) -> u64 {
    let (mut nth, mut met) = (1, 0);
    loop {
        let fault = Fault { on, nth, errno, sticky };
        let what = format!("seed {seed}, batches {batches}, {fault:?}");
        if run_one(seed, fault, batches, &what).failures == 0 {
            println!("seed {seed}, batches {batches}: {met} runs with {on:?} failing");
            return met;
        }
        met += 1;
        nth += 1 + nth / from_environment("SHOAL_SIM_SEEDS", 24).max(1);
    }
}

fn run_one(seed: u64, fault: Fault, batches: bool, what: &str) -> Outcome {
    within(120, what, move || {
        let mut settings = Settings::of_seed(seed);
        (settings.explain, settings.batches) = (true, batches);
        // Small enough that checkpoints happen, and that not everything stays in the cache.
        settings.open.checkpoint_bytes = 64 << 10;
        settings.open.cache_bytes = 4 << 20;
        run_with(&settings, seed, OPS, Injury::Fails(fault)).unwrap_or_else(|e| panic!("{e}"))
    })
}

/// Runs that once found something. Reads are counted as they are since empty trees have no nodes to
/// be read.
const ONCE: &[(u64, Fault, &str)] = &[
    (
        4,
        Fault { on: Kind::Flush, nth: 2, errno: EIO, sticky: false },
        "an intent whose flush failed was not carried out in memory, but was by recovery",
    ),
    (4, Fault { on: Kind::Write, nth: 2, errno: ENOSPC, sticky: true }, "the same, of a write"),
    (
        69,
        Fault { on: Kind::Read, nth: 1, errno: EIO, sticky: true },
        "a call had done all when its result could not be read, and counted as not done",
    ),
    (78, Fault { on: Kind::Read, nth: 1, errno: EIO, sticky: false }, "the next, one read before"),
    (
        78,
        Fault { on: Kind::Read, nth: 2, errno: EIO, sticky: false },
        "a new inode's intent met a leaf that could not be read, and left it without its parent",
    ),
    (
        101,
        Fault { on: Kind::Flush, nth: 11, errno: EIO, sticky: false },
        "a file that nobody held, and that could not be freed, was found by its handle",
    ),
    (
        346,
        Fault { on: Kind::Flush, nth: 28, errno: EIO, sticky: false },
        "a tree was gone, and files that had been in it kept links; that is promised for later",
    ),
    (
        306,
        Fault { on: Kind::Read, nth: 1, errno: EIO, sticky: false },
        "an open file went with its root, and fsync of it was taken for a failure",
    ),
    (
        2,
        Fault { on: Kind::Write, nth: 4, errno: EIO, sticky: false },
        "a write of data failed and had changed the end of other data in its sector, which the \
         next fsync acknowledged",
    ),
];

/// The same with batches.
const ONCE_WITH_BATCHES: &[(u64, Fault, &str)] = &[(
    4,
    Fault { on: Kind::Flush, nth: 1, errno: EIO, sticky: false },
    "the flush of a batch's intent failed, and the number of its new inode, which was in use, was \
     given back: a later batch met it twice, and ended with EBUSY",
)];

#[test]
fn runs_that_once_failed() {
    let rows = ONCE.iter().map(|row| (row, false));
    let rows = rows.chain(ONCE_WITH_BATCHES.iter().map(|row| (row, true)));
    for ((seed, fault, what), batches) in rows {
        assert!(
            run_one(*seed, *fault, batches, what).failures > 0,
            "seed {seed} no longer meets {fault:?}"
        );
    }
}

fn seeds() -> std::ops::Range<u64> {
    let first = from_environment("SHOAL_SIM_FIRST", 0);
    first..first + from_environment("SHOAL_SIM_SEEDS", 24).div_ceil(12)
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
