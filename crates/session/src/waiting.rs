//! How a thread waits that will soon be answered: it looks, lets others run, and then sleeps.
//!
//! Looking costs the least if whom it waits for runs on another processor, and the most if both
//! share one. A thread sees which by the time that it takes to let others run: when somebody has,
//! it lets them run at once the next times, and tries again now and then. Where programs compute on
//! all processors, whoever lets others run comes back after their slices, which are milliseconds;
//! who sleeps is woken and runs before them. So it sleeps at once then.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Time to let others run from which on somebody has.
const RAN: Duration = Duration::from_nanos(1_000);
/// Waits that begin with letting others run, after somebody has.
const SHARED: u32 = 64;

/// Time to let others run from which on it was a program that computes, and not whom it waits for.
const SLICE: Duration = Duration::from_micros(400);
/// Waits that sleep at once, after that.
const ASLEEP: u32 = 256;

thread_local! {
    /// Waits that are still to sleep at once.
    static SLEEP: Cell<u32> = const { Cell::new(0) };
    /// Waits that are still to begin so.
    static LEFT: Cell<u32> = const { Cell::new(0) };
}

/// A wait.
#[derive(Debug)]
pub(crate) struct Wait {
    /// Since when, if it is known already.
    begun: Option<Instant>,
    shared: bool,
    sleeps: bool,
}

impl Wait {
    /// Begins to wait.
    #[inline]
    pub(crate) fn begin() -> Wait {
        let left = LEFT.get();
        if left > 0 {
            LEFT.set(left - 1);
        }
        let sleep = SLEEP.get();
        if sleep > 0 {
            SLEEP.set(sleep - 1);
        }
        Wait { begun: None, shared: left > 0, sleeps: sleep > 0 }
    }

    /// Returns whether somebody else has run on this processor in this wait or the ones before.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Waits for a moment: looks for `look` and lets others run after that. Returns `false` when
    /// `at_most` has passed.
    #[inline]
    pub(crate) fn moment(&mut self, look: Duration, at_most: Duration) -> bool {
        if self.sleeps {
            return false;
        }
        let now = Instant::now();
        let waited = now - *self.begun.get_or_insert(now);
        if waited >= at_most {
            return false;
        }
        if waited >= look || self.shared {
            std::thread::yield_now();
            let away = now.elapsed();
            if away >= SLICE {
                SLEEP.set(ASLEEP);
                self.sleeps = true;
            }
            let ran = away >= RAN;
            LEFT.set(if ran { SHARED } else { 0 });
            self.shared = ran;
        }
        true
    }
}
