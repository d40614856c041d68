//! Exclusion of writers: one writer of objects per file, so that the state of the file when a write
//! is planned rarely changes before its transaction.
//!
//! Acquired before a transaction begins, and held while objects are read and written. A transaction
//! must never wait for it.

use shoal_base::cold;
use shoal_base::shard::spread;
use shoal_base::sync::{Condvar, Mutex};
use shoal_base::{Ino, Result};

const SHARDS: usize = 64;

/// Inode numbers with a writer, and the condition for waiting threads.
#[derive(Default)]
struct Shard {
    /// A few: one for each thread that is writing.
    writing: Mutex<Vec<Ino>>,
    ended: Condvar,
}

/// The files that currently have a writer.
pub(crate) struct Writers {
    shards: Box<[Shard]>,
}

impl Default for Writers {
    fn default() -> Self {
        Writers { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl Writers {
    /// Waits until the file has no other writer, which may be waiting for the device.
    ///
    /// # Errors
    /// That of [`cold::refuse`].
    pub(crate) fn enter(&self, ino: Ino) -> Result<Writing<'_>> {
        let shard = &self.shards[(spread(ino.0) >> 40) as usize % SHARDS];
        let attempt = || {
            let mut writing = shard.writing.lock();
            let is_free = !writing.contains(&ino);
            is_free.then(|| writing.push(ino))
        };
        let wait = || {
            let mut writing = shard.writing.lock();
            while writing.contains(&ino) {
                shard.ended.wait(&mut writing);
            }
            writing.push(ino);
        };
        cold::lock(attempt, wait)?;
        Ok(Writing { shard, ino })
    }
}

/// The right to write objects of a file, until it is dropped.
#[must_use]
pub(crate) struct Writing<'w> {
    shard: &'w Shard,
    ino: Ino,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.shard.writing.lock().retain(|ino| *ino != self.ino);
        self.shard.ended.notify_all();
    }
}
