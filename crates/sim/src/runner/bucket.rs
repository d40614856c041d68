//! A run on a volume in a bucket whose store misbehaves: at every `crash` in the list the process
//! is gone without a word, at every `reopen` it closes the volume, or is gone while it does, and
//! another one takes the volume over. What it finds is a state that there was, and none older than
//! what was acknowledged.
//!
//! Besides faults of single requests the store has weather: for some operations it refuses
//! requests, has a quota, or does not answer (`weather.rs`). And copies of it lose parts of objects
//! (`damage.rs`).

pub mod cli;
mod damage;
mod weather;

use super::{Ack, Failure, Report, Settings, make_durable};
use crate::checks;
use crate::exec::{Generator, Lockstep, Step};
use crate::history::History;
use crate::op::Op;
use crate::rng::Rng;
use crate::text::panic_text;
use crate::walk::walk;
use crate::workload::Workload;
use shoal::raw::{Code, Compression, Error, Ino, Volume, mkfs_on};
use shoal_bucket::faulty::{Faults, Faulty, World};
use shoal_bucket::{BucketDevice, CreateOptions, Layering, Options, Place, Runtime};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::time::Instant;
use weather::Turn;

/// Bytes of the volume, more than a run writes.
const CAPACITY: u64 = 256 << 20;
/// Bytes of pieces in memory that are never too few.
const KEEPS_ALL: u64 = 1 << 30;
/// Bytes of pieces in memory: none, few, or everything.
const CACHES: [u64; 4] = [64 << 10, 4 << 20, KEEPS_ALL, KEEPS_ALL];

/// A run in progress.
struct Run {
    settings: Settings,
    world: Arc<World>,
    rng: Rng,
    options: Options,
    connection: Faulty,
    device: Arc<BucketDevice>,
    clock: Clock,
    volume: Option<Volume>,
    /// The weather, unless it is fair.
    turn: Option<Turn>,
    run: Lockstep,
    history: History,
    /// Operations so far, which take the place of the operations of a device.
    position: u64,
    report: Report,
}

/// Runs up to `count` operations of a seed.
///
/// # Errors
/// The violation, with the operations up to it.
pub fn run_in_bucket(seed: u64, count: usize) -> Result<Report, Failure> {
    let mut done = Vec::new();
    let ran = catch_unwind(AssertUnwindSafe(|| drive(seed, count, &mut done)));
    let result = match ran {
        Ok(result) => result,
        Err(panic) => Err(format!("panic: {}", panic_text(&*panic))),
    };
    result.map_err(|message| Failure { message, ops: done })
}

fn drive(seed: u64, count: usize, done: &mut Vec<Op>) -> Result<Report, String> {
    // Only the store is ever full.
    let mut settings = Settings { full: false, ..Settings::of_seed(seed) };
    settings.mkfs.size = CAPACITY;
    // It flushes the journal in the middle of a transaction, which has no place to fail there.
    settings.open.lab.attr_intents_flushed = false;
    let mut generator = Workload::new(seed);
    let mut run = Run::new(settings, seed)?;
    for _ in 0..count {
        let Some(op) = generator.draw(&run.run) else { break };
        done.push(op.clone());
        run.step(&op)?;
    }
    if run.turn.is_some() {
        run.end_weather()?;
    }
    run.take_over()?;
    run.report.device_ops = run.world.requests();
    Ok(run.report)
}

/// Everything happens on the thread that waits, in an order that the seed decides; pauses take no
/// time.
pub(crate) fn runtime() -> Result<Runtime, String> {
    clocked().map(|(runtime, _)| runtime)
}

/// The clock of a runtime. It stands still but while a call waits.
#[derive(Clone)]
struct Clock(Handle);

impl Clock {
    fn now(&self) -> Instant {
        let _inside = self.0.enter();
        Instant::now()
    }
}

fn clocked() -> Result<(Runtime, Clock), String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let built = builder.enable_time().start_paused(true).build();
    let runtime = built.map_err(|e| format!("runtime: {e}"))?;
    let clock = Clock(runtime.handle().clone());
    Ok((runtime.into(), clock))
}

pub(crate) fn options() -> Options {
    Options {
        force: true,
        // Small, so that short runs have data objects, manifests and garbage.
        staged_max: 256 << 10,
        log_objects_max: 5,
        layering: Layering { parts: 1, whole_max: 0 },
        grace: Duration::from_millis(200),
        cache_bytes: 4 << 20,
        ..Options::default()
    }
}

