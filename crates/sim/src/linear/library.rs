//! Histories on a volume, by threads.
//!
//! The threads live for many histories, and meet before each at a gate where they spin: woken by
//! the kernel one after the other, the first would be done before the last began.

use super::call::{At, Call, HANDLES, Kind, Mode, NAMES, Program, Reply, Seen};
use super::history::{Event, History};
use super::search::check;
use shoal::{
    Attr, Caller, Error, FileKind, Ino, MemDevice, MkfsOptions, OpenOptions, RenameFlags, Result,
    TreeCheck, Volume, mkfs_on,
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

/// What was seen, for the report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Histories.
    pub histories: u64,
    /// Calls of the threads.
    pub calls: u64,
    /// Of these, calls that overlap with one of another thread.
    pub overlapping: u64,
    /// States of the search.
    pub states: u64,
    /// Histories that have an order only without attributes that showed a change early: on mounts
    /// only. See `History::without_early_attributes`.
    pub early: u64,
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
        checkpoint_always: first / VOLUME % 2 == 1,
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
    top: Ino,
    handles: [Ino; HANDLES],
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
        let who = Caller::root();
        let mkdir = |dir, name: &str| volume.mkdir(&who, dir, name.as_bytes(), 0o777);
        let top = mkdir(Ino::ROOT, &format!("{seed}"))?.ino;
        let (a, b) = (mkdir(top, "a")?.ino, mkdir(top, "b")?.ino);
        let f = volume.create(&who, a, b"x", 0o666)?.ino;
        let g = volume.create(&who, b, b"x", 0o666)?.ino;
        let c = mkdir(a, "z")?.ino;
        let d = if program.flavour.trees { mkdir(c, "y")?.ino } else { mkdir(b, "z")?.ino };
        if program.flavour.trees {
            volume.link(&who, g, c, b"x")?;
        }
        let scene =
            Scene { seed, program, top, handles: [a, b, c, d, f, g], come: AtomicUsize::new(0) };
        scene.held().try_for_each(|ino| volume.hold(ino, 1))?;
        Ok(scene)
    }

    /// The handles that there really are.
    fn held(&self) -> impl Iterator<Item = Ino> {
        let trees = self.program.flavour.trees;
        let skipped = move |number: usize| trees && (number == 2 || number == 3);
        let handles = self.handles.into_iter().enumerate();
        handles.filter(move |(number, _)| !skipped(*number)).map(|(_, ino)| ino)
    }

    /// A thread's part.
    fn act(&self, volume: &Volume, thread: usize, clock: &AtomicU64) -> Vec<Event> {
        let Some(calls) = self.program.threads.get(thread) else { return Vec::new() };
        let who = Caller::root();
        self.come.fetch_add(1, Ordering::SeqCst);
        let mut turns = 0;
        while self.come.load(Ordering::SeqCst) < self.program.threads.len() {
            turns += 1;
            // There may be fewer processors than threads.
            if turns % 200 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
        let one = |(spin, call): &(u32, Call)| {
            (0..*spin).for_each(|_| std::hint::spin_loop());
            self.event(volume, &who, clock, thread, *call)
        };
        calls.iter().map(one).collect()
    }

    fn event(
        &self,
        volume: &Volume,
        who: &Caller,
        clock: &AtomicU64,
        thread: usize,
        call: Call,
    ) -> Event {
        let begin = clock.fetch_add(1, Ordering::SeqCst);
        let reply = make(volume, who, &self.handles, call).unwrap_or_else(|e| failed(&e));
        let end = clock.fetch_add(1, Ordering::SeqCst);
        Event { thread, call, reply, begin, end }
    }

    /// Looks at everything, and takes it away.
    fn finish(
        self,
        volume: &Volume,
        clock: &AtomicU64,
        mut events: Vec<Event>,
    ) -> Result<(History, usize)> {
        let (who, calls, flavour) = (Caller::root(), events.len(), self.program.flavour);
        let look = |call| self.event(volume, &who, clock, 0, call);
        events.extend(flavour.epilogue().into_iter().map(look));
        let inos = self.handles.map(|ino| ino.0);
        self.held().for_each(|ino| volume.release(ino, 1));
        let name = self.seed.to_string();
        volume.remove_tree(&who, Ino::ROOT, name.as_bytes(), TreeCheck::Tree)?;
        debug_assert_ne!(self.top, Ino::ROOT);
        Ok((History { seed: self.seed, flavour, inos, events }, calls))
    }
}

/// What is no errno of a call on names is an errno all the same: nothing explains it.
fn failed(error: &Error) -> Reply {
    Reply::Failed(error.code().errno())
}

fn seen(attr: &Attr) -> Seen {
    Seen { kind: kind(attr.kind), ino: attr.ino.0, age: attr.generation.0 }
}

fn kind(kind: FileKind) -> Kind {
    if kind == FileKind::Directory { Kind::Dir } else { Kind::File }
}

fn make(volume: &Volume, who: &Caller, handles: &[Ino; HANDLES], call: Call) -> Result<Reply> {
    let ino = |handle: u8| handles[usize::from(handle)];
    let place = |at: At| (ino(at.dir), at.text().as_bytes());
    let done = |()| Reply::Done;
    match call {
        Call::Create(at) => {
            let (dir, name) = place(at);
            volume.create(who, dir, name, 0o666).map(|attr| Reply::Found(seen(&attr)))
        }
        Call::Mkdir(at) => {
            let (dir, name) = place(at);
            volume.mkdir(who, dir, name, 0o777).map(|attr| Reply::Found(seen(&attr)))
        }
        Call::Unlink(at) => volume.unlink(who, place(at).0, place(at).1).map(done),
        Call::Rmdir(at) => volume.rmdir(who, place(at).0, place(at).1).map(done),
        Call::Rename(from, to, mode) => {
            let ((from_dir, from), (to_dir, to)) = (place(from), place(to));
            let flags = RenameFlags {
                noreplace: mode == Mode::NoReplace,
                exchange: mode == Mode::Exchange,
            };
            volume.rename(who, from_dir, from, to_dir, to, flags).map(done)
        }
        Call::Link(file, at) => {
            volume.link(who, ino(file), place(at).0, place(at).1).map(|_| Reply::Done)
        }
        Call::Lookup(at) => {
            let (dir, name) = place(at);
            volume.lookup(who, dir, name).map(|attr| Reply::Found(seen(&attr)))
        }
        Call::List(dir) => list(volume, ino(dir)).map(Reply::Listed),
        Call::Stat(handle) => volume.getattr(ino(handle)).map(|attr| {
            let entries = if attr.kind == FileKind::Directory { attr.size } else { 0 };
            Reply::Attrs { links: attr.nlink, entries }
        }),
        Call::RemoveTree(at) => {
            let (dir, name) = place(at);
            volume.remove_tree(who, dir, name, TreeCheck::Tree).map(done)
        }
        Call::Probe(_) => unreachable!("not a call"),
    }
}

fn list(volume: &Volume, dir: Ino) -> Result<[Option<Seen>; NAMES]> {
    let mut entries = [None; NAMES];
    volume.readdir(dir, 0, &mut |entry| {
        let known = |name: &u8| At { dir: 0, name: *name }.text().as_bytes() == entry.name;
        if let Some(name) = (0..NAMES as u8).find(known) {
            let (kind, ino) = (kind(entry.kind), entry.ino.0);
            entries[usize::from(name)] = Some(Seen { kind, ino, age: 0 });
        }
        true
    })?;
    Ok(entries)
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
