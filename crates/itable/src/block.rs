//! An inode block in memory: 32 inodes, each under its own reader-writer lock.
//!
//! In addition to the inode's own bytes (core and forks) a slot takes about 60 bytes: the lock, the
//! epoch, the pointer to a kept version, two fork lengths and pointers.

#[cfg(test)]
use crate::budget::in_steps;
use crate::budget::{BlockBytes, Budget, forks_of, kept_aside};
use crate::projects::{Charge, Held, Tally, counted_bytes};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Brief};
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, hint};
use shoal_base::invariant;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::phase::{self, Phase};
use shoal_base::{Epoch, Ino, Result};
use shoal_format::Ptr;
use shoal_format::inode::Inode;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The block is in the dirty list of even or odd epochs.
pub(crate) const DIRTY: [u8; 2] = [1, 2];
/// A checkpoint has written it, but it cannot be read back yet.
pub(crate) const WRITING: u8 = 4;

/// Bytes that a block takes in memory without the forks of its inodes: itself, the counters of its
/// `Arc`, its slots, the allocator's overhead for both, and its entry in the array.
pub(crate) const EMPTY_BYTES: usize =
    size_of::<InodeBlock>() + INODES_PER_BLOCK * size_of::<InodePlace>() + 16 + 2 * 16 + 10;

/// Minimum bytes of a block. The lists of reusable blocks may have one entry per such block.
const SMALL_BLOCK: u64 = 8 * 1024;

impl Budget {
    /// Makes a budget of `bytes` for blocks of inodes of `inode_size` bytes.
    pub fn new(bytes: u64, inode_size: u32) -> Arc<Budget> {
        let listed_max = (bytes / SMALL_BLOCK).max(64);
        let limit = (listed_max * SMALL_BLOCK) as usize;
        Budget::with_limit(limit, listed_max as usize, inode_size, EMPTY_BYTES)
    }
    /// Makes a budget for this number of blocks without forks.
    #[cfg(test)]
    pub(crate) fn of_blocks(blocks: usize, inode_size: u32) -> Arc<Budget> {
        let limit = blocks.saturating_mul(in_steps(EMPTY_BYTES));
        Budget::with_limit(limit, blocks, inode_size, EMPTY_BYTES)
    }
}

/// Attempts to lock an inode before a thread sleeps: only the last one under a scheduler.
const fn spins() -> u32 {
    if cfg!(any(test, feature = "scheduled")) { 0 } else { 32 }
}
/// Longest pause between two attempts, as a power of two of the processor's shortest.
const SPIN_SHIFT_MAX: u32 = 4;

/// A block of 32 inodes.
pub struct InodeBlock {
    /// Number of the block: index of its first inode / 32.
    pub number: u64,
    pub(crate) slots: Box<[InodePlace]>,
    pub(crate) flags: AtomicU8,
    /// Bit set: the slot is free for allocation.
    pub(crate) free: AtomicU32,
    /// Bit set: the inode is unlinked but open, and in memory only ([`Locked::detach`]). Changed
    /// under the inode's lock.
    pub(crate) detached: AtomicU32,
    pub(crate) used: AtomicBool,
    pub(crate) disk: Brief<Ptr>,
    pub(crate) bytes: BlockBytes,
    pub(crate) reuse: Reuse,
}

/// The place of an inode, in cache lines of its own: other threads may lock another directory in
/// the same block.
#[repr(align(64))]
pub(crate) struct InodePlace {
    lock: RwLock<Slot>,
    /// Number of [`Borrowed`] references to it.
    borrows: AtomicU32,
}

