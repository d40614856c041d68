//! Sequences by name. A step is an operation's number in the list and a letter for what is made
//! durable behind it; a sequence is steps with `-` between, as in `12n-40f`; a crash point of it is
//! the number of a device operation, counted from the sequence's start, as in `12n-40f@3`.

use super::actions::{Action, all};
use crate::exec::Lockstep;
use crate::op::Op;
use std::fmt;
use std::str::FromStr;

/// Durability call behind an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durable {
    /// Nothing.
    Nothing,
    /// fsync of the file.
    File,
    /// fsync of the directory.
    Dir,
    /// fdatasync of the file.
    Data,
    /// sync.
    Sync,
    /// A checkpoint.
    Checkpoint,
}

impl Durable {
    /// Each with its letter.
    pub const EACH: [(Durable, char); 6] = [
        (Durable::Nothing, 'n'),
        (Durable::File, 'f'),
        (Durable::Dir, 'd'),
        (Durable::Data, 'a'),
        (Durable::Sync, 's'),
        (Durable::Checkpoint, 'c'),
    ];

    /// As operation behind `action`; `None` when there is nothing to do, or nothing to do it to.
    pub fn op(self, action: &Action) -> Option<Op> {
        let fsync =
            |file: &Option<_>, datasync| file.clone().map(|file| Op::Fsync { file, datasync });
        match self {
            Durable::Nothing => None,
            Durable::File => fsync(&action.object, false),
            Durable::Dir => fsync(&action.dir, false),
            Durable::Data => fsync(&action.object, true),
            Durable::Sync => Some(Op::Sync),
            Durable::Checkpoint => Some(Op::Checkpoint),
        }
    }
}

/// An operation and what follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Its number in the list.
    pub action: usize,
    /// Durability call behind it.
    pub durable: Durable,
}

/// Steps from the start on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sequence(pub Vec<Step>);

impl Sequence {
    /// The sequence with one more step.
    pub fn then(&self, step: Step) -> Sequence {
        Sequence(self.0.iter().copied().chain([step]).collect())
    }

    /// A number that chooses its images: the same for ever.
    pub fn seed(&self) -> u64 {
        shoal_base::checksum(self.to_string().as_bytes())
    }

    /// The operations as a program, a line each.
    pub fn program(&self) -> String {
        let actions = all();
        let mut text = String::new();
        for step in &self.0 {
            let action = &actions[step.action];
            for op in action.ops.iter().cloned().chain(step.durable.op(action)) {
                text += &format!("    {op}\n");
            }
        }
        text
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            let letter = Durable::EACH.iter().find(|(d, _)| *d == step.durable);
            let letter = letter.expect("each has a letter").1;
            write!(f, "{}{}{letter}", if i > 0 { "-" } else { "" }, step.action)?;
        }
        Ok(())
    }
}

/// One sequence, or one crash point of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Only {
    /// The sequence.
    pub sequence: Sequence,
    /// The crash point; without: all of them.
    pub at: Option<u64>,
}

impl FromStr for Only {
    type Err = String;

    fn from_str(text: &str) -> Result<Only, String> {
        let wrong = || format!("{text}: not the name of a sequence, such as 12n-40f or 12n-40f@3");
        let (steps, at) = match text.split_once('@') {
            Some((steps, at)) => (steps, Some(at.parse().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let known = all().len();
        let step = |text: &str| {
            let letter = text.chars().next_back()?;
            let (durable, _) = *Durable::EACH.iter().find(|(_, l)| *l == letter)?;
            let action = text.strip_suffix(letter)?.parse().ok()?;
            (action < known).then_some(Step { action, durable })
        };
        let steps: Option<Vec<Step>> = steps.split('-').map(step).collect();
        Ok(Only { sequence: Sequence(steps.ok_or_else(wrong)?), at })
    }
}

/// The model after an action, if all of it succeeds there.
pub fn after(run: &Lockstep, action: &Action) -> Option<Lockstep> {
    let mut run = run.clone();
    for op in &action.ops {
        run.replay(op, None)?.ok()?;
    }
    Some(run)
}

/// Returns the durability calls that can follow an action that left the model as `run`: a file that
/// is gone cannot be synchronised, and a directory that is the file itself is not synchronised
/// twice.
pub fn durables<'a>(run: &'a Lockstep, action: &'a Action) -> impl Iterator<Item = Durable> + 'a {
    let found = |target: &Option<_>| target.as_ref().and_then(|t| run.resolve(t));
    let (object, dir) = (found(&action.object), found(&action.dir));
    Durable::EACH.iter().map(|(durable, _)| *durable).filter(move |durable| match durable {
        Durable::File | Durable::Data => object.is_some(),
        Durable::Dir => dir.is_some() && dir != object,
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let only: Only = "12n-40f@3".parse().unwrap();
        assert_eq!((only.sequence.to_string().as_str(), only.at), ("12n-40f", Some(3)));
        assert_eq!(only.sequence.program().lines().count(), 3);
        for wrong in ["", "12", "12x", "9999n", "1n@", "1n-"] {
            assert!(wrong.parse::<Only>().is_err(), "{wrong}");
        }
    }
}
