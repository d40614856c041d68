//! `inode-index`: how fast an inode is found by its number, with the XArray and with what else
//! could do it. No files and no volume.
//!
//! Modules, bottom-up: `structures` are what is compared, `figures` how it is timed and printed.
//!
//! Each structure is filled with dense numbers, each thread its own part in ascending order, as
//! inode numbers are given out. Then every thread looks up random ones.

mod figures;
mod structures;

use crate::args::Args;
use crate::error::{BenchError, Result};
use crate::resources::thread_cpu_seconds;
use figures::{Figures, Pass, Times, clock_ns};
use intrusive_collections::RBTree;
use parking_lot::RwLock;
use shoal_xarray::{Value, XArray};
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use structures::{Index, RbAdapter, Sharded, value_of};

/// Calls after which a thread lets go of what it may have kept from being freed.
const READER_CALLS: u64 = 1024;

/// Runs all structures one after another.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> Result<()> {
    let mut bench =
        Bench { json: args.json, threads: args.threads, entries: args.entries, clock_ns: 0, out };
    bench.clock_ns = clock_ns();
    bench.structure::<XArray<Value>>()?;
    bench.structure::<RwLock<RBTree<RbAdapter>>>()?;
    bench.structure::<RwLock<BTreeMap<u64, u64>>>()?;
    bench.structure::<Sharded>()
}

struct Bench<'a> {
    json: bool,
    threads: usize,
    entries: u64,
    clock_ns: u64,
    out: &'a mut dyn Write,
}

/// Runner of a thread's operations: untimed, or with a clock.
trait Clock: Send {
    fn run<R>(&mut self, work: impl FnOnce() -> R) -> R;
}

/// No clock.
struct Untimed;

impl Clock for Untimed {
    #[inline]
    fn run<R>(&mut self, work: impl FnOnce() -> R) -> R {
        work()
    }
}

impl Clock for Times {
    #[inline]
    fn run<R>(&mut self, work: impl FnOnce() -> R) -> R {
        self.time(work)
    }
}

impl Bench<'_> {
    fn structure<I: Index>(&mut self) -> Result<()> {
        let pass = self.fill(&I::new(), || Untimed, insert_once).0;
        let (_, times) = self.fill(&I::new(), || Times::new(self.clock_ns), insert_once);
        self.report::<I>("insert-once", pass, &times, None)?;

        let pass = self.fill(&I::new(), || Untimed, insert_with).0;
        let index = I::new();
        let (_, times) = self.fill(&index, || Times::new(self.clock_ns), insert_with);
        let bytes = index.bytes(self.entries);
        self.report::<I>("insert", pass, &times, bytes)?;

        let pass = self.look_up(&index, || Untimed, look_up_with::<I, _>)?.0;
        let (_, times) = self.timed(&index, look_up_with::<I, _>)?;
        self.report::<I>("get", pass, &times, None)?;

        let pass = self.look_up(&index, || Untimed, look_up_once::<I, _>)?.0;
        let (_, times) = self.timed(&index, look_up_once::<I, _>)?;
        self.report::<I>("get-once", pass, &times, None)?;

        let stop = AtomicBool::new(false);
        let (pass, times) = std::thread::scope(|scope| -> Result<_> {
            scope.spawn(|| write_beside(&index, self.entries, &stop));
            let untimed = self.look_up(&index, || Untimed, look_up_with::<I, _>);
            let timed = self.timed(&index, look_up_with::<I, _>);
            stop.store(true, Ordering::Relaxed);
            Ok((untimed?.0, timed?.1))
        })?;
        self.report::<I>("get-beside-writer", pass, &times, None)
    }

    fn timed<I: Index>(
        &self,
        index: &I,
        work: fn(&I, u64, Range<u64>, &mut Times) -> u64,
    ) -> Result<(Pass, Vec<Times>)> {
        self.look_up(index, || Times::new(self.clock_ns), work)
    }

    /// Each thread inserts its part.
    fn fill<I: Index, C: Clock>(
        &self,
        index: &I,
        clock: impl Fn() -> C,
        work: fn(&I, &mut Spares<I>, &mut C),
    ) -> (Pass, Vec<C>) {
        let work: Vec<_> = (0..self.threads)
            .map(|thread| {
                let keys = self.part(thread);
                let spares: Vec<I::Spare> = keys.clone().map(I::spare).collect();
                let (mut spares, mut clock) = (keys.zip(spares), clock());
                move || {
                    work(index, &mut spares, &mut clock);
                    clock
                }
            })
            .collect();
        together(work)
    }

    /// Each thread looks up as many random keys as its part has.
    fn look_up<I: Index, C: Clock>(
        &self,
        index: &I,
        clock: impl Fn() -> C,
        work: fn(&I, u64, Range<u64>, &mut C) -> u64,
    ) -> Result<(Pass, Vec<C>)> {
        let work: Vec<_> = (0..self.threads)
            .map(|thread| {
                let (part, entries, mut clock) = (self.part(thread), self.entries, clock());
                move || {
                    let missing = work(index, entries, part, &mut clock);
                    (clock, missing)
                }
            })
            .collect();
        let (pass, results) = together(work);
        let (clocks, missing): (Vec<C>, Vec<u64>) = results.into_iter().unzip();
        match missing.iter().sum() {
            0u64 => Ok((pass, clocks)),
            missing => {
                let why = format_args!("{missing} entries were not found");
                Err(BenchError::failed("looking up in", I::NAME, why))
            }
        }
    }

    fn part(&self, thread: usize) -> Range<u64> {
        let at = |thread: usize| self.entries * thread as u64 / self.threads as u64;
        at(thread)..at(thread + 1)
    }

    fn report<I: Index>(
        &mut self,
        operation: &'static str,
        pass: Pass,
        times: &[Times],
        bytes: Option<u64>,
    ) -> Result<()> {
        let mut sum = Times::new(self.clock_ns);
        times.iter().for_each(|times| sum.add(times));
        let (names, size) = ((I::NAME, operation), (self.threads, self.entries));
        let mut figures = Figures::new(names, size, pass, &sum);
        figures.bytes_per_entry = bytes.map(|bytes| bytes as f64 / self.entries as f64);
        let text = if self.json { figures.json()? } else { figures.text() };
        match self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush()) {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|e| BenchError::failed("printing", "the results", e)),
        }
    }
}

