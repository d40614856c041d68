//! Findings of a run, in words.

use super::explore::{Counts, Points, Violation, explore};
use super::run::Found;
use super::start::{Mode, Start};
use super::{actions, sequence::Only};

/// One line of progress.
pub fn progress(found: &Found, percent: u64) -> String {
    let total = found.total();
    let seconds = found.elapsed.as_secs_f64();
    format!(
        "{seconds:6.0} s, {percent:3} %: {} sequences, {} pairs ({} new), {} images, {} violations",
        total.sequences,
        total.pairs,
        total.new_pairs,
        total.images,
        found.violations.len()
    )
}

/// The table at the end.
pub fn table(found: &Found) -> String {
    let total = found.total();
    let seconds = found.elapsed.as_secs_f64();
    let columns = found.counts.iter().chain([&total]);
    let row = |name: &str, of: fn(&Counts) -> u64| {
        let numbers: String = columns.clone().map(|counts| format!("{:>12}", of(counts))).collect();
        format!("{name:34}{numbers}\n")
    };
    let mut text = format!(
        "{:34}{:>12}{:>12}{:>12}{:>12}\n",
        "", "1 operation", "2 operations", "3 (sample)", "all"
    );
    text += &row("sequences", |c| c.sequences);
    text += &row("left out: an operation fails", |c| c.failing);
    text += &row("(sequence, crash point) pairs", |c| c.pairs);
    text += &row("  new, not in a shorter sequence", |c| c.new_pairs);
    text += &row("images recovered and compared", |c| c.images);
    text += &row("  with a torn write", |c| c.torn);
    text += &row("  with writes out of order", |c| c.reordered);
    text += &row("images equal to one of those", |c| c.repeated);
    text += &row("recoveries crashed, done again", |c| c.recoveries_crashed);
    text += &row("recovered volumes worked with", |c| c.used);
    text += &row("intents completed by recovery", |c| c.intents);
    text += &format!(
        "{} violations; {seconds:.1} s, {:.0} sequences/s, {:.0} pairs/s, {:.0} images/s{}\n",
        found.violations.len(),
        total.sequences as f64 / seconds,
        total.pairs as f64 / seconds,
        total.images as f64 / seconds,
        if found.complete { "" } else { "; INCOMPLETE: stopped early" }
    );
    text
}

/// A violation with the difference in full, when it happens again, and how to see it again.
pub fn violation(start: &Start, violation: &Violation, mode: Mode) -> String {
    let Only { sequence, at } = &violation.only;
    let again = at.and_then(|at| explore(start, &actions::all(), sequence, Points::One(at)).err());
    let explained = again.as_ref().unwrap_or(violation);
    let at = at.map_or(String::new(), |at| format!("@{at}"));
    let replay = format!("cargo xtask exhaustive --mode {} --only {sequence}{at}", mode.name());
    format!("VIOLATION {explained}  replay: {replay}\n")
}
