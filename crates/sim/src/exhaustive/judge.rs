//! One image of a crash: recovered, checked, found among the permitted states; its recovery crashed
//! in turn; and the recovered volume used.

use super::explore::Counts;
use super::images::{Candidate, Kind};
use super::start::{Start, going_on};
use crate::checks;
use crate::exec::{Lockstep, Step};
use crate::history::History;
use crate::model::diff;
use crate::recovery::{Recovered, recover};
use crate::rng::Rng;
use crate::walk::walk;
use shoal::Ino;
use std::collections::HashMap;

/// Recovers images and judges what is found.
pub(super) struct Judge<'a> {
    start: &'a Start,
    history: &'a History,
    /// Digest of the state that an image led to.
    known: HashMap<usize, u64>,
    pub(super) counts: Counts,
}

impl<'a> Judge<'a> {
    pub(super) fn new(start: &'a Start, history: &'a History) -> Judge<'a> {
        let counts = Counts { sequences: 1, ..Counts::default() };
        Judge { start, history, known: HashMap::new(), counts }
    }

    /// Judges one image of a crash at `position`.
    pub(super) fn examine(
        &mut self,
        candidate: Candidate,
        position: u64,
        rng: &mut Rng,
    ) -> Result<(), String> {
        let permitted = self.history.permitted(position);
        let known = candidate.whole.and_then(|whole| self.known.get(&whole).copied());
        if let Some(digest) = known {
            self.counts.repeated += 1;
            let found = self.history.find_digest(digest, permitted.clone());
            let late = || format!("recovered state is none of {permitted:?}: it is an older one");
            return found.map(|_| ()).ok_or_else(late);
        }
        self.counts.images += 1;
        self.counts.torn += u64::from(candidate.kind == Kind::Torn);
        self.counts.reordered += u64::from(matches!(candidate.kind, Kind::Holed | Kind::Mixed));
        let recovered = recover(candidate.image, &self.start.settings.open)?;
        self.counts.intents += recovered.volume.info().recovery.intents;
        let digest = recovered.walk.digest();
        if self.history.find_digest(digest, permitted.clone()).is_none() {
            return Err(self.history.explain(&recovered.walk.state, permitted));
        }
        // One of the two for each image, by lot: there are many images of every kind.
        if rng.chance(50) {
            self.crash_recovery(&recovered, rng)?;
            checks::deleted_roots_can_be_freed(&recovered.volume, &recovered.walk)?;
        } else {
            checks::deleted_roots_can_be_freed(&recovered.volume, &recovered.walk)?;
            self.counts.used += 1;
            goes_on(&recovered).map_err(|e| format!("recovered, but then: {e}"))?;
        }
        if let Some(whole) = candidate.whole {
            self.known.insert(whole, digest);
        }
        Ok(())
    }

    /// A crash at some point of the recovery, and recovery again: the same state.
    fn crash_recovery(&mut self, first: &Recovered, rng: &mut Rng) -> Result<(), String> {
        let mut crashes = first.device.crashes(rng.next());
        if crashes.last() == crashes.first() {
            return Ok(());
        }
        self.counts.recoveries_crashed += 1;
        let position = rng.range(crashes.first() + 1, crashes.last());
        let image = crashes.image_at(position, rng.next());
        let context = |e| format!("recovery crashed after {position} operations, done again: {e}");
        let again = recover(image, &self.start.settings.open).map_err(context)?;
        if again.walk.digest() == first.walk.digest() {
            return Ok(());
        }
        let lines = diff(&first.walk.state, &again.walk.state, 12);
        Err(context(format!("another state:\n    {}", lines.join("\n    "))))
    }
}

/// The recovered volume is one to work with: what is allocated next must not be in use already.
fn goes_on(recovered: &Recovered) -> Result<(), String> {
    let volume = &recovered.volume;
    let mut run = Lockstep::of(recovered.walk.model());
    for op in going_on() {
        if let Step::Refused(error) = run.step(volume, &op)? {
            return Err(format!("{op}: {error}"));
        }
    }
    volume.sync().map_err(|e| format!("sync: {e}"))?;
    let now = walk(volume, Ino::ROOT, true)?;
    if now.digest() != run.model.digest() {
        let lines = diff(&run.model.state(), &now.state, 12);
        return Err(format!("volume and model differ:\n    {}", lines.join("\n    ")));
    }
    checks::all(volume, &now)
}
