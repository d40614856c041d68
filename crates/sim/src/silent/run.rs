//! Runs in which one write of the device goes wrong without a word (point 5 of the contract at the
//! head of `device.rs`). What must hold whichever it is:
//!
//! * no panic, no hang; a call succeeds, or returns an error once the wrong has been done;
//! * the volume as it runs shows what the model says, or an error;
//! * after a crash, and after closing, the volume is refused with a reason; or opens and shows what
//!   there was, or errors. When nothing complains, it is in a state that there was;
//! * the check finds what reading meets;
//! * a repair leaves nothing but lost contents for a second one, and invents nothing.

use super::{Facts, Shown, Silent, look};
use crate::damage::{OF_CONTENTS, open, use_it};
use crate::device::FaultyDevice;
use crate::exec::{Lockstep, Step, is_batch_limit};
use crate::history::History;
use crate::image::Image;
use crate::op::Op;
use crate::rng::Rng;
use crate::runner::{Settings, make_durable};
use crate::text::panic_text;
use shoal::raw::{Code, Ino, OpenOptions, RepairReport, Volume, mkfs_on};
use shoal_device::Device;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Outcome of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// A write went wrong; else the run was over before its turn came.
    pub struck: bool,
    /// Images looked at, and what came of them: refused, read with errors or complaints, nothing to
    /// be seen.
    pub images: u64,
    /// Refused with a reason.
    pub refused: u64,
    /// Opened, and reading or the check said that something is wrong.
    pub reported: u64,
    /// Repaired.
    pub repaired: u64,
}

impl std::ops::AddAssign for Outcome {
    fn add_assign(&mut self, other: Outcome) {
        self.struck |= other.struck;
        self.images += other.images;
        self.refused += other.refused;
        self.reported += other.reported;
        self.repaired += other.repaired;
    }
}

/// Runs `count` operations of a seed, one write of which goes wrong after the volume was opened.
pub fn run(settings: &Settings, seed: u64, count: usize, wrong: Silent) -> Result<Outcome, String> {
    let ran = catch_unwind(AssertUnwindSafe(|| drive(settings, seed, count, wrong)));
    ran.unwrap_or_else(|panic| Err(format!("panic: {}", panic_text(&*panic))))
}

fn drive(settings: &Settings, seed: u64, count: usize, wrong: Silent) -> Result<Outcome, String> {
    let device = Arc::new(FaultyDevice::new(settings.capacity));
    mkfs_on(Arc::clone(&device) as Arc<dyn Device>, &settings.mkfs)
        .map_err(|e| format!("mkfs: {e}"))?;
    let volume = open(&device, &settings.open).map_err(|e| format!("open: {e}"))?;
    let run = Lockstep::new(&volume, Ino::ROOT)?;
    let history = History::new(device.position(), &run.model, settings.explain);
    let mut facts = Facts::default();
    facts.learn_one(&run.model, Ino::ROOT);
    let judge = Judge { history, facts, open: settings.open.clone(), last: None };
    let mut betrayed = Betrayed { device, volume, run, judge };
    let mut workload = settings.workload(seed);
    betrayed.device.inject_silent(wrong);
    for i in 0..count {
        let op = workload.next(&betrayed.run);
        if !betrayed.step(&op).map_err(|e| format!("operation {}: {op}: {e}", i + 1))? {
            break;
        }
    }
    betrayed.finish(seed)
}

/// A run in progress.
struct Betrayed {
    device: Arc<FaultyDevice>,
    volume: Volume,
    run: Lockstep,
    judge: Judge,
}

impl Betrayed {
    fn struck(&self) -> bool {
        self.device.counts().silent > 0
    }

