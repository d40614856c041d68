//! A volume that grows old: each round removes a random half of the files and makes it anew, under
//! other names in the same directories. What is looked at is what ageing spoils: rates, in how many
//! inode blocks the files of a directory lie, bytes written for each file.
//!
//! With `--holes` the worst case for a filesystem that gives out each free number at once: one of
//! each 32 files is removed, and as many files are made in new directories before and after that.

use crate::args::Args;
use crate::driver::{Driver, Target, Usage};
use crate::error::{BenchError, Result};
use crate::layout::{self, Layout, Name};
use crate::library::INODES_PER_BLOCK;
use crate::meter::{Measured, Meter};
use crate::plot::{self, Panel};
use crate::report::{Report, median};
use crate::workload::{Share, make_directories, run_phase};
use serde::Serialize;
use std::sync::{Mutex, PoisonError};

/// One JSON line: a round, or with `--holes` half of one.
#[derive(Serialize)]
struct Line {
    workload: String,
    target: String,
    threads: usize,
    /// 0: the files are made for the first time.
    round: u32,
    /// `--holes`: whether blocks have holes.
    #[serde(skip_serializing_if = "Option::is_none")]
    holes: Option<bool>,
    created: u64,
    creates_per_second: f64,
    removed: u64,
    unlinks_per_second: f64,
    /// Inode blocks in which the files of a directory lie, summed over the directories, and how few
    /// could hold them.
    #[serde(skip_serializing_if = "Option::is_none")]
    inode_blocks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode_blocks_ideal: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fragmentation: Option<f64>,
    /// Journal and checkpoint bytes written for each file made, and for each removed.
    #[serde(skip_serializing_if = "Option::is_none")]
    create_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unlink_bytes: Option<f64>,
    /// Live bytes of the volume after the round.
    #[serde(skip_serializing_if = "Option::is_none")]
    volume_bytes: Option<u64>,
}

/// Result of a phase.
struct Phase {
    measured: Measured,
    bytes: Option<f64>,
}

/// Runs all rounds and prints a line for each.
pub(crate) fn run<T: Target>(args: &Args, target: &T, report: &mut Report<'_>) -> Result<()> {
    let lines = match args.holes {
        false => age(args, target)?,
        true => holes(args, target)?,
    };
    report.lines(&lines, |lines| table(lines, args.holes))?;
    match &args.plot {
        None => Ok(()),
        Some(path) => std::fs::write(path, drawn(args, &lines))
            .map_err(|e| BenchError::failed("writing", path.display(), e)),
    }
}

fn age<T: Target>(args: &Args, target: &T) -> Result<Vec<Line>> {
    make_directories(args, target)?;
    let files = Files::all(args);
    // For each thread the generation of each file's name.
    let names: Vec<Mutex<Vec<u32>>> =
        (0..args.threads).map(|_| Mutex::new(vec![0; args.files as usize])).collect();
    let made = phase(args, target, 0, &|driver, share, meter| {
        create(driver, share, meter, files, |_| Some(0))
    })?;
    let mut lines = vec![line(args, target, files, &made, None)?];
    for round in 1..=args.age_rounds() {
        let removed = phase(args, target, 2 * round, &|driver, share, meter| {
            let names = names[share.thread].lock().unwrap_or_else(PoisonError::into_inner);
            let name = |index: u64| names[index as usize];
            let gone = |index| chosen(share.thread, index, round).then(|| name(index));
            remove(driver, share, meter, files, gone)
        })?;
        let made = phase(args, target, 2 * round + 1, &|driver, share, meter| {
            let mut names = names[share.thread].lock().unwrap_or_else(PoisonError::into_inner);
            create(driver, share, meter, files, |index| {
                let anew = chosen(share.thread, index, round);
                anew.then(|| std::mem::replace(&mut names[index as usize], round)).map(|_| round)
            })
        })?;
        lines.push(Line { round, ..line(args, target, files, &made, Some(&removed))? });
    }
    Ok(lines)
}

/// In turns: new directories, one file of each inode block goes, new directories again.
fn holes<T: Target>(args: &Args, target: &T) -> Result<Vec<Line>> {
    make_directories(args, target)?;
    let old = Files::all(args);
    phase(args, target, 0, &|driver, share, meter| create(driver, share, meter, old, |_| Some(0)))?;
    let mut lines = Vec::new();
    let mut new = Files::few(args, old);
    for round in 1..=args.age_rounds() {
        let mut removed = None;
        for holes in [false, true] {
            if holes {
                let gone = u64::from(round) * 5 % INODES_PER_BLOCK;
                removed = Some(phase(args, target, 0, &|driver, share, meter| {
                    remove(driver, share, meter, old, |index| {
                        (index % INODES_PER_BLOCK == gone).then_some(0)
                    })
                })?);
            }
            make_set(args, target, new)?;
            let made = phase(args, target, 0, &|driver, share, meter| {
                create(driver, share, meter, new, |_| Some(0))
            })?;
            let line = line(args, target, new, &made, removed.as_ref())?;
            lines.push(Line { round, holes: Some(holes), ..line });
            new = new.next();
        }
    }
    Ok(lines)
}

