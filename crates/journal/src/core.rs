//! State shared by the journal's threads.

use crate::memory::Sums;
use crate::ring::{Reader, Reservation, Ring};
use crate::types::{Config, SegmentSource, StartAt};
use crossbeam_utils::CachePadded;
use shoal_base::counters::Counters;
use shoal_base::limits::JOURNAL_ALIGN;
use shoal_base::phase::{self, Phase};
use shoal_base::sync::{AtomicBool, AtomicU64, Condvar, IdleCondvar, IdleMutex, Mutex, thread};
use shoal_base::{Addr, Code, Error, Result, SegNo, shard::SHARDS};
use shoal_device::Device;
use shoal_format::Geometry;
use shoal_format::batch::BatchHeader;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// First pause of a thread that waits for room in the ring while another writes. Doubled up to
/// [`REST_MAX`].
const REST_MIN: Duration = Duration::from_micros(20);
const REST_MAX: Duration = Duration::from_millis(1);

/// Shared state. Lock order: the writer's lock, then any one of the small ones (`boundaries`,
/// `chain`). `group` and `wake` are taken alone.
pub(crate) struct Core {
    pub(crate) ring: Ring,
    /// End of the records known to be durable. Only grows.
    pub(crate) durable: CachePadded<AtomicU64>,
    /// Bytes of file data written since a flush last began. At least those that no flush covers.
    pub(crate) unflushed: CachePadded<AtomicU64>,
    pub(crate) io: Io,
    /// Longest record with its header, in bytes.
    pub(crate) framed_max: usize,
    /// Staging past a multiple of 2^`wake_shift` wakes the background thread.
    pub(crate) wake_shift: u32,
    /// Batch boundaries requested by checkpoints, with their addresses once known.
    pub(crate) boundaries: Mutex<BTreeMap<u64, Option<Addr>>>,
    /// Segments of the journal, oldest first.
    pub(crate) chain: Mutex<VecDeque<SegNo>>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) group: Mutex<Group>,
    pub(crate) group_changed: Condvar,
    pub(crate) wake: IdleMutex<Wake>,
    pub(crate) wake_changed: IdleCondvar,
    poisoned: CachePadded<AtomicBool>,
    poison_reason: OnceLock<Arc<str>>,
}

/// The destination and the constants of all batches.
pub(crate) struct Io {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) geometry: Geometry,
    pub(crate) volume: u64,
    pub(crate) incarnation: u32,
    pub(crate) segments: Arc<dyn SegmentSource>,
    pub(crate) counters: Arc<Counters>,
}

/// The writer's state, under a lock: batches are placed in order.
pub(crate) struct Writer {
    pub(crate) reader: Reader,
    /// Address of the next batch.
    pub(crate) addr: Addr,
    /// The segment after this one, if one could be allocated.
    pub(crate) next: Option<SegNo>,
    pub(crate) batch_max: usize,
    /// For batches that wrap around the end of the ring.
    pub(crate) scratch: Vec<u8>,
}

impl Writer {
    /// Makes a writer whose first batch goes to `addr`.
    pub(crate) fn new(reader: Reader, addr: Addr, batch_max: usize) -> Writer {
        Writer { reader, addr, next: None, batch_max, scratch: Vec::new() }
    }

    /// End of the written records.
    pub(crate) fn written(&self) -> u64 {
        self.reader.consumed()
    }

    /// Address of the next batch.
    pub(crate) fn addr(&self) -> Addr {
        self.addr
    }
}

/// State of group commit.
#[derive(Default)]
pub(crate) struct Group {
    /// A caller is writing and flushing for all.
    pub(crate) leader: bool,
}

/// Reasons to wake the background thread.
#[derive(Default)]
pub(crate) struct Wake {
    pub(crate) stop: bool,
    pub(crate) write: bool,
}

