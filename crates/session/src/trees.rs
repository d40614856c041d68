//! The changes of trees that a session has begun, at its server.
//!
//! A change may take minutes, so the question that begins it is answered at once, and the thread
//! that has answered it then makes the change. The client asks for the progress. When the client
//! dies or the server ends, the change stops after the present step, as when its watcher breaks.
//! When the server dies, the client learns that a part may have been made: it is not gone on with.

use crate::calls::{Calls, Node};
use crate::nodes::close;
use parking_lot::{Condvar, Mutex};
use shoal_engine::{Caller, Code, Error, Result, TreeChange, TreeChanged, TreeFailure, TreeStep};
use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Changes that a session may have at a time.
const TREES_MAX: usize = 4;
/// Failures of which the client has not been told, from which on the change waits for it.
const FAILURES_MAX: usize = 1024;
/// Longest wait for a client that does not ask. Failures after that are only counted.
const CLIENT_MAX: Duration = Duration::from_secs(10);
/// Longest wait of a question for progress.
const PROGRESS_MAX: Duration = Duration::from_millis(500);
/// Bytes of failures in one answer, beyond which the next one has the rest.
const ANSWER_MAX: usize = 16 << 10;

/// The progress since the last question, and the result if the change has ended.
pub(crate) type Progress = ((u64, Vec<TreeFailure>), Option<TreeChanged>);

/// A change.
pub(crate) struct Tree {
    who: Caller,
    /// The directory: held open for the change.
    dir: Node,
    change: TreeChange,
    state: Mutex<State>,
    /// The state has changed.
    moved: Condvar,
}

#[derive(Default)]
struct State {
    inodes: u64,
    /// Inodes of which the client has been told.
    told: u64,
    failures: VecDeque<TreeFailure>,
    stopped: bool,
    done: Option<Result<TreeChanged>>,
}

/// The changes of a session.
#[derive(Default)]
pub(crate) struct Trees {
    table: Mutex<Table>,
    /// Number of the first: those below were begun at a server before this one.
    first: u32,
}

/// The error of a change whose server has died.
#[cold]
pub(crate) fn cut_off() -> Error {
    let message = "the server that made this change of a tree has died, and a part of it may have \
                   been made: make it again";
    Error::refused(Code::Io, message)
}

#[derive(Default)]
struct Table {
    trees: Vec<Option<Arc<Tree>>>,
    /// Changes that no thread makes yet.
    begun: Vec<Arc<Tree>>,
    ended: bool,
}

impl Trees {
    /// The changes of a session, with numbers from `first` on.
    pub(crate) fn from(first: u32) -> Trees {
        Trees { first, ..Trees::default() }
    }

    /// Begins a change of a node of the volume, which [`Trees::run`] makes. Returns its number.
    pub(crate) fn begin(
        &self,
        calls: &dyn Calls,
        who: &Caller,
        dir: Node,
        change: TreeChange,
    ) -> Result<u32> {
        let mut table = self.table.lock();
        let free = table.trees.iter().position(Option::is_none);
        if table.ended || free.is_none() && table.trees.len() == TREES_MAX {
            let message = format!("a session makes at most {TREES_MAX} changes of trees at a time");
            return Err(Error::refused(Code::Busy, message));
        }
        // The client may close the directory before the change begins.
        let dir = calls.open_dir(&Caller::root(), dir, b"")?.node;
        let (who, state, moved) = (who.clone(), Mutex::default(), Condvar::new());
        let tree = Arc::new(Tree { who, dir, change, state, moved });
        table.begun.push(tree.clone());
        let number = free.unwrap_or_else(|| {
            table.trees.push(None);
            table.trees.len() - 1
        });
        table.trees[number] = Some(tree);
        Ok(self.first + number as u32)
    }

    /// Takes a change that has begun, to be made by [`Tree::run`].
    pub(crate) fn begun(&self) -> Option<Arc<Tree>> {
        self.table.lock().begun.pop()
    }

