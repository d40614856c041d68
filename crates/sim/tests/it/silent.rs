//! One operation of the device goes wrong without a word: a write that lands elsewhere, nowhere, or
//! with other bytes; a read that returns other bytes.

use shoal_sim::deadline::{from_environment, within};
use shoal_sim::faults::{Injury, run_with};
use shoal_sim::rng::Rng;
use shoal_sim::runner::Settings;
use shoal_sim::silent::run::{Outcome, run};
use shoal_sim::silent::{Effect, Silent};

const OPS: usize = 120;

fn settings(seed: u64, batches: bool) -> Settings {
    let mut settings = Settings { explain: true, batches, ..Settings::of_seed(seed) };
    // Checkpoints happen, and not everything stays in the cache.
    settings.open.checkpoint_bytes = 64 << 10;
    settings.open.cache_bytes = 4 << 20;
    settings
}

fn seeds() -> std::ops::Range<u64> {
    let first = from_environment("SHOAL_SIM_FIRST", 0);
    first..first + from_environment("SHOAL_SIM_SEEDS", 24)
}

/// Runs that once found something.
const ONCE: &[(u64, Effect, &str)] = &[
    (
        136,
        Effect::FlippedWrite,
        "a repair restored the old name of a file whose rename had an intent open, then completed \
         the intent: the name had no parent pointer",
    ),
    (50, Effect::Dropped, "the same, of a volume that could not be opened"),
];

#[test]
fn runs_that_once_failed() {
    for (seed, effect, what) in ONCE {
        assert!(write_of(*seed, *effect, false).struck, "seed {seed} no longer meets it: {what}");
    }
}

/// One write of a run goes wrong: which, says the seed.
fn write_of(seed: u64, effect: Effect, batches: bool) -> Outcome {
    let mut rng = Rng::new(seed).fork(7);
    // Some of the first, where mistakes are rare but weigh; most anywhere.
    let nth = if rng.chance(30) { rng.range(1, 8) } else { rng.range(1, 50) };
    let wrong = Silent { effect, nth, seed: rng.next() };
    within(300, &format!("seed {seed}, batches {batches}, {wrong:?}"), move || {
        run(&settings(seed, batches), seed, OPS, wrong).unwrap_or_else(|e| panic!("{e}"))
    })
}

fn writes(effect: Effect) {
    let (mut total, mut struck) = (Outcome::default(), 0);
    for (seed, batches) in seeds().flat_map(|seed| [(seed, false), (seed, true)]) {
        let outcome = write_of(seed, effect, batches);
        struck += u64::from(outcome.struck);
        total += outcome;
    }
    println!("{effect:?}: {struck} runs in which a write went wrong: {total:?}");
    assert!(struck > 0);
}

#[test]
fn a_write_goes_elsewhere() {
    writes(Effect::Misdirected);
}

#[test]
fn a_write_never_arrives() {
    writes(Effect::Dropped);
}

#[test]
fn a_write_arrives_with_a_bit_inverted() {
    writes(Effect::FlippedWrite);
}

#[test]
fn a_write_arrives_with_a_sector_of_zeros() {
    writes(Effect::ZeroedSector);
}

#[test]
fn a_read_returns_other_bytes_once_or_for_ever() {
    let mut met = 0;
    for (seed, batches) in seeds().flat_map(|seed| [(seed, false), (seed, true)]) {
        for effect in Effect::OF_READS {
            let mut rng = Rng::new(seed).fork(8);
            let wrong = Silent { effect, nth: rng.range(1, 12), seed: rng.next() };
            let outcome =
                within(300, &format!("seed {seed}, batches {batches}, {wrong:?}"), move || {
                    let run = run_with(&settings(seed, batches), seed, OPS, Injury::Silent(wrong));
                    run.unwrap_or_else(|e| panic!("{e}"))
                });
            met += u64::from(outcome.failures > 0);
        }
    }
    println!("{met} runs in which a read returned other bytes");
    assert!(met > 0);
}
