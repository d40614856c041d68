//! A run: each measurement of each experiment, round by round, systems in turns.
//!
//! A measurement is in the run's folder ([`crate::raw`]) as soon as its program ends. So a run that
//! is interrupted goes on where it was, and a round that is begun twice measures nothing twice.

use crate::device;
use crate::error::{LabError, Result};
use crate::experiments::{ALL, Experiment, Measure};
use crate::interrupt;
use crate::machine::{BUSY, Machine};
use crate::place::{self, Place};
use crate::plan::Size;
use crate::programs::{self, Programs};
use crate::raw::{Line, Run, Skipped};
use crate::report;
use crate::turn::Turns;
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::{HashSet, VecDeque};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Options of a run.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Everything once and tiny, in a minute: only to see that it works
    #[arg(long, conflicts_with_all = ["quick", "full"])]
    smoke: bool,
    /// Ten minutes on two processors (the default)
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// As much as a claim needs
    #[arg(long)]
    full: bool,
    /// Only these experiments (--list)
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    only: Vec<String>,
    /// Rounds, instead of those of the size
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    /// List the experiments, and run none
    #[arg(long)]
    list: bool,
    /// Folder of raw files; a run that is there is continued (default: target/lab/SIZE)
    #[arg(long, value_name = "DIR")]
    run: Option<PathBuf>,
    /// Folder of filesystem images: in memory, so that no disk is measured
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    scratch: PathBuf,
    /// Folder on a disk, for images that are too large for memory
    #[arg(long, value_name = "DIR", default_value = "target/lab")]
    disk: PathBuf,
    /// Block device that is OVERWRITTEN by one filesystem after the other, instead of images in
    /// memory; they take its first 2 (--smoke), 6 or 12 GiB (--full)
    #[arg(long, value_name = "DEVICE")]
    device: Option<PathBuf>,
    /// Measure only while this file's lock is held, in turns: other work on the machine, started
    /// by flock FILE COMMAND, then never runs beside a measurement
    #[arg(long, value_name = "FILE")]
    turns: Option<PathBuf>,
    /// Time after which a turn goes to others, between two measurements
    #[arg(long, value_name = "SECONDS", default_value_t = 180, requires = "turns")]
    turn_seconds: u64,
    /// Folder of the report; none is written without this
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Write the tables between the lab's markers in this file
    #[arg(long, value_name = "FILE", requires = "report")]
    readme: Option<PathBuf>,
}

impl Args {
    fn size(&self) -> Size {
        match (self.smoke, self.full) {
            (true, _) => Size::Smoke,
            (_, true) => Size::Full,
            _ => Size::Quick,
        }
    }

    /// The experiments that were asked for, in the order of the report.
    fn chosen(&self) -> Result<Vec<&'static Experiment>> {
        if let Some(id) = self.only.iter().find(|id| ALL.iter().all(|it| it.id != **id)) {
            let remedy = "there is none of this name: --list has them";
            return Err(LabError::failed("experiment", id, remedy));
        }
        let is_chosen =
            |it: &&Experiment| self.only.is_empty() || self.only.iter().any(|id| id == it.id);
        Ok(ALL.iter().filter(is_chosen).collect())
    }
}

/// One measurement that is to be made.
struct Task {
    experiment: &'static Experiment,
    measure: Measure,
    round: u32,
    /// How often it was made beside other programs, and put off.
    put_off: u32,
}

/// How often a measurement beside other programs is put off to the end of the run.
const PUT_OFF_MAX: u32 = 3;

/// Makes what a run still lacks, then its report.
///
/// # Errors
/// An unknown experiment; a folder of a run on another machine or commit; after all others were
/// tried, a measurement that failed.
pub(crate) fn run(args: &Args) -> Result<()> {
    let chosen = args.chosen()?;
    if args.list {
        chosen.iter().for_each(|it| println!("{:<14} {}", it.id, it.title));
        return Ok(());
    }
    let size = args.size();
    let folder = args.run.clone().unwrap_or_else(|| PathBuf::from("target/lab").join(size.word()));
    let bytes = size.of([2 << 30, 6 << 30, 12 << 30]);
    // One that was killed may still have a filesystem on the device.
    place::remove_old(&args.scratch, &args.disk);
    let device = args.device.as_ref().map(|path| device::checked(path, bytes)).transpose()?;
    let run = Run::at(&folder)?;
    let storage = match &device {
        Some(device) => format!("on {}", device.display()),
        None => format!("in {}", args.scratch.display()),
    };
    same_machine(&run, Machine::here(&storage, size.word()))?;
    let programs = Programs::beside_this()?;
    let mut place = Place::new(&args.scratch, &args.disk, programs.shoal.clone())?;
    place.device = device;
    place.size = bytes;
    let rounds = args.rounds.unwrap_or(size.rounds());
    let length = Duration::from_secs(args.turn_seconds);
    let turns = args.turns.as_deref().map(|file| Turns::of(file, length)).transpose()?;
    interrupt::defer();
    let failures = measure_all(&run, &chosen, size, rounds, &place, &programs, turns)?;
    drop(place);
    if interrupt::pending().is_some() {
        let remedy = "interrupted: the same command goes on where it was";
        return Err(LabError::failed("run", folder.display(), remedy));
    }
    if let Some(to) = &args.report {
        report::write(&run, to)?;
        if let Some(readme) = &args.readme {
            report::write_readme(&Run::at(&to.join("raw"))?, readme)?;
        }
    }
    match failures {
        0 => Ok(()),
        _ => Err(LabError::failed("run", folder.display(), format!("{failures} failed (above)"))),
    }
}

