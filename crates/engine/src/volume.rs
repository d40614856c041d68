//! Opening, closing, syncing, and information about a volume.

use crate::attributes::Attributes;
use crate::background::{Background, DISCARD};
use crate::batch::Batches;
use crate::bulk::Bulk;
use crate::changes::Changes;
use crate::directories::Directories;
use crate::files::Files;
use crate::growth;
use crate::identity::uuid;
use crate::intents::Intents;
use crate::maintenance::Maintenance;
use crate::namei::{NAME_COST, Namespace};
use crate::passes;
use crate::paths::Paths;
use crate::quotas::Quotas;
use crate::reap::Reaper;
use crate::records;
use crate::references::References;
use crate::relief::{FromBelow, Relief};
use crate::state::State;
use crate::storage::{self, is_bucket};
use crate::subvolumes::Subvolumes;
use crate::succession::copies;
use crate::tokens::Tokens;
use crate::tree_change::TreeChanges;
use crate::types::{
    BatchOp, Caller, CheckReport, HoldLife, OpenOptions, Progress, RecordSize, RecoveryReport,
    StatFs, VolumeInfo,
};
use shoal_base::counters::Counter;
use shoal_base::sync::Mutex;
use shoal_base::timing::Call;
use shoal_base::{Code, Error, Ino, Lsn, Result};
use shoal_device::{Device, FileDevice, OpenMode};
use shoal_format::features::{self, Word};
use shoal_format::superblock::Superblock;
use shoal_txn::{Opened, StoreOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Range of the default journal length at which a checkpoint is due.
const CHECKPOINT_BYTES: std::ops::RangeInclusive<u64> = (4 << 20)..=(256 << 20);

/// The same where the recovery is to be short: it replays some 1.5 million records a second.
const CHECKPOINT_SHORT: u64 = 32 << 20;

/// Number of inodes whose last changes the successor of a process makes known: more than were
/// changed in the time that anybody takes to hear of a change.
const RECENT_MAX: usize = 1 << 16;

/// Maximum time for which closing discards.
const DISCARD_TIME: Duration = Duration::from_secs(2);

/// An open volume. All methods may be called from any thread. The calls are in rooms, one for each
/// subject: [`Volume::namespace`], [`Volume::files`] and so on.
///
/// Dropping it without [`Volume::close`] is like a crash: nothing acknowledged by `fsync` or `sync`
/// is lost, and the next open replays the journal.
///
/// A child of `fork` has a copy of it and must not use that: every call that returns a [`Result`]
/// fails there, and dropping the copy only closes its descriptors ([`shoal_base::fork`]).
pub struct Volume {
    pub(crate) state: Arc<State>,
    /// The device, which holds the locks, if the volume was opened by a path.
    pub(crate) device: Option<Arc<FileDevice>>,
    pub(crate) background: Mutex<Option<Background>>,
}

/// Fails in a child of `fork`.
///
/// # Errors
/// `EBADF`: the volume was opened by the parent.
#[inline]
pub fn check_process(volume: &Volume) -> Result<()> {
    volume.state.store.origin.check()
}

fn cache_default() -> u64 {
    let pages = rustix::param::page_size() as u64;
    let info = rustix::system::sysinfo();
    let total = info.totalram.saturating_mul(u64::from(info.mem_unit.max(1)));
    (total / 4).max(pages * 16 * 1024)
}

/// Converts the options to those of the transaction layer. The volume keeps its size.
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
            // Callers wait for the recovery of a volume whose references outlive the process.
            0 if options.holds != HoldLife::Process => *bounds.start().max(&CHECKPOINT_SHORT),
            0 => (sb.geometry.bytes() / 32).clamp(*bounds.start(), *bounds.end()),
            bytes => bytes,
        },
        background: options.background,
        #[cfg(feature = "lab")]
        flush_rolls: options.lab.attr_intents_flushed,
        discard: options.discard,
        segments: 0,
        recent: match options.holds {
            HoldLife::Inherited => RECENT_MAX,
            HoldLife::Process | HoldLife::Lasting => 0,
        },
    }
}

