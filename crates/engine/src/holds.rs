//! References to inodes from outside: open handles and the kernel's knowledge of them. What is held
//! survives its last unlink until it is released.

use crate::volume::Inner;
use shoal_base::shard::spread;
use shoal_base::{Code, Error, Ino, Result, RootId};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use sync::Mutex;

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

type Shard = Mutex<HashMap<Ino, u64, BuildHasherDefault<InoHasher>>>;

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
        *self.shard(ino).lock().entry(ino).or_insert(0) += n;
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
            Some(count) if *count > n => {
                *count -= n;
                true
            }
            _ => false,
        }
    }
    /// Takes `n` off; returns whether nothing is left.
    fn sub(&self, ino: Ino, n: u64) -> bool {
        let mut shard = self.shard(ino).lock();
        let Some(count) = shard.get_mut(&ino) else { return false };
        *count = count.saturating_sub(n);
        let none = *count == 0;
        if none {
            shard.remove(&ino);
        }
        none
    }
}

/// Inodes as they are seen from here. A model has others than a volume.
trait Inodes {
    /// Runs `f` while the inode is locked for reading; tells it whether the inode is in use.
    fn locked<T>(&self, ino: Ino, f: impl FnOnce(bool) -> T) -> Result<T>;
    /// Whether the inode has lost its last name.
    fn is_orphan(&self, ino: Ino) -> bool;
}

impl Inodes for Inner {
    fn locked<T>(&self, ino: Ino, f: impl FnOnce(bool) -> T) -> Result<T> {
        let inode = self.inode(ino)?;
        let slot = inode.read();
        Ok(f(slot.inode.core.in_use()))
    }
    fn is_orphan(&self, ino: Ino) -> bool {
        self.store.orphans.contains(ino)
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

    /// Drops `n` references; whether they were the last to an orphan, which the caller has to reap.
    fn release(&self, inodes: &impl Inodes, ino: Ino, n: u64) -> bool {
        if self.lower(ino, n) {
            return false;
        }
        // Under the inode's lock, so that an unlink either sees the reference and leaves an
        // orphan for us, or does not see it and frees the inode itself.
        let last = inodes.locked(ino, |_| self.sub(ino, n) && inodes.is_orphan(ino));
        last.unwrap_or_else(|_| {
            self.sub(ino, n);
            false
        })
    }
}

impl Inner {
    /// Adds `n` references. `ESTALE` when the inode is free.
    pub fn hold(&self, ino: Ino, n: u64) -> Result<()> {
        self.holds.hold(self, ino, n)
    }

    /// Drops `n` references; at zero an unlinked inode is freed.
    pub fn release(&self, ino: Ino, n: u64) {
        if self.holds.release(self, ino, n)
            && let Err(e) = self.reap(ino)
        {
            tracing::warn!(%ino, error = %e, "orphan is left for the next recovery");
        }
    }
}

#[cfg(not(test))]
mod sync {
    pub(super) use parking_lot::Mutex;
}

/// The same under the scheduler of `shuttle`: the unit tests of this crate make no volumes.
#[cfg(test)]
mod sync {
    use shuttle::sync as inner;

    #[derive(Default)]
    pub(super) struct Mutex<T>(inner::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn lock(&self) -> inner::MutexGuard<'_, T> {
            self.0.lock().expect("a thread of the model panicked")
        }
    }
}
