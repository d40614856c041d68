//! Runs that once failed, kept: shortened lists of operations with what was wrong. A new one goes at
//! the end of its family, named after the symptom.

use shoal_sim::deadline::within;
use shoal_sim::runner::run;

/// Seeds that once found something: (seed, operations, what it was).
const SEEDS: &[(u64, usize, &str)] = &[];

#[test]
fn seeds_that_once_failed() {
    for (seed, ops, what) in SEEDS.iter().copied() {
        within(300, what, move || {
            if let Err(failure) = run(seed, ops) {
                panic!("seed {seed} ({what}): {failure}");
            }
        });
    }
}
