//! Locks, atomics, threads and time, in one place, so that everything between the device and the
//! calls can run under a scheduler.
//!
//! By default these are re-exports from `parking_lot` and the standard library. With the feature
//! `scheduled` they are `checked`: at every use the scheduler of `shuttle` may switch threads, and
//! nothing waits, sleeps or reads a clock unknown to the scheduler. A whole volume with its threads
//! then runs on one system thread, in an order determined by a seed (`cargo xtask sim
//! --scheduled`). Features are unified, so whoever enables it does so for all: only the feature of
//! the same name of the simulator does, and a test asserts that the command is built without.
//!
//! Unit tests that model single structures use `checked` through the feature `models` of this
//! crate, which only adds the module.
//!
//! `crew` spreads work over threads with either. `idle` has the locks on which background threads
//! wait for work ([`IdleMutex`], [`IdleCondvar`]), which a child of `fork` survives.
//!
//! Rules for code that uses this module:
//!
//! 1. A loop that waits must call [`hint::spin_loop`], [`thread::yield_now`] or [`thread::sleep`]:
//!    no other thread runs until then.
//! 2. A structure with its own locks, unknown to the scheduler (an XArray, the device), must never
//!    hold one while it calls back into something that uses this module. Wrap it in a [`Step`], or
//!    use it inside [`atomically`].

#[cfg(any(feature = "scheduled", feature = "models"))]
pub mod checked;
pub mod idle;
#[cfg(not(feature = "scheduled"))]
mod plain;

#[cfg(feature = "scheduled")]
pub use checked::*;
#[cfg(not(feature = "scheduled"))]
pub use plain::*;
