//! All sequences, by several threads: each takes a first step with all that follows it, or a piece
//! of the sample, at a time.

use super::actions::{Action, all};
use super::explore::{Counts, Points, Violation, explore};
use super::plan::{Longer, Prefix};
use super::sequence::Sequence;
use super::start::Start;
use crate::rng::Rng;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// Violations after which a run gives up: many have one cause.
const ENOUGH: usize = 10;
/// A single sequence that takes longer than this hangs.
const HANG: Duration = Duration::from_secs(120);
/// Sampled sequences of one task.
const PIECE: u64 = 100;

/// Extent of a run.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Longest sequences, of which all are run.
    pub length: usize,
    /// Of the sequences of two only every so-manieth: for quick tests.
    pub every: usize,
    /// Sequences of three, chosen by lot.
    pub sample: u64,
    /// Chooses them.
    pub seed: u64,
    /// Stop after so long.
    pub limit: Option<Duration>,
    /// Threads.
    pub threads: usize,
}

/// Result of a run.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// By length of the sequences, from 1.
    pub counts: [Counts; 3],
    /// Violations, at most a few.
    pub violations: Vec<Violation>,
    /// Set if all that was wanted has been done.
    pub complete: bool,
    /// How long it took.
    pub elapsed: Duration,
}

impl Found {
    /// All lengths together.
    pub fn total(&self) -> Counts {
        let mut total = Counts::default();
        self.counts.iter().for_each(|counts| total += *counts);
        total
    }

    /// Adds what another run found.
    pub fn add(&mut self, other: Found) {
        for (counts, more) in self.counts.iter_mut().zip(other.counts) {
            *counts += more;
        }
        self.violations.extend(other.violations);
        self.complete &= other.complete;
        self.elapsed += other.elapsed;
    }
}

enum Task {
    First(Prefix),
    Sample { from: u64, to: u64 },
}

struct Work<'a> {
    start: &'a Start,
    wanted: &'a Wanted,
    actions: Vec<Action>,
    tasks: Vec<Task>,
    next: AtomicUsize,
    finished: AtomicUsize,
    stop: AtomicBool,
    began: Instant,
    found: Mutex<Found>,
    /// Sequence under way in each thread, and since when.
    current: Mutex<HashMap<ThreadId, (Sequence, Instant)>>,
}

/// Runs all that is wanted; `progress` is told now and then how far it is, in percent.
pub fn run(start: &Start, wanted: &Wanted, progress: &dyn Fn(&Found, u64)) -> Found {
    let actions = all();
    let mut work = Work {
        start,
        wanted,
        actions,
        tasks: Vec::new(),
        next: AtomicUsize::new(0),
        finished: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        began: Instant::now(),
        found: Mutex::default(),
        current: Mutex::default(),
    };
    work.plan();
    std::thread::scope(|scope| {
        for _ in 0..wanted.threads.max(1) {
            scope.spawn(|| work.take_tasks());
        }
        let mut told = Instant::now();
        while work.finished.load(Ordering::Relaxed) < wanted.threads.max(1) {
            std::thread::sleep(Duration::from_millis(20));
            if told.elapsed() > Duration::from_secs(20) {
                told = Instant::now();
                work.watch();
                let begun = work.next.load(Ordering::Relaxed).min(work.tasks.len());
                let found = Found { elapsed: work.began.elapsed(), ..work.found.lock().clone() };
                progress(&found, 100 * begun as u64 / work.tasks.len().max(1) as u64);
            }
        }
    });
    let mut found = work.found.into_inner();
    found.complete = !work.stop.load(Ordering::Relaxed);
    found.elapsed = work.began.elapsed();
    found
}

impl Work<'_> {
    fn plan(&mut self) {
        let mut tasks = Vec::new();
        let empty = Prefix::empty(self.start);
        empty.longer(&self.actions, &mut |longer| {
            if self.wanted.length == 0 {
                return false;
            }
            match longer {
                Longer::Succeeds(first) => tasks.push(Task::First(first)),
                Longer::Fails(number) => {
                    self.note(1, empty.agree_on_failure(self.start, &self.actions, number));
                }
            }
            true
        });
        let samples = (0..self.wanted.sample).step_by(PIECE as usize);
        tasks.extend(
            samples.map(|from| Task::Sample { from, to: (from + PIECE).min(self.wanted.sample) }),
        );
        self.tasks = tasks;
    }

    fn take_tasks(&self) {
        while let Some(task) = self.tasks.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            match task {
                Task::First(first) => self.first(first),
                Task::Sample { from, to } => (*from..*to).for_each(|i| self.sample(i)),
            }
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        self.finished.fetch_add(1, Ordering::Relaxed);
    }

    fn first(&self, first: &Prefix) {
        self.note(1, self.explore(&first.sequence));
        if self.wanted.length < 2 {
            return;
        }
        let mut number = 0;
        first.longer(&self.actions, &mut |longer| {
            number += 1;
            if number % self.wanted.every.max(1) != 0 {
                return true;
            }
            let explored = match longer {
                Longer::Succeeds(next) => self.explore(&next.sequence),
                Longer::Fails(action) => first.agree_on_failure(self.start, &self.actions, action),
            };
            self.note(2, explored)
        });
    }

    fn sample(&self, number: u64) {
        let mut rng = Rng::new(self.wanted.seed).fork(number);
        let empty = Prefix::empty(self.start);
        while !self.stop.load(Ordering::Relaxed) {
            let explored = match empty.by_lot(&self.actions, 3, &mut rng) {
                None => Ok(Counts { failing: 1, ..Counts::default() }),
                Some(chosen) => self.explore(&chosen.sequence),
            };
            let chosen = explored.as_ref().map_or(true, |counts| counts.sequences > 0);
            self.note(3, explored);
            if chosen {
                return;
            }
        }
    }

    fn explore(&self, sequence: &Sequence) -> Result<Counts, Violation> {
        let thread = std::thread::current().id();
        self.current.lock().insert(thread, (sequence.clone(), Instant::now()));
        let explored = explore(self.start, &self.actions, sequence, Points::New);
        self.current.lock().remove(&thread);
        explored
    }

    /// Aborts when a sequence hangs: that is a failure too, and nobody else would tell which.
    fn watch(&self) {
        let current = self.current.lock();
        if let Some((sequence, _)) = current.values().find(|(_, since)| since.elapsed() > HANG) {
            println!("sequence {sequence} hangs:\n{}", sequence.program());
            std::process::abort();
        }
    }

    /// Adds up; says whether to go on.
    fn note(&self, length: usize, explored: Result<Counts, Violation>) -> bool {
        let mut found = self.found.lock();
        match explored {
            Ok(counts) => found.counts[length - 1] += counts,
            Err(violation) => found.violations.push(violation),
        }
        let late = self.wanted.limit.is_some_and(|limit| self.began.elapsed() >= limit);
        if late || found.violations.len() >= ENOUGH {
            self.stop.store(true, Ordering::Relaxed);
        }
        !self.stop.load(Ordering::Relaxed)
    }
}
