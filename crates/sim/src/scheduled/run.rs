//! A run.

use super::device::PacedDevice;
use super::plan::{Behind, Plan, Step};
use super::scheduler::{Book, SeededScheduler, Trace};
use crate::checks;
use crate::device::FaultyDevice;
use crate::image::Image;
use crate::linear::history::{Event, History};
use crate::linear::search::{Recovered, check, check_recovered};
use crate::linear::stage::Stage;
use crate::op::Op;
use crate::recovery::{recover, recover_hard};
use crate::rng::Rng;
use crate::text::panic_text;
use crate::walk::walk;
use shoal::raw::{Ino, MkfsOptions, OpenOptions, Volume, mkfs_on};
use shoal_base::sync::thread;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// More steps than this are a loop without end: some hundred times what runs take.
const STEPS_MAX: usize = 20_000_000;
/// Bytes of the stack of a thread.
const STACK: usize = 1 << 20;

/// Counts of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// Calls that have their place in an order.
    pub calls: u64,
    /// Of these, calls that overlap with one of another thread.
    pub overlapping: u64,
    /// Changes of the device while they ran.
    pub device_ops: u64,
    /// Images of crashes that were recovered.
    pub images: u64,
    /// Of these, images in which something acknowledged had to be.
    pub acknowledged: u64,
    /// Choices of the scheduler until all threads had ended.
    pub trace: Trace,
}

/// An acknowledgement of durability: what had ended before `begin` is durable from `end` on.
#[derive(Clone, Copy, Debug)]
struct Ack {
    thread: usize,
    begin: u64,
    end: u64,
}

/// Log of the threads of a run so far; read also when one of them has panicked or none goes on.
#[derive(Default)]
struct Log {
    events: Vec<Event>,
    acks: Vec<Ack>,
    /// Under way: thread, since when, and what.
    open: Vec<(usize, u64, String)>,
}

/// State that the threads of a run share.
struct World {
    plan: Plan,
    stage: Stage,
    volume: Volume,
    clock: Arc<AtomicU64>,
    log: Arc<Mutex<Log>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a seed.
///
/// # Errors
/// Says what is wrong, with the history as far as it went.
pub fn run(seed: u64) -> Result<Report, String> {
    let plan = Plan::draw(seed);
    let (start, stage) = beginning(plan.flavour.trees)?;
    let (book, log) = (Book::default(), Arc::new(Mutex::new(Log::default())));
    let scheduler = SeededScheduler::new(seed, book.clone());
    let (told, flavour, about) = (log.clone(), plan.flavour, plan.to_string());
    let played = scheduled(scheduler, move || play(seed, &plan, &start, stage, &book, &log));
    played.map_err(|message| {
        let log = locked(&told);
        let history = History { seed, flavour, inos: stage.inos(), events: log.events.clone() };
        let mut text = format!("{message}\n\n{about}the calls that had ended:\n{history}");
        for (thread, since, what) in &log.open {
            text.push_str(&format!("thread {thread}: under way since {since}: {what}\n"));
        }
        for Ack { thread, begin, end } in &log.acks {
            text.push_str(&format!("thread {thread}: durable at {end} what was before {begin}\n"));
        }
        text
    })
}

/// Runs `body` with the threads that it starts under this scheduler.
fn scheduled<T: Send + 'static>(
    scheduler: SeededScheduler,
    body: impl Fn() -> Result<T, String> + Send + Sync + 'static,
) -> Result<T, String> {
    let mut config = Config::new();
    config.stack_size = STACK;
    config.max_steps = MaxSteps::FailAfter(STEPS_MAX);
    config.silence_warnings = true;
    // The seed says it all.
    config.failure_persistence = FailurePersistence::None;
    let result = Arc::new(Mutex::new(None));
    let inner = result.clone();
    let runs = AssertUnwindSafe(move || {
        Runner::new(scheduler, config).run(move || *locked(&inner) = Some(body()));
    });
    catch_unwind(runs).map_err(|panic| panic_text(&*panic))?;
    let result = locked(&result).take();
    result.unwrap_or_else(|| Err("the run did not come to its end".into()))
}

