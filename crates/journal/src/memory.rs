//! Memory of a ring that outlives its process.
//!
//! Problem: a record waits in the ring for up to the commit interval. A process that is killed
//! takes all of them with it, although the machine is well and each call that staged one has
//! returned.
//!
//! Rule: the ring lies in a mapped file, which outlives the process, best in a folder that is
//! memory. Beside the ring's bytes there is a checksum for each record, stored when the record is
//! complete. Recovery replays the device's journal, and then the records that follow in the ring as
//! long as their checksums match ([`crate::sum`], [`RingMemory::records`]).
//!
//! Proof that these are the records of the killed process, in order and without a gap. A checksum
//! covers the volume, the incarnation, the LSN and the length of its record. A record of an earlier
//! lap of the ring, of an earlier session or of another volume therefore does not match. One is
//! overwritten only when it has been written to the device, and then the device's journal ends
//! behind it. Reading stops at the first record that does not match: it was not complete, or it was
//! damaged. A call returns only when all records before its own are complete
//! ([`Journal::wait_complete`](crate::Journal::wait_complete)), so no call that has returned is
//! behind it.
//!
//! *After a crash of the machine* the content is ignored: it may have been written to a disk, but
//! the data that its records point to may not. So the file holds the number of the boot.
//!
//! *A child of `fork`* does not have the mapping (`MADV_DONTFORK`), so it cannot change the ring of
//! its parent. The volume refuses its calls before they come here.
//!
//! | bytes | content |
//! | --- | --- |
//! | 4096 | [`Head`] |
//! | [`RING_BYTES`] | the ring |
//! | [`RING_BYTES`] / 2 | a checksum of 4 bytes for each 8 bytes of the ring: a record is as long |
//! | 32 × [`CALLS_MAX`] | the call of a thread (`calls.rs`) |