/// Some files of each thread, and where they are.
#[derive(Clone, Copy)]
struct Files {
    layout: Layout,
    /// Number of the first directory.
    first_dir: u64,
}

impl Files {
    fn all(args: &Args) -> Files {
        Files { layout: Layout::new(args), first_dir: 0 }
    }
    /// As many as the others have inode blocks, in directories of their own.
    fn few(args: &Args, others: Files) -> Files {
        let files = others.layout.files.div_ceil(INODES_PER_BLOCK);
        let layout = Layout::new(&Args { files, ..args.clone() });
        Files { layout, first_dir: others.layout.dirs }
    }
    /// As many in the directories after these.
    fn next(self) -> Files {
        Files { first_dir: self.first_dir + self.layout.dirs, ..self }
    }
    fn dirs(self) -> std::ops::Range<u64> {
        self.first_dir..self.first_dir + self.layout.dirs
    }

    /// Calls `each(driver, directory, index)` for every file, directory by directory, in another
    /// order in each phase: a free number must not meet the directory it came from by chance.
    fn each<D: Driver>(
        self,
        driver: &mut D,
        share: &Share,
        mut each: impl FnMut(&mut D, &D::Dir, u64) -> Result<()>,
    ) -> Result<()> {
        let (Layout { files, per_dir, .. }, phase) = (self.layout, u64::from(share.generation));
        let mut runs: Vec<u64> = (0..files.div_ceil(per_dir)).collect();
        if phase > 0 {
            runs.sort_by_key(|run| layout::stamp(share.thread, run ^ phase << 40));
        }
        for first in runs.into_iter().map(|run| run * per_dir) {
            let dir = self.first_dir + self.layout.dir_of(first);
            let dir = driver.open_dir(&layout::dir_path(share.thread, dir)?)?;
            let end = (first + per_dir).min(files);
            (first..end).try_for_each(|index| each(driver, &dir, index))?;
        }
        Ok(())
    }
}

/// Returns whether a round removes a file: half of them, other ones each time.
fn chosen(thread: usize, index: u64, round: u32) -> bool {
    layout::stamp(thread, index ^ u64::from(round) << 40)[7] & 1 == 1
}

/// Makes those files for which there is a generation.
fn create<D: Driver>(
    driver: &mut D,
    share: &Share,
    meter: &mut Meter,
    files: Files,
    mut generation: impl FnMut(u64) -> Option<u32>,
) -> Result<()> {
    files.each(driver, share, |driver, dir, index| {
        let Some(generation) = generation(index) else { return Ok(()) };
        let name = Name::new(share.thread, index + (files.first_dir << 32), generation);
        meter.op(|| driver.create(dir, name.as_cstr(), false))
    })
}

/// Removes those files for which there is a generation.
fn remove<D: Driver>(
    driver: &mut D,
    share: &Share,
    meter: &mut Meter,
    files: Files,
    generation: impl Fn(u64) -> Option<u32>,
) -> Result<()> {
    files.each(driver, share, |driver, dir, index| {
        let Some(generation) = generation(index) else { return Ok(()) };
        let name = Name::new(share.thread, index + (files.first_dir << 32), generation);
        meter.op(|| driver.unlink(dir, name.as_cstr()))
    })
}

/// Makes the directories of new files.
fn make_set<T: Target>(args: &Args, target: &T, files: Files) -> Result<()> {
    run_phase(args, target, 0, |driver, share, _| {
        files.dirs().try_for_each(|dir| driver.mkdir(&layout::dir_path(share.thread, dir)?))
    })?;
    Ok(())
}

/// One thread's share of a phase.
type Work<'w, D> = &'w (dyn Fn(&mut D, &Share, &mut Meter) -> Result<()> + Sync);

/// Runs a phase of this number between two settlings.
fn phase<T: Target>(
    args: &Args,
    target: &T,
    number: u32,
    work: Work<'_, T::Driver>,
) -> Result<Phase> {
    target.settle()?;
    let before = target.usage();
    let measured = run_phase(args, target, number, work)?;
    target.settle()?;
    let written = |usage: Usage| usage.journal_bytes + usage.checkpoint_bytes;
    let bytes = before.zip(target.usage()).map(|(b, a)| written(a) - written(b));
    let each = bytes.map(|bytes| tenths(bytes as f64 / measured.ops.max(1) as f64));
    Ok(Phase { measured, bytes: each })
}

