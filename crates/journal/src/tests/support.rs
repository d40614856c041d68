//! A journal on a device that tracks what was flushed, and can fail and crash.

use crate::{Config, Journal, JournalPos, ScanEnd, SegmentSource, StartAt, scan};
use parking_lot::Mutex;
use shoal_base::counters::Counters;
use shoal_base::error::DeviceFailure;
use shoal_base::{Addr, Code, Error, Lsn, Result, SegNo};
use shoal_device::{Device, MemDevice};
use shoal_format::Geometry;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(super) const VOLUME: u64 = 0x5EA1;
pub(super) const INCARNATION: u32 = 3;
pub(super) const START: Lsn = Lsn(777);
/// Small segments, so that links are common. The source allocates segments from 2 on.
pub(super) const SMALL: Geometry =
    Geometry { segment_size: 64 << 10, segments: 200, inode_size: 512 };
/// A place in segment 1, which never belongs to the journal.
pub(super) const DATA: u64 = 64 << 10;

/// No background thread, a small ring.
pub(super) fn quiet() -> Config {
    Config {
        ring_bytes: 64 << 10,
        batch_max: 16 << 10,
        interval: Duration::from_secs(3600),
        write_behind: 32 << 10,
        background: false,
        memory: None,
    }
}

/// A record that contains its identity and whose every byte depends on it.
pub(super) fn body(tag: u64, len: usize) -> Vec<u8> {
    let mut bytes = tag.to_le_bytes().to_vec();
    bytes.extend((0..len as u64).map(|n| (tag.wrapping_mul(31) + n) as u8));
    bytes.truncate(len);
    bytes
}

pub(super) fn tag(record: &[u8]) -> u64 {
    u64::from_le_bytes(record[..8].try_into().unwrap())
}

pub(super) fn run_threads(threads: u64, work: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
}

/// Deterministic pseudo-random numbers (xorshift).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Allocates freed segments first, then 2, 3, 4 …
pub(super) struct Source {
    returned: Mutex<VecDeque<SegNo>>,
    next: AtomicU32,
    left: AtomicU32,
}

impl Source {
    pub(super) fn give_back(&self, segments: &[SegNo]) {
        self.returned.lock().extend(segments);
        self.left.fetch_add(segments.len() as u32, Ordering::SeqCst);
    }
    pub(super) fn set_left(&self, left: u32) {
        self.left.store(left, Ordering::SeqCst);
    }
}

impl SegmentSource for Source {
    fn take(&self) -> Result<SegNo> {
        self.left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .map_err(|_| Error::from(Code::NoSpace))?;
        if let Some(seg) = self.returned.lock().pop_front() {
            return Ok(seg);
        }
        Ok(SegNo(self.next.fetch_add(1, Ordering::SeqCst)))
    }
}

pub(super) struct Rig {
    pub(super) device: Arc<CrashDevice>,
    pub(super) source: Arc<Source>,
    pub(super) counters: Arc<Counters>,
    pub(super) journal: Arc<Journal>,
    pub(super) geometry: Geometry,
    pub(super) start: JournalPos,
}

impl Rig {
    pub(super) fn new(geometry: Geometry, config: Config) -> Rig {
        let device = Arc::new(CrashDevice::new(geometry.bytes()));
        let left = AtomicU32::new(geometry.segments - 2);
        let source = Arc::new(Source { returned: Mutex::default(), next: AtomicU32::new(2), left });
        let counters = Arc::new(Counters::default());
        let fresh = StartAt::Fresh { lsn: START };
        let parts = (device.clone(), source.clone(), counters.clone());
        let journal = start(parts, geometry, fresh, INCARNATION, config).unwrap();
        let start = JournalPos { addr: geometry.start_of(SegNo(2)), lsn: START };
        Rig { device, source, counters, journal, geometry, start }
    }

    /// Mounts the same device again.
    pub(super) fn again(&self, at: StartAt, incarnation: u32, c: Config) -> Result<Arc<Journal>> {
        let parts = (self.device.clone(), self.source.clone(), self.counters.clone());
        start(parts, self.geometry, at, incarnation, c)
    }

    pub(super) fn scan(&self) -> Result<Scanned> {
        self.scan_from(self.start)
    }

    pub(super) fn scan_from(&self, pos: JournalPos) -> Result<Scanned> {
        collect(&*self.device, &self.geometry, pos)
    }
}

type Parts = (Arc<CrashDevice>, Arc<Source>, Arc<Counters>);

fn start(
    parts: Parts,
    geometry: Geometry,
    at: StartAt,
    incarnation: u32,
    config: Config,
) -> Result<Arc<Journal>> {
    let (device, source, counters) = parts;
    Journal::start(device, geometry, VOLUME, incarnation, at, source, counters, config)
}

