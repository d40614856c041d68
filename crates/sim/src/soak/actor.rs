//! Operations of an actor in its directory. All follow from a seed: the comparison draws the same
//! operations again, and needs to know only how many were done.

use crate::exec::{Generator, Lockstep};
use crate::model::{Body, Model};
use crate::op::make::place;
use crate::op::{Data, Op, Target, Who};
use crate::rng::Rng;
use shoal::raw::{Ino, RenameFlags, XattrFlags};

/// Names of files in a directory.
const NAMES: u64 = 10;
/// Bytes of a file at most.
const SIZE_MAX: u64 = 160_000;
/// The attribute that files have.
pub const ATTRIBUTE: &str = "user.soak";

const WHO: Who = Who::Root;

/// The operations of an actor.
pub struct Acts {
    rng: Rng,
    /// Operation that must follow the last one at once.
    next: Option<Op>,
}

/// An actor: its operations, and what its directory contains after them.
pub struct Actor {
    acts: Acts,
    /// The directory.
    pub run: Lockstep,
}

/// The names of an inode are paths: those in the directory, and in the directories in it.
pub fn files(model: &Model) -> Vec<(String, Ino)> {
    let mut files = Vec::new();
    below(model, model.root(), "", &mut files, &mut Vec::new());
    files
}

/// Paths of the directories.
pub fn directories(model: &Model) -> Vec<String> {
    let mut dirs = Vec::new();
    below(model, model.root(), "", &mut Vec::new(), &mut dirs);
    dirs
}

fn below(
    model: &Model,
    dir: Ino,
    prefix: &str,
    files: &mut Vec<(String, Ino)>,
    dirs: &mut Vec<String>,
) {
    for (name, child) in model.entries(dir).into_iter().flatten() {
        let path = format!("{prefix}{}", String::from_utf8_lossy(name));
        match model.node(*child).map(|node| &node.body) {
            Some(Body::Dir(_)) => {
                below(model, *child, &format!("{path}/"), files, dirs);
                dirs.push(path);
            }
            _ => files.push((path, *child)),
        }
    }
}

impl Actor {
    /// An actor whose directory is still empty.
    pub fn new(seed: u64, round: u64, number: u64) -> Actor {
        let acts = Acts::new(Rng::new(seed).fork(round << 16 | number << 8 | 1));
        Actor { acts, run: Lockstep::of(Model::new(Ino::ROOT, 0o755, 0, 0)) }
    }

    /// Draws the next operation, which must succeed, and does it in the model. Returns it with what
    /// a read must yield.
    pub fn step(&mut self) -> (Op, Option<Vec<u8>>) {
        let op = self.acts.next(&self.run);
        match self.run.replay(&op, None) {
            Some(Ok(crate::exec::Answer::Bytes(bytes))) => (op, Some(bytes)),
            Some(Ok(_)) => (op, None),
            other => unreachable!("{op} is drawn so that it succeeds: {other:?}"),
        }
    }
}

impl Generator for Acts {
    fn draw(&mut self, run: &Lockstep) -> Option<Op> {
        Some(self.next(run))
    }
}

impl Acts {
    /// Operations that this generator of numbers decides.
    pub fn new(rng: Rng) -> Acts {
        Acts { rng, next: None }
    }

    fn next(&mut self, run: &Lockstep) -> Op {
        self.next.take().unwrap_or_else(|| self.draw_any(run))
    }

    /// A name for a new file, or to move one to.
    fn fresh(&mut self, run: &Lockstep) -> String {
        let dirs = directories(&run.model);
        let name = format!("f{}", self.rng.below(NAMES));
        match dirs.is_empty() || self.rng.chance(60) {
            true => name,
            false => format!("{}/{name}", self.rng.pick(&dirs)),
        }
    }