impl InodePlace {
    /// Locks for writing. Spins for some microseconds first: threads that work in the same
    /// directory hold the lock for a fraction of one, and a context switch takes many times as
    /// long.
    #[inline]
    fn write_soon(&self) -> RwLockWriteGuard<'_, Slot> {
        for round in 0..spins() {
            if let Some(slot) = self.lock.try_write() {
                return slot;
            }
            for _ in 0..1 << round.min(SPIN_SHIFT_MAX) {
                hint::spin_loop();
            }
        }
        let _waiting = phase::waiting(Phase::Lock);
        self.lock.write()
    }

    /// Locks for reading.
    #[inline]
    fn read_soon(&self) -> RwLockReadGuard<'_, Slot> {
        self.lock.try_read().unwrap_or_else(|| self.read_late())
    }

    #[cold]
    fn read_late(&self) -> RwLockReadGuard<'_, Slot> {
        let _waiting = phase::waiting(Phase::Lock);
        self.lock.read()
    }
}

impl Deref for InodePlace {
    type Target = RwLock<Slot>;
    #[inline]
    fn deref(&self) -> &RwLock<Slot> {
        &self.lock
    }
}

/// The number allocator's state of a block in memory (`alloc.rs`). It only affects where new inodes
/// are placed.
#[derive(Default)]
pub(crate) struct Reuse {
    /// A thread shard allocates numbers from the block. The block is listed when the shard releases
    /// it.
    pub held: AtomicBool,
    /// The list for any directory that contains the block, if one does.
    pub listed: AtomicU8,
    /// Index of the directory for which the block is, or last was, listed; 0 for none.
    pub listed_for: AtomicU64,
    /// Index of the directory that last lost a name of an inode in the block; 0 if unknown.
    pub home: AtomicU64,
    /// Bit set: the inode is a directory for which blocks may be listed.
    pub homes: AtomicU32,
}

/// One inode, under its lock.
#[derive(Default)]
pub struct Slot {
    /// The current inode. Must be changed only through [`Locked::edit`].
    pub inode: Inode,
    /// Epoch of the last change.
    pub(crate) epoch: Epoch,
    /// The inode as it was at the end of the previous epoch, if its block had not been written yet.
    pub(crate) old: Option<Box<Inode>>,
}

impl Slot {
    /// Bytes of its forks and of the kept version.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        forks_of(&self.inode) + self.old.as_ref().map_or(0, |old| kept_aside(old))
    }
}

impl InodeBlock {
    pub(crate) fn new(
        number: u64,
        inodes: Vec<Inode>,
        disk: Ptr,
        budget: &Arc<Budget>,
    ) -> Arc<InodeBlock> {
        let mut free = 0;
        let held = EMPTY_BYTES + inodes.iter().map(forks_of).sum::<usize>();
        for (i, inode) in inodes.iter().enumerate() {
            free |= u32::from(!inode.core.in_use()) << i;
        }
        if number == 0 {
            // Inode 0 does not exist.
            free &= !1;
        }
        let slot = |inode| InodePlace {
            lock: RwLock::new(Slot { inode, epoch: 0, old: None }),
            borrows: AtomicU32::new(0),
        };
        let slots: Box<[_]> = inodes.into_iter().map(slot).collect();
        invariant!(slots.len() == INODES_PER_BLOCK, "a block of {} inodes", slots.len());
        Arc::new(InodeBlock {
            number,
            slots,
            flags: AtomicU8::new(0),
            free: AtomicU32::new(free),
            detached: AtomicU32::new(0),
            used: AtomicBool::new(true),
            disk: Brief::new(disk),
            bytes: BlockBytes::new(held, budget.clone()),
            reuse: Reuse::default(),
        })
    }
    /// Marks the block as used, so that the clock keeps it in memory for another round.
    #[inline]
    pub(crate) fn mark_used(&self) {
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }
    /// Returns whether any inode is borrowed ([`Borrowed`]).
    pub(crate) fn is_borrowed(&self) -> bool {
        self.slots.iter().any(|place| place.borrows.load(Ordering::Acquire) != 0)
    }
    pub(crate) fn is_dirty(&self) -> bool {
        self.flags.load(Ordering::Acquire) != 0
    }
    pub(crate) fn is_detached(&self, slot: usize) -> bool {
        self.detached.load(Ordering::Acquire) >> slot & 1 == 1
    }
}

