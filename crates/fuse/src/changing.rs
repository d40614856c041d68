//! Changes of trees that a control file was asked for ([`crate::ops::tree_change`]): each has a
//! thread of its own, so that it goes on when its program has gone.
//!
//! | of | at most | beyond |
//! | --- | --- | --- |
//! | changes of a user other than root | [`USER_RUNNING_MAX`] | `EAGAIN` |
//! | changes of all | [`RUNNING_MAX`] | `EAGAIN` |
//! | failures that nobody has read | [`FAILURES_MAX`], of [`FAILURE_BYTES_MAX`] | counted, not told |
//!
//! Each step has told the kernel what it must forget when it is counted, so for whoever waits the
//! change is done when nobody sees old attributes any more.
//!
//! When the mount ends, each change stops after its current step, and the volume continues it in
//! the background, in this session or the next one.

use crate::protocol::Errno;
use crate::protocol::question::Progress;
use parking_lot::{Condvar, Mutex};
use shoal::raw::{Caller, Ino, TreeChange, TreeChanged, TreeFailure, TreeStep, Volume};
use std::collections::VecDeque;
use std::mem::take;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle, available_parallelism};
use std::time::{Duration, Instant};

/// Most changes of a user.
const USER_RUNNING_MAX: usize = 2;
/// Most changes.
const RUNNING_MAX: usize = 8;
/// Most failures that wait to be read.
const FAILURES_MAX: usize = 4096;
/// Most bytes of their paths.
const FAILURE_BYTES_MAX: usize = 1 << 20;

/// The changes of a mount.
#[derive(Default)]
pub(crate) struct Changing {
    threads: Mutex<Vec<(Arc<Running>, JoinHandle<()>)>>,
    /// The mount has ended.
    leave: Arc<AtomicBool>,
}

/// A change.
pub(crate) struct Running {
    /// User who has asked for it.
    uid: u32,
    cancel: AtomicBool,
    state: Mutex<State>,
    /// There is news.
    told: Condvar,
}

#[derive(Default)]
struct State {
    progress: Progress,
    failures: VecDeque<Failure>,
    /// Bytes of their paths.
    bytes: usize,
    done: Option<Result<TreeChanged, Errno>>,
}

/// Something that could not be changed.
pub(crate) struct Failure {
    /// Its path below the directory of the change.
    pub path: Vec<u8>,
    /// The inode.
    pub ino: Ino,
    /// Why.
    pub errno: Errno,
    /// Bytes of the path that are told; `None`: nothing is.
    pub told: Option<usize>,
}

impl Changing {
    /// Starts a change of everything below a directory, which the caller has checked and holds a
    /// reference to; the reference goes to the change.
    ///
    /// # Errors
    /// `EAGAIN`: too many are in progress, or there can be no thread.
    pub(crate) fn start(
        &self,
        volume: &Arc<Volume>,
        (who, dir): (&Caller, Ino),
        change: &TreeChange,
    ) -> Result<Arc<Running>, Errno> {
        let mut threads = self.threads.lock();
        let ended = |(_, thread): &mut (Arc<Running>, JoinHandle<()>)| thread.is_finished();
        for (_, thread) in threads.extract_if(.., ended) {
            // A panic has been printed.
            let _ = thread.join();
        }
        let own = threads.iter().filter(|(running, _)| running.uid == who.uid).count();
        if threads.len() >= RUNNING_MAX || who.uid != 0 && own >= USER_RUNNING_MAX {
            return Err(Errno::EAGAIN);
        }
        let running = Arc::new(Running::new(who.uid));
        let job = Job {
            volume: volume.clone(),
            leave: self.leave.clone(),
            who: who.clone(),
            dir,
            change: change.clone(),
            running: running.clone(),
        };
        let thread = Builder::new().name("shoal-change".into()).spawn(move || job.run());
        threads.push((running.clone(), thread.map_err(|_| Errno::EAGAIN)?));
        Ok(running)
    }

    /// Returns whether a change is in progress.
    pub(crate) fn is_any(&self) -> bool {
        self.threads.lock().iter().any(|(_, thread)| !thread.is_finished())
    }
}

impl Changing {
    /// Stops all changes after their current steps: the volume continues them.
    pub(crate) fn stop(&self) {
        self.leave.store(true, Ordering::Release);
        for (_, thread) in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Work of a thread.
struct Job {
    volume: Arc<Volume>,
    leave: Arc<AtomicBool>,
    who: Caller,
    dir: Ino,
    change: TreeChange,
    running: Arc<Running>,
}

impl Job {
    fn run(self) {
        let _ended = EndOnPanic(&self.running);
        let Job { volume, leave, who, dir, change, running } = &self;
        let watch = |step: &TreeStep<'_>| {
            running.step(step);
            match running.cancel.load(Ordering::Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        let leave = || leave.load(Ordering::Acquire);
        let threads = available_parallelism().map_or(1, usize::from);
        let changes = volume.tree_changes();
        let done = changes.change_tree_until(who, *dir, change, threads, &watch, &leave);
        volume.references().release(*dir, 1);
        // What is refused is the caller's affair, not the log's.
        running.finish(done.map_err(|error| Errno(error.code().errno())));
    }
}

/// Ends a change whose thread panics, so that nobody waits for it.
struct EndOnPanic<'r>(&'r Running);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.finish(Err(Errno::EIO));
        }
    }
}

