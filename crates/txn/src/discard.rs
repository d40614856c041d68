//! Discarding free segments: punches holes in a sparse file, discards on a block device.
//!
//! A segment is free only if neither the newest durable checkpoint nor the journal after it needs
//! it. It may be overwritten, so it may be discarded. It cannot be allocated while it is being
//! discarded. Some free segments are kept allocated on the host for the next checkpoint
//! ([`Room::back`]).

use crate::room::Room;
use crate::store::Store;
use shoal_base::counters::Counter;

impl Room<'_> {
    /// Discards a run of adjacent free segments of up to `max` bytes, unless at most `keep`
    /// segments are free in addition to those kept allocated. Returns the number of bytes; 0 if
    /// there is nothing to discard. Harmless on a device that does not support discard.
    pub fn discard_run(self, max: u64, keep: u32) -> u64 {
        let store = self.store;
        let size = store.geometry.segment_size;
        let count = (max / size).clamp(1, u64::from(store.geometry.segments)) as u32;
        let Some(run) = store.space.host().take_stale(count, self.backed_wanted() + keep) else {
            return 0;
        };
        let (start, bytes) = store.space.host().bytes_of(run);
        if let Err(error) = store.device.discard(start.0, bytes) {
            tracing::warn!(%error, "free space is not discarded");
        }
        // Also after a failure: the outcome is unknown, and it is not tried again.
        store.space.host().give_back(run, true);
        store.counters.add(Counter::DiscardedBytes, bytes);
        bytes
    }
}

impl Store {
    /// After a checkpoint of a volume without background threads: discards everything at once.
    pub(crate) fn discard_here(&self) {
        let here = !self.options.background && self.options.discard;
        while here && self.room().discard_run(u64::MAX, 0) > 0 {}
    }
}
