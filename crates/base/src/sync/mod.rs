//! Locks, atomics, threads and time, in one place, so that everything between the device and the
//! calls can run under a scheduler.
//!
//! By default these are re-exports of `parking_lot`'s and the standard library's, nothing more.
//! Built with `--cfg shoal_shuttle` they are `checked`: every use of one is a point at which the
//! scheduler of `shuttle` may go on with another thread, and nothing waits, sleeps or looks at a
//! clock that the scheduler does not know. So a whole volume with its threads runs on one thread of
//! the system, in an order that a seed decides (`cargo xtask sim --scheduled`). It is a cfg and not
//! a feature because features are unified: no dependency can switch it on for a release.
//!
//! Unit tests that model single structures choose `checked` by the feature `models` of this
//! crate, which only adds the module.
//!
//! `crew` spreads work over threads with either.
//!
//! What holds for code that uses this:
//!
//! 1. Who waits in a loop says so in it, by [`hint::spin_loop`], [`thread::yield_now`] or
//!    [`thread::sleep`]: nobody else runs until then.
//! 2. What has locks of its own, which the scheduler does not know (an XArray, the device), never
//!    holds one while it calls back into something that uses this. It is wrapped in a [`Step`], or
//!    used inside [`atomically`].

#[cfg(any(shoal_shuttle, feature = "models"))]
pub mod checked;
#[cfg(not(shoal_shuttle))]
mod plain;

#[cfg(shoal_shuttle)]
pub use checked::*;
#[cfg(not(shoal_shuttle))]
pub use plain::*;
