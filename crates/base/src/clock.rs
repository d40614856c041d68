//! A clock that a test can set, for volumes that must come out the same bytes every time. It exists
//! only with the feature `fixed-clock`. Releases never have it and use the system clock.

#[cfg(feature = "fixed-clock")]
mod switch {
    use std::cell::Cell;

    /// Nanoseconds between two readings. Odd, so that readings differ in their low digits.
    const STEP_NS: u64 = 1_000_003;

    thread_local! {
        static NEXT_NS: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Sets the clock of the calling thread to `seconds` since 1970. Every reading advances it.
    /// `None` returns to the system clock.
    pub fn fix(seconds: Option<u32>) {
        NEXT_NS.set(seconds.map(|s| u64::from(s) * 1_000_000_000));
    }

    /// Returns the time (seconds, nanoseconds) of the calling thread's clock; `None` if it is not
    /// set.
    pub fn fixed() -> Option<(i64, u32)> {
        let now = NEXT_NS.get()?;
        NEXT_NS.set(Some(now + STEP_NS));
        Some(((now / 1_000_000_000) as i64, (now % 1_000_000_000) as u32))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn every_reading_moves_the_clock_on() {
            assert_eq!(fixed(), None);
            fix(Some(7));
            assert_eq!([fixed(), fixed()], [Some((7, 0)), Some((7, STEP_NS as u32))]);
            assert_eq!(std::thread::spawn(fixed).join().ok(), Some(None), "of one thread alone");
            fix(None);
            assert_eq!(fixed(), None);
        }
    }
}

#[cfg(feature = "fixed-clock")]
pub use switch::{fix, fixed};

/// Returns `None`: this build has no clock that a test can set.
#[cfg(not(feature = "fixed-clock"))]
#[inline(always)]
pub const fn fixed() -> Option<(i64, u32)> {
    None
}
