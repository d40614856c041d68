//! Space for a call that found too little: first by reaping, then by checkpoints and cleaning.

use crate::clean::{Cleaner, LIVE_MAX};
use crate::reap::Reaper;
use crate::state::{Refusal, State, Upkeep, room};
use shoal_base::cold;
use shoal_base::phase::{self, Phase};
use shoal_base::{Code, Error, Result};
use shoal_txn::{Need, RecordKind, Txn};

/// Journal bytes since a refusal, or a checkpoint, from which on another checkpoint may free
/// metadata.
const CHANGED: u64 = 64 << 10;
/// Bytes that a call needs in addition to its own.
const BESIDE: u64 = 4096;

room! {
    /// Freeing space for calls.
    pub(crate) struct Relief { cleaner: Cleaner, reaper: Reaper }
}

/// Implements what the rooms below may ask of this one.
pub(crate) struct FromBelow;

impl Upkeep for FromBelow {
    fn begin_after_relief<'v>(
        &self,
        state: &'v State,
        bytes: u64,
        kind: RecordKind,
    ) -> Result<Txn<'v>> {
        Relief(state).begin_after_relief(bytes, kind)
    }

    fn make_room(&self, state: &State, bytes: u64) -> Result<bool> {
        Relief(state).make_room(bytes)
    }

    fn refill_reserve(&self, state: &State) -> Result<()> {
        Relief(state).refill_reserve()
    }

    fn reap_orphan(&self, state: &State) -> Result<bool> {
        Reaper(state).reap_orphan()
    }
}

