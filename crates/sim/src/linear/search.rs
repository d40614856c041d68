//! Is there an order? Wing and Gong's search: of the calls that are left, any may be next that
//! began before all of them had ended; if what it was answered fits, go on from there, else take it
//! back. Lowe's addition: which calls are done and what the namespace is then decide about all that
//! follows, so a pair of both that failed once is not tried again.

use super::history::{Event, History};
use super::reply::Reply;
use super::space::Space;
use crate::op::Op;
use std::collections::HashSet;
use std::fmt;

/// No order explains a history.
#[derive(Debug)]
pub struct Wrong {
    history: Box<History>,
    /// The longest order that was possible.
    explained: Vec<Event>,
    /// Operations that may come next then, none of which fits.
    stuck: Vec<Event>,
    /// Answers after a crash.
    recovered: Option<Vec<(Op, Reply)>>,
    /// Pairs of calls and namespaces that were tried.
    tried: usize,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "not linearisable ({} states tried):\n{}", self.tried, self.history)?;
        writeln!(f, "the longest order that explains what it contains:")?;
        for event in &self.explained {
            writeln!(f, "  {}: {} = {}", event.thread, event.op, event.reply)?;
        }
        writeln!(f, "of which none can be next:")?;
        for event in &self.stuck {
            writeln!(f, "  {}: {} = {}", event.thread, event.op, event.reply)?;
        }
        if let Some(seen) = &self.recovered {
            writeln!(f, "and no beginning of an order explains what recovery brought back:")?;
            seen.iter().try_for_each(|(op, reply)| writeln!(f, "  {op} = {reply}"))?;
        }
        Ok(())
    }
}

/// Looks for an order. Returns the number of states that were tried.
pub fn check(history: &History) -> Result<usize, Wrong> {
    explained(history, None)
}

/// State that recovery brought back.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Time before which everything that had ended must be there.
    pub durable: u64,
    /// Answers, in this order. Of a history that ends with the crash.
    pub seen: Vec<(Op, Reply)>,
}

/// Looks for an order of which a beginning explains what a recovery brought back.
pub fn check_recovered(history: &History, recovered: Recovered) -> Result<usize, Wrong> {
    explained(history, Some(recovered))
}

fn explained(history: &History, recovered: Option<Recovered>) -> Result<usize, Wrong> {
    let steps = history.steps();
    assert!(steps.len() < 128, "a bit for each step");
    let space = Space::new(history.flavour, history.inos);
    let durable = recovered.as_ref().map_or(u64::MAX, |recovered| recovered.durable);
    let is_needed = |step: &Event| step.end < durable && !step.may_miss;
    let needed = steps.iter().enumerate().filter(|(_, step)| is_needed(step));
    let needed = needed.fold(0u128, |needed, (step, _)| needed | 1 << step);
    let seen = recovered.map(|recovered| recovered.seen);
    let (tried, order, best) = (HashSet::new(), Vec::new(), Vec::new());
    let mut search = Search { steps, needed, seen, tried, order, best };
    if search.explain(0, &space) {
        return Ok(search.tried.len());
    }
    let done = search.best.iter().fold(0u128, |done, step| done | 1 << step);
    let event = |step: &usize| search.steps[*step].clone();
    Err(Wrong {
        history: Box::new(history.clone()),
        explained: search.best.iter().map(event).collect(),
        stuck: search.next(done).iter().map(event).collect(),
        recovered: search.seen.take(),
        tried: search.tried.len(),
    })
}

struct Search {
    steps: Vec<Event>,
    /// Those that must be in the order.
    needed: u128,
    /// Answers after a crash, if there was one: an order that explains them may leave out the
    /// operations that are not needed.
    seen: Option<Vec<(Op, Reply)>>,
    /// Sets of operations, with the state after them, that were tried and lead nowhere.
    tried: HashSet<(u128, u64)>,
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
        match &self.seen {
            None if done & self.needed == self.needed => return true,
            Some(seen) if done & self.needed == self.needed && space.recovers(seen) => {
                return true;
            }
            _ => {}
        }
        for step in self.next(done) {
            if self.steps[step].may_miss && self.try_on(done | 1 << step, space, None) {
                return true;
            }
            let (after, Event { op, reply, .. }) = (done | 1 << step, &self.steps[step]);
            let mut space = space.clone();
            if !space.explains(op, reply, step) {
                continue;
            }
            if self.try_on(after, &space, Some(step)) {
                return true;
            }
        }
        false
    }

    /// Goes on from here, after `step` or without one.
    fn try_on(&mut self, after: u128, space: &Space, step: Option<usize>) -> bool {
        let key = (after, space.key());
        if self.tried.contains(&key) {
            return false;
        }
        self.order.extend(step);
        if self.explain(after, space) {
            return true;
        }
        if step.is_some() {
            self.order.pop();
        }
        self.tried.insert(key);
        false
    }
}
