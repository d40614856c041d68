//! A run: a fresh volume on a faulty device, a list of operations in lockstep with the model, and
//! at every `crash` in the list several crash images, each recovered, checked, and compared with
//! the states that may be there. The run goes on from one of them.

pub mod bucket;
pub mod copies;
mod full;
mod quotas;
mod reopen;

use self::quotas::toggle_quotas;
use crate::checks;
use crate::counts::counts;
use crate::device::FaultyDevice;
use crate::exec::{Generator, Lockstep, Step};
use crate::history::History;
use crate::lsns::Lsns;
use crate::op::Op;
use crate::recovery::{recover, recover_hard};
use crate::rng::Rng;
use crate::session::BySession;
use crate::text::panic_text;
use crate::walk::{Walk, walk};
use crate::workload::{Profile, Workload, runs_full};
use shoal::raw::{Code, Compression, Error, Ino, Local, MkfsOptions, OpenOptions, Volume, mkfs_on};
use shoal_device::Device;
use shoal_session::fuzzing::in_one_thread;
use shoal_session::{Calls, Host};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Volume and device of a run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of the device.
    pub capacity: u64,
    /// How the volume is made.
    pub mkfs: MkfsOptions,
    /// How it is opened.
    pub open: OpenOptions,
    /// Images examined at each crash.
    pub images: u64,
    /// Keep every state in full, to explain a failure.
    pub explain: bool,
    /// The volume is to run full: refusals are looked into, and at the end everything is removed
    /// and the space used again.
    pub full: bool,
    /// The device lies about flushes (see [`FaultyDevice::lying`]).
    pub lying: bool,
    /// Batches most of all, where a device fails (`faults`, `silent`).
    pub batches: bool,
    /// The subvolumes' tops have a quota without limits, from the beginning or from a reopening on.
    pub quotas: bool,
    /// The calls are made by a session, all that it can make ([`crate::session`]).
    pub sessions: bool,
}

impl Settings {
    /// Small, deterministic, one MiB segments: the base of all simulation.
    pub fn small(capacity: u64) -> Settings {
        let mkfs = MkfsOptions {
            size: capacity,
            segment_size: 1 << 20,
            root_mode: 0o777,
            // Names are hashed by it: a run must not depend on chance.
            id: Some([0x5e; 16]),
            ..MkfsOptions::default()
        };
        let open = OpenOptions {
            cache_bytes: 16 << 20,
            // Never by the clock: a run must not depend on how fast it runs.
            commit_interval_ms: 1 << 40,
            background: false,
            noatime: true,
            ..OpenOptions::default()
        };
        Settings {
            capacity,
            mkfs,
            open,
            images: 4,
            explain: false,
            full: false,
            lying: false,
            batches: false,
            quotas: false,
            sessions: false,
        }
    }

    /// Those of a seed for a profile that was asked for.
    pub fn of_profile(seed: u64, profile: &Profile) -> Settings {
        let mut settings = Settings::of_seed(seed);
        if profile.name == "adversary" && !settings.full {
            // Room for its ranges; cleaning and refusals are the business of others.
            settings.capacity = 256 << 20;
            settings.mkfs.size = settings.capacity;
        }
        settings
    }

    /// Those of a seed: size, inode size, cache and checkpoint distance vary.
    pub fn of_seed(seed: u64) -> Settings {
        let mut rng = Rng::new(seed).fork(2);
        let mut settings = Settings::small(*rng.pick(&[32, 64, 96, 128]) << 20);
        settings.mkfs.inode_size = *rng.pick(&[256, 512, 512, 1024, 2048]);
        settings.open.checkpoint_bytes = *rng.pick(&[0, 64 << 10, 256 << 10, 1 << 20]);
        settings.open.cache_bytes = *rng.pick(&[4 << 20, 16 << 20, 64 << 20]);
        // Some without the shortcut: every change of an attribute or parent pointer by an intent.
        settings.open.lab.attr_intents = rng.chance(25);
        settings.open.lab.attr_intents_flushed = rng.chance(60);
        // Small: truncates, frees and removals of trees take many transactions.
        settings.open.lab.step_records = *rng.pick(&[1, 2, 5, 64, 2048]);
        // From a draw of its own: what else a seed does stays as it was.
        let zstd = Compression::zstd(1).unwrap_or_default();
        let codecs = [Compression::NONE, Compression::NONE, Compression::LZ4, zstd];
        settings.mkfs.compression = *Rng::new(seed).fork(12).pick(&codecs);
        settings.quotas = Rng::new(seed).fork(19).chance(50);
        let id = Rng::new(seed).fork(20).next();
        settings.mkfs.id = Some(std::array::from_fn(|i| id.to_le_bytes()[i % 8]));
        if runs_full(seed) {
            settings.full = true;
            settings.capacity = *rng.pick(&[16, 16, 20, 24, 32]) << 20;
            settings.mkfs.size = settings.capacity;
        }
        settings
    }
}

