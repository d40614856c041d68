//! Notices of changes, for a front end that caches names and inodes: a mount's kernel.

use shoal_engine::{Attr, Ino, Result};

/// A listener that is told what a call has changed: after the change, by the same thread, without
/// locks, before the call returns. The names and inodes are those of the call; changes that other
/// threads make meanwhile are told by these.
pub trait Told: Send + Sync {
    /// Data of a file is about to be read or changed: what the listener has of it and the volume
    /// has not is to be written first.
    ///
    /// # Errors
    /// For a thread that must not wait, that it would have to.
    fn before_data(&self, _ino: Ino) -> Result<()> {
        Ok(())
    }

    /// A call is about to take a name from the inode that it leads to, or to move it; if it does,
    /// the name is told after that.
    ///
    /// # Errors
    /// For a thread that must not wait, that it would have to.
    fn before_name(&self, _dir: Ino, _name: &[u8]) -> Result<()> {
        Ok(())
    }

    /// A name has been added, removed, or leads to another inode. Both names of a rename are told.
    fn name(&self, dir: Ino, name: &[u8]);

    /// Attributes of an inode have changed: also those of a directory whose entries have changed,
    /// and of a file that has been linked or unlinked.
    fn attributes(&self, ino: Ino);

    /// Data of a file has changed, and so its attributes: `len` bytes at `at`; a `len` of 0 means
    /// everything from `at` to the end.
    fn data(&self, ino: Ino, at: u64, len: u64);

    /// A directory has been removed with everything below it: its name in `dir`, and what it was.
    /// That the name is gone is told next.
    fn tree(&self, dir: Ino, name: &[u8], top: &Attr);
}
