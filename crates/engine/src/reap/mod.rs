//! Freeing in the background: inodes with an orphan slot that are not in use, removed trees,
//! deleted subvolumes. Each step is one transaction of bounded size that leaves a consistent
//! volume. So a crash between two steps needs no special handling: the slot leads the next session
//! to the rest.
//!
//! | orphan slot of | a step | file |
//! | --- | --- | --- |
//! | an unlinked file | removes some records; the last frees the inode and the slot | `file.rs` |
//! | a file with a name, marked as being truncated | removes some records beyond its size | `../files/truncate.rs` |
//! | an unlinked directory | removes some of its entries; subdirectories that are not empty get their own slots | `tree.rs` |
//! | the state of a change of a tree | (not freed: changes some inodes) | `../tree_change/` |
//! | (none; the record of a deleted subvolume) | frees some inodes | `roots.rs` |
//!
//! A background thread does this. While calls commit transactions, it pauses three times as long as
//! it worked. It does not pause while space is short, and then a call that finds no space performs
//! steps itself before it fails. Without background threads (simulation, recovery tools) the call
//! that leaves work does all of it before it returns.
//!
//! The newest inode is first, so the leaves of a tree are: few slots are in use at a time.

mod file;
mod roots;
mod tree;

use crate::files::Files;
use crate::intents::Intents;
use crate::namei::Namespace;
use crate::objects::Objects;
use crate::orphans::Orphans;
use crate::records;
use crate::state::{Orphan, Teller, room};
use crate::tree_change::TreeChanges;
use crate::xattr::Xattrs;
use shoal_base::counters::Counter;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::FLAG_TRUNCATING;
use shoal_format::item::Item;
use shoal_journal::housekeeping;
use shoal_txn::OrphanSlot;

/// Result of a step.
enum ReapStep {
    /// More steps are needed.
    More,
    /// Nothing remains, or another call is responsible for the rest.
    Done,
}

room! {
    /// Steps of freeing.
    pub(crate) struct Reaper {
        files: Files,
        intents: Intents,
        namespace: Namespace,
        objects: Objects,
        orphans: Orphans,
        tree_changes: TreeChanges,
        xattrs: Xattrs,
    }
}

