//! Is there an order? Wing and Gong's search: of the calls that are left, any may be next that
//! began before all of them had ended; if what it was answered fits, go on from there, else take it
//! back. Lowe's addition: which calls are done and what the namespace is then decide about all that
//! follows, so a pair of both that failed once is not tried again.

use super::history::{Event, History};
use super::space::Space;
use std::collections::HashSet;
use std::fmt;

/// No order explains a history.
#[derive(Debug)]
pub struct Wrong {
    history: Box<History>,
    /// The longest order that was possible.
    explained: Vec<Event>,
    /// What may come next then, none of which fits.
    stuck: Vec<Event>,
    /// Pairs of calls and namespaces that were tried.
    tried: usize,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "not linearisable ({} states tried):\n{}", self.tried, self.history)?;
        writeln!(f, "the longest order that explains what it contains:")?;
        for event in &self.explained {
            writeln!(f, "  {}: {} = {}", event.thread, event.call, event.reply)?;
        }
        writeln!(f, "of which none can be next:")?;
        for event in &self.stuck {
            writeln!(f, "  {}: {} = {}", event.thread, event.call, event.reply)?;
        }
        Ok(())
    }
}

/// Looks for an order. Returns the number of states that were tried.
pub fn check(history: &History) -> Result<usize, Wrong> {
    let steps = history.steps();
    assert!(steps.len() < 128, "a bit for each step");
    let space = Space::new(history.flavour, history.inos, steps.len());
    let mut search = Search { steps, tried: HashSet::new(), order: Vec::new(), best: Vec::new() };
    if search.explain(0, &space) {
        return Ok(search.tried.len());
    }
    let done = search.best.iter().fold(0u128, |done, step| done | 1 << step);
    let event = |step: &usize| search.steps[*step];
    Err(Wrong {
        history: Box::new(history.clone()),
        explained: search.best.iter().map(event).collect(),
        stuck: search.next(done).iter().map(event).collect(),
        tried: search.tried.len(),
    })
}

struct Search {
    steps: Vec<Event>,
    /// What has been tried and leads nowhere.
    tried: HashSet<(u128, Space)>,
    order: Vec<usize>,
    best: Vec<usize>,
}

impl Search {
    /// The steps that may be next when those in `done` are done.
    fn next(&self, done: u128) -> Vec<usize> {
        let left = || (0..self.steps.len()).filter(|step| done & 1 << step == 0);
        let first_end = left().map(|step| self.steps[step].end).min().unwrap_or(0);
        left().take_while(|step| self.steps[*step].begin <= first_end).collect()
    }

    fn explain(&mut self, done: u128, space: &Space) -> bool {
        if self.order.len() > self.best.len() {
            self.best.clone_from(&self.order);
        }
        if self.order.len() == self.steps.len() {
            return true;
        }
        for step in self.next(done) {
            let (after, Event { call, reply, .. }) = (done | 1 << step, &self.steps[step]);
            let mut space = space.clone();
            if !space.explains(call, reply, step) {
                continue;
            }
            if self.tried.contains(&(after, space.clone())) {
                continue;
            }
            self.order.push(step);
            if self.explain(after, &space) {
                return true;
            }
            self.order.pop();
            self.tried.insert((after, space));
        }
        false
    }
}
