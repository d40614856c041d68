//! What the host has of a segment: a volume in a sparse file gives free segments back to the file
//! system below, and must have the others allocated there before anything depends on them.
//!
//! *Backed* is a segment that the host has allocated; *stale* a free one that it may still hold
//! bytes of. A segment becomes backed when it is taken, or ahead of time; stale when it is freed;
//! neither when it has been discarded. While a run of segments is being discarded it is in no set,
//! so that nobody writes to it; it counts as free, and who finds no other waits for it.
//!
//! A checkpoint and the journal must never meet a host without room. So a part of the free segments
//! is kept backed, as much as the next checkpoint will write ([`Space::ensure_backed`]), and an
//! ordinary allocation takes one of these only if another is backed in its place.

use crate::Space;
use crate::bits::Bits;
use crate::free::FreeMap;
use shoal_base::sync::{AtomicBool, AtomicU32, Condvar};
use shoal_base::{Addr, Code, Error, Result, SegNo};
use shoal_device::Device;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// Segments that are tried, each after the host has refused the one before: another session may
/// have left some allocated.
const TRIES: u32 = 64;

/// Adjacent free segments, out of the free set while they are discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeRun {
    /// The first.
    pub first: SegNo,
    /// How many.
    pub count: u32,
}

/// What the host has.
pub(crate) struct Host {
    device: OnceLock<Arc<dyn Device>>,
    /// By segment. Changed under the lock of the free map.
    backed: Box<[AtomicBool]>,
    stale: Box<[AtomicBool]>,
    /// Free and backed.
    backed_free: AtomicU32,
    /// Free and stale.
    stale_free: AtomicU32,
    /// The host has refused lately.
    short: AtomicBool,
    /// And so it has for many segments.
    tried: AtomicBool,
    returned: Condvar,
}

impl Host {
    /// All backed until somebody says how that is done.
    pub(crate) fn new(segments: u32) -> Host {
        Host {
            device: OnceLock::new(),
            backed: (0..segments).map(|_| AtomicBool::new(true)).collect(),
            stale: (0..segments).map(|_| AtomicBool::new(false)).collect(),
            backed_free: AtomicU32::new(0),
            stale_free: AtomicU32::new(0),
            short: AtomicBool::new(false),
            tried: AtomicBool::new(false),
            returned: Condvar::new(),
        }
    }

    /// The segment has come into the free set or left it. Under its lock.
    pub(crate) fn moved(&self, seg: u32, is_free: bool) {
        let count = |flags: &[AtomicBool], sum: &AtomicU32| {
            if flags[seg as usize].load(Ordering::Relaxed) {
                match is_free {
                    true => sum.fetch_add(1, Ordering::Relaxed),
                    false => sum.fetch_sub(1, Ordering::Relaxed),
                };
            }
        };
        count(&self.backed, &self.backed_free);
        count(&self.stale, &self.stale_free);
    }

    /// Counts anew, under the lock of the free map.
    pub(crate) fn recount(&self, free: impl Fn(u32) -> bool) {
        let count = |flags: &[AtomicBool]| {
            let set = flags.iter().enumerate();
            set.filter(|(n, flag)| flag.load(Ordering::Relaxed) && free(*n as u32)).count() as u32
        };
        self.backed_free.store(count(&self.backed), Ordering::Relaxed);
        self.stale_free.store(count(&self.stale), Ordering::Relaxed);
    }

    /// The segment is being freed: it has been written to. Before it comes into the free set.
    pub(crate) fn freed(&self, seg: u32) {
        self.stale[seg as usize].store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_backed(&self, seg: u32) -> bool {
        self.backed[seg as usize].load(Ordering::Relaxed)
    }

    fn is_stale(&self, seg: u32) -> bool {
        self.stale[seg as usize].load(Ordering::Relaxed)
    }

    fn tried(&self) -> bool {
        self.tried.load(Ordering::Relaxed)
    }

    /// Who waits for a run that is being discarded may look again.
    pub(crate) fn returned(&self) -> &Condvar {
        &self.returned
    }
}

impl Space {
    /// The device that is to be asked for room. From now on no free segment is taken for backed.
    /// `stale`: what is free now may be, as nobody knows what an earlier session left there.
    pub fn set_host(&self, device: Arc<dyn Device>, stale: bool) {
        let mut free = self.free.lock();
        let stale = stale && device.is_sparse();
        if self.host.device.set(device).is_err() {
            return;
        }
        for n in 0..self.geometry.segments {
            let is_free = free.contains(n);
            self.host.backed[n as usize].store(!is_free, Ordering::Relaxed);
            self.host.stale[n as usize].store(is_free && stale, Ordering::Relaxed);
        }
        self.recount_host(&mut free);
    }

