//! How much room there is, for who asks and for who takes.
//!
//! Two answers, from the same counts:
//!
//! | | counts as room | who asks |
//! | --- | --- | --- |
//! | [`Store::available`] | all that is neither live, pinned, promised nor kept | `statfs` |
//! | [`Store::room`] | of that, free segments and the rest of open ones | a call that begins |
//!
//! What is kept from ordinary calls: the reserve, which a checkpoint, a removal and the cleaner may
//! use; two segments of the journal, which every checkpoint leaves, and the open one of metadata;
//! and a *slack* of dead space, without which the cleaner would move fifty bytes to gain one, and a
//! removal find no place for the nodes that it changes.
//!
//! Metadata that is dirty is written to new places by the next checkpoint and lies in both until
//! that is durable: all of it counts against `room`. Against `available` counts only what it grows
//! by, which nobody knows before; half of it is between a volume on which files are made and one on
//! which they change.

use crate::store::Store;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Result};
use std::sync::atomic::Ordering;

/// Bytes that a call takes beside its own: the record, nodes that split.
const BESIDE: u64 = 4096;
/// Segments that are neither free nor of use to ordinary calls: the one that the journal writes,
/// the next, and the open one of metadata.
const OPEN: u32 = 3;
/// Journal bytes that may be staged and not yet written.
const UNWRITTEN: u64 = 8 << 20;
/// Segments that are kept allocated on the host beside those for what is known to be written.
const BACKED: u64 = 3;

impl Store {
    /// Whether ordinary calls may take `bytes` more, at once.
    #[inline]
    pub fn has_room(&self, bytes: u64) -> bool {
        let spare = self.space.free_segments().saturating_sub(self.kept_segments());
        let wanted = bytes.saturating_add(BESIDE + self.to_write() + self.promised());
        let wanted = wanted.saturating_add(self.meta_slack());
        // Live bytes lie in segments that are not free: so much is available whatever they are.
        let much = u64::from(spare) * self.geometry.segment_size >= wanted;
        (much && self.is_backed()) || self.has_room_in_all(bytes)
    }

    /// The same, when room is short: everything counts.
    #[cold]
    fn has_room_in_all(&self, bytes: u64) -> bool {
        let wanted = bytes.saturating_add(BESIDE);
        let available = self.available().saturating_sub(self.growth());
        let there = self.room() >= wanted && available >= wanted && self.back().is_ok();
        there || planted::is(Defect::ReserveIgnored)
    }

    /// Bytes that ordinary calls may take at once.
    pub fn room(&self) -> u64 {
        // An ordinary call takes a segment only if more than the reserve is free after that. When
        // checkpoints have used some of it, that comes first: what is left in open segments of data
        // is of no use to the metadata that every call writes.
        let kept = self.space.reserve_segments() + 1;
        let Some(spare) = self.space.free_segments().checked_sub(kept) else { return 0 };
        let free = u64::from(spare) * self.geometry.segment_size + self.space.open_rest().data;
        free.saturating_sub(self.to_write() + self.promised())
    }

    /// Bytes that ordinary calls can get, if need be by a checkpoint and cleaning.
    pub fn available(&self) -> u64 {
        let segments = self.geometry.segments.saturating_sub(1 + self.kept_segments());
        let all = u64::from(segments) * self.geometry.segment_size;
        let space = &self.space;
        let used = space.live_bytes() + space.pinned_bytes();
        all.saturating_sub(used + self.promised() + self.meta_slack())
    }

    /// The same, for people: less what metadata is about to grow by, and no more than the host has.
    pub fn available_shown(&self) -> u64 {
        let shown = self.available().saturating_sub(self.growth());
        let Some(room) = self.device.room() else { return shown };
        let backed = u64::from(self.space.backed_free()) * self.geometry.segment_size;
        let here = (backed + self.space.open_rest().data).saturating_sub(self.pool());
        shown.min(room + here)
    }

    /// Segments that ordinary calls never get, whether they are free or not.
    fn kept_segments(&self) -> u32 {
        let slack = self.geometry.segments / 32;
        self.space.reserve_segments() + 1 + OPEN + slack
    }

    /// What dirty metadata may grow by when it is written.
    fn growth(&self) -> u64 {
        self.dirty_bytes() / 2
    }

    /// The slack of metadata, a quarter of it: removals on a full volume rewrite nodes all over it.
    fn meta_slack(&self) -> u64 {
        self.space.meta_bytes() / 4
    }

    /// Bytes that the next checkpoint writes, at most about: nodes are written whole and with their
    /// parents; inode blocks trimmed.
    fn to_write(&self) -> u64 {
        let dirty = self.dirty_bytes();
        dirty + dirty / 4
    }

    /// Whether a checkpoint that need not be written now leaves plenty for one that must.
    pub(crate) fn has_ample_room(&self) -> bool {
        let free = u64::from(self.sure_segments()) * self.geometry.segment_size;
        self.to_write().saturating_mul(4) <= free
    }

    /// The same, when much is dirty: no more than there is metadata, and what it has grown by,
    /// which is in the journal.
    pub fn likely_to_write(&self) -> u64 {
        let grown = self.lsn().0.saturating_sub(self.checkpoint_lsn().0);
        let all = self.space.meta_bytes() + 2 * grown;
        self.to_write().min(all + all / 4)
    }

    fn promised(&self) -> u64 {
        let promised = self.prealloc.load(Ordering::Relaxed).max(0) as u64;
        promised + self.reserved.load(Ordering::Relaxed)
    }

    /// Bytes of free segments to be kept allocated on the host: neither a checkpoint nor the
    /// journal may find that it has no room.
    fn pool(&self) -> u64 {
        self.to_write() + UNWRITTEN + BACKED * self.geometry.segment_size
    }

    fn is_backed(&self) -> bool {
        u64::from(self.space.backed_free()) * self.geometry.segment_size >= self.pool()
    }

    /// Makes the host allocate what is to be kept; `ENOSPC` when it has no room.
    pub fn back(&self) -> Result<()> {
        if self.is_backed() {
            return Ok(());
        }
        // On a small or full volume there are no more.
        match self.space.ensure_backed(self.backed_wanted().min(self.space.free_segments())) {
            Err(e) if e.code() == Code::NoSpace => Err(Error::Code(Code::NoSpace)),
            other => other,
        }
    }

    /// Free segments to be kept allocated on the host.
    pub(crate) fn backed_wanted(&self) -> u32 {
        self.pool().div_ceil(self.geometry.segment_size) as u32
    }

    /// Segments that what must succeed can still take.
    pub fn sure_segments(&self) -> u32 {
        match self.space.host_is_short() {
            true => self.space.backed_free(),
            false => self.space.free_segments(),
        }
    }

    /// Whether calls that may use the reserve have used so much of it that segments must be cleaned
    /// before they go on.
    #[inline]
    pub fn is_tight(&self) -> bool {
        self.space.free_segments() < self.space.reserve_segments() * 3 / 4
            || (self.space.host_is_short() && self.is_backed_tight())
    }

    #[cold]
    fn is_backed_tight(&self) -> bool {
        let least = self.to_write() + 2 * self.geometry.segment_size;
        u64::from(self.space.backed_free()) * self.geometry.segment_size < least
    }
}
