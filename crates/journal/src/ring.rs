//! The ring in which records wait to be written: many threads copy into it concurrently, one reader
//! takes out complete records. The only unsafe code of the journal.
//!
//! Positions are LSNs: they only grow. Position `p` is at byte `p % capacity`.
//!
//! # Protocol
//!
//! ```text
//! stager   t = the cell's last end          reader   end = tail
//!          cell: IDLE -> t  (claims it)              safe = min(end, every cell)
//!          start = tail; tail += len                 reads consumed .. safe
//!          cell: t -> start                          consumed = safe
//!          waits until end - consumed <= capacity
//!          copies into start .. end
//!          the cell's last end = end
//!          cell: start -> IDLE
//! ```
//!
//! `tail` is the one cache line that all stagers write, each once. The bound that claims a cell is
//! the value of `tail` when the cell was last used, which is stored in the cell's own line. It is
//! at most `start`: the claim reads the store that released the cell, so the additions of all
//! earlier users come before the claimant's.
//!
//! *Everything below `safe` is complete.* Take a reservation with `start < safe`. Its `tail += len`
//! came before the reader's load of `tail`, and the claim of its cell before that. So the reader
//! sees in that cell either `t` or `start`, and `safe` would not be above it; or a later value, and
//! then the copy has happened before, because a cell is released only after the copy (release), and
//! is read with acquire.
//!
//! *No copy overwrites bytes that are still to be read*, because a copy waits for `consumed`.
//!
//! A thread that waits for room has set its cell to `start`, so everything below `start` can be
//! taken out. Records are never longer than the ring, so the waiter with the lowest `start` gets
//! room.
//!
//! A thread tries the cell of its shard first, but any free cell will do: threads that share a
//! shard do not wait.

use crate::memory::{RingMemory, Sums};
use crossbeam_utils::CachePadded;
use shoal_base::invariant;
use std::sync::Arc;

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
#[cfg(not(feature = "loom"))]
use shoal_base::sync::{AtomicU64, AtomicUsize};
#[cfg(not(feature = "loom"))]
use std::sync::atomic::Ordering;

/// Value of a cell without a reservation.
const IDLE: u64 = u64::MAX;

/// The ring.
pub(crate) struct Ring {
    bytes: Bytes,
    capacity: u64,
    /// End of the last reservation.
    tail: CachePadded<AtomicU64>,
    /// End of the bytes taken out.
    consumed: CachePadded<AtomicU64>,
    cells: Box<[CachePadded<Cell>]>,
    /// Number of cells of which one or more were ever in use: only these need to be looked at.
    cells_used: CachePadded<AtomicUsize>,
    /// Checksums of complete records, if the ring outlives its process.
    sums: Option<Sums>,
}

/// The slot of an unfinished reservation.
struct Cell {
    /// A lower bound of the reservation's start, or [`IDLE`].
    bound: AtomicU64,
    /// End of the last reservation. Written by the holder of the cell.
    last: AtomicU64,
}

/// The right to take bytes out of the ring it was made with. There is exactly one.
pub(crate) struct Reader {
    consumed: u64,
    safe: u64,
}

/// Space for one record, to be filled. Dropping it stops the ring for good, because its cell is
/// never released. A poisoned journal relies on that.
pub(crate) struct Reservation<'a> {
    ring: &'a Ring,
    cell: usize,
    /// First position.
    pub(crate) start: u64,
    /// Position after the last.
    pub(crate) end: u64,
}

impl Cell {
    fn new(start: u64) -> Cell {
        Cell { bound: AtomicU64::new(IDLE), last: AtomicU64::new(start) }
    }
}

impl Ring {
    /// Makes a ring of `capacity` bytes (a power of two) that starts at position `start`, for up to
    /// `cells` unfinished reservations, and its reader. With `sums` it lies in their memory.
    pub(crate) fn new(
        capacity: usize,
        start: u64,
        cells: usize,
        sums: Option<Sums>,
    ) -> (Ring, Reader) {
        assert!(capacity.is_power_of_two() && cells > 0);
        let ring = Ring {
            bytes: match &sums {
                None => Bytes::zeroed(capacity),
                Some(sums) => Bytes::kept(sums, capacity),
            },
            capacity: capacity as u64,
            tail: CachePadded::new(AtomicU64::new(start)),
            consumed: CachePadded::new(AtomicU64::new(start)),
            cells: (0..cells).map(|_| CachePadded::new(Cell::new(start))).collect(),
            cells_used: CachePadded::new(AtomicUsize::new(0)),
            sums,
        };
        (ring, Reader { consumed: start, safe: start })
    }

