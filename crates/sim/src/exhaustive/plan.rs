//! Which sequences there are. The model alone says which operations succeed after which; of those
//! that fail, the volume is asked once, without any sync, whether it agrees.

use super::actions::Action;
use super::explore::{Counts, Points, Violation, explore};
use super::sequence::{Sequence, Step, after, durables};
use super::start::{Start, opening};
use crate::exec::Lockstep;
use crate::rng::Rng;
use std::sync::Arc;

/// A sequence of successes, and the model behind it.
#[derive(Clone)]
pub struct Prefix {
    /// The sequence.
    pub sequence: Sequence,
    run: Arc<Lockstep>,
}

impl Prefix {
    /// The empty sequence.
    pub fn empty(start: &Start) -> Prefix {
        let mut run = start.run.clone();
        run.replay(&opening(), None);
        Prefix { sequence: Sequence(Vec::new()), run: Arc::new(run) }
    }

    /// Every way to go on with `action`; none when it fails here.
    fn with(&self, number: usize, action: &Action) -> Vec<Prefix> {
        let Some(run) = after(&self.run, action).map(Arc::new) else { return Vec::new() };
        durables(&run, action)
            .map(|durable| Prefix {
                sequence: self.sequence.then(Step { action: number, durable }),
                run: Arc::clone(&run),
            })
            .collect()
    }

    /// Every sequence that is longer by one; `each` says whether to go on.
    pub fn longer(&self, actions: &[Action], each: &mut dyn FnMut(Longer) -> bool) {
        for (number, action) in actions.iter().enumerate() {
            let next = self.with(number, action);
            let go_on = match next.is_empty() {
                true => each(Longer::Fails(number)),
                false => next.into_iter().all(|next| each(Longer::Succeeds(next))),
            };
            if !go_on {
                return;
            }
        }
    }

    /// A sequence longer by `steps`, chosen by lot; `None` when the lot falls on one that fails.
    pub fn by_lot(&self, actions: &[Action], steps: usize, rng: &mut Rng) -> Option<Prefix> {
        let mut chosen = self.clone();
        for _ in 0..steps {
            let number = rng.below(actions.len() as u64) as usize;
            let next = chosen.with(number, &actions[number]);
            if next.is_empty() {
                return None;
            }
            chosen = rng.pick(&next).clone();
        }
        Some(chosen)
    }

    /// Checks that the volume agrees that an action fails here. Asked only where nothing was
    /// synced: what is durable has no part in it.
    pub fn agree_on_failure(
        &self,
        start: &Start,
        actions: &[Action],
        number: usize,
    ) -> Result<Counts, Violation> {
        use super::sequence::Durable::Nothing;
        if self.sequence.0.iter().all(|step| step.durable == Nothing) {
            let fails = self.sequence.then(Step { action: number, durable: Nothing });
            explore(start, actions, &fails, Points::None)?;
        }
        Ok(Counts { failing: 1, ..Counts::default() })
    }
}

/// Continuation of a sequence by an action.
pub enum Longer {
    /// It fails.
    Fails(usize),
    /// A sequence of successes.
    Succeeds(Prefix),
}
