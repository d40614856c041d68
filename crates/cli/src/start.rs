//! A place in a volume at which a command begins, and the files below it.

use std::sync::Arc;

use shoal::raw::{Attr, Ino, Result};

use crate::location::join;
use crate::session::{Cursor, Session};
use crate::source::{Batch, DirId, Source};

/// A place from which a command goes on below.
#[derive(Clone)]
pub(crate) struct Start {
    /// The volume.
    pub session: Arc<Session>,
    /// Path of the place as it was typed, with which the paths of a walk begin.
    typed: Vec<u8>,
    /// Its path from the top of the volume, without symlinks and dots.
    real: Vec<u8>,
}

impl Start {
    /// Begins at a place.
    pub(crate) fn new(session: Arc<Session>, typed: Vec<u8>, real: Vec<u8>) -> Start {
        Start { session, typed, real }
    }

    /// Returns the path from the top of the volume for one of a walk.
    pub(crate) fn real(&self, path: &[u8]) -> Vec<u8> {
        let below = below(&self.typed, path);
        if below.is_empty() { self.real.clone() } else { join(&self.real, below) }
    }

    /// Returns the attributes, as they are now, of a file of a walk.
    pub(crate) fn look(&self, path: &[u8]) -> Result<Attr> {
        self.session.look(&self.real(path))
    }

    /// Returns the inodes of the place, if it is a directory, and of the directories above it,
    /// upwards.
    pub(crate) fn above(&self, is_dir: bool) -> Result<Vec<Ino>> {
        let end = self.real.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.session.above(if is_dir { &self.real } else { &self.real[..end] })
    }
}

impl Source for Start {
    fn list_dir(&self, names_only: bool, dir: &DirId, cursor: Cursor) -> Batch {
        let (real, mut next) = (self.real(&dir.path), cursor);
        let entries = match names_only {
            true => self.session.list_names((&real, dir.ino), &mut next),
            false => self.session.list((&real, dir.ino), &mut next),
        };
        let next = if entries.is_ok() { next } else { Cursor::End };
        Batch { entries, next }
    }
}

/// Returns the part of a walk's path behind that of the place where it began.
pub(crate) fn below<'p>(start: &[u8], path: &'p [u8]) -> &'p [u8] {
    let below = path.get(start.len()..).unwrap_or_default();
    &below[below.iter().position(|byte| *byte != b'/').unwrap_or(below.len())..]
}
