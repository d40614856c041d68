//! One image of a crash: recovered, checked, found among the permitted states; its recovery crashed
//! in turn; and the recovered volume used.

use super::images::{Candidate, Kind};
use super::start::{Start, going_on};
use crate::checks;
use crate::counts::counts;
use crate::exec::{Lockstep, Step};
use crate::history::History;
use crate::model::diff;
use crate::recovery::{Recovered, recover};
use crate::rng::Rng;
use crate::walk::walk;
use shoal::raw::Ino;
use std::collections::HashMap;

counts! {
    /// Counts of the work done.
    pub struct Counts {
        /// Sequences run.
        pub sequences: u64,
        /// Sequences left out because an operation in them fails, as the model says.
        pub failing: u64,
        /// (sequence, crash point) pairs.
        pub pairs: u64,
        /// Those whose crash point lies in the last operation or in what follows it.
        pub new_pairs: u64,
        /// Images recovered, checked and compared.
        pub images: u64,
        /// Images known to be equal to one recovered before: only compared.
        pub repeated: u64,
        /// Of the images, those with a torn write.
        pub torn: u64,
        /// Of the images, those with a later write there and an earlier one not.
        pub reordered: u64,
        /// Recoveries that were crashed themselves, and done again.
        pub recoveries_crashed: u64,
        /// Recovered volumes that were worked with.
        pub used: u64,
        /// Intents that recoveries completed.
        pub intents: u64,
    }
}

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