    /// Counts anew what the host has of the free segments.
    pub(crate) fn recount_host(&self, free: &mut FreeMap) {
        self.host.recount(|n| free.contains(n));
        free.stale = Bits::new(self.geometry.segments);
        let stale = (0..self.geometry.segments).filter(|n| self.host.is_stale(*n));
        let stale: Vec<u32> = stale.filter(|n| free.contains(*n)).collect();
        for n in stale {
            free.stale.insert(n);
        }
    }

    /// Adds a segment to the free ones.
    pub(crate) fn add_free(&self, free: &mut FreeMap, seg: u32) {
        free.insert(seg, self.host.is_stale(seg));
        self.host.moved(seg, true);
        self.free_count.store(free.len() + free.away, Ordering::Relaxed);
    }

    /// Makes the host allocate a segment that is in no set.
    pub(crate) fn back(&self, seg: SegNo) -> Result<()> {
        if self.host.is_backed(seg.0) {
            return Ok(());
        }
        let Some(device) = self.host.device.get() else { return Ok(()) };
        let done = device.reserve(self.geometry.start_of(seg).0, self.geometry.segment_size);
        self.host.short.store(done.is_err(), Ordering::Relaxed);
        if done.is_ok() {
            self.host.backed[seg.0 as usize].store(true, Ordering::Relaxed);
            // To be given back when fewer are wanted, though nothing was written to it.
            self.host.stale[seg.0 as usize].store(true, Ordering::Relaxed);
        }
        done
    }

    /// Free segments that the host has allocated.
    pub fn backed_free(&self) -> u32 {
        self.host.backed_free.load(Ordering::Relaxed)
    }

    /// Free segments that the host may still hold bytes of.
    pub fn stale_free(&self) -> u32 {
        self.host.stale_free.load(Ordering::Relaxed)
    }

    /// Whether the host had no room when it was last asked.
    pub fn host_is_short(&self) -> bool {
        self.host.short.load(Ordering::Relaxed)
    }

    /// Backs free segments, the lowest first, until `wanted` are. `ENOSPC` when the host has no
    /// room for so many; then it is asked again only when it seems to have some.
    pub fn ensure_backed(&self, wanted: u32) -> Result<()> {
        let (mut from, mut tries) = (0, TRIES);
        let room = |device: &Arc<dyn Device>| device.room();
        let no_room = self.host.device.get().and_then(room).is_some_and(|room| {
            room < self.geometry.segment_size && self.host_is_short() && self.host.tried()
        });
        while self.backed_free() < wanted {
            let mut free = self.free.lock();
            let unbacked = |n: u32| !self.host.is_backed(n);
            let next = free.lowest_from(from, unbacked).filter(|_| tries > 0 && !no_room);
            let Some(seg) = next else { return Err(Error::Code(Code::NoSpace)) };
            self.remove_free(&mut free, seg);
            free.away += 1;
            self.free_count.store(free.len() + free.away, Ordering::Relaxed);
            drop(free);
            let done = self.back(SegNo(seg));
            self.give_back(FreeRun { first: SegNo(seg), count: 1 }, false);
            if done.is_err() {
                (from, tries) = (seg + 1, tries - 1);
                self.host.tried.store(tries == 0, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Takes a run of up to `max` adjacent stale segments out of the free set, to be discarded. The
    /// `keep` lowest free segments are left: they are the next to be used.
    pub fn take_stale(&self, max: u32, keep: u32) -> Option<FreeRun> {
        if self.stale_free() == 0 {
            return None;
        }
        let mut free = self.free.lock();
        let from = free.nth(keep)?;
        let first = free.stale.next(from)?;
        let end = first.saturating_add(max).min(self.geometry.segments);
        let count = (first..end).take_while(|n| free.stale.contains(*n)).count() as u32;
        (first..first + count).for_each(|n| self.remove_free(&mut free, n));
        free.away += count;
        self.free_count.store(free.len() + free.away, Ordering::Relaxed);
        Some(FreeRun { first: SegNo(first), count })
    }

    /// A run that was taken is free again; `discarded`: nothing of it is on the host any more.
    pub fn give_back(&self, run: FreeRun, discarded: bool) {
        let mut free = self.free.lock();
        for n in run.first.0..run.first.0 + run.count {
            if discarded {
                self.host.stale[n as usize].store(false, Ordering::Relaxed);
                let unbacked = self.host.device.get().is_none();
                self.host.backed[n as usize].store(unbacked, Ordering::Relaxed);
            }
            free.away -= 1;
            self.add_free(&mut free, n);
        }
        drop(free);
        self.host.returned.notify_all();
    }

    /// Every free segment is stale: for who wants all of them discarded.
    pub fn all_stale(&self) {
        let mut free = self.free.lock();
        for n in 1..self.geometry.segments {
            self.host.stale[n as usize].store(free.contains(n), Ordering::Relaxed);
        }
        self.recount_host(&mut free);
    }

    /// Bytes of a run: offset and length.
    pub fn bytes_of(&self, run: FreeRun) -> (Addr, u64) {
        (self.geometry.start_of(run.first), u64::from(run.count) * self.geometry.segment_size)
    }
}