impl Settings {
    /// The operations of a seed on a device that fails, without crashes.
    pub(crate) fn workload(&self, seed: u64) -> Workload {
        let workload = match self.batches {
            true => Workload::with_profile(seed, "batches").with_batches(seed),
            false => Workload::new(seed),
        };
        workload.without_crashes()
    }
}

counts! {
    /// Counts of a run.
    pub struct Report {
        /// Operations done.
        pub steps: u64,
        /// Operations that made no sense when their turn came.
        pub skipped: u64,
        /// Operations refused for lack of space.
        pub refused: u64,
        /// Operations refused for lack of memory.
        pub unserved: u64,
        /// Calls that a session has made.
        pub by_session: u64,
        /// Crashes.
        pub crashes: u64,
        /// Volumes closed, on a bucket.
        pub closed: u64,
        /// Changes of the weather of a store.
        pub weathers: u64,
        /// Openings that failed because of the weather.
        pub kept_out: u64,
        /// Calls that a thread which must not wait has made while a store hung.
        pub at_once: u64,
        /// Those that it has left to a thread that may wait.
        pub left: u64,
        /// Damaged objects examined.
        pub damaged: u64,
        /// Calls that ended with the error of one.
        pub reported: u64,
        /// Crash images examined.
        pub images: u64,
        /// Intents that recoveries completed.
        pub intents: u64,
        /// Writes, flushes and discards of the device, or requests to the store.
        pub device_ops: u64,
    }
}

/// A run that found something wrong.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Description of the violation.
    pub message: String,
    /// The operations up to and including the one at which it showed.
    pub ops: Vec<Op>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{}", self.message)?;
        for (i, op) in self.ops.iter().enumerate() {
            writeln!(f, "  {:4}  {op}", i + 1)?;
        }
        Ok(())
    }
}

/// Runs `count` operations of a seed.
pub fn run(seed: u64, count: usize) -> Result<Report, Failure> {
    run_from(&Settings::of_seed(seed), Workload::new(seed), count)
}

/// The same with batches, and with allocations refused now and then: for processes that do nothing
/// else, whose reserve of memory it is.
pub fn run_short_of_memory(seed: u64, count: usize) -> Result<Report, Failure> {
    let workload = Workload::new(seed).with_refusals(seed).with_batches(seed);
    let workload = workload.with_tree_changes(seed);
    run_from(&Settings::of_seed(seed), workload, count)
}

/// The same with a profile of one's choice.
pub fn run_profile(seed: u64, profile: &Profile, count: usize) -> Result<Report, Failure> {
    let workload = Workload::with_profile(seed, profile.name);
    let workload = workload.with_refusals(seed).with_batches(seed).with_tree_changes(seed);
    run_from(&Settings::of_profile(seed, profile), workload, count)
}

/// The same by sessions; with the profile that the seed draws if there is none.
pub fn run_by_session(
    seed: u64,
    profile: Option<&Profile>,
    count: usize,
) -> Result<Report, Failure> {
    let settings = match profile {
        Some(profile) => Settings::of_profile(seed, profile),
        None => Settings::of_seed(seed),
    };
    let workload = match profile {
        Some(profile) => Workload::with_profile(seed, profile.name),
        None => Workload::new(seed),
    };
    let workload = workload.with_refusals(seed).with_batches(seed).with_tree_changes(seed);
    run_from(&Settings { sessions: true, ..settings }, workload, count)
}

