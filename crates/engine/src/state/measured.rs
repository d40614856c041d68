//! Durations of calls.
//!
//! Each call of a room that a caller can make runs in [`State::measured`], which decides whether it
//! is timed ([`shoal_base::sample`]). A call that is used by other calls too is measured only where
//! a caller makes it. A call that was refused because its thread must not wait is made again, and
//! counts then.

use super::State;
use shoal_base::sample;
use shoal_base::timing::Call;
use shoal_base::{Error, Result};
// It decides nothing, so it is no time of a simulation.
use std::time::Instant;

impl State {
    /// Runs a call, but not in a child of `fork`.
    #[inline]
    pub(crate) fn measured<R>(&self, call: Call, run: impl FnOnce() -> Result<R>) -> Result<R> {
        self.store.origin.check()?;
        let sample = sample::Call::begin(call.is_always_timed());
        let done = run();
        if done.is_err() || sample.begun().is_some() {
            self.note(call, sample.is_outer(), sample.begun(), done.as_ref().err());
        }
        done
    }

    #[cold]
    fn note(&self, call: Call, is_outer: bool, begun: Option<Instant>, error: Option<&Error>) {
        if is_outer && !matches!(error, Some(Error::Cold(_))) {
            let failed = error.is_some_and(|error| call.is_failure(error.code()));
            let took = begun.map(|begun| begun.elapsed());
            self.store.counters().called(call, took, failed);
        }
    }
}
