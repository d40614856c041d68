//! Giving free segments back to what stores the volume: a hole in a sparse file, a discard on a
//! block device.
//!
//! A segment is free only when the newest durable checkpoint and the journal behind it need nothing
//! of it: it may be overwritten, so it may be discarded, which is no worse. While that is under way
//! nobody can take it. A few are kept allocated, for the next checkpoint ([`Store::back`]).

use crate::store::Store;
use shoal_base::counters::Counter;

impl Store {
    /// Discards a run of adjacent free segments of up to `max` bytes, unless no more than `keep`
    /// segments beyond those that are kept allocated are free. Returns how many bytes that were; 0:
    /// there is nothing to discard. A device that cannot do it loses nothing by it.
    pub fn discard_run(&self, max: u64, keep: u32) -> u64 {
        let size = self.geometry.segment_size;
        let count = (max / size).clamp(1, u64::from(self.geometry.segments)) as u32;
        let Some(run) = self.space.take_stale(count, self.backed_wanted() + keep) else { return 0 };
        let (start, bytes) = self.space.bytes_of(run);
        if let Err(error) = self.device.discard(start.0, bytes) {
            tracing::warn!(%error, "free space is not given back");
        }
        // Also after a failure: nobody knows how far it came, and it is not tried again.
        self.space.give_back(run, true);
        self.counters.add(Counter::DiscardedBytes, bytes);
        bytes
    }

    /// After a checkpoint of a volume without background threads: all at once.
    pub(crate) fn discard_here(&self) {
        while !self.options.background && self.options.discard && self.discard_run(u64::MAX, 0) > 0
        {
        }
    }
}
