//! Moving bytes from one device to the same addresses of another one, by several threads.

use super::young::runs;
use crate::dump::put;
use shoal_base::Result;
use shoal_base::sync::{AtomicUsize, Mutex, thread};
use shoal_device::Device;
use shoal_format::Geometry;
use std::ops::Range;
use std::sync::atomic::Ordering;

/// Threads: enough that a store far away, or a disk, has several requests to work on.
pub(super) const THREADS: usize = 8;
/// Bytes that a thread moves at a time, at most.
pub(super) const PIECE: usize = 4 << 20;
/// Bytes after which what was copied is made durable, and noted.
const DURABLE: u64 = 1 << 30;
/// Bytes between two notes of progress.
const SHOWN: u64 = 64 << 20;
/// Bytes between two ranges that are moved with them, to save a request.
const GAP: u64 = 16 << 10;

/// A part of a segment.
pub(super) enum Share {
    /// All of it.
    Whole,
    /// These blocks.
    Blocks(Box<[u64]>),
}

/// A segment of which something is to be copied.
pub(super) struct Unit {
    pub segment: u32,
    pub share: Share,
}

impl Unit {
    fn ranges(&self, segment_size: u64) -> Vec<Range<u64>> {
        match &self.share {
            Share::Whole => std::iter::once(0..segment_size).collect(),
            Share::Blocks(bits) => runs(bits, GAP),
        }
    }

    fn bytes(&self, segment_size: u64) -> u64 {
        self.ranges(segment_size).iter().map(|range| range.end - range.start).sum()
    }
}

/// Two devices.
pub(super) struct Transfer<'a> {
    pub source: &'a dyn Device,
    pub to: &'a dyn Device,
    pub geometry: Geometry,
    /// The destination reads as zeros where nothing was written.
    pub is_sparse: bool,
    pub threads: usize,
}

impl Transfer<'_> {
    /// Copies units, in their order but for those that are copied at once. `durable` is called from
    /// time to time with the number of a segment: all whole segments before it are copied.
    pub(super) fn run(
        &self,
        units: &[Unit],
        durable: &mut dyn FnMut(u32) -> Result<()>,
        moved: &mut dyn FnMut(u64, u64),
    ) -> Result<u64> {
        let size = self.geometry.segment_size;
        let all = units.iter().map(|unit| unit.bytes(size)).sum();
        let (mut done, mut since, mut rest) = (0, 0, units);
        while !rest.is_empty() {
            moved(done, all);
            let mut bytes = 0;
            let is_within = |unit: &&Unit| {
                let is_within = bytes < SHOWN;
                bytes += unit.bytes(size);
                is_within
            };
            let count = rest.iter().take_while(is_within).count();
            let (batch, after) = rest.split_at(count);
            self.batch(batch)?;
            rest = after;
            let copied: u64 = batch.iter().map(|unit| unit.bytes(size)).sum();
            (done, since) = (done + copied, since + copied);
            let whole = batch.last().filter(|unit| matches!(unit.share, Share::Whole));
            if let Some(unit) = whole.filter(|_| since >= DURABLE && !rest.is_empty()) {
                durable(unit.segment + 1)?;
                since = 0;
            }
        }
        moved(all, all);
        Ok(done)
    }

    fn batch(&self, units: &[Unit]) -> Result<()> {
        let next = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let work = || {
            let mut buffer = vec![0; PIECE];
            while failed.lock().is_none()
                && let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed))
            {
                if let Err(error) = self.unit(unit, &mut buffer) {
                    failed.lock().get_or_insert(error);
                }
            }
        };
        // This thread is one of them.
        thread::scope(|scope| {
            (1..self.threads.min(units.len())).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        failed.lock().take().map_or(Ok(()), Err)
    }

    fn unit(&self, unit: &Unit, buffer: &mut [u8]) -> Result<()> {
        let size = self.geometry.segment_size;
        let start = u64::from(unit.segment) * size;
        for range in unit.ranges(size) {
            let mut at = range.start;
            while at < range.end {
                let len = (range.end - at).min(buffer.len() as u64);
                let bytes = &mut buffer[..len as usize];
                self.source.read_at(bytes, start + at)?;
                put(self.to, bytes, start + at, self.is_sparse)?;
                at += len;
            }
        }
        Ok(())
    }
}