pub(super) type Scanned = (Vec<(Lsn, Vec<u8>)>, ScanEnd);

pub(super) fn collect(
    device: &dyn Device,
    geometry: &Geometry,
    pos: JournalPos,
) -> Result<Scanned> {
    let mut found = Vec::new();
    let each = |lsn, record: &[u8]| {
        found.push((lsn, record.to_vec()));
        Ok(())
    };
    let end = scan(device, geometry, VOLUME, INCARNATION, pos, each)?;
    Ok((found, end))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fail {
    Nothing,
    Write,
    Flush,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    Write(u64),
    Flush,
}

/// Fault contract: `flush` makes everything durable that was written before the call; a crash keeps
/// any subset of the rest, by sectors of 512 bytes.
pub(super) struct CrashDevice {
    /// The contents seen by reads.
    now: MemDevice,
    state: Mutex<State>,
}

struct State {
    durable: Vec<u8>,
    /// Written but not flushed: sequence number, offset, bytes.
    pending: VecDeque<(u64, u64, Vec<u8>)>,
    sequence: u64,
    fail: Fail,
    flush_time: Duration,
    log: Vec<Op>,
}

impl CrashDevice {
    fn new(capacity: u64) -> CrashDevice {
        let state = State {
            durable: vec![0; capacity as usize],
            pending: VecDeque::new(),
            sequence: 0,
            fail: Fail::Nothing,
            flush_time: Duration::ZERO,
            log: Vec::new(),
        };
        CrashDevice { now: MemDevice::new(capacity), state: Mutex::new(state) }
    }

    pub(super) fn fail(&self, fail: Fail) {
        self.state.lock().fail = fail;
    }
    pub(super) fn set_flush_time(&self, time: Duration) {
        self.state.lock().flush_time = time;
    }
    pub(super) fn log(&self) -> Vec<Op> {
        self.state.lock().log.clone()
    }
    pub(super) fn flushes(&self) -> usize {
        self.state.lock().log.iter().filter(|op| **op == Op::Flush).count()
    }

    /// Returns an image that a crash now might leave. `keep` decides for each sector of each
    /// pending write.
    pub(super) fn crash(&self, mut keep: impl FnMut(u64, usize) -> bool) -> MemDevice {
        let state = self.state.lock();
        let image = MemDevice::new(state.durable.len() as u64);
        image.write_at(&state.durable, 0).unwrap();
        for (sequence, offset, bytes) in &state.pending {
            for (n, sector) in bytes.chunks(512).enumerate() {
                if keep(*sequence, n) {
                    image.write_at(sector, offset + n as u64 * 512).unwrap();
                }
            }
        }
        image
    }

    fn failure(&self, operation: &'static str) -> Error {
        let device = "failing device".into();
        Error::Device(Box::new(DeviceFailure { operation, device, offset: 0, len: 0, errno: 5 }))
    }
}

impl Device for CrashDevice {
    fn capacity(&self) -> u64 {
        self.now.capacity()
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.now.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut state = self.state.lock();
        if state.fail == Fail::Write {
            return Err(self.failure("write"));
        }
        state.log.push(Op::Write(offset));
        let sequence = state.sequence;
        state.sequence += 1;
        state.pending.push_back((sequence, offset, buf.to_vec()));
        self.now.write_at(buf, offset)
    }
    fn write_vectored_at(&self, bufs: &[std::io::IoSlice<'_>], offset: u64) -> Result<()> {
        self.write_at(&bufs.iter().flat_map(|b| b.iter().copied()).collect::<Vec<u8>>(), offset)
    }
    fn flush(&self) -> Result<()> {
        let (upto, time) = {
            let mut state = self.state.lock();
            state.log.push(Op::Flush);
            if state.fail == Fail::Flush {
                return Err(self.failure("flush"));
            }
            (state.sequence, state.flush_time)
        };
        std::thread::sleep(time);
        let mut state = self.state.lock();
        while state.pending.front().is_some_and(|(sequence, ..)| *sequence < upto) {
            if let Some((_, offset, bytes)) = state.pending.pop_front() {
                let place = offset as usize..offset as usize + bytes.len();
                state.durable[place].copy_from_slice(&bytes);
            }
        }
        Ok(())
    }
    fn discard(&self, _: u64, _: u64) -> Result<()> {
        Ok(())
    }
    fn describe(&self) -> String {
        "failing device".into()
    }
}

/// Writes a batch directly. Returns the address after it.
pub(super) fn put_batch(
    device: &dyn Device,
    addr: Addr,
    header: shoal_format::batch::BatchHeader,
    records: &[u8],
) -> Addr {
    let raw = [&header.encode(records)[..], records].concat();
    device.write_at(&raw, addr.0).unwrap();
    Addr(addr.0 + shoal_format::batch::BatchHeader::padded(records.len()) as u64)
}
