//! Writing manifests, and collecting what the newest one does not need.
//!
//! | step | action | if it fails or the machine stops here |
//! | --- | --- | --- |
//! | 1 | copy what has changed in the map since a [layer](crate::layers), or all of it, right after a log object was applied to it | |
//! | 2 | create the manifest | the one before is the newest; more of the log is replayed |
//! | 3 | wait, for readers of older manifests | the next owner does the rest: the manifest lists the objects that hold nothing |
//! | 4 | delete objects that hold nothing in it; replace manifests that are no layers any more | the same; the sweep of the next owner finds those manifests |
//!
//! Fences and claims stay for ever. Data objects that no log object names, because their writer
//! stopped, are found by name when the volume is opened for writing ([`Shared::sweep`]).

use crate::requests::Request;
use crate::shared::{Log, Manifests, Shared};
use crate::store::Created;
use crate::unsent::{Moved, Pending};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use shoal_base::{Error, Result};
use shoal_format::bucket::manifest::{Body, ManifestHeader, ManifestKind, decode_header, encode};
use shoal_format::bucket::object::FENCE_BYTES;
use shoal_format::bucket::{Name, manifest_name, manifest_sequence};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes moved at a time to free objects that hold little.
const MOVE_MAX: u64 = 32 << 20;
/// Names looked at by a sweep.
const SWEEP_MAX: usize = 100_000;
/// Smallest manifest that a sweep looks into, in bytes: most smaller ones are claims, which stay.
const SWEPT_MIN: u64 = 1024;
/// Objects deleted at once.
const DELETES: usize = 16;

/// The map at a place in the log.
pub(crate) struct Snapshot {
    log_next: u64,
    /// The layer that it changes; 0: none.
    base: u64,
    body: Body,
    dead: Vec<Name>,
}

impl Snapshot {
    /// Copies the map. The lock of the log keeps it as it is.
    pub(crate) fn take(shared: &Shared, log: &mut Log) -> Snapshot {
        (log.objects, log.bytes) = (0, 0);
        let contents = shared.contents.read();
        let base = contents.map.base(shared.options.layering);
        let body = match &base {
            Some(base) => contents.map.to_changes(base, shared.capacity),
            None => contents.map.to_complete(),
        };
        let base = base.map_or(0, |layer| layer.sequence);
        Snapshot { log_next: log.slot, base, body, dead: contents.map.dead() }
    }
}