impl Reaper<'_> {
    /// Handles the release of the last reference to an inode with a slot. If one transaction
    /// suffices, the inode is freed at once.
    pub(crate) fn reap_released(self, ino: Ino, slot: OrphanSlot) -> Result<()> {
        match self.0.reading_first(|| self.one_step(ino, slot)) {
            Ok(ReapStep::Done) => Ok(()),
            Ok(ReapStep::More) | Err(Error::Code(Code::NoMemory)) => self.0.reap_later(ino, slot),
            Err(e) => {
                self.0.reaping.push(ino, slot);
                Err(e)
            }
        }
    }

    /// After recovery: queues everything in the orphan table. Returns the number of slots.
    pub(crate) fn adopt_orphans(self) -> Result<u64> {
        let mut all = self.0.store.orphans().all();
        for (ino, slot) in &all {
            let truncating = self.0.inode(*ino).is_ok_and(|inode| {
                let core = inode.read().inode.core;
                core.nlink != 0 && core.flags & FLAG_TRUNCATING != 0
            });
            if truncating {
                self.0.truncates.lock().insert(*ino, *slot);
            }
        }
        let count = all.len() as u64;
        if planted::is(Defect::OrphansIgnored) {
            return Ok(count);
        }
        all.retain(|(ino, slot)| !self.tree_changes().adopt(*ino, *slot));
        if self.0.holds.may_be_inherited() {
            all.retain(|(ino, slot)| !self.inherit(*ino, *slot));
        }
        self.0.reaping.append(&mut all);
        Ok(count)
    }

    /// Keeps an orphan that may be in use by references of an earlier process. `false`: it is to be
    /// freed, or emptied, in any case.
    fn inherit(self, ino: Ino, slot: OrphanSlot) -> bool {
        let may_be_used = self.0.inode(ino).is_ok_and(|inode| {
            let core = inode.read().inode.core;
            core.in_use() && core.nlink == 0 && !(core.is_dir() && core.size != 0)
        });
        if may_be_used {
            self.0.holds.inherit(ino, Orphan::Slot(slot));
        }
        may_be_used
    }

    /// Performs a step for orphans, or else for deleted subvolumes. Waits for a step in progress in
    /// another thread. Returns `false` if there is no work.
    pub(crate) fn reap_some(self) -> Result<bool> {
        if self.reap_orphan()? {
            return Ok(true);
        }
        if self.0.reaping.wait_for_step() {
            return Ok(true);
        }
        self.reap_roots_some()
    }

    /// Performs a step for the newest inode in the queue. Returns `false` if the queue is empty.
    pub(crate) fn reap_orphan(self) -> Result<bool> {
        let Some((ino, slot)) = self.0.reaping.take() else { return Ok(false) };
        let step = self.0.reading_first(|| self.one_step(ino, slot));
        self.0.reaping.step_ended(match &step {
            Ok(ReapStep::Done) => None,
            Err(Error::Corrupt(e)) => {
                let error = Error::Corrupt(e.clone());
                tracing::error!(%ino, %error, "orphan left for fsck");
                None
            }
            Ok(ReapStep::More) | Err(_) => Some((ino, slot)),
        });
        match step {
            Err(Error::Corrupt(_)) | Ok(_) => Ok(true),
            Err(e) => Err(e),
        }
    }

    fn one_step(self, ino: Ino, slot: OrphanSlot) -> Result<ReapStep> {
        let _not_the_callers = housekeeping();
        if !self.0.store.orphans().has(slot, ino) {
            return Ok(ReapStep::Done);
        }
        let core = match self.0.inode(ino) {
            // It belongs to a deleted subvolume, with which it is freed, or does not exist.
            Err(Error::Code(Code::Stale)) => return self.clear_slot(ino, slot),
            other => other?.read().inode.core,
        };
        let truncating = core.flags & FLAG_TRUNCATING != 0 && core.nlink != 0;
        match core.in_use() {
            true if truncating => match self.files().truncate_step(ino)? {
                true => Ok(ReapStep::More),
                false => Ok(self.overtaken(ino, slot)),
            },
            true if core.nlink == 0 && core.is_dir() => self.tree_step(ino, slot),
            true if core.nlink == 0 => self.file_step(ino, slot),
            _ => self.clear_slot(ino, slot),
        }
    }

    /// Returns the next step for an inode that another thread has finished meanwhile. A damaged
    /// volume may have several slots for it, of which that thread has freed one.
    fn overtaken(self, ino: Ino, slot: OrphanSlot) -> ReapStep {
        match self.0.store.orphans().has(slot, ino) {
            true => ReapStep::More,
            false => ReapStep::Done,
        }
    }

    /// Frees a slot whose inode is free, has a name, or never existed. Only damage and the end of a
    /// deleted subvolume leave such slots.
    fn clear_slot(self, ino: Ino, slot: OrphanSlot) -> Result<ReapStep> {
        if self.0.truncates.lock().get(&ino) == Some(&slot) {
            return Ok(ReapStep::Done);
        }
        let mut txn = self.0.begin(records::REAP_FILE)?;
        if self.0.store.orphans().free(slot, ino) {
            if self.0.root(ino).is_ok() {
                tracing::warn!(%ino, "orphan slot of a free or linked inode: freed");
            }
            txn.log(Item::OrphanDel { ino });
        }
        txn.commit()?;
        Ok(ReapStep::Done)
    }

    fn tell_links(self, changed: impl Iterator<Item = Ino>) {
        let Some(told) = self.0.reaping.watcher() else { return };
        let held: Vec<Ino> = changed.filter(|ino| self.0.holds.may_be_held(*ino)).collect();
        if !held.is_empty() {
            told(&held, Teller::Volume);
        }
    }

    fn count_reaped(self, n: u64) {
        self.0.store.counters().add(Counter::Reaped, n);
        self.0.store.counters().add(Counter::ReapSteps, 1);
    }

    /// Returns whether less than an eighth of the segments is free, so that reaping is urgent.
    pub(crate) fn is_short_of_space(self) -> bool {
        self.0.store.space().counts().free_segments() < self.0.store.geometry().segments / 8
    }
}
