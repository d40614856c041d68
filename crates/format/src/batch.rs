//! Journal batches: one write to the journal, with a header and the records of a range of LSNs.
//!
//! ```text
//! batch := header (64 bytes) | records (len bytes) | zero padding to a multiple of 4096
//! ```
//!
//! Batches follow each other in a journal segment. The last one of a segment is a *link*: a header
//! of kind `Link` whose `next` is the address of the following batch, in another segment. A batch
//! is valid if magic, volume id, incarnation, expected `lsn_start` and checksum match. `durable` is
//! the LSN up to which the journal was known to be durable when the batch was written. A broken
//! batch below the `durable` of a later batch is corruption; any other broken batch is a torn tail.

use crate::bytes::{set_at, u32_at, u64_at};
use crate::declare::{layout, numbered};
use shoal_base::{Addr, Lsn, checksum};

/// `SJB2`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SJB2");

numbered! {
    /// The type of a batch.
    pub enum BatchKind: u32 {
        /// Records follow.
        1 Records,
        /// The journal continues at `next`.
        2 Link,
    }
}

layout! {
    /// Header of a batch. In a link, `next` is the address of the next batch. In a batch of records
    /// it is the start of the segment that will follow this one, so that a lost link does not hide
    /// the batches after it; 0 while that is not known.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct BatchHeader: "batch", 64 of varying,
    "Header of a journal batch; records follow, each after its length (4 bytes)." {
        0 magic: u32 = MAGIC, "`SJB2`";
        4 kind: BatchKind, "1 records, 2 link";
        8 volume: u64, "first half of the volume id";
        16 incarnation: u32, "of the mount that wrote it";
        20 len: u32, "bytes of records that follow; of a link 0";
        24 lsn_start: Lsn, "LSN of the first record's first byte";
        32 durable: Lsn, "LSN known durable when this was written";
        40 next: Addr, "address of the segment or batch after this one's segment";
        48 reserved[8], "zero";
        56 checksum[8], "of the bytes before and the records";
    }
}

const AT_CHECKSUM: usize = BatchHeader::TABLE.at("checksum");

impl BatchHeader {
    /// Encodes the header of a batch that holds `records`.
    pub fn encode(&self, records: &[u8]) -> [u8; Self::SIZE] {
        let mut raw = self.store();
        let sum = sum(&raw[..AT_CHECKSUM], records);
        set_at(&mut raw, AT_CHECKSUM, sum);
        raw
    }

    /// Decodes a header without verifying its checksum; `None` if it is not one.
    pub fn decode(raw: &[u8]) -> Option<BatchHeader> {
        BatchHeader::read(raw).ok()
    }

    /// Returns whether the checksum in `raw` (the header's 64 bytes) matches these records.
    pub fn sum_matches(raw: &[u8], records: &[u8]) -> bool {
        raw.len() >= Self::SIZE && u64_at(raw, AT_CHECKSUM) == sum(&raw[..AT_CHECKSUM], records)
    }

    /// Length on disk of a batch with `len` bytes of records.
    pub fn padded(len: usize) -> usize {
        (Self::SIZE + len).next_multiple_of(shoal_base::limits::JOURNAL_ALIGN)
    }
}

fn sum(head: &[u8], records: &[u8]) -> u64 {
    checksum(head) ^ checksum(records).rotate_left(1)
}

/// Bytes before a record in a batch: the length of its payload (u32). Records follow each other.
pub const RECORD_HEADER: usize = 4;

/// Splits the records of a batch. Yields `None` for a record that runs past the end, and ends
/// there.
pub fn records(bytes: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let whole = (rest.len() >= RECORD_HEADER)
            .then(|| u32_at(rest, 0) as usize)
            .and_then(|len| rest[RECORD_HEADER..].split_at_checked(len));
        match whole {
            Some((record, tail)) => {
                rest = tail;
                Some(Some(record))
            }
            None => {
                rest = &[];
                Some(None)
            }
        }
    })
}
