//! The faulty device: a volume's bytes in memory, every operation recorded, and everything that a
//! real device may do to them when the power goes.
//!
//! The fault contract. What the device MAY do, and the engine must survive:
//!
//! 1. After a crash, each write since the last successful flush is there, missing, or *torn*: each
//!    of the sectors it touches (counted from the start of the device) is old, new, or garbled,
//!    independently of the others. Sectors are of 512 bytes or of 4 KiB; those of 4 KiB are garbled
//!    as a whole, with bytes in them that the write did not touch, durable or not. So later writes
//!    may survive earlier ones (reordering), and of two writes to the same sector any may win.
//! 2. A read, write, flush or discard fails with EIO or ENOSPC, once or from then on. A failed
//!    write may have changed any of its sectors. A failed flush leaves the writes before it *in
//!    limbo*: a later flush that succeeds does not cover them, as with kernels that drop dirty
//!    pages which they could not write.
//! 3. Discarded bytes read as zero, or as what they were, whichever is worse, also after a flush.
//! 4. In the corruption tests only, to a volume standing still: bits flip, ranges become zero, the
//!    device is cut short.
//! 5. In runs with [`Silent`] wrongs only, at any moment, without saying so: a write goes to
//!    another place, never arrives, arrives with a bit inverted or a sector of zeros; a read
//!    returns an inverted bit, once, or from then on until something is written there.
//!
//! What it MUST NOT do but in 4 and 5, so the engine may rely on it: tear inside a sector of 512
//! bytes without garbling it; lose or change a write that a later successful flush covers, unless
//! another one touches its sector of 4 KiB; change a sector of 4 KiB that no write touched; return
//! other bytes than the newest written ones while it runs.
//!
//! So the engine owes it not to touch a sector of 4 KiB that a flush has made durable. Each write
//! is checked for that (`sectors.rs`).
//!
//! What the engine owes, by point:
//!
//! | what happened | may be lost | must not be |
//! | --- | --- | --- |
//! | 1, 3: a crash | what no `fsync` or `sync` acknowledged, the newest calls first | all else; the state is one that there was |
//! | 2: it fails | the call that met it, with its error; after a failed write or flush every later change (read-only) | what was acknowledged before; a call half done |
//! | 5: a write goes wrong | what was to be there, and what was where it went: calls that need it fail with `EIO`, or the volume becomes read-only, or is refused with a reason. When it was the newest superblock or the journal's end: what came after an older state, which is shown whole | everything else; other bytes, another's name; nothing panics or hangs; the check finds it; a repair leaves nothing to be found but lost contents |
//! | 5: a read goes wrong | the call that met it, with `EIO`; done or not at all, as in 2 | anything, once it reads right again |
//! | an allocation is refused | the call, with `ENOMEM` | anything: it has changed nothing (or it succeeds) |
//!
//! Crash images of *any* moment are made from the recorded operations afterwards, so one run serves
//! for as many crashes as it had device operations.

use crate::crash::CrashCursor;
use crate::image::Image;
use crate::log::{LogOp, SECTOR};
use crate::sectors::Sectors;
use crate::wrongs::{Silent, Wrongs};
use parking_lot::Mutex;
use shoal_base::error::DeviceFailure;
use shoal_base::{Error, Result};
use shoal_device::Device;
use std::ops::Range;
use std::sync::Arc;

/// Errno of an injected I/O error.
pub const EIO: i32 = 5;
/// Errno of an injected lack of space.
pub const ENOSPC: i32 = 28;

/// The kinds of device operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Kind {
    /// `read_at`.
    Read,
    /// `write_at`, `write_vectored_at`.
    Write,
    /// `flush`.
    Flush,
    /// `discard`.
    Discard,
}

/// A failure to inject.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which operations count.
    pub on: Kind,
    /// The how-manieth of them from now on fails (1: the next).
    pub nth: u64,
    /// With which errno.
    pub errno: i32,
    /// Set if all later ones of the kind fail too.
    pub sticky: bool,
}

