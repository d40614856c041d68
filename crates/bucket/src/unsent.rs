//! The next log object, before the store has it.

use crate::map::{Map, Part};
use crate::upload::{Upload, Uploaded};
use bytes::Bytes;
use shoal_base::Addr;
use shoal_format::bucket::object::Piece;
use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// Longest discarded range of one piece.
const DISCARD_MAX: u64 = 1 << 30;

/// Work for the next log object, in the order in which it was asked for.
pub(crate) enum Pending {
    /// A data object.
    Data(Upload),
    /// Runs of one that the store had no room for, and the number of their batch.
    Refused(u64, Vec<(u64, Bytes)>),
    /// A discarded range.
    Discard(Range<u64>),
    /// Copies.
    Moved(Moved),
}

/// A data object that the store has, with copies of these parts, one piece each, to be used where
/// they are still in the map.
pub(crate) struct Moved {
    pub upload: Uploaded,
    pub parts: Vec<Part>,
    /// No further parts are chosen before these are in the map.
    pub turn: OwnedSemaphorePermit,
}

/// The reason for a flush.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Completed writes. Discarded ranges go with them, and alone they wait.
    Writes,
    /// The same, and discarded ranges even if there is nothing else.
    Discards,
    /// The owner closes the volume. Whoever follows the log knows so before there is a manifest
    /// that says it.
    Closing,
}

/// Pieces of a log object, in order, with what happens when it is durable.
#[derive(Default)]
pub(crate) struct Draft {
    pub pieces: Vec<Piece>,
    pub uploads: Vec<Uploaded>,
    /// Held until the copies are in the map.
    pub turns: Vec<OwnedSemaphorePermit>,
}

/// A log object that is not in the store yet, and what it is made of.
pub(crate) struct Unsent {
    pub flush: Flush,
    pub batch: u64,
    /// Work that is not in the draft yet.
    pub pending: VecDeque<Pending>,
    pub runs: Vec<(u64, Bytes)>,
    pub draft: Draft,
    /// Its bytes, the lease in them, and its pieces.
    pub raw: Option<(Bytes, Duration, Vec<Piece>)>,
}

impl Draft {
    /// Adds a data object.
    pub(crate) fn add(&mut self, upload: Uploaded) {
        self.pieces.extend(&upload.pieces);
        self.uploads.push(upload);
    }

    /// Adds pieces for the parts of a range that hold something.
    pub(crate) fn discard(&mut self, range: Range<u64>, map: &Map) {
        let mut at = range.start;
        while at < range.end {
            let end = (at + DISCARD_MAX).min(range.end);
            let overlaps =
                |piece: &Piece| piece.addr.0 < end && at < piece.addr.0 + u64::from(piece.len);
            if map.bounds(&(at..end)).is_some() || self.pieces.iter().any(overlaps) {
                self.pieces.push(Piece::discarded(Addr(at), (end - at) as u32));
            }
            at = end;
        }
    }
}
