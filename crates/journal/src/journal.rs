//! The journal as its callers see it.

use crate::background;
use crate::calls;
use crate::core::{Core, Io};
use crate::ring::Reservation;
use crate::types::{Config, JournalPos, SegmentSource, StartAt};
use shoal_base::counters::Counters;
use shoal_base::sync::{Mutex, hint, thread};
use shoal_base::{Code, Lsn, Result, SegNo, shard};
use shoal_device::Device;
use shoal_format::Geometry;
use shoal_format::batch::RECORD_HEADER;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The journal of a mounted volume.
pub struct Journal {
    core: Arc<Core>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Journal {
    /// Starts the journal. `volume` is the low half of the volume id. `incarnation` must be new, so
    /// that batches of an earlier mount are never mistaken for this one's.
    pub fn start(
        device: Arc<dyn Device>,
        geometry: Geometry,
        volume: u64,
        incarnation: u32,
        start: StartAt,
        segments: Arc<dyn SegmentSource>,
        counters: Arc<Counters>,
        config: Config,
    ) -> Result<Arc<Journal>> {
        let io = Io { device, geometry, volume, incarnation, segments, counters };
        let core = Arc::new(Core::new(io, start, &config)?);
        let thread = match config.background {
            true => Some(background::spawn(core.clone(), config.interval)?),
            false => None,
        };
        Ok(Arc::new(Journal { core, thread: Mutex::new(thread) }))
    }

    /// Longest record in bytes.
    pub fn record_max(&self) -> usize {
        self.core.framed_max - RECORD_HEADER
    }

    /// Adds a record. Returns the LSN just after it. Must be called with the locks held that order
    /// this change against others. The record is not durable yet: see [`Journal::commit`].
    ///
    /// Waits only if the ring is full, and then helps to write it out.
    #[inline]
    pub fn stage(&self, record: &[u8]) -> Result<Lsn> {
        self.number(record.len())?.fill(record)
    }

    /// Allocates the LSN of a record of `len` bytes, which must be filled in later. Must be called
    /// with the locks held that order this change against others. Filling needs no lock: nothing
    /// after this LSN is written before the bytes are there.
    ///
    /// Never waits for the device.
    #[inline]
    pub fn number(&self, len: usize) -> Result<Numbered<'_>> {
        let core = &*self.core;
        core.check_poison()?;
        let framed = RECORD_HEADER + len;
        if framed > core.framed_max {
            return Err(Code::TooBig.into());
        }
        loop {
            match core.ring.reserve(shard::shard(), framed) {
                Some(place) => {
                    if let Some(memory) = core.ring.memory() {
                        // Before the record is complete.
                        calls::numbered(memory, place.end);
                    }
                    return Ok(Numbered { core, place });
                }
                // More threads than cells: one of them is about to finish, or waits for the writer.
                None => thread::yield_now(),
            }
        }
    }

    /// End of the staged records.
    #[inline]
    pub fn staged_lsn(&self) -> Lsn {
        Lsn(self.core.ring.tail())
    }

    /// Returns when all records below `lsn`, the end of a staged one, are complete: what a killed
    /// process would leave of them ([`RingMemory`](crate::RingMemory)) has no gap below it. Returns
    /// at once if the ring does not outlive the process. A record is incomplete for a fraction of a
    /// microsecond, or until a thread that was interrupted in it runs again.
    #[inline]
    pub fn wait_complete(&self, lsn: Lsn) {
        if self.core.ring.is_kept() && !self.core.ring.is_complete(lsn.0) {
            self.wait_for_others(lsn.0);
        }
    }

    #[cold]
    fn wait_for_others(&self, lsn: u64) {
        let mut rounds = 0u32;
        // A record that never comes poisons the journal.
        while !self.core.ring.is_complete(lsn) && self.core.check_poison().is_ok() {
            rounds += 1;
            match rounds < 64 {
                true => hint::spin_loop(),
                false => thread::yield_now(),
            }
        }
    }

