//! Allocations refused in the middle of calls. In a binary of its own, one test at a time: the
//! reserve of memory is the process's, so a refusal may fail a call of another test.

use shoal_sim::deadline::{from_environment, within};
use shoal_sim::runner::{Settings, run_by_session, run_from, run_profile, run_short_of_memory};
use shoal_sim::workload::{Workload, profile_named};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits until no other test runs.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_call_without_memory_has_changed_nothing() {
    let _alone = alone();
    let (first, mut unserved) = (from_environment("SHOAL_SIM_FIRST", 0), 0);
    for seed in first..first + from_environment("SHOAL_SIM_SEEDS", 24) {
        unserved += within(300, &format!("seed {seed}"), move || {
            let run = run_short_of_memory(seed, 400);
            run.unwrap_or_else(|failure| panic!("seed {seed}: {failure}")).unserved
        });
    }
    println!("{unserved} calls without memory");
    assert!(unserved > 0);
}

/// Files of thousands of pieces, and calls over all of them, with crashes in between.
#[test]
fn an_adversary_is_served_and_nobody_is_hurt() {
    let _alone = alone();
    let adversary = profile_named("adversary").expect("is there");
    for seed in 0..from_environment("SHOAL_SIM_SEEDS", 4) {
        within(300, &format!("adversary, seed {seed}"), move || {
            if let Err(failure) = run_profile(seed, &adversary, 6000) {
                panic!(
                    "{failure}replay: cargo xtask sim --profile adversary --seed {seed} --ops 6000"
                );
            }
        });
    }
}

/// The same operations by sessions, where they make most of the calls.
#[test]
fn sessions_answer_as_the_library_does() {
    let _alone = alone();
    let first = from_environment("SHOAL_SIM_FIRST", 0);
    for seed in first..first + from_environment("SHOAL_SIM_SEEDS", 12) {
        let report = within(300, &format!("seed {seed}"), move || {
            let run = run_by_session(seed, None, 400);
            run.unwrap_or_else(|failure| panic!("seed {seed}, by sessions: {failure}"))
        });
        assert!(2 * report.by_session > report.steps, "seed {seed}: {report:?}");
    }
}

/// A run by a session is the same each time: the threads that other sessions have are not in it.
/// No memory is refused, as that depends on what the process has allocated before.
#[test]
fn runs_by_sessions_are_repeated() {
    let _alone = alone();
    let run = || {
        within(300, "seed 7", || {
            let settings = Settings { sessions: true, ..Settings::of_seed(7) };
            let run = run_from(&settings, Workload::new(7).with_batches(7), 400);
            run.unwrap_or_else(|failure| panic!("{failure}"))
        })
    };
    assert_eq!(run(), run());
}

/// Seeds of the profile that once found something: (seed, what it was).
const ADVERSARY: &[(u64, &str)] = &[
    (1163, "a long write that was refused memory on the way, which took less than all"),
    (1166, "an object grew that the file no longer pointed to"),
    (10_696, "a crash after the last root was deleted, while a file of it was held"),
    (13_627, "a crash between two MiB of a write"),
    (20_387, "a volume that was full on the way of a long append"),
    (24_367, "a hole of thousands of pieces that was refused memory on the way"),
];

#[test]
fn adversaries_that_once_hurt_somebody() {
    let _alone = alone();
    let adversary = profile_named("adversary").expect("is there");
    for (seed, what) in ADVERSARY.iter().copied() {
        within(300, what, move || {
            if let Err(failure) = run_profile(seed, &adversary, 6000) {
                panic!("seed {seed} ({what}): {failure}");
            }
        });
    }
}