impl Volume {
    /// Opens the volume in a file or on a block device. Recovers it if it was not closed.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Volume> {
        let mode = if options.read_only { OpenMode::ReadOnly } else { OpenMode::ReadWrite };
        if is_bucket(path) {
            if options.ring.is_some() {
                // A ring has what is not written yet. What is written and not flushed is here in
                // the memory of the process too, so a killed one would lose calls that had
                // returned.
                let message = format!("{}: a volume in a bucket has no ring", path.display());
                return Err(Error::refused(Code::NotSupported, message));
            }
            return Volume::open_on(storage::open(path, mode, options)?, options);
        }
        let mut device = match &options.files[..] {
            [] => FileDevice::open_with(path, mode, &options.claim())?,
            files => FileDevice::inherit(path, copies(files)?, &options.claim())?,
        };
        if let Some(size) = options.grow {
            growth::make_room(&mut device, size)?;
        }
        let device = Arc::new(device);
        let mut volume = Volume::open_on(device.clone(), options)?;
        volume.belongs_to(device);
        Ok(volume)
    }

    /// Notes the device, which holds the locks and the claim. When the claim is lost the volume
    /// becomes read-only at once, not only when the next write fails.
    pub(crate) fn belongs_to(&mut self, device: Arc<FileDevice>) {
        let state = Arc::downgrade(&self.state);
        device.on_claim_loss(move |why| {
            if let Some(state) = state.upgrade() {
                state.store.poison(why);
            }
        });
        self.device = Some(device);
    }

    /// Opens the volume on a device.
    pub fn open_on(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Volume> {
        let segments = match options.grow {
            Some(size) => growth::segments(&*device, &shoal_txn::read_superblock(&*device)?, size)?,
            None => 0,
        };
        Volume::open_sized(device, options, segments)
    }

    /// Opens the volume on a device, from now on with so many segments; 0: as many as it has.
    pub(crate) fn open_sized(
        device: Arc<dyn Device>,
        options: &OpenOptions,
        segments: u32,
    ) -> Result<Volume> {
        let start = Instant::now();
        let sb = shoal_txn::read_superblock(&*device)?;
        let options_of_store = StoreOptions { segments, ..store_options(&sb, options) };
        let opened = shoal_txn::open(device, options_of_store)?;
        if let Some(ring) = &options.ring {
            opened.keep_ring(ring.clone())?;
        }
        let Opened { store, recovery } = opened;
        let state = Arc::new(State::new(store, options, &FromBelow));
        let (epoch, lsn) = (recovery.epoch(), recovery.lsn());
        Changes(&state).begin(lsn);
        let recovered = recovery.run(&state.store)?;
        // Before the volume is used, and before anything is reaped.
        let intents = Intents(&state).complete_intents()?;
        Changes(&state).resume(epoch);
        Quotas(&state).resume(epoch, recovered.needed);
        let writable = state.store.writable().is_ok();
        if writable && state.store.room().back().is_err() {
            tracing::warn!("no space on the host: only removals will succeed");
        }
        for damage in state.store.orphans().damage() {
            tracing::warn!(damage, "part of the orphan table is lost: run shoal fsck --repair");
        }
        // Freed in the background, so that calls need not wait; without threads, now.
        let orphans = Reaper(&state).adopt_orphans()?;
        if writable && !options.background {
            while Reaper(&state).reap_orphan()? || TreeChanges(&state).continue_some()? {}
        }
        Quotas(&state).begin(!options.background);
        *state.recovery.lock() = RecoveryReport {
            needed: recovered.needed,
            records: recovered.records,
            kept: recovered.kept,
            bytes: recovered.bytes,
            orphans,
            damage: state.store.orphans().damage().to_vec(),
            intents,
            torn: recovered.torn,
            recent: recovered.recent,
            seconds: start.elapsed().as_secs_f64(),
        };
        let background = match writable && options.background {
            true => Some(Background::start(state.clone())?),
            false => None,
        };
        Ok(Volume { state, device: None, background: Mutex::new(background) })
    }

    pub(crate) fn stop(&self) {
        if let Some(background) = self.background.lock().take() {
            background.stop(&self.state);
        }
    }

    /// The volume of a check or a repair, without threads.
    pub(crate) fn checked(state: State) -> Volume {
        Volume { state: Arc::new(state), device: None, background: Mutex::new(None) }
    }

    /// Writes a checkpoint, marks the volume closed and stops the threads. Unlinked inodes that are
    /// still in use are freed.
    pub fn close(self) -> Result<()> {
        check_process(&self)?;
        self.stop();
        self.state.holds.end_inherited();
        if self.state.store.writable().is_ok() {
            for (ino, _) in self.state.holds.orphans() {
                self.references().release(ino, u64::MAX);
            }
            // Without it, names are missing from the window, which then says so.
            if let Err(error) = self.changes().store_window() {
                tracing::warn!(%error, "the window of removed names is not stored");
            }
            // Without it, the use is counted at the next open.
            if let Err(error) = self.quotas().store_use() {
                tracing::warn!(%error, "the use of quotas is not stored");
            }
            self.state.store.checkpoints().write_last()?;
            if self.state.store.device().keeps_order() {
                // Its thread would flush a device that is closed: the records are not durable yet.
                self.state.store.journal()?.shutdown();
            }
            self.discard_rest();
            self.state.store.device().close()?;
            self.state.options.ring.iter().for_each(|ring| ring.end());
        }
        match self.state.store.failure() {
            Some(reason) if !self.state.options.read_only => {
                Err(shoal_base::Error::Poisoned(reason))
            }
            _ => Ok(()),
        }
    }
}

