//! Data objects that are compressed.
//!
//! An object is compressed when it is written, if that saves an eighth of it; the pointer to it
//! says so. Such an object never grows: appends merge short neighbours into new objects
//! (`plan.rs`). It is read, verified and decoded whole, so the objects decoded last are kept for
//! readers that ask for a few KiB at a time.

use crate::volume::Inner;
use shoal_base::shard::spread;
use shoal_base::sync::Mutex;
use shoal_base::{Error, Ino, Result};
use shoal_format::extent::Extent;
use shoal_format::{Coding, Ptr};
use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

/// Decoded objects that are kept, of at most 128 KiB each.
const KEPT: usize = 16;

/// A place for a decoded object.
type Place = Mutex<Option<(Ptr, Arc<[u8]>)>>;

/// The objects decoded last, by address.
#[derive(Default)]
pub(crate) struct Decoded([Place; KEPT]);

impl Decoded {
    fn place(&self, ptr: &Ptr) -> &Place {
        &self.0[(spread(ptr.addr.0) >> 40) as usize % KEPT]
    }
    fn get(&self, ptr: &Ptr) -> Option<Arc<[u8]>> {
        let kept = self.place(ptr).lock();
        // Another object at the same address has another birth.
        kept.as_ref().filter(|(of, _)| of == ptr).map(|(_, bytes)| bytes.clone())
    }
    fn put(&self, ptr: Ptr, bytes: Arc<[u8]>) {
        *self.place(&ptr).lock() = Some((ptr, bytes));
    }
}

impl Inner {
    /// Returns the payload in a compressed form, if the volume compresses and an eighth is saved.
    pub(super) fn compressed(&self, pieces: &[&[u8]]) -> Option<(Vec<u8>, Coding)> {
        let how = self.store.compression;
        let plain: Cow<'_, [u8]> = match pieces {
            _ if how == shoal_format::Compression::NONE => return None,
            [piece] => Cow::Borrowed(piece),
            pieces => Cow::Owned(pieces.concat()),
        };
        if !how.is_worth_trying(&plain) {
            return None;
        }
        let mut stored = Vec::new();
        let codec = how.encode_if(&plain, plain.len() - plain.len().div_ceil(8), &mut stored)?;
        let coding = Coding { codec, len: stored.len() as u32, logical: plain.len() as u32 };
        Some((stored, coding))
    }

    /// Returns the bytes of an object from its payload as stored, which has been verified.
    ///
    /// # Errors
    /// Corruption, if the payload does not decode to the length in the pointer.
    pub(crate) fn decode<'b>(
        &self,
        ptr: &Ptr,
        stored: &'b [u8],
        object: impl Display,
    ) -> Result<Cow<'b, [u8]>> {
        if !ptr.is_coded() {
            return Ok(Cow::Borrowed(stored));
        }
        let mut plain = vec![0; ptr.logical.get() as usize];
        decode_into(ptr, stored, &mut plain, object)?;
        Ok(Cow::Owned(plain))
    }

    /// Fills `out` with the bytes of a compressed object from its byte `start` on.
    pub(super) fn read_coded(
        &self,
        ino: Ino,
        extent: &Extent,
        start: usize,
        out: &mut [u8],
    ) -> Result<()> {
        let ptr = &extent.ptr;
        let range = start..start + out.len();
        if let Some(kept) = self.decoded.get(ptr) {
            out.copy_from_slice(&kept[range]);
            return Ok(());
        }
        let object = format_args!("data of inode {ino}");
        let mut stored = vec![0; ptr.len as usize];
        self.store.device.read_at(&mut stored, ptr.addr.0)?;
        super::object::verify(ino, extent, 0, &stored)?;
        if out.len() == ptr.logical.get() as usize {
            return decode_into(ptr, &stored, out, object);
        }
        let plain: Arc<[u8]> = self.decode(ptr, &stored, object)?.into();
        out.copy_from_slice(&plain[range]);
        self.decoded.put(*ptr, plain);
        Ok(())
    }
}

fn decode_into(ptr: &Ptr, stored: &[u8], out: &mut [u8], object: impl Display) -> Result<()> {
    let decoded = ptr.codec.decode(stored, out);
    decoded.map_err(|rule| Error::corrupt(object.to_string(), Some(ptr.addr.0), rule))
}
