//! The orphan table: inodes that a crash must not leave behind half removed. A file without a name
//! that something still holds, a file that is being cut or freed in several transactions, the top
//! of a tree that is being removed: each has its number in a slot, from the record that made it
//! so to the record that ended it. Recovery looks at the slots, never at all inodes.
//!
//! After ext4's orphan file (Jan Kara, 2015), which took the place of one list under one mutex: the
//! slots stand in blocks, a block for each thread shard, and a thread takes and frees slots of its
//! own shard by one compare-and-swap each. What is full spills:
//!
//! ```text
//! own block ─► own grown block ─► another shard's block ─► any grown block ─► one more block
//! └─── no cache line of another shard is written ────┘     └─ cold: once in 508 slots ─┘
//! ```
//!
//! Grown blocks are in an XArray, so growing takes no lock that a reader or another shard would
//! wait for. A block that is empty at a checkpoint goes again. Slots are taken and freed inside
//! transactions only: with the gate closed they stand still, and that is when a checkpoint copies
//! them (`disk.rs`).

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

/// A slot in use: whoever is to end what it stands for keeps it. Good for one [`Orphans::free`].
#[must_use = "a slot that nobody remembers is taken until the volume is opened again"]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrphanSlot(u32);

/// One word of the table. Models and counting runs have words of their own.
pub trait Word: Default + Send + Sync + 'static {
    /// Reads it.
    fn load(&self) -> u64;
    /// Overwrites a hint: nothing depends on its value.
    fn hint(&self, value: u64);
    /// Puts `new` in place of `old`, if that is what stands there.
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

/// As many slots as a block on the device has. Begins on a cache line of its own.
#[repr(align(128))]
struct Block<W> {
    /// Where the next search begins; [`FULL`] when the last one found nothing.
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
        // Lower slots first, so that a block once crowded is searched from its start again.
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

/// What a shard has.
struct Shard<W> {
    /// Its first block, made when it is first wanted.
    first: OnceLock<Box<Block<W>>>,
    /// The grown block that it last found room in; 0: none.
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
    /// Blocks beyond the shards' first ones, from number `SHARDS` on.
    grown: Step<XArray<Arc<Block<W>>>>,
}

impl<W: Word> Default for Orphans<W> {
    fn default() -> Self {
        let shards = (0..SHARDS).map(|_| CachePadded::default()).collect();
        Orphans { shards, grown: step(XArray::new()) }
    }
}

fn slot(block: u64, at: u32) -> OrphanSlot {
    OrphanSlot(block as u32 * SLOTS as u32 + at)
}

impl<W: Word> Orphans<W> {
    /// Enters an inode, in a transaction whose record says so. `ENOMEM` when all blocks are full
    /// and there is no memory for one more, `ENOSPC` when a checkpoint could not name one more.
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

    /// From any grown block, or from one more, which is the shard's from now on.
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

    /// Frees a slot, in a transaction whose record says so; whether this inode was in it.
    #[inline]
    pub fn free(&self, slot: OrphanSlot, ino: Ino) -> bool {
        let (block, at) = ((slot.0 / SLOTS as u32) as usize, slot.0 as usize % SLOTS);
        match self.shards.get(block) {
            Some(shard) => shard.first.get().is_some_and(|block| block.free(at, ino)),
            None => self.grown.get(block as u64).is_some_and(|block| block.free(at, ino)),
        }
    }

    /// Whether this inode stands in this slot.
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

    /// All that are in, with their slots, by number. Complete only while no transaction runs.
    pub fn all(&self) -> Vec<(Ino, OrphanSlot)> {
        let mut all = Vec::new();
        self.for_each(&mut |_, slot, ino| all.push((ino, slot)));
        all.sort_unstable_by_key(|(ino, slot)| (*ino, slot.0));
        all
    }

    /// How many are in.
    pub fn len(&self) -> usize {
        let mut len = 0;
        self.for_each(&mut |_, _, _| len += 1);
        len
    }

    /// Whether none is in.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Gives back the memory of grown blocks that are empty. To be called while no transaction
    /// runs, though one that did would lose nothing: a block that somebody looks at stays.
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
