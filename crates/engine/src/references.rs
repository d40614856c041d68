//! References to inodes from outside: open files, and inodes that the kernel knows. An unlinked
//! inode is freed with the last reference.

use crate::orphans::Orphans;
use crate::paths::Paths;
use crate::reap::Reaper;
use crate::state::{Inodes, Orphan, Outside, State, Teller, room};
use crate::tree_change::TreeChanges;
use crate::types::{OrphanInfo, OrphanState};
use shoal_base::{Ino, Result, cold};
use shoal_format::inode::FLAG_TRUNCATING;
use std::collections::HashMap;
use std::sync::Arc;

room! {
    /// References to inodes, and the inodes that only these keep.
    pub struct References {
        orphans: Orphans,
        paths: Paths,
        reaper: Reaper,
        tree_changes: TreeChanges,
    }
}

impl Inodes for State {
    fn locked<T>(&self, ino: Ino, f: impl FnOnce(bool) -> T) -> Result<T> {
        let inode = self.inode(ino)?;
        let slot = inode.read();
        Ok(f(slot.inode.core.in_use()))
    }
}

impl References<'_> {
    /// Adds `n` references; `ESTALE` if the inode is free.
    pub fn hold(self, ino: Ino, n: u64) -> Result<()> {
        self.0.store.origin.check()?;
        self.0.holds.hold(self.0, ino, n)
    }

    /// Drops `n` references. An unlinked inode is freed with the last one. Does nothing in a child
    /// of `fork`, whose handles are copies.
    pub fn release(self, ino: Ino, n: u64) {
        if self.0.store.origin.check().is_err() {
            return;
        }
        // Nobody can make it again, so it waits for locks even where the call around it must not;
        // for the device a thread in the background waits.
        let later = cold::must_not_wait();
        cold::apart_from_call(|| {
            let action = self.0.holds.release(self.0, ino, n);
            match action {
                Some(Orphan::Slot(slot)) if later && self.0.options.background => {
                    self.0.reaping.push(ino, slot);
                    self.0.reaping.notify();
                }
                action => self.ended(ino, action),
            }
        });
    }

    /// Records that contents of an inode with references may be kept outside (the page cache of a
    /// mount's kernel), or no longer are. The record goes with the last reference.
    #[inline]
    pub fn set_cached(self, ino: Ino, cached: bool) {
        self.0.holds.set_cached(ino, cached);
    }

    /// Records that an inode with references is new: an earlier process
    /// ([`HoldLife::Inherited`](crate::HoldLife)) cannot have let its contents out.
    #[inline]
    pub fn is_new(self, ino: Ino) {
        if self.0.holds.may_be_inherited() {
            self.0.holds.set_cached(ino, false);
        }
    }

    /// Returns whether contents of an inode may be kept outside.
    #[inline]
    pub fn may_be_cached(self, ino: Ino) -> bool {
        self.0.holds.may_be_cached(ino)
    }

    /// Takes the action for an unlinked inode that is no longer in use.
    fn ended(self, ino: Ino, action: Option<Orphan>) {
        let ended = match action {
            None => Ok(()),
            Some(Orphan::Detached(shard)) => self.orphans().end_detached(ino, shard),
            Some(Orphan::Slot(slot)) => self.reaper().reap_released(ino, slot),
        };
        if let Err(e) = ended {
            tracing::warn!(%ino, error = %e, "orphan is left for the next recovery");
        }
    }

    /// Registers who knows which inodes are in use by references of an earlier process
    /// ([`HoldLife::Inherited`](crate::HoldLife)). It is asked about the unlinked inodes that there
    /// are, and about each that is unlinked, or loses its last counted reference, from now on;
    /// about one inode perhaps several times.
    pub fn watch_unconfirmed(self, outside: Arc<dyn Outside>) {
        self.0.holds.unconfirmed(outside);
    }

    /// Records that an unlinked inode has no references of an earlier process: it is freed, unless
    /// it has others.
    pub fn unknown(self, ino: Ino) {
        self.ended(ino, self.0.holds.unknown(self.0, ino));
    }

    /// Registers a callback for front ends that cache attributes of inodes in use (a mount's
    /// kernel). It is called with the inodes that lost a name in the background, or that a change
    /// of a tree has changed: after the transaction, by the same thread, without locks. A new
    /// callback replaces the previous one.
    pub fn watch_links(self, told: impl Fn(&[Ino], Teller) + Send + Sync + 'static) {
        self.0.reaping.watch(Arc::new(told));
    }
}

/// Contents of the orphan table, for users.
impl References<'_> {
    /// Returns all slots in use, and all inodes that are unlinked but open and in memory only, by
    /// number.
    pub fn orphan_list(self) -> Vec<OrphanInfo> {
        self.orphan_list_after(Ino(0), usize::MAX)
    }

    /// As [`References::orphan_list`], at most `at_most` inodes with numbers above `after`.
    pub fn orphan_list_after(self, after: Ino, at_most: usize) -> Vec<OrphanInfo> {
        let held: HashMap<Ino, Orphan> = self.0.holds.orphans().into_iter().collect();
        let slots = self.0.store.orphans().all().into_iter().map(|(ino, _)| (ino, true));
        let detached = held.iter().filter(|(_, how)| matches!(how, Orphan::Detached(_)));
        let mut all: Vec<(Ino, bool)> =
            slots.chain(detached.map(|(ino, _)| (*ino, false))).collect();
        all.sort_unstable();
        let info = |(ino, slot)| self.orphan_info(ino, slot, held.contains_key(&ino));
        all.into_iter().filter(|(ino, _)| *ino > after).take(at_most).map(info).collect()
    }

    fn orphan_info(self, ino: Ino, slot: bool, held: bool) -> OrphanInfo {
        let mut info = OrphanInfo { ino, slot, held, ..OrphanInfo::default() };
        let Ok(inode) = self.0.inode(ino) else { return info };
        let (core, parent, is_unit) = {
            let slot = inode.read();
            let is_unit = self.tree_changes().is_unit(ino, &slot.inode);
            (slot.inode.core, self.paths().last_parent(ino, &slot.inode), is_unit.unwrap_or(false))
        };
        info.state = match core.in_use() {
            false => OrphanState::Broken,
            true if core.nlink != 0 && core.flags & FLAG_TRUNCATING != 0 => OrphanState::Truncating,
            true if core.nlink != 0 => OrphanState::Broken,
            true if core.is_dir() => OrphanState::Tree,
            true if is_unit => OrphanState::Changing,
            true => OrphanState::Unlinked,
        };
        (info.size, info.bytes) = (core.size, if core.is_dir() { 0 } else { core.bytes });
        info.path = parent.and_then(|(link, name)| {
            let dir = self.0.attr(link.dir).ok()?;
            if dir.generation.0 != link.generation {
                return None;
            }
            let mut above = self.paths().paths_of(link.dir).ok()?.into_iter().next()?;
            if above != b"/" {
                above.push(b'/');
            }
            above.extend(name);
            Some(above)
        });
        info
    }
}
