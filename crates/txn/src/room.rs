//! Space accounting for callers that report free space and for calls that use it.
//!
//! There are two answers, from the same counts:
//!
//! | | counts as available | caller |
//! | --- | --- | --- |
//! | [`Room::available`] | everything that is neither live, pinned, promised nor reserved | `statfs` |
//! | [`Room::bytes`] | of that, free segments and the rest of open ones | a call that begins |
//!
//! Reserved from ordinary calls: the reserve, which a checkpoint, a removal and the cleaner may
//! use; two segments of the journal, which every checkpoint leaves, and the open one of metadata;
//! and a *slack* of dead space, without which the cleaner would move fifty bytes to gain one, and a
//! removal would find no place for the nodes that it changes.
//!
//! The next checkpoint writes dirty metadata to new places, and it exists twice until that
//! checkpoint is durable: all of it counts against `bytes`. Against `available` counts only its
//! growth, which is not known in advance; half of it is a compromise between a volume on which
//! files are made and one on which they change.

use crate::store::Store;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Result, limits};
use shoal_format::Geometry;
use shoal_space::default_reserve;

/// Bytes that a call uses in addition to its own: the record, nodes that split.
const BESIDE: u64 = 4096;
/// Segments that are neither free nor usable by ordinary calls: the one that the journal writes,
/// the next one, and the open one of metadata.
const OPEN: u32 = 3;
/// Journal bytes that may be staged and not written yet.
const UNWRITTEN: u64 = 8 << 20;
/// Segments kept allocated on the host in addition to those for known writes.
const BACKED: u64 = 3;

/// Free space of a volume: [`Store::room`].
#[derive(Clone, Copy)]
pub struct Room<'s> {
    pub(crate) store: &'s Store,
}

impl Store {
    /// Returns the calls for free space.
    #[inline]
    pub fn room(&self) -> Room<'_> {
        Room { store: self }
    }
}

