//! Verifying, in a recovery, that the data of the journal's last records arrived on the device.
//!
//! One flush covers records and the data that they point to (`shoal_journal`'s `commit.rs`). A
//! crash before its end may leave a record without its data, or with half of it. The rule of
//! recovery:
//!
//! | record | data | |
//! | --- | --- | --- |
//! | below [`ScanEnd::durable`](shoal_journal::ScanEnd) | not looked at: a flush has covered it; damage is reported when it is read | taken |
//! | behind it | none, or all there | taken |
//! | behind it | something is missing | the journal ends before this record |
//!
//! Proof that nothing acknowledged is dropped: a flush was acknowledged when it had ended. It
//! covers the data of all records that it covers, because data is written before its record is
//! staged. So the data of an acknowledged record is there, and nothing has been written over it:
//! objects grow behind their end only, and freed space is used again after a checkpoint, behind
//! which recovery begins to read.
//!
//! Data that is older than the checkpoint is not looked at, because the flush of a checkpoint
//! covers all that was written before: but not if a recovery wrote the checkpoint, behind a crash
//! that may have lost it (`replaying`, a feature in the superblock).
//!
//! Proof that nothing is taken whose data is not there: the sums of data are in the record, which
//! the sum of its batch covers. What the sums do not cover is the header of the object, which names
//! its owner to the cleaner: it is compared with the record.
//!
//! Data that the device cannot read is taken as there: a lost write is not an error of reading, and
//! to end the journal for it could lose what was acknowledged. The file reports it.
//!
//! No record is doubted after the crash of a process alone. Its writes are in the kernel, and a
//! record is behind them: the ring that outlived it ([`RingMemory`](shoal_journal::RingMemory))
//! proves that the machine has not stopped.

use crate::record::framed;
use crate::replay::for_each_extent;
use crate::store::Store;
use shoal_base::planted::{self, Defect};
use shoal_base::{Addr, Epoch, Ino, Lsn, Result};
use shoal_format::extent::{DataHeader, Extent, HEADER};
use shoal_format::features::{COMPAT_REPLAYING, INCOMPAT_VERIFIED_TAIL};
use shoal_format::sums::{PIECE, Sums};
use shoal_format::superblock::Superblock;
use shoal_journal::{JournalPos, Scanner};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// The records of a journal, as long as their data is there.
pub(crate) struct Arrived<'s> {
    store: &'s Store,
    incarnation: u32,
    start: JournalPos,
    /// The records below it have their data. Known as soon as a record asks for it: a journal of
    /// names alone is read once.
    durable: Option<Lsn>,
    /// Data of this epoch, and of those before, was durable with the checkpoint. 0 for a checkpoint
    /// of a recovery: its session wrote the data behind it before the crash.
    epoch: Epoch,
    /// The sums that the pieces at these addresses were found to have, and at those of headers the
    /// index of the owner: of objects of several pieces, which many records may point to.
    seen: HashMap<u64, u64>,
    near: Near<'s>,
    missing: Option<Missing>,
}

/// The first record whose data did not arrive.
pub(crate) struct Missing {
    /// LSN of its first byte.
    pub lsn: Lsn,
    /// Description, for people.
    pub text: String,
}

