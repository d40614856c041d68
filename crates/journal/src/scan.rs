//! Reading the journal after a crash, and telling its torn tail from corruption.
//!
//! Batches are read in order from the checkpoint's position. At each place one number (LSN) is
//! expected. A batch is *ours* if magic, volume, incarnation and checksum match. The outcome
//! depends on what is found:
//!
//! | case | found at the expected place | meaning |
//! | --- | --- | --- |
//! | A | our records, expected number | deliver them; continue after them |
//! | B | our link, expected number, to the start of a segment not yet visited | continue there |
//! | C | our link, expected number, to anywhere else | corruption: no writer makes it |
//! | D | our records, expected number, but empty, truncated, or leaving no room for a link | corruption |
//! | E | a place where no batch can be | corruption (of the checkpoint that named it) |
//! | F | anything else, and later a batch of ours which says that the expected number was durable | corruption: acknowledged records are lost |
//! | G | a header with the expected number but a wrong checksum, and not F | torn tail: it was being written |
//! | H | anything else, and later batches of ours, and not F | torn tail: written but not flushed, so in any order |
//! | I | anything else | the end; everything written was read |
//! | J | the device fails | its error; nothing is known |
//!
//! *Later* means: at the next multiples of 4096 in this segment, then in the segments named as next
//! by links found there, or by the batches read before. Numbers below the expected one are old and
//! prove nothing. A batch records the number up to which the journal was durable when it was
//! written (`durable`). If that is above the expected number, a flush had returned after the
//! expected batch was written, so a crash cannot have caused its loss.
//!
//! One case cannot be decided: whether the very last batches, with nothing written after them, were
//! acknowledged and then damaged, or torn.

use crate::types::JournalPos;
use shoal_base::limits::JOURNAL_ALIGN;
use shoal_base::planted::{self, Defect};
use shoal_base::{Addr, Error, Lsn, Result, SegNo};
use shoal_device::Device;
use shoal_format::Geometry;
use shoal_format::batch::{BatchHeader, BatchKind, RECORD_HEADER, records};
use std::collections::HashSet;

const ALIGN: u64 = JOURNAL_ALIGN as u64;

/// The result of a scan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScanEnd {
    /// Position after the last good batch.
    pub end: JournalPos,
    /// Segments of the journal, in order.
    pub segments: Vec<SegNo>,
    /// Number of records delivered.
    pub records: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// The records below this were durable, and so was the data that they point to: a batch says
    /// so, which was written when the flush had ended. Those behind it may have been, too.
    pub durable: Lsn,
    /// Description of the torn tail, for people; `None` if there is none.
    pub torn: Option<String>,
}

/// Reads the journal from `start` and calls `each` with every record, in order, and the LSN just
/// after it. The table in the module documentation lists how it ends.
pub fn scan(
    device: &dyn Device,
    geometry: &Geometry,
    volume: u64,
    incarnation: u32,
    start: JournalPos,
    mut each: impl FnMut(Lsn, &[u8]) -> Result<()>,
) -> Result<ScanEnd> {
    let mut scanner = Scanner::new(device, geometry, volume, incarnation, start)?;
    while scanner.step(&mut each)? {}
    Ok(scanner.found)
}

/// A scan that its caller advances batch by batch. Between two batches a checkpoint can be written,
/// because reading can begin at [`Scanner::position`].
pub struct Scanner<'a> {
    source: Source<'a>,
    found: ScanEnd,
    /// The next segment, as named by the batches of this one.
    announced: Option<SegNo>,
}

