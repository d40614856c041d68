//! The open volume below POSIX: trees, inode tables, space, journal, and what holds them together.

use crate::gate::Gate;
use crate::image::Image;
use crate::intents::Intents;
use crate::orphans::Orphans;
use crate::record::{Largest, RecordKind};
use crate::roots::Roots;
use shoal_base::counters::Counters;
use shoal_base::sync::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Condvar, Mutex, RwLock};
use shoal_base::{Addr, Code, Epoch, Error, Lsn, Result, SegNo};
use shoal_device::Device;
use shoal_format::superblock::Superblock;
use shoal_format::{Compression, Geometry};
use shoal_itable::Budget;
use shoal_journal::{Journal, SegmentSource};
use shoal_space::Space;
use shoal_tree::NodeCache;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// What an open volume may use and when it checkpoints.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Write nothing.
    pub read_only: bool,
    /// Bytes for nodes and inode blocks together.
    pub cache_bytes: u64,
    /// Longest time that a record stays only in memory, in milliseconds.
    pub commit_interval_ms: u64,
    /// Journal bytes after which a checkpoint is due.
    pub checkpoint_bytes: u64,
    /// A thread writes the journal in the background.
    pub background: bool,
    /// Free segments are discarded.
    pub discard: bool,
    /// The journal is written between transactions that follow each other in one pass of the gate
    /// (a testing aid: only so can a crash come between them).
    pub flush_rolls: bool,
}

/// The newest checkpoint and the superblock that names it; held by whoever writes the next.
pub(crate) struct Published {
    pub superblock: Superblock,
    pub image: Arc<Image>,
}

/// An open volume.
pub struct Store {
    /// Where the bytes are.
    pub device: Arc<dyn Device>,
    /// Shape.
    pub geometry: Geometry,
    /// Low half of the volume id; seed of name hashes.
    pub volume: u64,
    /// Codec of new objects.
    pub compression: Compression,
    /// Segments.
    pub space: Arc<Space>,
    /// Nodes in memory.
    pub cache: Arc<NodeCache>,
    /// Counters.
    pub counters: Arc<Counters>,
    /// Roots by number.
    pub roots: Roots,
    /// Inodes made from now on have at least this generation.
    pub floor: AtomicU32,
    pub(crate) budget: Arc<Budget>,
    /// Inodes that a crash must not leave half removed.
    pub orphans: Orphans,
    /// Blocks of the orphan table that could not be read, in words.
    pub orphan_damage: Vec<String>,
    /// What calls have promised and not yet done: found by recovery, completed by the engine.
    pub intents: Intents,
    /// Bytes promised to preallocated extents.
    pub prealloc: AtomicI64,
    /// Bytes kept for calls that are about to turn them into promises, step by step.
    pub reserved: AtomicU64,
    /// Pins that end with the checkpoint of an epoch.
    pub(crate) unpins: Mutex<Vec<(Epoch, Addr, u32)>>,
    /// What it was opened with.
    pub options: StoreOptions,
    pub(crate) journal: OnceLock<Arc<Journal>>,
    pub(crate) gate: Gate,
    pub(crate) epoch: AtomicU64,
    pub(crate) failed: OnceLock<Arc<str>>,
    pub(crate) published: Mutex<Published>,
    /// LSN of the newest checkpoint.
    pub(crate) checkpoint_lsn: AtomicU64,
    /// Held for reading while somebody reads the newest checkpoint's image, for writing when what
    /// an older one needed is given out.
    pub(crate) images: RwLock<()>,
    pub(crate) checkpoints: Mutex<u64>,
    pub(crate) checkpoint_done: Condvar,
    /// LSN at which the newest checkpoint, running or done, closed the gate.
    pub(crate) cut_lsn: AtomicU64,
    /// `begin::DUE`, `begin::BEHIND`.
    pub(crate) pressure: AtomicU8,
    pub(crate) wake: (Mutex<bool>, Condvar),
    /// Largest record of each kind so far.
    pub(crate) records: Largest,
}