    /// One operation; `false` when the run ends with it, because it is not known what it has done.
    fn step(&mut self, op: &Op) -> Result<bool, String> {
        self.judge.history.begin(self.device.position());
        let before = self.run.clone();
        let stepped = self.run.step(&self.volume, op);
        let known = match stepped {
            Ok(Step::Refused(error)) => {
                let foreseen = error.code() == Code::NoSpace || is_batch_limit(op, &error);
                if !self.struck() && !foreseen {
                    return Err(format!("fails although the device did nothing: {error}"));
                }
                false
            }
            // The comparison itself met the damage.
            Err(wrong) if self.struck() && wrong.starts_with("getattr of inode") => false,
            other => other.map(|_| true)?,
        };
        if !known && !self.done_or_not(op, before)? {
            return Ok(false);
        }
        let durable = make_durable(&self.volume, &self.run, op);
        self.judge.history.end_of(op, &self.run.model);
        self.judge.facts.learn(&self.run.model);
        match durable {
            Ok(_) => Ok(true),
            Err(_) if self.struck() => Ok(true),
            Err(error) => Err(format!("fails although the device did nothing: {error}")),
        }
    }

    /// After an error: whether all can be read, and shows that the call was done or not.
    fn done_or_not(&mut self, op: &Op, before: Lockstep) -> Result<bool, String> {
        let found = look(&self.volume)?;
        self.run = before;
        self.run.model.begin();
        if found.errors.is_empty() && found.state.digest() == self.run.model.digest() {
            return Ok(true);
        }
        let after = self.run.after(op, &found.state);
        if found.errors.is_empty()
            && let Some(after) = after
        {
            self.run = after;
            return Ok(true);
        }
        // Some of it cannot be read: what there is belongs to one of the two.
        self.judge.history.end(&self.run.model);
        self.judge.learn_attempt(op, &self.run, &found);
        Ok(false)
    }

    fn finish(mut self, seed: u64) -> Result<Outcome, String> {
        let mut outcome = Outcome { struck: self.struck(), ..Outcome::default() };
        if !outcome.struck {
            return Ok(outcome);
        }
        self.as_it_runs()?;
        let mut rng = Rng::new(seed).fork(6);
        let mut images = vec![("when the process dies", self.device.image())];
        for _ in 0..2 {
            images.push(("after a crash", self.device.crash_now(rng.next()).1));
        }
        for slot in self.run.slots.iter().flatten() {
            self.volume.references().release(*slot, 1);
        }
        let _ = self.volume.close();
        self.run.model.drop_holds();
        self.judge.last = Some(self.run.model.digest());
        images.push(("after closing", self.device.image()));
        for (when, image) in images {
            outcome += self.judge.image(image).map_err(|e| format!("{when}: {e}"))?;
        }
        Ok(outcome)
    }

    /// The volume in use: what it shows is as the model says.
    fn as_it_runs(&self) -> Result<(), String> {
        let found = look(&self.volume).map_err(|e| format!("in use: {e}"))?;
        self.judge.nothing_invented(&found, "in use")?;
        if found.errors.is_empty() && self.judge.find(&found.state).is_none() {
            let lines = crate::model::diff(&self.run.model.state(), &found.state, 8);
            return Err(format!("in use, unnoticed: {}", lines.join("; ")));
        }
        Ok(())
    }
}

/// Record of all states and facts, which judges what is found later.
struct Judge {
    history: History,
    facts: Facts,
    open: OpenOptions,
    /// The state after closing.
    last: Option<u64>,
}

impl Judge {
    /// A call that failed may have been done all the same.
    fn learn_attempt(&mut self, op: &Op, before: &Lockstep, found: &Shown) {
        let mut run = before.clone();
        let place = match op {
            Op::RootCreate { name, .. } => Some((Ino::ROOT, name.clone())),
            _ => op.makes().and_then(|at| Some((run.resolve(&at.dir)?, at.name.clone()))),
        };
        let made = place.and_then(|place| found.state.entries.get(&place).copied());
        if run.replay(op, made.map(crate::exec::Answer::Node).as_ref()).is_some() {
            self.history.begin(0);
            self.history.end(&run.model);
            self.facts.learn(&run.model);
        }
    }

    fn find(&self, found: &crate::model::State) -> Option<()> {
        let known = self.history.find(found, 0..=self.history.len()).is_some();
        (known || self.last == Some(found.digest())).then_some(())
    }

    fn nothing_invented(&self, found: &Shown, when: &str) -> Result<(), String> {
        let known = self.facts.all_known(&found.state, &|_| false, &|_| false);
        known.map_err(|e| format!("{when}: {e}; errors met: {:?}", found.errors))
    }