    fn get(&self, number: u32) -> Result<Arc<Tree>> {
        let place = number.checked_sub(self.first).ok_or_else(cut_off)?;
        let tree = self.table.lock().trees.get(place as usize).cloned().flatten();
        tree.ok_or_else(|| Code::BadHandle.into())
    }

    fn remove(&self, number: u32) {
        if let Some(place) = number.checked_sub(self.first)
            && let Some(place) = self.table.lock().trees.get_mut(place as usize)
        {
            *place = None;
        }
    }

    /// Waits for progress. After the result, the change has no number any more.
    pub(crate) fn next(&self, number: u32, stop: bool) -> Result<Progress> {
        let progress = self.get(number)?.next(stop);
        if !matches!(progress, Ok((_, None))) {
            self.remove(number);
        }
        progress
    }

    /// Stops a change whose result is not wanted.
    pub(crate) fn leave(&self, number: u32) -> Result<()> {
        self.get(number)?.stop();
        self.remove(number);
        Ok(())
    }

    /// Stops all of them, for good.
    pub(crate) fn end(&self) {
        let mut table = self.table.lock();
        table.ended = true;
        table.trees.iter().flatten().for_each(|tree| tree.stop());
    }
}

impl Tree {
    /// Makes the change, unless it is refused. The calling thread is busy until it ends.
    /// `finish` is called then, before the client knows.
    pub(crate) fn run(&self, calls: &dyn Calls, refusal: Option<Error>, finish: &dyn Fn()) {
        let stopped = self.state.lock().stopped;
        let watch = |step: &TreeStep<'_>| self.stepped(step);
        let change = || match (refusal, stopped) {
            (Some(refusal), _) => Err(refusal),
            (None, true) => Ok(TreeChanged { cancelled: true, ..TreeChanged::default() }),
            (None, false) => calls.change_tree(&self.who, self.dir, &self.change, &watch),
        };
        let done = catch_unwind(AssertUnwindSafe(change)).unwrap_or_else(|_| {
            tracing::error!("a change of a tree panicked");
            Err(Code::Io.into())
        });
        close(calls, self.dir);
        finish();
        self.state.lock().done = Some(done);
        self.moved.notify_all();
    }

    fn stepped(&self, step: &TreeStep<'_>) -> ControlFlow<()> {
        let mut state = self.state.lock();
        state.inodes = state.inodes.max(step.inodes);
        if !step.failures.is_empty() {
            let end = Instant::now() + CLIENT_MAX;
            while state.failures.len() >= FAILURES_MAX && !state.stopped {
                if self.moved.wait_until(&mut state, end).timed_out() {
                    break;
                }
            }
            if state.failures.len() < FAILURES_MAX {
                state.failures.extend(step.failures.iter().cloned());
            }
        }
        self.moved.notify_all();
        if state.stopped { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn stop(&self) {
        self.state.lock().stopped = true;
        self.moved.notify_all();
    }

    fn next(&self, stop: bool) -> Result<Progress> {
        if stop {
            self.stop();
        }
        let mut state = self.state.lock();
        let end = Instant::now() + PROGRESS_MAX;
        while state.done.is_none() && state.inodes == state.told && state.failures.is_empty() {
            if self.moved.wait_until(&mut state, end).timed_out() {
                break;
            }
        }
        let (mut len, mut failures) = (0, Vec::new());
        while len <= ANSWER_MAX
            && let Some(failure) = state.failures.pop_front()
        {
            len += 128 + failure.path.len();
            failures.push(failure);
        }
        self.moved.notify_all();
        state.told = state.inodes;
        let inodes = state.inodes;
        // A change that has failed tells what came before, and then its error.
        let done = match &state.done {
            Some(Ok(done)) if state.failures.is_empty() => Some(*done),
            Some(Err(error)) if failures.is_empty() => return Err(error.clone()),
            _ => None,
        };
        Ok(((inodes, failures), done))
    }
}
