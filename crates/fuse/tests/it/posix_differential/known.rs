//! Differences on purpose, or because of the kernel's FUSE.

use super::Outcome;

/// A difference between Shoal and the reference that is intended, or cannot be avoided.
pub(super) struct Difference {
    /// The words of `docs/posix.md`.
    pub reason: &'static str,
    /// Only where Shoal checks permissions (`no_default_permissions`).
    shoal_checks: bool,
    /// Returns whether it explains a case: the call, the reference's outcome and Shoal's.
    applies: fn(&str, &Outcome, &Outcome) -> bool,
}

pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        reason: "`chown` with neither owner nor group succeeds for everybody",
        shoal_checks: false,
        applies: |call, reference, shoal| {
            let unnoticed = shoal.effect.is_empty() && reference.moves_ctime_only();
            call.contains(" -1 -1 ") && !shoal.is_error() && (unnoticed || reference.fails("EPERM"))
        },
    },
    Difference {
        reason: "`FS_IOC_GETFLAGS`",
        shoal_checks: false,
        applies: |call, _, shoal| call.contains("FS_IOC_GETFLAGS") && shoal.fails("ENOTTY"),
    },
    Difference {
        reason: "`FALLOC_FL_ZERO_RANGE` is there",
        shoal_checks: false,
        applies: |call, reference, _| {
            call.contains("fallocate ZERO") && reference.fails("EOPNOTSUPP")
        },
    },
    Difference {
        reason: "`SEEK_END`, `SEEK_DATA` and `SEEK_HOLE` in a directory",
        shoal_checks: false,
        applies: |call, reference, _| call.contains("lseek") && reference.fails("EINVAL"),
    },
    Difference {
        reason: "Writing to a FIFO does not move its times",
        shoal_checks: false,
        applies: |call, reference, shoal| {
            call.contains("fifo") && reference.answer == shoal.answer && shoal.effect.is_empty()
        },
    },
    Difference {
        reason: "A write that fails moves no time",
        shoal_checks: false,
        applies: |call, _, shoal| {
            call.contains("from a bad address")
                && shoal.fails("EFAULT")
                && shoal.effect.iter().all(|name| !name.contains("alice:"))
        },
    },
    Difference {
        reason: "`fs.protected_hardlinks` does not count",
        shoal_checks: true,
        applies: |call, reference, _| call.starts_with("link") && reference.fails("EPERM"),
    },
    Difference {
        reason: "Of two errors that both apply, the other one",
        shoal_checks: true,
        applies: |_, reference, shoal| reference.is_error() && shoal.is_error(),
    },
];

impl Outcome {
    fn is_error(&self) -> bool {
        self.answer.starts_with('E')
    }

    fn fails(&self, errno: &str) -> bool {
        self.answer == errno
    }

    fn moves_ctime_only(&self) -> bool {
        self.effect.iter().all(|change| change.ends_with(": same, ctime"))
    }
}

/// Returns the reason why a case may differ, if there is one.
pub(super) fn excuse(
    shoal_checks: bool,
    call: &str,
    reference: &Outcome,
    shoal: &Outcome,
) -> Option<&'static str> {
    let known = DIFFERENCES.iter().filter(|known| shoal_checks || !known.shoal_checks);
    let mut known = known.filter(|known| (known.applies)(call, reference, shoal));
    known.next().map(|known| known.reason)
}
