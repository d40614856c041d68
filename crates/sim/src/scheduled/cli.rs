//! The command: runs seeds, prints how fast, and for a failing one the history and the command that
//! does it again.

use super::run::{Report, run};
use crate::seeds::Seeds;
use std::time::Instant;

/// Counts of many runs.
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
pub fn run_seeds(seeds: Seeds) -> Result<Tally, String> {
    let begun = Instant::now();
    let mut tally = Tally::default();
    for seed in (0..seeds.count(1)).map(|i| seeds.seed.wrapping_add(i)) {
        if seeds.is_over(begun) {
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
pub fn cli(seeds: Seeds) -> bool {
    let begun = Instant::now();
    match run_seeds(seeds) {
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
