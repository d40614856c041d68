//! The orphan table: inodes that a crash must not leave half removed. An unlinked but open file, a
//! file that is truncated or freed in several transactions, the top directory of a tree that is
//! being removed: each has its number in a slot, from the record that starts the operation to the
//! record that ends it. Recovery reads the slots, never all inodes.
//!
//! After ext4's orphan file (Jan Kara, 2015), which replaced a single list under one mutex. The
//! slots are in blocks, one for each thread shard, and a thread takes and frees slots of its own
//! shard by one compare-and-swap each. A full block overflows:
//!
//! ```text
//! own block ─► own grown block ─► another shard's block ─► any grown block ─► one more block
//! └─── no cache line of another shard is written ────┘     └─ cold: once in 508 slots ─┘
//! ```
//!
//! Grown blocks are in an XArray, so growing takes no lock for which a reader or another shard
//! would wait. A block that is empty at a checkpoint is freed. Slots are taken and freed inside
//! transactions only, so they do not change under quiesce, when a checkpoint copies them
//! (`disk.rs`).

pub(crate) mod disk;
#[cfg(test)]
mod tests;

use crossbeam_utils::CachePadded;
use shoal_base::shard::{SHARDS, shard};
use shoal_base::sync::{AtomicU64, Step, atomically, step};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::orphan::{BLOCKS_MAX, SLOTS};
use shoal_xarray::XArray;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// A slot in use. Kept by the operation that will free it, exactly once, with [`Orphans::free`].
#[must_use = "a slot that nobody remembers is taken until the volume is opened again"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrphanSlot(u32);

/// One word of the table. Models and tests with counters use their own.
pub trait Word: Default + Send + Sync + 'static {
    /// Reads it.
    fn load(&self) -> u64;
    /// Overwrites a hint, on whose value nothing depends.
    fn hint(&self, value: u64);
    /// Replaces `old` by `new`. Returns `false` if the word has another value.
    fn swap(&self, old: u64, new: u64) -> bool;
}

impl Word for AtomicU64 {
    #[inline]
    fn load(&self) -> u64 {
        std::sync::atomic::AtomicU64::load(self, Ordering::Acquire)
    }
    #[inline]
    fn hint(&self, value: u64) {
        self.store(value, Ordering::Relaxed);
    }
    #[inline]
    fn swap(&self, old: u64, new: u64) -> bool {
        self.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The slots of one block on the device. Aligned to its own cache lines.
#[repr(align(128))]
struct Block<W> {
    /// Index at which the next search begins; [`FULL`] if the last one found nothing.
    next: W,
    /// Inode numbers; 0: free.
    slots: [W; SLOTS],
}

const FULL: u64 = u64::MAX;

impl<W: Word> Default for Block<W> {
    fn default() -> Self {
        Block { next: W::default(), slots: std::array::from_fn(|_| W::default()) }
    }
}

impl<W: Word> Block<W> {
    #[inline]
    fn take(&self, ino: Ino) -> Option<u32> {
        let from = self.next.load();
        if from == FULL {
            return None;
        }
        for i in 0..SLOTS {
            let at = (from as usize + i) % SLOTS;
            if self.slots[at].load() == 0 && self.slots[at].swap(0, ino.0) {
                if i > 0 {
                    self.next.hint(at as u64);
                }
                return Some(at as u32);
            }
        }
        self.next.hint(FULL);
        None
    }
    #[inline]
    fn free(&self, at: usize, ino: Ino) -> bool {
        let freed = self.slots[at].swap(ino.0, 0);
        let next = self.next.load();
        // Lower slots first, so that the next search of a formerly full block starts at its start.
        if next > at as u64 {
            self.next.hint(at as u64);
        }
        freed
    }
    fn in_use(&self) -> impl Iterator<Item = (usize, Ino)> {
        let used = |(at, word): (usize, &W)| Some((at, Ino(word.load()))).filter(|(_, i)| i.0 != 0);
        self.slots.iter().enumerate().filter_map(used)
    }
    fn is_empty(&self) -> bool {
        self.in_use().next().is_none()
    }
}

/// The state of a shard.
struct Shard<W> {
    /// Its first block, allocated at the first use.
    first: OnceLock<Box<Block<W>>>,
    /// The grown block in which it last found a slot; 0 for none.
    grown: W,
}

impl<W: Word> Default for Shard<W> {
    fn default() -> Self {
        Shard { first: OnceLock::new(), grown: W::default() }
    }
}

/// The table.
pub struct Orphans<W: Word = AtomicU64> {
    shards: Box<[CachePadded<Shard<W>>]>,
    /// Blocks in addition to the shards' first ones, numbered from `SHARDS`.
    grown: Step<XArray<Arc<Block<W>>>>,
    damage: Vec<String>,
}

impl<W: Word> Default for Orphans<W> {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        Orphans { shards, grown: step(XArray::new()), damage: Vec::new() }
    }
}

fn slot(block: u64, at: u32) -> OrphanSlot {
    OrphanSlot(block as u32 * SLOTS as u32 + at)
}

impl<W: Word> Orphans<W> {
    /// Takes a slot for an inode, in a transaction whose record says so.
    ///
    /// # Errors
    /// `ENOMEM` if all blocks are full and there is no memory for another, `ENOSPC` if a checkpoint
    /// could not point to another.
    #[inline]
    pub fn take(&self, ino: Ino) -> Result<OrphanSlot> {
        self.take_in(shard(), ino)
    }

