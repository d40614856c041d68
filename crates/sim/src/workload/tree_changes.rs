//! Changes of everything below a directory.

use super::Workload;
use crate::exec::Lockstep;
use crate::op::Op;
use crate::rng::Rng;
use shoal::raw::{ModeChange, SetTime, Time, TreeChange};

/// Changes of trees of a run.
#[derive(Clone, Debug)]
pub(super) struct TreeChanges {
    rng: Rng,
    /// Of 1,000 operations, how many are changes of trees.
    per_mille: u64,
}

impl TreeChanges {
    pub(super) fn of_seed(seed: u64) -> TreeChanges {
        let mut rng = Rng::new(seed).fork(17);
        let per_mille = *rng.pick(&[0, 5, 20, 60]);
        TreeChanges { rng, per_mille }
    }
}

impl Workload {
    /// A change of a tree, now and then.
    pub(super) fn tree_change(&mut self, run: &Lockstep) -> Option<Op> {
        let changes = self.tree_changes.as_mut()?;
        if changes.rng.below(1000) >= changes.per_mille {
            return None;
        }
        // By numbers of their own, as batches.
        std::mem::swap(&mut self.rng, &mut changes.rng);
        let op = self.draw_tree_change(run);
        if let Some(changes) = &mut self.tree_changes {
            std::mem::swap(&mut self.rng, &mut changes.rng);
        }
        Some(op)
    }

    fn draw_tree_change(&mut self, run: &Lockstep) -> Op {
        let who = self.who();
        let top = if self.rng.chance(80) { self.place(run, 50).dir } else { self.any(run) };
        let modes = ["u=g,g=o,o=u", "g=u,o=g", "a+X", "u+rwx", "go-w", "0750", "2775", "u-x,a+t"];
        let ids = [None, Some(0), Some(100), Some(1000), Some(1001)];
        let mut change = TreeChange::default();
        match self.rng.below(8) {
            0..=4 => {
                let text: &str = modes[self.rng.below(modes.len() as u64) as usize];
                change.mode = ModeChange::parse(text);
            }
            5 | 6 => (change.uid, change.gid) = (*self.rng.pick(&ids), *self.rng.pick(&ids)),
            _ => change.mtime = Some(SetTime::To(Time { sec: 1_000_000_007, nsec: 9 })),
        }
        Op::ChangeTree { who, top, change }
    }
}