/// The device that runs begin with: a volume with what the threads have handles of, closed; the
/// same in every process.
fn beginning(trees: bool) -> Result<(Image, Stage), String> {
    static MADE: [OnceLock<Result<(Image, Stage), String>>; 2] = [OnceLock::new(), OnceLock::new()];
    let make = || {
        let make = move || {
            let device = Arc::new(FaultyDevice::new(32 << 20).forgetful());
            let mkfs = MkfsOptions {
                segment_size: 1 << 20,
                root_mode: 0o777,
                id: Some(*b"under a schedule"),
                ..MkfsOptions::default()
            };
            let made = || {
                mkfs_on(device.clone(), &mkfs)?;
                let options = OpenOptions {
                    background: false,
                    cache_bytes: 8 << 20,
                    ..OpenOptions::default()
                };
                let volume = Volume::open_on(device.clone(), &options)?;
                let stage = Stage::make(&volume, Ino::ROOT, trees)?;
                volume.close()?;
                Ok(stage)
            };
            let stage = made().map_err(|e: shoal::raw::Error| format!("the beginning: {e}"))?;
            Ok((device.image(), stage))
        };
        scheduled(SeededScheduler::new(0, Book::default()), make)
    };
    MADE[usize::from(trees)].get_or_init(make).clone()
}

/// Runs a seed: the body of the first thread.
fn play(
    seed: u64,
    plan: &Plan,
    start: &Image,
    stage: Stage,
    book: &Book,
    log: &Arc<Mutex<Log>>,
) -> Result<Report, String> {
    let text = |what: &'static str| move |e: shoal::raw::Error| format!("{what}: {e}");
    let clock = Arc::new(AtomicU64::new(1));
    let device = FaultyDevice::from_image(start.clone()).unchecked();
    let device = Arc::new(PacedDevice::new(device, clock.clone()));
    let volume = Volume::open_on(device.clone(), &plan.options).map_err(text("open"))?;
    stage.hold(&volume).map_err(text("hold"))?;
    let world = World { plan: plan.clone(), stage, volume, clock, log: log.clone() };
    let world = Arc::new(world);

    let first = device.inner().position();
    world.threads_end()?;
    let last = device.inner().position();
    let made = locked(log).events.len();
    let flavour = plan.flavour;
    for op in flavour.epilogue() {
        let event = world.stage.event(&world.volume, &world.clock, 0, &op);
        locked(log).events.push(event);
    }
    let trace = book.trace();

    let events = locked(log).events.clone();
    let history = History { seed, flavour, inos: stage.inos(), events };
    check(&history).map_err(|wrong| wrong.to_string())?;
    let events = &history.events[..made];
    let overlapping = events.iter().filter(|event| overlaps(event, events)).count() as u64;
    let (calls, device_ops) = (made as u64, last - first);
    let mut report = Report { calls, overlapping, device_ops, trace, ..Report::default() };

    let Ok(World { stage, volume, .. }) = Arc::try_unwrap(world) else {
        return Err("a thread that has ended still has the volume".into());
    };
    afterwards(volume, stage)?;
    crashes(&mut report, &history, made, plan, stage, &device, (first, last), log)?;
    Ok(report)
}

fn overlaps(event: &Event, events: &[Event]) -> bool {
    let meets = |o: &Event| o.thread != event.thread && o.begin < event.end && event.begin < o.end;
    events.iter().any(meets)
}

/// The volume at rest, with nothing held: every checker is content, and it can be closed.
fn afterwards(volume: Volume, stage: Stage) -> Result<(), String> {
    stage.release(&volume);
    crate::call::wait_for_reaping(&volume)?;
    let walked = walk(&volume, Ino::ROOT, true)?;
    checks::all(&volume, &walked)?;
    checks::nothing_waits_to_be_freed(&volume)?;
    volume.close().map_err(|e| format!("close: {e}"))
}

impl World {
    /// Starts all threads and waits for their end.
    fn threads_end(self: &Arc<Self>) -> Result<(), String> {
        let mut all = Vec::new();
        for number in 0..self.plan.threads.len() {
            let world = self.clone();
            all.push(thread::spawn(move || world.act(number)));
        }
        for number in 0..self.plan.behind.len() {
            let world = self.clone();
            all.push(thread::spawn(move || world.work(number)));
        }
        for thread in all {
            thread.join().map_err(|panic| panic_text(&*panic))??;
        }
        Ok(())
    }

    /// A thread's part.
    fn act(&self, number: usize) -> Result<(), String> {
        for step in &self.plan.threads[number] {
            let text = |e: shoal::raw::Error| format!("thread {number}, {step:?}: {e}");
            match step {
                Step::Call(op) => self.call(number, op),
                Step::Sync => self.acknowledged(number, || self.volume.sync()).map_err(text)?,
                Step::Fsync(handle) => {
                    let ino = self.stage.ino(*handle);
                    let sync = || self.volume.files().fsync(ino, false);
                    self.acknowledged(number, sync).map_err(text)?;
                }
            }
        }
        Ok(())
    }

