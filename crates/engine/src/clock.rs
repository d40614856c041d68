//! The volume's clock: the kernel's coarse one, a few nanoseconds to read, as exact as the kernel's
//! own file times have long been.

use rustix::time::{ClockId, clock_gettime};
use shoal_format::inode::Stamp;

/// Now.
#[inline]
pub(crate) fn now() -> Stamp {
    let t = clock_gettime(ClockId::RealtimeCoarse);
    Stamp { sec: t.tv_sec, nsec: t.tv_nsec as u32 }
}
