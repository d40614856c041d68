//! Compressed data objects.
//!
//! An object is compressed when it is written, if that saves at least an eighth of it; its pointer
//! has the codec. A compressed object never grows: appends merge short neighbours into new objects
//! (`plan.rs`). It is read, verified and decoded as a whole. The objects decoded last are cached
//! for readers that read a few KiB at a time.

use crate::objects::Objects;
use shoal_base::{Error, Ino, Result};
use shoal_format::extent::Extent;
use shoal_format::{Coding, Ptr};
use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;

impl Objects<'_> {
    /// Returns the payload in compressed form, if the volume has a codec and an eighth is saved.
    pub(crate) fn compressed(self, pieces: &[&[u8]]) -> Option<(Vec<u8>, Coding)> {
        let how = self.0.store.compression();
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

    /// Decodes the stored payload of an object, which must have been verified.
    ///
    /// # Errors
    /// Corruption, if the payload does not decode to the length in the pointer.
    pub(crate) fn decode<'b>(
        self,
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
    pub(crate) fn read_coded(
        self,
        ino: Ino,
        extent: &Extent,
        start: usize,
        out: &mut [u8],
    ) -> Result<()> {
        let ptr = &extent.ptr;
        let range = start..start + out.len();
        if let Some(kept) = self.0.decoded.get(ptr) {
            out.copy_from_slice(&kept[range]);
            return Ok(());
        }
        let object = format_args!("data of inode {ino}");
        let mut stored = vec![0; ptr.len as usize];
        self.0.store.device().read_at(&mut stored, ptr.addr.0)?;
        super::object::verify(ino, extent, 0, &stored)?;
        if out.len() == ptr.logical.get() as usize {
            return decode_into(ptr, &stored, out, object);
        }
        let plain: Arc<[u8]> = self.decode(ptr, &stored, object)?.into();
        out.copy_from_slice(&plain[range]);
        self.0.decoded.put(*ptr, plain);
        Ok(())
    }
}

fn decode_into(ptr: &Ptr, stored: &[u8], out: &mut [u8], object: impl Display) -> Result<()> {
    let decoded = ptr.codec.decode(stored, out);
    decoded.map_err(|rule| Error::corrupt(object.to_string(), Some(ptr.addr.0), rule))
}
