//! The journal: an endless stream of records, numbered by position ([`Lsn`]), that makes changes
//! durable in order. It knows where records begin and end, not what they mean.
//!
//! ```text
//! stage    copy a record into the ring (ring.rs); its number is fixed here, no lock is taken
//! write    cut what is complete into batches and write them (writer.rs)
//! commit   write, flush, wake everybody whose record that covered (commit.rs)
//! cut      a batch boundary for a checkpoint, and where it is (below)
//! scan     after a crash: read back, tell a torn tail from corruption (scan.rs)
//! ```
//!
//! # Promises
//!
//! 1. Records are durable in the order of their numbers: after a crash, [`scan`] finds a prefix.
//! 2. When [`Journal::commit`] returns `Ok`, every record up to that number is durable.
//! 3. Data that was announced by [`Journal::note_data_written`] before a record was staged is
//!    durable before the record can be.
//! 4. A write or flush that fails is never repeated: what it left on the device is unknown, and the
//!    kernel may report success for pages that it dropped. The journal is *poisoned*: nothing more
//!    becomes durable, and every caller is told why.
//!
//! # Segments
//!
//! Batches follow each other in a segment, at multiples of 4096 so that a torn write cannot touch
//! an earlier one. Room for one more block is always kept for the link to the next segment, which
//! is chosen when a segment is begun: every batch in it names it already, so that a lost link does
//! not hide acknowledged records behind it ([`scan`], case F).

mod background;
mod commit;
mod core;
mod ring;
mod scan;
mod writer;

pub use scan::{ScanEnd, Scanner, scan};
use shoal_base::sync::{Mutex, thread};

use crate::core::Core;
use crate::ring::Reservation;
use shoal_base::counters::Counters;
use shoal_base::{Addr, Code, Lsn, Result, SegNo, shard};
use shoal_device::Device;
use shoal_format::Geometry;
use shoal_format::batch::RECORD_HEADER;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A place in the journal at which reading can begin: a batch starts there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalPos {
    /// Where the next batch starts (a link, perhaps).
    pub addr: Addr,
    /// The number of its first byte.
    pub lsn: Lsn,
}

/// Where journal segments come from.
pub trait SegmentSource: Send + Sync {
    /// A free segment, now the journal's.
    fn take(&self) -> Result<SegNo>;
    /// Called before each flush of the device: what others write from now on must share no sector
    /// with what the flush makes durable. Batches are whole sectors.
    fn before_flush(&self) {}
}

/// Where a journal starts writing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartAt {
    /// At the start of a segment that the journal takes itself.
    Fresh {
        /// Number of the first record's first byte.
        lsn: Lsn,
    },
    /// At a known position, in a segment that is the journal's already. What lies after it must not
    /// be of the same incarnation.
    At(JournalPos),
}

/// Sizes and times.
#[derive(Clone, Debug)]
pub struct Config {
    /// Bytes of the ring that holds staged records (a power of two).
    pub ring_bytes: usize,
    /// Longest batch; also bounds the longest record. At most half a segment is used.
    pub batch_max: usize,
    /// The background thread makes everything durable this often.
    pub interval: Duration,
    /// The background thread writes when about so many bytes are staged.
    pub write_behind: usize,
    /// Whether there is a background thread. Without one, everything is done by callers, in an
    /// order that a simulation can repeat.
    pub background: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            ring_bytes: 32 << 20,
            batch_max: 1 << 20,
            interval: Duration::from_secs(5),
            write_behind: 8 << 20,
            background: true,
        }
    }
}

/// The journal of a mounted volume.
pub struct Journal {
    core: Arc<Core>,
    thread: Mutex<Option<thread::JoinHandle<()>>>,
}

