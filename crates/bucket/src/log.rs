//! The log: flushes, and beats of an idle owner.
//!
//! Log objects are created one after another: the next slot is tried only when the object before is
//! there. So a log has no gap, and whoever finds the first absent slot and creates a fence in it
//! has cut off every other writer: that one's next object goes into the same slot or an earlier
//! one, and neither ever becomes free again (fences are never deleted, and a slot behind which
//! there is a later one was written by then).
//!
//! A store without room (a quota) ends nothing: the object that it refused is kept, and sent before
//! any other one.
//!
//! A flush is one request, unless more than [`crate::Options::staged_max`] bytes were written since
//! the flush before.

use crate::manifests::Snapshot;
use crate::map::Part;
use crate::requests::Request;
use crate::shared::{Log, Shared, Waiting};
use crate::store::Created;
use crate::unsent::{Draft, Flush, Moved, Pending, Unsent};
use crate::upload::{Encoded, Uploaded, encode};
use bytes::Bytes;
use shoal_base::{Code, Error, Result};
use shoal_format::bucket::object::{ObjectKind, PIECES_MAX, Packed, Piece, pack, unpack};
use shoal_format::bucket::{Name, log_name, manifest_name};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Shortest lease, as a multiple of the time that an object takes.
const SLOW: u32 = 4;
/// Time after which a write looks whether the volume is still there, for the next one.
const CHECKED_EVERY: Duration = Duration::from_secs(20);

impl Shared {
    /// Makes all completed writes durable.
    ///
    /// # Errors
    /// `NoSpace`: the store has no room. Nothing is lost: the next flush begins with the same
    /// object. After any other error nothing is written any more.
    pub(crate) async fn flush(self: &Arc<Shared>, flush: Flush) -> Result<()> {
        let mut log = self.log.lock().await;
        if log.closed && flush == Flush::Closing {
            return Ok(());
        }
        self.may_write()?;
        self.send_unsent(&mut log).await?;
        if log.closed {
            return if flush == Flush::Closing { Ok(()) } else { Err(self.closed()) };
        }
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
        // Moved parts come first: whatever was written since then is newer.
        let (moved, rest): (Vec<_>, Vec<_>) =
            pending.into_iter().partition(|work| matches!(work, Pending::Moved(_)));
        let pending = moved.into_iter().chain(rest).collect();
        log.unsent =
            Some(Unsent { flush, batch, pending, runs, draft: Draft::default(), raw: None });
        self.send_unsent(&mut log).await?;
        if log.closed {
            return Ok(());
        }
        if log.objects >= self.options.log_objects_max || log.bytes >= self.options.log_bytes_max {
            let snapshot = Snapshot::take(self, &mut log);
            let shared = self.clone();
            self.runtime.spawn(async move { shared.publish(snapshot).await });
        }
        Ok(())
    }

    /// Begins a flush that nobody waits for, unless there is one already.
    pub(crate) fn begin_flush(self: &Arc<Shared>) {
        if self.flushing.swap(true, Ordering::AcqRel) {
            return;
        }
        let shared = self.clone();
        self.runtime.spawn(async move {
            // What fails is kept, or ends the writing: the next flush says so.
            let _ = shared.flush(Flush::Writes).await;
            shared.flushing.store(false, Ordering::Release);
        });
    }

    /// Writes the object that could not be written before, if there is one.
    async fn send_unsent(self: &Arc<Shared>, log: &mut Log) -> Result<()> {
        let Some(mut unsent) = log.unsent.take() else { return Ok(()) };
        match self.write(log, &mut unsent).await {
            Ok(()) => {
                self.full.store(false, Ordering::Relaxed);
                if unsent.flush == Flush::Closing {
                    // Nothing may follow: the next opener would take the volume for one in use.
                    log.closed = true;
                    self.fail(self.closed());
                }
                Ok(())
            }
            Err(error) if error.code() == Code::NoSpace => {
                log.unsent = Some(unsent);
                self.is_out_of_room(&error);
                Err(error)
            }
            // Unknown is what the store has: nothing may be written after it.
            Err(error) => Err(self.fail(error)),
        }
    }

    async fn write(self: &Arc<Shared>, log: &mut Log, unsent: &mut Unsent) -> Result<()> {
        self.draft(unsent).await?;
        let Unsent { flush, draft, runs, raw, .. } = unsent;
        let (raw, lease, pieces) = match raw {
            Some(packed) => packed,
            None => {
                if draft.pieces.len() + runs.len() > PIECES_MAX {
                    // They are hints.
                    draft.pieces.retain(|piece| !piece.is_discarded());
                }
                let encoded = encode(runs, self.options.compression);
                let mut packed: Vec<Packed<'_>> =
                    draft.pieces.iter().copied().map(Packed::Other).collect();
                packed.extend(encoded.iter().map(Encoded::packed));
                let kind = match flush {
                    Flush::Closing => ObjectKind::Close,
                    Flush::Writes | Flush::Discards if packed.is_empty() => return Ok(()),
                    Flush::Writes | Flush::Discards => ObjectKind::Flush,
                };
                let lease = self.lease(log);
                let (bytes, pieces) = pack(self.id.object_header(kind, log.slot, lease), &packed);
                // The same bytes each time: an attempt may have been carried out.
                raw.insert((Bytes::from(bytes), lease, pieces))
            }
        };
        let size = raw.len() as u64;
        self.append(log, raw.clone(), *lease).await?;
        let name = Name::Log(log.slot - 1);
        self.frames.write_disk(name, 0, raw.clone());
        let draft = std::mem::take(draft);
        {
            let mut contents = self.contents.write();
            contents.map.add_object(name, size);
            for upload in &draft.uploads {
                contents.map.add_object(Name::Data(self.id.epoch, upload.number), upload.size);
            }
            for piece in &*pieces {
                let of = match piece.object {
                    0 => name,
                    number => Name::Data(self.id.epoch, number),
                };
                contents.map.apply(piece, of);
            }
            contents.staging.settle(unsent.batch, runs);
            for upload in &draft.uploads {
                contents.staging.settle(upload.batch, &upload.runs);
            }
            contents.map.layers.begin(log.slot);
        }
        // What was just written is likely to be read.
        for (piece, (_, bytes)) in pieces[draft.pieces.len()..].iter().zip(runs) {
            self.frames.insert(name, piece.offset, bytes.clone());
        }
        drop(draft.turns);
        for Uploaded { number, runs, pieces, .. } in draft.uploads {
            for (piece, (_, bytes)) in pieces.iter().zip(runs) {
                self.frames.insert(Name::Data(self.id.epoch, number), piece.offset, bytes);
            }
        }
        Ok(())
    }

