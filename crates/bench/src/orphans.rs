//! Cost and gain of tracking orphans.
//!
//! `truncate` is the measurement behind ext4's orphan file (Jan Kara, 2015): every thread truncates
//! a file of its own from `--bytes` to nothing, a byte at a time. ext4 enters the file in its list,
//! or table, for each truncate; Shoal does only when one needs several transactions, which these do
//! not. `truncate-tracking` of `shoal-lab` says what that would cost; ratios are medians of the
//! rounds' own.
//!
//! `open-unlink` makes files, removes them while they are open, and closes them. `remove-tree`
//! makes the files of all threads and removes them as one tree.

use crate::args::Args;
use crate::driver::{Driver, Target};
use crate::error::{BenchError, Result};
use crate::layout::{self, Name};
use crate::library::{VolumeTarget, open_options};
use crate::meter::{Measured, Meter};
use crate::report::{Report, Results, median};
use crate::syscalls::DirectoryTarget;
use crate::workload::{Share, make_directories, make_files, run_phase};
use serde::Serialize;
use shoal::raw::{Caller, Ino, OpenOptions, TreeCheck};
use std::path::Path;
use std::time::Instant;

/// Rounds when none are asked for.
const ROUNDS: u32 = 5;

/// One JSON line.
#[derive(Serialize)]
struct Line {
    workload: String,
    tracking: &'static str,
    threads: usize,
    bytes: u64,
    ops: u64,
    rounds: usize,
    /// Medians.
    seconds: f64,
    cpu_seconds: f64,
    ops_per_second: f64,
    /// Medians of the rounds' ratios to `needed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_to_needed: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_to_needed: Option<f64>,
    /// Slots taken in a round.
    slots: u64,
}

struct Sample {
    measured: Measured,
    slots: u64,
}

fn passes(args: &Args) -> u64 {
    (args.cuts / (args.threads as u64 * args.bytes)).max(1)
}

/// One thread's cuts.
fn cuts<D: Driver>(args: &Args, driver: &mut D, share: &Share, meter: &mut Meter) -> Result<()> {
    let dir = driver.open_dir(&layout::dir_path(share.thread, 0)?)?;
    let name = Name::new(share.thread, 0, share.generation);
    let data = vec![7; args.bytes as usize];
    let file = driver.open_new(&dir, name.as_cstr(), &data)?;
    for pass in 0..passes(args) {
        if pass > 0 {
            driver.write_at(&file, 0, &data)?;
        }
        for size in (0..args.bytes).rev() {
            meter.op(|| driver.cut(&file, size))?;
        }
    }
    driver.close(file)?;
    driver.unlink(&dir, name.as_cstr())
}

fn rounds(args: &Args) -> u32 {
    if args.rounds > 1 { args.rounds } else { ROUNDS }
}

