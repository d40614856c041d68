//! Opening a volume: the order in which a mount reads it.
//!
//! | step | what | refused when |
//! | --- | --- | --- |
//! | 1 | both superblock copies; the newest valid one wins | neither is valid; unknown incompat feature |
//! | 2 | the checkpoint it names | checksum, volume id |
//! | 3 | usage table, pages of the root table, orphan lists and blocks, open intents; a tree's root node when it is first used | checksum, rules |
//! | 4 | the journal from the checkpoint's LSN, record by record ([`crate::recover`]) | a bad batch *before* a good one |
//! | 5 | a checkpoint of a new incarnation, so that old journal batches are never replayed again | |
//!
//! Completing intents and reaping orphans is the engine's, through ordinary transactions.

use crate::gate::Gate;
use crate::image::{Image, ObjectKind};
use crate::intents::Intents;
use crate::orphans::{Orphans, disk};
use crate::record::Largest;
use crate::recover::recover;
use crate::root_pages;
use crate::roots::{RootParts, Roots};
use crate::store::{JournalSegments, Published, Store, StoreOptions};
use crate::usage_pages::{self, UsageImage};
use shoal_base::counters::Counters;
use shoal_base::sync::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Condvar, Mutex, RwLock};
use shoal_base::{Code, Error, Lsn, Result, RootSet};
use shoal_device::Device;
use shoal_format::checkpoint::{Checkpoint, RootState};
use shoal_format::features::{INCOMPAT_LZ4, INCOMPAT_ZSTD};
use shoal_format::root::{ROOTS, RootPage};
use shoal_format::superblock::{COPIES, Superblock};
use shoal_format::usage::SegKind;
use shoal_format::{Geometry, Ptr};
use shoal_itable::Budget;
use shoal_journal::{Config, Journal, JournalPos, StartAt};
use shoal_space::Space;
use shoal_tree::NodeCache;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Reads an object that a checkpoint names and verifies its checksum.
pub fn read_object(
    device: &dyn Device,
    geometry: &Geometry,
    ptr: Ptr,
    object: &str,
) -> Result<Vec<u8>> {
    if ptr.is_null() || !geometry.contains(ptr.addr, u64::from(ptr.len)) {
        let rule = format!("pointer to {} bytes outside any segment", ptr.len);
        return Err(Error::corrupt(object, Some(ptr.addr.0), rule));
    }
    if !ptr.is_plain() {
        let rule = format!("coded with {}, which only nodes and blocks are", ptr.codec.name());
        return Err(Error::corrupt(object, Some(ptr.addr.0), rule));
    }
    let mut raw = vec![0; ptr.len as usize];
    device.read_at(&mut raw, ptr.addr.0)?;
    ptr.verify(&raw, object)?;
    Ok(raw)
}

/// Bytes of the device, zeros where it fails to read them.
pub(crate) fn read_around(device: &dyn Device, raw: &mut [u8], at: u64) -> Result<()> {
    match device.read_at(raw, at) {
        Err(e) if e.is_damage() => {}
        read => return read,
    }
    for (page, at) in raw.chunks_mut(4096).zip((at..).step_by(4096)) {
        match device.read_at(page, at) {
            Err(e) if e.is_damage() => page.fill(0),
            read => read?,
        }
    }
    Ok(())
}

/// Step 1: the newest valid superblock.
pub fn read_superblock(device: &dyn Device) -> Result<Superblock> {
    let name = device.describe();
    let mut newest: Option<Superblock> = None;
    let mut broken = None;
    for addr in COPIES {
        let mut raw = vec![0; 4096];
        if device.capacity() < addr + raw.len() as u64 {
            continue;
        }
        let read = device.read_at(&mut raw, addr).and_then(|()| Superblock::decode(&raw, addr));
        match read {
            Ok(Some(sb)) if newest.is_none_or(|n| sb.sequence > n.sequence) => newest = Some(sb),
            Ok(_) => {}
            Err(e) => broken = Some(e),
        }
    }
    let Some(sb) = newest else {
        return Err(match broken {
            Some(Error::Corrupt(it)) => {
                let rule = format!(
                    "{}; the other copy cannot be used either: 'shoal fsck --repair {name}' looks \
                     for the spare one of the newest checkpoint",
                    it.rule
                );
                Error::corrupt(it.object, it.addr, rule)
            }
            Some(e) => e,
            None => {
                let message = format!(
                    "{name} is not a Shoal volume; make one with 'shoal mkfs', or, if it was one, \
                     let 'shoal fsck --repair' look for a spare superblock"
                );
                Error::refused(Code::Invalid, message)
            }
        });
    };
    if device.capacity() < sb.geometry.bytes() {
        let (has, wants) = (device.capacity(), sb.geometry.bytes());
        let message = format!(
            "{name} is truncated: {has} bytes, the volume has {wants}; restore it from a copy"
        );
        return Err(Error::refused(Code::Invalid, message));
    }
    Ok(sb)
}