/// How many operations there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Operations that were made to fail, and reads that returned other bytes.
    pub failed: u64,
    /// Writes that went wrong without saying so.
    pub silent: u64,
}

struct State {
    /// Contents as reads see them.
    current: Image,
    /// Durable contents when the log began.
    base: Image,
    log: Vec<LogOp>,
    /// Number of the log's first operation.
    log_start: u64,
    keep_log: bool,
    /// Flushes are said to be done, and are not.
    lying: bool,
    counts: Counts,
    faults: Vec<Fault>,
    wrongs: Wrongs,
    sectors: Sectors,
}

/// A device in memory that records, fails and crashes as the head of this file says.
pub struct FaultyDevice {
    state: Mutex<State>,
    capacity: u64,
    unchecked: bool,
}

impl FaultyDevice {
    /// An empty device, with which a run begins. So the calling thread gets the first shard:
    /// otherwise the run would depend on the number of threads that the process has had before.
    pub fn new(capacity: u64) -> FaultyDevice {
        shoal_base::shard::set_shard(0);
        FaultyDevice::from_image(Image::new(capacity))
    }

    /// A device whose durable bytes are `image`: what the machine finds after a crash.
    pub fn from_image(image: Image) -> FaultyDevice {
        let capacity = image.capacity();
        let state = State {
            sectors: Sectors::of_image(&image),
            current: image.clone(),
            base: image,
            log: Vec::new(),
            log_start: 0,
            keep_log: true,
            lying: false,
            counts: Counts::default(),
            faults: Vec::new(),
            wrongs: Wrongs::default(),
        };
        FaultyDevice { state: Mutex::new(state), capacity, unchecked: false }
    }

    /// The same, but operations covered by a flush are forgotten: for long runs, which can then be
    /// crashed only at the present moment.
    pub fn forgetful(self) -> FaultyDevice {
        self.state.lock().keep_log = false;
        self
    }

    /// Does not check which sectors are written: with several threads, a flush may cover by chance
    /// what others have written, which nobody was told is durable.
    pub fn unchecked(mut self) -> FaultyDevice {
        self.unchecked = true;
        self
    }

    /// A device that breaks the contract: it says that flushes are done, and does not do them. For
    /// testing the tests: a simulation that does not notice is worth nothing.
    pub fn lying(self) -> FaultyDevice {
        self.state.lock().lying = true;
        self
    }

    /// Number of writes, flushes and discards so far: the present moment, as a crash point.
    pub fn position(&self) -> u64 {
        let state = self.state.lock();
        state.log_start + state.log.len() as u64
    }

    /// Operations so far.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Makes an operation fail later on.
    pub fn inject(&self, fault: Fault) {
        assert!(fault.nth > 0);
        self.state.lock().faults.push(fault);
    }

    /// Makes an operation go wrong later on, without a word.
    pub fn inject_silent(&self, silent: Silent) {
        self.state.lock().wrongs.add(silent);
    }

    /// Nothing fails any more. What wrong writes left behind stays.
    pub fn heal(&self) {
        let mut state = self.state.lock();
        state.faults.clear();
        state.wrongs = Wrongs::default();
    }

    /// Returns the places of the recorded writes, oldest first: places worth damaging.
    pub fn writes(&self) -> Vec<Range<u64>> {
        written(&self.state.lock().log)
    }

    /// Returns the contents as reads see them now: those that remain after the process was killed,
    /// but not the machine.
    pub fn image(&self) -> Image {
        self.state.lock().current.clone()
    }

    /// A cursor over the crash points of the recorded operations, from the oldest to the present.
    /// What a failed flush or a discard left in doubt is decided by `seed`.
    pub fn crashes(&self, seed: u64) -> CrashCursor {
        let state = self.state.lock();
        CrashCursor::new(state.base.clone(), state.log.clone(), state.log_start, seed)
    }

