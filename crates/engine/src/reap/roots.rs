//! Freeing what was in deleted roots, behind the calls: a few inodes a transaction, in the order of
//! their numbers, so that after a crash it is simply begun again.
//!
//! An inode that is freed keeps its generation in its slot. When none is left the root becomes
//! vacant, and the volume's floor of generations is raised above all of them: its number and its
//! inodes' numbers may then be given out again without an old handle meaning a new file.

use crate::holds::Orphan;
use crate::records;
use crate::volume::Inner;
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
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Inodes freed in a slice. Not blocks looked at: after a crash or in the next short session the
/// first ones are free already, and a slice must get beyond them.
const SLICE: u64 = 1024;
/// Time between two reports of progress, at least.
const TELL_AFTER: Duration = Duration::from_millis(100);
/// Directory entries removed in one transaction.
const ENTRIES: usize = 4096;

/// Where the reaping of this session stands.
#[derive(Default)]
pub(crate) struct RootReaper {
    /// The root at hand and its next block; calls that saw the root alive have ended.
    at: Option<(u16, u64)>,
    /// Largest generation seen in it.
    generation: u32,
    /// Inodes freed since its first block.
    freed: u64,
    /// Roots with damage: left as they are, for fsck.
    damaged: HashSet<u16>,
}

impl Inner {
    /// Frees everything in deleted roots; `progress` gets the inodes that are left. Roots with
    /// damage stay as they are.
    pub fn reap_roots(&self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let mut told: Option<Instant> = None;
        while self.reap_roots_some()? {
            // Summing up many small roots takes longer than freeing one.
            if told.is_none_or(|at| at.elapsed() >= TELL_AFTER) {
                let left = |sum: u64, root: &Root| sum.saturating_add(root.inodes());
                progress(self.store.roots.deleted().fold(0, left));
                told = Some(Instant::now());
            }
        }
        Ok(())
    }

    /// Whether a deleted root waits to be freed.
    pub(crate) fn has_deleted_roots(&self) -> bool {
        let reaper = self.root_reaper.lock();
        let deleted = |root: &Root| root.state() == RootState::Deleted;
        self.store.roots.iter().any(|r| deleted(r) && !reaper.damaged.contains(&r.id.0))
    }

    /// Frees a slice of what is in deleted roots; `false`: there is nothing to free.
    pub(super) fn reap_roots_some(&self) -> Result<bool> {
        let mut reaper = self.root_reaper.lock();
        let wanted = |root: &&Root| !reaper.damaged.contains(&root.id.0);
        let Some(root) = self.store.roots.deleted().find(wanted) else { return Ok(false) };
        let from = match reaper.at {
            Some((id, next)) if id == root.id.0 => next,
            _ => {
                // Calls that found the root alive end; none begins any more.
                self.store.quiesced(|_| ());
                (reaper.generation, reaper.freed) = (0, 0);
                0
            }
        };
        match self.reap_slice(root, from, &mut reaper) {
            Ok(next) => reaper.at = next.map(|next| (root.id.0, next)),
            Err(e @ Error::Corrupt(_)) => {
                tracing::error!(root = root.id.0, error = %e, "deleted root left for fsck");
                reaper.damaged.insert(root.id.0);
            }
            Err(e) => return Err(e),
        }
        Ok(true)
    }

    /// Frees some inodes from this block on. Returns where to go on; `None`: the root is vacant.
    fn reap_slice(&self, root: &Root, from: u64, reaper: &mut RootReaper) -> Result<Option<u64>> {
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
                let object = format!("root {}", root.id.0);
                let rule = format!("says {} inodes, none is there", root.table.inodes());
                return Err(Error::corrupt(object, None, rule));
            }
            // A call that was late made more: once again from the start.
            return Ok(Some(0));
        }
        let generation = reaper.generation;
        let mut txn = self.store.begin(Need::Release, records::REAP_ROOT)?;
        let before = self.store.floor.fetch_max(generation + 1, Ordering::Relaxed);
        let floor = before.max(generation + 1);
        root.set(RootState::Vacant, b"");
        txn.log(Item::Root { ino: root.top(), state: RootState::Vacant, floor, name: b"" });
        txn.commit()?;
        Ok(None)
    }

    fn reap_block(&self, root: &Root, block: u64, reaper: &mut RootReaper) -> Result<()> {
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
            let mut txn = self.store.begin(Need::Release, records::REAP_ROOT)?;
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

    fn reap_inode(&self, txn: &mut Txn<'_>, locked: &mut Locked<'_>) -> Result<()> {
        let ino = locked.ino();
        self.free_inode(txn, locked)?;
        let free = Inode::free(locked.inode().core.generation);
        invariant!(*locked.inode() == free, "inode {ino} of a deleted root is not free");
        // The slot of an orphan is cleared by who has it: who holds it, or waits to reap it.
        if let Some(slot) = self.cuts.lock().remove(&ino) {
            self.free_slot(txn, slot, ino);
        }
        Ok(())
    }

    /// What lives on in memory alone goes at once: its calls fail since the root was deleted.
    fn end_in_memory(&self, inode: &InodeRef) -> Result<bool> {
        let mut locked = inode.write();
        match self.holds.adopted(inode.ino) {
            Some(Orphan::Detached(shard)) => {
                self.forget_detached(&mut locked, shard)?;
            }
            Some(Orphan::Slot(slot)) => {
                self.holds.orphaned(inode.ino, Orphan::Slot(slot));
            }
            None => {}
        }
        Ok(!locked.inode().core.in_use())
    }

    /// Removes some entries of a directory; `false`: there are none left.
    fn reap_entries(&self, root: &Root, dir: Ino) -> Result<bool> {
        let mut txn = self.store.begin(Need::Release, records::REAP_ROOT)?;
        let (key, end) = (Key::of(dir, 0), Key::behind(dir));
        let mut batch = Batch::default();
        let next = root.dirents.scan(key, end, ENTRIES, &mut batch)?;
        if batch.iter().next().is_none() {
            return Ok(false);
        }
        // The last key of all can only be a name's whose hash is all ones.
        let until = next.filter(|next| next.hi == dir.index()).map_or(u64::MAX, |next| next.lo);
        txn.changing();
        root.dirents.delete_range(key, Key::of(dir, until), txn.epoch, &mut |_, _| {})?;
        txn.log(Item::TreeDelRange { root: dir.root(), tree: TreeId::Dirents, key, end: until });
        txn.commit()?;
        Ok(next.is_some())
    }
}
