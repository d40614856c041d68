//! The open volume below POSIX: trees, inode tables, space, journal, and their connection.

use crate::helpers::Helpers;
use crate::image::Image;
use crate::intents::Intents;
use crate::orphans::Orphans;
use crate::promises::Promises;
use crate::quiesce::Quiesce;
use crate::record::{Largest, RecordKind};
use crate::removed::RemovedNames;
use crate::roots::{Root, Roots};
use crate::states::States;
use shoal_base::counters::Counters;
use shoal_base::fork::Origin;
use shoal_base::sync::{
    AtomicU8, AtomicU32, AtomicU64, Condvar, IdleCondvar, IdleMutex, Mutex, RwLock,
};
use shoal_base::{Addr, Code, Epoch, Error, Ino, Lsn, Result, SegNo};
use shoal_device::Device;
use shoal_format::superblock::Superblock;
use shoal_format::{Compression, Geometry};
use shoal_itable::Budget;
use shoal_journal::{Journal, RingMemory, SegmentSource};
use shoal_space::Space;
use shoal_tree::NodeCache;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Limits of an open volume, and when it checkpoints.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Never write.
    pub read_only: bool,
    /// Memory for nodes and inode blocks together, in bytes.
    pub cache_bytes: u64,
    /// Longest time that a record stays in memory only, in milliseconds.
    pub commit_interval_ms: u64,
    /// Journal bytes after which a checkpoint is due.
    pub checkpoint_bytes: u64,
    /// Write the journal in a background thread.
    pub background: bool,
    /// Discard free segments.
    pub discard: bool,
    /// Number of inodes of the last records that a recovery reports.
    pub recent: usize,
    /// Number of segments of the volume from when it is opened; 0: it stays as it is. Not with
    /// `read_only`.
    pub segments: u32,
    /// Write the journal between consecutive transactions of one call (a testing aid: only then can
    /// a crash come between them).
    #[cfg(feature = "lab")]
    pub flush_rolls: bool,
}

/// The newest checkpoint and its superblock; locked while the next one is written.
pub(crate) struct Published {
    pub superblock: Superblock,
    pub image: Arc<Image>,
    /// Moment at which it was written; `None`: before the volume was opened.
    pub written: Option<Instant>,
}

impl Published {
    /// A checkpoint that has just been written.
    pub(crate) fn now(superblock: Superblock, image: Image) -> Published {
        Published { superblock, image: Arc::new(image), written: Some(Instant::now()) }
    }
}

/// An open volume.
///
/// Calls for free space are in [`Store::room`], calls for checkpoints in [`Store::checkpoints`].
pub struct Store {
    /// The process that opened it. A child of `fork` must not use it: check before any lock is
    /// taken, because a thread that held it may exist in the parent only.
    pub origin: Origin,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) geometry: Geometry,
    pub(crate) volume: u64,
    pub(crate) compression: Compression,
    pub(crate) space: Arc<Space>,
    pub(crate) cache: Arc<NodeCache>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) roots: Roots,
    pub(crate) generation_floor: AtomicU32,
    pub(crate) budget: Arc<Budget>,
    pub(crate) orphans: Orphans,
    pub(crate) intents: Intents,
    pub(crate) promises: Promises,
    /// Pins that end with the checkpoint of an epoch.
    pub(crate) unpins: Mutex<Vec<(Epoch, Addr, u32)>>,
    pub(crate) options: StoreOptions,
    pub(crate) journal: OnceLock<Arc<Journal>>,
    /// Memory of the journal's ring, if it is to outlive the process.
    pub(crate) ring: OnceLock<Arc<RingMemory>>,
    pub(crate) quiesce: Quiesce,
    /// The number of the state, for copies of what is read.
    pub states: States,
    pub(crate) epoch: AtomicU64,
    pub(crate) failed: OnceLock<Arc<str>>,
    pub(crate) published: Mutex<Published>,
    /// LSN of the newest checkpoint.
    pub(crate) checkpoint_lsn: AtomicU64,
    /// Locked for reading while the newest checkpoint's image is read, for writing while space of
    /// an older one is freed.
    pub(crate) images: RwLock<()>,
    pub(crate) checkpoints: Mutex<u64>,
    pub(crate) checkpoint_done: Condvar,
    /// LSN at the quiesce of the newest checkpoint, in progress or done.
    pub(crate) boundary_lsn: AtomicU64,
    /// `pressure::DUE`, `pressure::BEHIND`.
    pub(crate) pressure: AtomicU8,
    pub(crate) wake: (IdleMutex<bool>, IdleCondvar),
    /// Largest record of each kind so far.
    pub(crate) records: Largest,
    /// Threads that read for listings.
    pub(crate) helpers: Helpers,
    /// Names that were removed, for the change feed.
    pub removed_names: RemovedNames,
    /// End of the journal that was replayed by an open that cannot write.
    pub(crate) replayed: AtomicU64,
}

impl Store {
    /// [`States::keep`] for this volume.
    pub fn keep_state(&self) -> Option<u64> {
        self.states.keep(&self.quiesce)
    }
}

