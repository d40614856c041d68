//! The volume's clock: the kernel's coarse clock, which takes a few nanoseconds to read and has the
//! resolution of traditional kernel file times. Under a scheduler, the clock of the run; in a test
//! that sets a clock, that one.

use shoal_format::inode::Stamp;

/// Returns the current time.
#[cfg(not(feature = "scheduled"))]
#[inline]
pub(crate) fn now() -> Stamp {
    use rustix::time::{ClockId, clock_gettime};
    if let Some((sec, nsec)) = shoal_base::clock::fixed() {
        return Stamp { sec, nsec };
    }
    let t = clock_gettime(ClockId::RealtimeCoarse);
    Stamp { sec: t.tv_sec, nsec: t.tv_nsec as u32 }
}

/// Returns the current time.
#[cfg(feature = "scheduled")]
pub(crate) fn now() -> Stamp {
    let t = shoal_base::sync::Instant::now().since_start();
    Stamp { sec: 1_000_000_000 + t.as_secs() as i64, nsec: t.subsec_nanos() }
}
