//! The log: flushes, and beats of an idle owner.
//!
//! Log objects are created one after another: the next slot is tried only when the object before is
//! there. So a log has no gap, and whoever finds the first absent slot and creates a fence in it
//! has cut off every other writer: that one's next object goes into the same slot or an earlier
//! one, and neither ever becomes free again (fences are never deleted, and a slot behind which
//! there is a later one was written by then).
//!
//! A flush is one request, unless more than [`crate::Options::staged_max`] bytes were written since
//! the flush before.

use crate::manifests::Snapshot;
use crate::map::{Map, Part};
use crate::requests::Request;
use crate::shared::{Log, Moved, Pending, Shared, Waiting};
use crate::store::Created;
use crate::upload::{Encoded, Uploaded, encode};
use bytes::Bytes;
use shoal_base::{Addr, Result};
use shoal_format::bucket::object::{ObjectKind, PIECES_MAX, Packed, Piece, pack, unpack};
use shoal_format::bucket::{Name, log_name};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

/// Longest discarded range of one piece.
const DISCARD_MAX: u64 = 1 << 30;

/// Shortest lease, as a multiple of the time that an object takes.
const SLOW: u32 = 4;

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
struct Draft {
    pieces: Vec<Piece>,
    uploads: Vec<Uploaded>,
    /// Held until the copies are in the map.
    turns: Vec<OwnedSemaphorePermit>,
}