    /// Waits for the uploads, and drafts the pieces. Goes on where it ended the last time.
    async fn draft(self: &Arc<Shared>, unsent: &mut Unsent) -> Result<()> {
        let Unsent { pending, draft, .. } = unsent;
        while let Some(work) = pending.pop_front() {
            match work {
                Pending::Discard(range) => draft.discard(range, &self.contents.read().map),
                Pending::Data(upload) => {
                    let (batch, runs) = (upload.batch, upload.runs.clone());
                    match upload.finish().await {
                        Ok(upload) => draft.add(upload),
                        // Some time ago: it is tried again now.
                        Err(error) if error.code() == Code::NoSpace => {
                            pending.push_front(Pending::Refused(batch, runs));
                        }
                        Err(error) => return Err(error),
                    }
                }
                Pending::Refused(batch, runs) => {
                    match self.upload(batch, runs.clone()).finish().await {
                        Ok(upload) => draft.add(upload),
                        Err(error) => {
                            pending.push_front(Pending::Refused(batch, runs));
                            return Err(error);
                        }
                    }
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
        Ok(())
    }

    /// The lease of an owner that writes. A store that is slow may take as long for the next
    /// object, which is begun after half of the lease, as for one before, and twice that.
    fn lease(&self, log: &Log) -> Duration {
        (log.slowest * SLOW).clamp(self.options.lease_min, self.options.lease_max)
    }

    /// Creates the next log object.
    async fn append(self: &Arc<Shared>, log: &mut Log, raw: Bytes, lease: Duration) -> Result<()> {
        let (name, size) = (log_name(log.slot), raw.len() as u64);
        let begun = Instant::now();
        if log.checked.elapsed() >= CHECKED_EVERY {
            log.checked = begun;
            let shared = self.clone();
            // Not waited for: a store may take writes, and hang where it is read.
            self.runtime.spawn(async move { shared.check_there().await });
        }
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
                Ok((by, _)) => self.fenced(by.epoch, &name).await,
                Err(damage) => damage,
            }),
        }
    }

    /// Looks for the claim of this opening, which stays for ever: without it, others have deleted
    /// the volume, and nothing that is written now can be found.
    ///
    /// # Errors
    /// It is gone. Nobody knows while the store does not answer, which is no error.
    pub(crate) async fn check_there(&self) -> Result<()> {
        let claim = manifest_name(self.id.epoch);
        let Ok(None) = self.store.get_range(&claim, 0..1).await else { return Ok(()) };
        let store = &self.store.name;
        let message = format!(
            "{store}: {claim} is gone: another program has deleted objects of this volume while it \
             was in use. Restore the bucket to what it was; nothing is written any more"
        );
        Err(self.fail(Error::refused(Code::Io, message)))
    }

    /// Renews the lease of an idle owner, if half of it is over. Each lease is twice as long as the
    /// one before, so that an idle volume costs little. `false`: the store has no room for that.
    pub(crate) async fn beat(self: &Arc<Shared>) -> Result<bool> {
        let mut log = self.log.lock().await;
        if log.closed {
            return Ok(true);
        }
        self.may_write()?;
        if self.full.load(Ordering::Relaxed) {
            self.make_room().await;
        }
        match self.send_unsent(&mut log).await {
            Err(error) if error.code() == Code::NoSpace => return Ok(false),
            other => other?,
        }
        if log.last.elapsed() < log.lease / 2 {
            return Ok(true);
        }
        let lease = (log.lease * 2).min(self.options.lease_max).max(self.lease(&log));
        let (raw, _) = pack(self.id.object_header(ObjectKind::Beat, log.slot, lease), &[]);
        let size = raw.len() as u64;
        match self.append(&mut log, Bytes::from(raw), lease).await {
            Err(error) if error.code() == Code::NoSpace => {
                self.is_out_of_room(&error);
                return Ok(false);
            }
            done => done.map_err(|error| self.fail(error))?,
        }
        self.full.store(false, Ordering::Relaxed);
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
        Ok(true)
    }

    /// Time until a beat is due.
    pub(crate) async fn until_beat(&self) -> Duration {
        let log = self.log.lock().await;
        (log.lease / 2).saturating_sub(log.last.elapsed())
    }
}
