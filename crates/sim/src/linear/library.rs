//! Histories on a volume, by threads.
//!
//! The threads live for many histories, and meet before each at a gate where they spin: woken by
//! the kernel one after the other, the first would be done before the last began.

use super::history::{Event, History};
use super::program::Program;
use super::search::check;
use super::stage::Stage;
use crate::counts::counts;
use crate::memory::without_refusals;
use crate::op::Op;
use shoal::raw::{
    Caller, Error, Ino, Lab, MemDevice, MkfsOptions, OpenOptions, Result, TreeCheck, Volume,
    mkfs_on,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Threads at most.
const THREADS: usize = 4;
/// Histories that are made ready together.
const BATCH: u64 = 32;
/// Histories before the volume is closed, checked and made anew.
const VOLUME: u64 = 4096;
/// Bounds the turns that a thread spins before a call: about as long as a call takes.
const SPIN: u64 = 600;

counts! {
    /// Counts for the report.
    pub struct Tally {
        /// Histories.
        pub histories: u64,
        /// Calls of the threads.
        pub calls: u64,
        /// Of these, calls that overlap with one of another thread.
        pub overlapping: u64,
        /// States of the search.
        pub states: u64,
        /// Histories that have an order only without attributes that showed a change early: on
        /// mounts only. See `History::without_early_attributes`.
        pub early: u64,
    }
}

impl Tally {
    /// Counts a history that was explained.
    pub fn count(&mut self, history: &History, calls: usize, states: usize) {
        let made = &history.events[..calls];
        let meets = |event: &&Event| {
            let other =
                |o: &Event| o.thread != event.thread && o.begin < event.end && event.begin < o.end;
            made.iter().any(other)
        };
        self.histories += 1;
        self.calls += calls as u64;
        self.overlapping += made.iter().filter(meets).count() as u64;
        self.states += states as u64;
    }
}

/// Runs the histories of these seeds on volumes in memory.
///
/// # Errors
/// Says what is wrong.
pub fn run(seeds: Range<u64>) -> std::result::Result<Tally, String> {
    let _whole = without_refusals();
    let mut tally = Tally::default();
    let mut next = seeds.start;
    while next < seeds.end {
        let end = seeds.end.min(next + VOLUME);
        on_a_volume(next..end, &mut tally)?;
        next = end;
    }
    Ok(tally)
}

fn on_a_volume(seeds: Range<u64>, tally: &mut Tally) -> std::result::Result<(), String> {
    let first = seeds.start;
    let text = |e: Error| format!("volume of seed {first}: {e}");
    let device = Arc::new(MemDevice::new(128 << 20));
    mkfs_on(device.clone(), &MkfsOptions::default()).map_err(text)?;
    let options = OpenOptions {
        cache_bytes: 32 << 20,
        commit_interval_ms: 5,
        // Where a volume's seeds begin decides: every other one is checkpointed all the time.
        lab: Lab { checkpoint_always: first / VOLUME % 2 == 1, ..Lab::default() },
        noatime: true,
        ..OpenOptions::default()
    };
    let volume = Volume::open_on(device, &options).map_err(text)?;
    let mut next = first;
    while next < seeds.end {
        let end = seeds.end.min(next + BATCH);
        let histories = batch(&volume, next..end).map_err(text)?;
        for (history, calls) in &histories {
            let states = check(history).map_err(|wrong| wrong.to_string())?;
            tally.count(history, *calls, states);
        }
        next = end;
    }
    let report = volume.check(&mut |_, _| {}).map_err(text)?;
    if !report.problems.is_empty() {
        return Err(format!("check after seeds {seeds:?}: {:#?}", report.problems));
    }
    volume.close().map_err(text)
}

/// A history made ready.
struct Scene {
    seed: u64,
    program: Program,
    stage: Stage,
    /// Of the threads, how many have come.
    come: AtomicUsize,
}

/// Runs some histories; with each, how many of its events are of the threads.
fn batch(volume: &Volume, seeds: Range<u64>) -> Result<Vec<(History, usize)>> {
    let scenes = seeds.map(|seed| Scene::new(volume, seed)).collect::<Result<Vec<_>>>()?;
    let clock = AtomicU64::new(1);
    let mut done: Vec<Vec<Event>> = vec![Vec::new(); scenes.len()];
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (scenes, clock) = (&scenes, &clock);
                let act = move |scene: &Scene| scene.act(volume, thread, clock);
                scope.spawn(move || scenes.iter().map(act).collect::<Vec<_>>())
            })
            .collect();
        for thread in threads {
            let acts = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done.iter_mut().zip(acts).for_each(|(all, events)| all.extend(events));
        }
    });
    let finish = |(scene, events): (Scene, Vec<Event>)| scene.finish(volume, &clock, events);
    scenes.into_iter().zip(done).map(finish).collect()
}

impl Scene {
    fn new(volume: &Volume, seed: u64) -> Result<Scene> {
        let program = Program::draw(seed, true, SPIN);
        let name = seed.to_string();
        let top = volume.namespace().mkdir(&Caller::root(), Ino::ROOT, name.as_bytes(), 0o777)?.ino;
        let stage = Stage::make(volume, top, program.flavour.trees)?;
        stage.hold(volume)?;
        Ok(Scene { seed, program, stage, come: AtomicUsize::new(0) })
    }

    /// A thread's part.
    fn act(&self, volume: &Volume, thread: usize, clock: &AtomicU64) -> Vec<Event> {
        let Some(calls) = self.program.threads.get(thread) else { return Vec::new() };
        self.come.fetch_add(1, Ordering::SeqCst);
        let mut turns = 0;
        while self.come.load(Ordering::SeqCst) < self.program.threads.len() {
            turns += 1;
            // There may be fewer processors than threads.
            if turns % 200 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        let one = |(spin, op): &(u32, Op)| {
            (0..*spin).for_each(|_| std::hint::spin_loop());
            self.stage.event(volume, clock, thread, op)
        };
        calls.iter().map(one).collect()
    }

    /// Looks at everything, and takes it away.
    fn finish(
        self,
        volume: &Volume,
        clock: &AtomicU64,
        mut events: Vec<Event>,
    ) -> Result<(History, usize)> {
        let (calls, flavour) = (events.len(), self.program.flavour);
        let look = |op| self.stage.event(volume, clock, 0, &op);
        events.extend(flavour.epilogue().into_iter().map(look));
        let inos = self.stage.inos();
        self.stage.release(volume);
        let (who, name) = (Caller::root(), self.seed.to_string());
        volume.namespace().remove_tree(&who, Ino::ROOT, name.as_bytes(), TreeCheck::Tree)?;
        Ok((History { seed: self.seed, flavour, inos, events }, calls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_histories() {
        let tally = run(0..64).expect("linearisable");
        assert_eq!(tally.histories, 64);
    }
}
