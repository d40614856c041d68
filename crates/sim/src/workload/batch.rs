//! Batches. Most of their changes succeed one after the other, on names that the others before have
//! made, or there would hardly be a batch that succeeds.

use super::profile::{BATCHES, Profile};
use super::{Workload, push};
use crate::exec::Lockstep;
use crate::model::Model;
use crate::op::{Change, Op, Place, Target};
use crate::rng::Rng;
use shoal::raw::{Caller, Ino, SetAttr, SetTime};

/// Changes of most batches, and of long ones.
const CHANGES_MAX: u64 = 6;
const LONG_MAX: u64 = 40;
/// Draws of a change until one succeeds.
const TRIES: usize = 4;
/// Of 100 changes that fail, how many are taken all the same.
const WRONG: u64 = 3;

/// Batches of a run.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    rng: Rng,
    /// Of 1,000 operations, how many are batches.
    per_mille: u64,
}

impl Batches {
    pub(super) fn of_seed(seed: u64, profile: &Profile) -> Batches {
        let mut rng = Rng::new(seed).fork(13);
        let share = *rng.pick(&[0, 10, 30, 100]);
        let per_mille = if profile.name == BATCHES.name { 400 } else { share };
        Batches { rng, per_mille }
    }
}

/// State after the changes of a batch that is being drawn.
struct After {
    run: Lockstep,
    who: Caller,
    start: Ino,
    next: Ino,
}

impl Workload {
    /// A batch, now and then.
    pub(super) fn batch(&mut self, run: &Lockstep) -> Option<Op> {
        let batches = self.batches.as_mut()?;
        if batches.rng.below(1000) >= batches.per_mille {
            return None;
        }
        // By numbers of their own: what else the seed does stays what it is.
        std::mem::swap(&mut self.rng, &mut batches.rng);
        let op = self.draw_batch(run);
        if let Some(batches) = &mut self.batches {
            std::mem::swap(&mut self.rng, &mut batches.rng);
        }
        Some(op)
    }

    fn draw_batch(&mut self, run: &Lockstep) -> Op {
        let who = self.who();
        let start = match self.rng.chance(75) {
            true => Target::Path(Vec::new()),
            false => self.dir(run),
        };
        let Some(ino) = run.resolve(&start) else {
            return Op::Batch { who, start, changes: vec![Change::Remove { path: self.name() }] };
        };
        let next = run.model.first_unknown(ino);
        let mut after = After { run: run.clone(), who: who.caller(), start: ino, next };
        let most = if self.rng.chance(5) { LONG_MAX } else { CHANGES_MAX };
        let mut changes = Vec::new();
        for _ in 0..self.rng.range(1, most) {
            changes.extend(self.draw_change(&mut after, &start));
        }
        if changes.is_empty() {
            changes.push(self.change(&after.run, &start));
        }
        Op::Batch { who, start, changes }
    }

    /// A change that succeeds, or one of the few that do not.
    fn draw_change(&mut self, after: &mut After, start: &Target) -> Option<Change> {
        for _ in 0..TRIES {
            let change = self.change(&after.run, start);
            let model: &mut Model = &mut after.run.model;
            match model.make_change(&after.who, after.start, &change, after.next) {
                Ok(()) => {
                    after.next = Ino(after.next.0 + u64::from(change.makes()));
                    return Some(change);
                }
                Err(_) if self.rng.chance(WRONG) => return Some(change),
                Err(_) => {}
            }
        }
        None
    }

    fn change(&mut self, run: &Lockstep, start: &Target) -> Change {
        let mode = self.mode();
        match self.rng.below(20) {
            0..=5 => {
                let replace = self.rng.chance(40);
                let path = self.path_in(run, start, if replace { 70 } else { 10 });
                Change::File { path, mode, data: self.data(), replace }
            }
            6..=8 => Change::Dir { path: self.path_in(run, start, 10), mode: mode & 0o1777 },
            9 => Change::Symlink {
                path: self.path_in(run, start, 10),
                target: self.link_target(run),
            },
            10..=11 => {
                let from = self.path_in(run, start, 95);
                Change::Link { from, to: self.path_in(run, start, 10) }
            }
            12..=14 => {
                let (from, to) = (self.path_in(run, start, 95), self.path_in(run, start, 50));
                Change::Rename { from, to, flags: self.rename_flags() }
            }
            15..=16 => Change::Remove { path: self.path_in(run, start, 95) },
            17 => Change::RemoveDir { path: self.path_in(run, start, 95) },
            18 => self.change_of_attributes(run, start),
            _ => {
                let at = self.place(run, 95);
                let (path, name) = (self.path_to(start, &at), self.xattr_name());
                match self.rng.chance(30) {
                    true => Change::RemoveXattr { path, name },
                    false => Change::SetXattr { path, name, data: self.xattr_value() },
                }
            }
        }
    }

    fn change_of_attributes(&mut self, run: &Lockstep, start: &Target) -> Change {
        let at = self.place(run, 95);
        let path = self.path_to(start, &at);
        let ids = [None, Some(0), Some(100), Some(1000), Some(1001)];
        let mut set = SetAttr::default();
        match self.rng.below(3) {
            0 => set.mode = Some(self.mode()),
            1 => {
                (set.uid, set.gid) = (*self.rng.pick(&ids), Some(1000));
            }
            _ => {
                set.atime = Some(SetTime::Now);
                set.mtime = Some(SetTime::To(crate::op::at(self.rng.below(1 << 31) as i64, 77)));
            }
        }
        Change::SetAttr { path, set }
    }

    /// A path from `start`; in `percent` of cases one that exists, if there is any.
    fn path_in(&mut self, run: &Lockstep, start: &Target, percent: u64) -> Vec<u8> {
        let mut at = self.place(run, percent);
        if self.rng.chance(4) {
            // Through whatever that is: perhaps a symlink, or no directory.
            at.dir = self.any(run);
        }
        self.path_to(start, &at)
    }

    fn path_to(&mut self, start: &Target, at: &Place) -> Vec<u8> {
        let mut path = match (start, &at.dir) {
            (Target::Path(start), Target::Path(dir)) => match dir.strip_prefix(&start[..]) {
                Some(rest) if start.is_empty() || rest.is_empty() => rest.to_vec(),
                Some([b'/', rest @ ..]) => rest.to_vec(),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        };
        push(&mut path, &at.name);
        match self.rng.below(100) {
            0 => path.push(b'/'),
            1 => path.splice(0..0, *b"./").for_each(drop),
            2 => path.splice(0..0, *b"n1/../").for_each(drop),
            3 if self.rng.chance(30) => path.splice(0..0, *b"../").for_each(drop),
            3 if self.rng.chance(30) => path.insert(0, b'/'),
            _ => {}
        }
        path
    }
}