impl Journal {
    /// Starts writing. `volume` is the low half of the volume id; `incarnation` must be new, so
    /// that batches of an earlier mount are never taken for this one's.
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
        let io = writer::Io { device, geometry, volume, incarnation, segments, counters };
        let core = Arc::new(Core::new(io, start, &config)?);
        let thread = match config.background {
            true => Some(background::spawn(core.clone(), config.interval)?),
            false => None,
        };
        Ok(Arc::new(Journal { core, thread: Mutex::new(thread) }))
    }

    /// Longest record that fits.
    pub fn record_max(&self) -> usize {
        self.core.framed_max - RECORD_HEADER
    }

    /// Adds a record; returns the number just past it. To be called with the locks held that order
    /// this change against others. Not durable yet: see [`Journal::commit`].
    ///
    /// Waits only when the ring is full, and then helps to write it out.
    #[inline]
    pub fn stage(&self, record: &[u8]) -> Result<Lsn> {
        self.number(record.len())?.fill(record)
    }

    /// Takes the number of a record of `len` bytes, which must follow. To be called with the locks
    /// held that order this change against others; the bytes need no lock: nothing behind the
    /// number is written, or becomes durable, before they are there.
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
                Some(place) => return Ok(Numbered { core, place }),
                // More threads in here than cells: one is about to finish, or waits for the writer.
                None => thread::yield_now(),
            }
        }
    }

    /// End of what has been staged.
    #[inline]
    pub fn staged_lsn(&self) -> Lsn {
        Lsn(self.core.ring.tail())
    }

    /// End of what is known to be durable.
    #[inline]
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.core.durable.load(Ordering::Acquire))
    }

    /// Bytes staged since `lsn`: what recovery would have to replay.
    #[inline]
    pub fn bytes_since(&self, lsn: Lsn) -> u64 {
        self.staged_lsn().0.saturating_sub(lsn.0)
    }

    /// File data has been written to the device: it must be durable before the records that will be
    /// staged from now on are. To be called after the write and before staging.
    #[inline]
    pub fn note_data_written(&self) {
        // A read-modify-write, so that the writer's next look is ordered after the data's write.
        self.core.data_dirty.swap(true, Ordering::AcqRel);
    }

    /// Returns when everything up to `lsn` is durable. Concurrent callers share one flush.
    pub fn commit(&self, lsn: Lsn) -> Result<()> {
        self.core.commit(lsn.0)
    }

    /// Writes what has been staged to the device, without making it durable. Does nothing when
    /// another thread is writing.
    pub fn write_out(&self) -> Result<()> {
        self.core.write_some()
    }

    /// Begins a checkpoint: from now on a batch boundary is certain at the current number, which is
    /// returned. To be called while no transaction is in flight.
    pub fn cut(&self) -> Lsn {
        let lsn = self.core.ring.tail();
        // Records staged later see this entry: staging them happens after this returns, and the
        // writer looks at the ring first, at the cuts second.
        self.core.cuts.lock().entry(lsn).or_insert(None);
        Lsn(lsn)
    }

    /// Makes everything up to a cut durable and tells where reading would begin there. Forgets
    /// older cuts. Staging may go on meanwhile.
    pub fn flush_cut(&self, lsn: Lsn) -> Result<JournalPos> {
        self.core.flush_cut(lsn.0).map(|addr| JournalPos { addr, lsn })
    }

    /// Segments that are no longer needed once a checkpoint at `pos` is durable. The journal
    /// forgets them: the caller gives them back.
    pub fn segments_before(&self, pos: JournalPos) -> Vec<SegNo> {
        let needed = self.core.io.geometry.segment_of(pos.addr);
        let mut chain = self.core.chain.lock();
        match chain.iter().position(|seg| *seg == needed) {
            Some(count) => chain.drain(..count).collect(),
            None => Vec::new(),
        }
    }

    /// Segments that the journal holds, oldest first.
    pub fn segments(&self) -> Vec<SegNo> {
        self.core.chain.lock().iter().copied().collect()
    }

    /// Nothing more becomes durable, for this reason; the first one stays.
    pub fn poison(&self, reason: &str) {
        self.core.poison(reason);
    }

    /// Why nothing becomes durable any more.
    pub fn poisoned(&self) -> Option<Arc<str>> {
        self.core.poison_reason()
    }

    /// Stops the background thread. Writes nothing: commit first what must be durable.
    pub fn shutdown(&self) {
        self.core.stop_background();
        if let Some(thread) = self.thread.lock().take() {
            // A panic in there has poisoned the journal; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// A record that has its number, and not yet its bytes. One that is dropped leaves a hole that
/// nothing behind it passes: the journal must be poisoned then.
#[must_use = "the journal stops at a record that never comes"]
pub struct Numbered<'j> {
    core: &'j Core,
    place: Reservation<'j>,
}

impl Numbered<'_> {
    /// Number just past the record.
    #[inline]
    pub fn lsn(&self) -> Lsn {
        Lsn(self.place.end)
    }

    /// Number of its first byte: all that was numbered before is below.
    #[inline]
    pub fn before(&self) -> Lsn {
        Lsn(self.place.start)
    }

    /// Adds the bytes, as many as were said. Returns the number just past the record. Waits only
    /// when the ring is full, and then helps to write it out.
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

#[cfg(test)]
mod tests;
