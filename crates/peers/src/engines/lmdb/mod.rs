//! LMDB by heed: three databases in one memory-mapped file, without syncs.
//!
//! The map is read only: a commit writes its pages by system calls. An entry, the check for its
//! name included, takes one descent.

mod env;

use crate::engine::{Batch, Engine, Tables, create_in, make_dirs_in};
use crate::error::{PeerError, Result};
use crate::records::{
    EntryKey, EntryValue, InodeKey, Name, ParentKey, Row, entry_key, inode_key, name_of, number_at,
};
use heed::types::Bytes;
use heed::{CommitOrAbort, Env, MdbError, PutFlags, RwTxn};
use std::path::Path;

type Database = heed::Database<'static, Bytes, Bytes>;

/// Opens the environment in a folder, and makes it if it is not there.
pub(super) fn open(folder: &Path) -> Result<Box<dyn Engine>> {
    let env = env::open(folder)?;
    let made = env.create_databases_and_commit(env.write_txn()?, |opener, write| {
        let mut database = |name| opener.create_database::<Bytes, Bytes>(write, Some(name));
        let all = [database("entries")?, database("parents")?, database("inodes")?];
        Ok::<_, PeerError>(CommitOrAbort::<_, ()>::Commit(all))
    })?;
    let [entries, parents, inodes] = made.unwrap_commit();
    Ok(Box::new(Lmdb { entries, parents, inodes, env }))
}

struct Lmdb {
    entries: Database,
    parents: Database,
    inodes: Database,
    env: Env,
}

struct Transaction<'l> {
    write: RwTxn<'l>,
    of: &'l Lmdb,
}

impl Tables for Transaction<'_> {
    #[inline]
    fn insert_entry(&mut self, key: &EntryKey, value: &EntryValue) -> Result<bool> {
        let Transaction { write, of } = self;
        match of.entries.put_with_flags(write, PutFlags::NO_OVERWRITE, key, value) {
            Ok(()) => Ok(true),
            Err(heed::Error::Mdb(MdbError::KeyExist)) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    #[inline]
    fn insert_parent(&mut self, key: &ParentKey) -> Result<()> {
        Ok(self.of.parents.put(&mut self.write, key, &[])?)
    }

    #[inline]
    fn insert_inode(&mut self, key: &InodeKey, row: &Row) -> Result<()> {
        Ok(self.of.inodes.put(&mut self.write, key, row)?)
    }

    #[inline]
    fn change_inode(&mut self, key: &InodeKey, change: impl FnOnce(&mut Row)) -> Result<bool> {
        let old = self.of.inodes.get(&self.write, key)?;
        let Some(mut row) = old.and_then(|row| row.first_chunk().copied()) else {
            return Ok(false);
        };
        change(&mut row);
        self.insert_inode(key, &row)?;
        Ok(true)
    }
}

impl Lmdb {
    /// Commits if `work` succeeds; a transaction that is dropped changes nothing.
    fn transaction(&self, work: impl FnOnce(&mut Transaction<'_>) -> Result<()>) -> Result<()> {
        let mut transaction = Transaction { write: self.env.write_txn()?, of: self };
        work(&mut transaction)?;
        Ok(transaction.write.commit()?)
    }
}

impl Engine for Lmdb {
    fn make_dirs(&mut self, dirs: u64, now_ns: u64) -> Result<()> {
        self.transaction(|tables| make_dirs_in(tables, dirs, now_ns))
    }

    fn create(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.transaction(|tables| create_in(tables, batch))
    }

    fn child(&self, dir: u64, name: &Name) -> Result<Option<u64>> {
        let read = self.env.read_txn()?;
        let value = self.entries.get(&read, &entry_key(dir, name))?;
        Ok(value.map(|value| number_at(value, 0)))
    }

    fn parent(&self, ino: u64) -> Result<Option<(u64, Name)>> {
        let read = self.env.read_txn()?;
        let first = self.parents.prefix_iter(&read, &inode_key(ino))?.next().transpose()?;
        Ok(first.and_then(|(key, _)| Some((number_at(key, 8), name_of(key)?))))
    }

    fn count(&self, dir: u64) -> Result<u64> {
        let read = self.env.read_txn()?;
        let mut count = 0;
        for item in self.entries.prefix_iter(&read, &inode_key(dir))? {
            let _there = item?;
            count += 1;
        }
        Ok(count)
    }

    fn modified_ns(&self, dir: u64) -> Result<u64> {
        let read = self.env.read_txn()?;
        Ok(self.inodes.get(&read, &inode_key(dir))?.map_or(0, |row| number_at(row, 0)))
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.env.force_sync()?;
        self.env.prepare_for_closing().wait();
        Ok(())
    }
}