/// Notes the machine, or refuses a run that was begun on another one.
fn same_machine(run: &Run, here: Machine) -> Result<()> {
    let Some(before) = run.machine()? else {
        return run.put_machine(&here);
    };
    let of = |machine: &Machine| (machine.commit.clone(), machine.size.clone(), machine.processors);
    if before.fuse_rings != here.fuse_rings {
        let why = "FUSE over io_uring was switched on or off since the run began: switch it back, \
                   or name another folder with --run";
        return Err(LabError::failed("run", run.folder().display(), why));
    }
    if of(&before) == of(&here) && before.storage == here.storage {
        return Ok(());
    }
    let why = format!(
        "it was begun at commit {} ({}, {}), this is {} ({}, {}): name another folder with --run, \
         or remove it",
        before.commit, before.size, before.storage, here.commit, here.size, here.storage
    );
    Err(LabError::failed("run", run.folder().display(), why))
}

/// Returns how many measurements failed.
fn measure_all(
    run: &Run,
    chosen: &[&'static Experiment],
    size: Size,
    rounds: u32,
    place: &Place,
    programs: &Programs,
    mut turns: Option<Turns>,
) -> Result<usize> {
    let mut skipped = Vec::new();
    let mut tasks = Vec::new();
    for round in 0..rounds {
        for experiment in chosen.iter().filter(|it| round < it.rounds_max) {
            tasks.extend(lacking(run, experiment, size, round, place, &mut skipped)?);
        }
    }
    skipped.sort();
    skipped.dedup();
    for it in &skipped {
        eprintln!("laboratory: NOT MEASURED: {}, {}: {}", it.experiment, it.system, it.why);
    }
    run.put_skipped(&skipped)?;
    let limit = Duration::from_secs(size.of([600, 900, 1800]));
    let bar = ProgressBar::new(tasks.len() as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {eta:>5} {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let count = tasks.len();
    let (mut done, mut failures, mut beside) = (0, 0, 0);
    let (start, mut measured) = (Instant::now(), Duration::ZERO);
    let mut tasks = VecDeque::from(tasks);
    while let Some(mut task) = tasks.pop_front() {
        bar.set_message(format!("{}, {}", task.experiment.id, programs::describe(&task.measure)));
        turns.as_mut().map_or(Ok(()), Turns::take)?;
        if interrupt::pending().is_some() {
            break;
        }
        let begun = Instant::now();
        let result = programs::run(&task.measure, task.round, programs, place, limit);
        if interrupt::pending().is_some() {
            break;
        }
        measured += begun.elapsed();
        match result {
            Ok(lines) if is_beside(&lines) && size != Size::Smoke && task.put_off < PUT_OFF_MAX => {
                task.put_off += 1;
                tasks.push_back(task);
                continue;
            }
            Ok(lines) => {
                beside += usize::from(is_beside(&lines));
                run.append(task.experiment.id, &lines)?;
            }
            Err(error) => {
                failures += 1;
                bar.suspend(|| eprintln!("laboratory: {}: {error}", task.experiment.id));
            }
        }
        done += 1;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let [measured, seconds] = [measured, start.elapsed()].map(|time| time.as_secs());
    eprintln!(
        "laboratory: {done} of {count} measurements, {failures} failed, {beside} beside other \
         programs; {measured} s of measuring in {seconds} s",
    );
    Ok(failures)
}

/// Returns whether other programs used the processors during a measurement.
fn is_beside(lines: &[Line]) -> bool {
    lines.iter().any(|line| line.now.others.is_some_and(|others| others > BUSY))
}

/// Returns the measurements of a round that are not in the run, in an order that rotates from
/// round to round: no system always follows the same one.
fn lacking(
    run: &Run,
    experiment: &'static Experiment,
    size: Size,
    round: u32,
    place: &Place,
    skipped: &mut Vec<Skipped>,
) -> Result<Vec<Task>> {
    let lines = run.lines(experiment.id)?;
    let done = lines.iter().filter(|line| line.round == round).map(|line| &*line.command);
    let done: HashSet<&str> = done.collect();
    let mut measures = (experiment.measures)(size);
    measures.retain(|measure| {
        let why = place.why_not(measure.system).or_else(|| programs::why_not(measure));
        let is_left = why.is_none();
        skipped.extend(why.map(|why| Skipped {
            experiment: experiment.id.to_owned(),
            system: measure.system.name().to_owned(),
            why,
        }));
        is_left && !done.contains(&*programs::describe(measure))
    });
    let turn = round as usize % measures.len().max(1);
    measures.rotate_left(turn);
    Ok(measures
        .into_iter()
        .map(|measure| Task { experiment, measure, round, put_off: 0 })
        .collect())
}