    /// The durable image before the recorded operations, and these.
    pub fn recorded(&self) -> (Image, Vec<LogOp>) {
        let state = self.state.lock();
        (state.base.clone(), state.log.clone())
    }

    /// The image of a crash right now, and its position, taken in one step while others write.
    pub fn crash_now(&self, seed: u64) -> (u64, Image) {
        let mut cursor = self.crashes(seed);
        let position = cursor.last();
        (position, cursor.image_at(position, seed))
    }

    /// Counts an operation and says with which errno it shall fail, if it shall.
    fn count(state: &mut State, kind: Kind) -> Option<i32> {
        let counts = &mut state.counts;
        *match kind {
            Kind::Read => &mut counts.reads,
            Kind::Write => &mut counts.writes,
            Kind::Flush => &mut counts.flushes,
            Kind::Discard => &mut counts.discards,
        } += 1;
        let mut failing = None;
        for fault in state.faults.iter_mut().filter(|f| f.on == kind) {
            match fault.nth {
                0 => {}
                1 => {
                    failing = Some(fault.errno);
                    fault.nth = u64::from(fault.sticky);
                }
                _ => fault.nth -= 1,
            }
        }
        counts.failed += u64::from(failing.is_some());
        failing
    }

    fn failure(&self, operation: &'static str, offset: u64, len: u64, errno: i32) -> Error {
        let device = self.describe();
        Error::Device(Box::new(DeviceFailure { operation, device, offset, len, errno }))
    }

    fn check(&self, operation: &'static str, offset: u64, len: u64) -> Result<()> {
        match offset.checked_add(len) {
            Some(end) if end <= self.capacity => Ok(()),
            _ => Err(self.failure(operation, offset, len, 0)),
        }
    }
}

impl Device for FaultyDevice {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let len = buf.len() as u64;
        self.check("read", offset, len)?;
        let mut state = self.state.lock();
        if let Some(errno) = FaultyDevice::count(&mut state, Kind::Read) {
            return Err(self.failure("read", offset, len, errno));
        }
        let state = &mut *state;
        state.current.read(buf, offset);
        state.counts.failed += u64::from(state.wrongs.of_read(buf, offset));
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let len = buf.len() as u64;
        self.check("write", offset, len)?;
        let mut state = self.state.lock();
        let state = &mut *state;
        let failing = FaultyDevice::count(state, Kind::Write);
        let earlier = || written(&state.log);
        let wrong = state.wrongs.of_write(buf, offset, self.capacity, &earlier);
        if let Some(arrives) = wrong.filter(|_| failing.is_none()) {
            state.counts.silent += 1;
            for (at, data) in arrives {
                state.current.write(&data, at);
                state.log.push(LogOp::Write { offset: at, data: Arc::from(data), ok: true });
            }
            return Ok(());
        }
        if state.counts.silent == 0
            && !self.unchecked
            && let Err(broken) = state.sectors.write(buf, offset)
        {
            panic!("{broken}");
        }
        let ok = failing.is_none();
        state.log.push(LogOp::Write { offset, data: Arc::from(buf), ok });
        if let Some(errno) = failing {
            // Half of a failed write arrives: enough for a reader to see neither old nor new.
            let half = (offset + len / 2) / SECTOR * SECTOR;
            let arrived = half.saturating_sub(offset).min(len) as usize;
            state.current.write(&buf[..arrived], offset);
            return Err(self.failure("write", offset, len, errno));
        }
        state.current.write(buf, offset);
        state.counts.bytes_written += len;
        Ok(())
    }

    fn write_vectored_at(&self, bufs: &[std::io::IoSlice<'_>], offset: u64) -> Result<()> {
        let mut whole = Vec::with_capacity(bufs.iter().map(|b| b.len()).sum());
        bufs.iter().for_each(|b| whole.extend_from_slice(b));
        self.write_at(&whole, offset)
    }

    fn flush(&self) -> Result<()> {
        let mut state = self.state.lock();
        let failing = FaultyDevice::count(&mut state, Kind::Flush);
        if state.lying {
            return Ok(());
        }
        state.log.push(LogOp::Flush { ok: failing.is_none() });
        match failing {
            Some(errno) => Err(self.failure("flush", 0, 0, errno)),
            None => {
                state.sectors.flushed();
                if !state.keep_log {
                    forget(&mut state);
                }
                Ok(())
            }
        }
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check("discard", offset, len)?;
        let mut state = self.state.lock();
        if let Some(errno) = FaultyDevice::count(&mut state, Kind::Discard) {
            return Err(self.failure("discard", offset, len, errno));
        }
        state.current.zero(offset, len);
        state.log.push(LogOp::Discard { offset, len });
        Ok(())
    }

    fn describe(&self) -> String {
        "the simulated device".into()
    }
}

