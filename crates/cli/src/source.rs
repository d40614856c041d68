//! Interface between a walk and what it walks through.

use std::sync::Arc;

use shoal::raw::{Ino, Result};

use crate::session::{Cursor, Found};

/// Some entries of a directory, and the place behind them.
pub(crate) struct Batch {
    /// The entries.
    pub entries: Result<Vec<Found>>,
    /// The place behind them; after a failure the end.
    pub next: Cursor,
}

/// A directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DirId {
    /// Its inode when it was found.
    pub ino: Ino,
    /// Its path in the walk.
    pub path: Arc<[u8]>,
}

/// Directories that can be listed by several threads.
pub(crate) trait Source: Sync {
    /// Lists some entries of a directory, without `.` and `..`. With `names_only` they have no
    /// attributes. If another directory has its place by now, that is an error.
    fn list_dir(&self, names_only: bool, dir: &DirId, cursor: Cursor) -> Batch;
}
