//! Changes of trees that no call is making: those that a crash or an error has interrupted.

use shoal_base::Ino;
use shoal_base::sync::{AtomicU64, Mutex};
use shoal_txn::OrphanSlot;
use std::sync::atomic::Ordering;

/// Changes of trees that calls may make at the same time: bounds the memory and the orphan slots.
const CALLS_MAX: u64 = 64;

/// Units of changes of trees (`tree_change/`).
#[derive(Default)]
pub(crate) struct Changing {
    /// Units to continue in the background, the next one last. Locked during a step.
    pub waiting: Mutex<Vec<(Ino, OrphanSlot)>>,
    /// The number of `waiting`, to read without its lock.
    count: AtomicU64,
    calls: AtomicU64,
}

/// A call that makes a change.
pub(crate) struct ChangeCall<'c>(&'c Changing);

impl Changing {
    /// Counts a call; `None` if there are too many.
    pub(crate) fn begin(&self) -> Option<ChangeCall<'_>> {
        let call = ChangeCall(self);
        (self.calls.fetch_add(1, Ordering::Relaxed) < CALLS_MAX).then_some(call)
    }

    /// Notes how many units are waiting. Must be called when their number has changed.
    pub(crate) fn note(&self, waiting: usize) {
        self.count.store(waiting as u64, Ordering::Release);
    }

    /// Adds a unit that is continued in the background.
    pub(crate) fn push(&self, ino: Ino, slot: OrphanSlot) {
        let mut waiting = self.waiting.lock();
        waiting.push((ino, slot));
        self.note(waiting.len());
    }

    /// Returns the number of units that are waiting or being continued.
    pub(crate) fn waiting(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }
}

impl Drop for ChangeCall<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}