/// Returns the places of the recorded writes, oldest first.
fn written(log: &[LogOp]) -> Vec<Range<u64>> {
    let range = |op: &LogOp| match op {
        LogOp::Write { offset, data, .. } => Some(*offset..*offset + data.len() as u64),
        _ => None,
    };
    log.iter().filter_map(range).filter(|r| !r.is_empty()).collect()
}

/// Folds a log that ends in a successful flush into the base. Writes in limbo are taken as done:
/// a run that injects failures keeps its log.
fn forget(state: &mut State) {
    for op in std::mem::take(&mut state.log) {
        state.log_start += 1;
        match op {
            LogOp::Write { offset, data, .. } => state.base.write(&data, offset),
            LogOp::Discard { offset, len } => state.base.zero(offset, len),
            LogOp::Flush { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(device: &FaultyDevice, offset: u64) -> u8 {
        let mut byte = [0];
        device.read_at(&mut byte, offset).unwrap();
        byte[0]
    }

    #[test]
    fn the_nth_operation_fails_once_or_from_then_on() {
        let device = FaultyDevice::new(1 << 20);
        device.inject(Fault { on: Kind::Write, nth: 2, errno: EIO, sticky: false });
        device.inject(Fault { on: Kind::Flush, nth: 1, errno: ENOSPC, sticky: true });
        device.write_at(&[1; 2048], 0).unwrap();
        let error = device.write_at(&[2; 2048], 0).unwrap_err();
        assert_eq!(error.code(), shoal_base::Code::Io);
        assert_eq!((read(&device, 0), read(&device, 1024)), (2, 1), "half arrives");
        device.write_at(&[3; 2048], 0).unwrap();
        for _ in 0..3 {
            assert_eq!(device.flush().unwrap_err().code(), shoal_base::Code::NoSpace);
        }
        device.heal();
        device.flush().unwrap();
        let counts = device.counts();
        assert_eq!((counts.writes, counts.flushes, counts.failed), (3, 4, 4));
        assert_eq!(device.position(), 7);
    }

    #[test]
    fn a_forgetful_device_still_crashes_now() {
        let device = FaultyDevice::new(1 << 20).forgetful();
        device.write_at(&[1; 512], 0).unwrap();
        device.flush().unwrap();
        device.write_at(&[2; 512], 512).unwrap();
        for seed in 0..32 {
            let (position, image) = device.crash_now(seed);
            let mut bytes = [0; 1024];
            image.read(&mut bytes, 0);
            assert_eq!((position, bytes[0]), (3, 1));
            assert!(bytes[512] == 0 || bytes[512] == 2);
        }
    }

    #[test]
    fn nothing_lies_past_the_end() {
        let device = FaultyDevice::new(4096);
        assert!(device.write_at(&[0; 2], 4095).is_err());
        assert!(device.read_at(&mut [0; 2], u64::MAX).is_err());
        assert!(device.discard(4000, 97).is_err());
        assert_eq!(device.counts(), Counts::default());
    }
}
