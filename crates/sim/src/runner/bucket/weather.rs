//! Weather of the store of a run: for some operations it refuses requests, has no room, or does not
//! answer, for less time than an owner waits.
//!
//! | weather | calls | what makes durable | opening |
//! | --- | --- | --- | --- |
//! | refused | as ever | waits | an error at once, before the store has answered |
//! | quota | `ENOSPC` if they need space, from the first flush on that was refused; removals go on | `ENOSPC`, nothing is lost | `ENOSPC` |
//! | hung | made as a mount does, by a thread that must not wait: it answers from memory, without a moment's wait, or changes nothing and leaves the call to a thread that waits | waits | an error after a few seconds |
//!
//! Afterwards everything is there, acknowledged or not, and the volume takes changes as before.

use super::Run;
use crate::exec::{Step, is_batch_limit};
use crate::model::diff;
use crate::op::Op;
use crate::runner::full::frees;
use crate::walk::walk;
use shoal::raw::{AtOnce, Code, Error, Ino, at_once};
use shoal_bucket::faulty::{Scope, Weather};
use shoal_device::Device;
use std::time::Duration;
use tokio::time::Instant;

/// Longest weather, in seconds. With the time that the transport waits for an answer, and pauses,
/// less than [`shoal_bucket::Limits::patience`].
const LASTS_MAX: u64 = 150;
/// Longest time without a call, in seconds.
const IDLE_MAX: u64 = 100;
/// Operations in one weather, at most.
const OPERATIONS_MAX: u64 = 16;
/// Time in which an owner that does nothing finds out that there is room again: half of the longest
/// lease, and a pause.
const FOUND_OUT: Duration = Duration::from_secs(40);

/// The weather of some operations.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    weather: Weather,
    lasts: Duration,
    /// Operations left.
    left: u64,
    /// From here on nothing has been read or written: everything is in memory.
    in_memory_at: Option<Instant>,
}

impl Run {
    /// Begins or ends weather, at times.
    pub(super) fn change_weather(&mut self) -> Result<(), String> {
        match &mut self.turn {
            Some(turn) if turn.left > 0 => {
                turn.left -= 1;
                Ok(())
            }
            Some(_) => self.end_weather(),
            None => {
                match self.rng.below(100) {
                    0..6 => return self.begin_weather(),
                    // Objects are collected, beats sent.
                    6..8 => self.device.idle(Duration::from_secs(self.rng.below(IDLE_MAX))),
                    _ => {}
                }
                Ok(())
            }
        }
    }

    fn begin_weather(&mut self) -> Result<(), String> {
        self.report.weathers += 1;
        let [reads, writes] =
            *self.rng.pick(&[[true, true], [true, true], [true, false], [false, true]]);
        let scope = Scope { reads, writes };
        let weather = match self.rng.below(10) {
            0..=2 => Weather::Refused(scope),
            3..=5 => {
                let room = 1 << *self.rng.pick(&[0, 12, 16, 20]);
                Weather::Quota(self.world.bytes() + self.rng.below(room))
            }
            _ => Weather::Hung(scope),
        };
        let lasts = Duration::from_secs(1 + self.rng.below(LASTS_MAX));
        let left = self.rng.below(OPERATIONS_MAX);
        let warm = weather == Weather::Hung(Scope::ALL) && self.keeps_all() && self.rng.chance(60);
        if warm {
            self.compare("before the store hangs")?;
        }
        self.world.set_weather(weather, lasts);
        let now = self.clock.now();
        self.turn = Some(Turn { weather, lasts, left, in_memory_at: warm.then_some(now) });
        match weather {
            _ if warm => self.compare_at_once(),
            // Else nobody knows until somebody flushes.
            Weather::Quota(_) if self.rng.chance(70) => self.work(&Op::Sync),
            _ => {
                if self.rng.chance(20) {
                    self.device.idle(FOUND_OUT);
                }
                Ok(())
            }
        }
    }

    /// Ends the weather. The owner goes on, and has lost nothing.
    pub(super) fn end_weather(&mut self) -> Result<(), String> {
        let had_quota = self.has_quota();
        self.fair();
        let is_found_out = had_quota && self.rng.chance(50);
        if !is_found_out && (had_quota || self.rng.chance(70)) {
            self.work(&Op::Sync)?;
        }
        // It may have been a beat that had no room, and nothing else is to be sent.
        if self.device.is_full() {
            self.device.idle(FOUND_OUT);
            if self.device.is_full() {
                return Err("nobody has found out that there is room again".into());
            }
        }
        match self.rng.chance(50) {
            true => self.compare("after the weather"),
            false => Ok(()),
        }
    }

    /// The store is well again.
    pub(super) fn fair(&mut self) {
        self.turn = None;
        self.world.set_weather(Weather::Fair, Duration::ZERO);
    }

    /// Returns whether the store has a quota.
    pub(super) fn has_quota(&self) -> bool {
        self.turn.is_some_and(|turn| matches!(turn.weather, Weather::Quota(_)))
    }

    fn is_hung(&self) -> bool {
        self.turn.is_some_and(|turn| matches!(turn.weather, Weather::Hung(_)))
    }

    /// Returns whether pieces stay in memory once they are there.
    fn keeps_all(&self) -> bool {
        self.options.cache_bytes == super::KEEPS_ALL
    }

    /// Returns whether this error of an opening is that of the weather.
    pub(super) fn is_weather(&self, error: &Error) -> bool {
        let text = error.to_string();
        match self.turn.map(|turn| turn.weather) {
            Some(Weather::Refused(_)) => {
                error.code() == Code::Access || text.contains("there is no such bucket")
            }
            Some(Weather::Quota(_)) => error.code() == Code::NoSpace,
            Some(Weather::Hung(_)) => error.code() == Code::Io && text.contains("has not answered"),
            Some(Weather::Fair) | None => false,
        }
    }