    #[inline]
    fn take_in(&self, home: usize, ino: Ino) -> Result<OrphanSlot> {
        debug_assert!(ino.0 != 0);
        match self.first(home).take(ino) {
            Some(at) => Ok(slot(home as u64, at)),
            None => self.take_elsewhere(home, ino),
        }
    }

    fn first(&self, shard: usize) -> &Block<W> {
        self.shards[shard].first.get_or_init(Box::default)
    }

    #[cold]
    fn take_elsewhere(&self, home: usize, ino: Ino) -> Result<OrphanSlot> {
        let last = self.shards[home].grown.load();
        if last != 0
            && let Some(block) = self.grown.get(last)
            && let Some(at) = block.take(ino)
        {
            return Ok(slot(last, at));
        }
        for i in 1..SHARDS {
            let other = (home + i) % SHARDS;
            if let Some(block) = self.shards[other].first.get()
                && let Some(at) = block.take(ino)
            {
                return Ok(slot(other as u64, at));
            }
        }
        self.take_grown(home, ino)
    }

    /// Takes a slot in any grown block, or in a new one, which becomes the shard's grown block.
    fn take_grown(&self, home: usize, ino: Ino) -> Result<OrphanSlot> {
        let mut number = SHARDS as u64;
        loop {
            let (block, mine) = match self.grown.get(number) {
                Some(block) => (block, false),
                None if number >= BLOCKS_MAX as u64 => return Err(Error::Code(Code::NoSpace)),
                None => {
                    let place = self.grown.reserve(number).map_err(|_| Code::NoMemory)?;
                    let new: Arc<Block<W>> = Arc::default();
                    let here = place.get_or_store(new.clone());
                    let mine = Arc::ptr_eq(&here, &new);
                    (here, mine)
                }
            };
            if let Some(at) = block.take(ino) {
                if mine {
                    self.shards[home].grown.hint(number);
                }
                return Ok(slot(number, at));
            }
            number += 1;
        }
    }

    /// Frees a slot, in a transaction whose record says so. Returns whether this inode was in it.
    #[inline]
    pub fn free(&self, slot: OrphanSlot, ino: Ino) -> bool {
        let (block, at) = ((slot.0 / SLOTS as u32) as usize, slot.0 as usize % SLOTS);
        match self.shards.get(block) {
            Some(shard) => shard.first.get().is_some_and(|block| block.free(at, ino)),
            None => self.grown.get(block as u64).is_some_and(|block| block.free(at, ino)),
        }
    }

    /// Returns whether this inode is in this slot.
    pub fn has(&self, slot: OrphanSlot, ino: Ino) -> bool {
        let (block, at) = ((slot.0 / SLOTS as u32) as usize, slot.0 as usize % SLOTS);
        let is_here = |block: &Block<W>| block.slots[at].load() == ino.0;
        match self.shards.get(block) {
            Some(shard) => shard.first.get().is_some_and(|block| is_here(block)),
            None => self.grown.get(block as u64).is_some_and(|block| is_here(&block)),
        }
    }

    /// Calls `visit` with every slot in use, and the number of its block.
    fn for_each(&self, visit: &mut dyn FnMut(u64, OrphanSlot, Ino)) {
        for (number, shard) in self.shards.iter().enumerate() {
            for (at, ino) in shard.first.get().iter().flat_map(|block| block.in_use()) {
                visit(number as u64, slot(number as u64, at as u32), ino);
            }
        }
        for (number, block) in self.grown.iter() {
            block.in_use().for_each(|(at, ino)| visit(number, slot(number, at as u32), ino));
        }
    }

    /// All inodes in the table with their slots, by number. Complete only while no transaction
    /// runs.
    pub fn all(&self) -> Vec<(Ino, OrphanSlot)> {
        let mut all = Vec::new();
        self.for_each(&mut |_, slot, ino| all.push((ino, slot)));
        all.sort_unstable_by_key(|(ino, slot)| (*ino, slot.0));
        all
    }

    /// Number of slots in use.
    pub fn len(&self) -> usize {
        let mut len = 0;
        self.for_each(&mut |_, _, _| len += 1);
        len
    }

    /// Returns whether no slot is in use.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Descriptions of the blocks and lists that were unreadable when the volume was opened.
    pub fn damage(&self) -> &[String] {
        &self.damage
    }

    /// Frees the memory of empty grown blocks. Intended to run while no transaction does; a
    /// concurrent one would lose nothing, because a block in use stays.
    pub fn shrink(&self) {
        for (number, block) in self.grown.iter() {
            if block.is_empty() {
                // Under a lock of the array.
                let empty = |block: &Block<W>| atomically(|| block.is_empty());
                let _ = self.grown.remove_if_unused(number, &block, empty);
            }
        }
    }
}
