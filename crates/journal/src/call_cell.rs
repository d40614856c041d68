//! Cell for the call of a thread, beside the ring: `calls.rs` gives its words their meaning.

use std::sync::atomic::AtomicU64;

/// Number of cells: threads of a server at a time, and calls left by dead ones.
pub(crate) const CALLS_MAX: usize = 4096;

/// One thread's call. Words of the machine's own byte order.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct CallCell {
    pub(crate) state: AtomicU64,
    /// Number of the request; 0: none.
    pub(crate) unique: AtomicU64,
    /// LSN just after the first record; 0: none.
    pub(crate) end: AtomicU64,
    /// Processes that have died in this call.
    pub(crate) deaths: AtomicU64,
}