/// Step 2: the checkpoint that a superblock names.
pub fn read_checkpoint(device: &dyn Device, sb: &Superblock) -> Result<Checkpoint> {
    let raw = read_object(device, &sb.geometry, sb.checkpoint, "checkpoint")?;
    Checkpoint::decode(&raw, sb.checkpoint.addr, sb.volume())
}

/// What replay found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovered {
    /// The volume had not been closed.
    pub needed: bool,
    /// Records replayed.
    pub records: u64,
    /// Bytes of journal read.
    pub bytes: u64,
    /// Why the tail was cut, if it was.
    pub torn: Option<String>,
}

/// An opened volume.
pub struct Opened {
    /// The volume.
    pub store: Store,
    /// What replay found.
    pub recovered: Recovered,
}

pub(crate) struct Parts {
    device: Arc<dyn Device>,
    sb: Superblock,
    options: StoreOptions,
    counters: Arc<Counters>,
    cache: Arc<NodeCache>,
    budget: Arc<Budget>,
}

impl Parts {
    pub fn new(device: Arc<dyn Device>, sb: Superblock, options: StoreOptions) -> Parts {
        let counters = Arc::new(Counters::default());
        let cache = NodeCache::new(options.cache_bytes / 2, counters.clone());
        let budget = Budget::new(options.cache_bytes / 2, sb.geometry.inode_size);
        cache.share().join(budget.share());
        Parts { device, sb, options, counters, cache, budget }
    }

    /// The store, still without roots.
    pub fn store(self, space: Space, orphans: Orphans, image: Image) -> Store {
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
            geometry: self.sb.geometry,
            volume: self.sb.volume(),
            compression: self.sb.compression,
            space: Arc::new(space),
            cache: self.cache,
            counters: self.counters,
            roots: Roots::new(parts),
            floor: AtomicU32::new(checkpoint.floor),
            budget: self.budget,
            orphans,
            orphan_damage: Vec::new(),
            intents: Intents::default(),
            prealloc: AtomicI64::new(checkpoint.prealloc as i64),
            reserved: AtomicU64::new(0),
            unpins: Mutex::default(),
            options: self.options,
            journal: OnceLock::new(),
            gate: Gate::default(),
            epoch: AtomicU64::new(checkpoint.epoch + 1),
            failed: OnceLock::new(),
            checkpoint_lsn: AtomicU64::new(checkpoint.lsn.0),
            cut_lsn: AtomicU64::new(checkpoint.lsn.0),
            published: Mutex::new(Published { superblock: self.sb, image: Arc::new(image) }),
            images: RwLock::default(),
            checkpoints: Mutex::new(0),
            checkpoint_done: Condvar::new(),
            pressure: AtomicU8::new(0),
            wake: (Mutex::new(false), Condvar::new()),
            records: Largest::default(),
            device: self.device,
        }
    }
}

