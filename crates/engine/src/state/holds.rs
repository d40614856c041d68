//! References to inodes from outside: open handles, and inodes that the kernel knows. An inode with
//! references survives its last unlink until they are released.
//!
//! *Inherited references.* A mount's kernel may have references that an earlier process counted
//! ([`HoldLife::Inherited`]). So every inode counts as held when it loses its last name, and stays,
//! with a count of 0, until somebody has asked the kernel ([`Holds::unconfirmed`],
//! [`Holds::unknown`]). The count itself is a lower limit there: the kernel drops all its
//! references together, those of the earlier process too.

use crate::types::HoldLife;
use shoal_base::shard::spread;
#[cfg(not(test))]
use shoal_base::sync::Mutex;
// The unit tests of this crate make no volumes with references.
#[cfg(test)]
use shoal_base::sync::checked::Mutex;
use shoal_base::{Code, Error, Ino, Result, RootId};
use shoal_txn::OrphanSlot;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(test)]
mod tests;

const SHARDS: usize = 256;

/// Hashes inode numbers by multiplication. A user does not choose inode numbers, so collisions
/// cannot be provoked.
#[derive(Default)]
pub(crate) struct InoHasher(u64);

impl Hasher for InoHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|b| self.0 = spread(self.0 ^ u64::from(*b)));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = spread(n);
    }
}

/// Action to take when the last reference to an unlinked inode is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Orphan {
    /// Reap it: it has this orphan slot.
    Slot(OrphanSlot),
    /// Evict it: it is free on the device, and counted by this shard of
    /// [`crate::orphan::Detached`].
    Detached(u8),
}

/// References to one inode.
#[derive(Default)]
struct Hold {
    count: u64,
    orphan: Option<Orphan>,
    /// Contents may be kept outside; `None`: only if an earlier process has let them out.
    cached: Option<bool>,
}

type Shard = Mutex<HashMap<Ino, Hold, BuildHasherDefault<InoHasher>>>;

/// Whoever knows which inodes have references of an earlier process: the kernel of a mount.
pub trait Outside: Send + Sync {
    /// Takes an unlinked inode that may be in use, to find out and call
    /// [`References::unknown`](crate::References::unknown). Locks are held: it must not wait.
    fn ask(&self, ino: Ino);

    /// Returns whether an inode may be in use. May wait, for anything but a call of the volume.
    fn knows(&self, ino: Ino) -> bool;
}

/// Reference counts; only those above zero have an entry, and unlinked inodes that may be held by
/// references of an earlier process.
pub(crate) struct Holds {
    shards: Box<[Shard]>,
    /// There may be references of an earlier process. Constant until the volume is closed.
    inherited: AtomicBool,
    unconfirmed: Mutex<Unconfirmed>,
}

/// Unlinked inodes whose references of an earlier process are uncertain.
#[derive(Default)]
struct Unconfirmed {
    /// Takes them.
    outside: Option<Arc<dyn Outside>>,
    /// Those that are there before it is.
    waiting: Vec<Ino>,
    /// Being asked about ([`Holds::find_out`]).
    asking: HashSet<Ino>,
    /// Known not to be in use, and not free yet. References that were given since are counted,
    /// until more are dropped than were: a reference of the earlier process was dropped late then,
    /// together with newer ones.
    unknown: HashSet<Ino>,
}

#[cfg(test)]
impl Default for Holds {
    fn default() -> Holds {
        Holds::new(HoldLife::Process)
    }
}

impl Holds {
    pub(crate) fn new(life: HoldLife) -> Holds {
        Holds {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            inherited: AtomicBool::new(life == HoldLife::Inherited),
            unconfirmed: Mutex::default(),
        }
    }
}

