//! The parts of a store that is being made, by `mkfs`, an open or a salvage; starting its journal.

use crate::helpers::Helpers;
use crate::image::Image;
use crate::intents::Intents;
use crate::orphans::Orphans;
use crate::promises::Promises;
use crate::quiesce::Quiesce;
use crate::record::Largest;
use crate::removed::RemovedNames;
use crate::roots::{RootParts, Roots};
use crate::states::States;
use crate::store::{JournalSegments, Published, Store, StoreOptions};
use shoal_base::counters::Counters;
use shoal_base::fork::Origin;
use shoal_base::sync::{
    AtomicI64, AtomicU8, AtomicU32, AtomicU64, Condvar, IdleCondvar, IdleMutex, Mutex, RwLock,
};
use shoal_base::{Result, RootSet};
use shoal_device::{Device, MeasuredDevice};
use shoal_format::features::{INCOMPAT_LZ4, INCOMPAT_ZSTD};
use shoal_format::superblock::Superblock;
use shoal_itable::Budget;
use shoal_journal::{Config, Journal, StartAt};
use shoal_space::Space;
use shoal_tree::NodeCache;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// The parts of a store that do not depend on what the device holds.
pub(crate) struct Parts {
    device: Arc<dyn Device>,
    sb: Superblock,
    options: StoreOptions,
    counters: Arc<Counters>,
    cache: Arc<NodeCache>,
    budget: Arc<Budget>,
}

impl Parts {
    pub(crate) fn new(device: Arc<dyn Device>, sb: Superblock, options: StoreOptions) -> Parts {
        let counters = Arc::new(Counters::default());
        let device: Arc<dyn Device> = Arc::new(MeasuredDevice::new(device, counters.clone()));
        let cache = NodeCache::new(options.cache_bytes / 2, counters.clone());
        let budget = Budget::new(options.cache_bytes / 2, sb.geometry.inode_size);
        cache.share().join(budget.share());
        Parts { device, sb, options, counters, cache, budget }
    }

    /// Makes the store, still without subvolumes.
    pub(crate) fn store(self, space: Space, orphans: Orphans, image: Image) -> Store {
        if self.sb.incompat & (INCOMPAT_LZ4 | INCOMPAT_ZSTD) != 0 {
            space.expect_coded();
        }
        let checkpoint = &image.checkpoint;
        let parts = RootParts {
            device: self.device.clone(),
            geometry: self.sb.geometry,
            volume: self.sb.volume(),
            cache: self.cache.clone(),
            budget: self.budget.clone(),
            counters: self.counters.clone(),
            free: RootSet::default(),
            deleted: RootSet::default(),
            used: RootSet::default(),
            unused_inodes: AtomicI64::new(0),
        };
        Store {
            origin: Origin::here(),
            geometry: self.sb.geometry,
            volume: self.sb.volume(),
            compression: self.sb.compression,
            space: Arc::new(space),
            cache: self.cache,
            counters: self.counters,
            roots: Roots::new(parts),
            generation_floor: AtomicU32::new(checkpoint.floor),
            budget: self.budget,
            orphans,
            intents: Intents::default(),
            promises: Promises::of(checkpoint.prealloc),
            unpins: Mutex::default(),
            options: self.options,
            journal: OnceLock::new(),
            ring: OnceLock::new(),
            quiesce: Quiesce::default(),
            states: States::default(),
            epoch: AtomicU64::new(checkpoint.epoch + 1),
            failed: OnceLock::new(),
            checkpoint_lsn: AtomicU64::new(checkpoint.lsn.0),
            boundary_lsn: AtomicU64::new(checkpoint.lsn.0),
            published: Mutex::new(Published {
                superblock: self.sb,
                image: Arc::new(image),
                written: None,
            }),
            images: RwLock::default(),
            checkpoints: Mutex::new(0),
            checkpoint_done: Condvar::new(),
            pressure: AtomicU8::new(0),
            wake: (IdleMutex::new(false), IdleCondvar::new()),
            records: Largest::default(),
            helpers: Helpers::default(),
            removed_names: RemovedNames::default(),
            replayed: AtomicU64::new(0),
            device: self.device,
        }
    }
}

impl Store {
    /// Starts the journal for `incarnation`.
    pub(crate) fn start_journal(&self, incarnation: u32, at: StartAt) -> Result<()> {
        // More than a sixteenth of the volume could not be written at once anyway, and a small
        // volume should open with little memory.
        let default = Config::default();
        let config = Config {
            ring_bytes: default.ring_bytes.min((self.geometry.bytes() / 16) as usize),
            interval: Duration::from_millis(self.options.commit_interval_ms.max(1)),
            background: self.options.background,
            memory: self.ring.get().cloned(),
            ..default
        };
        let journal = Journal::start(
            self.device.clone(),
            self.geometry,
            self.volume,
            incarnation,
            at,
            Arc::new(JournalSegments(self.space.clone())),
            self.counters.clone(),
            config,
        )?;
        assert!(self.journal.set(journal).is_ok(), "journal started twice");
        Ok(())
    }
}