impl Running {
    fn new(uid: u32) -> Running {
        let (cancel, state) = (AtomicBool::new(false), Mutex::default());
        Running { uid, cancel, state, told: Condvar::new() }
    }

    fn step(&self, step: &TreeStep<'_>) {
        let state = &mut *self.state.lock();
        state.progress.inodes = state.progress.inodes.max(step.inodes);
        for TreeFailure { path, ino, error } in step.failures {
            state.progress.failures += 1;
            let bytes = state.bytes + path.len();
            if state.failures.len() >= FAILURES_MAX || bytes > FAILURE_BYTES_MAX {
                state.progress.untold += 1;
                continue;
            }
            state.bytes = bytes;
            let errno = Errno(error.code().errno());
            state.failures.push_back(Failure { path: path.clone(), ino: *ino, errno, told: None });
        }
        if !step.failures.is_empty() {
            self.told.notify_all();
        }
    }

    fn finish(&self, done: Result<TreeChanged, Errno>) {
        let state = &mut *self.state.lock();
        if let Ok(done) = done {
            state.progress.inodes = done.inodes;
            state.progress.cancelled = done.cancelled;
        }
        state.done.get_or_insert(done);
        self.told.notify_all();
    }

    /// Returns whether a user may cancel it.
    pub(crate) fn is_of(&self, uid: u32) -> bool {
        uid == 0 || uid == self.uid
    }

    /// Ends it after the current step.
    pub(crate) fn cancel(&self) {
        self.cancel.store(true, Ordering::Relaxed);
    }

    /// Waits for failures or the end, at most this long; then passes the failures to `tell`, which
    /// returns whether there was room. Returns the progress, and the result if all is told.
    pub(crate) fn news(
        &self,
        at_most: Duration,
        mut tell: impl FnMut(&mut Failure) -> bool,
    ) -> (Progress, Option<Result<TreeChanged, Errno>>) {
        let end = Instant::now() + at_most;
        let mut state = self.state.lock();
        while state.failures.is_empty() && state.done.is_none() {
            if self.told.wait_until(&mut state, end).timed_out() {
                break;
            }
        }
        let State { progress, failures, bytes, done } = &mut *state;
        let mut waiting = take(failures);
        while let Some(failure) = waiting.front_mut()
            && tell(failure)
        {
            *bytes -= failure.path.len();
            waiting.pop_front();
        }
        let done = done.filter(|_| waiting.is_empty());
        *failures = waiting;
        (*progress, done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal::raw::Code;

    fn fail(running: &Running, count: usize, len: usize) {
        let path = vec![b'x'; len];
        let failure = TreeFailure { path, ino: Ino(9), error: Code::NotPermitted.into() };
        let failures = vec![failure; count];
        running.step(&TreeStep { inodes: 5, failures: &failures });
    }

    #[test]
    fn failures_that_nobody_reads_are_counted_and_not_kept() {
        for (count, len, kept) in
            [(FAILURES_MAX + 7, 3, FAILURES_MAX), (300, 4096, FAILURE_BYTES_MAX / 4096)]
        {
            let running = Running::new(7);
            fail(&running, count, len);
            let mut told = 0;
            let mut tell = |failure: &mut Failure| {
                assert_eq!((failure.path.len(), failure.errno), (len, Errno::EPERM));
                told += 1;
                told <= 10
            };
            let (progress, done) = running.news(Duration::ZERO, &mut tell);
            assert_eq!((progress.inodes, progress.failures), (5, count as u64));
            assert_eq!(progress.untold, (count - kept) as u64);
            assert!(done.is_none());
            running.finish(Ok(TreeChanged::default()));
            let (_, done) = running.news(Duration::ZERO, |_| false);
            assert!(done.is_none(), "not before all is told");
            let (_, done) = running.news(Duration::ZERO, |_| true);
            assert_eq!(done, Some(Ok(TreeChanged::default())));
            assert_eq!(running.state.lock().bytes, 0);
        }
    }

    #[test]
    fn who_may_cancel() {
        let running = Running::new(7);
        assert!(running.is_of(7) && running.is_of(0) && !running.is_of(8));
    }
}
