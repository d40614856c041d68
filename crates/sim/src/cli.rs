//! The command: runs seeds, prints how fast, and for a failing one the seed, a shortened list of
//! operations, and the command that does it again.

mod crew;

use crate::runner::{Failure, Report, Settings, run_profile, run_short_of_memory};
use crate::shrink::shrink;
use crate::workload::{Profile, Workload, profile_named};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a failing run is shortened.
const PATIENCE: Duration = Duration::from_secs(60);
/// A single run that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(300);

/// What to run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arguments {
    /// First seed.
    pub seed: u64,
    /// Number of seeds.
    pub seeds: u64,
    /// Operations of each run.
    pub ops: usize,
    /// Stop after this many seconds, whatever `seeds` says; 0: never.
    pub seconds: u64,
    /// Processes that share the seeds; 0: one for each processor.
    pub threads: u64,
    /// A process of several: every how-manieth seed is its own, and it reports to the first.
    pub every: u64,
    /// What all runs are about; none: each seed draws.
    pub profile: Option<Profile>,
}

const USAGE: &str = "usage: shoal-sim [--seed N] [--seeds COUNT] [--ops M] [--seconds S] \
                     [--threads T] [--profile NAME]";

/// Reads the command line.
pub fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let (seed, seeds, ops, seconds, threads, every, profile) = (0, 1, 1000, 0, 0, 0, None);
    let mut arguments = Arguments { seed, seeds, ops, seconds, threads, every, profile };
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word}: value missing\n{USAGE}"))?;
        if word == "--profile" {
            let found = profile_named(&value);
            let unknown = || format!("--profile {value}: no profile is called that\n{USAGE}");
            arguments.profile = Some(found.ok_or_else(unknown)?);
            continue;
        }
        let number = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => value.parse(),
        };
        let number = number.map_err(|_| format!("{word} {value}: not a number\n{USAGE}"))?;
        match word.as_str() {
            "--seed" => arguments.seed = number,
            "--seeds" => arguments.seeds = number,
            "--ops" => arguments.ops = number as usize,
            "--threads" => arguments.threads = number,
            "--every" => arguments.every = number,
            "--seconds" => (arguments.seconds, arguments.seeds) = (number, u64::MAX),
            _ => return Err(format!("{word}: unknown\n{USAGE}")),
        }
    }
    Ok(arguments)
}

/// Runs seeds `seed`, `seed + 1`, and so on; stops at the first that fails. Returns whether all was
/// well.
pub fn cli(arguments: Arguments) -> bool {
    let processors = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let workers = match arguments.threads {
        0 => processors,
        n => n,
    };
    match arguments.every {
        0 if workers.min(arguments.seeds) > 1 => crew::lead(arguments, workers),
        every => work(arguments, every.max(1), every == 0),
    }
}

/// One process's share: every `every`-th seed. It prints for people, or for who leads.
fn work(arguments: Arguments, every: u64, people: bool) -> bool {
    let Arguments { seed, seeds, ops, seconds, profile, .. } = arguments;
    let start = Instant::now();
    let current = Arc::new(AtomicU64::new(seed));
    watch(Arc::clone(&current), ops);
    let (mut total, mut runs) = (Report::default(), 0);
    for seed in (0..seeds).step_by(every as usize).map(|i| seed.wrapping_add(i)) {
        if seconds > 0 && start.elapsed().as_secs() >= seconds {
            break;
        }
        current.store(seed, Ordering::Relaxed);
        let ran = match &profile {
            Some(profile) => run_profile(seed, profile, ops),
            None => run_short_of_memory(seed, ops),
        };
        match ran {
            Ok(report) if people => total += report,
            Ok(report) => crew::tell(&report),
            Err(failure) => {
                report_failure(seed, &arguments, failure);
                return false;
            }
        }
        runs += 1;
        if people && runs % 100 == 0 {
            print_progress(runs, start, &total);
        }
    }
    if people {
        print_progress(runs, start, &total);
    }
    true
}

fn print_progress(runs: u64, start: Instant, total: &Report) {
    let seconds = start.elapsed().as_secs_f64();
    let Report { steps, skipped, refused, unserved, crashes, images, intents, device_ops } = total;
    println!(
        "{runs} seeds in {seconds:.1} s ({:.1} runs/s): {steps} operations ({skipped} skipped, \
         {refused} without space, {unserved} without memory), {crashes} crashes, {images} crash \
         images, {intents} intents completed, {device_ops} device operations, 0 violations",
        runs as f64 / seconds
    );
}

fn report_failure(seed: u64, arguments: &Arguments, failure: Failure) {
    let Arguments { ops, profile, .. } = arguments;
    let drawn = Workload::new(seed).profile();
    let name = profile.unwrap_or(drawn).name;
    println!("seed {seed} ({name}) fails at operation {}:", failure.ops.len());
    println!("{}", failure.message);
    println!("shortening...");
    let mut settings = match profile {
        Some(profile) => Settings::of_profile(seed, profile),
        None => Settings::of_seed(seed),
    };
    let length = failure.ops.len();
    let short = shrink(&settings, failure, PATIENCE);
    settings.explain = true;
    let explained = crate::runner::run_list(&settings, &short.ops).err().unwrap_or(short);
    println!("shortened from {length} to {} operations:\n{explained}", explained.ops.len());
    let profile = profile.map(|p| format!(" --profile {}", p.name)).unwrap_or_default();
    println!("replay: cargo xtask sim --seed {seed} --ops {ops}{profile}");
}

/// Aborts when one seed takes too long: a hang is a failure too, and nobody else would tell which.
fn watch(current: Arc<AtomicU64>, ops: usize) {
    std::thread::spawn(move || {
        let mut seen = (current.load(Ordering::Relaxed), Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let seed = current.load(Ordering::Relaxed);
            if seed != seen.0 {
                seen = (seed, Instant::now());
            } else if seen.1.elapsed() > HANG {
                println!("seed {seed} hangs\nreplay: cargo xtask sim --seed {seed} --ops {ops}");
                std::process::abort();
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_read() {
        let words = |text: &str| parse(text.split_whitespace().map(str::to_string));
        let (seeds, seconds, every, profile) = (1, 0, 0, None);
        let seven = Arguments { seed: 7, seeds, ops: 50, seconds, threads: 2, every, profile };
        assert_eq!(words("--seed 0x7 --ops 50 --threads 2"), Ok(seven));
        assert!(words("--seed").unwrap_err().contains("missing"));
        assert!(words("--speed 3").unwrap_err().contains("unknown"));
        assert!(words("--seed x").unwrap_err().contains("not a number"));
        assert!(words("--profile x").unwrap_err().contains("no profile"));
        let chosen = words("--profile adversary").unwrap().profile;
        assert_eq!(chosen.map(|p| p.name), Some("adversary"));
    }
}
