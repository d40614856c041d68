//! From the ring to the device: splitting complete records into batches and writing them.

use crate::core::{Core, Writer};
use crate::ring::{Reader, Ring};
use shoal_base::counters::Counter;
use shoal_base::invariant;
use shoal_base::limits::JOURNAL_ALIGN;
use shoal_base::sync::{hint, thread};
use shoal_base::{Addr, Error, Lsn, Result};
use shoal_format::batch::{BatchHeader, BatchKind, RECORD_HEADER};
use std::io::IoSlice;
use std::sync::atomic::Ordering;

/// Bytes kept free at the end of a segment for the link to the next.
const LINK_ROOM: u64 = JOURNAL_ALIGN as u64;

/// Bytes of file data after which a batch is not written before a flush. Recovery verifies at most
/// about twice as much: 0.1 s for a device that reads 1 GB/s.
const UNFLUSHED_MAX: u64 = 64 << 20;

static PADDING: [u8; JOURNAL_ALIGN] = [0; JOURNAL_ALIGN];

impl Core {
    /// Writes everything complete. Does nothing if another thread is writing.
    pub(crate) fn write_some(&self) -> Result<()> {
        match self.writer.try_lock() {
            Some(mut writer) => self.write_up_to(&mut writer, 0),
            None => Ok(()),
        }
    }

    /// Writes everything complete, at least up to `lsn`. Waits for records below `lsn` whose copy
    /// is still in progress.
    pub(crate) fn write_up_to(&self, writer: &mut Writer, lsn: u64) -> Result<()> {
        let mut rounds = 0u32;
        loop {
            self.check_poison()?;
            let safe = self.ring.look(&mut writer.reader);
            if safe > writer.written() {
                self.bound_unflushed(writer)?;
                while writer.written() < safe {
                    self.write_batch(writer, safe)?;
                }
            }
            if writer.written() >= lsn {
                return Ok(());
            }
            // Usually a copy of a few hundred bytes; at worst a thread was interrupted in it.
            rounds += 1;
            if rounds < 64 {
                hint::spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }

    /// Flushes if so much data has been written since the last flush that recovery would take long
    /// to verify it. The next batch states what is durable by then.
    fn bound_unflushed(&self, writer: &Writer) -> Result<()> {
        let unflushed = self.unflushed.load(Ordering::Relaxed);
        if unflushed < UNFLUSHED_MAX || self.io.device.keeps_order() {
            return Ok(());
        }
        let written = writer.written();
        self.flush()?;
        self.durable.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }

    /// Writes one batch of records below `safe`, or a link if no record fits in this segment.
    fn write_batch(&self, writer: &mut Writer, safe: u64) -> Result<()> {
        let start = writer.written();
        let end = self.boundary(writer, start).min(safe);
        let segment_end = self.segment_end(writer.addr);
        let room = (segment_end - writer.addr.0 - LINK_ROOM) as usize;
        let max = writer.batch_max.min(room).saturating_sub(BatchHeader::SIZE);
        let end = whole_records(&self.ring, &writer.reader, start, end, max as u64);
        if end == start {
            return self.write_link(writer);
        }
        if writer.next.is_none() {
            // Allocated early so that the batches can name it. If that fails, the link tries again.
            writer.next = self.io.segments.take().ok();
        }
        let header = BatchHeader {
            len: (end - start) as u32,
            next: writer.next.map_or(Addr(0), |seg| self.io.geometry.start_of(seg)),
            ..self.header(BatchKind::Records, start)
        };
        let Writer { reader, scratch, addr, .. } = writer;
        let written = self.ring.read(reader, start, end, |head, rest| {
            if rest.is_empty() {
                return self.put(*addr, &header, head);
            }
            scratch.clear();
            scratch.extend_from_slice(head);
            scratch.extend_from_slice(rest);
            self.put(*addr, &header, scratch)
        });
        writer.addr.0 += written?;
        self.ring.consume(&mut writer.reader, end);
        self.io.counters.add(Counter::JournalBytes, end - start);
        Ok(())
    }

    /// Notes the address of the next batch, which starts at `start`, if a checkpoint asked for it.
    /// Returns the largest LSN at which that batch may end.
    fn boundary(&self, writer: &Writer, start: u64) -> u64 {
        let mut boundaries = self.boundaries.lock();
        if let Some(place) = boundaries.get_mut(&start) {
            place.get_or_insert(writer.addr);
        }
        boundaries.range(start + 1..).next().map_or(u64::MAX, |(boundary, _)| *boundary)
    }

    /// Continues the journal in another segment.
    fn write_link(&self, writer: &mut Writer) -> Result<()> {
        let seg = match writer.next {
            Some(seg) => seg,
            None => self.io.segments.take()?,
        };
        // Kept until the link is written, so that a failure does not lose it.
        writer.next = Some(seg);
        let next = self.io.geometry.start_of(seg);
        let header = BatchHeader { next, ..self.header(BatchKind::Link, writer.written()) };
        self.put(writer.addr, &header, &[])?;
        writer.addr = next;
        writer.next = None;
        self.chain.lock().push_back(seg);
        Ok(())
    }

    fn header(&self, kind: BatchKind, lsn_start: u64) -> BatchHeader {
        BatchHeader {
            kind,
            volume: self.io.volume,
            incarnation: self.io.incarnation,
            len: 0,
            lsn_start: Lsn(lsn_start),
            durable: Lsn(self.durable.load(Ordering::Acquire)),
            next: Addr(0),
        }
    }

    /// Writes a padded batch. Returns its length on the device. A failure poisons the journal.
    fn put(&self, addr: Addr, header: &BatchHeader, records: &[u8]) -> Result<u64> {
        let head = header.encode(records);
        let padded = BatchHeader::padded(records.len());
        let end = addr.0 + padded as u64;
        invariant!(end <= self.segment_end(addr), "a batch ends at {end}, behind its segment");
        let padding = &PADDING[..padded - head.len() - records.len()];
        let slices = [IoSlice::new(&head), IoSlice::new(records), IoSlice::new(padding)];
        let written = self.io.device.write_vectored_at(&slices, addr.0);
        written.map_err(|e: Error| self.poison(&format!("journal: {e}")))?;
        self.io.counters.add(Counter::JournalWrites, 1);
        Ok(padded as u64)
    }

    fn segment_end(&self, addr: Addr) -> u64 {
        let geometry = &self.io.geometry;
        geometry.start_of(geometry.segment_of(addr)).0 + geometry.segment_size
    }
}

/// Returns the end of the last record that lies within `start .. end` and ends at most `max` bytes
/// after `start`.
fn whole_records(ring: &Ring, reader: &Reader, start: u64, end: u64, max: u64) -> u64 {
    if end - start <= max {
        return end;
    }
    let mut at = start;
    loop {
        let mut raw = [0; RECORD_HEADER];
        ring.read(reader, at, at + RECORD_HEADER as u64, |head, rest| {
            raw[..head.len()].copy_from_slice(head);
            raw[head.len()..].copy_from_slice(rest);
        });
        let next = at + RECORD_HEADER as u64 + u64::from(u32::from_le_bytes(raw));
        if next > end || next - start > max {
            return at;
        }
        at = next;
    }
}
