//! The faulty device, where other threads may go on before and after each operation.

use crate::device::FaultyDevice;
use parking_lot::Mutex;
use shoal::raw::Result;
use shoal_base::sync::turn;
use shoal_device::Device;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The device of a run.
///
/// An operation takes effect when it begins and returns later: so what others write while a flush
/// is under way is not covered by it, and a crash can come between an effect and its return.
pub struct PacedDevice {
    inner: FaultyDevice,
    clock: Arc<AtomicU64>,
    /// Time of each write, flush and discard.
    moments: Mutex<Vec<u64>>,
}

impl PacedDevice {
    /// Paces this device, and notes times on this clock.
    pub fn new(inner: FaultyDevice, clock: Arc<AtomicU64>) -> PacedDevice {
        assert_eq!(inner.position(), 0, "every operation has its moment");
        PacedDevice { inner, clock, moments: Mutex::default() }
    }

    /// The device itself.
    pub fn inner(&self) -> &FaultyDevice {
        &self.inner
    }

    /// Returns the time of each operation that has a position: `moments[p]` is the time until which
    /// a crash at position `p` may have come.
    pub fn moments(&self) -> Vec<u64> {
        self.moments.lock().clone()
    }

    fn paced<R>(&self, change: bool, operation: impl FnOnce() -> R) -> R {
        turn();
        if change {
            self.moments.lock().push(self.clock.load(Ordering::SeqCst));
        }
        let result = operation();
        turn();
        result
    }
}

impl Device for PacedDevice {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.paced(false, || self.inner.read_at(buf, offset))
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.paced(true, || self.inner.write_at(buf, offset))
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        self.paced(true, || self.inner.write_vectored_at(bufs, offset))
    }
    fn flush(&self) -> Result<()> {
        self.paced(true, || self.inner.flush())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.paced(true, || self.inner.discard(offset, len))
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
}