impl Store {
    /// Starts the journal for `incarnation`.
    pub(crate) fn start_journal(&self, incarnation: u32, at: StartAt) -> Result<()> {
        // More than a sixteenth of the volume could not be written at once anyway, and a small
        // volume should open without asking for much.
        let default = Config::default();
        let config = Config {
            ring_bytes: default.ring_bytes.min((self.geometry.bytes() / 16) as usize),
            interval: Duration::from_millis(self.options.commit_interval_ms.max(1)),
            background: self.options.background,
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

/// A new volume in memory: empty trees, nothing on the device yet. The caller makes the top
/// directory in epoch 1 and checkpoints.
pub fn create(device: Arc<dyn Device>, sb: Superblock, options: StoreOptions) -> Result<Store> {
    let parts = Parts::new(device.clone(), sb, options);
    let checkpoint = Checkpoint { volume: sb.volume(), ..Checkpoint::default() };
    let space = Space::fresh(sb.geometry);
    space.set_host(device.clone(), false);
    let usage = UsageImage::blank(&sb.geometry);
    let image = Image { checkpoint, usage, ..Image::default() };
    let store = parts.store(space, Orphans::default(), image);
    store.roots.push(None)?.set(RootState::Live, b"");
    store.start_journal(sb.incarnation, StartAt::Fresh { lsn: Lsn(1) })?;
    Ok(store)
}

/// Opens a volume, steps 1 to 5.
pub fn open(device: Arc<dyn Device>, options: StoreOptions) -> Result<Opened> {
    let sb = read_superblock(&*device)?;
    let writable = sb.may_be_written();
    let read_only = options.read_only || !writable || device.read_only();
    let checkpoint = read_checkpoint(&*device, &sb)?;
    let mut damage = Vec::new();
    let (epoch, at) = (checkpoint.epoch, checkpoint.usage);
    let mut image = Image::read(&*device, &sb, checkpoint, &mut |kind, e| match kind {
        ObjectKind::OrphanList => {
            damage.push(e.to_string());
            Ok(())
        }
        _ => Err(e),
    })?;
    let table = usage_pages::open_table(&*device, &sb, epoch, at, &mut image.usage)?;
    let space = Space::load(sb.geometry, table);
    if !read_only {
        // A session that ended as it should has left nothing to be discarded.
        space.set_host(device.clone(), !sb.clean && options.discard);
    }
    let (orphans, mut lost) =
        Orphans::read(&*device, &sb.geometry, sb.volume(), &image.orphan_blocks)?;
    damage.append(&mut lost);
    let intents = Intents::read(&*device, &sb.geometry, sb.volume(), &image.checkpoint.intents)?;
    // What is not there is not given back with the checkpoint.
    image.retain(&|ptr| disk::may_be_metadata(&sb.geometry, &space, ptr));
    let (journal, lsn) = (image.checkpoint.journal, image.checkpoint.lsn);
    let parts = Parts::new(device, sb, StoreOptions { read_only, ..options });
    let start = JournalPos { addr: journal, lsn };
    let mut store = parts.store(space, orphans, image);
    store.intents = intents;
    store.orphan_damage = damage;
    read_roots(&store)?;
    let recovered =
        if sb.clean { resume(&store, &sb, start)? } else { recover(&store, &sb, start)? };
    Ok(Opened { store, recovered })
}

/// Enters the roots that the checkpoint names. A page of which one copy is damaged is written
/// again by the next checkpoint.
fn read_roots(store: &Store) -> Result<()> {
    let image = store.newest_checkpoint();
    let count = image.checkpoint.pages.len();
    for (number, ptr) in image.checkpoint.pages.iter().enumerate() {
        let device = &*store.device;
        let read = root_pages::read(device, &store.geometry, store.volume, number, *ptr)?;
        if read.damage.is_some() {
            store.roots.pages_due.insert(number as u16);
        }
        store.roots.push_page(&read.page, page_end(&read.page, number, count))?;
    }
    Ok(())
}

/// One past the last root that page `number` of `count` stands for: of the last page, behind the
/// last one in use.
pub(crate) fn page_end(page: &RootPage, number: usize, count: usize) -> usize {
    match page.roots.last() {
        Some(last) if number + 1 == count => usize::from(last.id.0) + 1,
        _ => (number + 1) * ROOTS,
    }
}

/// A volume that was closed: the journal goes on where it ended, under a new incarnation.
fn resume(store: &Store, sb: &Superblock, start: JournalPos) -> Result<Recovered> {
    if store.options.read_only {
        return Ok(Recovered::default());
    }
    store.space.claim(store.geometry.segment_of(start.addr), SegKind::Journal)?;
    let mut published = store.published.lock();
    let next = Superblock {
        sequence: sb.sequence + 1,
        incarnation: sb.incarnation.wrapping_add(1),
        clean: false,
        ..*sb
    };
    crate::checkpoint::write_superblock(store, &next)?;
    published.superblock = next;
    drop(published);
    // Both copies: the older one must not say "closed" once there are records to replay.
    store.write_other_copy()?;
    store.start_journal(next.incarnation, StartAt::At(start))?;
    Ok(Recovered::default())
}
