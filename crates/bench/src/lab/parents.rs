//! Cost of parent pointers: the same calls on volumes without them, with them, and with every
//! change of one forced through an intent, as XFS did before the shortcut ("xfs: parent pointers",
//! Darrick J. Wong, whose tables this prints).
//!
//! The settings take turns within each round, in an order that rotates, on a fresh volume each.
//! What is added is the median of the rounds' own ratios, so that a machine that slows down in the
//! middle does not count as a cost. Times include making everything durable afterwards: what a
//! call leaves for the next checkpoint is part of its price.
//!
//! With `--setting` there is nothing to compare: one setting, one round. `laboratory instructions`
//! counts the instructions of its phases between the calls of `boundary`, and those of their calls
//! alone within the function of each phase: all of these by their names.

use crate::args::Args;
use crate::driver::{Driver, Target};
use crate::error::{BenchError, Result};
use crate::layout::Name;
use crate::library::{VolumeDriver, VolumeTarget, open_options};
use crate::meter::Meter;
use crate::report::{Report, median};
use crate::resources;
use crate::workload::{Share, each_file, make_directories, run_phase};
use serde::Serialize;
use shoal::raw::{Lab, OpenOptions};
use std::ffi::CString;
use std::path::Path;
use std::time::Instant;

/// Rounds when none are asked for.
const ROUNDS: u32 = 7;
/// Bytes of a name of another length.
const OTHER_LEN: usize = 31;

/// How parent pointers are kept: name, whether at all, whether through intents.
const SETTINGS: [(&str, bool, bool); 3] =
    [("off", false, false), ("shortcut", true, false), ("intents", true, true)];

/// One thread's share of a phase.
type Work = fn(&mut VolumeDriver, &Share, &mut Meter) -> Result<()>;

/// The calls that are compared, in the order in which each volume sees them.
const PHASES: [(&str, Work); 4] = [
    ("create", create),
    ("rename", rename),
    ("rename-other-length", rename_other),
    ("unlink", unlink),
];

#[inline(never)]
fn create(driver: &mut VolumeDriver, share: &Share, meter: &mut Meter) -> Result<()> {
    each_file(driver, share, |driver, dir, name, _| meter.op(|| driver.create(dir, name, false)))
}

#[inline(never)]
fn rename(driver: &mut VolumeDriver, share: &Share, meter: &mut Meter) -> Result<()> {
    each_file(driver, share, |driver, dir, name, index| {
        let to = Name::new(share.thread, index, share.generation + 1);
        meter.op(|| driver.rename(dir, name, to.as_cstr()))
    })
}

#[inline(never)]
fn rename_other(driver: &mut VolumeDriver, share: &Share, meter: &mut Meter) -> Result<()> {
    each_file(driver, share, |driver, dir, _, index| {
        let from = Name::new(share.thread, index, share.generation + 1);
        let to = other(share, index)?;
        meter.op(|| driver.rename(dir, from.as_cstr(), &to))
    })
}

#[inline(never)]
fn unlink(driver: &mut VolumeDriver, share: &Share, meter: &mut Meter) -> Result<()> {
    each_file(driver, share, |driver, dir, _, index| {
        let name = other(share, index)?;
        meter.op(|| driver.unlink(dir, &name))
    })
}

/// The name that a file gets at last: of another length than those before.
fn other(share: &Share, index: u64) -> Result<CString> {
    let name = Name::new(share.thread, index, share.generation + 2);
    CString::new(&name.as_cstr().to_bytes()[..OTHER_LEN])
        .map_err(|e| BenchError::failed("name", index, e))
}

/// Times of one phase in one round.
#[derive(Clone, Copy)]
struct Sample {
    seconds: f64,
    cpu_seconds: f64,
    intents: u64,
    transactions: u64,
    journal_bytes: u64,
}

/// Counters of a volume.
#[derive(Clone, Copy)]
struct Counted {
    intents: u64,
    transactions: u64,
    journal_bytes: u64,
}

impl Counted {
    fn of(target: &VolumeTarget) -> Counted {
        Counted {
            intents: target.counter("attr_intents"),
            transactions: target.counter("transactions"),
            journal_bytes: target.counter("journal_bytes"),
        }
    }
}

/// One JSON line.
#[derive(Serialize)]
struct Line {
    workload: &'static str,
    parents: &'static str,
    threads: usize,
    ops: u64,
    rounds: usize,
    /// Medians, with the time to make all of it durable.
    seconds: f64,
    cpu_seconds: f64,
    ops_per_second: f64,
    /// Medians of the rounds' ratios to `off`, less 1; none if `off` was not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    added_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    added_cpu: Option<f64>,
    /// Attributes changed through intents, in a round.
    intents: u64,
    /// Transactions committed to the journal, in a round.
    transactions: u64,
    /// Bytes of the journal's records, in a round.
    journal_bytes: u64,
}

