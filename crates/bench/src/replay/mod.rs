//! `replay`: the operations of a trace again, on a directory or by the library on a volume.
//!
//! A trace has what reached the server of a mount, not what the kernel answered from its caches. So
//! a replay on a mount asks the kernel for each of them, and reaches the server with as many as its
//! caches let through.
//!
//! | step | where |
//! | --- | --- |
//! | the file | `record.rs` |
//! | what must be there before, and what comes after what | `plan.rs` |
//! | directories on the way, opened once | `walk.rs` |
//! | the calls themselves | `syscalls.rs`, `library.rs`; changes of attributes: `set.rs` |

mod library;
mod plan;
pub mod record;
mod set;
mod syscalls;
mod walk;

use crate::args::{Args, Target};
use crate::error::{BenchError, Result};
use crate::library::VolumeTarget;
use crate::meter::{Measured, Meter};
use crate::report::{Report, Results};
use crate::resources;
use crate::syscalls::DirectoryTarget;
use plan::{Kind, Plan, Step, split};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};
use walk::{Epoch, Walker};

/// Operations that ended otherwise, of which a line is printed.
const SHOWN_MAX: usize = 10;
/// Turns of waiting before the thread sleeps.
const SPINS: u32 = 200;

/// Result of a call: its errno if it failed.
type Called<T = ()> = std::result::Result<T, i32>;

/// The calls that a replay makes. `Dir` is an open directory.
trait Calls {
    type Dir: Clone;

    /// The top.
    fn top(&self) -> Self::Dir;
    /// Opens a directory in another one. No symlink is followed.
    fn enter(&self, dir: &Self::Dir, name: &[u8]) -> Called<Self::Dir>;
    /// Makes what must be there before.
    fn make(&mut self, dir: &Self::Dir, name: &[u8], kind: Kind, size: u64) -> Called;
    /// Plays an operation. An empty name is the directory itself. `None`: there is no such call.
    fn play(&mut self, step: &Step, at: Place<'_, Self>, to: Place<'_, Self>) -> Option<Called>;
}

/// A name in an open directory.
struct Place<'a, C: Calls + ?Sized> {
    dir: C::Dir,
    name: &'a [u8],
}

/// Result of a replay, beside its times.
#[derive(Default)]
struct Outcome {
    /// Operations without a call.
    skipped: AtomicU64,
    /// Operations that ended otherwise than in the trace.
    differences: AtomicU64,
    /// Some of them.
    shown: Mutex<Vec<String>>,
    /// The longest time that an operation began too late, in nanoseconds.
    late_ns: AtomicU64,
}

/// Replays a trace.
pub(crate) fn run(args: &Args, target: &Target, report: &mut Report<'_>) -> Result<()> {
    let file = args.trace.as_deref().ok_or_else(|| BenchError::new("replay needs a --trace"))?;
    let trace = record::read(file)?;
    let is_cut_off = trace.tail.is_none();
    let plan = Plan { is_cut_off, ..Plan::of(trace) };
    if is_cut_off {
        let text = "its end is missing, so it was cut off; replaying what is there";
        report.note(&format!("{}: {text}", file.display()))?;
    }
    match target {
        Target::Session(_) => Err(BenchError::new("replay takes no session: target")),
        Target::Directory(path) => {
            let target = DirectoryTarget::prepare(args, path)?;
            replay(args, &plan, || syscalls::Player::new(target.base()), report)?;
            target.finish()
        }
        Target::Volume(path) => {
            let target = VolumeTarget::prepare(args, path)?;
            replay(args, &plan, || library::Player::new(target.shared()), report)?;
            target.finish()
        }
    }
}

fn replay<C: Calls + Send>(
    args: &Args,
    plan: &Plan,
    player: impl Fn() -> C,
    report: &mut Report<'_>,
) -> Result<()> {
    prepare(plan, player())?;
    let outcome = Outcome::default();
    let measured = play(args, plan, &player, &outcome);
    let mut results = Results::new(measured);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    results.extra = vec![
        ("cut_off", f64::from(u8::from(plan.is_cut_off))),
        ("concurrent", plan.threads.len() as f64),
        ("made_before", plan.before.len() as f64),
        ("left_out", (plan.left_out + count(&outcome.skipped)) as f64),
        ("differences", count(&outcome.differences) as f64),
        ("latest_seconds", count(&outcome.late_ns) as f64 / 1e9),
    ];
    for line in &*outcome.shown.lock().unwrap_or_else(PoisonError::into_inner) {
        report.note(line)?;
    }
    report.whole(&results)
}

/// Makes what must be there before.
fn prepare<C: Calls>(plan: &Plan, mut player: C) -> Result<()> {
    let epoch = Epoch::default();
    let mut walker = Walker::new(player.top(), &epoch);
    for it in &plan.before {
        let (dir, name) = split(&it.path);
        let made =
            walker.enter(&player, dir).and_then(|dir| player.make(&dir, name, it.kind, it.size));
        made.map_err(|errno| {
            let why = std::io::Error::from_raw_os_error(errno);
            BenchError::failed("making", String::from_utf8_lossy(&it.path), why)
        })?;
    }
    Ok(())
}

