//! The command: runs seeds, prints how fast, and for a failing one the seed, a shortened list of
//! operations, and the command that does it again.

mod crew;

use crate::runner::{Failure, Report, Settings, run_by_session, run_profile, run_short_of_memory};
use crate::seeds::Seeds;
use crate::shrink::shrink;
use crate::workload::{Profile, Workload, profile_named};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a failing run is shortened.
const PATIENCE: Duration = Duration::from_secs(60);
/// A single run that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(300);

/// Options of the simulation.
#[derive(clap::Args, Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arguments {
    /// Seeds, one by default
    #[command(flatten)]
    pub seeds: Seeds,
    /// Operations of each run
    #[arg(long, value_name = "M", default_value_t = 1000)]
    pub ops: usize,
    /// Processes that share the seeds; 0: one for each processor
    #[arg(long, value_name = "T", default_value_t = 0)]
    pub threads: u64,
    /// A process of several: of how many seeds one is its own, which it reports to the first
    #[arg(long, default_value_t = 0, hide = true)]
    pub every: u64,
    /// Profile of all runs; without it each seed draws
    #[arg(long, value_name = "NAME", value_parser = profile)]
    pub profile: Option<Profile>,
    /// By sessions, all calls that they have
    #[arg(long)]
    pub sessions: bool,
}

impl Arguments {
    /// Number of seeds.
    fn count(&self) -> u64 {
        self.seeds.count(1)
    }
}

fn profile(name: &str) -> Result<Profile, String> {
    profile_named(name).ok_or_else(|| "no profile is called that".into())
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
        0 if workers.min(arguments.count()) > 1 => crew::lead(arguments, workers),
        every => work(arguments, every.max(1), every == 0),
    }
}

/// One process's share: every `every`-th seed. It prints for people, or for who leads.
fn work(arguments: Arguments, every: u64, people: bool) -> bool {
    let Arguments { seeds: Seeds { seed, .. }, ops, profile, .. } = arguments;
    let start = Instant::now();
    let current = Arc::new(AtomicU64::new(seed));
    watch(Arc::clone(&current), ops);
    let (mut total, mut runs) = (Report::default(), 0);
    let shares = (0..arguments.count()).step_by(every as usize);
    for seed in shares.map(|i| seed.wrapping_add(i)) {
        if arguments.seeds.is_over(start) {
            break;
        }
        current.store(seed, Ordering::Relaxed);
        let ran = match &profile {
            profile if arguments.sessions => run_by_session(seed, profile.as_ref(), ops),
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
    let Report { steps, skipped, refused, unserved, crashes, images, intents, device_ops, .. } =
        total;
    let by_session = match total.by_session {
        0 => String::new(),
        calls => format!(", {calls} by a session"),
    };
    println!(
        "{runs} seeds in {seconds:.1} s ({:.1} runs/s): {steps} operations ({skipped} skipped, \
         {refused} without space, {unserved} without memory{by_session}), {crashes} crashes, \
         {images} crash images, {intents} intents completed, {device_ops} device operations, 0 \
         violations",
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
    settings.sessions = arguments.sessions;
    let length = failure.ops.len();
    let short = shrink(&settings, failure, PATIENCE);
    settings.explain = true;
    let explained = crate::runner::run_list(&settings, &short.ops).err().unwrap_or(short);
    println!("shortened from {length} to {} operations:\n{explained}", explained.ops.len());
    let profile = profile.map(|p| format!(" --profile {}", p.name)).unwrap_or_default();
    let sessions = if arguments.sessions { " --sessions" } else { "" };
    println!("replay: cargo xtask sim --seed {seed} --ops {ops}{profile}{sessions}");
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
