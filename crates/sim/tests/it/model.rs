//! Seeded runs with every kind of operation, each compared with the model, crashes included.
//!
//! `SHOAL_SIM_SEEDS` says how many seeds of how many profiles (default: a few seconds' worth); to
//! replay one that failed: `cargo xtask sim --seed N --ops M`.

use shoal_sim::deadline::{from_environment, within};
use shoal_sim::runner::{Settings, run, run_from};
use shoal_sim::workload::{PROFILES, Workload};

#[test]
fn random_runs_agree_with_the_model() {
    for seed in 0..from_environment("SHOAL_SIM_SEEDS", 24) {
        within(300, &format!("seed {seed}"), move || {
            if let Err(failure) = run(seed, 400) {
                panic!("{failure}replay: cargo xtask sim --seed {seed} --ops 400");
            }
        });
    }
}

#[test]
fn every_profile_without_crashes() {
    for profile in PROFILES {
        for seed in 1000..1000 + from_environment("SHOAL_SIM_SEEDS", 24) / 12 {
            let what = format!("profile {}, seed {seed}", profile.name);
            within(300, &what, move || {
                let workload = Workload::with_profile(seed, profile.name).without_crashes();
                let settings = Settings::of_seed(seed);
                if let Err(failure) = run_from(&settings, workload, 600) {
                    panic!("{failure}");
                }
            });
        }
    }
}

/// One seed twice: the same operations, the same device operations. What this protects is every
/// replay of a failure.
#[test]
fn a_seed_replays_exactly() {
    let [first, second] = [(); 2].map(|()| {
        within(300, "replay", || run(3, 300).unwrap_or_else(|failure| panic!("{failure}")))
    });
    assert_eq!(first, second);
}

/// The tests tested: with a device that only pretends to flush, runs must fail, and soon.
#[test]
fn a_lying_device_is_found_out() {
    let found = (0..20).find(|seed| {
        let seed = *seed;
        within(300, "lying", move || {
            let settings = Settings { lying: true, ..Settings::of_seed(seed) };
            let workload = Workload::with_profile(seed, "sync");
            run_from(&settings, workload, 300).is_err()
        })
    });
    assert!(found.is_some(), "lost flushes went unnoticed in 20 runs");
}
