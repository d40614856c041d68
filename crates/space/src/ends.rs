//! Writes in progress at the end of a stream, for which a flush waits (`sectors.rs`).

use shoal_base::sync::{Condvar, Mutex};

/// Flush state of a stream. Changes under the lock of the stream.
#[derive(Default)]
pub(crate) struct Ends {
    pub(crate) state: Mutex<EndsState>,
    pub(crate) done: Condvar,
}

#[derive(Default)]
pub(crate) struct EndsState {
    /// Number of times that sectors were closed after a write.
    pub(crate) closed: u64,
    /// Something was written since, or is about to be.
    pub(crate) dirty: bool,
    /// Writes in progress, by the parity of `closed` at their start.
    pub(crate) writing: [u32; 2],
}

impl Ends {
    /// Begins a write.
    pub(crate) fn begin(&self) -> Writing<'_> {
        let mut state = self.state.lock();
        state.dirty = true;
        let number = state.closed;
        state.writing[number as usize % 2] += 1;
        Writing { ends: self, number }
    }
}

/// A write to a data stream in progress. A flush waits until it is dropped, so its holder must do
/// nothing but write.
#[must_use]
pub struct Writing<'s> {
    ends: &'s Ends,
    number: u64,
}

impl Writing<'_> {
    /// The stream's flush number before the write. An object whose last write has the stream's
    /// current number has not been covered by a flush.
    pub fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        let mut state = self.ends.state.lock();
        let under_way = &mut state.writing[self.number as usize % 2];
        *under_way -= 1;
        if *under_way == 0 {
            drop(state);
            self.ends.done.notify_all();
        }
    }
}
