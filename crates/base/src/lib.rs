//! What every layer shares: newtypes for identifiers, the error type and its errnos, limits proved
//! against each other, the checksum, counters, and the reserve of memory. This crate knows no other
//! and does no I/O.

pub mod checksum;
pub mod clock;
pub mod cold;
pub mod counters;
pub mod error;
pub mod ids;
pub mod invariant;
pub mod limits;
pub mod memory;
pub mod planted;
pub mod rootset;
pub mod shard;
pub mod share;
pub mod sync;

pub use checksum::checksum;
pub use error::{Code, Error, Result};
pub use ids::{Addr, Epoch, Generation, Ino, Lsn, RootId, SegNo};
pub use rootset::{RootSet, TouchedRoots};