/// Runs the operations of a list.
pub fn run_list(settings: &Settings, ops: &[Op]) -> Result<Report, Failure> {
    run_from(settings, ops.iter().cloned(), ops.len())
}

/// Runs up to `count` operations, and reads everything at the end. Panics count as failures.
pub fn run_from(
    settings: &Settings,
    generator: impl Generator,
    count: usize,
) -> Result<Report, Failure> {
    let mut done = Vec::new();
    let ran = catch_unwind(AssertUnwindSafe(|| drive(settings, generator, count, &mut done)));
    let result = match ran {
        Ok(result) => result,
        Err(panic) => Err(format!("panic: {}", panic_text(&*panic))),
    };
    result.map_err(|message| Failure { message, ops: done })
}

fn drive(
    settings: &Settings,
    mut generator: impl Generator,
    count: usize,
    done: &mut Vec<Op>,
) -> Result<Report, String> {
    let mut sim = Sim::new(settings)?;
    for _ in 0..count {
        let Some(op) = generator.draw(&sim.run) else { break };
        done.push(op.clone());
        sim.step(&op)?;
    }
    sim.finish()
}

/// A volume whose only session is the run's.
struct Alone(Local);

impl Host for Alone {
    fn calls(&self) -> &dyn Calls {
        &self.0
    }
    fn may_enter(&self, _: u32) -> bool {
        true
    }
}

/// A run in progress.
pub struct Sim {
    settings: Settings,
    device: Arc<FaultyDevice>,
    volume: Option<Arc<Volume>>,
    /// The model, in lockstep.
    pub run: Lockstep,
    history: History,
    lsns: Lsns,
    report: Report,
}

impl Sim {
    /// A fresh volume.
    pub fn new(settings: &Settings) -> Result<Sim, String> {
        let mut device = FaultyDevice::new(settings.capacity);
        if settings.lying {
            device = device.lying();
        }
        let device = Arc::new(device);
        mkfs_on(Arc::clone(&device) as Arc<dyn Device>, &settings.mkfs)
            .map_err(|e| format!("mkfs: {e}"))?;
        let volume = open(&device, settings)?;
        if settings.quotas {
            toggle_quotas(&volume)?;
        }
        let run = Lockstep::new(&volume, Ino::ROOT)?;
        let history = History::new(device.position(), &run.model, settings.explain);
        let lsns = Lsns::new(&volume, &run.model)?;
        let settings = settings.clone();
        let report = Report::default();
        let mut sim = Sim { settings, device, volume: None, run, history, lsns, report };
        sim.serve(volume)?;
        Ok(sim)
    }

    /// Goes on with this volume, by a session if they are wanted.
    fn serve(&mut self, volume: Volume) -> Result<(), String> {
        let volume = Arc::new(volume);
        if self.settings.sessions {
            let host = Arc::new(Alone(Local::new(volume.clone())));
            let session = in_one_thread(host).map_err(|e| format!("session: {e}"))?;
            self.run.session = Some(Arc::new(BySession::new(session)));
        }
        self.volume = Some(volume);
        Ok(())
    }

    /// Ends the session, if there is one, and takes the volume.
    fn take_volume(&mut self) -> Volume {
        if let Some(session) = self.run.session.take() {
            self.report.by_session += session.made();
        }
        let volume = self.volume.take().expect("open between steps");
        Arc::into_inner(volume).expect("nobody else has it")
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("open between steps")
    }