impl Store {
    /// The journal; `EROFS` on a volume opened read-only.
    #[inline]
    pub fn journal(&self) -> Result<&Arc<Journal>> {
        self.journal.get().ok_or(Error::Code(Code::ReadOnly))
    }
    /// The current epoch; stable inside a transaction.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch.load(Ordering::Relaxed)
    }
    /// Why the volume is read-only, if it is.
    pub fn failure(&self) -> Option<Arc<str>> {
        let opened = || self.options.read_only.then(|| Arc::from("opened read-only"));
        let journal = || self.journal.get().and_then(|j| j.poisoned());
        self.failed.get().cloned().or_else(journal).or_else(opened)
    }
    /// Makes the volume read-only for this reason; the first reason stays.
    #[cold]
    pub fn poison(&self, reason: &str) {
        let _ = self.failed.set(Arc::from(reason));
        if let Some(journal) = self.journal.get() {
            journal.poison(reason);
        }
        self.checkpoint_done.notify_all();
    }
    /// Whatever happens until this is dropped: a panic, that is a check that failed, makes the
    /// volume read-only. What is in memory may be half of a change, and must not be written.
    pub fn careful(&self, work: &'static str) -> Careful<'_> {
        Careful { store: self, work }
    }
    /// Fails with `EROFS` and the reason when the volume takes no changes. The journal is asked as
    /// well: a flush fails for who waits for it, and the next call must not get as far as memory.
    #[inline]
    pub fn writable(&self) -> Result<()> {
        match self.failed.get() {
            None if !self.options.read_only => match self.journal.get().map(|j| j.poisoned()) {
                Some(Some(reason)) => Err(Error::Poisoned(reason)),
                _ => Ok(()),
            },
            Some(reason) => Err(Error::Poisoned(reason.clone())),
            None => Err(Error::Code(Code::ReadOnly)),
        }
    }
    /// Newest LSN.
    pub fn lsn(&self) -> Lsn {
        match self.journal.get() {
            Some(journal) => journal.staged_lsn(),
            None => Lsn(self.checkpoint_lsn.load(Ordering::Relaxed)),
        }
    }
    /// LSN of the newest checkpoint.
    pub fn checkpoint_lsn(&self) -> Lsn {
        Lsn(self.checkpoint_lsn.load(Ordering::Acquire))
    }
    /// Number of the newest checkpoint.
    pub fn checkpoint_epoch(&self) -> Epoch {
        self.published.lock().image.checkpoint.epoch
    }
    /// The superblock as last written.
    pub fn superblock(&self) -> Superblock {
        self.published.lock().superblock
    }
    /// The newest checkpoint.
    pub fn newest_checkpoint(&self) -> Arc<Image> {
        self.published.lock().image.clone()
    }
    /// Runs `f` with the newest checkpoint. What it points to stays as it is meanwhile; calls go
    /// on, but the next checkpoint waits before it gives anything out, so be brief.
    pub fn with_image<R>(&self, f: impl FnOnce(&Image) -> R) -> R {
        let published = self.published.lock();
        let _stays = self.images.read();
        let image = published.image.clone();
        drop(published);
        f(&image)
    }
    /// Metadata bytes that the next checkpoints have to write, at most about this many.
    pub fn dirty_bytes(&self) -> u64 {
        let pages = self.cache.touched_roots().groups() * self.roots.page_bytes();
        self.cache.to_write() + self.budget.dirty_bytes() + pages
    }
    /// Bytes of memory that cannot be given up before the next checkpoints.
    pub(crate) fn dirty_held(&self) -> u64 {
        self.cache.dirty_bytes() + self.budget.dirty_held()
    }
    /// Bytes of cache in use.
    pub fn cache_bytes(&self) -> u64 {
        self.cache.used_bytes() + self.budget.used_bytes()
    }
    /// Pinned bytes to which records of this epoch point again: their segment must not be given
    /// out before these records are of the past, whatever becomes of the bytes.
    pub fn unpin_after_checkpoint(&self, epoch: Epoch, addr: Addr, len: u32) {
        self.unpins.lock().push((epoch, addr, len));
    }
    /// The checkpoint of this epoch is durable.
    pub(crate) fn unpin(&self, epoch: Epoch) {
        self.unpins.lock().retain(|(of, addr, len)| {
            if *of <= epoch {
                self.space.unpin(*addr, *len);
            }
            *of > epoch
        });
    }
    /// Largest record of this kind since the volume was opened, in bytes.
    pub fn record_largest(&self, kind: RecordKind) -> u32 {
        self.records.of(kind)
    }
    /// Inodes in use.
    pub fn inodes(&self) -> u64 {
        self.roots.inodes()
    }
}

/// Journal segments come from the volume's space.
pub(crate) struct JournalSegments(pub Arc<Space>);

impl SegmentSource for JournalSegments {
    fn take(&self) -> Result<SegNo> {
        self.0.take_journal_segment()
    }

    fn before_flush(&self) {
        self.0.close_sectors();
    }
}

/// See [`Store::careful`].
pub struct Careful<'s> {
    store: &'s Store,
    work: &'static str,
}

impl Drop for Careful<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let work = self.work;
            self.store.poison(&format!("a check failed while {work}; the log says which: reopen"));
        }
    }
}
