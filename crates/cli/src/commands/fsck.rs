//! `shoal fsck`: checks a volume that nobody uses, and repairs it with `--repair`.
//!
//! Damage that keeps the volume from being opened is a problem found, not a failure to check: exit
//! status 4. Status 8 is for errors that prevent the check.

mod auto;
mod pipe;

use std::fs::OpenOptions as LogOptions;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use shoal::raw::text::counted;
use shoal::raw::{Action, OpenOptions, Problem, RepairReport, Volume};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::FsckArgs;
use crate::commands::fsck::pipe::Pipe;
use crate::commands::info::json_recovery;
use crate::failure::{Failure, OK, Result};
use crate::json::Object;
use crate::output::Out;
use crate::progress::{Progress, eprint_line_over_bar};
use crate::rings;
use crate::size::human;
use crate::tags;
use crate::text::printable;

/// Problems were found and corrected.
pub(crate) const CORRECTED: u8 = 1;
/// Problems were found and left as they are.
pub(crate) const UNCORRECTED: u8 = 4;
/// The check could not be made.
pub(crate) const OPERATIONAL: u8 = 8;
/// Wrong usage.
pub(crate) const USAGE: u8 = 16;
/// The user has interrupted the check.
const CANCELED: u8 = 32;

/// Cache of a check, in bytes: it reads nearly everything once, in order.
const CACHE: u64 = 64 << 20;
/// Cache of a repair, in bytes: it looks up inodes in any order.
const CACHE_REPAIR: u64 = 256 << 20;
/// Default maximum of threads.
const THREADS_MAX: usize = 64;

/// Changes printed; all of them are in the log and in JSON.
const SHOWN: usize = 40;

/// Ends the process at the first SIGINT or SIGTERM, with the exit status that fsck(8) has for it.
/// A repair writes everything with one checkpoint, so it is made as a whole or not at all.
pub(crate) fn end_on_signal(volume: &Path) {
    // Otherwise the signal ends the process as any other.
    let Ok(mut signals) = Signals::new([SIGINT, SIGTERM]) else { return };
    let line = format!("{}: interrupted before the end: run it again", volume.display());
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            eprint_line_over_bar(&line);
            std::process::exit(CANCELED.into());
        }
    });
}

/// Checks a volume, and repairs it.
pub(crate) fn run(args: &FsckArgs) -> Result<u8> {
    end_on_signal(&args.volume);
    let volume = tags::resolve(&args.volume).map_err(|failure| failure.with_status(OPERATIONAL))?;
    let args = &FsckArgs { volume, repair: args.repair || args.yes, ..args.clone() };
    if args.log.is_some() && !args.repair && !args.auto {
        let reason = "there is no log without a repair: give --repair, --yes or --auto too";
        return Err(Failure::usage("fsck --log", reason).with_status(USAGE));
    }
    let options = OpenOptions {
        background: false,
        cache_bytes: if args.repair || args.auto { CACHE_REPAIR } else { CACHE },
        force: args.force,
        memory_bytes: args.memory.unwrap_or_else(available_memory),
        threads: args.threads.map_or_else(processors, usize::from),
        notice: eprint_line_over_bar,
        ..OpenOptions::default()
    };
    let mut out = Out::new();
    if args.auto {
        return auto::run(args, &options, &mut out);
    }
    let log = args.repair.then(|| args.log.clone().unwrap_or_else(|| log_beside(&args.volume)));
    let report = match &log {
        None => inspect(args, &options)?,
        Some(log) => repair(args, &options, log, &mut out)?,
    };
    if args.json {
        out.json(json(args, &report, log.as_deref()))?;
    } else {
        print(&mut out, args, &report, log.as_deref())?;
    }
    out.flush()?;
    Ok(status(&report))
}

/// Returns the number of processors that this process may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX)
}

/// Returns the machine's available memory in bytes, 0 if unknown.
fn available_memory() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse().ok());
    kib.map_or(0, |kib: u64| kib * 1024)
}

fn status(report: &RepairReport) -> u8 {
    match (report.found.is_empty(), report.written) {
        (true, _) if report.left.is_empty() => OK,
        (_, true) if report.left.is_empty() => CORRECTED,
        _ => UNCORRECTED,
    }
}

/// Shows a bar on a terminal; elsewhere a line now and then, if the work lasts.
fn progress(args: &FsckArgs) -> Shown {
    let bar = match args.json || args.progress_fd == Some(0) {
        true => Progress::share(),
        false => Progress::share_in_lines(&args.volume.display()),
    };
    Shown { bar, pipe: args.progress_fd.and_then(|fd| Pipe::open(fd, &args.volume)) }
}

/// The places where progress is shown.
struct Shown {
    bar: Progress,
    pipe: Option<Pipe>,
}

