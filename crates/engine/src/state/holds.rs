//! References to inodes from outside: open handles, and inodes that the kernel knows. An inode with
//! references survives its last unlink until they are released.

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
}

type Shard = Mutex<HashMap<Ino, Hold, BuildHasherDefault<InoHasher>>>;

/// Reference counts; only those above zero have an entry.
pub(crate) struct Holds {
    shards: Box<[Shard]>,
}

impl Default for Holds {
    fn default() -> Self {
        Holds { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl Holds {
    #[inline]
    fn shard(&self, ino: Ino) -> &Shard {
        &self.shards[(spread(ino.0) >> 40) as usize % SHARDS]
    }
    pub fn add(&self, ino: Ino, n: u64) {
        self.shard(ino).lock().entry(ino).or_default().count += n;
    }
    /// Sets the action for an inode that loses its last name, or changes it. The inode must be
    /// locked. Returns `false` if the inode has no references.
    pub fn orphaned(&self, ino: Ino, orphan: Orphan) -> bool {
        let mut shard = self.shard(ino).lock();
        shard.get_mut(&ino).map(|hold| hold.orphan = Some(orphan)).is_some()
    }
    /// Removes and returns the action of an inode that has a name again. The inode must be locked.
    pub fn adopted(&self, ino: Ino) -> Option<Orphan> {
        self.shard(ino).lock().get_mut(&ino).and_then(|hold| hold.orphan.take())
    }
    /// Returns the orphan slot of an unlinked inode. The inode must be locked.
    pub fn slot_of(&self, ino: Ino) -> Option<OrphanSlot> {
        match self.orphan_of(ino)? {
            Orphan::Slot(slot) => Some(slot),
            Orphan::Detached(_) => None,
        }
    }
    /// Returns the action to take when an unlinked inode is closed for the last time. The inode
    /// must be locked.
    pub fn orphan_of(&self, ino: Ino) -> Option<Orphan> {
        self.shard(ino).lock().get(&ino)?.orphan
    }
    /// Lists the unlinked inodes with references.
    pub fn orphans(&self) -> Vec<(Ino, Orphan)> {
        let mut orphans = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            orphans.extend(shard.iter().filter_map(|(ino, hold)| Some((*ino, hold.orphan?))));
        }
        orphans.sort_unstable_by_key(|(ino, _)| *ino);
        orphans
    }
    pub fn is_held(&self, ino: Ino) -> bool {
        self.shard(ino).lock().contains_key(&ino)
    }
    /// Returns the subvolumes of all inodes with references.
    pub fn roots(&self) -> HashSet<RootId> {
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
            0 => shard.remove(&ino).and_then(|hold| hold.orphan),
            _ => None,
        }
    }
}

/// Inodes as far as this module needs them; a test model implements them too.
pub(crate) trait Inodes {
    /// Runs `f` under the inode's read lock. Its argument tells whether the inode is in use.
    fn locked<T>(&self, ino: Ino, f: impl FnOnce(bool) -> T) -> Result<T>;
}

impl Holds {
    /// Adds `n` references; `ESTALE` if the inode is free.
    pub fn hold(&self, inodes: &impl Inodes, ino: Ino, n: u64) -> Result<()> {
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
    pub fn release(&self, inodes: &impl Inodes, ino: Ino, n: u64) -> Option<Orphan> {
        if self.lower(ino, n) {
            return None;
        }
        // Under the inode's lock: an unlink either sees the reference and leaves the freeing to
        // this call, or does not see it and frees the inode itself.
        let last = inodes.locked(ino, |_| self.sub(ino, n));
        last.unwrap_or_else(|_| self.sub(ino, n))
    }
}