    /// End of the reserved bytes.
    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    /// End of the bytes taken out.
    #[inline]
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Acquire)
    }

    /// Returns whether less than a quarter of it is free.
    #[inline]
    pub(crate) fn is_nearly_full(&self) -> bool {
        self.tail().saturating_sub(self.consumed()) > self.capacity / 4 * 3
    }

    /// Reserves `len` bytes. `hint` selects the cell to try first. `None` if all cells are in use.
    #[inline]
    pub(crate) fn reserve(&self, hint: usize, len: usize) -> Option<Reservation<'_>> {
        invariant!(len as u64 <= self.capacity, "a record of {len} bytes");
        let cell = self.claim(hint)?;
        if cell >= self.cells_used.load(Ordering::Relaxed) {
            // Before the addition: whoever has a later position sees it.
            self.cells_used.fetch_max(cell + 1, Ordering::Relaxed);
        }
        let start = self.tail.fetch_add(len as u64, Ordering::AcqRel);
        let place = &self.cells[cell];
        // From here on everything below can be taken out.
        place.bound.store(start, Ordering::Release);
        place.last.store(start + len as u64, Ordering::Relaxed);
        Some(Reservation { ring: self, cell, start, end: start + len as u64 })
    }

    /// Claims an idle cell by storing a lower bound of the coming reservation in it.
    #[inline]
    fn claim(&self, hint: usize) -> Option<usize> {
        let count = self.cells.len();
        (0..count).map(|n| (hint + n) % count).find(|cell| {
            let cell = &self.cells[*cell];
            let last = cell.last.load(Ordering::Relaxed);
            let swap = cell.bound.compare_exchange(IDLE, last, Ordering::AcqRel, Ordering::Relaxed);
            swap.is_ok()
        })
    }

    /// Determines how far the ring can be read now.
    pub(crate) fn look(&self, reader: &mut Reader) -> u64 {
        let end = self.tail.load(Ordering::Acquire);
        let cells = self.cells.iter().map(|c| c.bound.load(Ordering::Acquire));
        let safe = cells.fold(end, u64::min);
        // A thread may publish a bound that it loaded long ago, so `safe` must never decrease.
        reader.safe = reader.safe.max(safe);
        reader.safe
    }

    /// Returns whether the ring outlives its process.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.sums.is_some()
    }

    /// The memory that outlives the process, if the ring lies there.
    #[inline]
    pub(crate) fn memory(&self) -> Option<&Arc<RingMemory>> {
        self.sums.as_ref().map(Sums::memory)
    }

    /// Returns whether all records below `upto` are complete. `upto` must be the end of a
    /// reservation of the caller, or of one that happened before.
    #[inline]
    pub(crate) fn is_complete(&self, upto: u64) -> bool {
        let used = self.cells_used.load(Ordering::Relaxed);
        self.cells[..used].iter().all(|cell| cell.bound.load(Ordering::Acquire) >= upto)
    }

    /// Calls `f` with the bytes of `from .. to`, in two pieces if they wrap around the ring's end.
    #[inline]
    pub(crate) fn read<T>(
        &self,
        reader: &Reader,
        from: u64,
        to: u64,
        f: impl FnOnce(&[u8], &[u8]) -> T,
    ) -> T {
        invariant!(
            reader.consumed <= from && from <= to && to <= reader.safe,
            "read of {from}..{to}, safe are {}..{}",
            reader.consumed,
            reader.safe
        );
        let (at, head, rest) = self.pieces(from, (to - from) as usize);
        // SAFETY: `consumed <= from` and `to <= safe`, so by the protocol every copy into these
        // bytes has happened before, and none starts before `consume`, which needs `&mut Reader`.
        unsafe { f(&self.bytes.get(at, head), &self.bytes.get(0, rest)) }
    }

    /// Frees everything below `upto` for the stagers.
    pub(crate) fn consume(&self, reader: &mut Reader, upto: u64) {
        let safe = reader.consumed..=reader.safe;
        invariant!(safe.contains(&upto), "consumed up to {upto}, safe are {safe:?}");
        reader.consumed = upto;
        self.consumed.store(upto, Ordering::Release);
    }

    /// Splits `len` bytes from `from`: offset, bytes there, bytes at the start of the ring.
    #[inline]
    fn pieces(&self, from: u64, len: usize) -> (usize, usize, usize) {
        let at = (from & (self.capacity - 1)) as usize;
        let head = len.min(self.capacity as usize - at);
        (at, head, len - head)
    }
}

