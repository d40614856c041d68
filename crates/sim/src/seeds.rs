//! Options of all runs: which seeds, and how long.

use clap::Args;
use std::ops::RangeInclusive;
use std::time::Instant;

/// Which seeds, and how long.
#[derive(Args, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seeds {
    /// First seed
    #[arg(long, value_name = "N", default_value = "0", value_parser = number)]
    pub seed: u64,
    /// Number of seeds
    #[arg(long, value_name = "COUNT", value_parser = number)]
    pub seeds: Option<u64>,
    /// Stop after S seconds
    #[arg(long, value_name = "S")]
    pub seconds: Option<u64>,
}

impl Seeds {
    /// Number of seeds: what was asked for, no limit if a time was, else `otherwise`.
    pub fn count(&self, otherwise: u64) -> u64 {
        self.seeds.unwrap_or(if self.seconds.is_some() { u64::MAX } else { otherwise })
    }

    /// Returns whether the time is over.
    pub fn is_over(&self, began: Instant) -> bool {
        self.seconds.is_some_and(|seconds| began.elapsed().as_secs() >= seconds)
    }
}

/// Reads a number, decimal or as `0x7f`.
pub fn number(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    number.map_err(|e| e.to_string())
}

/// Returns the seeds of a test: those that an environment variable names, as FROM-TO, or
/// `otherwise`.
pub fn of_test(variable: &str, otherwise: RangeInclusive<u64>) -> RangeInclusive<u64> {
    let Ok(text) = std::env::var(variable) else { return otherwise };
    let range = text.split_once('-').map(|(from, to)| (from.parse(), to.parse()));
    match range {
        Some((Ok(from), Ok(to))) => from..=to,
        _ => panic!("{variable} is FROM-TO, not {text}"),
    }
}