/// Runs all rounds and prints a row for each phase and setting.
pub(crate) fn run(args: &Args, path: &Path, report: &mut Report<'_>) -> Result<()> {
    let only = args.setting.as_deref();
    let settings: Vec<usize> = (0..SETTINGS.len())
        .filter(|setting| only.is_none_or(|name| SETTINGS[*setting].0 == name))
        .collect();
    let rounds = if args.rounds > 1 || only.is_some() { args.rounds } else { ROUNDS };
    let mut samples = vec![[const { Vec::new() }; SETTINGS.len()]; PHASES.len()];
    for round in 0..rounds as usize {
        for turn in 0..settings.len() {
            let setting = settings[(round + turn) % settings.len()];
            let times = one_volume(args, path, SETTINGS[setting])?;
            for (phase, sample) in times.into_iter().enumerate() {
                samples[phase][setting].push(sample);
            }
        }
    }
    let lines: Vec<Line> = PHASES
        .iter()
        .zip(&samples)
        .flat_map(|((name, _), of_phase)| {
            settings.iter().map(|setting| line(args, name, *setting, of_phase))
        })
        .collect();
    report.lines(&lines, table)
}

/// Separates the phases for a profiler, which finds it by its name.
#[inline(never)]
fn boundary(next: usize) {
    std::hint::black_box(next);
}

/// All phases on a fresh volume.
fn one_volume(
    args: &Args,
    path: &Path,
    (_, parents, attr_intents): (&str, bool, bool),
) -> Result<Vec<Sample>> {
    let options = open_options(args);
    let lab = Lab { attr_intents, ..options.lab };
    let options = OpenOptions { lab, ..options };
    let target = VolumeTarget::prepare_as(args, path, &options, parents)?;
    make_directories(args, &target)?;
    target.settle()?;
    let mut samples = Vec::with_capacity(PHASES.len());
    for (phase, (_, work)) in PHASES.into_iter().enumerate() {
        let before = Counted::of(&target);
        boundary(phase);
        let (cpu, start) = (resources::cpu_seconds(), Instant::now());
        run_phase(args, &target, 0, work)?;
        target.settle()?;
        let (seconds, cpu_seconds) =
            (start.elapsed().as_secs_f64(), resources::cpu_seconds() - cpu);
        boundary(phase + 1);
        let after = Counted::of(&target);
        samples.push(Sample {
            seconds,
            cpu_seconds,
            intents: after.intents - before.intents,
            transactions: after.transactions - before.transactions,
            journal_bytes: after.journal_bytes - before.journal_bytes,
        });
    }
    target.finish()?;
    Ok(samples)
}

fn line(args: &Args, workload: &'static str, setting: usize, phase: &[Vec<Sample>; 3]) -> Line {
    let (off, mine) = (&phase[0], &phase[setting]);
    let of = |f: fn(&Sample) -> f64| median(mine.iter().map(f));
    let added = |f: fn(&Sample) -> f64| {
        let ratios = mine.iter().zip(off).map(|(m, o)| f(m) / f(o));
        (!off.is_empty()).then(|| median(ratios) - 1.0)
    };
    let ops = args.files * args.threads as u64;
    let seconds = of(|s| s.seconds);
    Line {
        workload,
        parents: SETTINGS[setting].0,
        threads: args.threads,
        ops,
        rounds: mine.len(),
        seconds,
        cpu_seconds: of(|s| s.cpu_seconds),
        ops_per_second: (ops as f64 / seconds).round(),
        added_seconds: added(|s| s.seconds),
        added_cpu: added(|s| s.cpu_seconds),
        intents: mine.last().map_or(0, |s| s.intents),
        transactions: mine.last().map_or(0, |s| s.transactions),
        journal_bytes: mine.last().map_or(0, |s| s.journal_bytes),
    }
}

fn table(lines: &[Line]) -> String {
    let mut text = format!(
        "{:<20} {:<9} {:>9} {:>8} {:>9} {:>8} {:>11} {:>9}\n",
        "", "parents", "cpu s", "added", "wall s", "added", "calls/s", "intents"
    );
    for line in lines {
        let added = |ratio: Option<f64>| match (line.parents, ratio) {
            ("off", _) | (_, None) => String::new(),
            (_, Some(ratio)) => format!("{:+.1} %", ratio * 100.0),
        };
        text.push_str(&format!(
            "{:<20} {:<9} {:>9.3} {:>8} {:>9.3} {:>8} {:>11.0} {:>9}\n",
            line.workload,
            line.parents,
            line.cpu_seconds,
            added(line.added_cpu),
            line.seconds,
            added(line.added_seconds),
            line.ops_per_second,
            line.intents
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn one_setting_alone_runs_once() {
        let path = std::env::temp_dir().join(format!("shoal-parents.{}", std::process::id()));
        let line = "bench parents --setting intents --files 40 --per-dir 20 --dirs 2 --json";
        let target = format!("vol:{}", path.display());
        let words = line.split(' ').chain(["--target", &target]);
        let args = <Command as clap::Parser>::try_parse_from(words).expect("parses").args;
        let mut out = Vec::new();
        crate::run_into(&args, &mut out).expect("runs");
        let text = String::from_utf8(out).expect("text");
        let lines: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), PHASES.len());
        for (line, (name, _)) in lines.iter().zip(PHASES) {
            assert_eq!((&line["workload"], &line["parents"]), (&name.into(), &"intents".into()));
            assert_eq!(line["rounds"], 1);
            assert!(line.get("added_cpu").is_none(), "{line}");
            // A record is never empty, and each call commits a transaction, alone or with others.
            assert!(line["transactions"].as_u64() > Some(0), "{line}");
            assert!(line["journal_bytes"].as_u64() > line["transactions"].as_u64(), "{line}");
        }
        assert!(!path.exists());
    }
}
