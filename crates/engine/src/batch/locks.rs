//! The inodes of a batch, locked, and as they were.

use super::Stop;
use shoal_base::Ino;
use shoal_base::sync::thread;
use shoal_format::inode::Inode;
use shoal_itable::{InodeRef, InodeTable, Locked};
use shoal_txn::Txn;
use std::cell::{RefCell, RefMut};

/// Locked inodes, by number. Only the thread that holds them uses them; one at a time is borrowed.
pub(super) struct Locks<'a> {
    inodes: Vec<Ino>,
    places: Vec<RefCell<Place<'a>>>,
}

/// A locked inode.
pub(super) struct Place<'a> {
    pub inode: Locked<'a>,
    before: Before,
}

/// An inode as it was.
enum Before {
    /// It has not been borrowed.
    Unchanged,
    /// It was free, and had this generation.
    Free(u32),
    /// It was in use.
    Used(Box<Inode>),
}

impl<'a> Locks<'a> {
    /// Locks all, which are in order of their numbers. Never waits for one while holding another,
    /// so it cannot wait for a thread that waits for it: when one is taken, all are released, and
    /// that one is waited for first.
    pub(super) fn take(refs: &'a [InodeRef]) -> Locks<'a> {
        let mut first = 0;
        loop {
            match try_all(refs, first) {
                Ok(locked) => {
                    let place = |inode| RefCell::new(Place { inode, before: Before::Unchanged });
                    return Locks {
                        inodes: refs.iter().map(|inode| inode.ino).collect(),
                        places: locked.into_iter().map(place).collect(),
                    };
                }
                Err(taken) => {
                    first = taken;
                    thread::yield_now();
                }
            }
        }
    }

    /// Borrows an inode that may be changed.
    ///
    /// # Errors
    /// [`Stop::Changed`] when it is not among them: a name has come to mean another inode. The same
    /// when it is borrowed, as of an entry that names its own directory.
    pub(super) fn get(&self, ino: Ino) -> Result<RefMut<'_, Place<'a>>, Stop> {
        let at = self.inodes.binary_search(&ino).map_err(|_| Stop::Changed)?;
        let mut place = self.places[at].try_borrow_mut().map_err(|_| Stop::Changed)?;
        if matches!(place.before, Before::Unchanged) {
            let inode = place.inode.inode();
            place.before = match inode.core.in_use() {
                true => Before::Used(Box::new(inode.clone())),
                false => Before::Free(inode.core.generation),
            };
        }
        Ok(place)
    }

    /// Calls `f` with the inode, to look at, if it is among them and not borrowed.
    pub(super) fn look<R>(&self, ino: Ino, f: impl FnOnce(&Inode) -> R) -> Option<R> {
        let at = self.inodes.binary_search(&ino).ok()?;
        self.places[at].try_borrow().ok().map(|place| f(place.inode.inode()))
    }

    /// Calls `each` with every inode that may have been changed.
    pub(super) fn each_changed<E>(
        &self,
        mut each: impl FnMut(&mut Locked<'a>) -> Result<(), E>,
    ) -> Result<(), E> {
        for place in &self.places {
            let mut place = place.borrow_mut();
            if !matches!(place.before, Before::Unchanged) {
                each(&mut place.inode)?;
            }
        }
        Ok(())
    }

    /// Makes every inode what it was.
    pub(super) fn restore(&self, txn: &mut Txn<'_>, table: &InodeTable) {
        for place in &self.places {
            let mut place = place.borrow_mut();
            let before = match std::mem::replace(&mut place.before, Before::Unchanged) {
                Before::Unchanged => continue,
                Before::Free(generation) => Inode::free(generation),
                Before::Used(inode) => *inode,
            };
            txn.forget(&mut place.inode);
            if *place.inode.inode() != before {
                *place.inode.edit(table, txn.epoch()) = before;
            }
        }
    }
}

/// Locks all, waiting for `first` alone; or returns which one is taken.
fn try_all(refs: &[InodeRef], first: usize) -> Result<Vec<Locked<'_>>, usize> {
    let mut waited = refs.get(first).map(InodeRef::write);
    let mut locked = Vec::with_capacity(refs.len());
    for (at, inode) in refs.iter().enumerate() {
        let it = if at == first { waited.take() } else { inode.try_write() };
        locked.push(it.ok_or(at)?);
    }
    Ok(locked)
}