impl Reader {
    /// The first position not taken out yet.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }
}

impl Reservation<'_> {
    /// Returns whether the ring has room for it now. Once `true`, it stays `true`.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.end - self.ring.consumed().min(self.end) <= self.ring.capacity
    }

    /// Copies `head`, then `body`, which must together have the reserved length, and releases the
    /// reservation. There must be room.
    #[inline]
    pub(crate) fn fill(self, head: &[u8], body: &[u8]) {
        let (len, reserved) = ((head.len() + body.len()) as u64, self.end - self.start);
        invariant!(len == reserved, "{len} bytes into a place for {reserved}");
        invariant!(self.has_room(), "filled before there is room");
        self.copy(self.start, head);
        self.copy(self.start + head.len() as u64, body);
        if let Some(sums) = &self.ring.sums {
            sums.complete(self.start, body);
        }
        self.ring.cells[self.cell].bound.store(IDLE, Ordering::Release);
    }

    #[inline]
    fn copy(&self, from: u64, bytes: &[u8]) {
        let (at, head, rest) = self.ring.pieces(from, bytes.len());
        // SAFETY: the bytes belong to this reservation alone (`fetch_add` assigns them once), the
        // reader is done with their previous contents (`has_room`), and does not read them before
        // the cell is released.
        unsafe {
            self.ring.bytes.put(at, &bytes[..head]);
            if rest > 0 {
                self.ring.bytes.put(0, &bytes[head..]);
            }
        }
    }
}

#[cfg(not(feature = "loom"))]
use plain::Bytes;

#[cfg(not(feature = "loom"))]
mod plain {
    //! The bytes, shared by reservations that do not overlap.

    use crate::memory::{RingMemory, Sums};
    use std::cell::UnsafeCell;
    use std::ptr::NonNull;
    use std::sync::Arc;

    /// In one form, wherever they lie: every record asks for the address.
    pub(super) struct Bytes {
        /// Of `memory`, or a box.
        all: NonNull<[UnsafeCell<u8>]>,
        /// Memory that outlives the process.
        memory: Option<Arc<RingMemory>>,
    }

    // SAFETY: access is only through `put` and `get`, whose callers promise that overlapping
    // accesses, of which one writes, are ordered by happens-before.
    unsafe impl Sync for Bytes {}
    // SAFETY: both owners of the bytes may move to another thread.
    unsafe impl Send for Bytes {}

    impl Bytes {
        pub(super) fn zeroed(capacity: usize) -> Bytes {
            let plain = Box::into_raw(vec![0u8; capacity].into_boxed_slice());
            // (Built this way because zeroed memory then comes from the system untouched.)
            // SAFETY: a box is never at address 0. `UnsafeCell<u8>` has the layout of `u8`.
            let all = unsafe { NonNull::new_unchecked(plain as *mut [UnsafeCell<u8>]) };
            Bytes { all, memory: None }
        }

        pub(super) fn kept(sums: &Sums, capacity: usize) -> Bytes {
            let memory = sums.memory().clone();
            // The memory is mapped for as long as `memory` lives.
            let all = NonNull::from(&memory.bytes()[..capacity]);
            Bytes { all, memory: Some(memory) }
        }

        #[inline]
        fn all(&self) -> &[UnsafeCell<u8>] {
            // SAFETY: owned by this value, as long as it lives.
            unsafe { self.all.as_ref() }
        }