impl<'s> Arrived<'s> {
    /// The journal of this superblock, from `start` on. Reads nothing.
    pub(crate) fn new(store: &'s Store, sb: &Superblock, start: JournalPos) -> Arrived<'s> {
        let verified = sb.incompat & INCOMPAT_VERIFIED_TAIL != 0;
        let killed = store.ring.get().is_some_and(|ring| ring.is_of(store.volume));
        Arrived {
            store,
            incarnation: sb.incarnation,
            start,
            durable: (killed || !verified).then_some(Lsn(u64::MAX)),
            epoch: match sb.compat & COMPAT_REPLAYING {
                0 => store.newest_checkpoint().checkpoint.epoch,
                _ => 0,
            },
            seen: HashMap::new(),
            near: Near { store, chunks: VecDeque::new(), raw: Vec::new() },
            missing: None,
        }
    }

    /// Reads the journal for what it says to be durable. Damage is not reported here: it ends this
    /// reading as it ends that of the records.
    fn durable(&mut self) -> Lsn {
        let Arrived { store, incarnation, start, .. } = *self;
        *self.durable.get_or_insert_with(|| {
            let scan =
                Scanner::new(&*store.device, &store.geometry, store.volume, incarnation, start);
            scan.map_or(start.lsn, |mut scan| {
                while let Ok(true) = scan.step(&mut |_, _| Ok(())) {}
                scan.durable()
            })
        })
    }

    /// Returns whether this record, which ends at `end`, and all before it have their data.
    pub(crate) fn has(&mut self, end: Lsn, record: &[u8]) -> Result<bool> {
        if self.missing.is_some() || self.durable.is_some_and(|durable| end <= durable) {
            return Ok(self.missing.is_none());
        }
        let (mut failed, mut lost) = (None, None);
        for_each_extent(record, &mut |ino, extent| {
            if failed.is_some() || lost.is_some() {
                return;
            }
            match self.is_there(end, ino, &extent) {
                Ok(true) => {}
                Ok(false) => lost = Some((ino, extent.ptr.addr)),
                Err(e) => failed = Some(e),
            }
        });
        if let Some(error) = failed {
            return Err(error);
        }
        if let Some((ino, addr)) = lost {
            let lsn = Lsn(end.0.saturating_sub(framed(record.len())));
            let text = format!(
                "torn record at LSN {}: data of inode {ino} at byte {} did not arrive",
                lsn.0, addr.0
            );
            self.missing = Some(Missing { lsn, text });
        }
        Ok(self.missing.is_none())
    }

    /// The first record whose data did not arrive, if one of those asked for is such a record.
    pub(crate) fn missing(&self) -> Option<&Missing> {
        self.missing.as_ref()
    }

    /// Returns whether the data of this extent, of a record that ends at `end`, is there.
    fn is_there(&mut self, end: Lsn, ino: Ino, extent: &Extent) -> Result<bool> {
        let (ptr, at) = (&extent.ptr, extent.ptr.addr.0);
        let header = at.saturating_sub(HEADER as u64);
        let whole = header..at.saturating_add(u64::from(ptr.len));
        let inside = self.store.geometry.contains(Addr(header), whole.end - header);
        // A target outside the volume is reported when the record is replayed.
        let is_new = !extent.is_prealloc() && ptr.birth > self.epoch && inside;
        if !is_new || end <= self.durable() {
            return Ok(true);
        }
        if planted::is(Defect::DataUnverified) || planted::is(Defect::DataDoubted) {
            return Ok(planted::is(Defect::DataUnverified));
        }
        let volume = self.store.volume;
        let is_its = |raw: &[u8]| {
            let header = DataHeader::decode(raw, volume);
            header.is_some_and(|h| h.index.get() == ino.index() && h.may_be_of(ptr))
        };
        // The values of attributes have no sums of pieces.
        if extent.pieces().is_empty() || extent.sums == Sums::NONE {
            return self.near.read(whole, &mut |raw| {
                is_its(raw) && ptr.verify_payload(&raw[HEADER..], "data").is_ok()
            });
        }
        if self.seen.get(&header) != Some(&ino.index()) {
            if !self.near.read(header..at, &mut |raw| is_its(raw))? {
                return Ok(false);
            }
            self.seen.insert(header, ino.index());
        }
        let place = |piece: usize| at + (piece * PIECE) as u64;
        let sum = |piece: usize| u64::from(extent.sums.of(piece));
        let new: Vec<usize> =
            extent.pieces().filter(|i| self.seen.get(&place(*i)) != Some(&sum(*i))).collect();
        let (Some(&first), Some(&last)) = (new.first(), new.last()) else { return Ok(true) };
        let range = place(first)..place(last + 1).min(whole.end);
        let there =
            self.near.read(range, &mut |raw| extent.sums.verify(first, raw, at, "data").is_ok())?;
        if there {
            self.seen.extend((first..=last).map(|i| (place(i), sum(i))));
        }
        Ok(there)
    }
}

/// Bytes read at once. What was written together lies together.
const CHUNK: u64 = 256 << 10;
/// Chunks kept: threads write to places of their own.
const CHUNKS: usize = 16;

/// A reader of many small pieces that lie near each other.
struct Near<'s> {
    store: &'s Store,
    /// Address and bytes, the one read last at the end.
    chunks: VecDeque<(u64, Vec<u8>)>,
    raw: Vec<u8>,
}

impl Near<'_> {
    /// Returns what `verify` says of the bytes; `true` if the device cannot read them.
    fn read(&mut self, range: Range<u64>, verify: &mut dyn FnMut(&[u8]) -> bool) -> Result<bool> {
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        let mut at = range.start;
        while at < range.end {
            let start = at - at % CHUNK;
            let end = range.end.min(start + CHUNK);
            let read = match self.chunk(start) {
                Ok(chunk) => chunk.get((at - start) as usize..(end - start) as usize),
                Err(e) if e.is_damage() => None,
                Err(e) => return Err(e),
            };
            match read {
                Some(part) => raw.extend_from_slice(part),
                // Bytes beside these may be damaged, and not needed.
                None => {
                    let before = raw.len();
                    raw.resize(before + (end - at) as usize, 0);
                    match self.store.device.read_at(&mut raw[before..], at) {
                        Err(e) if e.is_damage() => return Ok(true),
                        read => read?,
                    }
                }
            }
            at = end;
        }
        let there = verify(&raw);
        self.raw = raw;
        Ok(there)
    }

    fn chunk(&mut self, start: u64) -> Result<&[u8]> {
        if let Some(i) = self.chunks.iter().position(|(at, _)| *at == start) {
            return Ok(&self.chunks[i].1);
        }
        let mut bytes = match self.chunks.len() < CHUNKS {
            true => Vec::new(),
            false => self.chunks.pop_front().map(|(_, bytes)| bytes).unwrap_or_default(),
        };
        let len = CHUNK.min(self.store.geometry.bytes().saturating_sub(start));
        bytes.resize(len as usize, 0);
        self.store.device.read_at(&mut bytes, start)?;
        self.chunks.push_back((start, bytes));
        Ok(self.chunks.back().map_or(&[], |(_, bytes)| bytes))
    }
}
