//! Premises of a batch: what was found without locks, and must still be so when it has them.
//!
//! Changes that succeed look their own names up again under the locks. One that cannot be resolved
//! has nothing to look up: its error stands for what was there without locks, while those before
//! it may succeed for what is there with them. So a batch that has such a change is resolved once
//! more, and notes each name that it asks the volume for.

use super::hashed::Hashed;
use super::locks::Locks;
use super::rights::Rights;
use crate::batch::Batches;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::Inode;
use std::collections::HashMap;

#[derive(Default)]
pub(super) struct Premises {
    /// Inodes that paths led to, and their generations: another file may have got the number since.
    seen: HashMap<Ino, u32, Hashed>,
    /// Values that decide the permissions of directories ([`Rights::decided_by`]).
    rights: HashMap<Ino, [u32; 4], Hashed>,
    /// Answers to lookups, of a batch that fails.
    answers: Option<Vec<Answer>>,
}

struct Answer {
    dir: Ino,
    name: Box<[u8]>,
    /// `None` for a name that is free.
    child: Option<Ino>,
}

impl Premises {
    /// Those of a batch that fails.
    pub(super) fn of_failure() -> Premises {
        Premises { answers: Some(Vec::new()), ..Premises::default() }
    }

    /// Returns whether answers are noted. Their directories are going to be locked.
    pub(super) fn with_answers(&self) -> bool {
        self.answers.is_some()
    }

    pub(super) fn see(&mut self, ino: Ino, generation: u32) {
        self.seen.entry(ino).or_insert(generation);
    }

    /// # Errors
    /// `EAGAIN` if it is not what was noted before.
    pub(super) fn rights(&mut self, dir: Ino, decided_by: [u32; 4]) -> Result<()> {
        match *self.rights.entry(dir).or_insert(decided_by) == decided_by {
            true => Ok(()),
            false => Err(Error::Code(Code::Again)),
        }
    }

    pub(super) fn answer(&mut self, dir: Ino, name: &[u8], child: Option<Ino>) {
        if let Some(answers) = &mut self.answers {
            answers.push(Answer { dir, name: name.into(), child });
        }
    }

    /// Returns whether all are still true, now that the inodes concerned are locked.
    pub(super) fn hold(&self, volume: Batches<'_>, locks: &Locks<'_>) -> Result<bool> {
        let is_there = self.seen.iter().all(|(ino, generation)| {
            let same = |inode: &Inode| inode.core.in_use() && inode.core.generation == *generation;
            // Those that are not locked were only on the way.
            locks.look(*ino, same).unwrap_or(true)
        });
        let is_same = |(ino, rights): (&Ino, &[u32; 4])| {
            locks.look(*ino, |inode| Rights::decided_by(&inode.core) == *rights).unwrap_or(true)
        };
        if !is_there || !self.rights.iter().all(is_same) {
            return Ok(false);
        }
        if planted::is(Defect::BatchFailureUnchecked) {
            return Ok(true);
        }
        for Answer { dir, name, child } in self.answers.iter().flatten() {
            let found = volume.directories().find_entry(*dir, name)?;
            if found.map(|entry| entry.child) != *child {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