impl Store {
    /// The device.
    #[inline]
    pub fn device(&self) -> &dyn Device {
        &*self.device
    }
    /// Layout parameters.
    #[inline]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }
    /// Low half of the volume id; seed of name hashes.
    #[inline]
    pub fn volume(&self) -> u64 {
        self.volume
    }
    /// Codec of new objects.
    #[inline]
    pub fn compression(&self) -> Compression {
        self.compression
    }
    /// The options with which it was opened.
    #[inline]
    pub fn options(&self) -> &StoreOptions {
        &self.options
    }
    /// Segments and space accounting.
    #[inline]
    pub fn space(&self) -> &Space {
        &self.space
    }
    /// Counters.
    #[inline]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
    /// Subvolumes by number.
    #[inline]
    pub fn roots(&self) -> &Roots {
        &self.roots
    }
    /// Inodes that a crash must not leave half removed.
    #[inline]
    pub fn orphans(&self) -> &Orphans {
        &self.orphans
    }
    /// Open intents: found by recovery, completed by the engine.
    #[inline]
    pub fn intents(&self) -> &Intents {
        &self.intents
    }
    /// Bytes promised to preallocated extents, or reserved for calls that will promise them.
    #[inline]
    pub fn promises(&self) -> &Promises {
        &self.promises
    }
    /// Lowest generation of inodes made from now on.
    #[inline]
    pub fn generation_floor(&self) -> u32 {
        self.generation_floor.load(Ordering::Relaxed)
    }
    /// Raises the lowest generation of inodes made from now on to at least `generation`. Returns
    /// the result.
    pub fn raise_generation_floor(&self, generation: u32) -> u32 {
        let before = self.generation_floor.fetch_max(generation, Ordering::Relaxed);
        before.max(generation)
    }
    /// The subvolume of an inode, in any state.
    #[inline]
    pub fn root(&self, ino: Ino) -> Result<&Root> {
        self.roots.get(ino.root()).ok_or(Error::Code(Code::Stale))
    }
    /// Returns the journal; `EROFS` on a volume opened read-only.
    #[inline]
    pub fn journal(&self) -> Result<&Arc<Journal>> {
        self.journal.get().ok_or(Error::Code(Code::ReadOnly))
    }
    /// The current epoch. Stable inside a transaction.
    #[inline]
    pub fn epoch(&self) -> Epoch {
        self.epoch.load(Ordering::Relaxed)
    }
    /// The reason why the volume is read-only, if it is.
    pub fn failure(&self) -> Option<Arc<str>> {
        if let Err(forked) = self.origin.check() {
            return Some(forked.to_string().into());
        }
        let opened = || self.options.read_only.then(|| Arc::from("opened read-only"));
        let journal = || self.journal.get().and_then(|j| j.poisoned());
        self.failed.get().cloned().or_else(journal).or_else(opened)
    }
    /// Makes the volume read-only. The first reason is kept.
    #[cold]
    pub fn poison(&self, reason: &str) {
        let _ = self.failed.set(Arc::from(reason));
        if let Some(journal) = self.journal.get() {
            journal.poison(reason);
        }
        self.checkpoint_done.notify_all();
    }
    /// Guards `work` until the result is dropped: a panic (a failed check) makes the volume
    /// read-only. Memory may then have half of a change, which must not be written.
    pub fn careful(&self, work: &'static str) -> Careful<'_> {
        Careful { store: self, work }
    }
    /// Fails with `EROFS` and the reason if the volume accepts no changes. Checks the journal too:
    /// a failed flush is reported to its caller, and later calls must not change memory.
    #[inline]
    pub fn writable(&self) -> Result<()> {
        self.origin.check()?;
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
            None => {
                let replayed = self.replayed.load(Ordering::Relaxed);
                Lsn(self.checkpoint_lsn.load(Ordering::Relaxed).max(replayed))
            }
        }
    }
    /// LSN of the newest checkpoint.
    pub(crate) fn checkpoint_lsn(&self) -> Lsn {
        Lsn(self.checkpoint_lsn.load(Ordering::Acquire))
    }
    /// The newest checkpoint.
    pub(crate) fn newest_checkpoint(&self) -> Arc<Image> {
        self.published.lock().image.clone()
    }
    /// Metadata bytes that the next checkpoints must write, an upper estimate.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        let pages = self.cache.touched_roots().groups() * self.roots.page_bytes();
        self.cache.to_write() + self.budget.dirty_bytes() + pages
    }
    /// Bytes in memory that cannot be freed before the next checkpoints.
    pub(crate) fn dirty_held(&self) -> u64 {
        self.cache.dirty_bytes() + self.budget.dirty_held()
    }
    /// Bytes of cache: those in use, and the most.
    pub fn cache_bytes(&self) -> (u64, u64) {
        (self.cache.used_bytes() + self.budget.used_bytes(), self.options.cache_bytes)
    }
    /// Unpins bytes, because the checkpoint of this epoch is durable.
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
}

/// The source of journal segments: the volume's space.
pub(crate) struct JournalSegments(pub Arc<Space>);

impl SegmentSource for JournalSegments {
    fn take(&self) -> Result<SegNo> {
        self.0.take_journal_segment()
    }

    fn before_flush(&self) {
        self.0.sectors().close();
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
