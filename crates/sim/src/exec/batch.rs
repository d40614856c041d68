//! A batch on volume and model: all of it or nothing, the same change to blame, and nothing changed
//! by one that fails.

use super::{Answer, Lockstep, Step};
use crate::compare::compare_batch;
use crate::memory::{Refusal, refusing};
use crate::model::{Model, is_unknown};
use crate::op::{Change, Op};
use shoal::raw::{Caller, Code, Error, Ino, Volume};
use std::collections::BTreeMap;

/// Names with their inodes, by directory.
type Entries = BTreeMap<(Ino, Vec<u8>), Ino>;

/// Codes that a batch may fail with, but none of its changes: no space, errors of the device, and
/// the limits of one record.
const UNFORESEEN: [Code; 6] =
    [Code::NoSpace, Code::Io, Code::ReadOnly, Code::NoMemory, Code::NotSupported, Code::TooBig];

/// Returns whether the model can have foreseen the error of a batch.
fn is_foreseen(error: &Error) -> bool {
    matches!(error, Error::Code(_) | Error::Refused { .. }) && !UNFORESEEN.contains(&error.code())
}

/// Returns whether `op` is a batch beyond the limits of one: an inode with more attributes and
/// names than it has room for takes one change in a batch.
pub fn is_batch_limit(op: &Op, error: &Error) -> bool {
    match op {
        Op::Batch { changes, .. } => error.code() == Code::NotSupported && changes.len() > 1,
        _ => false,
    }
}

impl Lockstep {
    /// Runs a batch on both. `inos` are those of its targets.
    pub(super) fn step_batch(
        &mut self,
        volume: &Volume,
        op: &Op,
        inos: &[Ino],
        refusal: Option<Refusal>,
    ) -> Result<(Step, Option<Answer>), String> {
        let Op::Batch { who, changes, .. } = op else { unreachable!("{op} is no batch") };
        let (who, start) = (who.caller(), inos[0]);
        let (mut after, first) = (self.model.clone(), self.model.first_unknown(start));
        let expected = after.batch(&who, start, changes, &[]);
        let (found, refused) = refusing(refusal, || self.call(volume, op, inos));
        if refused {
            crate::call::wait_for_reaping(volume)?;
        }
        let unforeseen = match &found {
            Err(error) if error.code() == Code::NoMemory && !refused => {
                return Err(format!("{op}: {error}, though there is memory"));
            }
            Err(error)
                if !is_foreseen(error) && compare_batch(op, changes, expected, &found).is_err() =>
            {
                Some(error.clone())
            }
            _ => None,
        };
        if unforeseen.is_none() {
            compare_batch(op, changes, expected, &found)?;
        }
        let Ok(_) = found else {
            let step = match unforeseen {
                // A device that fails may fail again: the run itself compares everything.
                Some(error) if matches!(error.code(), Code::Io | Code::ReadOnly) => {
                    return Ok((Step::Refused(error), None));
                }
                Some(error) if error.code() == Code::NoMemory => Step::Refused(error.code().into()),
                Some(error) => Step::Refused(error),
                None => Step::Done,
            };
            self.model.untouch(&after);
            self.look_at_touched(volume).map_err(|e| format!("{op} failed, but: {e}"))?;
            self.model.begin();
            return Ok((step, None));
        };
        let look = |dir: Ino, name: &[u8]| {
            let found = volume.namespace().lookup(&Caller::root(), dir, name);
            found.map(|found| found.ino).map_err(|e| format!("{op}: lookup of a new name: {e}"))
        };
        let numbers = numbers_of(&after, look)?;
        let fresh: Vec<Ino> = numbers.values().copied().collect();
        self.are_fresh(&fresh)?;
        let answer = Answer::Made(in_order(first, changes, &numbers));
        let done = self.on_model(op, inos, Some(&answer));
        done.map_err(|code| format!("{op}: {code:?} when done again"))?;
        self.look_at_touched(volume)?;
        Ok((Step::Done, Some(answer)))
    }

    /// The numbers of a batch's new inodes that a walk after a crash shows, if the batch can be
    /// done and they are all there.
    pub(super) fn made_by(&self, op: &Op, names: &Entries) -> Option<Answer> {
        let Op::Batch { who, changes, .. } = op else { return None };
        let start = *self.resolve_all(op)?.first()?;
        let (mut after, first) = (self.model.clone(), self.model.first_unknown(start));
        after.begin();
        after.batch(&who.caller(), start, changes, &[]).ok()?;
        let look = |dir: Ino, name: &[u8]| {
            names.get(&(dir, name.to_vec())).copied().ok_or_else(|| "not there".to_owned())
        };
        let numbers = numbers_of(&after, look).ok()?;
        let fresh: Vec<Ino> = numbers.values().copied().collect();
        self.are_fresh(&fresh).ok()?;
        Some(Answer::Made(in_order(first, changes, &numbers)))
    }

    /// New inodes must have numbers that no other has.
    fn are_fresh(&self, inos: &[Ino]) -> Result<(), String> {
        for (at, ino) in inos.iter().enumerate() {
            if self.model.node(*ino).is_some() || inos[..at].contains(ino) {
                return Err(format!("the new inode {ino} is one in use"));
            }
            if self.slots.contains(&Some(*ino)) {
                return Err(format!("the new inode {ino} has the number of a file still held"));
            }
        }
        Ok(())
    }
}

/// The numbers of what the changes make, in their order.
fn in_order(first: Ino, changes: &[Change], numbers: &BTreeMap<Ino, Ino>) -> Vec<Option<Ino>> {
    let made = changes.iter().filter(|change| change.makes()).count() as u64;
    (0..made).map(|nth| numbers.get(&Ino(first.0 + nth)).copied()).collect()
}

/// The numbers of the new inodes that have names, by the model's numbers for them; `look` finds an
/// inode by directory and name.
fn numbers_of(
    after: &Model,
    look: impl Fn(Ino, &[u8]) -> Result<Ino, String>,
) -> Result<BTreeMap<Ino, Ino>, String> {
    let mut names = BTreeMap::new();
    for (dir, _) in after.touched() {
        for (name, child) in after.entries(dir).into_iter().flatten() {
            if is_unknown(*child) {
                names.entry(*child).or_insert((dir, name));
            }
        }
    }
    let mut numbers = BTreeMap::new();
    for child in names.keys() {
        // Down to it from the first directory above that was there before.
        let (mut way, mut at) = (Vec::new(), *child);
        while is_unknown(at) && !numbers.contains_key(&at) {
            let (dir, name) = names[&at];
            way.push((at, name));
            at = dir;
        }
        let mut dir = numbers.get(&at).copied().unwrap_or(at);
        for (unknown, name) in way.into_iter().rev() {
            dir = look(dir, name)?;
            numbers.insert(unknown, dir);
        }
    }
    Ok(numbers)
}
