//! Journal batches: one write of the journal, a header and the records of a range of LSNs.
//!
//! ```text
//! batch := header (64 bytes) | records (len bytes) | zero padding to a multiple of 4096
//! ```
//!
//! Batches follow each other in a journal segment. The last one of a segment is a *link*: a header
//! of kind `Link` whose `next` names the address of the following batch, in another segment.
//! A batch is valid when magic, volume id, incarnation, expected `lsn_start` and checksum agree.
//! `durable` is the LSN up to which the journal was known durable when this batch was written: a
//! broken batch below a later batch's `durable` is corruption, any other broken batch is a torn
//! tail.

use crate::bytes::{Put, Reader, u32_at, u64_at};
use shoal_base::{Addr, Lsn, checksum};

/// What a batch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BatchKind {
    /// Records follow.
    Records,
    /// The journal goes on at `next`.
    Link,
}

/// Header of a batch. 64 bytes on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchHeader {
    /// Records or link.
    pub kind: BatchKind,
    /// Low 64 bits of the volume id.
    pub volume: u64,
    /// Incarnation of the mount that wrote it (superblock).
    pub incarnation: u32,
    /// Bytes of records that follow (0 for a link).
    pub len: u32,
    /// LSN of the first byte of its records.
    pub lsn_start: Lsn,
    /// Journal known durable up to here when this was written.
    pub durable: Lsn,
    /// Links: address of the next batch. Records: start of the segment that will follow this one,
    /// so that a lost link does not hide what is behind it; 0 when not yet known.
    pub next: Addr,
}

impl BatchHeader {
    /// Bytes on disk.
    pub const SIZE: usize = 64;
    /// `SJB1`.
    pub const MAGIC: u32 = u32::from_le_bytes(*b"SJB1");

    /// Encodes the header for a batch holding `records`: magic 4, kind 4, volume 8, incarnation 4,
    /// len 4, lsn_start 8, durable 8, next 8, reserved 8, checksum 8 (of the first 56 bytes, then
    /// the records).
    pub fn encode(&self, records: &[u8]) -> [u8; Self::SIZE] {
        let mut out = Vec::with_capacity(Self::SIZE);
        out.put_u32(Self::MAGIC);
        out.put_u32(match self.kind {
            BatchKind::Records => 1,
            BatchKind::Link => 2,
        });
        out.put_u64(self.volume);
        out.put_u32(self.incarnation);
        out.put_u32(self.len);
        out.put_u64(self.lsn_start.0);
        out.put_u64(self.durable.0);
        out.put_u64(self.next.0);
        out.put_u64(0);
        let sum = sum(&out, records);
        out.put_u64(sum);
        let mut raw = [0; Self::SIZE];
        raw.copy_from_slice(&out);
        raw
    }

    /// Reads a header without checking its checksum; `None` when it is not one.
    pub fn decode(raw: &[u8]) -> Option<BatchHeader> {
        let mut r = Reader::new(raw.get(..Self::SIZE)?);
        if r.u32()? != Self::MAGIC {
            return None;
        }
        let kind = match r.u32()? {
            1 => BatchKind::Records,
            2 => BatchKind::Link,
            _ => return None,
        };
        Some(BatchHeader {
            kind,
            volume: r.u64()?,
            incarnation: r.u32()?,
            len: r.u32()?,
            lsn_start: Lsn(r.u64()?),
            durable: Lsn(r.u64()?),
            next: Addr(r.u64()?),
        })
    }

    /// Whether the checksum of `raw` (the header's 64 bytes) matches with these records.
    pub fn sum_matches(raw: &[u8], records: &[u8]) -> bool {
        raw.len() >= Self::SIZE && u64_at(raw, 56) == sum(&raw[..56], records)
    }

    /// Length on disk of a batch with `len` bytes of records.
    pub fn padded(len: usize) -> usize {
        (Self::SIZE + len).next_multiple_of(shoal_base::limits::JOURNAL_ALIGN)
    }
}

fn sum(head: &[u8], records: &[u8]) -> u64 {
    checksum(head) ^ checksum(records).rotate_left(1)
}

/// Frames a record: `len u32` (of the payload), payload. Records in a batch follow each other.
pub const RECORD_HEADER: usize = 4;

/// Splits the records of a batch; `None` in place of a record that runs past the end.
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