impl<'a> Scanner<'a> {
    /// Makes a scan from `start`. Reads nothing.
    pub fn new(
        device: &'a dyn Device,
        geometry: &'a Geometry,
        volume: u64,
        incarnation: u32,
        start: JournalPos,
    ) -> Result<Scanner<'a>> {
        if !is_place(geometry, start.addr) {
            return Err(corrupt(start, 'E', "no batch can be at this address".into()));
        }
        let (batch, ahead) = (Vec::new(), Ahead::default());
        let source = Source { device, geometry, volume, incarnation, batch, ahead };
        let segments = vec![geometry.segment_of(start.addr)];
        let found =
            ScanEnd { end: start, segments, records: 0, bytes: 0, durable: start.lsn, torn: None };
        Ok(Scanner { source, found, announced: None })
    }

    /// Position of the next expected batch.
    pub fn position(&self) -> JournalPos {
        self.found.end
    }

    /// [`ScanEnd::durable`], of what has been read so far.
    pub fn durable(&self) -> Lsn {
        self.found.durable
    }

    /// Segments visited so far, in order.
    pub fn segments(&self) -> &[SegNo] {
        &self.found.segments
    }

    /// Reads one batch or link and calls `each` with its records. Returns `false` at the end of the
    /// journal.
    pub fn step(&mut self, each: &mut impl FnMut(Lsn, &[u8]) -> Result<()>) -> Result<bool> {
        let (source, found) = (&mut self.source, &mut self.found);
        let at = found.end;
        match source.read(at.addr)? {
            Some(header) if header.lsn_start == at.lsn => {
                found.durable = found.durable.max(header.durable);
                match header.kind {
                    BatchKind::Records => {
                        source.deliver(&header, found, each)?;
                        self.announced = source.target(&header);
                    }
                    BatchKind::Link => {
                        let seg = source.target(&header);
                        let seg = seg.filter(|seg| !found.segments.contains(seg));
                        let rule = || format!("link to byte {}, not a new segment", header.next.0);
                        let seg = seg.ok_or_else(|| corrupt(at, 'C', rule()))?;
                        found.segments.push(seg);
                        found.end.addr = header.next;
                        self.announced = None;
                    }
                }
            }
            _ => {
                found.torn = source.judge(found, self.announced)?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the result.
    pub fn finish(self) -> ScanEnd {
        self.found
    }
}

/// Returns whether a batch, at least a link, can be at this address.
fn is_place(geometry: &Geometry, addr: Addr) -> bool {
    geometry.contains(addr, ALIGN) && addr.0.is_multiple_of(ALIGN)
}

fn corrupt(at: JournalPos, case: char, rule: String) -> Error {
    let object = format!("journal at LSN {} (case {case})", at.lsn.0);
    Error::corrupt(object, Some(at.addr.0), rule)
}

struct Source<'a> {
    device: &'a dyn Device,
    geometry: &'a Geometry,
    volume: u64,
    incarnation: u32,
    /// The batch read last: header and records.
    batch: Vec<u8>,
    ahead: Ahead,
}

/// Bytes read at once if batches are short. A journal of records that were synced one by one has a
/// batch in each 4 KiB.
const AHEAD: usize = 128 << 10;

/// Bytes of a segment that were read ahead.
#[derive(Default)]
struct Ahead {
    at: u64,
    bytes: Vec<u8>,
}

impl Ahead {
    /// The `len` bytes from `at`, if all of them are here.
    fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(at.checked_sub(self.at)?).ok()?;
        self.bytes.get(from..from.checked_add(len)?)
    }
}

