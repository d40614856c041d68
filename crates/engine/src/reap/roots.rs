//! Freeing the contents of deleted subvolumes in the background: one inode per transaction, in the
//! order of their numbers. After a crash it starts again from the first.
//!
//! A freed inode keeps its generation in its slot. When none is left, the subvolume becomes vacant,
//! and the volume's minimum generation for new inodes is raised above all of them. Then its number
//! and inode numbers can be reused, and an old handle never refers to a new file.

use crate::reap::Reaper;
use crate::records;
use crate::state::{Orphan, RootReaper};
use shoal_base::invariant;
use shoal_base::limits::INODES_PER_BLOCK;
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::checkpoint::RootState;
use shoal_format::inode::Inode;
use shoal_format::item::Item;
use shoal_format::node::{Key, TreeId};
use shoal_itable::{InodeRef, Locked};
use shoal_tree::Batch;
use shoal_txn::{Need, Root, Txn};
use std::time::{Duration, Instant};

/// Inodes freed in a slice. Blocks do not count: after a crash or in the next short session the
/// first ones are free already, and a slice must get beyond them.
const SLICE: u64 = 1024;
/// Minimum time between two progress reports.
const TELL_AFTER: Duration = Duration::from_millis(100);
/// Directory entries removed in one transaction.
const ENTRIES: usize = 4096;