    /// End of the records known to be durable.
    #[inline]
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.core.durable.load(Ordering::Acquire))
    }

    /// Returns whether the ring is so full that whoever stages a record may soon have to wait.
    #[inline]
    pub fn is_nearly_full(&self) -> bool {
        self.core.ring.is_nearly_full()
    }

    /// Bytes staged since `lsn`, which recovery would have to replay.
    #[inline]
    pub fn bytes_since(&self, lsn: Lsn) -> u64 {
        self.staged_lsn().0.saturating_sub(lsn.0)
    }

    /// Counts `len` bytes of file data that were written to the device. Must be called before the
    /// record that points to them is staged.
    #[inline]
    pub fn note_data_written(&self, len: usize) {
        self.core.unflushed.fetch_add(len as u64, Ordering::Relaxed);
    }

    /// Returns when everything up to `lsn` is durable. Concurrent callers share one flush.
    pub fn commit(&self, lsn: Lsn) -> Result<()> {
        self.core.commit(lsn.0)
    }

    /// Writes staged records to the device, without making them durable. Does nothing if another
    /// thread is writing.
    pub fn write_out(&self) -> Result<()> {
        self.core.write_some()
    }

    /// Begins a checkpoint: guarantees a batch boundary at the current LSN, which is returned. Must
    /// be called while no transaction is in flight.
    pub fn mark_boundary(&self) -> Lsn {
        let lsn = self.core.ring.tail();
        // Records staged later see this entry: they are staged after this returns, and the writer
        // reads the ring first, the boundaries second.
        self.core.boundaries.lock().entry(lsn).or_insert(None);
        Lsn(lsn)
    }

    /// Makes everything up to a boundary durable, or only writes it where the device keeps the
    /// order of writes. Returns the position at which reading would begin there. Forgets older
    /// boundaries. Staging may continue meanwhile.
    pub fn flush_boundary(&self, lsn: Lsn) -> Result<JournalPos> {
        self.core.flush_boundary(lsn.0).map(|addr| JournalPos { addr, lsn })
    }

    /// Returns the segments that are no longer needed once a checkpoint at `pos` is durable. The
    /// journal forgets them; the caller must free them.
    pub fn segments_before(&self, pos: JournalPos) -> Vec<SegNo> {
        let needed = self.core.io.geometry.segment_of(pos.addr);
        let mut chain = self.core.chain.lock();
        match chain.iter().position(|seg| *seg == needed) {
            Some(count) => chain.drain(..count).collect(),
            None => Vec::new(),
        }
    }

    /// Segments of the journal, oldest first.
    pub fn segments(&self) -> Vec<SegNo> {
        self.core.chain.lock().iter().copied().collect()
    }

    /// Poisons the journal: nothing more becomes durable. The first reason is kept.
    pub fn poison(&self, reason: &str) {
        self.core.poison(reason);
    }

    /// The reason why the journal is poisoned, if it is.
    pub fn poisoned(&self) -> Option<Arc<str>> {
        self.core.poison_reason()
    }

    /// Stops the background thread. Writes nothing; commit first if records must be durable.
    pub fn shutdown(&self) {
        self.core.stop_background();
        if let Some(thread) = self.thread.lock().take() {
            // A panic in the thread has poisoned the journal; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// A record with an LSN but without its bytes. Dropping it leaves a hole that the writer cannot
/// pass: the journal must then be poisoned.
#[must_use = "the journal stops at a record that never comes"]
pub struct Numbered<'j> {
    core: &'j Core,
    place: Reservation<'j>,
}

impl Numbered<'_> {
    /// LSN just after the record.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        Lsn(self.place.end)
    }

    /// LSN of its first byte. Everything numbered earlier is below it.
    #[inline]
    pub fn before(&self) -> Lsn {
        Lsn(self.place.start)
    }

    /// Fills in the bytes, exactly as many as announced. Returns the LSN just after the record.
    /// Waits only if the ring is full, and then helps to write it out.
    #[inline]
    pub fn fill(self, record: &[u8]) -> Result<Lsn> {
        let Numbered { core, place } = self;
        if !place.has_room() {
            core.wait_for_room(&place)?;
        }
        let (start, end) = (place.start, place.end);
        place.fill(&(record.len() as u32).to_le_bytes(), record);
        if (start ^ end) >> core.wake_shift != 0 {
            core.wake_background();
        }
        Ok(Lsn(end))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shutdown();
    }
}
