//! Waiting for an event in a test.
//!
//! A sleep that must be long enough fails on a busy machine, and wastes time on every other one.
//! So a test asks again until the event is there. The limit says only that it will never come: it
//! is as long as a test program may need on a machine that does much else, and a failure names the
//! event.

use rustix::time::{ClockId, clock_gettime};
use std::fmt::Display;
use std::time::{Duration, Instant};

/// Longest wait for one event. Shorter than what `scripts/test.sh` gives a program.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// The first pause between two questions. They grow to the longest.
const PAUSE_MIN: Duration = Duration::from_micros(200);
const PAUSE_MAX: Duration = Duration::from_millis(20);

/// Waits until a condition holds.
///
/// # Panics
/// If it does not in [`PATIENCE`]. The message begins with `what`.
#[track_caller]
pub fn wait_until(what: impl Display, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Waits until a question has an answer. Returns it.
///
/// # Panics
/// If it has none in [`PATIENCE`]. The message begins with `what`.
#[track_caller]
pub fn wait_for<T>(what: impl Display, ask: impl FnMut() -> Option<T>) -> T {
    let found = within(PATIENCE, ask);
    found.unwrap_or_else(|| panic!("{what}: not in {} s", PATIENCE.as_secs()))
}

/// Waits until the clock of file times has moved, so that a later change has a later time.
///
/// # Panics
/// If it stands still.
#[track_caller]
pub fn tick() {
    let clock = |id| {
        let now = clock_gettime(id);
        (now.tv_sec, now.tv_nsec)
    };
    // The kernel's is the coarse one, and a volume's may be the fine one, which is ahead of it.
    let begun = clock(ClockId::Realtime);
    wait_until("a tick of the clock of file times", || clock(ClockId::RealtimeCoarse) > begun);
}

/// Asks for an answer until there is one, or the time is over.
fn within<T>(limit: Duration, mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let (begun, mut pause) = (Instant::now(), PAUSE_MIN);
    loop {
        // Asked after the limit too: the time may have gone by in one pause.
        let is_late = begun.elapsed() >= limit;
        let answer = ask();
        if answer.is_some() || is_late {
            return answer;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_what_comes_and_gives_up_on_the_rest() {
        let mut asked = 0;
        wait_until("the fifth question", || {
            asked += 1;
            asked == 5
        });
        assert_eq!(asked, 5);
        assert_eq!(wait_for("an answer", || Some(7)), 7);
        let mut asked = 0;
        let never: Option<()> = within(Duration::ZERO, || {
            asked += 1;
            None
        });
        assert!(never.is_none() && asked == 1);
        // What is there at the last question counts, however late it is asked.
        assert_eq!(within(Duration::ZERO, || Some(1)), Some(1));
    }
}
