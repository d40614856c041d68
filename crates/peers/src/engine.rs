//! The interface to an engine, and what engines of keys and values have in common.

use crate::error::{PeerError, Result};
use crate::records::{
    EntryKey, EntryValue, InodeKey, Name, NewFile, ParentKey, Row, add_entry, entry_key,
    entry_value, inode_key, new_row, parent_key,
};
use std::path::Path;

/// Files to create in one transaction, all in one directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Batch<'a> {
    /// Number of the directory, from 0.
    pub dir: u64,
    pub files: &'a [NewFile],
    /// Time of the transaction.
    pub now_ns: u64,
}

/// An open store of directories and files.
pub(crate) trait Engine {
    /// Makes the directories 0 to `dirs`, exclusive. Called once, on a fresh store.
    fn make_dirs(&mut self, dirs: u64, now_ns: u64) -> Result<()>;

    /// Creates the files of a batch as one transaction. For each: checks that the name is absent
    /// and inserts the directory entry, inserts the parent pointer, inserts the inode, changes
    /// mtime and size of the directory's inode.
    ///
    /// # Errors
    /// [`PeerError::Exists`] for a name that is there: then none of the batch is.
    fn create(&mut self, batch: &Batch<'_>) -> Result<()>;

    /// The inode number that a name leads to.
    fn child(&self, dir: u64, name: &Name) -> Result<Option<u64>>;

    /// Directory and name of an inode, by its parent pointer.
    fn parent(&self, ino: u64) -> Result<Option<(u64, Name)>>;

    /// Number of a directory's entries, counted.
    fn count(&self, dir: u64) -> Result<u64>;

    /// Time of the last change of a directory.
    fn modified_ns(&self, dir: u64) -> Result<u64>;

    /// Makes everything durable, and closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// A kind of engine.
pub(crate) struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// Opens a store in a folder, and makes it if the folder is empty.
    pub open: fn(&Path) -> Result<Box<dyn Engine>>,
}

/// The three tables of an engine of keys and values, in a transaction.
pub(crate) trait Tables {
    /// Inserts an entry. Returns false if there is one of that key: the caller then ends the
    /// transaction without a commit, so it does not matter if the value was replaced.
    fn insert_entry(&mut self, key: &EntryKey, value: &EntryValue) -> Result<bool>;

    /// Inserts a parent pointer.
    fn insert_parent(&mut self, key: &ParentKey) -> Result<()>;

    /// Inserts an inode.
    fn insert_inode(&mut self, key: &InodeKey, row: &Row) -> Result<()>;

    /// Reads the row of an inode, changes it, and writes it. Returns false if there is no such
    /// inode.
    fn change_inode(&mut self, key: &InodeKey, change: impl FnOnce(&mut Row)) -> Result<bool>;
}

/// [`Engine::make_dirs`] in a transaction that the caller commits.
pub(crate) fn make_dirs_in(tables: &mut impl Tables, dirs: u64, now_ns: u64) -> Result<()> {
    (0..dirs).try_for_each(|dir| tables.insert_inode(&inode_key(dir), &new_row(now_ns)))
}

/// [`Engine::create`] in a transaction that the caller commits, if this succeeds.
#[inline]
pub(crate) fn create_in(tables: &mut impl Tables, batch: &Batch<'_>) -> Result<()> {
    let &Batch { dir, files, now_ns } = batch;
    for file in files {
        if !tables.insert_entry(&entry_key(dir, &file.name), &entry_value(file.ino))? {
            return Err(PeerError::exists(&file.name));
        }
        tables.insert_parent(&parent_key(file.ino, dir, &file.name))?;
        tables.insert_inode(&inode_key(file.ino), &new_row(now_ns))?;
        // Each create changes it, as each is an operation of its own that the batch joins.
        if !tables.change_inode(&inode_key(dir), |row| add_entry(row, now_ns))? {
            return Err(no_dir(dir));
        }
    }
    Ok(())
}

/// The error for a directory that is not there.
#[cold]
pub(crate) fn no_dir(dir: u64) -> PeerError {
    PeerError::new(format!("there is no directory {dir}"))
}
