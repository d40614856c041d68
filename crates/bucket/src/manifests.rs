//! Writing manifests, and collecting what the newest one does not need.
//!
//! | step | action | if it fails or the machine stops here |
//! | --- | --- | --- |
//! | 1 | copy the map, right after a log object was applied to it | |
//! | 2 | create the manifest | the one before is the newest; more of the log is replayed |
//! | 3 | wait, for readers of older manifests | the next owner does the rest: the manifest lists the objects that hold nothing |
//! | 4 | delete objects that hold nothing in it; replace older complete manifests | the same |
//!
//! Fences and claims stay for ever. Data objects that no log object names, because their writer
//! stopped, are found by name when the volume is opened for writing ([`Shared::sweep`]).

use crate::requests::Request;
use crate::shared::{Log, Pending, Shared};
use crate::store::Created;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use shoal_base::{Error, Result};
use shoal_format::bucket::manifest::{Body, ManifestHeader, ManifestKind, decode, encode};
use shoal_format::bucket::object::FENCE_BYTES;
use shoal_format::bucket::{Name, manifest_name};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes moved at a time to free objects that hold little.
const MOVE_MAX: u64 = 32 << 20;
/// Names looked at by a sweep.
const SWEEP_MAX: usize = 100_000;
/// Objects deleted at once.
const DELETES: usize = 16;

/// The map at a place in the log.
pub(crate) struct Snapshot {
    log_next: u64,
    body: Body,
    dead: Vec<Name>,
}

impl Snapshot {
    /// Copies the map. The lock of the log keeps it as it is.
    pub fn take(shared: &Shared, log: &mut Log) -> Snapshot {
        let contents = shared.contents.read();
        let (objects, extents) = contents.map.to_manifest();
        (log.objects, log.bytes) = (0, 0);
        Snapshot {
            log_next: log.slot,
            body: Body::Complete(objects, extents),
            dead: contents.map.dead(),
        }
    }
}

