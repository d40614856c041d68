//! Random choice of the calls that are timed.
//!
//! Problem: two readings of the clock are a tenth of a create. So of calls that take less than some
//! microseconds one in [`EVERY`] is timed, and counts for [`EVERY`]: numbers made of them are
//! estimates.
//!
//! Rule: each call is timed with the same chance, whatever was timed before. So nothing periodic in
//! a program can hide from it, and an estimate is right on average, for a thread that makes three
//! calls as for one that makes a million. What is decided for each call costs a decrement and a
//! branch, because the number of calls until the next timed one is drawn ahead: in a series of
//! independent choices that number has a geometric distribution. Of `n` timed calls, the estimate
//! of their number is wrong by a share of about `1 / √n`.
//!
//! *A call that another one makes belongs to it*, on the same thread. So does all work of a thread
//! that belongs to no caller ([`apart`]).
//!
//! The state is per thread, and nothing here waits for others. Under the scheduler of `shuttle`,
//! all threads are one, and nothing is measured.

use std::cell::Cell;
use std::time::Instant;

/// One call in this many is timed.
pub const EVERY: u64 = 64;

/// State of a thread.
struct Thread {
    /// Calls until the next one that is timed.
    left: Cell<u32>,
    /// State of the generator; 0: not seeded.
    random: Cell<u64>,
    /// A call is in progress, or the thread makes none.
    inside: Cell<bool>,
}

thread_local! {
    static THREAD: Thread = const {
        Thread { left: Cell::new(0), random: Cell::new(0), inside: Cell::new(false) }
    };
}

/// A call in progress, until it is dropped.
#[must_use]
pub struct Call {
    /// No other call makes it.
    is_outer: bool,
    begun: Option<Instant>,
}

impl Call {
    /// Begins a call. `always`: it is timed, unless another one makes it.
    #[inline]
    pub fn begin(always: bool) -> Call {
        if cfg!(feature = "scheduled") {
            return Call { is_outer: false, begun: None };
        }
        THREAD.with(|thread| {
            if thread.inside.replace(true) {
                return Call { is_outer: false, begun: None };
            }
            let begun = (always || is_due(thread)).then(Instant::now);
            Call { is_outer: true, begun }
        })
    }

    /// Returns whether it is a call of a caller, not of another call.
    #[inline]
    pub fn is_outer(&self) -> bool {
        self.is_outer
    }

    /// The moment when it began, if it is timed.
    #[inline]
    pub fn begun(&self) -> Option<Instant> {
        self.begun
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        if self.is_outer {
            THREAD.with(|thread| thread.inside.set(false));
        }
    }
}

/// Until it is dropped, calls of this thread are part of something else.
#[must_use]
pub struct Apart(bool);

/// Begins work of this thread that is no call of anybody, or a part of another thread's.
pub fn apart() -> Apart {
    Apart(THREAD.with(|thread| thread.inside.replace(true)))
}

impl Drop for Apart {
    fn drop(&mut self) {
        THREAD.with(|thread| thread.inside.set(self.0));
    }
}

#[inline]
fn is_due(thread: &Thread) -> bool {
    match thread.left.get().checked_sub(1) {
        Some(left) => {
            thread.left.set(left);
            false
        }
        None => draw(thread),
    }
}

/// Draws the number of calls that come before the next timed one. Returns whether the present call
/// is timed.
#[cold]
fn draw(thread: &Thread) -> bool {
    let is_first = thread.random.get() == 0;
    if is_first {
        thread.random.set(seed());
    }
    let pause = pause(thread);
    if is_first && pause > 0 {
        thread.left.set(pause - 1);
        return false;
    }
    thread.left.set(if is_first { self::pause(thread) } else { pause });
    true
}

/// Returns a number of another thread each time, never 0.
fn seed() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static THREADS: AtomicU64 = AtomicU64::new(1);
    let number = THREADS.fetch_add(1, Ordering::Relaxed);
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
}

/// Returns a number of calls that are not timed: each with the chance that it would be.
fn pause(thread: &Thread) -> u32 {
    let mut random = thread.random.get();
    for (left, shift) in [(true, 13), (false, 7), (true, 17)] {
        random ^= if left { random << shift } else { random >> shift };
    }
    thread.random.set(random);
    // The upper bits, of which the lowest is always set: between 0 and 1, and neither.
    let share = (random >> 11 | 1) as f64 / (1u64 << 53) as f64;
    let not_timed = 1.0 - 1.0 / EVERY as f64;
    (share.ln() / not_timed.ln()) as u32
}

#[cfg(all(test, not(feature = "scheduled")))]
mod tests {
    use super::*;
    use std::thread;

    /// Makes calls in a thread of its own. Returns which of them were timed.
    fn timed(calls: usize) -> Vec<bool> {
        let make = move || (0..calls).map(|_| Call::begin(false).begun().is_some()).collect();
        thread::spawn(make).join().expect("it does not panic")
    }

    #[test]
    fn each_call_has_the_same_chance_whatever_was_before() {
        const CALLS: usize = 2_000_000;
        let timed = timed(CALLS);
        let expected = CALLS as f64 / EVERY as f64;
        let is_near = |found: f64, expected: f64| {
            // Six standard deviations.
            assert!((found - expected).abs() < 6.0 * expected.sqrt(), "{found}, not {expected}");
        };
        let count = |some: &mut dyn Iterator<Item = &bool>| some.filter(|is| **is).count() as f64;
        is_near(count(&mut timed.iter()), expected);
        for period in [2, 3, 64, 100] {
            for phase in 0..period.min(4) {
                let some = &mut timed.iter().skip(phase).step_by(period);
                is_near(count(some), expected / period as f64);
            }
        }
        for distance in [1, 2, 63, 64, 65, 128] {
            let both = timed.iter().zip(&timed[distance..]).filter(|(a, b)| **a && **b).count();
            is_near(both as f64, expected / EVERY as f64);
        }
    }

    #[test]
    fn threads_with_few_calls_are_estimated_as_well_and_differ() {
        let (mut found, mut first) = (0, 0);
        for _ in 0..4000 {
            let timed = timed(8);
            found += timed.iter().filter(|is| **is).count();
            first += usize::from(timed[0]);
        }
        // Expected: 500 and 62.5, with six standard deviations.
        assert!((366..634).contains(&found), "{found} of 32,000");
        assert!((15..110).contains(&first), "{first} of 4,000");
    }

    #[test]
    fn calls_of_a_call_are_part_of_it_also_after_a_panic() {
        let outer = Call::begin(true);
        assert!(outer.is_outer() && outer.begun().is_some());
        let inner = Call::begin(true);
        assert!(!inner.is_outer() && inner.begun().is_none());
        drop(inner);
        assert!(!Call::begin(true).is_outer());
        drop(outer);
        let panicked = std::panic::catch_unwind(|| {
            let _call = Call::begin(true);
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(panicked.is_err());
        assert!(Call::begin(true).is_outer());
        {
            let _apart = apart();
            let _nested = apart();
            assert!(!Call::begin(true).is_outer());
        }
        assert!(Call::begin(true).is_outer());
    }
}
