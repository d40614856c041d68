//! An inode block in memory: 32 inodes, each behind its own reader-writer lock.
//!
//! Beyond an inode's own bytes (core and forks) a slot costs about 60 bytes: the lock's word, the
//! epoch, the place for a version kept aside, two fork lengths and pointers.

use crate::budget::{BlockBytes, Budget, forks_of, kept_aside};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Brief};
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard, hint};
use crate::table::InodeTable;
use shoal_base::invariant;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Epoch, Ino};
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
/// `Arc`, its slots, what the allocator needs for both, and its place in the array.
pub(crate) const EMPTY_BYTES: usize =
    size_of::<InodeBlock>() + INODES_PER_BLOCK * size_of::<InodePlace>() + 16 + 2 * 16 + 10;

/// Attempts to lock an inode before a thread sleeps: none but the last under a scheduler.
const fn spins() -> u32 {
    if cfg!(any(test, shoal_shuttle)) { 0 } else { 32 }
}
/// Longest pause between two attempts, as a power of two of the processor's shortest.
const SPIN_SHIFT_MAX: u32 = 4;

/// 32 inodes.
pub struct InodeBlock {
    /// Number of the block: index of its first inode / 32.
    pub number: u64,
    pub(crate) slots: Box<[InodePlace]>,
    pub(crate) flags: AtomicU8,
    /// Bit set: the slot is free to be allocated.
    pub(crate) free: AtomicU32,
    /// Bit set: the inode is detached ([`Locked::detach`]). Changed under the inode's lock.
    pub(crate) detached: AtomicU32,
    pub(crate) used: AtomicBool,
    pub(crate) disk: Brief<Ptr>,
    pub(crate) bytes: BlockBytes,
    pub(crate) reuse: Reuse,
}

/// A place for an inode, in cache lines of its own: a directory beside another one in the block is
/// locked by other threads.
#[repr(align(64))]
pub(crate) struct InodePlace {
    lock: RwLock<Slot>,
    /// Number of [`Borrowed`] on it.
    borrows: AtomicU32,
}

impl InodePlace {
    /// Locks for writing. Spins for some microseconds: who works in the same directory holds it
    /// for a fraction of one, and a change of tasks takes many times as long.
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
        self.lock.write()
    }
}

impl Deref for InodePlace {
    type Target = RwLock<Slot>;
    #[inline]
    fn deref(&self) -> &RwLock<Slot> {
        &self.lock
    }
}

/// What the allocation of numbers knows of a block in memory (`alloc.rs`). Nothing but where new
/// inodes go depends on it.
#[derive(Default)]
pub(crate) struct Reuse {
    /// A thread shard takes numbers from the block: it is listed when that lets go of it.
    pub held: AtomicBool,
    /// Whether the block is listed for any directory, and how.
    pub listed: AtomicU8,
    /// Index of the directory for which the block is listed, or was last; 0: for none.
    pub listed_for: AtomicU64,
    /// Index of the directory that last lost a name of an inode in the block; 0 if unknown.
    pub home: AtomicU64,
    /// Bit set: the inode is a directory for which blocks may be listed.
    pub homes: AtomicU32,
}

/// One inode, behind its lock.
#[derive(Default)]
pub struct Slot {
    /// The inode as it is now. Change it through [`Locked::edit`] only.
    pub inode: Inode,
    /// Epoch of the last change.
    pub(crate) epoch: Epoch,
    /// The inode as it was at the end of the epoch before, when its block was still to be written.
    pub(crate) old: Option<Box<Inode>>,
}

impl Slot {
    /// Bytes that it takes beside itself.
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
    /// The clock has to leave the block in memory once more.
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

/// A reference to an inode that keeps its block in memory for the time of a call, counted in the
/// inode's own cache line: other than with an [`InodeRef`], threads that use different inodes of a
/// block write to no line in common.
pub struct Borrowed<'p> {
    at: At<'p>,
}

impl<'p> Borrowed<'p> {
    pub(crate) fn new(block: &'p InodeBlock, ino: Ino) -> Borrowed<'p> {
        let at = At { block, ino };
        // What orders it against removal is a fence of the array's.
        at.place().borrows.fetch_add(1, Ordering::Relaxed);
        Borrowed { at }
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        self.at.place().borrows.fetch_sub(1, Ordering::Release);
    }
}

/// Where an inode is in memory, as long as something keeps it there.
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
    /// Whether the inode is detached. Stable under its lock.
    #[inline]
    pub fn is_detached(&self) -> bool {
        self.block.is_detached(self.ino.0 as usize % INODES_PER_BLOCK)
    }
}

/// Locking an inode through whatever keeps it in memory.
macro_rules! locking {
    ($($what:ty)*) => {$(
        impl $what {
            /// Locks the inode for reading.
            #[inline]
            pub fn read(&self) -> RwLockReadGuard<'_, Slot> {
                self.at().place().read()
            }
            /// Locks the inode for writing.
            #[inline]
            pub fn write(&self) -> Locked<'_> {
                let at = self.at();
                Locked::new(at, at.place().write_soon())
            }
            /// Locks the inode for writing if that can be done at once.
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
    /// Where the inode is.
    #[inline]
    pub fn at(&self) -> At<'_> {
        At { block: &self.block, ino: self.ino }
    }
    /// Whether the inode is detached. Stable under its lock.
    #[inline]
    pub fn is_detached(&self) -> bool {
        self.at().is_detached()
    }
}