        /// # Safety
        /// No other access to these bytes at the same time.
        #[inline]
        pub(super) unsafe fn put(&self, at: usize, bytes: &[u8]) {
            let place = &self.all()[at..at + bytes.len()];
            // SAFETY: `place` is exactly as long as `bytes`, and nothing else accesses it (caller).
            unsafe {
                let place = UnsafeCell::raw_get(place.as_ptr());
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len());
            }
        }

        /// # Safety
        /// No write to these bytes while the slice lives.
        #[inline]
        pub(super) unsafe fn get(
            &self,
            at: usize,
            len: usize,
        ) -> impl std::ops::Deref<Target = [u8]> {
            let place = &self.all()[at..at + len];
            // SAFETY: as long as `place`; nothing writes to it meanwhile (caller).
            let bytes: &[u8] =
                unsafe { std::slice::from_raw_parts(UnsafeCell::raw_get(place.as_ptr()), len) };
            bytes
        }
    }

    impl Drop for Bytes {
        fn drop(&mut self) {
            if self.memory.is_none() {
                // SAFETY: it came from a box, and nothing else owns it.
                drop(unsafe { Box::from_raw(self.all.as_ptr()) });
            }
        }
    }
}

#[cfg(feature = "loom")]
use checked::Bytes;

#[cfg(feature = "loom")]
mod checked {
    //! The bytes under the model checker, which sees every access to each.

    use loom::cell::UnsafeCell;

    pub(super) struct Bytes(Vec<UnsafeCell<u8>>);

    // SAFETY: as the plain one; here loom proves it.
    unsafe impl Sync for Bytes {}
    // SAFETY: bytes may move to another thread.
    unsafe impl Send for Bytes {}

    impl Bytes {
        pub(super) fn zeroed(capacity: usize) -> Bytes {
            Bytes((0..capacity).map(|_| UnsafeCell::new(0)).collect())
        }

        /// As large a ring, of which the model sees every access.
        pub(super) fn kept(sums: &crate::memory::Sums, capacity: usize) -> Bytes {
            Bytes::zeroed(capacity.min(sums.memory().bytes().len()))
        }

        /// # Safety
        /// As the plain one.
        pub(super) unsafe fn put(&self, at: usize, bytes: &[u8]) {
            for (cell, byte) in self.0[at..].iter().zip(bytes) {
                // SAFETY: the pointer is valid; loom checks that nothing else accesses it.
                cell.with_mut(|p| unsafe { *p = *byte });
            }
        }

        /// # Safety
        /// As the plain one.
        pub(super) unsafe fn get(&self, at: usize, len: usize) -> Vec<u8> {
            // SAFETY: the pointer is valid; loom checks that nothing writes to it.
            self.0[at..at + len].iter().map(|cell| cell.with(|p| unsafe { *p })).collect()
        }
    }
}

#[cfg(all(test, feature = "loom"))]
mod model {
    //! Every interleaving, and every value that the memory model allows a load to see.

    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Reads complete records and checks that they are whole: each byte is its writer's.
    fn drain(ring: &Ring, reader: &mut Reader, seen: &mut Vec<u8>) {
        let from = reader.consumed();
        let safe = ring.look(reader);
        ring.read(reader, from, safe, |head, rest| {
            seen.extend_from_slice(head);
            seen.extend_from_slice(rest);
        });
        ring.consume(reader, safe);
    }

    /// Stages a record of two bytes. Returns `false` if there is no cell or no room. (Real callers
    /// retry; a model that spins has no end.)
    fn stage(ring: &Ring, hint: usize, byte: u8) -> bool {
        let Some(reservation) = ring.reserve(hint, 2) else { return false };
        if !reservation.has_room() {
            return false;
        }
        reservation.fill(&[byte], &[byte]);
        true
    }