impl Shared {
    /// Writes a manifest, and collects garbage later. A failure leaves a longer log.
    pub(crate) async fn publish(self: Arc<Shared>, snapshot: Snapshot) {
        let dead = snapshot.dead.clone();
        let written = {
            let mut manifests = self.manifests.lock().await;
            self.write_manifest(&mut manifests, snapshot, false).await
        };
        match written {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "writing a manifest failed; the next one replaces it");
                return;
            }
        }
        if let Err(error) = self.move_some().await {
            tracing::warn!(%error, "collecting sparse objects failed");
        }
        let (grace, weak) = (self.options.grace, Arc::downgrade(&self));
        drop(self);
        tokio::time::sleep(grace).await;
        if let Some(shared) = weak.upgrade()
            && let Err(error) = shared.collect(dead).await
        {
            tracing::warn!(%error, "deleting unused objects failed; it is tried again");
        }
    }

    /// Writes the last manifest, and collects all garbage. The next owner need not wait for either.
    pub(crate) async fn publish_closed(&self) -> Result<()> {
        let mut log = self.log.lock().await;
        // No other manifest takes the place of its base meanwhile.
        let mut manifests = self.manifests.lock().await;
        let snapshot = Snapshot::take(self, &mut log);
        let dead = snapshot.dead.clone();
        if !self.write_manifest(&mut manifests, snapshot, true).await? {
            return Ok(());
        }
        drop((log, manifests));
        if let Err(error) = self.collect(dead).await {
            tracing::warn!(%error, "deleting unused objects failed");
        }
        Ok(())
    }

    /// Returns whether it was written: a later snapshot may have been faster, or its base may be no
    /// layer any more, or the volume is closed, or the next owner was faster than the last
    /// manifest. Only then does a manifest cover the snapshot.
    async fn write_manifest(
        &self,
        manifests: &mut Manifests,
        snapshot: Snapshot,
        closed: bool,
    ) -> Result<bool> {
        let Snapshot { log_next, base, body, .. } = snapshot;
        loop {
            if manifests.closed || (!closed && log_next <= manifests.log_next) {
                return Ok(false);
            }
            // Of a volume that is being closed only the last one is written.
            if !closed && self.may_write().is_err() {
                return Ok(false);
            }
            if base != 0 && !self.contents.read().map.layers.contains(base) {
                return Ok(false);
            }
            let sequence = manifests.next;
            let mut header = self.manifest_header(sequence);
            (header.base, header.log_next, header.closed) = (base, log_next, u8::from(closed));
            let raw = Bytes::from(encode(header, &body));
            let name = manifest_name(sequence);
            let found = match self.store.create(Request::PutManifest, &name, raw.clone()).await? {
                Created::Ours => raw,
                Created::Taken(raw) => raw,
            };
            let found = decode_header(&found, sequence).map_err(|damage| self.fail(damage))?;
            if (found.epoch, found.writer) != (self.id.epoch, self.id.writer) {
                if closed {
                    // The log says that the volume is closed, so the next one need not wait.
                    manifests.closed = true;
                    return Ok(false);
                }
                let fenced = self.fenced(found.epoch, &name).await;
                return Err(self.fail(fenced));
            }
            manifests.next += 1;
            manifests.log_next = found.log_next;
            manifests.closed = found.closed == 1;
            let replaced = self.contents.write().map.layers.push(&found);
            manifests.old.extend(replaced.into_iter().flatten());
            // Else it is an earlier one of this opening, which was given up and was there all the
            // same: the newest layer, until this snapshot is in the next one.
            if found.log_next == log_next && manifests.closed == closed {
                return Ok(true);
            }
        }
    }

    fn manifest_header(&self, sequence: u64) -> ManifestHeader {
        header(&self.id, sequence, self.capacity)
    }

    /// Deletes objects that hold nothing in the newest manifest, and replaces manifests that are no
    /// layers.
    async fn collect(&self, dead: Vec<Name>) -> Result<()> {
        self.delete(dead.into_iter()).await?;
        let mut manifests = self.manifests.lock().await;
        while let Some(old) = manifests.old.first().copied() {
            self.supersede(old).await?;
            manifests.old.remove(0);
        }
        Ok(())
    }

    /// Deletes objects that hold nothing, and forgets them.
    async fn delete(&self, dead: impl Iterator<Item = Name>) -> Result<()> {
        let delete = async |name: Name| {
            self.store.delete(&name.text()).await?;
            self.contents.write().map.forget(name);
            self.frames.forget_disk(name);
            Ok::<(), Error>(())
        };
        stream::iter(dead).map(delete).buffer_unordered(DELETES).try_collect().await
    }

    /// Deletes data objects that hold nothing, though the newest manifest names them: of a store
    /// without room, which takes neither a log object nor a manifest. Whoever replays the log reads
    /// none of their bytes. A command that reads the volume as it was some flushes ago may miss
    /// them.
    pub(crate) async fn make_room(&self) {
        let dead = self.contents.read().map.dead();
        let data = dead.into_iter().filter(|name| matches!(name, Name::Data(..)));
        if let Err(error) = self.delete(data).await {
            tracing::warn!(%error, "deleting unused objects failed");
        }
    }

    /// Replaces a manifest that is no layer.
    async fn supersede(&self, old: u64) -> Result<()> {
        let base = self.contents.read().map.layers.newest();
        let header = ManifestHeader { base, ..self.manifest_header(old) };
        let raw = Bytes::from(encode(header, &Body::Superseded));
        self.store.put(Request::PutManifest, &manifest_name(old), raw).await
    }

    /// Copies parts of objects that hold little into a new data object, if the copies before are in
    /// the map. No flush waits for that.
    async fn move_some(self: &Arc<Shared>) -> Result<()> {
        let Ok(turn) = self.moving.clone().try_acquire_owned() else { return Ok(()) };
        let parts = self.contents.read().map.choose(self.options.spare, MOVE_MAX);
        if parts.is_empty() {
            return Ok(());
        }
        let pieces = self.pieces(&parts).await?;
        let runs = parts.iter().zip(pieces).map(|(part, bytes)| (part.addr, bytes)).collect();
        let batch = self.batch.fetch_add(1, Ordering::Relaxed);
        let mut upload = self.upload(batch, runs).finish().await?;
        upload.runs.clear();
        self.contents.write().pending.push(Pending::Moved(Moved { upload, parts, turn }));
        Ok(())
    }

    /// Deletes objects of earlier openings that nothing names, and replaces manifests of theirs.
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
        for (text, size) in self.store.list("manifest", SWEEP_MAX).await? {
            let Some(sequence) = manifest_sequence(&text).filter(|_| size >= SWEPT_MIN) else {
                continue;
            };
            let is_layer_or_newer = {
                let layers = &self.contents.read().map.layers;
                layers.contains(sequence) || sequence > layers.newest()
            };
            // None of this opening: those it replaces itself.
            if sequence < self.id.epoch && !is_layer_or_newer {
                let range = 0..ManifestHeader::SIZE as u64;
                let raw = self.store.get_range(&text, range).await?;
                let kind = raw.and_then(|raw| decode_header(&raw, sequence).ok()).map(|it| it.kind);
                if matches!(kind, Some(ManifestKind::Complete | ManifestKind::Changes)) {
                    self.supersede(sequence).await?;
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