    fn draw_any(&mut self, run: &Lockstep) -> Op {
        let name = self.fresh(run);
        let taken = run.model.find(name.as_bytes()).is_some();
        let sync_all = Op::Fsync { file: Target::Path(Vec::new()), datasync: false };
        let existing = files(&run.model);
        if existing.len() < 3 || self.rng.chance(12) && !taken {
            return match taken {
                true => sync_all,
                false => Op::Create { who: WHO, at: place(&name), mode: 0o644 },
            };
        }
        let (old, ino) = self.rng.pick(&existing).clone();
        let size = run.model.node(ino).map_or(0, |node| node.size());
        let file = Target::Path(old.clone().into_bytes());
        let rng = &mut self.rng;
        match rng.below(105) {
            0..30 => self.write(run, file, size),
            30..36 => {
                let size = rng.below(size + size / 4 + 100).min(SIZE_MAX);
                Op::Truncate { who: WHO, file, size, by_handle: true }
            }
            36..42 => {
                let data = Data { seed: rng.next(), len: rng.range(1, 30) as u32 };
                let (name, flags) = (ATTRIBUTE.into(), XattrFlags::default());
                Op::SetXattr { who: WHO, file, name, data, flags }
            }
            42..58 => {
                let (from, to) = (place(&old), place(&name));
                Op::Rename { who: WHO, from, to, flags: RenameFlags::default() }
            }
            58..63 if !taken => Op::Link { who: WHO, from: file, at: place(&name) },
            63..71 => Op::Unlink { who: WHO, at: place(&old) },
            71..76 => self.hide(run, old),
            76..81 => self.directory(run),
            81..95 => Op::Fsync { file, datasync: false },
            95..99 => Op::Read { file, offset: 0, len: SIZE_MAX },
            _ => sync_all,
        }
    }

    /// Draws a write to a file of this size: mostly little, mostly at the end. Now and then to one
    /// that is open instead, mostly without a name.
    fn write(&mut self, run: &Lockstep, file: Target, size: u64) -> Op {
        let rng = &mut self.rng;
        let open: Vec<usize> =
            (0..run.slots.len()).filter(|slot| run.slots[*slot].is_some()).collect();
        let file =
            if !open.is_empty() && rng.chance(10) { Target::Slot(*rng.pick(&open)) } else { file };
        let offset = match rng.below(10) {
            0..6 => size,
            6..9 => rng.below(size + 1),
            _ => size + rng.below(9_000),
        };
        let len = match rng.below(10) {
            0..5 => rng.range(1, 300),
            5..9 => rng.range(1, 9_000),
            _ => rng.range(1, 70_000),
        };
        let offset = offset.min(SIZE_MAX - 1);
        let data = Data { seed: rng.next(), len: len.min(SIZE_MAX - offset) as u32 };
        Op::Write { file, offset, data, kill_priv: false }
    }

    /// Removes a name of a file that stays open, for a while.
    fn hide(&mut self, run: &Lockstep, path: String) -> Op {
        let slot = self.rng.below(run.slots.len() as u64) as usize;
        if run.slots[slot].is_some() {
            return Op::Close { slot };
        }
        self.next = Some(Op::Unlink { who: WHO, at: place(&path) });
        Op::Open { file: Target::Path(path.into_bytes()), slot }
    }

    fn directory(&mut self, run: &Lockstep) -> Op {
        let at = place(&format!("d{}", self.rng.below(2)));
        match run.model.find(&at.name) {
            Some(_) => Op::RemoveTree { who: WHO, at },
            None => Op::Mkdir { who: WHO, at, mode: 0o755 },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::{Settings, run_from};

    #[test]
    fn a_hand_is_drawn_again_and_never_fails() {
        let (mut actor, mut again) = (Actor::new(1, 2, 3), Actor::new(1, 2, 3));
        let mut names = std::collections::BTreeSet::new();
        for _ in 0..5_000 {
            let (op, _) = actor.step();
            names.insert(op.name());
            assert_eq!(again.step().0, op);
        }
        assert_eq!(names.len(), 13, "{names:?}");
        assert_eq!(actor.run.model.digest(), again.run.model.digest());
        assert_ne!(Actor::new(1, 2, 4).step().0, Actor::new(1, 2, 3).step().0);
    }

    /// The same operations in the simulator, with crashes between them.
    #[test]
    fn actors_are_simulated() {
        struct Crashing(Acts, Rng);
        impl Generator for Crashing {
            fn draw(&mut self, run: &Lockstep) -> Option<Op> {
                let crash = self.1.below(100) == 0;
                let op = if crash { None } else { self.0.draw(run) };
                op.or_else(|| Some(Op::Crash { seed: self.1.next() }))
            }
        }
        for seed in 1..5 {
            let generator = Crashing(Acts::new(Rng::new(seed)), Rng::new(seed).fork(1));
            let ran = run_from(&Settings::of_seed(seed), generator, 600);
            let report = ran.unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
            assert!(report.crashes > 0 && report.steps > 500, "seed {seed}: {report:?}");
        }
    }
}