impl Shown {
    fn set(&mut self, stage: &str, done: u64, total: u64) {
        self.bar.set(stage, done, total);
        if let Some(pipe) = &mut self.pipe {
            pipe.set(stage, done, total);
        }
    }

    fn finish(&mut self) {
        self.bar.finish();
        if let Some(pipe) = &mut self.pipe {
            pipe.finish();
        }
    }
}

fn inspect(args: &FsckArgs, options: &OpenOptions) -> Result<RepairReport> {
    let mut progress = progress(args);
    let mut show = |stage: &str, done, total| progress.set(stage, done, total);
    let report = Volume::inspect(&args.volume, options, &mut show);
    progress.finish();
    report.map_err(|e| failed(&args.volume, &e))
}

fn failed(volume: &Path, error: &shoal::raw::Error) -> Failure {
    Failure::volume(volume.display(), error).with_status(OPERATIONAL)
}

fn repair(
    args: &FsckArgs,
    options: &OpenOptions,
    log: &Path,
    out: &mut Out,
) -> Result<RepairReport> {
    if !args.yes && !std::io::stdin().is_terminal() {
        let reason = "cannot ask before it writes: give --yes, or run it on a terminal";
        return Err(Failure::usage("fsck --repair", reason).with_status(USAGE));
    }
    rings::refuse_unread(&args.volume).map_err(|failure| failure.with_status(OPERATIONAL))?;
    let shown = Mutex::new(progress(args));
    let progress = || shown.lock().unwrap_or_else(PoisonError::into_inner);
    let mut show = |stage: &str, done, total| progress().set(stage, done, total);
    let mut stopped = None;
    let mut ask = |report: &RepairReport| {
        progress().finish();
        let agreed = agree(args, report, log, out);
        agreed.unwrap_or_else(|failure| {
            stopped = Some(failure);
            false
        })
    };
    let report = Volume::repair(&args.volume, options, &mut show, &mut ask);
    progress().finish();
    stopped.map_or(Ok(()), Err)?;
    let report = report.map_err(|e| failed(&args.volume, &e))?;
    end_log(args, &report, log)?;
    Ok(report)
}

/// Writes the result of a repair to the log.
fn end_log(args: &FsckArgs, report: &RepairReport, log: &Path) -> Result<()> {
    let left = report.left.iter().map(|p| format!("left: {}: {}", p.rule, p.message));
    if report.written {
        append(log, std::iter::once("written".to_owned()).chain(left))?;
    } else if !report.left.is_empty() {
        let head = [head(args), "nothing to repair".to_owned()];
        append(log, head.into_iter().chain(left))?;
    }
    Ok(())
}

/// Returns the first line of a repair in the log.
fn head(args: &FsckArgs) -> String {
    let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    format!("repair of {} at {} s", args.volume.display(), seconds.as_secs())
}

/// Shows the planned changes and asks; approved ones are in the log before they are made.
fn agree(args: &FsckArgs, report: &RepairReport, log: &Path, out: &mut Out) -> Result<bool> {
    if !args.yes {
        problems(out, &report.found)?;
        actions(out, &report.actions, Some(log), SHOWN)?;
        out.flush()?;
        let mut terminal = std::io::stderr().lock();
        let question = format!("{}: write these changes? [y/N] ", args.volume.display());
        terminal.write_all(question.as_bytes()).and_then(|()| terminal.flush()).ok();
        let mut answer = String::new();
        std::io::stdin()
            .read_line(&mut answer)
            .map_err(|e| Failure::failed("standard input", e).with_status(OPERATIONAL))?;
        if !matches!(answer.trim(), "y" | "Y" | "yes") {
            return Ok(false);
        }
    }
    agree_in_log(args, report, log)?;
    Ok(true)
}

/// Writes the approved changes to the log.
fn agree_in_log(args: &FsckArgs, report: &RepairReport, log: &Path) -> Result<()> {
    let found = report.found.iter().map(|p| format!("found: {}: {}", p.rule, p.message));
    let done = report.actions.iter().map(|a| format!("{}: {}", a.pass, a.message));
    append(log, std::iter::once(head(args)).chain(found).chain(done))
}

/// Adds lines to the log.
fn append(log: &Path, lines: impl Iterator<Item = String>) -> Result<()> {
    let mut text = Vec::new();
    for line in lines {
        text.extend_from_slice(printable(line.as_bytes()).to_string().as_bytes());
        text.push(b'\n');
    }
    // It contains names from the volume.
    let file = LogOptions::new().create(true).append(true).mode(0o600).open(log);
    file.and_then(|mut file| file.write_all(&text).and_then(|()| file.sync_all())).map_err(|e| {
        let reason = format!("the log cannot be written: {e} (choose another place with --log)");
        Failure::failed(log.display(), reason).with_status(OPERATIONAL)
    })
}

