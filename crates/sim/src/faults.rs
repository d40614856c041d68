//! Runs in which the device fails. What must hold whatever fails, and whenever:
//!
//! * no panic, no hang; each call succeeds or returns an error;
//! * a call that returned an error has done everything or nothing. The removal of a tree has, when
//!   its name is gone: files with names elsewhere lose theirs inside it in steps behind the call
//!   (`engine/src/reap`), which a volume that has become read-only cannot take any more. Until the
//!   next session, which does, such a file may show a link too many, and none too few;
//! * after a failed flush the volume is read-only, with a reason, and refuses every change. What
//!   is read-only shows the same for ever;
//! * what was acknowledged before, during or after is there after the next recovery, and the
//!   recovered state is one that there was.

use crate::device::{Fault, FaultyDevice, Kind};
use crate::exec::{Lockstep, Step, is_batch_limit, is_refusal};
use crate::history::History;
use crate::model::State;
use crate::op::Op;
use crate::recovery::recover;
use crate::rng::Rng;
use crate::runner::{Ack, Settings, make_durable};
use crate::text::panic_text;
use crate::walk::walk;
use crate::wrongs::Silent;
use shoal::raw::{Code, Error, Ino, Volume, mkfs_on};
use shoal_device::Device;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Outcome of a run with a failing device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Operations of the device that failed; 0: the run was over before the fault's turn came.
    pub failures: u64,
    /// Calls that returned an error because of it.
    pub errors: u64,
    /// The volume became read-only.
    pub read_only: bool,
}

/// Failure of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Injury {
    /// An operation fails, and says so.
    Fails(Fault),
    /// A read returns other bytes. (Wrong writes are not for here: [`crate::silent::run`].)
    Silent(Silent),
}

/// Runs `count` operations of a seed with `injury` armed after the volume was opened.
pub fn run_with(
    settings: &Settings,
    seed: u64,
    count: usize,
    injury: Injury,
) -> Result<Outcome, String> {
    let ran = catch_unwind(AssertUnwindSafe(|| drive(settings, seed, count, injury)));
    ran.unwrap_or_else(|panic| Err(format!("panic: {}", panic_text(&*panic))))
}

fn drive(settings: &Settings, seed: u64, count: usize, injury: Injury) -> Result<Outcome, String> {
    let device = Arc::new(FaultyDevice::new(settings.capacity));
    mkfs_on(Arc::clone(&device) as Arc<dyn Device>, &settings.mkfs)
        .map_err(|e| format!("mkfs: {e}"))?;
    let volume = Volume::open_on(Arc::clone(&device) as Arc<dyn Device>, &settings.open)
        .map_err(|e| format!("open: {e}"))?;
    let run = Lockstep::new(&volume, Ino::ROOT)?;
    let history = History::new(device.position(), &run.model, settings.explain);
    let outcome = Outcome::default();
    let flushes_fail = matches!(injury, Injury::Fails(fault) if fault.on == Kind::Flush);
    let mut failing = Failing { device, volume, run, history, outcome, flushes_fail };
    let mut workload = settings.workload(seed);
    match injury {
        Injury::Fails(fault) => failing.device.inject(fault),
        Injury::Silent(silent) => failing.device.inject_silent(silent),
    }
    for i in 0..count {
        let op = workload.next(&failing.run);
        let clear = failing.step(&op).map_err(|e| format!("operation {}: {op}: {e}", i + 1))?;
        if !clear {
            break;
        }
    }
    failing.finish(settings, seed)
}

struct Failing {
    device: Arc<FaultyDevice>,
    volume: Volume,
    run: Lockstep,
    history: History,
    outcome: Outcome,
    flushes_fail: bool,
}

impl Failing {
    /// One operation; `false` when the volume can no longer be read well enough to go on.
    fn step(&mut self, op: &Op) -> Result<bool, String> {
        let failed_before = self.device.counts().failed;
        self.history.begin(self.device.position());
        let before = self.run.clone();
        let (frozen, digest) = (self.volume.read_only_reason(), before.model.digest());
        let step = self.run.step(&self.volume, op);
        let struck = self.device.counts().failed > failed_before;
        let clear = match step {
            Ok(Step::Refused(error)) => {
                self.outcome.errors += 1;
                self.judge(op, &error)?;
                self.reconcile(op, before)?
            }
            // The comparison itself met the fault.
            Err(_) if struck => self.reconcile(op, before)?,
            Err(wrong) => return Err(wrong),
            Ok(_) => true,
        };
        if let Some(reason) = frozen
            && self.run.model.digest() != digest
        {
            return Err(format!("changes a volume that is read-only: {reason}"));
        }
        let durable = make_durable(&self.volume, &self.run, op);
        self.history.end_of(op, &self.run.model);
        let position = self.device.position();
        match durable {
            Ok(None) => {}
            Ok(Some(Ack::All)) => self.history.acknowledge_all(position),
            Ok(Some(Ack::Inode(ino))) => self.history.acknowledge(position, ino),
            Err(error) => {
                self.outcome.errors += 1;
                self.judge(op, &error)?;
            }
        }
        Ok(clear)
    }

