//! One sequence: run in lockstep with the model while the device records, then crashed after every
//! device operation.

use super::actions::Action;
use super::images::Moments;
pub use super::judge::Counts;
use super::judge::Judge;
use super::sequence::{Only, Sequence};
use super::start::{Start, open, opening};
use crate::device::FaultyDevice;
use crate::exec::{Lockstep, Step};
use crate::history::History;
use crate::op::Op;
use crate::rng::Rng;
use crate::runner::{Ack, make_durable};
use crate::text::panic_text;
use shoal::raw::Volume;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Something is wrong with the volume.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Place: a crash point, or without one the run itself.
    pub only: Only,
    /// Description of the difference.
    pub message: String,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Only { sequence, at } = &self.only;
        let at = at.map_or(String::new(), |at| format!("@{at}"));
        write!(f, "{sequence}{at}: {}\n{}", self.message, sequence.program())
    }
}

/// Which crash points of a sequence to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Points {
    /// None: only run it.
    None,
    /// The new ones.
    New,
    /// All.
    All,
    /// This one.
    One(u64),
}

/// Runs `sequence` and crashes it at `points`. A panic is a violation.
pub fn explore(
    start: &Start,
    actions: &[Action],
    sequence: &Sequence,
    points: Points,
) -> Result<Counts, Violation> {
    let mut at = None;
    let explored = catch_unwind(AssertUnwindSafe(|| {
        let done = Done::new(start, actions, sequence, matches!(points, Points::One(_)))?;
        done.crash(points, &mut at)
    }));
    let explored = match explored {
        Ok(explored) => explored,
        Err(panic) => Err(format!("panic: {}", panic_text(&*panic))),
    };
    explored.map_err(|message| Violation { only: Only { sequence: sequence.clone(), at }, message })
}

/// A sequence that was run.
struct Done<'a> {
    start: &'a Start,
    device: Arc<FaultyDevice>,
    volume: Volume,
    run: Lockstep,
    history: History,
    seed: u64,
    /// Device position at which the last operation began.
    last_began: u64,
    /// The newest state that was acknowledged then.
    floor: usize,
}

impl<'a> Done<'a> {
    /// Runs it. With `explain`, whole states are kept.
    fn new(
        start: &'a Start,
        actions: &[Action],
        sequence: &Sequence,
        explain: bool,
    ) -> Result<Done<'a>, String> {
        let device = start.device();
        let volume = open(&device, &start.settings)?;
        let mut run = start.run.clone();
        run.step(&volume, &opening())?;
        let last_began = device.position();
        let history = History::new(last_began, &run.model, explain);
        let seed = sequence.seed();
        let mut done = Done { start, device, volume, run, history, seed, last_began, floor: 0 };
        for step in &sequence.0 {
            done.last_began = done.device.position();
            done.floor = *done.history.permitted(done.last_began).start();
            let action = &actions[step.action];
            for op in action.ops.iter().cloned().chain(step.durable.op(action)) {
                done.step(&op)?;
            }
        }
        Ok(done)
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        self.history.begin(self.device.position());
        if let Step::Refused(error) = self.run.step(&self.volume, op)? {
            return Err(format!("{op}: {error}"));
        }
        let durable = make_durable(&self.volume, &self.run, op);
        self.history.end(&self.run.model);
        let position = self.device.position();
        match durable.map_err(|e| format!("{op}: {e}"))? {
            None => {}
            Some(Ack::All) => self.history.acknowledge_all(position),
            Some(Ack::Inode(ino)) => self.history.acknowledge(position, ino),
        }
        Ok(())
    }

    /// Crashes it. `at` tells which crash point is being looked at.
    fn crash(self, points: Points, at: &mut Option<u64>) -> Result<Counts, String> {
        let Done { start, device, volume, history, seed, last_began, floor, .. } = self;
        let (base, log) = device.recorded();
        drop(volume);
        let mut moments = Moments::new(base, log);
        let mut judge = Judge::new(start, &history);
        let first = history.first_position();
        // Acknowledged without touching the device: that must be true there and then.
        let promised = *history.permitted(last_began).start() > floor;
        let mut position = 0;
        loop {
            let new = position > last_began || (position == last_began && promised);
            let counted = position > first || (position == first && new);
            judge.counts.pairs += u64::from(counted);
            judge.counts.new_pairs += u64::from(counted && new);
            let wanted = match points {
                Points::None => false,
                Points::New => new,
                Points::All => true,
                Points::One(one) => one + first == position,
            };
            if counted && wanted {
                *at = Some(position - first);
                let mut rng = Rng::new(seed).fork(position - first);
                for candidate in moments.candidates(&mut rng) {
                    let kind = candidate.kind;
                    judge
                        .examine(candidate, position, &mut rng)
                        .map_err(|e| format!("image {kind:?}: {e}"))?;
                }
            }
            if !moments.advance() {
                break;
            }
            position += 1;
        }
        *at = None;
        Ok(judge.counts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::actions::all;
    use super::super::start::Mode;
    use super::*;

    /// An fsync that forgets to write leaves no device operation to crash after.
    #[test]
    fn what_is_acknowledged_without_a_device_operation_is_judged() {
        let start = Start::new(Mode::Plain.settings()).unwrap();
        let only: Only = "0n".parse().unwrap();
        let run = || Done::new(&start, &all(), &only.sequence, true).unwrap();
        let counts = run().crash(Points::New, &mut None).unwrap();
        assert_eq!((counts.sequences, counts.pairs), (1, 0), "nothing was written");
        let mut forgetful = run();
        let position = forgetful.device.position();
        forgetful.history.acknowledge_all(position);
        let mut at = None;
        let message = forgetful.crash(Points::New, &mut at).unwrap_err();
        assert!(message.contains("it is state 0"), "{message}");
        assert_eq!(at, Some(0));
    }
}
