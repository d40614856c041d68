//! A device that measures: each read, write, flush and discard goes into the histograms of the
//! volume, and reads and writes into the phases of the call that waits for them.
//!
//! Every open volume has one between itself and its device, of any kind. So it is also what stops a
//! child of `fork`: it passes nothing on in another process than the one that made it; and what a
//! thread that must not wait ([`cold::at_once`]) reads and writes without waiting, or is refused.

use crate::device::{Device, Fact};
use shoal_base::Result;
use shoal_base::cold;
use shoal_base::counters::Counters;
use shoal_base::fork::Origin;
use shoal_base::phase::{self, Phase};
use shoal_base::timing::Timed;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Instant;

/// A device whose operations are measured.
pub struct MeasuredDevice {
    inner: Arc<dyn Device>,
    counters: Arc<Counters>,
    origin: Origin,
}

impl MeasuredDevice {
    /// Measures the operations of `inner` in `counters`.
    pub fn new(inner: Arc<dyn Device>, counters: Arc<Counters>) -> MeasuredDevice {
        MeasuredDevice { inner, counters, origin: Origin::here() }
    }

    fn measure(
        &self,
        kind: Timed,
        phase: Option<Phase>,
        bytes: u64,
        operation: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        self.origin.check()?;
        let begun = Instant::now();
        let done = operation();
        self.took((kind, phase), bytes, begun, done)
    }

    fn took(
        &self,
        (kind, phase): (Timed, Option<Phase>),
        bytes: u64,
        begun: Instant,
        done: Result<()>,
    ) -> Result<()> {
        let took = begun.elapsed();
        self.counters.took(kind, took, done.is_err(), bytes);
        if let Some(phase) = phase {
            phase::waited(phase, took);
        }
        done
    }
}