    /// A call on volume and model.
    pub(super) fn call(&mut self, op: &Op) -> Result<Step, String> {
        let was_full = self.device.is_full();
        let (step, answer) = match self.is_hung() && !may_block(op) {
            true => (self.call_at_once(op)?, None),
            false => {
                let volume = self.volume.as_ref().ok_or("no volume")?;
                self.run.step_with_answer(volume, op)?
            }
        };
        match answer.is_some() && was_full && makes_inode(op) {
            true => Err(format!("{op}: there is no room for it")),
            false => Ok(step),
        }
    }

    /// A call while the store hangs, made as a mount makes it.
    fn call_at_once(&mut self, op: &Op) -> Result<Step, String> {
        let volume = self.volume.as_ref().ok_or("no volume")?;
        let (mut run, begun) = (self.run.clone(), self.clock.now());
        let in_memory = self.turn.and_then(|turn| turn.in_memory_at) == Some(begun);
        let ended = at_once(|| run.step(volume, op));
        let has_waited = self.clock.now() != begun;
        let device = match ended {
            AtOnce::Done(step) => {
                // From its first change on a call waits for what is not in memory.
                if has_waited && (is_question(op) || in_memory) {
                    return Err(format!("{op}: has waited while the store hung"));
                }
                self.report.at_once += 1;
                self.run = run;
                return step;
            }
            AtOnce::Refused { device, .. } => device,
        };
        if has_waited {
            return Err(format!("{op}: has waited, and must not"));
        }
        self.report.left += 1;
        if in_memory && device {
            return Err(format!("{op}: would read what is in memory"));
        }
        if !device && !self.device.is_behind() {
            return Err(format!("{op}: would wait, and for nothing"));
        }
        let step = self.run.step(volume, op)?;
        if is_question(op) && self.keeps_all() {
            self.ask_again(op)?;
        }
        Ok(step)
    }

    /// A question that was answered is answered again without waiting.
    fn ask_again(&mut self, op: &Op) -> Result<(), String> {
        let Some(turn) = self.turn else { return Ok(()) };
        self.world.set_weather(turn.weather, turn.lasts);
        let (mut run, begun) = (self.run.clone(), self.clock.now());
        let volume = self.volume.as_ref().ok_or("no volume")?;
        match at_once(|| run.step(volume, op)) {
            AtOnce::Done(step) if self.clock.now() == begun => step.map(drop),
            _ => Err(format!("{op}: waits for what was just read")),
        }
    }

    /// A refusal that the model cannot foresee. Only calls that need space are refused, and only
    /// while there is none.
    pub(super) fn judge(&mut self, op: &Op, error: &Error) -> Result<(), String> {
        self.report.refused += 1;
        let is_full = self.has_quota() && self.device.is_full();
        let is_expected = error.code() == Code::NoSpace && is_full && needs_space(op);
        match is_batch_limit(op, error) || is_expected && !frees(&self.run, op) {
            true => Ok(()),
            false => {
                let space = self.volume()?.statfs();
                Err(format!("{op}: {error}; {space:?}, no room in the store: {is_full}"))
            }
        }
    }

    fn compare(&self, when: &str) -> Result<(), String> {
        let found = walk(self.volume()?, Ino::ROOT, true)?;
        if found.digest() != self.run.model.digest() {
            let lines = diff(&self.run.model.state(), &found.state, 12);
            return Err(format!("{when}, volume and model differ:\n    {}", lines.join("\n    ")));
        }
        Ok(())
    }

    /// Reads everything while the store hangs: it was just read.
    fn compare_at_once(&self) -> Result<(), String> {
        let begun = self.clock.now();
        match at_once(|| self.compare("while the store hangs")) {
            AtOnce::Done(compared) if self.clock.now() == begun => compared,
            _ => Err("a walk waits for what was just read".into()),
        }
    }
}

/// Returns whether a mount makes such a call on threads that may wait only, or not at all.
fn may_block(op: &Op) -> bool {
    matches!(
        op,
        Op::Fsync { .. }
            | Op::Sync
            | Op::Checkpoint
            | Op::CopyRange { .. }
            | Op::Fallocate { .. }
            | Op::Batch { .. }
            | Op::RemoveTree { .. }
            | Op::ChangeTree { .. }
            | Op::RootCreate { .. }
            | Op::RootDelete { .. }
            | Op::Reap { .. }
            | Op::Close { .. }
    )
}

fn is_question(op: &Op) -> bool {
    matches!(
        op,
        Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::Paths { .. }
            | Op::Lookup { .. }
            | Op::Getattr { .. }
            | Op::Access { .. }
            | Op::Resolve { .. }
            | Op::Read { .. }
            | Op::Readlink { .. }
            | Op::Readdir { .. }
            | Op::Seek { .. }
            | Op::Stale { .. }
    )
}

fn makes_inode(op: &Op) -> bool {
    matches!(
        op,
        Op::Create { .. }
            | Op::Mkdir { .. }
            | Op::Mknod { .. }
            | Op::Symlink { .. }
            | Op::Tmpfile { .. }
            | Op::RootCreate { .. }
    )
}

fn needs_space(op: &Op) -> bool {
    makes_inode(op)
        || matches!(
            op,
            Op::Link { .. }
                | Op::Rename { .. }
                | Op::Batch { .. }
                | Op::Truncate { .. }
                | Op::SetXattr { .. }
                | Op::Write { .. }
                | Op::Append { .. }
                | Op::Fallocate { .. }
                | Op::CopyRange { .. }
        )
}