/// A counted reference to an inode in memory.
#[derive(Clone)]
pub struct InodeRef {
    pub(crate) block: Arc<InodeBlock>,
    /// The inode.
    pub ino: Ino,
}

/// A reference to an inode that keeps its block in memory for the duration of a call, counted in
/// the inode's own cache line. Unlike with an [`InodeRef`], threads that use different inodes of a
/// block do not write to a common line.
pub struct Borrowed<'p> {
    at: At<'p>,
}

impl<'p> Borrowed<'p> {
    pub(crate) fn new(block: &'p InodeBlock, ino: Ino) -> Borrowed<'p> {
        let at = At { block, ino };
        // A fence of the array orders it against removal.
        at.place().borrows.fetch_add(1, Ordering::Relaxed);
        Borrowed { at }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.at.place().borrows.fetch_sub(1, Ordering::Release);
    }
}

/// The address of an inode in memory, valid while something keeps it there.
#[derive(Clone, Copy)]
pub struct At<'a> {
    pub(crate) block: &'a InodeBlock,
    /// The inode.
    pub ino: Ino,
}

impl<'a> At<'a> {
    #[inline]
    fn place(&self) -> &'a InodePlace {
        &self.block.slots[(self.ino.0 as usize) % INODES_PER_BLOCK]
    }
    /// Returns whether the inode is unlinked but open, and in memory only. Stable under its lock.
    #[inline]
    pub fn is_detached(&self) -> bool {
        self.block.is_detached(self.ino.0 as usize % INODES_PER_BLOCK)
    }
}

/// Locking an inode through a reference that keeps it in memory.
macro_rules! locking {
    ($($what:ty)*) => {$(
        impl $what {
            /// Locks the inode for reading.
            #[inline]
            pub fn read(&self) -> RwLockReadGuard<'_, Slot> {
                self.at().place().read_soon()
            }
            /// Locks the inode for writing.
            #[inline]
            pub fn write(&self) -> Locked<'_> {
                let at = self.at();
                Locked::new(at, at.place().write_soon())
            }
            /// Locks the inode for writing if that is possible at once.
            #[inline]
            pub fn try_write(&self) -> Option<Locked<'_>> {
                let at = self.at();
                at.place().try_write().map(|slot| Locked::new(at, slot))
            }
        }
    )*};
}

locking!(InodeRef Borrowed<'_>);

impl InodeRef {
    /// The address of the inode.
    #[inline]
    pub fn at(&self) -> At<'_> {
        At { block: &self.block, ino: self.ino }
    }
    /// Returns whether the inode is unlinked but open, and in memory only. Stable under its lock.
    #[inline]
    pub fn is_detached(&self) -> bool {
        self.at().is_detached()
    }
}

impl Borrowed<'_> {
    /// The address of the inode.
    #[inline]
    pub fn at(&self) -> At<'_> {
        self.at
    }
}

/// An inode locked for writing.
pub struct Locked<'a> {
    pub(crate) at: At<'a>,
    pub(crate) slot: RwLockWriteGuard<'a, Slot>,
    /// Bytes that the slot took when it was locked.
    before: usize,
    /// Epoch of the transaction that changes it, if any.
    pub(crate) epoch: Option<Epoch>,
    /// The transaction's last record that has an item of its core, until the core has that record's
    /// LSN.
    record: Option<u32>,
    /// Its share of its project's use when it was locked.
    was: Tally,
    /// Amounts of a project that were taken in advance for the changes under this lock.
    held: Held,
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        let block = &self.at.block;
        let unwritten = |epoch: &Epoch| {
            let bits = DIRTY[*epoch as usize % 2] | WRITING;
            block.flags.load(Ordering::Relaxed) & bits != 0
        };
        let after = self.slot.bytes();
        if after != self.before {
            block.bytes.changed(self.before, after, self.epoch.filter(unwritten));
        }
        let now = Tally::of(&self.slot.inode.core);
        if self.was != now || self.held.project != 0 {
            block.bytes.projects().changed(self.at.ino, self.was, now, self.held);
        }
    }
}