    fn call(&self, thread: usize, op: &Op) {
        self.begins(thread, op.to_string());
        let event = self.stage.event(&self.volume, &self.clock, thread, op);
        self.ends(thread).events.push(event);
    }

    fn acknowledged(
        &self,
        thread: usize,
        sync: impl FnOnce() -> shoal::raw::Result<()>,
    ) -> shoal::raw::Result<()> {
        self.begins(thread, "sync".into());
        let begin = self.clock.fetch_add(1, Ordering::SeqCst);
        let done = sync();
        let end = self.clock.fetch_add(1, Ordering::SeqCst);
        let mut log = self.ends(thread);
        if done.is_ok() {
            log.acks.push(Ack { thread, begin, end });
        }
        done
    }

    /// Work behind the calls.
    fn work(&self, number: usize) -> Result<(), String> {
        let thread = self.plan.threads.len() + number;
        for work in &self.plan.behind[number] {
            let quietly = |f: &dyn Fn() -> shoal::raw::Result<()>| {
                self.begins(thread, format!("{work:?}"));
                let done = f();
                drop(self.ends(thread));
                done
            };
            let done = match work {
                Behind::Checkpoint => quietly(&|| self.volume.maintenance().checkpoint()),
                Behind::Sync => self.acknowledged(thread, || self.volume.sync()),
                Behind::Reap => quietly(&|| self.volume.maintenance().reap_some().map(|_| ())),
                Behind::Clean => quietly(&|| self.volume.maintenance().clean()),
            };
            done.map_err(|e| format!("{work:?} behind the calls: {e}"))?;
        }
        Ok(())
    }

    fn begins(&self, thread: usize, what: String) {
        let since = self.clock.load(Ordering::SeqCst);
        locked(&self.log).open.push((thread, since, what));
    }

    fn ends(&self, thread: usize) -> MutexGuard<'_, Log> {
        let mut log = locked(&self.log);
        log.open.retain(|(other, ..)| *other != thread);
        log
    }
}

/// Images of crashes while the threads were at work.
fn crashes(
    report: &mut Report,
    history: &History,
    made: usize,
    plan: &Plan,
    stage: Stage,
    device: &PacedDevice,
    (first, last): (u64, u64),
    log: &Mutex<Log>,
) -> Result<(), String> {
    let mut rng = Rng::new(history.seed).fork(0xC4A5);
    let moments = device.moments();
    let acks = locked(log).acks.clone();
    // A crash at a position comes before the next operation; all threads had ended when there was
    // none.
    let until = |position: u64| match position < last {
        true => moments[position as usize],
        false => u64::MAX,
    };
    // Anywhere; or at once after an acknowledgement, which is when it is worth most.
    let position = |rng: &mut Rng| match rng.chance(50) && !acks.is_empty() {
        true => {
            let ack = rng.pick(&acks);
            (first..last).find(|position| until(*position) > ack.end).unwrap_or(last)
        }
        false => rng.range(first, last),
    };
    let mut positions: Vec<u64> = (0..plan.images).map(|_| position(&mut rng)).collect();
    positions.sort_unstable();
    let mut cursor = device.inner().crashes(rng.next());
    for position in positions {
        let until = until(position);
        let image = cursor.image_at(position, rng.next());
        let acks = acks.iter().filter(|ack| ack.end < until);
        let durable = acks.map(|ack| ack.begin).max().unwrap_or(0);
        let events = history.events[..made].iter().filter(|event| event.begin < until).cloned();
        let before = History { events: events.collect(), ..history.clone() };
        report.images += 1;
        report.acknowledged += u64::from(before.events.iter().any(|event| event.end < durable));
        recovers(image, &before, durable, plan, stage, &mut rng).map_err(|wrong| {
            format!("a crash at device operation {position}, of {first} to {last}: {wrong}")
        })?;
    }
    Ok(())
}

/// An image of a crash recovers to something that may be there.
fn recovers(
    image: Image,
    before: &History,
    durable: u64,
    plan: &Plan,
    stage: Stage,
    rng: &mut Rng,
) -> Result<(), String> {
    let mut options = OpenOptions { background: false, ..plan.options.clone() };
    options.lab.checkpoint_always = false;
    let recovered = match rng.chance(20) {
        true => recover_hard(image, &options, rng)?,
        false => recover(image, &options)?,
    };
    let look = |op: Op| {
        let reply = stage.call(&recovered.volume, &op);
        (op, reply)
    };
    let seen = plan.flavour.epilogue().into_iter().map(look).collect();
    let found = check_recovered(before, Recovered { durable, seen });
    found.map(|_| ()).map_err(|wrong| wrong.to_string())
}