use crate::call_cell::{CALLS_MAX, CallCell};
use crate::sum::crc32c;
use rustix::fs::{FlockOperation, MemfdFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use shoal_base::fork::{self, Origin};
use shoal_base::{Code, Error, Lsn, Result};
use shoal_format::batch::RECORD_HEADER;
use std::cell::UnsafeCell;
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of the ring at most. A small volume uses less.
pub const RING_BYTES: usize = 32 << 20;
const HEAD_BYTES: usize = 4096;
/// A record is at least as long, with its header.
const PLACE_BYTES: usize = 8;
const SUM_BYTES: usize = RING_BYTES / PLACE_BYTES * size_of::<AtomicU32>();
const CALL_BYTES: usize = CALLS_MAX * size_of::<CallCell>();
const FILE_BYTES: usize = HEAD_BYTES + RING_BYTES + SUM_BYTES + CALL_BYTES;
/// Identifies the file, with the version of its layout in the lowest byte.
const MAGIC: u64 = 0x5348_4f41_4c52_4e03;

/// Head of the file. Words of the machine's own byte order: it never leaves the machine.
#[repr(C)]
struct Head {
    magic: AtomicU64,
    /// The volume whose records are in the ring, by the low half of its id; 0: none.
    volume: AtomicU64,
    /// The boot in which they were staged.
    boot: [AtomicU64; 2],
    /// Bytes of the ring that are in use, a power of two.
    capacity: AtomicU64,
}

/// Memory of a ring that outlives its process.
#[derive(Debug)]
pub struct RingMemory {
    base: NonNull<u8>,
    name: String,
    /// Holds the lock.
    file: File,
    /// This value has taken the lock, and nobody else is meant to keep it.
    owns_lock: bool,
    origin: Origin,
}

// SAFETY: the mapping belongs to this value. Its words are atomics; its bytes are accessed as the
// protocol of the ring (`ring.rs`) allows.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// Returns whether records may be in it that are nowhere else: a volume has used it in this
    /// boot, and has not been closed.
    pub fn holds_records(&self) -> bool {
        self.head().volume.load(Ordering::Acquire) != 0 && self.is_of_this_boot()
    }

    /// Returns whether this volume has used it in this boot, and has not been closed: the process
    /// has ended, and the machine has not stopped since.
    pub fn is_of(&self, volume: u64) -> bool {
        self.head().volume.load(Ordering::Acquire) == volume && self.is_of_this_boot()
    }

    /// Opens the file of a ring, and makes it if it is missing, readable by its owner alone.
    ///
    /// # Errors
    /// `EBUSY`: another process uses it. `EINVAL`: the file is not that of a ring, or of one of
    /// another version.
    pub fn open(path: &Path) -> Result<RingMemory> {
        let name = path.display().to_string();
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|os| refused(Code::Io, &name, &format!("cannot be opened: {os}")))?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| refused(Code::Busy, &name, "another process uses it"))?;
        let mut memory = RingMemory::of(file.into(), name)?;
        memory.owns_lock = true;
        Ok(memory)
    }

    /// Makes a ring in memory without a name. It lives as long as a descriptor of it
    /// ([`RingMemory::file`]) or this value.
    pub fn without_name() -> Result<RingMemory> {
        let file = rustix::fs::memfd_create("shoal-ring", MemfdFlags::CLOEXEC);
        let file = file.map_err(|os| refused(Code::NoMemory, "in memory", &os.to_string()))?;
        RingMemory::of(file.into(), "in memory".to_owned())
    }

    /// Maps a file that is open.
    ///
    /// # Errors
    /// As [`RingMemory::open`].
    pub fn of(file: File, name: String) -> Result<RingMemory> {
        let failed = |e: std::io::Error| refused(Code::Io, &name, &e.to_string());
        let bytes = file.metadata().map_err(failed)?.len();
        if bytes != 0 && bytes != FILE_BYTES as u64 {
            return Err(refused(Code::Invalid, &name, "the file is not that of a ring"));
        }
        // All of it, so that no store fails later for want of memory.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, FILE_BYTES as u64)
            .map_err(|os| failed(os.into()))?;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses, of a file that is as long.
        let base =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), FILE_BYTES, prot, flags, &file, 0) };
        let base = base.map_err(|os| failed(os.into()))?;
        let base = NonNull::new(base.cast::<u8>())
            .ok_or_else(|| refused(Code::NoMemory, &name, "it was mapped at no address"))?;
        let origin = Origin::here();
        let memory = RingMemory { base, name, file, owns_lock: false, origin };
        let advice = rustix::mm::Advice::LinuxDontFork;
        // SAFETY: the whole mapping, of which only a child has none then. A child makes no access:
        // the volume's calls check the origin first, and so does `drop`.
        let advised = unsafe { rustix::mm::madvise(base.as_ptr().cast(), FILE_BYTES, advice) };
        advised.map_err(|os| refused(Code::Io, &memory.name, &format!("madvise: {os}")))?;
        let magic = memory.head().magic.load(Ordering::Acquire);
        match magic {
            0 => memory.head().magic.store(MAGIC, Ordering::Release),
            MAGIC => {}
            _ => {
                let why = "the file is that of no ring, or of one of another version of Shoal: \
                           open and close its volume with that version, or name another file";
                return Err(refused(Code::Invalid, &memory.name, why));
            }
        }
        Ok(memory)
    }

    /// The file. While a descriptor of it is open the ring lives, with or without a name.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Closes the descriptor in a child of `fork`, which does not have the mapping.
    pub fn abandon(&self) {
        fork::release(self.file.as_fd());
    }

    fn head(&self) -> &Head {
        // SAFETY: the mapping begins with as many bytes, aligned to a page; any bits are valid, and
        // all access is by atomics.
        unsafe { self.base.cast::<Head>().as_ref() }
    }

    /// The ring's bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> &[UnsafeCell<u8>] {
        // SAFETY: within the mapping, which lives as long as `self`; `UnsafeCell<u8>` has the
        // layout of `u8`.
        unsafe { std::slice::from_raw_parts(self.base.add(HEAD_BYTES).cast().as_ptr(), RING_BYTES) }
    }

    #[inline]
    fn sums(&self) -> &[AtomicU32] {
        let count = RING_BYTES / PLACE_BYTES;
        // SAFETY: within the mapping, aligned because what is before it are whole pages; all access
        // is by atomics.
        unsafe {
            let sums = self.base.add(HEAD_BYTES + RING_BYTES).cast::<AtomicU32>();
            std::slice::from_raw_parts(sums.as_ptr(), count)
        }
    }

    /// The calls of threads.
    #[inline]
    pub(crate) fn calls(&self) -> &[CallCell] {
        // SAFETY: within the mapping, aligned because what is before it are whole pages; any bits
        // are valid, and all access is by atomics.
        unsafe {
            let calls = self.base.add(HEAD_BYTES + RING_BYTES + SUM_BYTES).cast::<CallCell>();
            std::slice::from_raw_parts(calls.as_ptr(), CALLS_MAX)
        }
    }

    /// Begins to use the first `capacity` bytes for a volume.
    pub(crate) fn begin(&self, volume: u64, capacity: u64) {
        let head = self.head();
        head.capacity.store(capacity, Ordering::Relaxed);
        for (word, value) in head.boot.iter().zip(boot()) {
            word.store(value, Ordering::Relaxed);
        }
        head.volume.store(volume, Ordering::Release);
    }

    /// Records that nothing in the ring is needed any more.
    pub fn end(&self) {
        self.head().volume.store(0, Ordering::Release);
    }

    /// Refuses a ring that holds records of another volume, staged in this boot: they would be
    /// lost.
    ///
    /// # Errors
    /// `EBUSY`, with the remedy.
    pub fn check_owner(&self, volume: u64) -> Result<()> {
        let owner = self.head().volume.load(Ordering::Acquire);
        if owner == 0 || owner == volume || !self.is_of_this_boot() {
            return Ok(());
        }
        let why = "it may hold the last changes of another volume: open that one with it first, or \
                   name another file";
        Err(refused(Code::Busy, &self.name, why))
    }

    fn is_of_this_boot(&self) -> bool {
        let head = self.head();
        head.boot.iter().zip(boot()).all(|(word, own)| word.load(Ordering::Relaxed) == own)
    }

    /// Reads the complete records from `from` on, the end of the device's journal, as long as one
    /// follows the other. `each` gets the LSN just after a record, and its bytes. Returns the end
    /// of the last one. Nobody may be staging.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn records(
        &self,
        volume: u64,
        incarnation: u32,
        from: Lsn,
        each: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<Lsn> {
        let capacity = self.head().capacity.load(Ordering::Acquire);
        if !self.is_of(volume) || !is_capacity(capacity) {
            return Ok(from);
        }
        let seed = seed(volume, incarnation);
        let (mut at, mut record) = (from.0, Vec::new());
        // Once around at most.
        while at - from.0 < capacity {
            let mut head = [0; RECORD_HEADER];
            self.copy(at, capacity, &mut head);
            let len = u64::from(u32::from_le_bytes(head));
            let Some(end) = at.checked_add(RECORD_HEADER as u64 + len) else { break };
            if end - from.0 > capacity {
                break;
            }
            record.resize(len as usize, 0);
            self.copy(at + RECORD_HEADER as u64, capacity, &mut record);
            let sum = self.sums()[place(at, capacity)].load(Ordering::Acquire);
            if sum != sum_of(seed, at, &record) {
                break;
            }
            each(Lsn(end), &record)?;
            at = end;
        }
        Ok(Lsn(at))
    }

    /// Copies bytes out of the ring, around its end if need be.
    fn copy(&self, from: u64, capacity: u64, into: &mut [u8]) {
        let at = (from & (capacity - 1)) as usize;
        let bytes = &self.bytes()[..capacity as usize];
        let (head, rest) = into.split_at_mut(into.len().min(bytes.len() - at));
        for (part, from) in [(head, &bytes[at..]), (rest, bytes)] {
            for (byte, cell) in part.iter_mut().zip(from) {
                // SAFETY: valid memory; nobody writes to it (a promise of the caller of `records`),
                // and any value of a byte is valid.
                *byte = unsafe { *cell.get() };
            }
        }
    }
}

