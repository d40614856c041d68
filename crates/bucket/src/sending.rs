//! Sending data objects, several at once.

use crate::requests::Request;
use crate::shared::Shared;
use crate::upload::{Encoded, Upload, encode};
use bytes::Bytes;
use shoal_base::{Code, Error, Result};
use shoal_format::bucket::Name;
use shoal_format::bucket::object::{ObjectKind, Packed, Piece, pack};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Shared {
    /// Starts to upload runs as a data object.
    pub(crate) fn upload(self: &Arc<Shared>, batch: u64, runs: Vec<(u64, Bytes)>) -> Upload {
        let number = self.data_number.fetch_add(1, Ordering::Relaxed);
        let bytes: u64 = runs.iter().map(|(_, bytes)| bytes.len() as u64).sum();
        self.uploading.fetch_add(bytes, Ordering::AcqRel);
        let (by, sent) = (self.clone(), runs.clone());
        let task = self.runtime.spawn(async move {
            let done = by.put_data(number, &sent).await;
            by.uploading.fetch_sub(bytes, Ordering::AcqRel);
            by.uploaded.notify_waiters();
            done
        });
        Upload::new(batch, number, runs, task)
    }

    async fn put_data(&self, number: u64, runs: &[(u64, Bytes)]) -> Result<(u64, Vec<Piece>)> {
        // Also bounds how many objects are encoded at once.
        let _slot = self.upload_slots.acquire().await.map_err(|_| Error::from(Code::Io))?;
        let encoded = encode(runs, self.options.compression);
        let packed: Vec<Packed<'_>> = encoded.iter().map(Encoded::packed).collect();
        let header = self.id.object_header(ObjectKind::Data, number, Duration::ZERO);
        let (raw, pieces) = pack(header, &packed);
        drop(packed);
        let size = raw.len() as u64;
        let (name, raw) = (Name::Data(self.id.epoch, number), Bytes::from(raw));
        self.store.put(Request::PutData, &name.text(), raw.clone()).await?;
        self.frames.write_disk(name, 0, raw);
        let refer = |piece: Piece| Piece { object: number, ..piece };
        Ok((size, pieces.into_iter().map(refer).collect()))
    }
}
