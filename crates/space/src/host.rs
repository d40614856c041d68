//! Allocation of segments on the host: a volume in a sparse file returns free segments to the
//! underlying filesystem, and must have all others allocated there before anything depends on them.
//!
//! A segment is *backed* if the host has allocated it. A free segment is *stale* if it may still
//! use space on the host. A segment becomes backed when it is allocated, or ahead of time; stale
//! when it is freed; neither after it has been discarded. While a run of segments is being
//! discarded it is in no set, so that nobody writes to it. It counts as free; a caller that finds
//! no other segment waits for it.
//!
//! A checkpoint and the journal must never find the host out of space. Therefore some free segments
//! are kept backed, as many as the next checkpoint will write ([`Host::ensure_backed`]). An
//! ordinary allocation takes one of these only if another is backed in its place.

use crate::bits::Bits;
use crate::free::FreeMap;
use crate::space::Space;
use shoal_base::{Addr, Code, Error, Result, SegNo};
use shoal_device::Device;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Segments to try, each after the host has refused the previous one: an earlier session may have
/// left some allocated.
const TRIES: u32 = 64;

/// Adjacent free segments, removed from the free set while they are discarded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeRun {
    /// The first segment.
    pub first: SegNo,
    /// Number of segments.
    pub count: u32,
}

/// Allocation of free segments on the host, and their return to it: [`Space::host`].
#[derive(Clone, Copy)]
pub struct Host<'s>(&'s Space);

impl Space {
    /// Returns the calls for backed and stale segments.
    #[inline]
    pub fn host(&self) -> Host<'_> {
        Host(self)
    }

    /// Counts the backed and stale free segments again.
    pub(crate) fn recount_host(&self, free: &mut FreeMap) {
        self.host.recount(|n| free.contains(n));
        free.stale = Bits::new(self.geometry.segments);
        let stale = (0..self.geometry.segments).filter(|n| self.host.is_stale(*n));
        let stale: Vec<u32> = stale.filter(|n| free.contains(*n)).collect();
        for n in stale {
            free.stale.insert(n);
        }
    }

    /// Adds a segment to the free set.
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
            // Stale, so that it can be returned when fewer are wanted, although nothing was written
            // to it.
            self.host.stale[seg.0 as usize].store(true, Ordering::Relaxed);
        }
        done
    }
}

impl Host<'_> {
    /// Sets the device that allocates space. From now on no free segment counts as backed. `stale`:
    /// free segments may use space on the host, because the leftovers of earlier sessions are
    /// unknown.
    pub fn attach(self, device: Arc<dyn Device>, stale: bool) {
        let mut free = self.0.free.lock();
        let stale = stale && device.is_sparse();
        if self.0.host.device.set(device).is_err() {
            return;
        }
        for n in 0..self.0.geometry.segments {
            let is_free = free.contains(n);
            self.0.host.backed[n as usize].store(!is_free, Ordering::Relaxed);
            self.0.host.stale[n as usize].store(is_free && stale, Ordering::Relaxed);
        }
        self.0.recount_host(&mut free);
    }

    /// Number of free segments that the host has allocated.
    #[inline]
    pub fn backed_free(self) -> u32 {
        self.0.host.backed_free.load(Ordering::Relaxed)
    }

    /// Number of free segments that may still use space on the host.
    #[inline]
    pub fn stale_free(self) -> u32 {
        self.0.host.stale_free.load(Ordering::Relaxed)
    }

    /// Returns whether the host refused the last request.
    #[inline]
    pub fn is_short(self) -> bool {
        self.0.host.short.load(Ordering::Relaxed)
    }

    /// Backs free segments, lowest first, until `wanted` are backed, or all. Waits for a run that
    /// is being discarded, if there is no other.
    ///
    /// # Errors
    /// `ENOSPC` if the host has no space for so many. Then it is asked again only when it reports
    /// free space.
    pub fn ensure_backed(self, wanted: u32) -> Result<()> {
        let (mut from, mut tries) = (0, TRIES);
        let room = |device: &Arc<dyn Device>| device.room();
        let no_room = self.0.host.device.get().and_then(room).is_some_and(|room| {
            room < self.0.geometry.segment_size && self.is_short() && self.0.host.tried()
        });
        while self.backed_free() < wanted {
            let mut free = self.0.free.lock();
            if no_room || tries == 0 {
                return Err(Error::Code(Code::NoSpace));
            }
            let unbacked = |n: u32| !self.0.host.is_backed(n);
            let Some(seg) = free.lowest_from(from, unbacked) else {
                if free.away > 0 {
                    // They are free, and the host has not refused them.
                    self.0.host.returned.wait(&mut free);
                    continue;
                }
                if tries < TRIES {
                    return Err(Error::Code(Code::NoSpace));
                }
                // All that is left is backed: other callers allocated the rest meanwhile.
                return Ok(());
            };
            self.0.remove_free(&mut free, seg);
            free.away += 1;
            self.0.free_count.store(free.len() + free.away, Ordering::Relaxed);
            drop(free);
            let done = self.0.back(SegNo(seg));
            self.give_back(FreeRun { first: SegNo(seg), count: 1 }, false);
            if done.is_err() {
                (from, tries) = (seg + 1, tries - 1);
                self.0.host.tried.store(tries == 0, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Removes a run of up to `max` adjacent stale segments from the free set, for discarding. The
    /// `keep` lowest free segments are left, because they are used next.
    pub fn take_stale(self, max: u32, keep: u32) -> Option<FreeRun> {
        if self.stale_free() == 0 {
            return None;
        }
        let mut free = self.0.free.lock();
        let from = free.nth(keep)?;
        let first = free.stale.next(from)?;
        let end = first.saturating_add(max).min(self.0.geometry.segments);
        let count = (first..end).take_while(|n| free.stale.contains(*n)).count() as u32;
        (first..first + count).for_each(|n| self.0.remove_free(&mut free, n));
        free.away += count;
        self.0.free_count.store(free.len() + free.away, Ordering::Relaxed);
        Some(FreeRun { first: SegNo(first), count })
    }

    /// Returns a run to the free set. `discarded`: it uses no space on the host any more.
    pub fn give_back(self, run: FreeRun, discarded: bool) {
        let mut free = self.0.free.lock();
        for n in run.first.0..run.first.0 + run.count {
            if discarded {
                self.0.host.stale[n as usize].store(false, Ordering::Relaxed);
                let unbacked = self.0.host.device.get().is_none();
                self.0.host.backed[n as usize].store(unbacked, Ordering::Relaxed);
            }
            free.away -= 1;
            self.0.add_free(&mut free, n);
        }
        drop(free);
        self.0.host.returned.notify_all();
    }

    /// Marks every free segment stale, so that all of them can be discarded.
    pub fn mark_all_stale(self) {
        let mut free = self.0.free.lock();
        for n in 1..self.0.geometry.segments {
            self.0.host.stale[n as usize].store(free.contains(n), Ordering::Relaxed);
        }
        self.0.recount_host(&mut free);
    }

    /// Bytes of a run: address and length.
    pub fn bytes_of(self, run: FreeRun) -> (Addr, u64) {
        (self.0.geometry.start_of(run.first), u64::from(run.count) * self.0.geometry.segment_size)
    }
}