impl<'a> Locked<'a> {
    #[inline]
    fn new(at: At<'a>, slot: RwLockWriteGuard<'a, Slot>) -> Locked<'a> {
        let (before, was) = (slot.bytes(), Tally::of(&slot.inode.core));
        Locked { at, slot, before, epoch: None, record: None, was, held: Held::default() }
    }
}

impl Locked<'_> {
    /// Its number.
    #[inline]
    pub fn ino(&self) -> Ino {
        self.at.ino
    }
    /// The inode, for reading.
    #[inline]
    pub fn inode(&self) -> &Inode {
        &self.slot.inode
    }
    /// Returns whether the inode is unlinked but open, and in memory only.
    #[inline]
    pub fn is_detached(&self) -> bool {
        self.at.is_detached()
    }

    /// Takes in advance, of the inode's project, what this many more bytes of data extents need,
    /// for a change under this lock.
    ///
    /// # Errors
    /// `EDQUOT` if the project's limit does not leave as many.
    #[inline]
    pub fn charge(&mut self, bytes: u64) -> Result<()> {
        let project = self.slot.inode.core.project;
        if project == 0 || bytes == 0 {
            return Ok(());
        }
        let now = self.slot.inode.core.bytes;
        let more = counted_bytes(now.saturating_add(bytes)) - counted_bytes(now);
        let charge = self.at.block.bytes.projects().charge(project, 0, more)?;
        self.pay(charge);
        Ok(())
    }
    /// Uses amounts that were taken in advance for the changes under this lock. The rest of them is
    /// given back when the inode is unlocked.
    #[inline]
    pub fn pay(&mut self, charge: Charge<'_>) {
        self.held.add(charge);
    }

    /// Notes that record `record` (counted from 0) of the transaction that holds the lock has an
    /// item of the inode's core. Returns whether it is the first one noted.
    #[inline]
    pub fn note_record(&mut self, record: u32) -> bool {
        self.record.replace(record).is_none()
    }
    /// Removes and returns what [`Locked::note_record`] noted last.
    #[inline]
    pub fn take_record(&mut self) -> Option<u32> {
        self.record.take()
    }
    /// Sets the LSN of the record of its last change, which must already be noted in its epoch.
    /// Does nothing for an inode that the record frees.
    #[inline]
    pub fn set_lsn(&mut self, lsn: u64) {
        invariant!(self.epoch.is_some(), "inode {} has an LSN without a change", self.at.ino);
        let core = &mut self.slot.inode.core;
        if core.in_use() {
            core.lsn = lsn;
        }
    }

    /// Notes that the inode loses a name in this directory: once its number is free, the
    /// directory's next child gets it first.
    #[inline]
    pub fn leaves(&self, dir: Ino) {
        let home = &self.at.block.reuse.home;
        if home.load(Ordering::Relaxed) != dir.index() {
            home.store(dir.index(), Ordering::Relaxed);
        }
    }

    /// Turns the inode into one that is unlinked but open, in memory only. The transaction of
    /// `epoch` must have changed it, and its record frees it. From here on checkpoints write it as
    /// free. Its block stays in memory, and its number in use, until [`Locked::attach`].
    pub fn detach(&mut self, epoch: Epoch) {
        invariant!(self.slot.epoch == epoch, "detached without a change");
        self.at.block.detached.fetch_or(self.bit(), Ordering::AcqRel);
    }

    /// Frees an unlinked but open inode in memory too, when it is closed; it is already free on the
    /// device.
    pub fn end_detached(&mut self) {
        invariant!(self.is_detached(), "inode {} ends twice", self.at.ino);
        self.slot.inode = Inode::free(self.slot.inode.core.generation);
        self.at.block.detached.fetch_and(!self.bit(), Ordering::AcqRel);
    }

    /// Its bit in the masks of its block.
    pub(crate) fn bit(&self) -> u32 {
        1 << (self.at.ino.0 as usize % INODES_PER_BLOCK)
    }
}