impl Draft {
    /// Adds pieces for the parts of a range that hold something.
    fn discard(&mut self, range: Range<u64>, map: &Map) {
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

impl Shared {
    /// Makes all completed writes durable.
    pub(crate) async fn flush(self: &Arc<Shared>, flush: Flush) -> Result<()> {
        let mut log = self.log.lock().await;
        if log.closed && flush == Flush::Closing {
            return Ok(());
        }
        self.may_write()?;
        let batch = self.batch.fetch_add(1, Ordering::Relaxed);
        let (pending, runs) = {
            let mut contents = self.contents.write();
            let is_work = |work: &Pending| match flush {
                Flush::Writes => !matches!(work, Pending::Discard(_)),
                Flush::Discards | Flush::Closing => true,
            };
            let is_idle = contents.staging.dirty() == 0 && !contents.pending.iter().any(is_work);
            if is_idle && flush != Flush::Closing {
                return Ok(());
            }
            contents.waiting = Waiting::default();
            (std::mem::take(&mut contents.pending), contents.staging.seal(batch))
        };
        // Unknown is what the store has when this fails: nothing may be written after it.
        let done = self.write(&mut log, flush, batch, pending, runs).await;
        done.map_err(|error| self.fail(error))?;
        if flush == Flush::Closing {
            // Nothing may follow: the next opener would take the volume for one in use.
            log.closed = true;
            self.fail(self.closed());
            return Ok(());
        }
        if log.objects >= self.options.log_objects_max || log.bytes >= self.options.log_bytes_max {
            let snapshot = Snapshot::take(self, &mut log);
            let shared = self.clone();
            self.runtime.spawn(async move { shared.publish(snapshot).await });
        }
        Ok(())
    }

    async fn write(
        self: &Arc<Shared>,
        log: &mut Log,
        flush: Flush,
        batch: u64,
        pending: Vec<Pending>,
        runs: Vec<(u64, Bytes)>,
    ) -> Result<()> {
        let mut draft = self.draft(pending).await?;
        if draft.pieces.len() + runs.len() > PIECES_MAX {
            // They are hints.
            draft.pieces.retain(|piece| !piece.is_discarded());
        }
        let encoded = encode(&runs, self.options.compression);
        let mut packed: Vec<Packed<'_>> = draft.pieces.iter().copied().map(Packed::Other).collect();
        packed.extend(encoded.iter().map(Encoded::packed));
        let kind = match flush {
            Flush::Closing => ObjectKind::Close,
            Flush::Writes | Flush::Discards if packed.is_empty() => return Ok(()),
            Flush::Writes | Flush::Discards => ObjectKind::Flush,
        };
        let lease = self.lease(log);
        let header = self.id.object_header(kind, log.slot, lease);
        let (raw, pieces) = pack(header, &packed);
        drop(packed);
        let size = raw.len() as u64;
        let raw = Bytes::from(raw);
        self.append(log, raw.clone(), lease).await?;
        let name = Name::Log(log.slot - 1);
        self.frames.write_disk(name, 0, raw);
        {
            let mut contents = self.contents.write();
            contents.map.add_object(name, size);
            for upload in &draft.uploads {
                contents.map.add_object(Name::Data(self.id.epoch, upload.number), upload.size);
            }
            for piece in &pieces {
                let of = match piece.object {
                    0 => name,
                    number => Name::Data(self.id.epoch, number),
                };
                contents.map.apply(piece, of);
            }
            contents.staging.settle(batch, &runs);
            for upload in &draft.uploads {
                contents.staging.settle(upload.batch, &upload.runs);
            }
            contents.map.layers.begin(log.slot);
        }
        // What was just written is likely to be read.
        for (piece, (_, bytes)) in pieces[draft.pieces.len()..].iter().zip(runs) {
            self.frames.insert(name, piece.offset, bytes);
        }
        drop(draft.turns);
        for Uploaded { number, runs, pieces, .. } in draft.uploads {
            for (piece, (_, bytes)) in pieces.iter().zip(runs) {
                self.frames.insert(Name::Data(self.id.epoch, number), piece.offset, bytes);
            }
        }
        Ok(())
    }

    /// Waits for the uploads, and drafts the pieces. Moved parts come first: whatever was written
    /// since then is newer.
    async fn draft(&self, pending: Vec<Pending>) -> Result<Draft> {
        let mut draft = Draft::default();
        let (moved, rest): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|work| matches!(work, Pending::Moved(_)));
        for work in moved.into_iter().chain(rest) {
            match work {
                Pending::Discard(range) => draft.discard(range, &self.contents.read().map),
                Pending::Data(upload) => {
                    let upload = upload.finish().await?;
                    draft.pieces.extend(&upload.pieces);
                    draft.uploads.push(upload);
                }
                Pending::Moved(Moved { upload, parts, turn }) => {
                    let contents = self.contents.read();
                    let still = |(_, part): &(&Piece, &Part)| contents.map.has(part);
                    let pieces = upload.pieces.iter().zip(&parts).filter(still);
                    draft.pieces.extend(pieces.map(|(piece, _)| *piece));
                    draft.uploads.push(upload);
                    draft.turns.push(turn);
                }
            }
        }
        Ok(draft)
    }

    /// The lease of an owner that writes. A store that is slow may take as long for the next
    /// object, which is begun after half of the lease, as for one before, and twice that.
    fn lease(&self, log: &Log) -> Duration {
        (log.slowest * SLOW).clamp(self.options.lease_min, self.options.lease_max)
    }

    /// Creates the next log object.
    async fn append(&self, log: &mut Log, raw: Bytes, lease: Duration) -> Result<()> {
        let (name, size) = (log_name(log.slot), raw.len() as u64);
        let begun = Instant::now();
        match self.store.create(Request::PutLog, &name, raw).await? {
            Created::Ours => {
                log.slot += 1;
                log.objects += 1;
                log.bytes += size;
                // The promise counts from when it was given, not from when it arrived.
                (log.last, log.lease) = (begun, lease);
                log.slowest = begun.elapsed().max(log.slowest * 7 / 8);
                Ok(())
            }
            Created::Taken(raw) => Err(match unpack(&raw, &name, self.id.volume) {
                Ok((by, _)) => self.fenced(&format!("opening {} ({name})", by.epoch)),
                Err(damage) => damage,
            }),
        }
    }

    /// Renews the lease of an idle owner, if half of it is over. Each lease is twice as long as the
    /// one before, so that an idle volume costs little.
    pub(crate) async fn beat(self: &Arc<Shared>) -> Result<()> {
        let mut log = self.log.lock().await;
        if log.closed {
            return Ok(());
        }
        self.may_write()?;
        if log.last.elapsed() < log.lease / 2 {
            return Ok(());
        }
        let lease = (log.lease * 2).min(self.options.lease_max).max(self.lease(&log));
        let (raw, _) = pack(self.id.object_header(ObjectKind::Beat, log.slot, lease), &[]);
        let size = raw.len() as u64;
        let done = self.append(&mut log, Bytes::from(raw), lease).await;
        done.map_err(|error| self.fail(error))?;
        // Holds nothing: it is collected with the next manifest.
        {
            let map = &mut self.contents.write().map;
            map.add_object(Name::Log(log.slot - 1), size);
            map.layers.begin(log.slot);
        }
        if log.objects >= self.options.log_objects_max {
            let snapshot = Snapshot::take(self, &mut log);
            let shared = self.clone();
            self.runtime.spawn(async move { shared.publish(snapshot).await });
        }
        Ok(())
    }

    /// Time until a beat is due.
    pub(crate) async fn until_beat(&self) -> Duration {
        let log = self.log.lock().await;
        (log.lease / 2).saturating_sub(log.last.elapsed())
    }
}