impl Run {
    fn new(settings: Settings, seed: u64) -> Result<Run, String> {
        let (world, mut rng) = (World::new(seed), Rng::new(seed).fork(18));
        // Sizes of compressed pieces depend on the times in them.
        let options = Options {
            cache_bytes: *rng.pick(&CACHES),
            compression: Compression::NONE,
            ..options()
        };
        let connection = world.connect(Faults::MANY);
        let place = place(&connection);
        let (overwrite, progress) = (false, |_, _| {});
        let create = CreateOptions { capacity: CAPACITY, overwrite, race: None, progress };
        let (runtime, clock) = clocked()?;
        let device = BucketDevice::create(&place, &create, options.clone(), runtime)
            .map_err(|e| format!("create: {e}"))?;
        let device = Arc::new(device);
        mkfs_on(device.clone(), &settings.mkfs).map_err(|e| format!("mkfs: {e}"))?;
        let volume =
            Volume::open_on(device.clone(), &settings.open).map_err(|e| format!("open: {e}"))?;
        let run = Lockstep::new(&volume, Ino::ROOT)?;
        let history = History::new(0, &run.model, settings.explain);
        let (volume, turn, position, report) = (Some(volume), None, 0, Report::default());
        Ok(Run {
            settings,
            world,
            rng,
            options,
            connection,
            device,
            clock,
            volume,
            turn,
            run,
            history,
            position,
            report,
        })
    }

    fn volume(&self) -> Result<&Volume, String> {
        self.volume.as_ref().ok_or_else(|| "no volume".into())
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        self.report.steps += 1;
        self.change_weather()?;
        match op {
            Op::Crash { .. } => return self.take_over(),
            Op::Reopen { .. } => return self.close(),
            // Memory is not the subject.
            Op::NoMemory(_) => return Ok(()),
            _ => {}
        }
        self.work(op)?;
        match op {
            Op::Sync | Op::Fsync { .. } if self.turn.is_none() && self.rng.chance(20) => {
                self.damage()
            }
            _ => Ok(()),
        }
    }

    /// An operation on volume and model.
    fn work(&mut self, op: &Op) -> Result<(), String> {
        self.position += 1;
        self.history.begin_of(op, &self.run, self.position);
        match self.call(op)? {
            Step::Done => {}
            Step::Skipped => self.report.skipped += 1,
            Step::Refused(error) => self.judge(op, &error)?,
        }
        let durable = make_durable(self.volume()?, &self.run, op);
        self.history.end_of(op, &self.run.model);
        self.position += 1;
        match durable {
            Ok(None) => {}
            Ok(Some(Ack::All)) => self.history.acknowledge_all(self.position),
            Ok(Some(Ack::Inode(ino))) => self.history.acknowledge(self.position, ino),
            Err(error) if error.code() == Code::NoSpace && self.has_quota() => {
                self.report.refused += 1;
            }
            Err(error) => return Err(format!("{op}: {error}")),
        }
        Ok(())
    }

    /// The process closes the volume, or is gone after some requests; then another one opens it.
    fn close(&mut self) -> Result<(), String> {
        if self.rng.chance(50) {
            self.connection.kill_after(1 + self.rng.below(12));
        }
        self.position += 1;
        match self.volume.take().ok_or("no volume")?.close() {
            Ok(()) => {
                self.history.acknowledge_all(self.position);
                self.report.closed += 1;
            }
            Err(_) if self.connection.is_dead() => {}
            Err(e) => return Err(format!("close: {e}")),
        }
        self.take_over()
    }

    /// The process is gone; another one opens the volume, and the run goes on from what it finds.
    fn take_over(&mut self) -> Result<(), String> {
        self.report.crashes += 1;
        self.report.images += 1;
        // Its journal is not written: nothing of it reaches the store any more.
        let before = self.volume.take();
        self.position += 1;
        let permitted = self.history.permitted(self.position);
        let opened = match self.open() {
            Err(error) if self.is_weather(&error) => {
                self.report.kept_out += 1;
                self.fair();
                self.open()
            }
            opened => opened,
        };
        let volume = opened.map_err(|e| format!("take-over: {e}"))?;
        // Only now: the process before sleeps while it is replaced, and does not wake up before.
        drop(before);
        let found = walk(&volume, Ino::ROOT, true)?;
        if self.history.find(&found.state, permitted.clone()).is_none() {
            return Err(self.history.explain(&found.state, permitted));
        }
        checks::all(&volume, &found)?;
        self.run = Lockstep::of(found.model());
        self.fair();
        // What recovery has completed is durable only then.
        volume.sync().map_err(|e| format!("sync after a take-over: {e}"))?;
        self.history = History::new(self.position, &self.run.model, self.settings.explain);
        self.volume = Some(volume);
        Ok(())
    }

    /// Opens the volume in another process.
    fn open(&mut self) -> Result<Volume, Error> {
        self.connection = self.world.connect(Faults::MANY);
        let (runtime, clock) = clocked().map_err(|e| Error::refused(Code::NoMemory, e))?;
        let device = BucketDevice::open(&place(&self.connection), self.options.clone(), runtime)?;
        (self.device, self.clock) = (Arc::new(device), clock);
        Volume::open_on(self.device.clone(), &self.settings.open)
    }
}

pub(crate) fn place(connection: &Faulty) -> Place {
    Place::new(Arc::new(connection.clone()), "volume", "faulty")
}
