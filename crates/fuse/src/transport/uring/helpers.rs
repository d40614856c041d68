//! Threads for requests that may wait for the device, so that the threads of the rings do not.
//!
//! There are as many as such requests at a time: callers in `fsync` share a commit only if all of
//! their requests have been taken. Of those that read from the device [`DEVICE_MAX`] wait on
//! threads, and the others in a queue: a thousand that wait for a device that hangs stop nobody.
//!
//! A helper works on a copy of the request, so that its slot can be answered when its caller is
//! killed.

use super::answer::{Answered, Apart, Thread, answer, fail, header};
use super::inbox::Inbox;
use super::slots::{Held, Slots};
use crate::protocol::wire::InHeader;
use crate::protocol::{Errno, Opcode};
use crate::service::Serve;
use crate::transport::Threads;
use crate::transport::crew::DEVICE_MAX;
use crate::transport::waiting::Waiting;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Most helpers; further requests wait for a free one.
const HELPERS_MAX: usize = 1024;
/// Helpers that stay; further ones end after [`IDLE`] without work.
const HELPERS_KEPT: usize = 8;
const IDLE: Duration = Duration::from_secs(10);

/// The helpers of one mount.
pub(super) struct Helpers<S: Serve> {
    shared: Arc<S::Shared>,
    threads: Threads,
    waiting: Arc<Waiting>,
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    /// Those that wait for the device.
    device: VecDeque<Job>,
    /// Helpers that do.
    at_device: usize,
    idle: usize,
    helpers: usize,
    /// Rings that may still bring requests.
    rings: usize,
}

/// A request to be answered.
#[derive(Clone)]
pub(super) struct Job {
    /// Slot of the request and its reply; whoever answers takes it.
    pub held: Arc<Mutex<Option<Held>>>,
    /// Memory of that slot.
    pub slots: Arc<Slots>,
    /// Inbox of the ring that gets it back.
    pub inbox: Arc<Inbox>,
    /// It waits for the device; others are those that always may wait.
    pub device: bool,
}

impl Job {
    fn header(&self) -> InHeader {
        let mut held = self.held.lock();
        held.as_mut().map_or_else(InHeader::default, |held| header(&self.slots.open(held)))
    }
}

impl<S: Serve> Helpers<S> {
    /// Creates the helpers of a number of rings. They are added to `threads`.
    pub(super) fn new(
        shared: Arc<S::Shared>,
        threads: &Threads,
        waiting: &Arc<Waiting>,
        rings: usize,
    ) -> Arc<Helpers<S>> {
        let (jobs, device) = (VecDeque::new(), VecDeque::new());
        let state = State { jobs, device, at_device: 0, idle: 0, helpers: 0, rings };
        let (threads, waiting) = (threads.clone(), waiting.clone());
        let (state, wake) = (Mutex::new(state), Condvar::new());
        Arc::new(Helpers { shared, threads, waiting, state, wake })
    }

    /// Passes a job to a helper, or returns its slot if there can be none.
    pub(super) fn give(self: &Arc<Self>, job: Job) -> Result<(), Held> {
        let header = job.header();
        let release = {
            let Job { held, slots, inbox, .. } = job.clone();
            move || {
                if let Some(mut held) = held.lock().take() {
                    fail(slots.open(&mut held), header.unique, Errno::EINTR);
                    inbox.answered(held);
                }
            }
        };
        self.waiting.begin(header.unique, header.pid, Box::new(release), &self.threads);
        match self.put(job) {
            Ok(()) => Ok(()),
            Err(job) => {
                let _ = self.waiting.end(header.unique);
                job.held.lock().take().map_or(Ok(()), Err)
            }
        }
    }

    fn put(self: &Arc<Self>, job: Job) -> Result<(), Job> {
        let mut state = self.state.lock();
        match job.device {
            true => state.device.push_back(job),
            false => state.jobs.push_back(job),
        }
        let wanted = state.jobs.len() + state.device.len().min(DEVICE_MAX - state.at_device);
        if state.idle >= wanted || state.helpers == HELPERS_MAX {
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
            0 => state.jobs.pop_back().or_else(|| state.device.pop_back()).map_or(Ok(()), Err),
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
        while let Some(job) = self.next() {
            let device = job.device;
            self.work(&mut worker, job);
            if device {
                self.state.lock().at_device -= 1;
            }
        }
    }

    fn work(&self, worker: &mut S, job: Job) {
        let header = job.header();
        let Job { held, slots, inbox, .. } = job;
        // Its caller may have been killed before.
        let apart = held.lock().as_mut().map(|held| Apart::of(&mut slots.open(held)));
        let Some(mut apart) = apart else { return };
        let done = answer(worker, apart.slot(), Thread::Helper);
        debug_assert_eq!(done, Answered::Yes, "a helper answers everything");
        let _ = self.waiting.end(header.unique);
        match held.lock().take() {
            Some(mut held) => {
                apart.reply(&mut slots.open(&mut held));
                inbox.answered(held);
            }
            None => apart.undo(Opcode::from_number(header.opcode), worker),
        }
    }

    fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.at_device < DEVICE_MAX
                && let Some(job) = state.device.pop_front()
            {
                state.at_device += 1;
                return Some(job);
            }
            if state.rings == 0 {
                return None;
            }
            state.idle += 1;
            let is_late = self.wake.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if is_late
                && state.jobs.is_empty()
                && state.device.is_empty()
                && state.helpers > HELPERS_KEPT
            {
                state.helpers -= 1;
                return None;
            }
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
