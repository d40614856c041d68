//! Opening, closing, syncing, and what a volume tells about itself.

use crate::background::Background;
use crate::data::{Decoded, Tails, Writers};
use crate::holds::Holds;
use crate::orphan::Detached;
use crate::reap::Reaping;
use crate::shape::Shape;
use crate::types::{OpenOptions, RecoveryReport, StatFs, VolumeInfo};
use crate::volume::{Inner, Volume};
use shoal_base::counters::Counter;
use shoal_base::planted::{self, Defect};
use shoal_base::sync::Mutex;
use shoal_base::{Ino, Lsn, Result};
use shoal_device::{Device, FileDevice, OpenMode};
use shoal_format::features::{self, RO_COMPAT_PARENTS, Word};
use shoal_format::superblock::Superblock;
use shoal_txn::{Opened, Store, StoreOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bounds of the journal length at which a checkpoint is due when none is given.
const CHECKPOINT_BYTES: std::ops::RangeInclusive<u64> = (4 << 20)..=(256 << 20);

/// Bytes discarded at a time.
pub(crate) const DISCARD: u64 = 64 << 20;
/// How long closing discards.
const DISCARD_TIME: Duration = Duration::from_secs(2);

fn cache_default() -> u64 {
    let pages = rustix::param::page_size() as u64;
    let info = rustix::system::sysinfo();
    let total = info.totalram.saturating_mul(u64::from(info.mem_unit.max(1)));
    (total / 4).max(pages * 16 * 1024)
}

/// What the layer below is to know of these options.
pub(crate) fn store_options(sb: &Superblock, options: &OpenOptions) -> StoreOptions {
    let bounds = CHECKPOINT_BYTES;
    StoreOptions {
        read_only: options.read_only,
        cache_bytes: match options.cache_bytes {
            0 => cache_default(),
            bytes => bytes.max(4 << 20),
        },
        commit_interval_ms: options.commit_interval_ms,
        checkpoint_bytes: match options.checkpoint_bytes {
            0 => (sb.geometry.bytes() / 32).clamp(*bounds.start(), *bounds.end()),
            bytes => bytes,
        },
        background: options.background,
        flush_rolls: options.attr_intents_flushed,
        discard: options.discard,
    }
}

impl Volume {
    /// Opens the volume in a file or on a block device; recovers it if it was not closed.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Volume> {
        let mode = if options.read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        let device = Arc::new(FileDevice::open_with(path, mode, &options.claim())?);
        let volume = Volume::open_on(device.clone(), options)?;
        // Without waiting for a write that fails.
        let inner = Arc::downgrade(&volume.inner);
        device.on_claim_loss(move |why| {
            if let Some(inner) = inner.upgrade() {
                inner.store.poison(why);
            }
        });
        Ok(volume)
    }

    /// Opens the volume on a device.
    pub fn open_on(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Volume> {
        let start = Instant::now();
        let sb = shoal_txn::read_superblock(&*device)?;
        let Opened { store, recovered } = shoal_txn::open(device, store_options(&sb, options))?;
        let inner = Arc::new(Inner::new(store, options));
        // Before anybody sees the volume, and before anything is reaped.
        let intents = inner.complete_intents()?;
        let writable = inner.store.writable().is_ok();
        if writable && inner.store.back().is_err() {
            tracing::warn!("what stores the volume is full: it is open for removal");
        }
        for damage in &inner.store.orphan_damage {
            tracing::warn!(damage, "part of the orphan table is lost: run shoal fsck --repair");
        }
        // They are freed behind the calls, which need not wait for it; without threads, now.
        let orphans = inner.adopt_orphans()?;
        if writable && !options.background {
            while inner.reap_orphan()? {}
        }
        *inner.recovery.lock() = RecoveryReport {
            needed: recovered.needed,
            records: recovered.records,
            bytes: recovered.bytes,
            orphans,
            damage: inner.store.orphan_damage.clone(),
            intents,
            torn: recovered.torn,
            seconds: start.elapsed().as_secs_f64(),
        };
        let background = match writable && options.background {
            true => Some(Background::start(inner.clone())?),
            false => None,
        };
        Ok(Volume { inner, background: Mutex::new(background) })
    }

    fn stop(&self) {
        if let Some(background) = self.background.lock().take() {
            background.stop(&self.inner);
        }
    }

    /// Checkpoints, marks the volume closed, stops the threads. What is still held without a name
    /// is freed.
    pub fn close(self) -> Result<()> {
        self.stop();
        if self.store.writable().is_ok() {
            for (ino, _) in self.holds.orphans() {
                self.release(ino, u64::MAX);
            }
            self.store.checkpoint_clean()?;
            self.discard_rest();
        }
        match self.store.failure() {
            Some(reason) if !self.options.read_only => Err(shoal_base::Error::Poisoned(reason)),
            _ => Ok(()),
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.stop();
        if let Ok(journal) = self.store.journal() {
            journal.shutdown();
        }
    }
}

impl Inner {
    /// What calls share, over an opened store.
    pub(crate) fn new(store: Store, options: &OpenOptions) -> Inner {
        let features = store.superblock().ro_compat;
        let cache_bytes = store.options.cache_bytes;
        Inner {
            store,
            holds: Holds::default(),
            detached: Detached::new(cache_bytes),
            cuts: Mutex::default(),
            tracked: Mutex::default(),
            reaping: Reaping::default(),
            rooting: Mutex::default(),
            root_reaper: Mutex::default(),
            cleaning: Mutex::new(()),
            refusal: Mutex::default(),
            writers: Writers::default(),
            tails: Tails::default(),
            decoded: Decoded::default(),
            options: options.clone(),
            recovery: Mutex::default(),
            unread: Mutex::default(),
            shape: Shape::default(),
            parents: features & RO_COMPAT_PARENTS != 0,
        }
    }

    /// Everything acknowledged so far is durable on return.
    pub fn sync(&self) -> Result<()> {
        self.store.writable()?;
        let journal = self.store.journal()?;
        if planted::is(Defect::SyncReturns) {
            return Ok(());
        }
        journal.commit(journal.staged_lsn())
    }

    /// Writes a checkpoint now.
    pub fn checkpoint(&self) -> Result<()> {
        self.store.checkpoint()
    }

    /// Makes what was done to an inode durable. The journal is strictly ordered: so is everything
    /// that was acknowledged before.
    pub fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        let _ = datasync;
        let inode = self.inode(ino)?;
        crate::attr::attr_of(ino, &inode.read().inode)?;
        self.sync()
    }

    /// Newest LSN.
    pub fn staged_lsn(&self) -> Lsn {
        self.store.lsn()
    }
    /// LSN up to which everything is durable.
    pub fn durable_lsn(&self) -> Lsn {
        self.store.journal().map_or(self.store.checkpoint_lsn(), |j| j.durable_lsn())
    }
    /// Why the volume is read-only, if it is.
    pub fn read_only_reason(&self) -> Option<Arc<str>> {
        self.store.failure()
    }

    /// What `statfs` reports.
    pub fn statfs(&self) -> StatFs {
        let inode = u64::from(self.store.geometry.inode_size);
        let geometry = &self.store.geometry;
        // Dead space counts as free: whoever needs it has segments cleaned.
        let space = &self.store.space;
        let live = space.live_bytes() + space.pinned_bytes() + self.store.dirty_bytes() / 2;
        let free = (geometry.bytes() - geometry.segment_size).saturating_sub(live);
        let available = self.store.available_shown();
        StatFs {
            bytes_total: geometry.bytes(),
            bytes_free: free.max(available),
            bytes_available: available,
            // Without a name, but in use, as anybody counts.
            inodes_used: self.store.inodes() + self.detached.len(),
            inodes_free: available / inode,
            read_only: self.store.failure().is_some(),
        }
    }

    /// Before closing: discards what is free, within reason.
    fn discard_rest(&self) {
        let begun = Instant::now();
        while self.options.discard
            && self.store.discard_run(DISCARD, 0) > 0
            && begun.elapsed() < DISCARD_TIME
        {}
    }

    /// Discards free segments, all but the few that are kept allocated: about `at_most` bytes in
    /// this call. `begin`: also those that have been discarded before; a checkpoint frees what is
    /// dead first. Returns how many bytes that were; 0: it is done.
    pub fn trim(&self, begin: bool, at_most: u64) -> Result<u64> {
        self.store.writable()?;
        if begin {
            self.store.checkpoint()?;
            self.store.space.all_stale();
        }
        let mut bytes = 0;
        while bytes < at_most {
            match self.store.discard_run(DISCARD, 0) {
                0 => break,
                run => bytes += run,
            }
        }
        Ok(bytes)
    }

    /// Facts about the volume.
    pub fn info(&self) -> VolumeInfo {
        let sb = self.store.superblock();
        let words = [
            (Word::Compat, sb.compat),
            (Word::ReadOnlyCompat, sb.ro_compat),
            (Word::Incompat, sb.incompat),
        ];
        let features = words.into_iter().flat_map(|(word, bits)| {
            features::names(word, bits).map(|(_, name)| name.unwrap_or("unknown"))
        });
        let counters = Counter::ALL.iter().map(|c| (c.name(), self.store.counters.get(*c)));
        VolumeInfo {
            id: uuid(&sb.id),
            version: features::VERSION,
            features: features.collect(),
            segment_size: sb.geometry.segment_size,
            segments: sb.geometry.segments,
            segments_free: self.store.space.free_segments(),
            inode_size: sb.geometry.inode_size,
            compression: sb.compression.to_string(),
            live_bytes: self.store.space.live_bytes(),
            inodes: self.store.inodes(),
            checkpoint: self.store.checkpoint_epoch(),
            checkpoint_lsn: self.store.checkpoint_lsn().0,
            lsn: self.store.lsn().0,
            orphans: self.store.orphans.len() as u64,
            detached: self.detached.len(),
            pinned_bytes: self.store.space.pinned_bytes(),
            cache_bytes: self.store.cache_bytes(),
            claim: self.store.device.claim(),
            read_only: self.store.failure().map(|r| r.to_string()),
            counters: counters.collect(),
            recovery: self.recovery.lock().clone(),
        }
    }
}

fn uuid(id: &[u8; 16]) -> String {
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}
