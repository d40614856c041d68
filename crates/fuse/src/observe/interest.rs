//! Interest of readers who say nothing when they end: it lasts for some time after each look.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// State of an interest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Nobody looks.
    None,
    /// Somebody does.
    There,
    /// Nobody does any more. Only one caller is told so.
    Ended,
}

/// Interest of readers.
pub(super) struct Interest {
    begun: Instant,
    lasts: Duration,
    /// Time since `begun` up to which it lasts, in nanoseconds; 0: there is none.
    until: AtomicU64,
}

impl Interest {
    /// An interest that lasts so long after each look. Nobody has looked.
    pub(super) fn new(lasts: Duration) -> Interest {
        Interest { begun: Instant::now(), lasts, until: AtomicU64::new(0) }
    }

    fn since_begin(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.begun).as_nanos() as u64
    }

    /// Returns the state at a time.
    #[inline]
    pub(super) fn state(&self, at: Instant) -> State {
        let until = self.until.load(Ordering::Relaxed);
        if until == 0 {
            return State::None;
        }
        if self.since_begin(at) < until {
            return State::There;
        }
        match self.until.compare_exchange(until, 0, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => State::Ended,
            // Somebody has renewed it, or has been told.
            Err(_) => State::None,
        }
    }

    /// Returns whether somebody has looked, and the interest may not have ended yet. A look at the
    /// clock tells more.
    #[inline]
    pub(super) fn was_there(&self) -> bool {
        self.until.load(Ordering::Relaxed) != 0
    }

    /// Somebody looks now. Returns whether there was an interest.
    pub(super) fn renew(&self) -> bool {
        let now = Instant::now();
        let was = self.until.swap(self.since_begin(now + self.lasts), Ordering::Relaxed);
        self.since_begin(now) < was
    }

    /// Lets it end at once, as if time had passed.
    #[cfg(test)]
    pub(super) fn end_soon(&self) {
        self.until.fetch_min(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_for_some_time_and_one_is_told_of_its_end() {
        let interest = Interest::new(Duration::from_secs(15));
        let now = Instant::now();
        assert_eq!(interest.state(now), State::None);
        assert!(!interest.renew() && interest.renew());
        assert_eq!(interest.state(now), State::There);
        let later = now + Duration::from_secs(60);
        assert_eq!([interest.state(later), interest.state(later)], [State::Ended, State::None]);
        assert!(!interest.renew());
        interest.end_soon();
        assert!(!interest.renew(), "it had ended");
    }
}