impl Drop for RingMemory {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // There may be another mapping at its address.
            return;
        }
        if self.owns_lock {
            // Closing the file would not release it while a forked child has it open.
            let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        }
        // SAFETY: the whole mapping, of which no reference is left.
        let unmapped = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), FILE_BYTES) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// The checksums of one journal's records.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    memory: Arc<RingMemory>,
    seed: u64,
    capacity: u64,
}

impl Sums {
    /// Begins a journal of `incarnation` in the memory.
    pub(crate) fn new(
        memory: Arc<RingMemory>,
        volume: u64,
        incarnation: u32,
        capacity: u64,
    ) -> Sums {
        memory.begin(volume, capacity);
        Sums { memory, seed: seed(volume, incarnation), capacity }
    }

    pub(crate) fn memory(&self) -> &Arc<RingMemory> {
        &self.memory
    }

    /// Records that a record is complete: its bytes are in the ring.
    #[inline]
    pub(crate) fn complete(&self, start: u64, record: &[u8]) {
        let sum = sum_of(self.seed, start, record);
        self.memory.sums()[place(start, self.capacity)].store(sum, Ordering::Release);
    }
}

#[inline]
fn place(start: u64, capacity: u64) -> usize {
    (start & (capacity - 1)) as usize / PLACE_BYTES
}

fn is_capacity(capacity: u64) -> bool {
    capacity.is_power_of_two() && (PLACE_BYTES as u64..=RING_BYTES as u64).contains(&capacity)
}

fn seed(volume: u64, incarnation: u32) -> u64 {
    volume ^ u64::from(incarnation).rotate_left(32)
}

/// Returns the checksum of a record. That of the same bytes is another one with each lap of the
/// ring: LSNs that differ by a multiple of its capacity differ above bit 42 when they are rotated,
/// and so do their products, of which the upper half is used.
#[inline]
fn sum_of(seed: u64, start: u64, record: &[u8]) -> u32 {
    /// Odd, so that the product of another number is another one.
    const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
    let place = (seed ^ start.rotate_left(17) ^ record.len() as u64).wrapping_mul(SPREAD);
    crc32c((place >> 32) as u32, record)
}

/// The number of the machine's boot; 0 where there is none.
fn boot() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).unwrap_or(0);
    [(number >> 64) as u64, number as u64]
}

#[cold]
fn refused(code: Code, name: &str, why: &str) -> Error {
    Error::refused(code, format!("ring {name}: {why}"))
}
