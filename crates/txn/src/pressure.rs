//! Pressure: when a checkpoint is due, and when calls must wait for one; requests to the background
//! thread.

use crate::store::Store;
use shoal_base::{Epoch, Lsn};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// In `Store::pressure`: a checkpoint is due, because of what has accumulated since the newest one,
/// in progress or done, began.
pub(crate) const DUE: u8 = 1;
/// In `Store::pressure`: so much must be written that calls have to wait too.
pub(crate) const BEHIND: u8 = 2;

impl Store {
    /// Returns whether calls must wait, because of everything that is not in a finished checkpoint.
    #[inline]
    pub(crate) fn is_behind(&self, lsn: Lsn) -> bool {
        let journal = lsn.0.saturating_sub(self.checkpoint_lsn.load(Ordering::Relaxed));
        let dirty = self.dirty_bytes();
        dirty.max(self.dirty_held()) > self.options.cache_bytes * 3 / 4
            || self.share(dirty) > 0.5
            || journal > self.options.checkpoint_bytes.saturating_mul(4)
    }

    /// Dirty bytes as a fraction of the free space. Calls that may use the reserve must leave space
    /// for the checkpoints that write them.
    #[inline]
    fn share(&self, dirty: u64) -> f64 {
        let free = u64::from(self.room().sure_segments()) * self.geometry.segment_size;
        (dirty * 5 / 4).min(self.room().likely_to_write()) as f64 / free.max(1) as f64
    }

    /// Determines after a transaction whether a checkpoint is due, and whether calls must wait.
    ///
    /// Only journal bytes and dirty metadata since the last quiesce count, not those that a
    /// checkpoint in progress is about to write. Otherwise a single commit during a checkpoint
    /// would request another. Must be called inside the transaction, so that the flag
    /// belongs to the epoch: a checkpoint clears it while transactions are quiesced.
    #[inline]
    pub(crate) fn note_due(&self, lsn: Lsn, epoch: Epoch) {
        let journal = lsn.0.saturating_sub(self.boundary_lsn.load(Ordering::Relaxed));
        let (nodes, blocks) = (self.cache.to_write_in(epoch), self.budget.dirty_in(epoch));
        let most = self.cache.dirty_in(epoch) + blocks.max(self.budget.dirty_held_in(epoch));
        let due = journal > self.options.checkpoint_bytes
            || most > self.options.cache_bytes * 3 / 8
            || self.share(nodes + blocks) > 0.25;
        let mut pressure = if due { DUE } else { 0 };
        if self.is_behind(lsn) {
            pressure |= BEHIND;
        }
        // Written only when it changes, because every transaction reads it.
        if pressure & !self.pressure.load(Ordering::Relaxed) != 0 {
            let before = self.pressure.fetch_or(pressure, Ordering::Relaxed);
            if pressure & !before & DUE != 0 && self.options.background {
                self.request_checkpoint();
            }
        }
    }

    /// See [`Checkpoints::request`](crate::Checkpoints::request).
    pub(crate) fn request_checkpoint(&self) {
        *self.wake.0.lock() = true;
        self.wake.1.notify_one();
    }

    /// See [`Checkpoints::wait_for_request`](crate::Checkpoints::wait_for_request).
    pub(crate) fn wait_for_request(&self, at_most: Duration) -> bool {
        let mut asked = self.wake.0.lock();
        if !*asked {
            self.wake.1.wait_for(&mut asked, at_most);
        }
        std::mem::take(&mut *asked)
    }

    /// See [`Checkpoints::is_due`](crate::Checkpoints::is_due).
    pub(crate) fn checkpoint_is_due(&self) -> bool {
        self.pressure.load(Ordering::Relaxed) & DUE != 0
    }
}
