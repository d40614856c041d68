//! A run on a volume in a bucket whose store misbehaves: at every `crash` in the list the process
//! is gone without a word, at every `reopen` it closes the volume, or is gone while it does, and
//! another one takes the volume over. What it finds is a state that there was, and none older than
//! what was acknowledged.

use super::{Ack, Failure, Report, Settings, make_durable};
use crate::checks;
use crate::exec::{Generator, Lockstep, Step};
use crate::history::History;
use crate::op::Op;
use crate::rng::Rng;
use crate::text::panic_text;
use crate::walk::walk;
use crate::workload::Workload;
use shoal::raw::{Ino, Volume, mkfs_on};
use shoal_bucket::faulty::{Faults, Faulty, World};
use shoal_bucket::{BucketDevice, CreateOptions, Layering, Options, Place, Runtime};
use shoal_device::Device;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// A run in progress.
struct Run {
    settings: Settings,
    world: Arc<World>,
    rng: Rng,
    connection: Faulty,
    volume: Option<Volume>,
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
    // A volume that is to run full looks into the space of its device, which is not the subject.
    let settings = Settings { full: false, ..Settings::of_seed(seed) };
    let mut generator = Workload::new(seed);
    let mut run = Run::new(settings, seed)?;
    for _ in 0..count {
        let Some(op) = generator.draw(&run.run) else { break };
        done.push(op.clone());
        run.step(&op)?;
    }
    run.take_over()?;
    Ok(run.report)
}

/// Everything happens on the thread that waits, in an order that the seed decides; pauses take no
/// time.
pub(crate) fn runtime() -> Result<Runtime, String> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let built = builder.enable_time().start_paused(true).build();
    built.map(Runtime::from).map_err(|e| format!("runtime: {e}"))
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
        let world = World::new(seed);
        let connection = world.connect(Faults::MANY);
        let place = place(&connection);
        let capacity = settings.mkfs.size.max(64 << 20);
        let create = CreateOptions { capacity, overwrite: false, race: None, progress: |_, _| {} };
        let device = BucketDevice::create(&place, &create, options(), runtime()?)
            .map_err(|e| format!("create: {e}"))?;
        let device: Arc<dyn Device> = Arc::new(device);
        mkfs_on(device.clone(), &settings.mkfs).map_err(|e| format!("mkfs: {e}"))?;
        let volume = Volume::open_on(device, &settings.open).map_err(|e| format!("open: {e}"))?;
        let run = Lockstep::new(&volume, Ino::ROOT)?;
        let history = History::new(0, &run.model, settings.explain);
        let report = Report::default();
        let (volume, position, rng) = (Some(volume), 0, Rng::new(seed).fork(18));
        Ok(Run { settings, world, rng, connection, volume, run, history, position, report })
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        self.report.steps += 1;
        match op {
            Op::Crash { .. } => return self.take_over(),
            Op::Reopen { .. } => return self.close(),
            // Memory is not the subject.
            Op::NoMemory(_) => return Ok(()),
            _ => {}
        }
        self.position += 1;
        self.history.begin_of(op, &self.run, self.position);
        let volume = self.volume.as_ref().ok_or("no volume")?;
        match self.run.step(volume, op)? {
            Step::Done => {}
            Step::Skipped => self.report.skipped += 1,
            Step::Refused(_) => self.report.refused += 1,
        }
        let durable = make_durable(volume, &self.run, op);
        self.history.end_of(op, &self.run.model);
        self.position += 1;
        match durable.map_err(|e| format!("{op}: {e}"))? {
            None => {}
            Some(Ack::All) => self.history.acknowledge_all(self.position),
            Some(Ack::Inode(ino)) => self.history.acknowledge(self.position, ino),
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
        self.connection = self.world.connect(Faults::MANY);
        let device = BucketDevice::open(&place(&self.connection), options(), runtime()?)
            .map_err(|e| format!("take-over: {e}"))?;
        let volume = Volume::open_on(Arc::new(device), &self.settings.open)
            .map_err(|e| format!("open after a take-over: {e}"))?;
        // Only now: the process before sleeps while it is replaced, and does not wake up before.
        drop(before);
        let found = walk(&volume, Ino::ROOT, true)?;
        if self.history.find(&found.state, permitted.clone()).is_none() {
            return Err(self.history.explain(&found.state, permitted));
        }
        checks::all(&volume, &found)?;
        self.run = Lockstep::of(found.model());
        // What recovery has completed is durable only then.
        volume.sync().map_err(|e| format!("sync after a take-over: {e}"))?;
        self.history = History::new(self.position, &self.run.model, self.settings.explain);
        self.volume = Some(volume);
        Ok(())
    }
}

pub(crate) fn place(connection: &Faulty) -> Place {
    Place::new(Arc::new(connection.clone()), "volume", "faulty")
}
