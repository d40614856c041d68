//! A device in memory that takes its time.

#![allow(clippy::unwrap_used, dead_code, reason = "a test fails by panicking; not all use all")]

use shoal_engine::{Device, MemDevice, MkfsOptions, Result, mkfs_on};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Writes of at least this many bytes are slow.
pub(crate) const LARGE: usize = 100_000;

/// A device with slow reads and large writes, any number of them at a time. It counts the reads.
pub(crate) struct Slow {
    inner: MemDevice,
    /// Microseconds for a read.
    pub read_us: AtomicU64,
    /// Microseconds for a vectored write of [`LARGE`] bytes or more.
    pub write_us: AtomicU64,
    reads: AtomicU64,
    now: AtomicU64,
    now_max: AtomicU64,
}

impl Slow {
    /// Makes an empty volume on a device that is fast at first.
    pub(crate) fn with_volume(bytes: u64) -> Arc<Slow> {
        let [read_us, write_us, reads, now, now_max] = [(); 5].map(|()| AtomicU64::new(0));
        let inner = MemDevice::new(bytes);
        let slow = Arc::new(Slow { inner, read_us, write_us, reads, now, now_max });
        mkfs_on(slow.clone(), &MkfsOptions::default()).unwrap();
        slow
    }

    /// Forgets the reads up to now.
    pub(crate) fn forget(&self) {
        self.reads.store(0, Ordering::SeqCst);
        self.now_max.store(0, Ordering::SeqCst);
    }

    /// Returns the number of reads.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    /// Returns the largest number of reads at a time.
    pub(crate) fn reads_at_a_time(&self) -> u64 {
        self.now_max.load(Ordering::SeqCst)
    }
}

fn wait(micros: &AtomicU64) {
    match micros.load(Ordering::Relaxed) {
        0 => {}
        micros => std::thread::sleep(Duration::from_micros(micros)),
    }
}

impl Device for Slow {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.now_max.fetch_max(now, Ordering::SeqCst);
        self.reads.fetch_add(1, Ordering::SeqCst);
        wait(&self.read_us);
        let read = self.inner.read_at(buf, offset);
        self.now.fetch_sub(1, Ordering::SeqCst);
        read
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        if bufs.iter().map(|buf| buf.len()).sum::<usize>() >= LARGE {
            wait(&self.write_us);
        }
        self.inner.write_vectored_at(bufs, offset)
    }
    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.discard(offset, len)
    }
    fn describe(&self) -> String {
        "a slow device".into()
    }
}