impl Source<'_> {
    /// Reads the batch at this place; `None` if it is not ours. Its number may be any.
    fn read(&mut self, addr: Addr) -> Result<Option<BatchHeader>> {
        self.batch.clear();
        self.append(addr.0, BatchHeader::SIZE)?;
        let Some(header) = self.header() else { return Ok(None) };
        let whole = BatchHeader::SIZE as u64 + u64::from(header.len);
        if whole > self.segment_end(addr) - addr.0 {
            return Ok(None);
        }
        let start = BatchHeader::SIZE as u64;
        self.append(addr.0 + start, (whole - start) as usize)?;
        let (head, records) = self.batch.split_at(BatchHeader::SIZE);
        let matches = BatchHeader::sum_matches(head, records);
        Ok((matches || planted::is(Defect::BatchChecksum)).then_some(header))
    }

    /// Appends bytes of the device to the buffer. Short pieces come from the bytes read ahead.
    fn append(&mut self, at: u64, len: usize) -> Result<()> {
        if len < AHEAD && self.ahead.get(at, len).is_none() {
            let end = self.segment_end(Addr(at));
            let Ahead { at: from, bytes } = &mut self.ahead;
            *from = at;
            bytes.resize(AHEAD.min((end - at) as usize), 0);
            // Bytes further on may be damaged and not needed: below, the piece alone is read.
            if self.device.read_at(bytes, at).is_err() {
                bytes.clear();
            }
        }
        match self.ahead.get(at, len) {
            Some(bytes) => self.batch.extend_from_slice(bytes),
            None => {
                let before = self.batch.len();
                self.batch.resize(before + len, 0);
                self.device.read_at(&mut self.batch[before..], at)?;
            }
        }
        Ok(())
    }

    /// The header in the buffer, if volume and incarnation are ours. Its checksum may be wrong.
    fn header(&self) -> Option<BatchHeader> {
        let header = BatchHeader::decode(&self.batch)?;
        let ours = header.volume == self.volume && header.incarnation == self.incarnation;
        ours.then_some(header)
    }

    /// Handles cases A and D.
    fn deliver(
        &self,
        header: &BatchHeader,
        found: &mut ScanEnd,
        each: &mut impl FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let at = found.end;
        let end = at.lsn.0.checked_add(u64::from(header.len)).filter(|_| header.len > 0);
        let broken = |rule: &str| corrupt(at, 'D', rule.into());
        let end = end.ok_or_else(|| broken("a batch of impossible length"))?;
        let next = Addr(at.addr.0 + BatchHeader::padded(header.len as usize) as u64);
        if next.0 + ALIGN > self.segment_end(at.addr) {
            return Err(broken("a batch that leaves no room for the link behind it"));
        }
        let mut lsn = at.lsn.0;
        for record in records(&self.batch[BatchHeader::SIZE..]) {
            let record = record.ok_or_else(|| broken("a record that runs past its batch"))?;
            lsn += (RECORD_HEADER + record.len()) as u64;
            let is_last = lsn == at.lsn.0 + u64::from(header.len);
            if !(is_last && planted::is(Defect::RecordSkipped)) {
                each(Lsn(lsn), record)?;
            }
            found.records += 1;
        }
        found.bytes += u64::from(header.len);
        found.end = JournalPos { addr: next, lsn: Lsn(end) };
        Ok(())
    }

    /// The segment to whose start `next` points.
    fn target(&self, header: &BatchHeader) -> Option<SegNo> {
        let seg = self.geometry.segment_of(header.next);
        let valid = is_place(self.geometry, header.next);
        (valid && self.geometry.start_of(seg) == header.next).then_some(seg)
    }

    /// Decides between cases F to I: nothing at the end can be delivered.
    fn judge(&mut self, found: &mut ScanEnd, announced: Option<SegNo>) -> Result<Option<String>> {
        let at = found.end;
        self.batch.clear();
        self.append(at.addr.0, BatchHeader::SIZE)?;
        let begun = self.header().is_some_and(|h| h.lsn_start == at.lsn);
        let later = self.later(found, announced)?;
        if let Some((addr, header)) = later.filter(|(_, h)| h.durable > at.lsn) {
            let (start, durable) = (header.lsn_start.0, header.durable.0);
            let rule = format!(
                "no valid batch here, but the one at byte {} (LSN {start}) says that everything \
                 below LSN {durable} was durable",
                addr.0
            );
            return Err(corrupt(at, 'F', rule));
        }
        let place = format!("at byte {}, LSN {}", at.addr.0, at.lsn.0);
        Ok(match later {
            _ if begun => Some(format!("torn batch {place} (case G)")),
            Some(_) => Some(format!("batch missing {place}, later ones written (case H)")),
            None => None,
        })
    }

    /// Returns the first later batch of ours that proves case F; if there is none, the first of
    /// any.
    fn later(
        &mut self,
        found: &mut ScanEnd,
        announced: Option<SegNo>,
    ) -> Result<Option<(Addr, BatchHeader)>> {
        let at = found.end;
        let mut visited: HashSet<SegNo> = found.segments.iter().copied().collect();
        let mut first = None;
        let mut place = at.addr;
        let mut next = announced;
        loop {
            let end = self.segment_end(place);
            while place.0 + ALIGN <= end {
                let header = self.read(place)?.filter(|h| h.lsn_start >= at.lsn);
                let Some(header) = header else {
                    place.0 += ALIGN;
                    continue;
                };
                found.durable = found.durable.max(header.durable);
                if header.durable > at.lsn {
                    return Ok(Some((place, header)));
                }
                first = first.or(Some((place, header)));
                next = self.target(&header).or(next);
                place.0 += BatchHeader::padded(header.len as usize) as u64;
            }
            let Some(seg) = next.take().filter(|seg| visited.insert(*seg)) else {
                return Ok(first);
            };
            place = self.geometry.start_of(seg);
        }
    }

    fn segment_end(&self, addr: Addr) -> u64 {
        let start = self.geometry.start_of(self.geometry.segment_of(addr));
        start.0 + self.geometry.segment_size
    }
}