    /// Two threads stage while this one reads; `full` records are in the ring already.
    fn check(capacity: usize, cells: usize, full: u8) {
        let mut model = loom::model::Builder::new();
        // Three found no planted defect that two do not, and take ten times as long.
        model.preemption_bound = Some(2);
        model.check(move || {
            let (ring, mut reader) = Ring::new(capacity, 6, cells, None);
            let ring = Arc::new(ring);
            let mut staged: Vec<u8> = (0..full).map(|n| 10 + n).collect();
            staged.iter().for_each(|byte| assert!(stage(&ring, 0, *byte)));
            let spawn = |byte: u8| {
                let ring = ring.clone();
                thread::spawn(move || stage(&ring, byte.into(), byte).then_some(byte))
            };
            let (one, two) = (spawn(1), spawn(2));
            let mut seen = Vec::new();
            drain(&ring, &mut reader, &mut seen);
            drain(&ring, &mut reader, &mut seen);
            let outcomes = [one.join().unwrap(), two.join().unwrap()];
            staged.extend(outcomes.iter().flatten());
            drain(&ring, &mut reader, &mut seen);
            assert!(seen.chunks(2).all(|pair| pair[0] == pair[1] && pair[0] != 0));
            let mut records: Vec<u8> = seen.chunks(2).map(|pair| pair[0]).collect();
            records.sort();
            staged.sort();
            // A reservation that found no room is a hole: nothing after it may come out.
            let hole = ring.tail() - reader.consumed() > 0;
            assert!(records == staged || hole && records.iter().all(|r| staged.contains(r)));
        });
    }

    #[test]
    fn two_stagers_with_cells_of_their_own() {
        check(8, 2, 0);
    }

    #[test]
    fn two_stagers_share_a_cell() {
        check(8, 1, 0);
    }

    #[test]
    fn two_stagers_and_room_for_one_record_more() {
        check(4, 2, 1);
    }

    #[test]
    fn two_stagers_and_no_room_until_the_reader_makes_some() {
        check(2, 2, 1);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn records_wrap_around_and_come_out_in_order() {
        let (ring, mut reader) = Ring::new(64, 1000, 2, None);
        let mut expected = Vec::new();
        let mut found = Vec::new();
        for n in 0..200u8 {
            let body = vec![n; usize::from(n % 23)];
            let reservation = ring.reserve(n.into(), 1 + body.len()).unwrap();
            assert!(reservation.has_room());
            reservation.fill(&[n], &body);
            expected.extend(std::iter::repeat_n(n, 1 + body.len()));
            if n % 3 == 2 || ring.tail() - reader.consumed() > 30 {
                let from = reader.consumed();
                let safe = ring.look(&mut reader);
                assert_eq!(safe, ring.tail());
                ring.read(&reader, from, safe, |a, b| {
                    found.extend_from_slice(a);
                    found.extend_from_slice(b);
                });
                ring.consume(&mut reader, safe);
            }
        }
        assert_eq!(found, expected[..found.len()]);
        assert!(expected.len() - found.len() < 64);
    }

    #[test]
    fn an_unfinished_reservation_holds_the_reader_back_but_only_there() {
        let (ring, mut reader) = Ring::new(64, 0, 2, None);
        ring.reserve(0, 4).unwrap().fill(b"abcd", b"");
        let open = ring.reserve(0, 4).unwrap();
        ring.reserve(0, 4).unwrap().fill(b"ij", b"kl");
        assert_eq!(ring.look(&mut reader), 4);
        assert!(open.has_room());
        let second = ring.reserve(1, 1).unwrap();
        assert!(ring.reserve(0, 1).is_none(), "both cells are taken");
        open.fill(b"efgh", b"");
        assert_eq!(ring.look(&mut reader), 12);
        second.fill(b"m", b"");
        assert_eq!(ring.look(&mut reader), 13);
        ring.read(&reader, 2, 13, |a, b| assert_eq!((a, b), (&b"cdefghijklm"[..], &b""[..])));
    }

    #[test]
    fn a_full_ring_has_room_again_after_consume() {
        let (ring, mut reader) = Ring::new(8, 0, 4, None);
        ring.reserve(0, 8).unwrap().fill(&[1; 8], b"");
        let waiting = ring.reserve(0, 5).unwrap();
        assert!(!waiting.has_room());
        assert_eq!(ring.look(&mut reader), 8);
        ring.consume(&mut reader, 5);
        assert!(waiting.has_room());
        waiting.fill(&[2; 5], b"");
        assert_eq!(ring.look(&mut reader), 13);
        ring.read(&reader, 5, 13, |a, b| assert_eq!((a, b), (&[1; 3][..], &[2; 5][..])));
    }
}
