//! Inodes to be freed in the background, and the thread that waits for them.

use shoal_base::Ino;
use shoal_base::sync::{AtomicBool, IdleCondvar, IdleMutex, Mutex};
use shoal_txn::OrphanSlot;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Callback for inodes that have changed behind those who hold them.
pub(crate) type Watcher = Arc<dyn Fn(&[Ino], Teller) + Send + Sync>;

/// The thread that tells which inodes have changed behind those who hold them
/// ([`References::watch_links`](crate::References::watch_links)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Teller {
    /// A thread of the volume, or of a call that others may wait for: it must not be held up.
    Volume,
    /// A thread of a call that changes a tree: only its caller waits for it, and it may wait until
    /// the change has been made known.
    Call,
}

/// The reap queue.
#[derive(Default)]
pub(crate) struct Reaping {
    /// Called with the inodes in use that lose names in the background, or that a change of a tree
    /// has changed.
    watcher: Mutex<Option<Watcher>>,
    queue: IdleMutex<Queue>,
    /// A step has ended.
    stepped: IdleCondvar,
    /// There is work, or the thread must stop.
    wake: IdleCondvar,
}

#[derive(Default)]
struct Queue {
    /// The newest is last.
    waiting: Vec<(Ino, OrphanSlot)>,
    /// Steps in progress.
    busy: usize,
}

impl Reaping {
    /// Queues an inode.
    pub(crate) fn push(&self, ino: Ino, slot: OrphanSlot) {
        self.queue.lock().waiting.push((ino, slot));
    }

    /// Queues several, and leaves the list empty.
    pub(crate) fn append(&self, inodes: &mut Vec<(Ino, OrphanSlot)>) {
        self.queue.lock().waiting.append(inodes);
    }

    /// Takes the newest inode for a step, which [`Reaping::step_ended`] must end.
    pub(crate) fn take(&self) -> Option<(Ino, OrphanSlot)> {
        let mut queue = self.queue.lock();
        let newest = queue.waiting.pop()?;
        queue.busy += 1;
        Some(newest)
    }

    /// Ends a step. `again`: the inode needs another one; it is queued below those that the step
    /// itself has queued.
    pub(crate) fn step_ended(&self, again: Option<(Ino, OrphanSlot)>) {
        let mut queue = self.queue.lock();
        queue.busy -= 1;
        queue.waiting.extend(again);
        drop(queue);
        self.stepped.notify_all();
    }

    /// Returns whether an inode is queued or a step is in progress.
    pub(crate) fn has_work(&self) -> bool {
        let queue = self.queue.lock();
        !queue.waiting.is_empty() || queue.busy > 0
    }

    /// Waits for the end of a step in progress. Returns `false` if there is none.
    pub(crate) fn wait_for_step(&self) -> bool {
        let mut queue = self.queue.lock();
        let busy = queue.busy > 0;
        if busy {
            self.stepped.wait(&mut queue);
        }
        busy
    }

    /// Tells the background thread that there is work.
    pub(crate) fn notify(&self) {
        self.wake.notify_all();
    }

    /// As [`Reaping::notify`], and the thread cannot miss it.
    pub(crate) fn wake(&self) {
        let _queue = self.queue.lock();
        self.wake.notify_all();
    }

    /// For the background thread: waits for work, at most this long.
    pub(crate) fn wait_for_work(&self, at_most: Duration) {
        let mut queue = self.queue.lock();
        if queue.waiting.is_empty() {
            self.wake.wait_for(&mut queue, at_most);
        }
    }

    /// For the background thread: pauses, unless it must stop or is woken.
    pub(crate) fn rest(&self, long: Duration, stop: &AtomicBool) {
        let mut queue = self.queue.lock();
        if !stop.load(Ordering::Acquire) {
            self.wake.wait_for(&mut queue, long);
        }
    }

    /// Replaces the callback.
    pub(crate) fn watch(&self, watcher: Watcher) {
        *self.watcher.lock() = Some(watcher);
    }

    pub(crate) fn watcher(&self) -> Option<Watcher> {
        self.watcher.lock().clone()
    }
}

/// Progress of freeing deleted subvolumes in this session.
#[derive(Default)]
pub(crate) struct RootReaper {
    /// The current subvolume and its next block. Calls that saw the subvolume live have ended.
    pub at: Option<(u16, u64)>,
    /// Largest generation seen in it.
    pub generation: u32,
    /// Inodes freed since its first block.
    pub freed: u64,
    /// Subvolumes with damage, which are left for fsck.
    pub damaged: HashSet<u16>,
}
