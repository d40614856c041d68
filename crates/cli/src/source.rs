//! Interface between a walk and what it walks through: a volume that is open here, or a mount.

use shoal::raw::{Generation, Ino, Result};

use crate::session::{Cursor, Found, Session};

/// Some entries of a directory, and the place behind them.
pub(crate) struct Batch {
    /// The entries.
    pub entries: Result<Vec<Found>>,
    /// The place behind them; after a failure the end.
    pub next: Cursor,
}

/// A directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DirId {
    /// Its inode.
    pub ino: Ino,
    /// Generation of the inode, if it comes from a mount, where directories may be removed
    /// meanwhile.
    pub generation: Generation,
}

/// Directories that can be listed by several threads.
pub(crate) trait Source: Sync {
    /// Returns how many directories a call should list that nobody waits for.
    fn at_once(&self) -> usize;

    /// Lists some entries of each directory, without `.` and `..`. With `names_only` they have no
    /// attributes.
    fn list_dirs(&self, names_only: bool, dirs: &[(DirId, Cursor)]) -> Vec<Batch>;
}

impl Found {
    /// Returns the directory that it is.
    pub(crate) fn dir(&self) -> DirId {
        DirId { ino: self.ino, generation: self.generation }
    }
}

impl Source for Session {
    fn at_once(&self) -> usize {
        1
    }

    fn list_dirs(&self, names_only: bool, dirs: &[(DirId, Cursor)]) -> Vec<Batch> {
        let one = |(dir, cursor): &(DirId, Cursor)| {
            let mut next = *cursor;
            let entries = match names_only {
                true => self.list_names(dir.ino, &mut next),
                false => Session::list(self, dir.ino, &mut next),
            };
            let next = if entries.is_ok() { next } else { Cursor::End };
            Batch { entries, next }
        };
        dirs.iter().map(one).collect()
    }
}