impl<'v> Relief<'v> {
    /// First reaps, as much as necessary; then checkpoints and cleans. Fails at once if an earlier
    /// attempt failed and nothing has been freed since.
    #[cold]
    fn begin_after_relief(self, bytes: u64, kind: RecordKind) -> Result<Txn<'v>> {
        let _waiting = phase::waiting(Phase::Space);
        let mut round = 0;
        loop {
            let apart = (cold::apart(), shoal_journal::housekeeping());
            if self.cannot_free(bytes) {
                return Err(Error::Code(Code::NoSpace));
            }
            let reaped = self.reap_for(bytes)?;
            let gained = self.relieve(bytes)? || reaped;
            let room = self.0.store.room().has(bytes);
            if room || !gained || round >= 8 {
                drop(apart);
                match self.0.store.begin(Need::Space(bytes), kind) {
                    // Other calls have used the space in between; the attempt is repeated up to the
                    // limit of rounds.
                    Err(e) if e.is(Code::NoSpace) && room && round < 8 => {}
                    begun => return begun,
                }
            }
            // A round counts only if nothing was reaped, or space was found: while there is
            // something to reap, there may be space.
            round += u32::from(room || !reaped);
        }
    }

    /// Reaps until `bytes` and one segment more are no longer live; a checkpoint makes this space
    /// usable. Returns `false` if there was nothing to reap.
    pub(crate) fn reap_for(self, bytes: u64) -> Result<bool> {
        let space = self.0.store.space();
        let wanted = bytes.saturating_add(self.0.store.geometry().segment_size);
        let (before, mut reaped) = (space.counts().live_bytes(), false);
        while space.counts().live_bytes().saturating_add(wanted) > before
            && self.reaper().reap_some()?
        {
            reaped = true;
        }
        Ok(reaped)
    }

    /// Bytes available to ordinary calls, as reports show them: none that a call was refused, as
    /// long as nothing has been freed since.
    pub(crate) fn available_shown(self) -> u64 {
        let available = self.0.store.room().available_shown();
        let refusal = *self.0.refusal.lock();
        match refusal {
            Some(r) if self.cannot_free(r.bytes) => available.min(r.bytes.saturating_sub(1)),
            _ => available,
        }
    }

    /// Returns whether a call that needs `bytes` cannot succeed by cleaning. Either less is
    /// available, or nothing has been freed since a call failed that needed no more.
    pub(crate) fn cannot_free(self, bytes: u64) -> bool {
        let store = &self.0.store;
        let changed = |since: u64| store.lsn().0.saturating_sub(since) >= CHANGED;
        if changed(store.checkpoints().newest_lsn().0)
            || self.0.reaping.has_work()
            || self.reaper().has_deleted_roots()
        {
            return false;
        }
        if store.room().available() < bytes.saturating_add(BESIDE) {
            return true;
        }
        let refusal = *self.0.refusal.lock();
        refusal.is_some_and(|r| {
            let host = store.space().host().is_short() && store.device().room() > r.host;
            bytes >= r.bytes && self.used() >= r.used && !changed(r.lsn) && !host
        })
    }

    /// Bytes that only decrease when something is freed.
    fn used(self) -> u64 {
        let promised = self.0.store.promises().bytes();
        self.0.store.space().counts().live_bytes()
            + self.0.store.space().counts().pinned_bytes()
            + promised
    }

    /// Returns whether there is room. If not, remembers the state from before the check: what
    /// another thread frees during it must count as freed since.
    fn has_room_or_refuse(self, bytes: u64) -> bool {
        let (used, lsn, host) = (self.used(), self.0.store.lsn().0, self.0.store.device().room());
        let room = self.0.store.room().has(bytes);
        if !room {
            *self.0.refusal.lock() = Some(Refusal { bytes, used, lsn, host });
        }
        room
    }

    /// Frees space for a call that found none: a checkpoint frees dead segments, then others are
    /// cleaned. Returns whether there is enough space now.
    pub(crate) fn relieve(self, bytes: u64) -> Result<bool> {
        let _one = self.0.cleaning.lock();
        if self.0.store.room().has(bytes) {
            return Ok(true);
        }
        // Another call may have failed while this one waited.
        if self.cannot_free(bytes) {
            return Ok(false);
        }
        let extra =
            u64::from(self.cleaner().batch_segments()) * self.0.store.geometry().segment_size;
        let ready = u64::from(self.0.store.space().counts().ready_segments());
        if ready * self.0.store.geometry().segment_size < bytes.saturating_add(extra) / 2 {
            // Dead segments are not enough: the checkpoint of the cleaning frees them too.
            self.cleaner().clean_batch(LIVE_MAX, extra)?;
        }
        if !self.has_plenty(bytes, extra) {
            self.0.store.checkpoints().write()?;
        }
        if self.0.store.room().available() >= bytes.saturating_add(BESIDE) {
            self.cleaner().clean_until(LIVE_MAX, extra, || self.has_plenty(bytes, extra))?;
        }
        Ok(self.has_room_or_refuse(bytes))
    }

    /// Returns whether there is space for a call, and some in reserve: otherwise each checkpoint
    /// for the last bytes of a segment would free less than the one before. The reserve is limited
    /// by the available space.
    fn has_plenty(self, bytes: u64, extra: u64) -> bool {
        let there = self.0.store.room().available().saturating_sub(bytes.saturating_add(BESIDE));
        self.0.store.room().has(bytes.saturating_add(extra.min(there / 2) / 2))
    }

    /// Frees space for a call that was admitted, but then found its space used by others. Returns
    /// `false` if nothing could be freed.
    #[cold]
    pub(crate) fn make_room(self, bytes: u64) -> Result<bool> {
        let _waiting = phase::waiting(Phase::Space);
        // Space that can still be reaped must not cause a refusal.
        let reaped = self.reap_for(bytes)?;
        let _one = self.0.cleaning.lock();
        if !reaped && self.cannot_free(bytes) {
            return Ok(false);
        }
        let before = self.0.store.space().counts().free_segments();
        self.0.store.checkpoints().write()?;
        if self.0.store.space().counts().free_segments() <= before {
            self.cleaner().clean_batch(LIVE_MAX, self.0.store.geometry().segment_size)?;
        }
        let made = reaped || self.0.store.space().counts().free_segments() > before;
        // Others may have freed it before this call looked.
        Ok(made || self.has_room_or_refuse(bytes))
    }

    /// Refills the reserve by checkpoints and cleaning, before a call that may use it. The call may
    /// succeed even if nothing can be freed.
    #[cold]
    pub(crate) fn refill_reserve(self) -> Result<()> {
        let _waiting = phase::waiting(Phase::Space);
        let _one = self.0.cleaning.lock();
        if !self.0.store.room().is_tight() {
            return Ok(());
        }
        self.0.store.checkpoints().write()?;
        // More segments allocated on the host help too; an error is ignored.
        let _ = self.0.store.room().back();
        self.cleaner().clean_until(LIVE_MAX, 0, || !self.0.store.room().is_tight())
    }
}