    /// Opens an image, reads, checks, uses and repairs it.
    fn image(&self, image: Image) -> Result<Outcome, String> {
        let mut outcome = Outcome { images: 1, ..Outcome::default() };
        let device = Arc::new(FaultyDevice::from_image(image.clone()));
        match open(&device, &self.open) {
            Err(error) if error.to_string().contains('\n') => {
                return Err(format!("refused in more than one line: {error}"));
            }
            Err(_) => outcome.refused = 1,
            Ok(volume) => {
                outcome.reported = u64::from(self.opened(&volume)?);
                use_it(&volume);
            }
        }
        outcome.repaired = u64::from(self.repairs(image)?);
        Ok(outcome)
    }

    /// Returns whether anything complained.
    fn opened(&self, volume: &Volume) -> Result<bool, String> {
        let complaint = match volume.check(&mut |_, _| {}) {
            Ok(report) => report.problems.first().map(|p| p.message.clone()),
            Err(error) => Some(error.to_string()),
        };
        let found = look(volume)?;
        self.nothing_invented(&found, "opened")?;
        match (complaint, found.errors.first()) {
            (None, Some(error)) => {
                Err(format!("the check does not find what reading does: {error}"))
            }
            (None, None) if self.find(&found.state).is_none() => {
                let all = 0..=self.history.len();
                Err(format!("unnoticed: {}", self.history.explain(&found.state, all)))
            }
            (complaint, _) => Ok(complaint.is_some()),
        }
    }

    /// Repairs it; `false`: it cannot be, or had no need.
    fn repairs(&self, image: Image) -> Result<bool, String> {
        let device = Arc::new(FaultyDevice::from_image(image));
        let again = || {
            let device = Arc::clone(&device) as Arc<dyn Device>;
            Volume::repair_on(device, &self.open, &mut |_, _, _| {}, &mut |_| true)
        };
        let Ok(first) = again() else { return Ok(false) };
        if !first.found.is_empty() && !first.written {
            // Contents alone are damaged, or what leads to all the rest is.
            let lost = first.found.iter().any(|p| p.rule == "beyond-repair");
            return match lost || first.left == first.found {
                true => Ok(false),
                false => Err(format!("nothing written, found {:?}", first.found)),
            };
        }
        let rest: Vec<_> = first.left.iter().filter(|p| !OF_CONTENTS.contains(&p.rule)).collect();
        if !rest.is_empty() {
            return Err(format!("left: {rest:?}\nof {:#?}\nby {:#?}", first.found, first.actions));
        }
        let second = again().map_err(|e| format!("after a repair: {e}"))?;
        let rest: Vec<_> = second.found.iter().filter(|p| !OF_CONTENTS.contains(&p.rule)).collect();
        if !rest.is_empty() {
            return Err(format!("a second repair finds {rest:?}\nafter {:#?}", first.actions));
        }
        let volume = open(&device, &self.open).map_err(|e| format!("repaired, but: {e}"))?;
        let found = look(&volume).map_err(|e| format!("repaired, but: {e}"))?;
        self.nothing_added(&found, &first)?;
        use_it(&volume);
        Ok(first.written)
    }

    /// A repair brings back what there was, in `lost+found` if need be, and says what it changed.
    fn nothing_added(&self, found: &Shown, report: &RepairReport) -> Result<(), String> {
        let mut new = HashSet::new();
        let places = found.state.entries.iter().filter(|((_, name), _)| name == b"lost+found");
        new.extend(places.map(|(_, child)| *child));
        let said = |ino: Ino| {
            let named = |what: &str, message: &str| {
                let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
                message.split(&format!("{what} {ino}")).skip(1).any(ends)
            };
            let mut actions = report.actions.iter().map(|a| &a.message);
            actions.any(|message| named("inode", message) || named("directory", message))
        };
        let known = self.facts.all_known(&found.state, &said, &|ino| new.contains(&ino));
        known.map_err(|e| format!("repaired: {e}\nafter {:#?}", report.actions))
    }
}