    /// One operation.
    pub fn step(&mut self, op: &Op) -> Result<(), String> {
        self.report.steps += 1;
        match op {
            Op::Crash { seed } => return self.crash(*seed),
            Op::Reopen { release } => return self.reopen(*release),
            Op::NoMemory(refusal) => {
                self.run.refusal = Some(*refusal);
                return Ok(());
            }
            _ => {}
        }
        self.history.begin_of(op, &self.run, self.device.position());
        let step = self.run.step(self.volume.as_ref().expect("open"), op)?;
        match step {
            Step::Done => {}
            Step::Skipped => self.report.skipped += 1,
            Step::Refused(error) if error.is(Code::NoMemory) => {
                self.report.unserved += 1;
                if matches!(op, Op::Fallocate { .. }) {
                    self.run.adopt_beginning(op, &walk(self.volume(), Ino::ROOT, true)?.state);
                }
                self.compare_shown(&format!("after {op} had no memory"))?;
            }
            Step::Refused(error) => self.judge_refusal(op, &error)?,
        }
        let durable = make_durable(self.volume(), &self.run, op);
        self.history.end_of(op, &self.run.model);
        let volume = self.volume.as_ref().expect("open");
        self.lsns.end(volume, self.run.model.touched().map(|(ino, _)| ino))?;
        match durable.map_err(|e| format!("{op}: {e}"))? {
            None => {}
            Some(Ack::All) => self.history.acknowledge_all(self.device.position()),
            Some(Ack::Inode(ino)) => self.history.acknowledge(self.device.position(), ino),
        }
        Ok(())
    }

    /// Power loss: `images` crashes at random moments since the last one, then one right now, from
    /// which the run continues.
    fn crash(&mut self, seed: u64) -> Result<(), String> {
        let mut rng = Rng::new(seed);
        self.report.crashes += 1;
        let mut crashes = self.device.crashes(rng.next());
        self.report.device_ops += crashes.last();
        drop(self.take_volume());
        let first = self.history.first_position();
        let last = crashes.last();
        let mut moments: Vec<u64> =
            (1..self.settings.images).map(|_| rng.range(first, last)).collect();
        moments.sort_unstable();
        for position in moments {
            let image = crashes.image_at(position, rng.next());
            self.examine(image, position, &mut rng, false)?;
        }
        let image = crashes.image_at(last, rng.next());
        let recovered = self.examine(image, last, &mut rng, true)?;
        if recovered.volume.info().recovery.orphans > 0 {
            // What recovery has completed would be completed once more after another crash, with
            // other change times. `recover_hard` looks at that.
            recovered.volume.sync().map_err(|e| format!("sync after a recovery: {e}"))?;
        }
        self.device = recovered.device;
        self.run = Lockstep::of(recovered.walk.model());
        self.serve(recovered.volume)?;
        let position = self.device.position();
        self.history = History::new(position, &self.run.model, self.settings.explain);
        self.lsns = Lsns::new(self.volume(), &self.run.model)?;
        Ok(())
    }

    /// Recovers one image and finds its state among the permitted.
    fn examine(
        &mut self,
        image: crate::image::Image,
        position: u64,
        rng: &mut Rng,
        hard: bool,
    ) -> Result<crate::recovery::Recovered, String> {
        self.report.images += 1;
        let permitted = self.history.permitted(position);
        let context = |e| format!("crash after device operation {position}: {e}");
        let recovered = if hard {
            recover_hard(image, &self.settings.open, rng)
        } else {
            recover(image, &self.settings.open)
        };
        let recovered = recovered.map_err(context)?;
        self.report.intents += recovered.volume.info().recovery.intents;
        let state = &recovered.walk.state;
        let mut wrong = None;
        // The table of quotas is in the top directory, and changed by an open.
        let changed = (self.settings.quotas).then_some(Ino::ROOT);
        for k in self.history.find_all(state, permitted.clone()) {
            let inos = state.nodes.keys().copied().filter(|ino| Some(*ino) != changed);
            wrong = Some(self.lsns.differ(&recovered.volume, inos, k));
            if wrong == Some(Ok(())) {
                break;
            }
        }
        wrong.unwrap_or_else(|| Err(self.history.explain(state, permitted))).map_err(context)?;
        if !hard {
            // Of this image nothing more is wanted.
            checks::deleted_roots_can_be_freed(&recovered.volume, &recovered.walk)
                .map_err(context)?;
        }
        Ok(recovered)
    }