/// `truncate` on volumes that are opened with these options, in turns.
pub(crate) fn truncate_volumes(
    args: &Args,
    path: &Path,
    settings: &[(&'static str, OpenOptions)],
    report: &mut Report<'_>,
) -> Result<()> {
    let mut samples: Vec<Vec<Sample>> = settings.iter().map(|_| Vec::new()).collect();
    for round in 0..rounds(args) as usize {
        for turn in 0..settings.len() {
            let setting = (round + turn) % settings.len();
            let target = VolumeTarget::prepare_with(args, path, &settings[setting].1)?;
            make_directories(args, &target)?;
            target.settle()?;
            let before = target.counter("orphan_slots");
            let measured = run_phase(args, &target, 0, |d, s, m| cuts(args, d, s, m))?;
            let slots = target.counter("orphan_slots") - before;
            samples[setting].push(Sample { measured, slots });
            target.finish()?;
        }
    }
    let names: Vec<&str> = settings.iter().map(|(name, _)| *name).collect();
    print(args, &names, &samples, report)
}

/// `truncate` on a volume.
pub(crate) fn truncate_volume(args: &Args, path: &Path, report: &mut Report<'_>) -> Result<()> {
    truncate_volumes(args, path, &[("needed", open_options(args))], report)
}

/// `truncate` through system calls.
pub(crate) fn truncate_directory(args: &Args, path: &Path, report: &mut Report<'_>) -> Result<()> {
    let mut samples = [Vec::new()];
    let target = DirectoryTarget::prepare(args, path)?;
    make_directories(args, &target)?;
    for _ in 0..rounds(args) {
        target.settle()?;
        let measured = run_phase(args, &target, 0, |d, s, m| cuts(args, d, s, m))?;
        samples[0].push(Sample { measured, slots: 0 });
    }
    target.finish()?;
    print(args, &["-"], &samples, report)
}

fn print(
    args: &Args,
    names: &[&'static str],
    samples: &[Vec<Sample>],
    report: &mut Report<'_>,
) -> Result<()> {
    let lines: Vec<Line> = names
        .iter()
        .zip(samples)
        .map(|(name, mine)| {
            let of = |f: fn(&Sample) -> f64| median(mine.iter().map(f));
            let ratio = |f: fn(&Sample) -> f64| {
                let others = mine.iter().zip(&samples[0]);
                (samples.len() > 1).then(|| median(others.map(|(m, o)| f(m) / f(o))))
            };
            let ops = mine.first().map_or(0, |s| s.measured.ops);
            Line {
                workload: args.workload.name(),
                tracking: name,
                threads: args.threads,
                bytes: args.bytes,
                ops,
                rounds: mine.len(),
                seconds: of(|s| s.measured.seconds),
                cpu_seconds: of(|s| s.measured.cpu_seconds),
                ops_per_second: of(|s| (s.measured.ops as f64 / s.measured.seconds).round()),
                seconds_to_needed: ratio(|s| s.measured.seconds),
                cpu_to_needed: ratio(|s| s.measured.cpu_seconds),
                slots: mine.last().map_or(0, |s| s.slots),
            }
        })
        .collect();
    report.lines(&lines, table)
}

fn table(lines: &[Line]) -> String {
    let mut text = format!(
        "{:<8} {:>7} {:>12} {:>8} {:>9} {:>8} {:>9} {:>9}\n",
        "tracking", "threads", "truncates/s", "wall s", "to needed", "cpu s", "to needed", "slots"
    );
    let to_needed = |ratio: Option<f64>| ratio.map_or_else(String::new, |r| format!("{r:.3}"));
    for line in lines {
        text.push_str(&format!(
            "{:<8} {:>7} {:>12.0} {:>8.3} {:>9} {:>8.3} {:>9} {:>9}\n",
            line.tracking,
            line.threads,
            line.ops_per_second,
            line.seconds,
            to_needed(line.seconds_to_needed),
            line.cpu_seconds,
            to_needed(line.cpu_to_needed),
            line.slots
        ));
    }
    text
}

/// The directory in which `remove-tree` has what it removes.
const TREE: &[u8] = b"t";

/// `remove-tree` on a volume: the time until the tree is gone from the namespace, and until its
/// space is back, which is when nothing waits to be freed and a checkpoint has been made.
pub(crate) fn remove_tree_volume(args: &Args, path: &Path, report: &mut Report<'_>) -> Result<()> {
    let target = VolumeTarget::prepare(args, path)?;
    let (volume, who) = (target.volume(), Caller::root());
    let failed =
        |e: shoal::raw::Error| BenchError::failed("removing the tree on", path.display(), e);
    make_directories(args, &target)?;
    make_files(args, &target, 0, false)?;
    // All threads' directories become one tree.
    volume.namespace().mkdir(&who, Ino::ROOT, TREE, 0o755).map_err(failed)?;
    let tree = volume.namespace().lookup(&who, Ino::ROOT, TREE).map_err(failed)?.ino;
    for thread in 0..args.threads {
        let name = layout::top_path(thread)?;
        let name = name.to_bytes();
        let flags = shoal::raw::RenameFlags::default();
        volume.namespace().rename(&who, Ino::ROOT, name, tree, name, flags).map_err(failed)?;
    }
    target.settle()?;
    let inodes = volume.statfs().inodes_used;
    let (cpu, start) = (crate::resources::cpu_seconds(), Instant::now());
    volume.namespace().remove_tree(&who, Ino::ROOT, TREE, TreeCheck::Tree).map_err(failed)?;
    let gone = start.elapsed().as_secs_f64();
    while volume.maintenance().is_reaping() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let freed = start.elapsed().as_secs_f64();
    target.settle()?;
    let back = start.elapsed().as_secs_f64();
    let mut measured = Measured::empty();
    measured.ops = inodes - volume.statfs().inodes_used;
    measured.seconds = back;
    measured.cpu_seconds = crate::resources::cpu_seconds() - cpu;
    let mut results = Results::new(measured);
    results.extra = vec![
        ("gone_seconds", gone),
        ("freed_seconds", freed),
        ("space_back_seconds", back),
        ("orphan_slots", target.counter("orphan_slots") as f64),
    ];
    report.whole(&results)?;
    target.finish()
}

/// The same through system calls, as `rm -rf` does it.
pub(crate) fn remove_tree_directory(
    args: &Args,
    path: &Path,
    report: &mut Report<'_>,
) -> Result<()> {
    let target = DirectoryTarget::prepare(args, path)?;
    make_directories(args, &target)?;
    make_files(args, &target, 0, false)?;
    target.settle()?;
    let (cpu, start) = (crate::resources::cpu_seconds(), Instant::now());
    for thread in 0..args.threads {
        target.remove_all(&layout::top_path(thread)?)?;
    }
    let gone = start.elapsed().as_secs_f64();
    target.settle()?;
    let back = start.elapsed().as_secs_f64();
    let mut measured = Measured::empty();
    measured.ops = args.files * args.threads as u64;
    measured.seconds = gone;
    measured.cpu_seconds = crate::resources::cpu_seconds() - cpu;
    let mut results = Results::new(measured);
    results.extra = vec![("gone_seconds", gone), ("space_back_seconds", back)];
    report.whole(&results)?;
    target.finish()
}
