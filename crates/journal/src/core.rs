//! What the journal's threads share.

use crate::ring::{Reservation, Ring};
use crate::writer::{Io, Writer};
use crate::{Config, StartAt};
use crossbeam_utils::CachePadded;
use shoal_base::limits::JOURNAL_ALIGN;
use shoal_base::sync::{AtomicBool, AtomicU64, Condvar, Mutex, thread};
use shoal_base::{Addr, Code, Error, Result, SegNo, shard::SHARDS};
use shoal_format::batch::BatchHeader;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Shared state.
///
/// How long a thread rests that waits for room in the ring while another writes: at first, at most.
const REST_MIN: Duration = Duration::from_micros(20);
const REST_MAX: Duration = Duration::from_millis(1);

/// Locks: the writer's, then any one of the small ones (`cuts`, `chain`); `group` and `wake` are
/// taken alone.
pub(crate) struct Core {
    pub(crate) ring: Ring,
    /// Known durable up to here. Only grows.
    pub(crate) durable: CachePadded<AtomicU64>,
    /// File data may be in the device's cache.
    pub(crate) data_dirty: CachePadded<AtomicBool>,
    pub(crate) io: Io,
    /// Longest record with its header.
    pub(crate) framed_max: usize,
    /// Staging past a multiple of 2^this wakes the background thread.
    pub(crate) wake_shift: u32,
    /// Batch boundaries that checkpoints asked for, and their addresses when known.
    pub(crate) cuts: Mutex<BTreeMap<u64, Option<Addr>>>,
    /// Segments that hold the journal, oldest first.
    pub(crate) chain: Mutex<VecDeque<SegNo>>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) group: Mutex<Group>,
    pub(crate) group_changed: Condvar,
    pub(crate) wake: Mutex<Wake>,
    pub(crate) wake_changed: Condvar,
    poisoned: CachePadded<AtomicBool>,
    poison_reason: OnceLock<Arc<str>>,
}

/// State of group commit.
#[derive(Default)]
pub(crate) struct Group {
    /// Somebody is writing and flushing for all.
    pub(crate) leader: bool,
}

/// Why the background thread should look up.
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
            let rule = "the journal cannot go on at this address";
            return Err(Error::corrupt("journal position", Some(addr.0), rule));
        }
        // Twice the shards: threads that share one still find a cell of their own.
        let (ring, reader) = Ring::new(ring_bytes, lsn, 2 * SHARDS);
        Ok(Core {
            ring,
            durable: CachePadded::new(AtomicU64::new(lsn)),
            data_dirty: CachePadded::new(AtomicBool::new(false)),
            io,
            framed_max: batch_max - BatchHeader::SIZE,
            // Before there is no room left.
            wake_shift: config.write_behind.min(ring_bytes / 4).max(JOURNAL_ALIGN).ilog2(),
            cuts: Mutex::default(),
            chain: Mutex::new(VecDeque::from([geometry.segment_of(addr)])),
            writer: Mutex::new(Writer::new(reader, addr, batch_max)),
            group: Mutex::default(),
            group_changed: Condvar::new(),
            wake: Mutex::default(),
            wake_changed: Condvar::new(),
            poisoned: CachePadded::new(AtomicBool::new(false)),
            poison_reason: OnceLock::new(),
        })
    }

    /// The ring is full: helps to write it out until this reservation has room.
    ///
    /// Never waits for the writer's lock: who holds it may be waiting for this very reservation.
    #[cold]
    pub(crate) fn wait_for_room(&self, reservation: &Reservation<'_>) -> Result<()> {
        let mut rest = REST_MIN;
        while !reservation.has_room() {
            self.check_poison()?;
            match self.writer.try_lock() {
                Some(mut writer) => {
                    if let Err(error) = self.write_up_to(&mut writer, 0) {
                        // The reserved bytes would stay a hole that nobody can pass.
                        return Err(self.poison(&format!("journal ring is full, and {error}")));
                    }
                }
                // Longer each time: a hundred threads that look all the time keep the writer, and
                // those who could go on, from their cores.
                None => {
                    thread::sleep(rest);
                    rest = (rest * 2).min(REST_MAX);
                }
            }
        }
        Ok(())
    }

    /// Fails when poisoned.
    #[inline]
    pub(crate) fn check_poison(&self) -> Result<()> {
        if self.poisoned.load(Ordering::Relaxed) { Err(self.poison_error()) } else { Ok(()) }
    }

    #[cold]
    fn poison_error(&self) -> Error {
        match self.poison_reason() {
            Some(reason) => Error::Poisoned(reason),
            // The flag is set after the reason, so this is not reached; it would be an I/O error.
            None => Code::Io.into(),
        }
    }

    pub(crate) fn poison_reason(&self) -> Option<Arc<str>> {
        self.poison_reason.get().cloned()
    }

    /// Poisons (the first reason stays) and returns the error to give to callers.
    #[cold]
    pub(crate) fn poison(&self, reason: &str) -> Error {
        self.poison_reason.get_or_init(|| reason.into());
        self.poisoned.store(true, Ordering::Release);
        // Under the lock, so that nobody who has just looked goes to sleep on it.
        let group = self.group.lock();
        self.group_changed.notify_all();
        drop(group);
        self.poison_error()
    }
}
