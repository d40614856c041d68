//! Memory of a ring's slots, which kernel and server use in turn.
//!
//! A slot belongs to the kernel from the submission of its command to that command's completion,
//! and to the server from there to the next submission. [`Held`] is the proof that the server owns
//! it: made from a completion, used up by a commit.
//!
//! Pages are touched only when used: a slot that never sees a large request costs two.

use crate::protocol::wire::{RING_HEAD, RING_IN_OUT, RING_OP, RingVector};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::io;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};

/// Distance of a slot's payload from its head: a page, so that the payload is page-aligned.
const HEAD_ROOM: usize = 4096;

/// Slots of one ring.
pub(super) struct Slots {
    base: NonNull<u8>,
    payload: usize,
    count: u16,
    /// Two vectors for each slot, as the kernel reads them at registration.
    vectors: Box<[[RingVector; 2]]>,
}

// SAFETY: the memory is reached only through a `Held`, of which there is one for each slot.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

/// A slot that the server owns.
pub(super) struct Held {
    slot: u16,
    /// Keeps the type from being `Copy`.
    _not_copied: PhantomData<Box<()>>,
}

impl Held {
    /// Returns its number.
    pub(super) fn slot(&self) -> u16 {
        self.slot
    }
}

/// The parts of a slot.
pub(super) struct Slot<'a> {
    /// Header of the request, then of the reply.
    pub in_out: &'a mut [u8],
    /// Structure of the operation.
    pub op: &'a mut [u8],
    /// Number and sizes.
    pub entry: &'a mut [u8],
    /// Names and data of the request, then the reply's body.
    pub payload: &'a mut [u8],
}

impl<'a> Slot<'a> {
    /// Divides a head ([`RING_HEAD`] bytes).
    pub(super) fn of(head: &'a mut [u8], payload: &'a mut [u8]) -> Slot<'a> {
        let (in_out, rest) = head.split_at_mut(RING_IN_OUT);
        let (op, entry) = rest.split_at_mut(RING_OP);
        Slot { in_out, op, entry, payload }
    }
}

impl Slots {
    /// Allocates `count` slots with payloads of `payload` bytes.
    pub(super) fn new(count: u16, payload: usize) -> io::Result<Slots> {
        let payload = payload.next_multiple_of(HEAD_ROOM);
        let len = usize::from(count) * (HEAD_ROOM + payload);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, protection, flags)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut slots = Slots { base, payload, count, vectors: Box::default() };
        slots.vectors = (0..count).map(|slot| slots.vectors_of(slot)).collect();
        Ok(slots)
    }

    /// Returns the number of slots.
    pub(super) fn count(&self) -> u16 {
        self.count
    }

    fn stride(&self) -> usize {
        HEAD_ROOM + self.payload
    }

    fn head(&self, slot: u16) -> NonNull<u8> {
        assert!(slot < self.count);
        // SAFETY: within the mapping, because `slot` is below the count it was made for.
        unsafe { self.base.add(usize::from(slot) * self.stride()) }
    }

    fn vectors_of(&self, slot: u16) -> [RingVector; 2] {
        let address = self.head(slot).addr().get() as u64;
        let payload = address + HEAD_ROOM as u64;
        [(address, RING_HEAD), (payload, self.payload)]
            .map(|(address, len)| RingVector { address, len: len as u64 })
    }

    /// Returns the address of the two vectors of a slot; valid as long as the slots are.
    pub(super) fn vectors(&self, slot: u16) -> u64 {
        ptr::from_ref(&self.vectors[usize::from(slot)]).addr() as u64
    }

    /// Takes ownership of a slot from the kernel.
    ///
    /// # Safety
    ///
    /// The last command about `slot` has completed, none has been submitted since, and nobody
    /// else has taken it since.
    pub(super) unsafe fn take(&self, slot: u16) -> Held {
        assert!(slot < self.count);
        Held { slot, _not_copied: PhantomData }
    }

    /// Returns the memory of a slot that the server owns.
    pub(super) fn open<'a>(&'a self, held: &'a mut Held) -> Slot<'a> {
        let head = self.head(held.slot);
        // SAFETY: a head and a payload's length are within the slot's part of the mapping, which
        // lives as long as `self`. `held` says that the kernel does not use it and, borrowed
        // mutably, that nobody else does. The mapping's bytes are initialised.
        let (head, payload) = unsafe {
            let payload = head.add(HEAD_ROOM);
            (
                std::slice::from_raw_parts_mut(head.as_ptr(), RING_HEAD),
                std::slice::from_raw_parts_mut(payload.as_ptr(), self.payload),
            )
        };
        Slot::of(head, payload)
    }
}

impl Drop for Slots {
    fn drop(&mut self) {
        let len = usize::from(self.count) * self.stride();
        // SAFETY: the mapping made in `new`. No `Slot` outlives `self`, and the lane keeps the
        // slots alive until the kernel has let go of each (see `Lane::run`).
        let _ = unsafe { munmap(self.base.as_ptr().cast(), len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap_and_keep_what_is_written() {
        let slots = Slots::new(3, 8192).unwrap();
        // SAFETY: no kernel knows of these, and each is taken once.
        let mut held: Vec<Held> = (0..3).map(|slot| unsafe { slots.take(slot) }).collect();
        for (n, held) in (1u8..).zip(&mut held) {
            let slot = slots.open(held);
            let lengths = [slot.in_out.len(), slot.op.len(), slot.entry.len(), slot.payload.len()];
            assert_eq!(lengths, [128, 128, 32, 8192]);
            for part in [slot.in_out, slot.op, slot.entry, slot.payload] {
                assert!(part.iter().all(|byte| *byte == 0), "fresh");
                part.fill(n);
            }
        }
        for (n, held) in (1u8..).zip(&mut held) {
            let slot = slots.open(held);
            for part in [slot.in_out, slot.op, slot.entry, slot.payload] {
                assert!(part.iter().all(|byte| *byte == n));
            }
        }
    }
}