    /// Examines a crash at every device operation so far, `each` times; returns how many.
    pub fn crash_everywhere(&mut self, each: u64, seed: u64) -> Result<u64, String> {
        let mut rng = Rng::new(seed);
        let mut crashes = self.device.crashes(rng.next());
        let mut examined = 0;
        for position in self.history.first_position()..=crashes.last() {
            for _ in 0..each {
                let image = crashes.image_at(position, rng.next());
                self.examine(image, position, &mut rng, false)?;
                examined += 1;
            }
        }
        Ok(examined)
    }

    fn compare_whole(&self, when: &str) -> Result<(), String> {
        let found = self.compare_shown(when)?;
        checks::all(self.volume(), &found).map_err(|e| format!("{when}: {e}"))
    }

    fn compare_shown(&self, when: &str) -> Result<Walk, String> {
        let found = walk(self.volume(), Ino::ROOT, true)?;
        if found.digest() != self.run.model.digest() {
            let lines = crate::model::diff(&self.run.model.state(), &found.state, 12);
            return Err(format!("{when}, volume and model differ:\n    {}", lines.join("\n    ")));
        }
        Ok(found)
    }

    /// The end of a run: nothing is held any more; everything is read and compared, before and
    /// after a last clean close.
    pub fn finish(mut self) -> Result<Report, String> {
        for slot in 0..self.run.slots.len() {
            if self.run.slots[slot].is_some() {
                self.step(&Op::Close { slot })?;
            }
        }
        self.compare_whole("at the end")?;
        self.run.look_by_session().map_err(|e| format!("at the end, by a session: {e}"))?;
        self.step(&Op::Checkpoint)?;
        checks::nothing_waits_to_be_freed(self.volume())?;
        match self.volume().info().pinned_bytes {
            0 => {}
            n => return Err(format!("{n} bytes are pinned, and nothing is held")),
        }
        self.step(&Op::Reap { slices: 0 })?;
        if let Some(left) = self.volume().subvolumes().list().iter().find(|root| root.deleted) {
            return Err(format!("root {} is left at the end: {} inodes", left.id, left.inodes));
        }
        self.reopen(false)?;
        if self.settings.full {
            self.empty_and_use_again()?;
        }
        self.report.device_ops += self.device.position();
        self.take_volume().close().map_err(|e| format!("close: {e}"))?;
        Ok(self.report)
    }
}

/// Changes that an operation acknowledges as durable.
pub enum Ack {
    /// All that was done before.
    All,
    /// All up to the newest change of this inode.
    Inode(Ino),
}

/// The part of an operation that the model has no opinion on: makes durable what it asks for.
pub fn make_durable(volume: &Volume, run: &Lockstep, op: &Op) -> Result<Option<Ack>, Error> {
    if let Some(session) = &run.session
        && is_there(run, op)
        && session.make_durable(op)?
    {
        return Ok(match op {
            Op::Fsync { file, .. } => run.resolve(file).map(Ack::Inode),
            _ => Some(Ack::All),
        });
    }
    match op {
        Op::Fsync { file, datasync } => match run.resolve(file) {
            None => Ok(None),
            Some(ino) if run.model.node(ino).is_none() => {
                match volume.files().fsync(ino, *datasync) {
                    Err(error) if error.is(Code::Stale) => Ok(None),
                    other => other.and(Err(Error::corrupt("fsync", None, "inode is gone"))),
                }
            }
            Some(ino) => volume.files().fsync(ino, *datasync).map(|()| Some(Ack::Inode(ino))),
        },
        Op::Sync => volume.sync().map(|()| Some(Ack::All)),
        Op::Checkpoint => volume.maintenance().checkpoint().map(|()| Some(Ack::All)),
        _ => Ok(None),
    }
}

/// Returns whether the inodes that an operation names are there.
fn is_there(run: &Lockstep, op: &Op) -> bool {
    let inos = run.resolve_all(op);
    inos.is_some_and(|inos| inos.iter().all(|ino| run.model.node(*ino).is_some()))
}

fn open(device: &Arc<FaultyDevice>, settings: &Settings) -> Result<Volume, String> {
    Volume::open_on(Arc::clone(device) as Arc<dyn Device>, &settings.open)
        .map_err(|e| format!("open: {e}"))
}
