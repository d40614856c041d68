//! redb: three tables of keys and values of fixed sizes.
//!
//! Commits are not durable but for the last one. An entry, the check for its name included, takes
//! one descent: the insert returns the old value.

use super::CACHE_BYTES;
use crate::engine::{Batch, Engine, Tables, create_in, make_dirs_in};
use crate::error::Result;
use crate::records::{
    EntryKey, EntryValue, InodeKey, Name, ParentKey, Row, entry_key, inode_key, name_of, number_at,
    parent_key,
};
use redb::{Database, Durability, ReadableDatabase, Table, TableDefinition, WriteTransaction};
use std::path::Path;

const ENTRIES: TableDefinition<'_, &EntryKey, &EntryValue> = TableDefinition::new("entries");
const PARENTS: TableDefinition<'_, &ParentKey, ()> = TableDefinition::new("parents");
const INODES: TableDefinition<'_, &InodeKey, &Row> = TableDefinition::new("inodes");

/// Opens the database in a folder, and makes it if it is not there.
pub(super) fn open(folder: &Path) -> Result<Box<dyn Engine>> {
    let path = folder.join("redb.db");
    let database = Database::builder().set_cache_size(CACHE_BYTES as usize).create(path)?;
    Ok(Box::new(Redb(database)))
}

struct Redb(Database);

struct Transaction<'t> {
    entries: Table<'t, &'static EntryKey, &'static EntryValue>,
    parents: Table<'t, &'static ParentKey, ()>,
    inodes: Table<'t, &'static InodeKey, &'static Row>,
}

impl<'t> Transaction<'t> {
    fn of(transaction: &'t WriteTransaction) -> Result<Transaction<'t>> {
        Ok(Transaction {
            entries: transaction.open_table(ENTRIES)?,
            parents: transaction.open_table(PARENTS)?,
            inodes: transaction.open_table(INODES)?,
        })
    }
}

impl Tables for Transaction<'_> {
    #[inline]
    fn insert_entry(&mut self, key: &EntryKey, value: &EntryValue) -> Result<bool> {
        Ok(self.entries.insert(key, value)?.is_none())
    }

    #[inline]
    fn insert_parent(&mut self, key: &ParentKey) -> Result<()> {
        self.parents.insert(key, ())?;
        Ok(())
    }

    #[inline]
    fn insert_inode(&mut self, key: &InodeKey, row: &Row) -> Result<()> {
        self.inodes.insert(key, row)?;
        Ok(())
    }

    #[inline]
    fn change_inode(&mut self, key: &InodeKey, change: impl FnOnce(&mut Row)) -> Result<bool> {
        let Some(mut place) = self.inodes.get_mut(key)? else { return Ok(false) };
        let mut row = *place.value();
        change(&mut row);
        place.insert(&row)?;
        Ok(true)
    }
}

impl Redb {
    /// Commits if `work` succeeds, and aborts if it does not.
    fn transaction(&self, work: impl FnOnce(&mut Transaction<'_>) -> Result<()>) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(Durability::None)?;
        let worked = Transaction::of(&transaction).and_then(|mut tables| work(&mut tables));
        match worked {
            Ok(()) => Ok(transaction.commit()?),
            Err(e) => transaction.abort().map_err(Into::into).and(Err(e)),
        }
    }
}

impl Engine for Redb {
    fn make_dirs(&mut self, dirs: u64, now_ns: u64) -> Result<()> {
        self.transaction(|tables| make_dirs_in(tables, dirs, now_ns))
    }

    fn create(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.transaction(|tables| create_in(tables, batch))
    }

    fn child(&self, dir: u64, name: &Name) -> Result<Option<u64>> {
        let entries = self.0.begin_read()?.open_table(ENTRIES)?;
        let value = entries.get(&entry_key(dir, name))?;
        Ok(value.map(|value| number_at(value.value(), 0)))
    }

    fn parent(&self, ino: u64) -> Result<Option<(u64, Name)>> {
        let parents = self.0.begin_read()?.open_table(PARENTS)?;
        let (low, high) = (parent_key(ino, 0, &[0; _]), parent_key(ino + 1, 0, &[0; _]));
        let first = parents.range::<&ParentKey>(&low..&high)?.next().transpose()?;
        Ok(first.and_then(|(key, _)| Some((number_at(key.value(), 8), name_of(key.value())?))))
    }

    fn count(&self, dir: u64) -> Result<u64> {
        let entries = self.0.begin_read()?.open_table(ENTRIES)?;
        let (low, high) = (entry_key(dir, &[0; _]), entry_key(dir + 1, &[0; _]));
        let mut count = 0;
        for item in entries.range::<&EntryKey>(&low..&high)? {
            let _there = item?;
            count += 1;
        }
        Ok(count)
    }

    fn modified_ns(&self, dir: u64) -> Result<u64> {
        let inodes = self.0.begin_read()?.open_table(INODES)?;
        let row = inodes.get(&inode_key(dir))?;
        Ok(row.map_or(0, |row| number_at(row.value(), 0)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        // A durable commit, even of nothing, makes all commits before it durable.
        self.0.begin_write()?.commit()?;
        Ok(self.0.close()?)
    }
}