fn line<T: Target>(
    args: &Args,
    target: &T,
    files: Files,
    made: &Phase,
    removed: Option<&Phase>,
) -> Result<Line> {
    let (blocks, ideal) = match inode_blocks(args, target, files)? {
        Some((blocks, ideal)) => (Some(blocks), Some(ideal)),
        None => (None, None),
    };
    Ok(Line {
        workload: args.workload.name(),
        target: args.target.as_ref().map(ToString::to_string).unwrap_or_default(),
        threads: args.threads,
        round: 0,
        holes: None,
        created: made.measured.ops,
        creates_per_second: tenths(made.measured.rate()),
        removed: removed.map_or(0, |phase| phase.measured.ops),
        unlinks_per_second: removed.map_or(0.0, |phase| tenths(phase.measured.rate())),
        inode_blocks: blocks,
        inode_blocks_ideal: ideal,
        fragmentation: blocks.zip(ideal).map(|(b, i)| b as f64 / i.max(1) as f64),
        create_bytes: made.bytes,
        unlink_bytes: removed.and_then(|phase| phase.bytes),
        volume_bytes: target.usage().map(|usage| usage.volume_bytes),
    })
}

/// In how many inode blocks the files of a directory lie, and how few could hold them: both summed
/// over the directories.
fn inode_blocks<T: Target>(args: &Args, target: &T, files: Files) -> Result<Option<(u64, u64)>> {
    let mut driver = target.driver()?;
    let mut sum = (0, 0);
    for thread in 0..args.threads {
        for dir in files.dirs() {
            let path = layout::dir_path(thread, dir)?;
            let Some(blocks) = driver.inode_blocks(&path)? else { return Ok(None) };
            let entries = driver.list(&path, &mut Vec::new())?;
            sum = (sum.0 + blocks, sum.1 + entries.div_ceil(INODES_PER_BLOCK));
        }
    }
    Ok(Some(sum))
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

/// Lines for people.
fn table(lines: &[Line], holes: bool) -> String {
    let mut text = format!(
        "{:<10} {:>11} {:>11} {:>12} {:>9} {:>12} {:>12} {:>10}\n",
        "round",
        "creates/s",
        "unlinks/s",
        "inode blocks",
        "of ideal",
        "bytes/create",
        "bytes/unlink",
        "volume MiB"
    );
    let number = |value: Option<f64>, digits: usize| {
        value.map_or("-".to_owned(), |value| format!("{value:.digits$}"))
    };
    for line in lines {
        let turn = match line.holes {
            Some(true) => " holes",
            Some(false) => " none",
            None => "",
        };
        text.push_str(&format!(
            "{:<10} {:>11.0} {:>11.0} {:>12} {:>9} {:>12} {:>12} {:>10}\n",
            format!("{}{turn}", line.round),
            line.creates_per_second,
            line.unlinks_per_second,
            number(line.inode_blocks.map(|blocks| blocks as f64), 0),
            number(line.fragmentation, 2),
            number(line.create_bytes, 0),
            number(line.unlink_bytes, 0),
            number(line.volume_bytes.map(|bytes| bytes as f64 / (1 << 20) as f64), 1)
        ));
    }
    if holes {
        let pairs = lines
            .chunks(2)
            .map(|pair| pair[1].creates_per_second / pair[0].creates_per_second.max(1.0));
        let ratio = median(pairs);
        text.push_str(&format!("creates with holes against without: {ratio:.2} (median)\n"));
    }
    text
}

fn drawn(args: &Args, lines: &[Line]) -> String {
    let curve = |value: fn(&Line) -> f64| lines.iter().map(value).collect::<Vec<f64>>();
    // What is not known is no point.
    let unlinked = |line: &Line| if line.removed > 0 { line.unlinks_per_second } else { f64::NAN };
    let rates = vec![("create", curve(|l| l.creates_per_second)), ("unlink", curve(unlinked))];
    let bytes = vec![
        ("create", curve(|l| l.create_bytes.unwrap_or(f64::NAN))),
        ("unlink", curve(|l| l.unlink_bytes.unwrap_or(f64::NAN))),
    ];
    let blocks = vec![("directories", curve(|l| l.fragmentation.unwrap_or(f64::NAN)))];
    let mut panels = vec![Panel { title: "files a second", curves: rates }];
    if lines.iter().any(|line| line.fragmentation.is_some()) {
        panels.push(Panel { title: "inode blocks, of the ideal", curves: blocks });
        panels.push(Panel { title: "bytes written for each file", curves: bytes });
    }
    let (files, threads) = (args.files, args.threads);
    let target = args.target.as_ref().map(ToString::to_string).unwrap_or_default();
    let what = if args.holes { "with a hole in each block, in turns" } else { "rounds" };
    plot::svg(&format!("age {target}: {threads} × {files} files, {what}"), 0, &panels)
}
