//! fjall, a log-structured merge tree: three keyspaces, transactions of one writer.
//!
//! The journal stays in the process until it is full or synced: no system call for a transaction.
//! Without compression. Sorting what was written is left to its background threads, and most of it
//! to later runs: the close makes only the journal durable.

use super::CACHE_BYTES;
use crate::engine::{Batch, Engine, Tables, create_in, make_dirs_in};
use crate::error::Result;
use crate::records::{
    EntryKey, EntryValue, InodeKey, Name, ParentKey, Row, entry_key, inode_key, name_of, number_at,
};
use fjall::{
    KeyspaceCreateOptions, PersistMode, Readable, SingleWriterTxDatabase, SingleWriterTxKeyspace,
    SingleWriterWriteTx,
};
use std::path::Path;

/// Opens the database in a folder, and makes it if it is not there.
pub(super) fn open(folder: &Path) -> Result<Box<dyn Engine>> {
    let options = SingleWriterTxDatabase::builder(folder.join("fjall"));
    let database = options.cache_size(CACHE_BYTES).manual_journal_persist(true).open()?;
    let keyspace = |name| database.keyspace(name, KeyspaceCreateOptions::default);
    let (entries, parents, inodes) =
        (keyspace("entries")?, keyspace("parents")?, keyspace("inodes")?);
    Ok(Box::new(Fjall { entries, parents, inodes, database }))
}

struct Fjall {
    entries: SingleWriterTxKeyspace,
    parents: SingleWriterTxKeyspace,
    inodes: SingleWriterTxKeyspace,
    database: SingleWriterTxDatabase,
}

struct Transaction<'f> {
    write: SingleWriterWriteTx<'f>,
    of: &'f Fjall,
}

impl Tables for Transaction<'_> {
    #[inline]
    fn insert_entry(&mut self, key: &EntryKey, value: &EntryValue) -> Result<bool> {
        let absent = !self.write.contains_key(&self.of.entries, key)?;
        if absent {
            self.write.insert(&self.of.entries, key.as_slice(), value.as_slice());
        }
        Ok(absent)
    }

    #[inline]
    fn insert_parent(&mut self, key: &ParentKey) -> Result<()> {
        self.write.insert(&self.of.parents, key.as_slice(), [].as_slice());
        Ok(())
    }

    #[inline]
    fn insert_inode(&mut self, key: &InodeKey, row: &Row) -> Result<()> {
        self.write.insert(&self.of.inodes, key.as_slice(), row.as_slice());
        Ok(())
    }

    #[inline]
    fn change_inode(&mut self, key: &InodeKey, change: impl FnOnce(&mut Row)) -> Result<bool> {
        let old = self.write.get(&self.of.inodes, key)?;
        let Some(mut row) = old.and_then(|row| row.first_chunk().copied()) else {
            return Ok(false);
        };
        change(&mut row);
        self.insert_inode(key, &row)?;
        Ok(true)
    }
}

impl Fjall {
    /// Commits if `work` succeeds; a transaction that is dropped changes nothing.
    fn transaction(&self, work: impl FnOnce(&mut Transaction<'_>) -> Result<()>) -> Result<()> {
        let write = self.database.write_tx().durability(None);
        let mut transaction = Transaction { write, of: self };
        work(&mut transaction)?;
        Ok(transaction.write.commit()?)
    }
}

impl Engine for Fjall {
    fn make_dirs(&mut self, dirs: u64, now_ns: u64) -> Result<()> {
        self.transaction(|tables| make_dirs_in(tables, dirs, now_ns))
    }

    fn create(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.transaction(|tables| create_in(tables, batch))
    }

    fn child(&self, dir: u64, name: &Name) -> Result<Option<u64>> {
        let value = self.entries.get(entry_key(dir, name))?;
        Ok(value.map(|value| number_at(&value, 0)))
    }

    fn parent(&self, ino: u64) -> Result<Option<(u64, Name)>> {
        let mut found = self.database.read_tx().prefix(&self.parents, inode_key(ino));
        let key = found.next().map(|item| item.key()).transpose()?;
        Ok(key.and_then(|key| Some((number_at(&key, 8), name_of(&key)?))))
    }

    fn count(&self, dir: u64) -> Result<u64> {
        let mut count = 0;
        for item in self.database.read_tx().prefix(&self.entries, inode_key(dir)) {
            let _there = item.key()?;
            count += 1;
        }
        Ok(count)
    }

    fn modified_ns(&self, dir: u64) -> Result<u64> {
        let row = self.inodes.get(inode_key(dir))?;
        Ok(row.map_or(0, |row| number_at(&row, 0)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.database.persist(PersistMode::SyncAll)?;
        // Its last handle waits for the background threads.
        drop(self);
        Ok(())
    }
}
