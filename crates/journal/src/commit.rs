//! Group commit: one caller writes and flushes for all, the others wait for it.
//!
//! One flush covers the records and the data that they point to. A crash before its end may leave
//! records whose data did not arrive. Recovery verifies the data of all records that no flush is
//! known to have covered ([`ScanEnd::durable`](crate::ScanEnd)), and ends the journal before the
//! first one without its data. SQLite and LevelDB recover the end of their logs so, by checksums of
//! what the log itself contains; here the data is outside it, and the record has its checksums.

use crate::core::Core;
use shoal_base::counters::Counter;
use shoal_base::invariant;
use shoal_base::phase::{self, Phase};
use shoal_base::planted::{self, Defect};
use shoal_base::timing::Timed;
use shoal_base::{Addr, Code, Result};
use std::sync::atomic::Ordering;
use std::time::Instant;

impl Core {
    /// Returns when everything below `lsn` is durable.
    pub(crate) fn commit(&self, lsn: u64) -> Result<()> {
        let staged = self.ring.tail();
        invariant!(lsn <= staged, "commit of {lsn}, staged are {staged}");
        let lsn = lsn.min(staged);
        if self.durable.load(Ordering::Acquire) >= lsn {
            return Ok(());
        }
        self.io.counters.add(Counter::Syncs, 1);
        let (_waiting, begun) = (phase::waiting(Phase::Journal), Instant::now());
        let done = self.commit_waiting(lsn);
        self.io.counters.took(Timed::JournalWait, begun.elapsed(), done.is_err(), 0);
        done
    }

    /// Writes and flushes for everybody, or waits for the caller that does.
    fn commit_waiting(&self, lsn: u64) -> Result<()> {
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
            // An error that does not poison (no free segment) is returned to this caller only.
            // Another waiter becomes leader and tries itself.
            led?;
            group = self.group.lock();
        }
    }

    /// Writes everything complete, at least up to `lsn`, and flushes.
    fn write_and_flush(&self, lsn: u64) -> Result<()> {
        let written = {
            let mut writer = self.writer.lock();
            self.write_up_to(&mut writer, lsn)?;
            writer.written()
        };
        if planted::is(Defect::DurableTooEarly) {
            self.durable.fetch_max(written, Ordering::AcqRel);
        }
        // The writer's lock is free again, so callers that wait for room in the ring can write
        // during the flush.
        if !planted::is(Defect::JournalFlush) {
            self.flush()?;
        }
        self.durable.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }

    /// Flushes the device. A failure poisons the journal, unless the device keeps what it has no
    /// room for.
    pub(crate) fn flush(&self) -> Result<()> {
        self.check_poison()?;
        self.io.counters.add(Counter::Flushes, 1);
        self.io.segments.before_flush();
        // Before the flush begins: what is written from now on may not be in it.
        self.unflushed.store(0, Ordering::Relaxed);
        let device = &self.io.device;
        device.flush().map_err(|error| {
            match device.keeps_order() && error.code() == Code::NoSpace {
                true => error,
                false => self.poison(&format!("journal: {error}")),
            }
        })
    }

    /// See `Journal::flush_boundary`.
    pub(crate) fn flush_boundary(&self, lsn: u64) -> Result<Addr> {
        let writer = if self.io.device.keeps_order() {
            // The checkpoint comes behind it.
            let mut writer = self.writer.lock();
            self.write_up_to(&mut writer, lsn)?;
            writer
        } else {
            self.commit(lsn)?;
            self.writer.lock()
        };
        let mut boundaries = self.boundaries.lock();
        *boundaries = boundaries.split_off(&lsn);
        let Some(place) = boundaries.get_mut(&lsn) else { return Err(Code::Invalid.into()) };
        // No batch has started there yet. The next one will, at the writer's position.
        let place = place.get_or_insert(writer.addr());
        Ok(*place)
    }
}

/// Ends the leadership when dropped. A panic poisons the journal, because it is unknown what was
/// written.
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
