//! Directories listed ahead of a walk, by threads.
//!
//! The walk asks for the subdirectories of the batch that it has come to, in its order. A thread
//! lists the first batch of the next one that nobody has begun. The walk takes what is there, waits
//! for what is being listed, and lists itself what is not begun: so it never waits for a thread
//! that waits, and its order does not depend on the threads.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::session::Cursor;
use crate::source::{Batch, DirId, Source};

/// Entries listed and not yet taken, beyond which no thread begins another batch.
const HELD_MAX: usize = 32 << 10;
/// Threads that list ahead, at least and at most: the least is for devices that are slow.
const THREADS: (usize, usize) = (2, 8);
/// Directories asked for, at most; the walk lists the others itself.
const WANTED_MAX: usize = 8 << 10;

/// A directory that may be listed ahead.
pub(crate) struct Job {
    dir: DirId,
    /// Changes only under the lock of [`Ahead::state`].
    state: Mutex<JobState>,
}

enum JobState {
    /// Nobody has begun.
    Waiting,
    /// A thread is listing it.
    Busy,
    /// Listed.
    Done(Batch),
    /// Taken by the walk, or not needed any more.
    Over,
}

impl Job {
    /// Returns a directory that nobody has begun to list.
    pub(crate) fn new(dir: DirId) -> Job {
        Job { dir, state: Mutex::new(JobState::Waiting) }
    }

    fn state(&self) -> MutexGuard<'_, JobState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Default)]
struct State {
    /// Directories asked for, the next one last.
    wanted: Vec<Arc<Job>>,
    /// Entries of jobs that are done.
    held: usize,
    stopped: bool,
}

/// The directories listed ahead of one walk.
pub(crate) struct Ahead<'s> {
    source: &'s dyn Source,
    names_only: bool,
    state: Mutex<State>,
    changed: Condvar,
}

impl<'s> Ahead<'s> {
    /// Returns one that nothing was asked of.
    fn new(source: &'s dyn Source, names_only: bool) -> Ahead<'s> {
        Ahead { source, names_only, state: Mutex::default(), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts the threads, and does `work` while they list.
    pub(crate) fn run<T>(
        source: &dyn Source,
        names_only: bool,
        work: impl FnOnce(&Ahead<'_>) -> T,
    ) -> T {
        let ahead = Ahead::new(source, names_only);
        thread::scope(|scope| {
            let threads = thread::available_parallelism().map_or(1, usize::from);
            for _ in 0..threads.clamp(THREADS.0, THREADS.1) {
                // Without threads the work lists everything itself.
                let _ = thread::Builder::new().spawn_scoped(scope, || ahead.serve());
            }
            let _end = End(&ahead);
            work(&ahead)
        })
    }

    /// Lists some entries of a directory.
    pub(crate) fn list(&self, dir: &DirId, cursor: Cursor) -> Batch {
        self.source.list_dir(self.names_only, dir, cursor)
    }

    /// Lists the first entries of a directory that was asked for, or takes them.
    pub(crate) fn first(&self, job: &Job) -> Batch {
        self.take(job).unwrap_or_else(|| self.list(&job.dir, Cursor::After(0)))
    }

    /// Asks for directories; the first is needed first.
    pub(crate) fn want(&self, jobs: Vec<Arc<Job>>) {
        if jobs.is_empty() {
            return;
        }
        let mut state = self.lock();
        let room = WANTED_MAX.saturating_sub(state.wanted.len());
        state.wanted.extend(jobs.into_iter().take(room).rev());
        drop(state);
        self.changed.notify_all();
    }

    /// Takes the first batch of a directory; `None`: nobody has begun, and nobody will.
    pub(crate) fn take(&self, job: &Job) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            let mut job_state = job.state();
            if !matches!(*job_state, JobState::Busy) {
                let taken = std::mem::replace(&mut *job_state, JobState::Over);
                return self.release(state, taken);
            }
            drop(job_state);
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives up a directory: it is not needed.
    pub(crate) fn forget(&self, job: &Job) {
        let state = self.lock();
        let given_up = std::mem::replace(&mut *job.state(), JobState::Over);
        self.release(state, given_up);
    }

    /// Subtracts what a job held; returns it.
    fn release(&self, mut state: MutexGuard<'_, State>, job: JobState) -> Option<Batch> {
        let JobState::Done(batch) = job else { return None };
        state.held -= count(&batch);
        drop(state);
        self.changed.notify_all();
        Some(batch)
    }

    /// Ends the threads.
    fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }

    /// Lists directories until the walk ends: the work of a thread.
    fn serve(&self) {
        while let Some(job) = self.next() {
            let batch = self.list(&job.dir, Cursor::After(0));
            let mut state = self.lock();
            let mut job_state = job.state();
            if matches!(*job_state, JobState::Busy) {
                state.held += count(&batch);
                *job_state = JobState::Done(batch);
            }
            drop((job_state, state));
            self.changed.notify_all();
        }
    }

    /// Waits for a directory, and begins it; `None` at the end of the walk.
    fn next(&self) -> Option<Arc<Job>> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            while state.held < HELD_MAX
                && let Some(job) = state.wanted.pop()
            {
                let mut job_state = job.state();
                if matches!(*job_state, JobState::Waiting) {
                    *job_state = JobState::Busy;
                    drop(job_state);
                    return Some(job);
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Ends the threads, also if the work panics: the scope waits for them.
struct End<'a>(&'a Ahead<'a>);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Returns the entries of a batch, and 1 for itself.
fn count(batch: &Batch) -> usize {
    1 + batch.entries.as_ref().map_or(0, Vec::len)
}