    /// An error must have a cause.
    fn judge(&mut self, op: &Op, error: &Error) -> Result<(), String> {
        let failures = self.device.counts().failed;
        if failures == 0 && error.code() != Code::NoSpace && !is_batch_limit(op, error) {
            return Err(format!("{op} fails although the device did not: {error}"));
        }
        if !is_refusal(error) {
            return Err(format!("{op} fails with an unlikely error: {error}"));
        }
        Ok(())
    }

    /// After an error: the operation must have been done, or not at all. `false`: reads fail for
    /// good.
    fn reconcile(&mut self, op: &Op, before: Lockstep) -> Result<bool, String> {
        self.run = before;
        let failed_before = self.device.counts().failed;
        let (found, clear) = match walk(&self.volume, Ino::ROOT, true) {
            Ok(found) => (found, true),
            // Reads fail for good: the run ends here, and what the call did shows without faults.
            Err(_) if self.device.counts().failed > failed_before => {
                self.device.heal();
                (walk(&self.volume, Ino::ROOT, true)?, false)
            }
            Err(wrong) => return Err(wrong),
        };
        self.run.model.begin();
        if found.digest() == self.run.model.digest() {
            return Ok(clear);
        }
        if let Some(after) = self.run.after(op, &found.state) {
            self.run = after;
            return Ok(clear);
        }
        match self.tree_removed(op, &found.state) {
            // What is left of it comes with the next session: nothing can be compared before.
            Some(after) => {
                self.run = after;
                Ok(false)
            }
            None => {
                let lines = crate::model::diff(&self.run.model.state(), &found.state, 8);
                Err(format!("half done: {}", lines.join("; ")))
            }
        }
    }

    /// The run after the removal of a tree, if `found` shows that but for links that files with
    /// names elsewhere have not lost yet.
    fn tree_removed(&self, op: &Op, found: &State) -> Option<Lockstep> {
        if !matches!(op, Op::RemoveTree { .. }) {
            return None;
        }
        let (mut after, mut found) = (self.run.clone(), found.clone());
        after.replay(op, None)?.ok()?;
        for (ino, _) in after.model.touched() {
            let links = |run: &Lockstep| run.model.node(ino).map(|node| node.nlink);
            if let (Some(least), Some(most)) = (links(&after), links(&self.run))
                && let Some(seen) = found.nodes.get_mut(&ino)
                && (least..=most).contains(&seen.nlink)
            {
                seen.nlink = least;
            }
        }
        self.run.after(op, &found)
    }

    fn finish(mut self, settings: &Settings, seed: u64) -> Result<Outcome, String> {
        self.outcome.failures = self.device.counts().failed;
        self.outcome.read_only = self.volume.read_only_reason().is_some();
        if self.outcome.failures == 0 && self.outcome.read_only {
            return Err("read-only although nothing failed".into());
        }
        if self.flushes_fail && self.outcome.failures > 0 && !self.outcome.read_only {
            return Err("a flush failed, but the volume is not read-only".into());
        }
        self.device.heal();
        let mut rng = Rng::new(seed).fork(3);
        for _ in 0..3 {
            let (position, image) = self.device.crash_now(rng.next());
            self.recovers(image, position, settings, "after a crash")?;
        }
        let closed = self.volume.close();
        if self.outcome.read_only && closed.is_ok() && self.outcome.errors == 0 {
            return Err("a failed volume closes as if nothing had happened".into());
        }
        if closed.is_ok() && !self.outcome.read_only {
            self.history.acknowledge_all(self.device.position());
        }
        let (image, position) = (self.device.image(), self.device.position());
        let recovered = recover(image, &settings.open).map_err(|e| format!("after closing: {e}"));
        permitted(&self.history, position, &recovered?, "after closing")?;
        Ok(self.outcome)
    }

    fn recovers(
        &self,
        image: crate::image::Image,
        position: u64,
        settings: &Settings,
        when: &str,
    ) -> Result<(), String> {
        let recovered = recover(image, &settings.open).map_err(|e| format!("{when}: {e}"))?;
        permitted(&self.history, position, &recovered, when)
    }
}

fn permitted(
    history: &History,
    position: u64,
    recovered: &crate::recovery::Recovered,
    when: &str,
) -> Result<(), String> {
    let range = history.permitted(position);
    match history.find(&recovered.walk.state, range.clone()) {
        Some(_) => Ok(()),
        None => Err(format!("{when}: {}", history.explain(&recovered.walk.state, range))),
    }
}