/// The operations that have ended, in the order in which they ended in the trace.
struct Ended {
    each: Vec<AtomicBool>,
    /// All before it have.
    up_to: AtomicUsize,
}

impl Ended {
    fn new(steps: usize) -> Ended {
        let each = (0..steps).map(|_| AtomicBool::new(false)).collect();
        Ended { each, up_to: AtomicUsize::new(0) }
    }

    fn end(&self, place: usize) {
        self.each[place].store(true, Ordering::Release);
        self.advance();
    }

    /// Counts those that have ended in a row. Any thread may, so none has to be waited for.
    fn advance(&self) -> usize {
        loop {
            let at = self.up_to.load(Ordering::Acquire);
            let Some(true) = self.each.get(at).map(|it| it.load(Ordering::Acquire)) else {
                return at;
            };
            let _ = self.up_to.compare_exchange(at, at + 1, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn wait_for(&self, count: usize) {
        let mut spins = 0;
        while self.advance() < count {
            spins += 1;
            match spins < SPINS {
                true => std::thread::yield_now(),
                false => std::thread::sleep(Duration::from_micros(50)),
            }
        }
    }
}

fn play<C: Calls + Send>(
    args: &Args,
    plan: &Plan,
    player: &impl Fn() -> C,
    outcome: &Outcome,
) -> Measured {
    let players: Vec<C> = plan.threads.iter().map(|_| player()).collect();
    let (go, ended, epoch) =
        (Barrier::new(players.len() + 1), Ended::new(plan.steps), Epoch::default());
    let started = std::sync::OnceLock::new();
    std::thread::scope(|scope| {
        let mut running = Vec::new();
        for (mut player, steps) in players.into_iter().zip(&plan.threads) {
            let (go, ended, epoch, started) = (&go, &ended, &epoch, &started);
            running.push(scope.spawn(move || {
                let mut walker = Walker::new(player.top(), epoch);
                let mut meter = Meter::new(args.sample);
                go.wait();
                let begun: Instant = *started.get_or_init(Instant::now);
                for step in steps {
                    ended.wait_for(step.after);
                    if args.paced {
                        outcome.keep_pace(begun, step);
                    }
                    let played = meter.op(|| Ok(one(&mut player, &mut walker, step)));
                    ended.end(step.ended);
                    outcome.compare(step, played.unwrap_or(None));
                }
                meter
            }));
        }
        let cpu = resources::cpu_seconds();
        go.wait();
        let start: Instant = *started.get_or_init(Instant::now);
        let meters: Vec<Meter> = running
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|p| std::panic::resume_unwind(p)))
            .collect();
        Measured::of_phase(&meters, start, Instant::now(), resources::cpu_seconds() - cpu)
    })
}

/// Plays an operation; `None`: there is no such call.
fn one<C: Calls>(player: &mut C, walker: &mut Walker<'_, C>, step: &Step) -> Option<Called> {
    let (dir, name) = split(&step.path);
    let (to_dir, to_name) = split(&step.to);
    let dirs = walker.enter(player, dir).and_then(|dir| Ok((dir, walker.enter(player, to_dir)?)));
    let (dir, to_dir) = match dirs {
        Ok(dirs) => dirs,
        Err(errno) => return Some(Err(errno)),
    };
    let to = Place { dir: to_dir, name: to_name };
    let played = player.play(step, Place { dir, name }, to);
    if matches!(&*step.op, "rename" | "rename2" | "rmdir") {
        walker.moved();
    }
    played
}

impl Outcome {
    fn keep_pace(&self, begun: Instant, step: &Step) {
        let due = begun + Duration::from_nanos(step.begun_ns);
        match due.checked_duration_since(Instant::now()) {
            Some(early) => std::thread::sleep(early),
            None => {
                let late = due.elapsed().as_nanos() as u64;
                self.late_ns.fetch_max(late, Ordering::Relaxed);
            }
        }
    }

    fn compare(&self, step: &Step, played: Option<Called>) {
        let Some(played) = played else {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            return;
        };
        let errno = played.err().unwrap_or(0);
        if errno == step.errno {
            return;
        }
        self.differences.fetch_add(1, Ordering::Relaxed);
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if shown.len() < SHOWN_MAX {
            let name = |errno| match errno {
                0 => "done".to_owned(),
                errno => std::io::Error::from_raw_os_error(errno).to_string(),
            };
            let path = String::from_utf8_lossy(&step.path).escape_debug().to_string();
            let (was, is) = (name(step.errno), name(errno));
            shown.push(format!("{} {path}: {is}; in the trace: {was}", step.op));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_counted_in_a_row_by_any_thread() {
        let ended = Ended::new(1000);
        ended.end(1);
        assert_eq!(ended.advance(), 0);
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let ended = &ended;
                scope.spawn(move || {
                    for at in (thread..1000).step_by(4) {
                        ended.wait_for(at.saturating_sub(10));
                        ended.end(at);
                    }
                });
            }
            ended.wait_for(1000);
        });
        assert_eq!(ended.advance(), 1000);
    }
}
