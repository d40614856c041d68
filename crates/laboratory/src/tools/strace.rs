//! The table that `strace -c -U calls,total-time,name` prints.

use crate::error::{LabError, Result};

/// Parts of the names of calls that ask about, or change, one file at a time.
const SINGLE: [&str; 4] = ["stat", "xattr", "chown", "chmod"];
/// Beginnings of such names.
const SINGLE_BEGINNINGS: [&str; 2] = ["open", "utime"];
/// Calls that wait for another process or thread: with `-w` their time is that of waiting.
const WAITS: [&str; 12] = [
    "select",
    "pselect6",
    "poll",
    "ppoll",
    "epoll_wait",
    "epoll_pwait",
    "futex",
    "wait4",
    "waitid",
    "nanosleep",
    "clock_nanosleep",
    "restart_syscall",
];

/// Sums of the table.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub(crate) struct Sums {
    pub calls: u64,
    pub seconds: f64,
    /// Calls that ask about, or change, one file at a time.
    pub single_calls: u64,
    pub single_seconds: f64,
    /// Time of calls that wait for another process or thread.
    pub wait_seconds: f64,
}

impl Sums {
    /// Reads the table.
    ///
    /// # Errors
    /// It has no line of a call.
    pub(super) fn parse(table: &str) -> Result<Sums> {
        let mut sums = Sums::default();
        for (calls, seconds, name) in table.lines().filter_map(row) {
            let is_single = SINGLE.iter().any(|part| name.contains(part))
                || SINGLE_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
            sums.calls = sums.calls.saturating_add(calls);
            sums.seconds += seconds;
            if is_single {
                sums.single_calls = sums.single_calls.saturating_add(calls);
                sums.single_seconds += seconds;
            }
            if WAITS.contains(&name) {
                sums.wait_seconds += seconds;
            }
        }
        match sums.calls {
            0 => Err(LabError::failed("reading the table of", "strace", "it has no calls")),
            _ => Ok(sums),
        }
    }

    /// Returns the part of the time that calls about one file took, in percent.
    pub(super) fn single_percent(&self) -> f64 {
        percent(self.single_seconds, self.seconds)
    }

    /// The same of the time without that of waiting.
    pub(super) fn single_percent_unwaited(&self) -> f64 {
        percent(self.single_seconds, self.seconds - self.wait_seconds)
    }
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}

/// Returns calls, seconds and name of a line; `None` for lines of the frame and of the total.
fn row(line: &str) -> Option<(u64, f64, &str)> {
    let mut words = line.split_whitespace();
    let (calls, seconds, name) = (words.next()?, words.next()?, words.next()?);
    let seconds: f64 = seconds.parse().ok()?;
    let is_call = name != "total" && seconds.is_finite() && words.next().is_none();
    is_call.then_some((calls.parse().ok()?, seconds, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
    calls     seconds syscall
--------- ----------- ----------------
       34    0.000500 openat
       22    0.000300 newfstatat
        1    0.000200 execve
        4    0.000100 llistxattr
        7    0.001000 futex
        2    0.000100 utimensat
        1    0.000100 reopen
--------- ----------- ----------------
       71    0.002300 total
";

    #[test]
    fn calls_about_one_file_are_told_from_others() {
        let sums = Sums::parse(TABLE).expect("a table");
        assert_eq!((sums.calls, sums.single_calls), (71, 62));
        assert!((sums.single_percent() - 100.0 / 2.3).abs() < 1e-9, "{sums:?}");
        assert!((sums.single_percent_unwaited() - 100.0 / 1.3).abs() < 1e-9, "{sums:?}");
    }

    #[test]
    fn garbage_is_refused() {
        let garbage = [
            "",
            "strace: no such program",
            "1 2",
            "x 0.1 open",
            "1 nan open",
            "1 inf a",
            "0 0 open",
            "1 0.5 open more",
        ];
        for table in garbage {
            assert!(Sums::parse(table).is_err(), "{table}");
        }
        let huge = format!("{} 1 open\n{} 1 openat\n", u64::MAX, u64::MAX);
        assert_eq!(Sums::parse(&huge).expect("a table").calls, u64::MAX);
    }
}
