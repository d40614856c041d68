//! How a thread waits that will soon be answered: it looks, lets others run, and then sleeps.
//!
//! Looking costs the least if whom it waits for runs on another processor, and the most if both
//! share one. A thread sees which by the time that it takes to let others run: when somebody has,
//! it lets them run at once the next times, and tries again now and then.
//!
//! A program that computes would then run to the end of its slice, which is as long as a thousand
//! calls. Before a thread that wakes it steps back at once. So a thread that has met one sleeps the
//! next times, where it would let others run.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Time to let others run from which on somebody has.
const RAN: Duration = Duration::from_nanos(1_000);
/// Waits that begin with letting others run, after somebody has.
const SHARED: u32 = 64;
/// Time to let others run from which on one of them computes.
const COMPUTED: Duration = Duration::from_micros(500);
/// Waits that sleep instead, after somebody has computed.
const ASLEEP: u32 = 256;

thread_local! {
    /// Waits that are still to begin so.
    static LEFT: Cell<u32> = const { Cell::new(0) };
    /// Waits in which others are not let run.
    static SLEEPS: Cell<u32> = const { Cell::new(0) };
}

/// Lets others run, and notes what they do. Returns whether somebody has run.
fn let_run(now: Instant) -> bool {
    std::thread::yield_now();
    let took = now.elapsed();
    if took >= COMPUTED {
        SLEEPS.set(ASLEEP);
    }
    let ran = took >= RAN;
    LEFT.set(if ran { SHARED } else { 0 });
    ran
}

/// Lets others run in the middle of work, unless somebody computes.
pub(crate) fn take_turns() {
    if SLEEPS.get() == 0 {
        let_run(Instant::now());
    }
}

/// A wait.
#[derive(Debug)]
pub(crate) struct Wait {
    /// Since when, if it is known already.
    begun: Option<Instant>,
    shared: bool,
    /// It sleeps where it would let others run.
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
        let asleep = SLEEPS.get();
        if asleep > 0 {
            SLEEPS.set(asleep - 1);
        }
        Wait { begun: None, shared: left > 0, sleeps: asleep > 0 }
    }

    /// Waits for a moment: looks for `look` and lets others run after that. Returns `false` when
    /// `at_most` has passed, or it is time to sleep.
    #[inline]
    pub(crate) fn moment(&mut self, look: Duration, at_most: Duration) -> bool {
        let now = Instant::now();
        let waited = now - *self.begun.get_or_insert(now);
        if waited >= at_most {
            return false;
        }
        if waited >= look || self.shared {
            if self.sleeps {
                return false;
            }
            self.shared = let_run(now);
        }
        true
    }
}
