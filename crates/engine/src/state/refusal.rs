//! The last call for which no space could be freed.

/// Result of a call that found no space, for later calls: they fail too as long as nothing has been
/// freed.
#[derive(Clone, Copy)]
pub(crate) struct Refusal {
    /// Bytes requested.
    pub bytes: u64,
    /// Bytes in use.
    pub used: u64,
    pub lsn: u64,
    /// Free bytes on the host at that time, if known.
    pub host: Option<u64>,
}