/// References of an earlier process.
impl Holds {
    #[inline]
    pub(crate) fn may_be_inherited(&self) -> bool {
        self.inherited.load(Ordering::Relaxed)
    }
    /// Takes references of an earlier process for ended.
    pub(crate) fn end_inherited(&self) {
        self.inherited.store(false, Ordering::Relaxed);
    }
    /// Keeps an unlinked inode that may be in use. The inode must be locked, or the volume be new.
    pub(crate) fn inherit(&self, ino: Ino, orphan: Orphan) {
        self.shard(ino).lock().entry(ino).or_default().orphan = Some(orphan);
        self.ask(ino);
    }
    /// Sets who is told of unlinked inodes that may be in use, and tells of those that are there
    /// already.
    pub(crate) fn unconfirmed(&self, outside: Arc<dyn Outside>) {
        let mut state = self.unconfirmed.lock();
        let waiting = std::mem::take(&mut state.waiting);
        state.outside = Some(outside.clone());
        drop(state);
        waiting.into_iter().for_each(|ino| outside.ask(ino));
    }
    fn ask(&self, ino: Ino) {
        let mut state = self.unconfirmed.lock();
        match state.outside.clone() {
            Some(outside) => {
                drop(state);
                outside.ask(ino);
            }
            None => state.waiting.push(ino),
        }
    }
    /// Finds out whether an inode that is about to lose a name is in use: if it is not, it can be
    /// freed at once, and need not wait in a queue. No lock may be held.
    pub(crate) fn find_out(&self, ino: Ino) {
        if !self.may_be_inherited() || self.is_held(ino) {
            return;
        }
        let mut state = self.unconfirmed.lock();
        let Some(outside) = state.outside.clone() else { return };
        state.asking.insert(ino);
        drop(state);
        let is_known = outside.knows(ino);
        let mut state = self.unconfirmed.lock();
        // Unless it has become uncertain meanwhile.
        if state.asking.remove(&ino) && !is_known {
            state.unknown.insert(ino);
        }
    }
    /// Records that the count of an inode says nothing, if it ever did.
    fn is_uncertain(&self, ino: Ino) {
        let mut state = self.unconfirmed.lock();
        state.asking.remove(&ino);
        state.unknown.remove(&ino);
    }
    /// Records that no earlier process has left references to an unlinked inode. If it has none at
    /// all, returns the action to take.
    pub(crate) fn unknown(&self, inodes: &impl Inodes, ino: Ino) -> Option<Orphan> {
        let last = |_| {
            let mut shard = self.shard(ino).lock();
            match shard.get(&ino) {
                Some(hold) if hold.count == 0 => {
                    let orphan = shard.remove(&ino)?.orphan?;
                    self.unconfirmed.lock().unknown.insert(ino);
                    Some(orphan)
                }
                _ => None,
            }
        };
        inodes.locked(ino, last).ok().flatten()
    }
    /// Records that an inode is free. It must be locked.
    pub(crate) fn freed(&self, ino: Ino) {
        if self.may_be_inherited() {
            self.is_uncertain(ino);
        }
    }
}

