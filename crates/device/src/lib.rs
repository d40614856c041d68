//! Where the bytes of a volume live. The trait is tiny so that tests can supply devices that fail,
//! tear and crash (`sim`), and so that an object store can be one later.

mod backing;
mod claim;
mod discard;
mod file;
mod lock;
mod memory;
mod signature;

pub use claim::ClaimOptions;
pub use file::{FileDevice, OpenMode};
pub use memory::MemDevice;
pub use signature::foreign_signature;

use shoal_base::error::DeviceFailure;
use shoal_base::{Error, Result};
use std::io::IoSlice;

/// A random-access byte store.
///
/// Contract: `write_at` may be cached and reordered by the device until `flush` returns; after
/// `flush` returns `Ok`, every write that had completed before the call began is durable. A failed
/// flush leaves it unknown which were: callers must never retry it as if nothing had happened.
/// A torn write may leave anything in the sectors of 4 KiB that it touches, also in place of bytes
/// that it does not write; it touches no others.
pub trait Device: Send + Sync {
    /// Capacity in bytes; constant while open.
    fn capacity(&self) -> u64;
    /// Fills `buf` from byte `offset`; never-written bytes read as zero.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// Writes all of `buf` at byte `offset`.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;
    /// Writes the slices one after another at `offset`.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let mut at = offset;
        for buf in bufs {
            self.write_at(buf, at)?;
            at += buf.len() as u64;
        }
        Ok(())
    }
    /// Makes completed writes durable.
    fn flush(&self) -> Result<()>;
    /// Hint that these bytes are no longer needed; they may afterwards read as old data or zeros.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;
    /// Makes sure that writes to these bytes will find room, where the bytes are stored in
    /// something that may run out of it: fails with `ENOSPC` now rather than when they are written.
    /// What is there stays as it is. Nothing is promised where that cannot be done.
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        let _ = (offset, len);
        Ok(())
    }
    /// Hint that these bytes are going to be read soon.
    fn will_read(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
    /// Bytes that what stores the device has left for all of it; `None`: it does not run out.
    fn room(&self) -> Option<u64> {
        None
    }
    /// Whether bytes never written, or discarded, take no room in what stores the device.
    fn is_sparse(&self) -> bool {
        false
    }
    /// Whether the device refuses writes.
    fn read_only(&self) -> bool {
        false
    }
    /// Name for messages.
    fn describe(&self) -> String;
    /// The owner claim in the volume, in words: that of this opening, or, of a device opened for
    /// reading, one that a process that has ended left behind.
    fn claim(&self) -> Option<String> {
        None
    }
}

/// The error of a failed operation; `errno` 0 means that it ran past the end of the device.
#[cold]
pub(crate) fn failure(
    operation: &'static str,
    device: String,
    offset: u64,
    len: u64,
    errno: i32,
) -> Error {
    Error::Device(Box::new(DeviceFailure { operation, device, offset, len, errno }))
}
