//! References to inodes from outside: open handles and the kernel's knowledge of them. What is held
//! survives its last unlink until it is released.

use crate::volume::Inner;
use shoal_base::shard::spread;
#[cfg(not(test))]
use shoal_base::sync::Mutex;
// The unit tests of this crate make no volumes that hold anything.
#[cfg(test)]
use shoal_base::sync::checked::Mutex;
use shoal_base::{Code, Error, Ino, Result, RootId};
use shoal_txn::OrphanSlot;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

#[cfg(test)]
mod tests;

const SHARDS: usize = 256;

/// Inode numbers are spread by multiplication: they are not an adversary's choice.
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

/// What has to be done when the last reference to an inode without a name goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Orphan {
    /// It stands in the orphan table, here.
    Slot(OrphanSlot),
    /// The device has long forgotten it; counted by this shard of [`crate::orphan::Detached`].
    Detached(u8),
}

/// References to one inode.
#[derive(Default)]
struct Hold {
    count: u64,
    orphan: Option<Orphan>,
}

type Shard = Mutex<HashMap<Ino, Hold, BuildHasherDefault<InoHasher>>>;

/// Reference counts above zero.
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
    /// An inode loses its last name, or what is to become of it changes. Under the inode's lock.
    /// `false`: nobody holds it.
    pub fn orphaned(&self, ino: Ino, orphan: Orphan) -> bool {
        let mut shard = self.shard(ino).lock();
        shard.get_mut(&ino).map(|hold| hold.orphan = Some(orphan)).is_some()
    }
    /// An inode has a name again: what it was to be freed by. Under the inode's lock.
    pub fn adopted(&self, ino: Ino) -> Option<Orphan> {
        self.shard(ino).lock().get_mut(&ino).and_then(|hold| hold.orphan.take())
    }
    /// The slot of one without a name. Under the inode's lock.
    pub fn slot_of(&self, ino: Ino) -> Option<OrphanSlot> {
        match self.orphan_of(ino)? {
            Orphan::Slot(slot) => Some(slot),
            Orphan::Detached(_) => None,
        }
    }
    /// What is to be done with one without a name that is held. Under the inode's lock.
    pub fn orphan_of(&self, ino: Ino) -> Option<Orphan> {
        self.shard(ino).lock().get(&ino)?.orphan
    }
    /// Those that have no name.
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
    /// The roots in which something is held.
    pub fn roots(&self) -> HashSet<RootId> {
        let mut roots = HashSet::new();
        for shard in &self.shards {
            roots.extend(shard.lock().keys().map(|ino| ino.root()));
        }
        roots
    }
    /// Takes `n` off if something is left then; `false`, and nothing done, otherwise.
    fn lower(&self, ino: Ino, n: u64) -> bool {
        match self.shard(ino).lock().get_mut(&ino) {
            Some(hold) if hold.count > n => {
                hold.count -= n;
                true
            }
            _ => false,
        }
    }
    /// Takes `n` off; if nothing is left then, what is to be done.
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

/// Inodes as they are seen from here. A model has others than a volume.
trait Inodes {
    /// Runs `f` while the inode is locked for reading; tells it whether the inode is in use.
    fn locked<T>(&self, ino: Ino, f: impl FnOnce(bool) -> T) -> Result<T>;
}

impl Inodes for Inner {
    fn locked<T>(&self, ino: Ino, f: impl FnOnce(bool) -> T) -> Result<T> {
        let inode = self.inode(ino)?;
        let slot = inode.read();
        Ok(f(slot.inode.core.in_use()))
    }
}

impl Holds {
    /// Adds `n` references. `ESTALE` when the inode is free.
    fn hold(&self, inodes: &impl Inodes, ino: Ino, n: u64) -> Result<()> {
        // Under the inode's lock, so that an unlink sees it or has already freed the inode.
        inodes.locked(ino, |in_use| {
            if !in_use {
                return Err(Error::Code(Code::Stale));
            }
            self.add(ino, n);
            Ok(())
        })?
    }

    /// Drops `n` references; if they were the last to an orphan, what the caller has to end.
    fn release(&self, inodes: &impl Inodes, ino: Ino, n: u64) -> Option<Orphan> {
        if self.lower(ino, n) {
            return None;
        }
        // Under the inode's lock, so that an unlink either sees the reference and leaves an
        // orphan for us, or does not see it and frees the inode itself.
        let last = inodes.locked(ino, |_| self.sub(ino, n));
        last.unwrap_or_else(|_| self.sub(ino, n))
    }
}

impl Inner {
    /// Adds `n` references. `ESTALE` when the inode is free.
    pub fn hold(&self, ino: Ino, n: u64) -> Result<()> {
        self.holds.hold(self, ino, n)
    }

    /// Drops `n` references; at zero an unlinked inode is freed.
    pub fn release(&self, ino: Ino, n: u64) {
        let ended = match self.holds.release(self, ino, n) {
            None => Ok(()),
            Some(Orphan::Detached(shard)) => self.end_detached(ino, shard),
            Some(Orphan::Slot(slot)) => self.reap_released(ino, slot),
        };
        if let Err(e) = ended {
            tracing::warn!(%ino, error = %e, "orphan is left for the next recovery");
        }
    }
}
