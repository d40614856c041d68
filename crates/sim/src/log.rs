//! The record of a device operation, and the units of writes.

use std::sync::Arc;

/// Unit that a torn write leaves old or new, in bytes.
pub const SECTOR: u64 = 512;
/// Unit that a torn write may garble, in bytes.
pub const WHOLE_SECTOR: u64 = shoal_base::limits::SECTOR;

/// One recorded operation. Reads are counted, not recorded: they change nothing.
#[derive(Clone, Debug)]
pub enum LogOp {
    /// A write; `ok` false: it was made to fail, and may have changed any of its sectors.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes.
        data: Arc<[u8]>,
        /// Set if it succeeded.
        ok: bool,
    },
    /// A flush.
    Flush {
        /// Set if it succeeded.
        ok: bool,
    },
    /// A discard.
    Discard {
        /// First byte.
        offset: u64,
        /// How much.
        len: u64,
    },
}