impl Volume {
    /// Closes the descriptors of a child's copy. The rest stays in its memory: its threads exist in
    /// the parent only, so nobody could end them or take their locks.
    #[cold]
    fn abandon(&mut self) {
        self.state.store.device().abandon();
        self.state.options.ring.iter().for_each(|ring| ring.abandon());
        std::mem::forget(self.background.get_mut().take());
        std::mem::forget(self.state.clone());
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        if check_process(self).is_err() {
            return self.abandon();
        }
        self.stop();
        if let Ok(journal) = self.state.store.journal() {
            journal.shutdown();
        }
    }
}

impl Volume {
    /// Names: lookups, and all calls that add, remove or move a name.
    #[inline]
    pub fn namespace(&self) -> Namespace<'_> {
        Namespace(&self.state)
    }
    /// Listing directories.
    #[inline]
    pub fn directories(&self) -> Directories<'_> {
        Directories(&self.state)
    }
    /// The contents of files.
    #[inline]
    pub fn files(&self) -> Files<'_> {
        Files(&self.state)
    }
    /// Attributes, extended attributes and access control lists.
    #[inline]
    pub fn attributes(&self) -> Attributes<'_> {
        Attributes(&self.state)
    }
    /// Attributes of many inodes with one call.
    #[inline]
    pub fn bulk(&self) -> Bulk<'_> {
        Bulk(&self.state)
    }
    /// Changes of all inodes below a directory.
    #[inline]
    pub fn tree_changes(&self) -> TreeChanges<'_> {
        TreeChanges(&self.state)
    }
    /// Changes since a mark.
    #[inline]
    pub fn changes(&self) -> Changes<'_> {
        Changes(&self.state)
    }
    /// Quotas of directory trees.
    #[inline]
    pub fn quotas(&self) -> Quotas<'_> {
        Quotas(&self.state)
    }
    /// Tokens that open files without their paths.
    #[inline]
    pub fn tokens(&self) -> Tokens<'_> {
        Tokens(&self.state)
    }
    /// Parent pointers and paths.
    #[inline]
    pub fn paths(&self) -> Paths<'_> {
        Paths(&self.state)
    }
    /// References to inodes: open files, and inodes that the kernel knows.
    #[inline]
    pub fn references(&self) -> References<'_> {
        References(&self.state)
    }
    /// Subvolumes.
    #[inline]
    pub fn subvolumes(&self) -> Subvolumes<'_> {
        Subvolumes(&self.state)
    }
    /// Checkpoints, freeing, cleaning, scrubbing.
    #[inline]
    pub fn maintenance(&self) -> Maintenance<'_> {
        Maintenance(&self.state)
    }

    /// Makes several changes as one transaction: all of them, or none.
    ///
    /// # Errors
    /// Those of [`BatchOp`]'s calls; `E2BIG` for a batch that exceeds a journal record, `EXDEV` for
    /// paths of another subvolume.
    pub fn batch(&self, who: &Caller, start: Ino, ops: &[BatchOp<'_>]) -> Result<()> {
        Batches(&self.state).batch(who, start, ops)
    }

    /// Makes everything acknowledged so far durable.
    pub fn sync(&self) -> Result<()> {
        self.state.measured(Call::Sync, || self.state.sync())
    }

    /// Returns the newest LSN.
    pub fn staged_lsn(&self) -> Lsn {
        self.state.store.lsn()
    }
    /// Returns the LSN up to which everything is durable.
    pub fn durable_lsn(&self) -> Lsn {
        self.state
            .store
            .journal()
            .map_or(self.state.store.checkpoints().newest_lsn(), |j| j.durable_lsn())
    }
    /// Returns the reason why the volume is read-only, if it is.
    pub fn read_only_reason(&self) -> Option<Arc<str>> {
        self.state.store.failure()
    }

    /// Returns sizes and free space, as for `statfs`.
    pub fn statfs(&self) -> StatFs {
        let inode = u64::from(self.state.store.geometry().inode_size);
        let geometry = self.state.store.geometry();
        // Dead space counts as free: the cleaner can free it when it is needed.
        let space = self.state.store.space();
        let live = space.counts().live_bytes()
            + space.counts().pinned_bytes()
            + self.state.store.checkpoints().dirty_bytes() / 2;
        let free = (geometry.bytes() - geometry.segment_size).saturating_sub(live);
        let available = Relief(&self.state).available_shown();
        StatFs {
            bytes_total: geometry.bytes(),
            bytes_free: free.max(available),
            bytes_available: available,
            // Includes unlinked inodes that are still in use.
            inodes_used: self.state.store.roots().inodes() + self.state.detached.len(),
            inodes_free: if available < NAME_COST { 0 } else { available / inode },
            read_only: self.state.store.failure().is_some(),
        }
    }

    /// As [`Volume::statfs`], for the tree that contains an inode: the limits of its quota instead
    /// of the size of the volume, and what they leave. An inode that cannot be read shows the
    /// volume.
    pub fn statfs_of(&self, ino: Ino) -> StatFs {
        let whole = self.statfs();
        self.quotas().of(ino).ok().flatten().map_or(whole, |quota| quota.shown_in(whole))
    }

    /// Returns the place that the volume is in, the same by whatever path it was opened
    /// ([`shoal_device::place_of_file`]); a bucket by its URL. `None`: it is in none.
    pub fn stored_in(&self) -> Option<String> {
        self.state.store.device().place()
    }

    /// Returns the volume's UUID.
    pub fn id(&self) -> [u8; 16] {
        self.state.store.checkpoints().superblock().id
    }

    /// Returns facts about the volume.
    pub fn info(&self) -> VolumeInfo {
        let sb = self.state.store.checkpoints().superblock();
        let words = [
            (Word::Compat, sb.compat),
            (Word::ReadOnlyCompat, sb.ro_compat),
            (Word::Incompat, sb.incompat),
        ];
        let features = words.into_iter().flat_map(|(word, bits)| {
            features::names(word, bits).map(|(_, name)| name.unwrap_or("unknown"))
        });
        let counters = Counter::ALL.iter().map(|c| (c.name(), self.state.store.counters().get(*c)));
        VolumeInfo {
            id: uuid(&sb.id),
            label: sb.label.to_string(),
            created: sb.created,
            version: features::VERSION,
            features: features.collect(),
            segment_size: sb.geometry.segment_size,
            segments: sb.geometry.segments,
            segments_free: self.state.store.space().counts().free_segments(),
            inode_size: sb.geometry.inode_size,
            compression: sb.compression.to_string(),
            live_bytes: self.state.store.space().counts().live_bytes(),
            inodes: self.state.store.roots().inodes(),
            checkpoint: self.state.store.checkpoints().newest_epoch(),
            checkpoint_age: self.state.store.checkpoints().newest_age().map(|age| age.as_secs()),
            checkpoint_lsn: self.state.store.checkpoints().newest_lsn().0,
            lsn: self.state.store.lsn().0,
            orphans: self.state.store.orphans().len() as u64,
            tree_changes: self.state.changing.waiting(),
            detached: self.state.detached.len(),
            pinned_bytes: self.state.store.space().counts().pinned_bytes(),
            cache_bytes: self.state.store.cache_bytes().0,
            claim: self.state.store.device().claim(),
            storage: self.state.store.device().facts(),
            limited_by_host: self.state.store.room().is_limited_by_host(),
            unlinked: self.state.store.device().is_unlinked(),
            read_only: self.state.store.failure().map(|r| r.to_string()),
            counters: counters.collect(),
            recovery: self.state.recovery.lock().clone(),
        }
    }

    /// Returns the kinds of records, with their limits and the largest so far.
    pub fn record_sizes(&self) -> Vec<RecordSize> {
        records::sizes(&self.state.store)
    }

    /// Checks the whole volume. Calls that change it wait meanwhile. `progress` gets the work done
    /// and the total.
    pub fn check(&self, progress: &mut (dyn FnMut(u64, u64) + Send)) -> Result<CheckReport> {
        self.check_showing("checking", &mut |_, done, total| progress(done, total))
    }

    /// As [`Volume::check`]; progress also gets the name of the pass, after `what`.
    pub(crate) fn check_showing(&self, what: &str, progress: Progress<'_>) -> Result<CheckReport> {
        check_process(self)?;
        passes::check(&self.state, what, progress)
    }

    /// Before closing: discards free segments, for a limited time.
    fn discard_rest(&self) {
        let begun = Instant::now();
        while self.state.options.discard
            && self.state.store.room().discard_run(DISCARD, 0) > 0
            && begun.elapsed() < DISCARD_TIME
        {}
    }
}