impl Shared {
    /// Writes a manifest, and collects garbage later. A failure leaves a longer log.
    pub(crate) async fn publish(self: Arc<Shared>, snapshot: Snapshot) {
        let dead = snapshot.dead.clone();
        match self.write_manifest(snapshot, false).await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "a manifest was not written; the next one will be");
                return;
            }
        }
        if let Err(error) = self.move_some().await {
            tracing::warn!(%error, "objects that hold little are not collected");
        }
        let (grace, weak) = (self.options.grace, Arc::downgrade(&self));
        drop(self);
        tokio::time::sleep(grace).await;
        if let Some(shared) = weak.upgrade()
            && let Err(error) = shared.collect(dead).await
        {
            tracing::warn!(%error, "objects that hold nothing are not deleted yet");
        }
    }

    /// Writes the last manifest, and collects all garbage. The next owner need not wait for either.
    pub(crate) async fn publish_closed(&self) -> Result<()> {
        let snapshot = Snapshot::take(self, &mut *self.log.lock().await);
        let dead = snapshot.dead.clone();
        if !self.write_manifest(snapshot, true).await? {
            return Ok(());
        }
        if let Err(error) = self.collect(dead).await {
            tracing::warn!(%error, "objects that hold nothing are not deleted");
        }
        Ok(())
    }

    /// Returns whether it was written: a later snapshot may have been faster, or the volume is
    /// closed, or the next owner was faster than the last manifest. Only then does a manifest cover
    /// the snapshot.
    async fn write_manifest(&self, snapshot: Snapshot, closed: bool) -> Result<bool> {
        let mut manifests = self.manifests.lock().await;
        loop {
            if manifests.closed || (!closed && snapshot.log_next <= manifests.log_next) {
                return Ok(false);
            }
            // Of a volume that is being closed only the last one is written.
            if !closed && self.may_write().is_err() {
                return Ok(false);
            }
            let sequence = manifests.next;
            let header = ManifestHeader {
                base: self.id.epoch,
                log_next: snapshot.log_next,
                closed: u8::from(closed),
                ..self.manifest_header(sequence)
            };
            let raw = Bytes::from(encode(header, &snapshot.body));
            let name = manifest_name(sequence);
            let found = match self.store.create(Request::PutManifest, &name, raw).await? {
                Created::Ours => header,
                Created::Taken(raw) => {
                    decode(&raw, sequence).map_err(|damage| self.fail(damage))?.header
                }
            };
            if (found.epoch, found.writer) != (self.id.epoch, self.id.writer) {
                if closed {
                    // The log says that the volume is closed, so the next one need not wait.
                    manifests.closed = true;
                    return Ok(false);
                }
                let by = format!("opening {} ({name})", found.epoch);
                return Err(self.fail(self.fenced(&by)));
            }
            manifests.next += 1;
            manifests.log_next = found.log_next;
            manifests.old.push(sequence);
            manifests.closed = found.closed == 1;
            // Else it is an earlier one of this opening, which was given up and was there all the
            // same.
            if found.log_next == snapshot.log_next && manifests.closed == closed {
                return Ok(true);
            }
        }
    }

    fn manifest_header(&self, sequence: u64) -> ManifestHeader {
        header(&self.id, sequence, self.capacity)
    }

    /// Deletes objects that hold nothing in the newest manifest, and replaces older manifests.
    async fn collect(&self, dead: Vec<Name>) -> Result<()> {
        let delete = async |name: Name| {
            self.store.delete(&name.text()).await?;
            self.contents.write().map.forget(name);
            self.frames.forget_disk(name);
            Ok::<(), Error>(())
        };
        stream::iter(dead).map(delete).buffer_unordered(DELETES).try_collect::<()>().await?;
        let mut manifests = self.manifests.lock().await;
        while let [old, .., newest] = manifests.old[..] {
            let header = ManifestHeader { base: newest, ..self.manifest_header(old) };
            let raw = Bytes::from(encode(header, &Body::Superseded));
            self.store.put(Request::PutManifest, &manifest_name(old), raw).await?;
            manifests.old.remove(0);
        }
        Ok(())
    }

    /// Copies parts of objects that hold little into a new data object.
    async fn move_some(self: &Arc<Shared>) -> Result<()> {
        let parts = self.contents.read().map.choose(self.options.spare, MOVE_MAX);
        if parts.is_empty() {
            return Ok(());
        }
        let pieces = self.pieces(&parts).await?;
        let runs: Vec<(u64, Bytes)> =
            parts.iter().zip(pieces).map(|(part, bytes)| (part.addr, bytes)).collect();
        let batch = self.batch.fetch_add(1, Ordering::Relaxed);
        let upload = self.upload(batch, runs);
        self.contents.write().pending.push(Pending::Moved(upload, parts));
        Ok(())
    }

    /// Deletes objects of earlier openings that nothing names.
    pub(crate) async fn sweep(&self) -> Result<()> {
        let log_next = self.manifests.lock().await.log_next;
        for folder in ["data", "log"] {
            for (text, size) in self.store.list(folder, SWEEP_MAX).await? {
                let is_garbage = match Name::parse(&text) {
                    Some(Name::Data(epoch, _)) => epoch < self.id.epoch,
                    Some(Name::Log(slot)) => slot < log_next && size > FENCE_BYTES,
                    None => false,
                };
                let known =
                    || Name::parse(&text).is_some_and(|it| self.contents.read().map.knows(it));
                if is_garbage && !known() {
                    self.store.delete(&text).await?;
                }
            }
        }
        Ok(())
    }
}

/// Returns the header of a manifest; its writer completes it.
pub(crate) fn header(id: &crate::shared::Identity, sequence: u64, capacity: u64) -> ManifestHeader {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ManifestHeader {
        kind: ManifestKind::Complete,
        volume: id.volume,
        epoch: id.epoch,
        writer: id.writer,
        sequence,
        base: 0,
        log_next: 0,
        capacity,
        objects: 0,
        extents: 0,
        closed: 0,
        body: 0,
        written: now.as_secs() as i64,
        decoded: 0,
        body_sum: 0,
    }
}
