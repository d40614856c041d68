//! Data objects and extents: where the bytes of a file are, and how they are stored.
//!
//! A regular file's data fork has one of four forms, from small to large: empty, the bytes
//! themselves, extent records, or records in the `extents` tree. Bytes without a record are a hole.
//! Data is written out of place: new bytes go to a new object on the device, then one transaction
//! makes the file point to it (`files/`).

mod coded;
mod map;
mod object;

pub(crate) use map::{END, inline_extents, records_end_at};

use crate::state::room;

room! {
    /// Extents, and the objects that they point to.
    pub(crate) struct Objects {}
}
