//! Limits of memory.

/// Bytes of the extended records, the long name or the sparse map of a member, at most.
pub const EXTENSION_MAX: usize = 4 << 20;