impl Device for MeasuredDevice {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let len = buf.len() as u64;
        if cold::must_not_wait() {
            self.origin.check()?;
            return match self.inner.read_now(buf, offset)? {
                true => Ok(()),
                false => Err(cold::refuse_device()),
            };
        }
        let read = || self.inner.read_at(buf, offset);
        self.measure(Timed::DeviceRead, Some(Phase::DeviceRead), len, read)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        if cold::must_not_wait() {
            return self.write_vectored_at(&[IoSlice::new(buf)], offset);
        }
        let write = || self.inner.write_at(buf, offset);
        self.measure(Timed::DeviceWrite, Some(Phase::DeviceWrite), buf.len() as u64, write)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let len = bufs.iter().map(|buf| buf.len() as u64).sum();
        if !cold::must_not_wait() {
            let write = || self.inner.write_vectored_at(bufs, offset);
            return self.measure(Timed::DeviceWrite, Some(Phase::DeviceWrite), len, write);
        }
        self.origin.check()?;
        let begun = Instant::now();
        let done = match self.inner.write_now(bufs, offset) {
            Ok(true) => Ok(()),
            Ok(false) => return Err(cold::refuse_device()),
            Err(error) => Err(error),
        };
        self.took((Timed::DeviceWrite, Some(Phase::DeviceWrite)), len, begun, done)
    }
    fn flush(&self) -> Result<()> {
        // A call that waits for a flush waits for the journal, which counts that.
        self.measure(Timed::DeviceFlush, None, 0, || self.inner.flush())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.measure(Timed::DeviceDiscard, None, len, || self.inner.discard(offset, len))
    }
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.origin.check()?;
        self.inner.reserve(offset, len)
    }
    fn will_read(&self, offset: u64, len: u64) {
        if self.origin.is_here() {
            self.inner.will_read(offset, len);
        }
    }
    fn is_behind(&self) -> bool {
        self.inner.is_behind()
    }
    fn writes_wait(&self) -> bool {
        self.inner.writes_wait()
    }
    fn room(&self) -> Option<u64> {
        self.origin.is_here().then(|| self.inner.room()).flatten()
    }
    fn is_sparse(&self) -> bool {
        self.inner.is_sparse()
    }
    fn place(&self) -> Option<String> {
        self.inner.place()
    }
    fn is_unlinked(&self) -> bool {
        self.inner.is_unlinked()
    }
    fn never_full(&self) -> bool {
        self.inner.never_full()
    }
    fn is_full(&self) -> bool {
        self.inner.is_full()
    }
    fn keeps_order(&self) -> bool {
        self.inner.keeps_order()
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
    fn describe(&self) -> String {
        self.inner.describe()
    }
    fn close(&self) -> Result<()> {
        self.origin.check()?;
        self.inner.close()
    }
    fn abandon(&self) {
        self.inner.abandon();
    }
    fn facts(&self) -> Vec<Fact> {
        // Counted under locks.
        if self.origin.is_here() { self.inner.facts() } else { Vec::new() }
    }
    fn claim(&self) -> Option<String> {
        self.origin.is_here().then(|| self.inner.claim()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemDevice;

    /// A device on which everything waits.
    struct Slow(MemDevice);

    impl Device for Slow {
        fn capacity(&self) -> u64 {
            self.0.capacity()
        }
        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            self.0.read_at(buf, offset)
        }
        fn read_now(&self, _: &mut [u8], _: u64) -> Result<bool> {
            Ok(false)
        }
        fn write_now(&self, _: &[IoSlice<'_>], _: u64) -> Result<bool> {
            Ok(false)
        }
        fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
            self.0.write_at(buf, offset)
        }
        fn flush(&self) -> Result<()> {
            self.0.flush()
        }
        fn discard(&self, offset: u64, len: u64) -> Result<()> {
            self.0.discard(offset, len)
        }
        fn describe(&self) -> String {
            self.0.describe()
        }
    }

    #[test]
    fn a_thread_that_must_not_wait_is_refused_and_not_counted() {
        let counters = Arc::new(Counters::default());
        let slow = Arc::new(Slow(MemDevice::new(1 << 20)));
        let device = MeasuredDevice::new(slow, counters.clone());
        let mut buf = [0; 16];
        let refused = cold::AtOnce::Refused { result: false, device: true };
        assert_eq!(cold::at_once(|| device.read_at(&mut buf, 0).is_ok()), refused);
        assert_eq!(cold::at_once(|| device.write_at(&[1], 0).is_ok()), refused);
        for kind in [Timed::DeviceRead, Timed::DeviceWrite] {
            assert_eq!(counters.timing(kind).count(), 0);
        }
        device.read_at(&mut buf, 0).unwrap();
        let fast = MeasuredDevice::new(Arc::new(MemDevice::new(1 << 20)), counters);
        let read = cold::at_once(|| fast.read_at(&mut buf, 0).is_ok());
        assert_eq!(read, cold::AtOnce::Done(true));
    }

    #[test]
    fn each_operation_is_counted_with_its_bytes_and_errors() {
        let counters = Arc::new(Counters::default());
        let device = MeasuredDevice::new(Arc::new(MemDevice::new(1 << 20)), counters.clone());
        phase::reset();
        device.write_at(&[1; 4096], 0).unwrap();
        let parts = [IoSlice::new(&[2; 100]), IoSlice::new(&[3; 50])];
        device.write_vectored_at(&parts, 4096).unwrap();
        let mut buf = [0; 150];
        device.read_at(&mut buf, 4096).unwrap();
        assert_eq!((buf[0], buf[149]), (2, 3), "passed on");
        assert!(device.read_at(&mut buf, 1 << 20).is_err());
        device.flush().unwrap();
        device.discard(0, 512).unwrap();
        let found = |kind| {
            let timing = counters.timing(kind);
            (timing.count(), timing.errors, timing.bytes)
        };
        assert_eq!(found(Timed::DeviceWrite), (2, 0, 4096 + 150));
        assert_eq!(found(Timed::DeviceRead), (2, 1, 300));
        assert_eq!(found(Timed::DeviceFlush), (1, 0, 0));
        assert_eq!(found(Timed::DeviceDiscard), (1, 0, 512));
        let spent = phase::spent();
        assert!(spent[Phase::DeviceRead as usize] > 0 && spent[Phase::DeviceWrite as usize] > 0);
        assert_eq!(device.capacity(), 1 << 20);
    }
}
