//! Types shared by all layers: newtypes for identifiers, the error type and its errnos, limits
//! proved against each other, the checksum, counters and latency histograms, and the memory
//! reserve. This crate depends on no other of Shoal and does no I/O.
//!
//! Modules bottom-up; each uses only those above it in this list.

pub mod checksum;
pub mod clock;
pub mod ids;
pub mod invariant;
pub mod planted;
pub mod prefetch;
pub mod sample;
pub mod sync;

pub mod error;
pub mod phase;
pub mod rootset;
pub mod shard;
pub mod share;

pub mod cold;
pub mod fork;
pub mod limits;
pub mod memory;
pub mod timing;

pub mod counters;

pub use checksum::checksum;
pub use error::{Code, Corrupt, DeviceFailure, Error, Result};
pub use ids::{Addr, Epoch, Generation, Ino, Lsn, RootId, SegNo};
pub use rootset::{RootSet, TouchedRoots};