impl Core {
    pub(crate) fn new(io: Io, start: StartAt, config: &Config) -> Result<Core> {
        let geometry = io.geometry;
        let batch_max = config.batch_max.min(geometry.segment_size as usize / 2);
        let batch_max = batch_max.max(2 * JOURNAL_ALIGN) / JOURNAL_ALIGN * JOURNAL_ALIGN;
        let ring_bytes = config.ring_bytes.max(2 * batch_max).next_power_of_two();
        let (addr, lsn) = match start {
            StartAt::Fresh { lsn } => (geometry.start_of(io.segments.take()?), lsn.0),
            StartAt::At(pos) => (pos.addr, pos.lsn.0),
        };
        let align = JOURNAL_ALIGN as u64;
        if !geometry.contains(addr, align) || !addr.0.is_multiple_of(align) {
            let rule = "the journal cannot continue at this address";
            return Err(Error::corrupt("journal position", Some(addr.0), rule));
        }
        // Twice the number of shards, so that threads that share a shard still find a free cell.
        let sums = config
            .memory
            .clone()
            .map(|memory| Sums::new(memory, io.volume, io.incarnation, ring_bytes as u64));
        let (ring, reader) = Ring::new(ring_bytes, lsn, 2 * SHARDS, sums);
        Ok(Core {
            ring,
            durable: CachePadded::new(AtomicU64::new(lsn)),
            unflushed: CachePadded::new(AtomicU64::new(0)),
            io,
            framed_max: batch_max - BatchHeader::SIZE,
            // Before the ring is full.
            wake_shift: config.write_behind.min(ring_bytes / 4).max(JOURNAL_ALIGN).ilog2(),
            boundaries: Mutex::default(),
            chain: Mutex::new(VecDeque::from([geometry.segment_of(addr)])),
            writer: Mutex::new(Writer::new(reader, addr, batch_max)),
            group: Mutex::default(),
            group_changed: Condvar::new(),
            wake: IdleMutex::default(),
            wake_changed: IdleCondvar::new(),
            poisoned: CachePadded::new(AtomicBool::new(false)),
            poison_reason: OnceLock::new(),
        })
    }

    /// Helps to write out the full ring until this reservation has room.
    ///
    /// Must never wait for the writer's lock: its holder may be waiting for this very reservation.
    #[cold]
    pub(crate) fn wait_for_room(&self, reservation: &Reservation<'_>) -> Result<()> {
        let _waiting = phase::waiting(Phase::Journal);
        let mut rest = REST_MIN;
        while !reservation.has_room() {
            self.check_poison()?;
            match self.writer.try_lock() {
                Some(mut writer) => {
                    if let Err(error) = self.write_up_to(&mut writer, 0) {
                        // The reserved bytes would remain a hole that the reader cannot pass.
                        return Err(self.poison(&format!("journal ring is full, and {error}")));
                    }
                }
                // Longer each time: a hundred threads polling all the time would keep the writer,
                // and threads that could continue, from the cores.
                None => {
                    thread::sleep(rest);
                    rest = (rest * 2).min(REST_MAX);
                }
            }
        }
        Ok(())
    }

    /// Fails if the journal is poisoned.
    #[inline]
    pub(crate) fn check_poison(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Relaxed) { Err(self.poison_error()) } else { Ok(()) }
    }

    #[cold]
    fn poison_error(&self) -> Error {
        match self.poison_reason() {
            Some(reason) => Error::Poisoned(reason),
            // Unreachable, because the flag is set after the reason.
            None => Code::Io.into(),
        }
    }

    pub(crate) fn poison_reason(&self) -> Option<Arc<str>> {
        self.poison_reason.get().cloned()
    }

    /// Poisons the journal and returns the error for callers. The first reason is kept.
    #[cold]
    pub(crate) fn poison(&self, reason: &str) -> Error {
        self.poison_reason.get_or_init(|| reason.into());
        self.poisoned.store(true, Ordering::Release);
        // Under the lock, so that a thread that has just checked the flag does not go to sleep.
        let group = self.group.lock();
        self.group_changed.notify_all();
        drop(group);
        self.poison_error()
    }
}
