//! Group commit: one caller writes and flushes for everybody, the others wait for it.

use crate::core::Core;
use shoal_base::counters::Counter;
use shoal_base::invariant;
use shoal_base::planted::{self, Defect};
use shoal_base::{Addr, Code, Result};
use std::sync::atomic::Ordering;

impl Core {
    /// Returns when everything below `lsn` is durable.
    pub(crate) fn commit(&self, lsn: u64) -> Result<()> {
        let staged = self.ring.tail();
        invariant!(lsn <= staged, "commit of {lsn}, staged are {staged}");
        let lsn = lsn.min(staged);
        if self.durable.load(Ordering::Acquire) >= lsn {
            return Ok(());
        }
        let mut group = self.group.lock();
        loop {
            if self.durable.load(Ordering::Acquire) >= lsn {
                return Ok(());
            }
            self.check_poison()?;
            if group.leader {
                self.group_changed.wait(&mut group);
                continue;
            }
            group.leader = true;
            drop(group);
            let leading = Leading(self);
            let led = self.write_and_flush(lsn);
            drop(leading);
            // An error that does not poison (no segment to be had) is this caller's; another waiter
            // becomes leader and finds out for itself.
            led?;
            group = self.group.lock();
        }
    }

    /// Writes at least up to `lsn`, and everything else that is complete, and flushes.
    fn write_and_flush(&self, lsn: u64) -> Result<()> {
        let written = {
            let mut writer = self.writer.lock();
            self.write_up_to(&mut writer, lsn)?;
            writer.written()
        };
        if planted::is(Defect::DurableTooEarly) {
            self.durable.fetch_max(written, Ordering::AcqRel);
        }
        // The lock is free again: whoever waits for room in the ring can write during the flush.
        // `data_dirty` is left alone: clearing it here would let a batch be written by somebody who
        // believes that the data is durable while this flush is still on its way.
        if !planted::is(Defect::JournalFlush) {
            self.flush()?;
        }
        self.durable.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }

    /// Flushes the device; a failure poisons.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_poison()?;
        self.io.counters.add(Counter::Flushes, 1);
        self.io.segments.before_flush();
        self.io.device.flush().map_err(|e| self.poison(&format!("journal: {e}")))
    }

    /// See `Journal::flush_cut`.
    pub(crate) fn flush_cut(&self, lsn: u64) -> Result<Addr> {
        self.commit(lsn)?;
        let writer = self.writer.lock();
        let mut cuts = self.cuts.lock();
        *cuts = cuts.split_off(&lsn);
        let Some(place) = cuts.get_mut(&lsn) else { return Err(Code::Invalid.into()) };
        // No batch has started there yet: the next one will, where the writer stands.
        let place = place.get_or_insert(writer.addr());
        Ok(*place)
    }
}

/// Steps down when dropped, also by a panic, which poisons: nobody knows what was written.
struct Leading<'a>(&'a Core);

impl Drop for Leading<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.poison("panic while the journal was written");
        }
        self.0.group.lock().leader = false;
        self.0.group_changed.notify_all();
    }
}