/// Entries that a thread inserts.
type Spares<I> = std::iter::Zip<Range<u64>, std::vec::IntoIter<<I as Index>::Spare>>;

/// Inserts with a reader that is kept for a while.
fn insert_with<I: Index, C: Clock>(index: &I, spares: &mut Spares<I>, clock: &mut C) {
    let mut done = false;
    while !done {
        let reader = index.reader();
        done = true;
        for (key, spare) in spares.by_ref().take(READER_CALLS as usize) {
            clock.run(|| I::insert_with(&reader, key, spare));
            done = false;
        }
    }
}

/// The same without a reader that is kept.
fn insert_once<I: Index, C: Clock>(index: &I, spares: &mut Spares<I>, clock: &mut C) {
    for (key, spare) in spares {
        clock.run(|| index.insert(key, spare));
    }
}

/// Keys in an order that nothing can foresee (a linear congruential generator, Knuth's constants).
struct Keys {
    state: u64,
    entries: u64,
}

impl Keys {
    #[inline]
    fn next(&mut self) -> u64 {
        let (a, c) = (6_364_136_223_846_793_005, 1_442_695_040_888_963_407);
        self.state = self.state.wrapping_mul(a).wrapping_add(c);
        ((self.state >> 32) * self.entries) >> 32
    }
}

/// Looks up with a reader that is kept for a while; how often it found something else.
fn look_up_with<I: Index, C: Clock>(
    index: &I,
    entries: u64,
    part: Range<u64>,
    clock: &mut C,
) -> u64 {
    let mut keys = Keys { state: part.start + 1, entries };
    let (mut left, mut missing) = (part.end - part.start, 0);
    while left > 0 {
        let reader = index.reader();
        let gets = left.min(READER_CALLS);
        for _ in 0..gets {
            let key = keys.next();
            let found = clock.run(|| I::get(&reader, key));
            missing += u64::from(found != Some(value_of(key)));
        }
        left -= gets;
    }
    missing
}

/// The same without a reader that is kept.
fn look_up_once<I: Index, C: Clock>(
    index: &I,
    entries: u64,
    part: Range<u64>,
    clock: &mut C,
) -> u64 {
    let mut keys = Keys { state: part.start + 1, entries };
    let mut missing = 0;
    for _ in part {
        let key = keys.next();
        let found = clock.run(|| index.get_once(key));
        missing += u64::from(found != Some(value_of(key)));
    }
    missing
}

/// Inserts and removes entries behind those that are looked up, until told to stop.
fn write_beside<I: Index>(index: &I, entries: u64, stop: &AtomicBool) {
    const BATCH: u64 = 4096;
    while !stop.load(Ordering::Relaxed) {
        let keys = entries..entries + BATCH;
        keys.clone().for_each(|key| index.insert(key, I::spare(key)));
        keys.for_each(|key| index.remove(key));
    }
}

/// Runs all at once; the time it took, and the results.
fn together<R: Send>(work: Vec<impl FnOnce() -> R + Send>) -> (Pass, Vec<R>) {
    let ready = Barrier::new(work.len() + 1);
    std::thread::scope(|scope| {
        let ready = &ready;
        let running: Vec<_> = work
            .into_iter()
            .map(|work| {
                scope.spawn(move || {
                    ready.wait();
                    let (start, cpu) = (Instant::now(), thread_cpu_seconds());
                    let result = work();
                    (start, Instant::now(), thread_cpu_seconds() - cpu, result)
                })
            })
            .collect();
        ready.wait();
        let ended = running.into_iter().map(|t| t.join());
        let ended: Vec<_> =
            ended.map(|r| r.unwrap_or_else(|p| std::panic::resume_unwind(p))).collect();
        let start = ended.iter().map(|e| e.0).min();
        let end = ended.iter().map(|e| e.1).max();
        let seconds = start.zip(end).map_or(0.0, |(start, end)| (end - start).as_secs_f64());
        let pass = Pass { seconds, cpu_seconds: ended.iter().map(|e| e.2).sum() };
        (pass, ended.into_iter().map(|e| e.3).collect())
    })
}
