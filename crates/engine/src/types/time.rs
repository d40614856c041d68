//! Time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Time {
    /// Seconds, may be negative.
    pub sec: i64,
    /// Nanoseconds, 0 to 999,999,999.
    pub nsec: u32,
}

impl From<Time> for SystemTime {
    fn from(time: Time) -> SystemTime {
        let nanos = Duration::from_nanos(u64::from(time.nsec));
        let seconds = Duration::from_secs(time.sec.unsigned_abs());
        match time.sec {
            0.. => UNIX_EPOCH + seconds + nanos,
            _ => UNIX_EPOCH - seconds + nanos,
        }
    }
}

impl From<SystemTime> for Time {
    fn from(time: SystemTime) -> Time {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Time { sec: after.as_secs() as i64, nsec: after.subsec_nanos() },
            Err(before) => {
                let before = before.duration();
                let (sec, nsec) = (before.as_secs() as i64, before.subsec_nanos());
                match nsec {
                    0 => Time { sec: -sec, nsec: 0 },
                    _ => Time { sec: -sec - 1, nsec: 1_000_000_000 - nsec },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_there_and_back() {
        for (sec, nsec) in [(0, 0), (1, 5), (-1, 0), (-1, 999_999_999), (-7, 1), (1 << 40, 3)] {
            let time = Time { sec, nsec };
            assert_eq!(Time::from(SystemTime::from(time)), time, "{sec} s {nsec} ns");
        }
    }
}