impl Reaper<'_> {
    /// Frees everything in deleted subvolumes; `progress` gets the number of remaining inodes.
    /// Damaged subvolumes are left as they are.
    pub(crate) fn reap_roots(self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let mut told: Option<Instant> = None;
        while self.reap_roots_some()? {
            // Summing over many small subvolumes takes longer than freeing one.
            if told.is_none_or(|at| at.elapsed() >= TELL_AFTER) {
                let left = |sum: u64, root: &Root| sum.saturating_add(root.inodes());
                progress(self.0.store.roots().deleted().fold(0, left));
                told = Some(Instant::now());
            }
        }
        Ok(())
    }

    /// Returns whether a deleted subvolume must be freed.
    pub(crate) fn has_deleted_roots(self) -> bool {
        let reaper = self.0.root_reaper.lock();
        let deleted = |root: &Root| root.state() == RootState::Deleted;
        self.0.store.roots().iter().any(|r| deleted(r) && !reaper.damaged.contains(&r.id.0))
    }

    /// Frees a slice of the deleted subvolumes. Returns `false` if there is nothing to free.
    pub(super) fn reap_roots_some(self) -> Result<bool> {
        let _not_the_callers = shoal_journal::housekeeping();
        let mut reaper = self.0.root_reaper.lock();
        let wanted = |root: &&Root| !reaper.damaged.contains(&root.id.0);
        let Some(root) = self.0.store.roots().deleted().find(wanted) else { return Ok(false) };
        let from = match reaper.at {
            Some((id, next)) if id == root.id.0 => next,
            _ => {
                // Waits for the calls that found the subvolume live; no new ones begin.
                self.0.store.checkpoints().quiesced(|_| ());
                (reaper.generation, reaper.freed) = (0, 0);
                0
            }
        };
        match self.reap_slice(root, from, &mut reaper) {
            Ok(next) => reaper.at = next.map(|next| (root.id.0, next)),
            Err(e @ Error::Corrupt(_)) => {
                tracing::error!(root = root.id.0, error = %e, "deleted subvolume left for fsck");
                reaper.damaged.insert(root.id.0);
            }
            Err(e) => return Err(e),
        }
        Ok(true)
    }

    /// Frees some inodes from this block on. Returns the block to continue with, `None` if the
    /// subvolume is vacant.
    fn reap_slice(self, root: &Root, from: u64, reaper: &mut RootReaper) -> Result<Option<u64>> {
        let (mut next, enough) = (from, reaper.freed + SLICE);
        while let Some(block) = root.table.next_in_use(next)? {
            if reaper.freed >= enough {
                return Ok(Some(next));
            }
            self.reap_block(root, block, reaper)?;
            next = block.saturating_add(1);
        }
        if root.table.inodes() > 0 {
            if std::mem::take(&mut reaper.freed) == 0 {
                let object = format!("subvolume {}", root.id.0);
                let rule = format!("counts {} inodes, but none is in use", root.table.inodes());
                return Err(Error::corrupt(object, None, rule));
            }
            // A concurrent call created more: start again from the first block.
            return Ok(Some(0));
        }
        let generation = reaper.generation;
        let mut txn = self.0.store.begin(Need::Release, records::REAP_ROOT)?;
        let before = self.0.store.raise_generation_floor(generation + 1);
        let floor = before.max(generation + 1);
        root.set(RootState::Vacant, b"");
        txn.log(Item::Root { ino: root.top(), state: RootState::Vacant, floor, name: b"" });
        txn.commit()?;
        Ok(None)
    }

    fn reap_block(self, root: &Root, block: u64, reaper: &mut RootReaper) -> Result<()> {
        for slot in 0..INODES_PER_BLOCK as u64 {
            let ino = Ino::new(root.id, block * INODES_PER_BLOCK as u64 + slot);
            let inode = match root.table.get(ino) {
                Err(e) if e.is(Code::Stale) => return Ok(()),
                other => other?,
            };
            let core = inode.read().inode.core;
            reaper.generation = core.generation.max(reaper.generation);
            if !core.in_use() || inode.is_detached() && self.end_in_memory(&inode)? {
                continue;
            }
            while core.is_dir() && self.reap_entries(root, ino)? {}
            let mut txn = self.0.store.begin(Need::Release, records::REAP_ROOT)?;
            let mut locked = inode.write();
            if locked.inode().core.in_use() {
                self.reap_inode(&mut txn, &mut locked)?;
            }
            txn.commit()?;
            self.count_reaped(1);
            reaper.freed += 1;
        }
        Ok(())
    }

    fn reap_inode(self, txn: &mut Txn<'_>, locked: &mut Locked<'_>) -> Result<()> {
        let ino = locked.ino();
        self.orphans().free_inode(txn, locked)?;
        let free = Inode::free(locked.inode().core.generation);
        invariant!(*locked.inode() == free, "inode {ino} of a deleted subvolume is not free");
        // The holder of an orphan's slot frees it: the last reference, or the reap queue.
        if let Some(slot) = self.0.truncates.lock().remove(&ino) {
            self.orphans().free_slot(txn, slot, ino);
        }
        Ok(())
    }

    /// Frees an inode that is unlinked but open, and in memory only. Its calls fail since the
    /// subvolume was deleted. Returns whether the inode is free.
    fn end_in_memory(self, inode: &InodeRef) -> Result<bool> {
        let mut locked = inode.write();
        match self.0.holds.adopted(inode.ino) {
            Some(Orphan::Detached(shard)) => {
                self.orphans().forget_detached(&mut locked, shard)?;
            }
            Some(Orphan::Slot(slot)) => {
                self.0.holds.orphaned(inode.ino, Orphan::Slot(slot));
            }
            None => {}
        }
        Ok(!locked.inode().core.in_use())
    }

    /// Removes some entries of a directory. Returns whether more are left.
    fn reap_entries(self, root: &Root, dir: Ino) -> Result<bool> {
        let mut txn = self.0.store.begin(Need::Release, records::REAP_ROOT)?;
        let (key, end) = (Key::of(dir, 0), Key::behind(dir));
        let mut batch = Batch::default();
        let next = root.dirents.scan(key, end, ENTRIES, &mut batch)?;
        if batch.iter().next().is_none() {
            return Ok(false);
        }
        // The last possible key belongs to a name whose hash is all ones.
        let until = next.filter(|next| next.hi == dir.index()).map_or(u64::MAX, |next| next.lo);
        txn.changing();
        root.dirents.delete_range(key, Key::of(dir, until), txn.epoch(), &mut |_, _| {})?;
        txn.log(Item::TreeDelRange { root: dir.root(), tree: TreeId::Dirents, key, end: until });
        txn.commit()?;
        Ok(next.is_some())
    }
}
