//! SQLite by rusqlite: two tables, and an index by inode for parent pointers.
//!
//! Write-ahead log without syncs, locked for one process, statements prepared once. Entries are
//! in a table without row ids, so its primary key is the tree that holds them: a unique index
//! beside a table of rows would be one tree more.

use super::CACHE_BYTES;
use crate::engine::{Batch, Engine, no_dir};
use crate::error::{PeerError, Result};
use crate::records::{Name, new_row};
use rusqlite::{Connection, ErrorCode, OptionalExtension, params};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Pages in the log that cause a checkpoint: 64 MiB. With the default, 4 MiB, a page is written
/// back more often.
const CHECKPOINT_PAGES: u64 = 16 << 10;

/// `rest` is the row without mtime and size.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS inodes (
        ino INTEGER PRIMARY KEY, mtime_ns INTEGER NOT NULL, size INTEGER NOT NULL,
        rest BLOB NOT NULL
    );
    CREATE TABLE IF NOT EXISTS dirents (
        parent INTEGER NOT NULL, name BLOB NOT NULL, child INTEGER NOT NULL, type INTEGER NOT NULL,
        PRIMARY KEY (parent, name)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS parents ON dirents (child);";

const INSERT_ENTRY: &str = "INSERT INTO dirents (parent, name, child, type) VALUES (?1, ?2, ?3, 8)";
const INSERT_INODE: &str = "INSERT INTO inodes (ino, mtime_ns, size, rest) VALUES (?1, ?2, 0, ?3)";
const ADD_ENTRY: &str = "UPDATE inodes SET mtime_ns = ?2, size = size + 1 WHERE ino = ?1";
const CHILD: &str = "SELECT child FROM dirents WHERE parent = ?1 AND name = ?2";
const PARENT: &str = "SELECT parent, name FROM dirents WHERE child = ?1";
const COUNT: &str = "SELECT count(*) FROM dirents WHERE parent = ?1";
const MODIFIED: &str = "SELECT mtime_ns FROM inodes WHERE ino = ?1";

/// Opens the database in a folder, and makes it if it is not there.
pub(super) fn open(folder: &Path) -> Result<Box<dyn Engine>> {
    let path = folder.join("sqlite.db");
    let connection = Connection::open(&path)?;
    connection.execute_batch(&format!(
        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;
        PRAGMA cache_size = -{}; PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}; {SCHEMA}",
        CACHE_BYTES >> 10
    ))?;
    Ok(Box::new(Sqlite { connection, path }))
}

struct Sqlite {
    connection: Connection,
    path: PathBuf,
}

impl Sqlite {
    fn execute(&self, statement: &str) -> Result<()> {
        self.connection.prepare_cached(statement)?.execute([])?;
        Ok(())
    }

    /// Commits if `work` succeeds, and rolls back if it does not.
    fn transaction(&self, work: impl FnOnce(&Connection) -> Result<()>) -> Result<()> {
        self.execute("BEGIN IMMEDIATE")?;
        match work(&self.connection) {
            Ok(()) => self.execute("COMMIT"),
            Err(e) => self.execute("ROLLBACK").and(Err(e)),
        }
    }
}

fn create_in(connection: &Connection, batch: &Batch<'_>) -> Result<()> {
    let (dir, now_ns) = (batch.dir as i64, batch.now_ns as i64);
    let row = new_row(batch.now_ns);
    let mut insert_entry = connection.prepare_cached(INSERT_ENTRY)?;
    let mut insert_inode = connection.prepare_cached(INSERT_INODE)?;
    let mut add_entry = connection.prepare_cached(ADD_ENTRY)?;
    for file in batch.files {
        // It maintains the index of parent pointers too.
        let inserted = insert_entry.execute(params![dir, file.name, file.ino as i64]);
        inserted.map_err(|e| match e.sqlite_error_code() {
            Some(ErrorCode::ConstraintViolation) => PeerError::exists(&file.name),
            _ => e.into(),
        })?;
        insert_inode.execute(params![file.ino as i64, now_ns, &row[16..]])?;
        if add_entry.execute(params![dir, now_ns])? != 1 {
            return Err(no_dir(batch.dir));
        }
    }
    Ok(())
}

impl Engine for Sqlite {
    fn make_dirs(&mut self, dirs: u64, now_ns: u64) -> Result<()> {
        self.transaction(|connection| {
            let mut insert = connection.prepare_cached(INSERT_INODE)?;
            let row = new_row(now_ns);
            for dir in 0..dirs {
                insert.execute(params![dir as i64, now_ns as i64, &row[16..]])?;
            }
            Ok(())
        })
    }

    fn create(&mut self, batch: &Batch<'_>) -> Result<()> {
        self.transaction(|connection| create_in(connection, batch))
    }

    fn child(&self, dir: u64, name: &Name) -> Result<Option<u64>> {
        let mut select = self.connection.prepare_cached(CHILD)?;
        let child = select.query_row(params![dir as i64, name], |row| row.get::<_, i64>(0));
        Ok(child.optional()?.map(|ino| ino as u64))
    }

    fn parent(&self, ino: u64) -> Result<Option<(u64, Name)>> {
        let mut select = self.connection.prepare_cached(PARENT)?;
        let parent = select.query_row([ino as i64], |row| Ok((row.get::<_, i64>(0)?, row.get(1)?)));
        Ok(parent.optional()?.map(|(dir, name)| (dir as u64, name)))
    }

    fn count(&self, dir: u64) -> Result<u64> {
        let mut select = self.connection.prepare_cached(COUNT)?;
        Ok(select.query_row([dir as i64], |row| row.get::<_, i64>(0))? as u64)
    }

    fn modified_ns(&self, dir: u64) -> Result<u64> {
        let mut select = self.connection.prepare_cached(MODIFIED)?;
        Ok(select.query_row([dir as i64], |row| row.get::<_, i64>(0))? as u64)
    }

    fn close(self: Box<Self>) -> Result<()> {
        let Sqlite { connection, path } = *self;
        connection.execute_batch("PRAGMA synchronous = FULL; PRAGMA wal_checkpoint(TRUNCATE)")?;
        connection.close().map_err(|(_, e)| e)?;
        // A log that an earlier checkpoint had copied whole gives the last one nothing to sync.
        Ok(File::open(path)?.sync_all()?)
    }
}
