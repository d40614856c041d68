//! The command: runs seeds, prints how fast, and for a failing one the history and the command that
//! does it again.

use super::run::{Report, run};
use std::time::{Duration, Instant};

const USAGE: &str = "usage: shoal-sim scheduled [--seed N] [--seeds COUNT] [--seconds S]";

/// What to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arguments {
    /// First seed.
    pub seed: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Stop after this time, whatever `seeds` says.
    pub limit: Option<Duration>,
}

/// Reads the command line.
pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut arguments = Arguments { seed: 0, seeds: 1, limit: None };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word}: value missing\n{USAGE}"))?;
        let number: u64 =
            value.parse().map_err(|_| format!("{word} {value}: not a number\n{USAGE}"))?;
        match word.as_str() {
            "--seed" => arguments.seed = number,
            "--seeds" => arguments.seeds = number,
            "--seconds" => {
                (arguments.limit, arguments.seeds) = (Some(Duration::from_secs(number)), u64::MAX);
            }
            _ => return Err(format!("{word}: unknown\n{USAGE}")),
        }
    }
    Ok(arguments)
}

/// What many runs did.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Their sums; the trace is that of the last.
    pub sum: Report,
}

/// Runs seeds `seed`, `seed + 1` and so on until one fails, or the time is over.
///
/// # Errors
/// Says which seed fails and how, and how to repeat it.
pub fn run_seeds(arguments: Arguments) -> Result<Tally, String> {
    let begun = Instant::now();
    let mut tally = Tally::default();
    for seed in (0..arguments.seeds).map(|i| arguments.seed.wrapping_add(i)) {
        if arguments.limit.is_some_and(|limit| begun.elapsed() >= limit) {
            break;
        }
        let report = run(seed).map_err(|message| {
            format!(
                "seed {seed} fails: {message}\n\
                 replay: cargo xtask sim --scheduled --seed {seed}"
            )
        })?;
        let sum = &mut tally.sum;
        sum.calls += report.calls;
        sum.overlapping += report.overlapping;
        sum.device_ops += report.device_ops;
        sum.images += report.images;
        sum.acknowledged += report.acknowledged;
        sum.trace.steps += report.trace.steps;
        sum.trace.hash = report.trace.hash;
        tally.runs += 1;
    }
    Ok(tally)
}

/// Does it, and says what was done. Returns whether all was well.
pub fn cli(arguments: Arguments) -> bool {
    let begun = Instant::now();
    match run_seeds(arguments) {
        Ok(Tally { runs, sum }) => {
            let seconds = begun.elapsed().as_secs_f64();
            println!(
                "{runs} schedules in {seconds:.1} s ({:.1} a second): {} calls ({} overlapping), \
                 {} steps, {} device operations, {} crash images ({} with something acknowledged), \
                 0 violations; trace of the last: {:016x}",
                runs as f64 / seconds,
                sum.calls,
                sum.overlapping,
                sum.trace.steps,
                sum.device_ops,
                sum.images,
                sum.acknowledged,
                sum.trace.hash
            );
            true
        }
        Err(message) => {
            println!("{message}");
            false
        }
    }
}
