//! A volume with all its threads under a scheduler: many seeds find nothing, a seed is repeated
//! exactly, and defects that only threads can notice are noticed.
//!
//! `cargo xtask sim --scheduled --test` runs it; other builds have no such scheduler.
#![cfg(feature = "scheduled")]

use parking_lot::Mutex;
use shoal_base::planted::{Defect, plant};
use shoal_sim::deadline::from_environment;
use shoal_sim::scheduled::cli::{Tally, run_seeds};
use shoal_sim::scheduled::run::run;
use shoal_sim::seeds::Seeds;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of seeds to try for each defect that its known seed misses. Not set: the test fails, and
/// says so.
const SEARCH: &str = "SHOAL_SCHEDULED_SEARCH";
/// The command that searches, for as many as a defect has needed.
const SEARCH_COMMAND: &str = "SHOAL_SCHEDULED_SEARCH=60000 cargo xtask sim --scheduled --test";

/// A seed for each defect that noticed it. A change of the code under test gives the seeds other
/// schedules. A search takes minutes of all processors, so it is only made when it is asked for
/// ([`SEARCH`]); it prints the seed to write here.
const KNOWN: [(Defect, u64); 7] = [
    (Defect::LookupUnlocked, 1056),
    (Defect::UnlockedTooEarly, 44470),
    (Defect::QuiesceIgnored, 1668),
    (Defect::DurableTooEarly, 420),
    (Defect::NumberBeforeRecord, 81),
    (Defect::BatchNameUnchecked, 16),
    (Defect::BatchFailureUnchecked, 47173),
];

/// Returns a seed that fails with the defect that is planted, and its failure: the known one, or
/// else one that is searched for if that is asked for.
fn noticed(defect: Defect) -> Option<(u64, String)> {
    let known = KNOWN.iter().find(|(known, _)| *known == defect).map(|(_, seed)| *seed);
    let failure = known.and_then(|seed| run(seed).err().map(|message| (seed, message)));
    failure.or_else(|| {
        let found = failing(0..from_environment(SEARCH, 0));
        match (&found, known) {
            (Some((seed, _)), Some(known)) => {
                println!("{}: seed {known} no longer notices it, {seed} does", defect.name());
            }
            (Some((seed, _)), None) => println!("{}: seed {seed} notices it", defect.name()),
            (None, _) => {}
        }
        found
    })
}

/// Runs these seeds, on all processors, up to the first that is seen to fail.
fn failing(seeds: Range<u64>) -> Option<(u64, String)> {
    let (next, found) = (AtomicU64::new(seeds.start), Mutex::new(None));
    let search = || {
        while found.lock().is_none() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            if let Err(message) = run(seed) {
                found.lock().get_or_insert((seed, message));
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(2, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(search)));
    });
    found.into_inner()
}

/// Seeds that have found defects of the library.
///
/// * 3314: after a crash in a checkpoint, `check` of the volume opened read-only took the objects
///   of the checkpoint's epoch for ones of the future.
/// * 15255: a tree was removed while a file took its place and its inode number; the file was taken
///   for the tree.
const REGRESSIONS: [u64; 2] = [3314, 15255];

fn many_seeds_find_nothing() {
    for seed in REGRESSIONS {
        run(seed).unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    let first = from_environment("SHOAL_SCHEDULED_SEED", 0);
    let count = from_environment("SHOAL_SCHEDULED_SEEDS", 2_000);
    let seeds = Seeds { seed: first, seeds: Some(count), seconds: None };
    let Tally { runs, sum } = run_seeds(seeds).unwrap_or_else(|wrong| panic!("{wrong}"));
    println!("{runs} schedules: {sum:?}");
    assert_eq!(runs, count);
    // That it looks at something is part of the promise.
    assert!(sum.overlapping > runs && sum.trace.steps > 500 * runs, "{sum:?}");
    assert!(sum.images > runs / 4 && sum.acknowledged > runs / 50, "{sum:?}");
}

/// The same choices, calls, answers, device operations and crashes: alone, after other seeds, and
/// in a thread of the system that has run none before.
fn a_seed_is_repeated_exactly() {
    let traces = |seeds: std::ops::Range<u64>| -> Vec<_> {
        seeds.map(|seed| run(seed).unwrap_or_else(|wrong| panic!("{wrong}"))).collect()
    };
    let once = traces(100..160);
    let backwards: Vec<_> = (100..160).rev().map(|seed| traces(seed..seed + 1)[0]).collect();
    assert!(once.iter().eq(backwards.iter().rev()));
    let elsewhere = std::thread::spawn(move || traces(100..160)).join();
    assert_eq!(once, elsewhere.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    // They are not all the same.
    let mut hashes: Vec<u64> = once.iter().map(|report| report.trace.hash).collect();
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), once.len());
}

/// A failure, too, is the same again, to the letter.
fn defects_of_threads_are_noticed() {
    // Each is one panic or more in a thread of a run; they are wanted.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut found = Vec::new();
    for defect in Defect::ALL.iter().filter(|defect| defect.needs_threads()) {
        plant(Some(*defect));
        let failure = noticed(*defect);
        let again = failure.as_ref().map(|(seed, _)| run(*seed).err());
        plant(None);
        found.push((defect.name(), failure, again));
    }
    std::panic::set_hook(hook);
    let mut missed = Vec::new();
    for (name, failure, again) in found {
        let Some((seed, text)) = failure else {
            missed.push(name);
            continue;
        };
        println!("{name}: seed {seed}: {}", text.lines().next().unwrap_or_default());
        assert_eq!(again, Some(Some(text)), "{name}: seed {seed} fails in another way");
    }
    assert!(missed.is_empty(), "nobody noticed {missed:?}; for other seeds: {SEARCH_COMMAND}");
}

/// One test: a defect is planted in the whole process.
#[test]
fn volumes_under_a_scheduler() {
    many_seeds_find_nothing();
    a_seed_is_repeated_exactly();
    defects_of_threads_are_noticed();
}
