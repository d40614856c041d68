//! Answers about the changes below a directory: a reader of the volume's feed, and the place in
//! the changes that it has returned last.

use crate::protocol::question::{ChangeFacts, PATH_PART, Piece, Progress, Record};
use shoal::raw::{Change, ChangeReader, ChangedName, Result, Volume};
use std::collections::VecDeque;

/// Changes that are read at a time: bounds what waits for a slow reader.
const BATCH: usize = 256;

/// An answer that is being given.
pub(crate) struct Feed {
    reader: ChangeReader,
    batch: VecDeque<Change>,
    at: Place,
}

/// Place in the first change of the batch.
#[derive(Default)]
struct Place {
    /// Its facts are told.
    begun: bool,
    /// Paths that are told.
    paths: usize,
    /// Bytes of the next path that are told.
    bytes: usize,
}

impl Feed {
    /// Begins an answer.
    pub(crate) fn new(reader: ChangeReader) -> Feed {
        Feed { reader, batch: VecDeque::new(), at: Place::default() }
    }

    /// Adds changes to a piece until it is full, or `stop` returns true between two steps. Returns
    /// whether that is all, with the mark. What can be found again is freed before the next piece.
    pub(crate) fn fill(
        &mut self,
        volume: &Volume,
        piece: &mut Piece<'_>,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let is_last = self.fill_some(volume, piece, stop);
        self.reader.forget_paths();
        is_last
    }

    fn fill_some(
        &mut self,
        volume: &Volume,
        piece: &mut Piece<'_>,
        stop: &dyn Fn() -> bool,
    ) -> Result<bool> {
        loop {
            while let Some(change) = self.batch.front() {
                if !self.at.push(change, piece) {
                    return Ok(false);
                }
                self.batch.pop_front();
                self.at = Place::default();
            }
            if self.reader.is_done() {
                let (text, all_removed) =
                    (self.reader.mark().to_string(), self.reader.has_all_removed());
                return Ok(piece.push(&Record::Mark { text: text.as_bytes(), all_removed }));
            }
            if stop() {
                // A piece without a record would look like one of an answer that never ends. If it
                // does not fit, there are others.
                piece.push(&Record::Progress(Progress::default()));
                return Ok(false);
            }
            self.batch = volume.changes().next_of_step(&mut self.reader, BATCH)?.into();
        }
    }
}

impl Place {
    /// Adds the rest of a change. Returns whether it fits.
    fn push(&mut self, change: &Change, piece: &mut Piece<'_>) -> bool {
        let Change { kind, ino, generation, file, more, .. } = *change;
        if !self.begun {
            let facts = ChangeFacts { kind, ino, generation, file, more };
            self.begun = piece.push(&Record::Change(facts));
            if !self.begun {
                return false;
            }
        }
        let from = change.from.iter().map(|name| (true, name));
        let names = change.names.iter().map(|name| (false, name));
        for (is_from, name) in from.chain(names).skip(self.paths) {
            if !self.push_path(is_from, name, piece) {
                return false;
            }
            (self.paths, self.bytes) = (self.paths + 1, 0);
        }
        true
    }

    fn push_path(&mut self, is_from: bool, name: &ChangedName, piece: &mut Piece<'_>) -> bool {
        let path = name.path();
        while let Some(rest) = path.get(self.bytes..).filter(|rest| !rest.is_empty()) {
            let text = &rest[..rest.len().min(PATH_PART)];
            let goes_on = text.len() < rest.len();
            if !piece.push(&Record::Path { is_from, goes_on, text }) {
                return false;
            }
            self.bytes += text.len();
        }
        true
    }
}
