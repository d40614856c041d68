//! Threads for requests that may wait for the device, so that the threads of the rings do not.
//!
//! There are as many as such requests at a time: callers in `fsync` share a commit only if all of
//! their requests have been taken. A helper lives as long as the mount.

use super::answer::{Thread, answer};
use super::inbox::Inbox;
use super::slots::{Held, Slots};
use crate::service::Serve;
use crate::transport::Threads;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

/// Most helpers; further requests wait for a free one.
const HELPERS_MAX: usize = 128;

/// The helpers of one mount.
pub(super) struct Helpers<S: Serve> {
    shared: Arc<S::Shared>,
    threads: Threads,
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    helpers: usize,
    /// Rings that may still bring requests.
    rings: usize,
}

/// A request to be answered.
pub(super) struct Job {
    /// Slot of the request and its reply.
    pub held: Held,
    /// Memory of that slot.
    pub slots: Arc<Slots>,
    /// Inbox of the ring that gets it back.
    pub inbox: Arc<Inbox>,
}

impl<S: Serve> Helpers<S> {
    /// Creates the helpers of a number of rings. They are added to `threads`.
    pub(super) fn new(shared: Arc<S::Shared>, threads: &Threads, rings: usize) -> Arc<Helpers<S>> {
        let state = State { jobs: VecDeque::new(), idle: 0, helpers: 0, rings };
        let threads = threads.clone();
        Arc::new(Helpers { shared, threads, state: Mutex::new(state), wake: Condvar::new() })
    }

    /// Passes a job to a helper, or returns it if there can be none.
    pub(super) fn give(self: &Arc<Self>, job: Job) -> Result<(), Job> {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.idle >= state.jobs.len() || state.helpers == HELPERS_MAX {
            self.wake.notify_one();
            return Ok(());
        }
        state.helpers += 1;
        drop(state);
        if self.hire().is_ok() {
            return Ok(());
        }
        let mut state = self.state.lock();
        state.helpers -= 1;
        // If there are others, one of them will take it.
        match state.helpers {
            0 => state.jobs.pop_back().map_or(Ok(()), Err),
            _ => Ok(()),
        }
    }

    fn hire(self: &Arc<Self>) -> std::io::Result<()> {
        let inner = self.clone();
        let name = format!("shoal-help-{}", self.threads.count());
        self.threads.start(name, move || inner.help()).inspect_err(|error| {
            tracing::debug!(%error, "no helper thread");
        })
    }

    /// Runs a helper.
    fn help(&self) {
        let mut worker = S::new(self.shared.clone());
        while let Some(mut job) = self.next() {
            let done = answer(&mut worker, job.slots.open(&mut job.held), Thread::Helper);
            debug_assert!(done, "a helper answers everything");
            job.inbox.answered(job.held);
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.rings == 0 {
                return None;
            }
            state.idle += 1;
            self.wake.wait(&mut state);
            state.idle -= 1;
        }
    }

    /// Records that a ring is gone; after the last one the helpers end.
    pub(super) fn ring_gone(&self) {
        let mut state = self.state.lock();
        state.rings -= 1;
        if state.rings == 0 {
            self.wake.notify_all();
        }
    }
}
