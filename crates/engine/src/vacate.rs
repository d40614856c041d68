//! Emptying the last segments of a volume, so that it can become smaller.
//!
//! Problem: what is in them must go before them, where too little may be free, and what is free is
//! scattered in segments that are in use.
//!
//! Rule: rounds, each with a checkpoint, which frees the segments that the round has emptied:
//!
//! | before the new end is free | a round |
//! | --- | --- |
//! | enough to move something | moves what is in the last segments, the emptiest first; it goes to the lowest free ones |
//! | too little | does the same with the emptiest segments before the end. Where nothing is free before it, this goes to the last segments, and comes back in a later round |
//!
//! So all free space of the volume serves as room for the moves, and none of it has to be before
//! the new end at the beginning.
//!
//! It ends: *lacking* are the live bytes after the end, and the segments to be kept free, minus the
//! free segments before the end. A round of the first kind has fewer live bytes after the end, one
//! of the second kind fewer lacking. After [`FRUITLESS_MAX`] rounds with neither, the rest does not
//! fit.
//!
//! A crash leaves what any crash of a volume in use leaves: moves are ordinary work of the cleaner.

use crate::clean::Cleaner;
use crate::reap::Reaper;
use crate::state::room;
use shoal_base::{Addr, Error, Result, SegNo};
use shoal_format::Geometry;
use shoal_space::{Life, Space, Vacating, Victim, default_reserve};
use std::collections::HashMap;

/// Segments considered in a round.
const CONSIDERED: usize = 256;
/// Bytes after which a round ends, so that it can be interrupted.
const ROUND: u64 = 256 << 20;
/// Segments before the end that moves leave to the checkpoint and the journal.
const MARGIN: u64 = 2;
/// Bytes by which something must have become less in a round that counts.
const STEP: i64 = 64 << 10;
/// Rounds without that, one after the other, after which the rest does not fit.
const FRUITLESS_MAX: u32 = 8;
/// Attempts to move what is in a segment.
const ATTEMPTS: u32 = 3;

/// The result of emptying.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Emptied {
    /// Nothing is in the last segments.
    Whole,
    /// The caller did not want it to go on.
    Stopped,
    /// Their content does not fit before the end; so many bytes are lacking, about.
    Lacking(u64),
}

/// Callback with the bytes moved and the total. Returns whether to go on.
pub(crate) type Watch<'w> = &'w mut dyn FnMut(u64, u64) -> bool;

room! {
    /// Emptying the last segments.
    pub(crate) struct Vacate { cleaner: Cleaner, reaper: Reaper }
}

/// The progress of the rounds.
struct Rounds {
    live: i64,
    lacking: i64,
    fruitless: u32,
    /// Number of attempts to move what is in a segment, which may be freed and used again.
    attempts: HashMap<Life, u32>,
}

impl Rounds {
    /// Notes the state after a round. Returns whether there may be more progress.
    fn note(&mut self, live: u64, lacking: i64) -> bool {
        let live = i64::try_from(live).unwrap_or(i64::MAX);
        if live <= self.live - STEP || lacking <= self.lacking - STEP {
            (self.live, self.lacking) = (self.live.min(live), self.lacking.min(lacking));
            self.fruitless = 0;
        }
        self.fruitless += 1;
        self.fruitless <= FRUITLESS_MAX
    }

    /// Counts an attempt. Returns whether there were too many.
    fn is_in_vain(&mut self, space: &Space, at: Addr) -> bool {
        let Some(life) = space.hold(at).life() else { return false };
        let attempts = self.attempts.entry(life).or_default();
        *attempts += 1;
        *attempts > ATTEMPTS
    }
}

impl Vacate<'_> {
    /// Frees what waits to be freed: it must not be moved, and need not fit.
    pub(crate) fn reap(self) -> Result<()> {
        while self.reaper().reap_some()? {}
        self.0.store.checkpoints().write()
    }

    /// Moves everything that is in segments from `end` on before it. Must be called without
    /// concurrent calls.
    ///
    /// # Errors
    /// Damage, if something cannot be moved.
    pub(crate) fn empty_from(self, end: SegNo, watch: Watch<'_>) -> Result<Emptied> {
        let _one = self.0.cleaning.lock();
        let geometry = self.0.store.geometry();
        let vacating = self.0.store.space().vacating(end);
        let keep = default_reserve(&Geometry { segments: end.0, ..*geometry }) + 1;
        let segments = |n: u32| (u64::from(n) * geometry.segment_size) as i64;
        let total = vacating.occupied().live;
        let (most, attempts) = (i64::MAX, HashMap::new());
        let mut rounds = Rounds { live: most, lacking: most, fruitless: 0, attempts };
        loop {
            vacating.close_streams();
            self.0.store.checkpoints().write()?;
            let (there, free) = (vacating.occupied(), vacating.free_before());
            if there.segments == 0 && free >= keep {
                return Ok(Emptied::Whole);
            }
            if !watch(total.saturating_sub(there.live), total) {
                return Ok(Emptied::Stopped);
            }
            let lacking = there.live as i64 + segments(keep) - segments(free);
            if !rounds.note(there.live, lacking) {
                return Ok(Emptied::Lacking(lacking.max(0) as u64));
            }
            if there.live == 0 && free >= keep {
                // The next checkpoint frees dead segments.
                continue;
            }
            if there.live == 0 || !self.move_down(vacating, &mut rounds)? {
                let wanted = lacking.max(0) as u64 + MARGIN * geometry.segment_size;
                self.compact(vacating, wanted, &mut rounds)?;
            }
        }
    }

    fn start_of(self, victim: &Victim) -> Addr {
        self.0.store.geometry().start_of(victim.seg)
    }

    /// Moves what is in the last segments, as much as fits. Returns whether anything was moved.
    fn move_down(self, vacating: Vacating<'_>, rounds: &mut Rounds) -> Result<bool> {
        let mut moved = 0;
        for victim in vacating.after(CONSIDERED) {
            let needed = self.cleaner().segments_for(victim.live) + MARGIN;
            let fits = u64::from(vacating.free_before()) > needed;
            if !fits || !self.cleaner().can_move(victim.live) || moved >= ROUND {
                break;
            }
            if rounds.is_in_vain(self.0.store.space(), self.start_of(&victim)) {
                let object = format!("segment {}", victim.seg.0);
                let rule = format!("{} live bytes in it cannot be moved", victim.live);
                return Err(Error::corrupt(object, None, rule + "; 'shoal fsck' says more"));
            }
            self.cleaner().move_out(&victim)?;
            moved += u64::from(victim.live);
        }
        Ok(moved > 0)
    }

    /// Moves what is in the emptiest segments before the end, until `wanted` bytes are gained.
    fn compact(self, vacating: Vacating<'_>, wanted: u64, rounds: &mut Rounds) -> Result<()> {
        let size = self.0.store.geometry().segment_size;
        let (mut gained, mut moved) = (0, 0);
        for victim in vacating.before(CONSIDERED) {
            let gain = size - u64::from(victim.live);
            let is_full = gain < size / 64;
            if is_full || gained >= wanted || moved >= ROUND {
                break;
            }
            if !self.cleaner().can_move(victim.live) {
                break;
            }
            if rounds.is_in_vain(self.0.store.space(), self.start_of(&victim)) {
                // A repair may free it.
                continue;
            }
            self.cleaner().move_out(&victim)?;
            gained += gain;
            moved += u64::from(victim.live);
        }
        Ok(())
    }
}
