//! Who writes to which file: one writer of objects for each file, so that what it found of the file
//! before its transaction is as a rule still so inside it.
//!
//! Taken before the checkpoint's gate, and held while objects are read and written; nothing inside
//! the gate waits for it.

use shoal_base::Ino;
use shoal_base::shard::spread;
use shoal_base::sync::{Condvar, Mutex};

const SHARDS: usize = 64;

/// Inode numbers with a writer, and where others wait for them.
#[derive(Default)]
struct Shard {
    /// A handful: as many as threads write at this moment.
    writing: Mutex<Vec<Ino>>,
    ended: Condvar,
}

/// The files that have a writer at the moment.
pub(crate) struct Writers {
    shards: Box<[Shard]>,
}

impl Default for Writers {
    fn default() -> Self {
        Writers { shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }
}

impl Writers {
    /// Waits until the file has no other writer.
    pub fn enter(&self, ino: Ino) -> Writing<'_> {
        let shard = &self.shards[(spread(ino.0) >> 40) as usize % SHARDS];
        let mut writing = shard.writing.lock();
        while writing.contains(&ino) {
            shard.ended.wait(&mut writing);
        }
        writing.push(ino);
        Writing { shard, ino }
    }
}

/// The right to write objects of a file; ends when dropped.
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