impl Borrowed<'_> {
    /// Where the inode is.
    #[inline]
    pub fn at(&self) -> At<'_> {
        self.at
    }
}

/// An inode locked for writing.
pub struct Locked<'a> {
    at: At<'a>,
    slot: RwLockWriteGuard<'a, Slot>,
    /// Bytes that the slot took when it was locked.
    before: usize,
    /// Epoch of the transaction that changes it, if one does.
    epoch: Option<Epoch>,
    /// The last of the transaction's records that has an item of its core, if the LSN in the core
    /// is not that record's yet.
    record: Option<u32>,
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
    }
}

impl<'a> Locked<'a> {
    #[inline]
    fn new(at: At<'a>, slot: RwLockWriteGuard<'a, Slot>) -> Locked<'a> {
        let before = slot.bytes();
        Locked { at, slot, before, epoch: None, record: None }
    }
}

impl Locked<'_> {
    /// Its number.
    #[inline]
    pub fn ino(&self) -> Ino {
        self.at.ino
    }
    /// The inode, to look at.
    #[inline]
    pub fn inode(&self) -> &Inode {
        &self.slot.inode
    }
    /// A reference to keep when the lock is gone.
    pub fn place(&self, table: &InodeTable) -> InodeRef {
        table.here(self.at)
    }
    /// Whether the inode is detached.
    #[inline]
    pub fn is_detached(&self) -> bool {
        self.at.is_detached()
    }

    /// Notes that this record of the transaction that holds the lock, counted from 0, has an item
    /// of the inode's core. Returns whether no earlier one was noted.
    #[inline]
    pub fn note_record(&mut self, record: u32) -> bool {
        self.record.replace(record).is_none()
    }
    /// Takes back what [`Locked::note_record`] noted last.
    #[inline]
    pub fn take_record(&mut self) -> Option<u32> {
        self.record.take()
    }
    /// Enters the LSN of the record of its last change, which is noted in its epoch already. An
    /// inode that the record frees has none.
    #[inline]
    pub fn set_lsn(&mut self, lsn: u64) {
        invariant!(self.epoch.is_some(), "inode {} has an LSN without a change", self.at.ino);
        let core = &mut self.slot.inode.core;
        if core.in_use() {
            core.lsn = lsn;
        }
    }

    /// Notes that the inode loses a name in this directory: when its number is free, it is for the
    /// directory's next child first.
    #[inline]
    pub fn leaves(&self, dir: Ino) {
        let home = &self.at.block.reuse.home;
        if home.load(Ordering::Relaxed) != dir.index() {
            home.store(dir.index(), Ordering::Relaxed);
        }
    }

    /// For who holds the lock: the inode, already changed in the transaction of `epoch` whose
    /// record frees it, lives on in memory alone. Checkpoints write it as free from here on; its
    /// block stays in memory, its number out of use, until [`Locked::attach`].
    pub fn detach(&mut self, epoch: Epoch) {
        invariant!(self.slot.epoch == epoch, "detached without a change");
        self.at.block.detached.fetch_or(self.bit(), Ordering::AcqRel);
    }

    /// The inode is on the device again as it is here: a record of this transaction says all of it,
    /// or that it is free.
    pub fn attach(&mut self, table: &InodeTable, epoch: Epoch) {
        // What is kept aside for the checkpoint before must still be a free inode.
        let _ = self.edit(table, epoch);
        self.at.block.detached.fetch_and(!self.bit(), Ordering::AcqRel);
    }

    /// A detached inode ends: it is free in memory too, as it has long been on the device.
    pub fn end_detached(&mut self) {
        invariant!(self.is_detached(), "inode {} ends twice", self.at.ino);
        self.slot.inode = Inode::free(self.slot.inode.core.generation);
        self.at.block.detached.fetch_and(!self.bit(), Ordering::AcqRel);
    }

    fn bit(&self) -> u32 {
        1 << (self.at.ino.0 as usize % INODES_PER_BLOCK)
    }

    /// The inode, to change in a transaction of `epoch`.
    #[inline]
    pub fn edit(&mut self, table: &InodeTable, epoch: Epoch) -> &mut Inode {
        self.epoch = Some(epoch);
        if self.slot.epoch != epoch {
            self.first_edit(table, epoch);
        }
        &mut self.slot.inode
    }

    /// The first change in an epoch: keeps the inode aside if its block has still to be written as
    /// it was, and enters the block in the list of this epoch's checkpoint.
    fn first_edit(&mut self, table: &InodeTable, epoch: Epoch) {
        invariant!(self.slot.epoch < epoch, "inode {} changed after its epoch", self.at.ino);
        let block = &self.at.block;
        let pending = DIRTY[(epoch as usize + 1) % 2];
        let keep = block.flags.load(Ordering::Acquire) & pending != 0;
        self.slot.old = keep.then(|| {
            let inode = &self.slot.inode;
            Box::new(match self.is_detached() {
                true => Inode::free(inode.core.generation),
                false => inode.clone(),
            })
        });
        self.slot.epoch = epoch;
        let bit = DIRTY[epoch as usize % 2];
        if block.flags.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            table.dirtied(block, epoch);
        }
    }
}
