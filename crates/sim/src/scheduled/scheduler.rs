//! The scheduler: a seed chooses which thread goes on.

use crate::rng::Rng;
use shuttle::scheduler::{Schedule, Scheduler, Task, TaskId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How threads are changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Style {
    /// Any may go on, at every step.
    Any,
    /// Another goes on at one step in so many: races that need one thread to get far while another
    /// stands still.
    Seldom(u64),
    /// The one that ranks highest, of those that can; at one step in so many, it falls to the
    /// lowest rank (after Burckhardt et al., "A randomized scheduler with probabilistic guarantees
    /// of finding bugs", ASPLOS 2010; they choose a number of steps in advance, which here nobody
    /// knows).
    Ranked(u64),
}

impl Style {
    fn draw(rng: &mut Rng) -> Style {
        match rng.below(10) {
            0..2 => Style::Any,
            2..6 => Style::Seldom(*rng.pick(&[3, 10, 30, 100, 300])),
            _ => Style::Ranked(*rng.pick(&[20, 100, 300, 1000, 3000])),
        }
    }
}

/// Choices so far: two runs with the same number and hash were the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// Choices.
    pub steps: u64,
    /// Of all choices, in order.
    pub hash: u64,
}

impl Trace {
    fn add(&mut self, choice: u64) {
        self.steps += 1;
        // FNV-1a, a choice at a time.
        self.hash = (self.hash ^ choice).wrapping_mul(0x0000_0100_0000_01B3);
    }
}

/// Record of a scheduler's choices.
#[derive(Clone, Default)]
pub struct Book(Arc<Mutex<Trace>>);

impl Book {
    /// Returns the choices so far.
    pub fn trace(&self) -> Trace {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn add(&self, choice: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(choice);
    }
}

/// The scheduler of one run.
pub struct SeededScheduler {
    rng: Rng,
    style: Style,
    /// Of threads seen so far; a higher one goes first.
    ranks: HashMap<TaskId, u64>,
    /// Below all that were given out.
    lowest: u64,
    book: Book,
    begun: bool,
}

impl SeededScheduler {
    /// The scheduler of a seed.
    pub fn new(seed: u64, book: Book) -> SeededScheduler {
        let mut rng = Rng::new(seed).fork(0xD1CE);
        let style = Style::draw(&mut rng);
        SeededScheduler { rng, style, ranks: HashMap::new(), lowest: 1 << 32, book, begun: false }
    }

    fn rank(&mut self, task: TaskId) -> u64 {
        let rng = &mut self.rng;
        *self.ranks.entry(task).or_insert_with(|| (1 << 32) + rng.below(1 << 30))
    }

    fn choose(&mut self, runnable: &[TaskId], current: Option<TaskId>, yields: bool) -> TaskId {
        if let [only] = runnable {
            return *only;
        }
        let stays = current.filter(|task| !yields && runnable.contains(task));
        match (self.style, stays) {
            (Style::Seldom(often), Some(task)) if self.rng.below(often) != 0 => task,
            (Style::Any | Style::Seldom(_), _) => {
                // Who waits for others lets others go on.
                let goes = |task: &TaskId| !yields || Some(*task) != current;
                let others: Vec<TaskId> = runnable.iter().copied().filter(goes).collect();
                *self.rng.pick(&others)
            }
            (Style::Ranked(often), _) => {
                if let Some(task) = current
                    && (yields || self.rng.below(often) == 0)
                {
                    self.lowest -= 1;
                    self.ranks.insert(task, self.lowest);
                }
                let ranked = runnable.iter().map(|task| (self.rank(*task), *task));
                let ranked: Vec<(u64, TaskId)> = ranked.collect();
                ranked.into_iter().max().map_or(runnable[0], |(_, task)| task)
            }
        }
    }
}

impl Scheduler for SeededScheduler {
    fn new_execution(&mut self) -> Option<Schedule> {
        let first = !std::mem::replace(&mut self.begun, true);
        first.then(|| Schedule::new(0))
    }

    fn next_task(
        &mut self,
        runnable: &[&Task],
        current: Option<TaskId>,
        is_yielding: bool,
    ) -> Option<TaskId> {
        let runnable: Vec<TaskId> = runnable.iter().map(|task| task.id()).collect();
        let task = self.choose(&runnable, current, is_yielding);
        self.book.add(usize::from(task) as u64);
        Some(task)
    }

    fn next_u64(&mut self) -> u64 {
        let drawn = self.rng.next();
        self.book.add(drawn);
        drawn
    }
}