impl Room<'_> {
    /// Returns whether ordinary calls may use `bytes` more, at once.
    #[inline]
    pub fn has(self, bytes: u64) -> bool {
        let usable = self.store.space.counts().free_segments().saturating_sub(self.kept_segments());
        let wanted = bytes.saturating_add(BESIDE + self.to_write() + self.promised());
        let wanted = wanted.saturating_add(self.meta_slack());
        // Live bytes are in segments that are not free, so this much is available in any case.
        let much = u64::from(usable) * self.store.geometry.segment_size >= wanted;
        (much && self.is_backed()) || self.has_in_all(bytes)
    }

    /// As [`Room::has`], if space is short: counts everything exactly.
    #[cold]
    fn has_in_all(self, bytes: u64) -> bool {
        let wanted = bytes.saturating_add(BESIDE);
        let available = self.available().saturating_sub(self.growth());
        let there = self.bytes() >= wanted && available >= wanted && self.back().is_ok();
        there || planted::is(Defect::ReserveIgnored)
    }

    /// Bytes that ordinary calls may use at once.
    pub fn bytes(self) -> u64 {
        // An ordinary call allocates a segment only if more than the reserve remains free. If
        // checkpoints have used some of it, that is restored first: free space in open data
        // segments is useless for the metadata that every call writes.
        let kept = self.store.space.counts().reserve_segments() + 1;
        let Some(usable) = self.store.space.counts().free_segments().checked_sub(kept) else {
            return 0;
        };
        let free = u64::from(usable) * self.store.geometry.segment_size
            + self.store.space.counts().open_rest().data;
        free.saturating_sub(self.to_write() + self.promised())
    }

    /// Bytes available to ordinary calls, if necessary after a checkpoint and cleaning.
    pub fn available(self) -> u64 {
        let segments = self.store.geometry.segments.saturating_sub(1 + self.kept_segments());
        let all = u64::from(segments) * self.store.geometry.segment_size;
        let space = &self.store.space;
        let used = space.counts().live_bytes() + space.counts().pinned_bytes();
        all.saturating_sub(used + self.promised() + self.meta_slack())
    }

    /// Number of segments of the smallest volume that could hold the same, with what is kept from
    /// ordinary calls: about, because objects do not fill their segments, and have headers.
    pub fn segments_min(self) -> u32 {
        let (geometry, counts) = (self.store.geometry, self.store.space.counts());
        let used = counts.live_bytes() + counts.pinned_bytes() + self.promised();
        let used = (used + self.meta_slack() + self.growth()).div_ceil(geometry.segment_size);
        let fits = |segments: &u32| {
            let reserve = default_reserve(&Geometry { segments: *segments, ..geometry });
            used + u64::from(1 + reserve + kept_beside(*segments)) <= u64::from(*segments)
        };
        let least = (limits::SEGMENTS_MIN).max(used).min(u64::from(geometry.segments)) as u32;
        (least..geometry.segments).find(fits).unwrap_or(geometry.segments)
    }

    /// As [`Room::available`], for reports: minus the expected growth of metadata and what a call
    /// needs beside its own bytes, and no more than the host has.
    pub fn available_shown(self) -> u64 {
        self.own_available().min(self.host_available().unwrap_or(u64::MAX))
    }

    /// Returns whether the host has less space for the volume than the volume itself.
    pub fn is_limited_by_host(self) -> bool {
        self.host_available().is_some_and(|bytes| bytes < self.own_available())
    }

    fn own_available(self) -> u64 {
        self.available().saturating_sub(self.growth() + BESIDE)
    }

    /// Bytes that the host has for ordinary calls; `None` if it need not allocate any.
    fn host_available(self) -> Option<u64> {
        let room = self.store.device.room()?;
        let backed =
            u64::from(self.store.space.host().backed_free()) * self.store.geometry.segment_size;
        let here =
            (backed + self.store.space.counts().open_rest().data).saturating_sub(self.pool());
        Some(room + here)
    }

    /// Segments that ordinary calls never get, whether they are free or not.
    fn kept_segments(self) -> u32 {
        self.store.space.counts().reserve_segments() + kept_beside(self.store.geometry.segments)
    }

    /// Expected growth of dirty metadata when it is written.
    fn growth(self) -> u64 {
        self.store.dirty_bytes() / 2
    }

    /// The slack for metadata, a quarter of it: removals on a full volume rewrite nodes all over
    /// it.
    fn meta_slack(self) -> u64 {
        self.store.space.counts().meta_bytes() / 4
    }

    /// Bytes that the next checkpoint writes, an upper estimate: nodes are written whole and with
    /// their parents, inode blocks trimmed.
    fn to_write(self) -> u64 {
        let dirty = self.store.dirty_bytes();
        dirty + dirty / 4
    }

    /// Returns whether an optional checkpoint now leaves ample space for a required one.
    pub(crate) fn is_ample(self) -> bool {
        let free = u64::from(self.sure_segments()) * self.store.geometry.segment_size;
        self.to_write().saturating_mul(4) <= free
    }

    /// As `to_write`, with a tighter bound if much is dirty: no more than the existing metadata and
    /// its growth, which is in the journal.
    pub fn likely_to_write(self) -> u64 {
        let grown = self.store.lsn().0.saturating_sub(self.store.checkpoint_lsn().0);
        let all = self.store.space.counts().meta_bytes() + 2 * grown;
        self.to_write().min(all + all / 4)
    }

    fn promised(self) -> u64 {
        self.store.promises.with_reserved()
    }

    /// Bytes of free segments to keep allocated on the host: neither a checkpoint nor the journal
    /// may find the host out of space.
    fn pool(self) -> u64 {
        if self.store.device().never_full() {
            return 0;
        }
        self.to_write() + UNWRITTEN + BACKED * self.store.geometry.segment_size
    }

    fn is_backed(self) -> bool {
        u64::from(self.store.space.host().backed_free()) * self.store.geometry.segment_size
            >= self.pool()
    }

    /// Makes the host allocate the segments to keep.
    ///
    /// # Errors
    /// `ENOSPC` if the host has no space.
    pub fn back(self) -> Result<()> {
        if self.is_backed() {
            return Ok(());
        }
        // A small or full volume has no more.
        match self
            .store
            .space
            .host()
            .ensure_backed(self.backed_wanted().min(self.store.space.counts().free_segments()))
        {
            Err(e) if e.code() == Code::NoSpace => Err(Error::Code(Code::NoSpace)),
            other => other,
        }
    }

    /// Number of free segments to keep allocated on the host.
    pub(crate) fn backed_wanted(self) -> u32 {
        self.pool().div_ceil(self.store.geometry.segment_size) as u32
    }

    /// Number of segments that allocations which must succeed can still take.
    pub fn sure_segments(self) -> u32 {
        match self.store.space.host().is_short() {
            true => self.store.space.host().backed_free(),
            false => self.store.space.counts().free_segments(),
        }
    }

    /// Returns whether calls that may use the reserve have used so much of it that segments must be
    /// cleaned before they continue.
    #[inline]
    pub fn is_tight(self) -> bool {
        self.store.space.counts().free_segments()
            < self.store.space.counts().reserve_segments() * 3 / 4
            || (self.store.space.host().is_short() && self.is_backed_tight())
    }

    #[cold]
    fn is_backed_tight(self) -> bool {
        let least = self.to_write() + 2 * self.store.geometry.segment_size;
        u64::from(self.store.space.host().backed_free()) * self.store.geometry.segment_size < least
    }
}

/// Segments beside the reserve that ordinary calls never get.
fn kept_beside(segments: u32) -> u32 {
    1 + OPEN + segments / 32
}