/// Returns the default path of the log: beside a volume in a file; for a device in the current
/// directory.
fn log_beside(volume: &Path) -> PathBuf {
    let is_file = std::fs::metadata(volume).is_ok_and(|m| m.is_file());
    let place = if is_file { volume.as_os_str() } else { volume.file_name().unwrap_or_default() };
    let mut name = place.to_owned();
    name.push(".fsck.log");
    PathBuf::from(name)
}

fn problems(out: &mut Out, problems: &[Problem]) -> Result<()> {
    for Problem { rule, message } in problems {
        // A message may quote names from the volume.
        out.line(&format!("{rule}: {}", printable(message.as_bytes())))?;
    }
    Ok(())
}

/// Prints the first changes, `most` at most.
fn actions(out: &mut Out, actions: &[Action], log: Option<&Path>, most: usize) -> Result<()> {
    for Action { pass, message, .. } in actions.iter().take(most) {
        out.line(&format!("  {pass}: {}", printable(message.as_bytes())))?;
    }
    match (actions.len().saturating_sub(most), log) {
        (0, _) => Ok(()),
        (more, Some(log)) => out.line(&format!("  and {more} more, for {}", log.display())),
        (more, None) => out.line(&format!("  and {more} more")),
    }
}

fn print(out: &mut Out, args: &FsckArgs, report: &RepairReport, log: Option<&Path>) -> Result<()> {
    let path = args.volume.display();
    let asked = args.repair && !args.yes && !report.actions.is_empty();
    if !asked {
        problems(out, &report.found)?;
    }
    if let Some(log) = log.filter(|_| report.written) {
        let made = report.actions.len();
        if args.yes {
            actions(out, &report.actions, Some(log), SHOWN)?;
        }
        out.line(&format!("{path}: {}, see {}", counted(made, "change"), log.display()))?;
    }
    if report.written && !report.left.is_empty() {
        out.line(&format!("{path}: problems that could not be repaired:"))?;
        problems(out, &report.left)?;
    }
    let recovery = &report.recovery;
    if recovery.needed && !report.written {
        out.line(&format!(
            "{path}: was not closed; checked with the {} of its journal replayed in memory",
            counted(recovery.records, "record")
        ))?;
    }
    let count = |n: usize| counted(n, "problem");
    let verdict = match (report.found.len(), report.left.len(), report.written) {
        (0, 0, _) => "clean".to_owned(),
        (n, 0, true) => format!("{} repaired", count(n)),
        (_, left, true) => format!("{} left", count(left)),
        (_, 0, false) => format!("{}, left uncorrected", count(report.found.len())),
        (_, left, false) => {
            format!("nothing to repair; {} with contents: restore the files named", count(left))
        }
    };
    let checked = &report.checked;
    out.line(&format!(
        "{path}: {verdict}; checked {}, {}, {}, {}, {}, {} of file data",
        counted(checked.inodes, "inode"),
        counted(checked.directories, "directory"),
        counted(checked.dirents, "entry"),
        counted(checked.extents, "extent"),
        counted(checked.blocks, "block"),
        human(checked.data_bytes)
    ))?;
    if let Some(why) = &report.unmended {
        out.line(&format!("{path}: the changes of a repair are not known: {why} (see --memory)"))?;
    }
    if !report.written && !args.repair && !report.actions.is_empty() {
        let made = report.actions.len();
        out.line(&format!("{path}: fsck --repair would make {}:", counted(made, "change")))?;
        actions(out, &report.actions, None, SHOWN)?;
    }
    Ok(())
}

fn json(args: &FsckArgs, report: &RepairReport, log: Option<&Path>) -> Object {
    let problems = |problems: &[Problem]| {
        let object = |p: &Problem| Object::new().put("rule", p.rule).put("message", &p.message);
        problems.iter().map(object).collect::<Vec<_>>().into_iter()
    };
    let action = |a: &Action| Object::new().put("pass", a.pass).put("message", &a.message);
    let checked = &report.checked;
    let object = Object::new()
        .put_name("volume", args.volume.as_os_str().as_encoded_bytes())
        .put("clean", report.found.is_empty() && report.left.is_empty())
        .put_list("problems", problems(&report.found))
        .put("inodes", checked.inodes)
        .put("directories", checked.directories)
        .put("dirents", checked.dirents)
        .put("extents", checked.extents)
        .put("blocks", checked.blocks)
        .put("data_bytes", checked.data_bytes)
        .put_object("recovery", json_recovery(&report.recovery));
    let Some(log) = log else { return object };
    let repair = Object::new()
        .put("written", report.written)
        .put_list("actions", report.actions.iter().map(action))
        .put_list("left", problems(&report.left))
        .put("inodes", report.inodes)
        .put("seconds", report.seconds)
        .put_name("log", log.as_os_str().as_encoded_bytes());
    object.put_object("repair", repair)
}
