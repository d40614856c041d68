//! The trait of all devices, and the error of a failed operation.

use shoal_base::error::DeviceFailure;
use shoal_base::{Error, Result};
use std::io::IoSlice;

/// A random-access byte store.
///
/// Contract: the device may cache and reorder writes until `flush` returns. When `flush` has
/// returned `Ok`, every write that had completed before the call is durable. After a failed flush,
/// with the exception stated there, it is unknown which writes are durable: callers must never
/// retry it as if nothing had happened.
/// A torn write may leave anything in the 4 KiB sectors that it touches, also in place of bytes
/// that it does not write. It never affects other sectors.
pub trait Device: Send + Sync {
    /// Capacity in bytes; constant while open.
    fn capacity(&self) -> u64;
    /// Fills `buf` from byte `offset`. Bytes never written read as zero.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
    /// As [`Device::read_at`], if that takes no longer than copying memory: `false`, with anything
    /// in `buf`, if it would have to wait for the storage below.
    fn read_now(&self, buf: &mut [u8], offset: u64) -> Result<bool> {
        self.read_at(buf, offset).map(|()| true)
    }
    /// Returns whether so much waits to be written that the next write may have to wait for it.
    fn is_behind(&self) -> bool {
        false
    }
    /// Returns whether writes had to wait for the storage below a moment ago, so that the next one
    /// is likely to.
    fn writes_wait(&self) -> bool {
        self.is_behind()
    }
    /// Writes all of `buf` at byte `offset`.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;
    /// Writes the slices in order, starting at `offset`.
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let mut at = offset;
        for buf in bufs {
            self.write_at(buf, at)?;
            at += buf.len() as u64;
        }
        Ok(())
    }
    /// As [`Device::write_vectored_at`], if that takes no longer than copying memory: `false`, with
    /// anything in these bytes, if it would have to wait for the storage below.
    fn write_now(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<bool> {
        self.write_vectored_at(bufs, offset).map(|()| true)
    }
    /// Makes completed writes durable.
    ///
    /// # Errors
    /// `NoSpace` of a device that [keeps the order](Device::keeps_order): the storage below has no
    /// room for them. They are kept, and the next flush may succeed.
    fn flush(&self) -> Result<()>;
    /// Hint that these bytes are no longer needed. Afterwards they may read as old data or zeros.
    fn discard(&self, offset: u64, len: u64) -> Result<()>;
    /// Allocates space for these bytes in the underlying storage, if that can run out of space, so
    /// that `ENOSPC` occurs now and not when they are written. Existing data is kept. Guarantees
    /// nothing where this is not supported.
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        let _ = (offset, len);
        Ok(())
    }
    /// Hint that these bytes will be read soon.
    fn will_read(&self, offset: u64, len: u64) {
        let _ = (offset, len);
    }
    /// Bytes still available in the underlying storage, for the whole device; `None` if it cannot
    /// run out.
    fn room(&self) -> Option<u64> {
        None
    }
    /// Returns whether writes never fail for want of space: nothing need be kept for later.
    fn never_full(&self) -> bool {
        false
    }
    /// Returns whether the storage below has no room at present: no call may begin that needs some.
    /// Writes are taken all the same, because calls that free space need them.
    fn is_full(&self) -> bool {
        false
    }
    /// Returns whether writes become durable in the order in which they are made: a crash leaves
    /// all that had completed before some moment, and nothing of those that began after it. Then no
    /// write has to wait for another one to be durable, and sectors are not torn.
    fn keeps_order(&self) -> bool {
        false
    }
    /// Returns whether bytes never written, or discarded, use no space in the underlying storage.
    fn is_sparse(&self) -> bool {
        false
    }
    /// Returns whether its file has lost its last name: everything in it goes when it is closed.
    fn is_unlinked(&self) -> bool {
        false
    }
    /// The place that it is in, the same by whatever path it was opened ([`crate::place_of_file`]);
    /// a bucket by its URL. `None`: it is in none.
    fn place(&self) -> Option<String> {
        None
    }
    /// Returns whether the device refuses writes.
    fn read_only(&self) -> bool {
        false
    }
    /// Name for messages.
    fn describe(&self) -> String;
    /// Makes completed writes durable, and releases the device: nothing may follow. Whoever opens
    /// the volume next need not wait to learn that nobody uses it.
    fn close(&self) -> Result<()> {
        Ok(())
    }
    /// Closes the device's descriptors in a child of `fork`, as far as there are any, and nothing
    /// else: the parent uses them on. For a child that cannot drop the device ([`fork`]).
    ///
    /// [`fork`]: shoal_base::fork
    fn abandon(&self) {}
    /// Numbers of the storage below, for people and monitoring, such as requests to a store.
    fn facts(&self) -> Vec<Fact> {
        Vec::new()
    }
    /// The owner claim in the volume as text: that of this open, or, for a device opened for
    /// reading, one left behind by a process that has ended.
    fn claim(&self) -> Option<String> {
        None
    }
}

/// A number of the storage below a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fact {
    /// Name, in lower case with underscores; with its unit, if it has one.
    pub name: &'static str,
    /// Value.
    pub value: u64,
    /// Description.
    pub what: &'static str,
    /// The value also goes down.
    pub gauge: bool,
}

/// The error of a failed operation. `errno` 0: it ran past the end of the device.
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