impl Holds {
    #[inline]
    fn shard(&self, ino: Ino) -> &Shard {
        &self.shards[(spread(ino.0) >> 40) as usize % SHARDS]
    }
    pub(crate) fn add(&self, ino: Ino, n: u64) {
        self.shard(ino).lock().entry(ino).or_default().count += n;
    }
    /// Sets the action for an inode that loses its last name, or changes it. The inode must be
    /// locked. Returns `false` if the inode has no references.
    pub(crate) fn orphaned(&self, ino: Ino, orphan: Orphan) -> bool {
        let mut shard = self.shard(ino).lock();
        shard.get_mut(&ino).map(|hold| hold.orphan = Some(orphan)).is_some()
    }
    /// As [`Holds::orphaned`], for one that [`Holds::may_be_held`].
    pub(crate) fn keep(&self, ino: Ino, orphan: Orphan) -> bool {
        let is_held = self.orphaned(ino, orphan);
        if is_held || !self.may_be_held(ino) {
            return is_held;
        }
        self.inherit(ino, orphan);
        true
    }
    /// Removes and returns the action of an inode that has a name again. The inode must be locked.
    pub(crate) fn adopted(&self, ino: Ino) -> Option<Orphan> {
        self.shard(ino).lock().get_mut(&ino).and_then(|hold| hold.orphan.take())
    }
    /// Returns the orphan slot of an unlinked inode. The inode must be locked.
    pub(crate) fn slot_of(&self, ino: Ino) -> Option<OrphanSlot> {
        match self.orphan_of(ino)? {
            Orphan::Slot(slot) => Some(slot),
            Orphan::Detached(_) => None,
        }
    }
    /// Returns the action to take when an unlinked inode is closed for the last time. The inode
    /// must be locked.
    pub(crate) fn orphan_of(&self, ino: Ino) -> Option<Orphan> {
        self.shard(ino).lock().get(&ino)?.orphan
    }
    /// Lists the unlinked inodes with references.
    pub(crate) fn orphans(&self) -> Vec<(Ino, Orphan)> {
        let mut orphans = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            orphans.extend(shard.iter().filter_map(|(ino, hold)| Some((*ino, hold.orphan?))));
        }
        orphans.sort_unstable_by_key(|(ino, _)| *ino);
        orphans
    }
    /// Returns whether the inode has references that were counted, or is kept because it may have.
    pub(crate) fn is_held(&self, ino: Ino) -> bool {
        self.shard(ino).lock().contains_key(&ino)
    }
    /// Returns whether the inode may have references.
    pub(crate) fn may_be_held(&self, ino: Ino) -> bool {
        let inherited =
            || self.may_be_inherited() && !self.unconfirmed.lock().unknown.contains(&ino);
        self.is_held(ino) || inherited()
    }
    /// Returns the subvolumes of all inodes with references.
    pub(crate) fn roots(&self) -> HashSet<RootId> {
        let mut roots = HashSet::new();
        for shard in &self.shards {
            roots.extend(shard.lock().keys().map(|ino| ino.root()));
        }
        roots
    }
    /// Drops `n` references if some remain. Otherwise does nothing and returns `false`.
    fn lower(&self, ino: Ino, n: u64) -> bool {
        match self.shard(ino).lock().get_mut(&ino) {
            Some(hold) if hold.count > n => {
                hold.count -= n;
                true
            }
            _ => false,
        }
    }
    /// Drops `n` references. If none remain, returns the action to take.
    fn sub(&self, ino: Ino, n: u64) -> Option<Orphan> {
        let mut shard = self.shard(ino).lock();
        let hold = shard.get_mut(&ino)?;
        hold.count = hold.count.saturating_sub(n);
        match hold.count {
            0 if self.may_be_inherited() => {
                let has_name = hold.orphan.is_none();
                if has_name {
                    shard.remove(&ino);
                }
                drop(shard);
                self.is_uncertain(ino);
                if !has_name {
                    self.ask(ino);
                }
                None
            }
            0 => shard.remove(&ino).and_then(|hold| hold.orphan),
            _ => None,
        }
    }
}

/// Contents of inodes that are kept outside: a record that goes with the last reference.
impl Holds {
    /// Sets the record of an inode with references.
    #[inline]
    pub(crate) fn set_cached(&self, ino: Ino, cached: bool) {
        if let Some(hold) = self.shard(ino).lock().get_mut(&ino) {
            hold.cached = Some(cached);
        }
    }
    /// Returns whether the contents of an inode may be kept outside.
    #[inline]
    pub(crate) fn may_be_cached(&self, ino: Ino) -> bool {
        let known = self.shard(ino).lock().get(&ino).and_then(|hold| hold.cached);
        known.unwrap_or_else(|| self.may_be_inherited())
    }
}

/// Inodes as far as this module needs them; a test model implements them too.
pub(crate) trait Inodes {
    /// Runs `f` under the inode's read lock. Its argument tells whether the inode is in use.
    fn locked<T>(&self, ino: Ino, f: impl FnOnce(bool) -> T) -> Result<T>;
}

impl Holds {
    /// Adds `n` references; `ESTALE` if the inode is free.
    pub(crate) fn hold(&self, inodes: &impl Inodes, ino: Ino, n: u64) -> Result<()> {
        // Under the inode's lock: an unlink either sees the reference or has already freed the
        // inode.
        inodes.locked(ino, |in_use| {
            if !in_use {
                return Err(Error::Code(Code::Stale));
            }
            self.add(ino, n);
            Ok(())
        })?
    }

    /// Drops `n` references. If they were the last of an unlinked inode, returns the action to
    /// take.
    pub(crate) fn release(&self, inodes: &impl Inodes, ino: Ino, n: u64) -> Option<Orphan> {
        if self.may_be_inherited() && !self.is_held(ino) {
            self.is_uncertain(ino);
            // All were of an earlier process, and the inode has a name: it need not be read. If it
            // is being unlinked just now, that asks about it.
            return None;
        }
        if self.lower(ino, n) {
            return None;
        }
        // Under the inode's lock: an unlink either sees the reference and leaves the freeing to
        // this call, or does not see it and frees the inode itself.
        let last = inodes.locked(ino, |_| self.sub(ino, n));
        last.unwrap_or_else(|_| self.sub(ino, n))
    }
}
