//! Inputs of property tests: the same in every run, unless a search by night asks for others.
//!
//! | variable | effect |
//! | --- | --- |
//! | `SHOAL_PROPTEST_SEED` (a number) | this seed instead of the fixed one |
//! | `SHOAL_PROPTEST_SEED=fresh` | a new seed in each test, which a failed test prints |
//! | `SHOAL_PROPTEST_CASES` (a number) | that many times the cases of each test |
//!
//! A case that a search has found becomes a test with that input. There are no files of cases:
//! their seeds mean other inputs as soon as a strategy changes.

use proptest::test_runner::{Config, RngSeed};
use std::hash::{BuildHasher, RandomState};

const SEED: &str = "SHOAL_PROPTEST_SEED";
const CASES: &str = "SHOAL_PROPTEST_CASES";
/// Any number would do.
const FIXED: u64 = 0x5_0A1;

/// Returns the configuration of a property test with `cases` inputs.
///
/// # Panics
/// If a variable is set and is no number: the search would not be the one that was asked for.
#[must_use]
pub fn property(cases: u32) -> Config {
    let [seed, times] = [SEED, CASES].map(|name| std::env::var(name).ok());
    configured(cases, seed.as_deref(), times.as_deref())
}

fn configured(cases: u32, seed: Option<&str>, times: Option<&str>) -> Config {
    let seed = match seed.unwrap_or_default() {
        "" => FIXED,
        "fresh" => RandomState::new().hash_one(cases),
        seed => seed.parse().unwrap_or_else(|_| panic!("{SEED}: '{seed}' is no number")),
    };
    let times: u32 = match times.unwrap_or_default() {
        "" => 1,
        times => times.parse().unwrap_or_else(|_| panic!("{CASES}: '{times}' is no number")),
    };
    if seed != FIXED {
        // Captured, and so printed by tests that fail.
        eprintln!("the same inputs again: {SEED}={seed}");
    }
    Config {
        cases: cases.saturating_mul(times),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Config::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;

    /// The inputs of a test with a configuration.
    fn inputs(config: Config) -> Vec<u64> {
        let mut runner = TestRunner::new(config);
        let seen = std::cell::RefCell::new(Vec::new());
        let note = |n| {
            seen.borrow_mut().push(n);
            Ok(())
        };
        runner.run(&any::<u64>(), note).expect("it cannot fail");
        seen.into_inner()
    }

    #[test]
    fn inputs_are_the_same_unless_a_search_asks_for_others() {
        let usual = inputs(configured(20, None, None));
        assert_eq!(usual.len(), 20);
        assert_eq!(usual, inputs(configured(20, Some(""), Some(""))));
        let more = inputs(configured(20, None, Some("3")));
        assert!(more.len() == 60 && more.starts_with(&usual));
        let other = inputs(configured(20, Some("7"), None));
        assert!(other != usual && other == inputs(configured(20, Some("7"), None)));
        let fresh = [(); 2].map(|()| inputs(configured(20, Some("fresh"), None)));
        assert_ne!(fresh[0], fresh[1]);
        assert!(configured(20, None, None).failure_persistence.is_none());
        assert!(std::panic::catch_unwind(|| configured(1, Some("some"), None)).is_err());
        assert!(std::panic::catch_unwind(|| configured(1, None, Some("many"))).is_err());
    }
}
