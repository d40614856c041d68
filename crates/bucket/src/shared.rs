//! The state of an open volume in a bucket, shared by the threads that use it and the tasks that
//! write it.
//!
//! Locks, in the order in which they are taken: `log`, `manifests`, `contents`. The first two are
//! held across requests, `contents` never.

use crate::disk::{DiskCache, Root};
use crate::frames::Frames;
use crate::layers::Layering;
use crate::map::Map;
use crate::place::Place;
use crate::runtime::Runtime;
use crate::staging::Staging;
use crate::store::{Limits, Store};
use crate::unsent::{Pending, Unsent};
use parking_lot::RwLock;
use shoal_base::{Code, Error, Result};
use shoal_format::Compression;
use shoal_format::bucket::manifest::{Body, decode};
use shoal_format::bucket::manifest_name;
use shoal_format::bucket::object::{ObjectHeader, ObjectKind};
use shoal_format::claim::{ClaimBlock, OwnerClaim};
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Mutex, Notify, Semaphore};
use tokio::time::{Instant, timeout};

/// Options of an open volume.
#[derive(Clone, Debug)]
pub struct Options {
    /// Limits of requests.
    pub limits: Limits,
    /// Codec of pieces.
    pub compression: Compression,
    /// Bytes of pieces kept in memory.
    pub cache_bytes: u64,
    /// A cache on a local disk; `None`: there is none.
    pub disk: Option<DiskCache>,
    /// Dirty bytes above which data objects are made without waiting for a flush.
    pub staged_max: u64,
    /// A manifest is written after so many log objects,
    pub log_objects_max: u64,
    /// or after so many bytes of them.
    pub log_bytes_max: u64,
    /// Time for which an object stays that a manifest does not need any more, for readers of an
    /// older one.
    pub grace: Duration,
    /// Time within which the owner writes the next log object, while it writes.
    pub lease_min: Duration,
    /// The same of an idle owner.
    pub lease_max: Duration,
    /// The rule by which a manifest has changes alone.
    pub layering: Layering,
    /// Share of the stored bytes that may be of no use before they are collected.
    pub spare: f64,
    /// Take the volume over whoever owns it. The owner becomes read-only, and loses what it has not
    /// flushed.
    pub force: bool,
    /// Make the address space at least so many bytes large.
    pub capacity_min: u64,
    /// Called with messages for the user while the open waits.
    pub notice: fn(&str),
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            compression: Compression::zstd(1).unwrap_or(Compression::NONE),
            cache_bytes: 256 << 20,
            disk: None,
            staged_max: 16 << 20,
            log_objects_max: 64,
            log_bytes_max: 64 << 20,
            grace: Duration::from_secs(60),
            lease_min: Duration::from_millis(1500),
            lease_max: Duration::from_secs(60),
            layering: Layering::default(),
            spare: 0.3,
            force: false,
            capacity_min: 0,
            notice: |notice| tracing::warn!("{notice}"),
        }
    }
}

/// The opening that writes, and its volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Identity {
    /// Random number of the volume in the bucket.
    pub volume: u64,
    /// Sequence number of its claim; 0 of a reader.
    pub epoch: u64,
    /// Random number of the opening.
    pub writer: u64,
}

impl Identity {
    /// Returns the header of an object of this opening, to be completed when it is packed.
    pub(crate) fn object_header(
        &self,
        kind: ObjectKind,
        sequence: u64,
        lease: Duration,
    ) -> ObjectHeader {
        let Identity { volume, epoch, writer } = *self;
        let (count, lease_ms, length) = (0, lease.as_millis() as u32, 0);
        ObjectHeader { kind, volume, epoch, writer, sequence, count, lease_ms, length }
    }
}

/// The bytes of the volume.
#[derive(Default)]
pub(crate) struct Contents {
    pub map: Map,
    pub staging: Staging,
    pub pending: Vec<Pending>,
    /// Pieces and bytes of the data objects in it.
    pub waiting: Waiting,
}

/// Data objects that no log object names yet.
#[derive(Clone, Copy, Default)]
pub(crate) struct Waiting {
    pub pieces: usize,
    /// Bytes of the address space, which stay in memory.
    pub bytes: u64,
}

/// Discarded ranges that may wait for a log object. Further ones are ignored: they are hints.
const DISCARDS_MAX: usize = 8192;

impl Contents {
    /// Discards a range. Only the part of it that has content is noted: an engine that does not
    /// know what of a huge volume was ever used discards all of it.
    pub(crate) fn discard(&mut self, range: Range<u64>) {
        let held = [self.staging.bounds(&range), self.map.bounds(&range)];
        let held = held.into_iter().flatten().reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        let Some(held) = held else { return };
        let waiting = self.pending.len();
        match self.pending.last_mut() {
            Some(Pending::Discard(last)) if last.end == held.start => last.end = held.end,
            _ if waiting >= DISCARDS_MAX => return,
            _ => self.pending.push(Pending::Discard(held.clone())),
        }
        self.staging.remove(held);
    }
}

/// The end of the log.
pub(crate) struct Log {
    /// Slot of the next object.
    pub slot: u64,
    /// Objects and bytes since the newest manifest.
    pub objects: u64,
    pub bytes: u64,
    /// Time of the last object.
    pub last: Instant,
    /// Time at which the volume was last known to be there.
    pub checked: Instant,
    /// The lease that it promised.
    pub lease: Duration,
    /// The next object, if the store had no room for it.
    pub unsent: Option<Unsent>,
    /// The last object says that the volume is closed.
    pub closed: bool,
    /// Time that the slowest of the last objects took to be there; older ones count less.
    pub slowest: Duration,
}

/// The end of the manifests.
pub(crate) struct Manifests {
    /// Sequence number of the next one.
    pub next: u64,
    /// First slot that is not in the newest layer.
    pub log_next: u64,
    /// Those that are no layers any more, and are to be superseded.
    pub old: Vec<u64>,
    /// The volume is closed: nothing is written any more.
    pub closed: bool,
}

/// The objects of a volume, those in memory too: shared by all openings of this process.
#[derive(Clone)]
pub(crate) struct Access {
    pub runtime: Arc<Runtime>,
    pub store: Arc<Store>,
    pub frames: Arc<Frames>,
    /// Requests for what nobody waits for, each of 8 MiB at most.
    pub ahead_slots: Arc<Semaphore>,
}

/// Runtime, store and cache directory of an opening that has not read the volume's id yet.
pub(crate) struct Means {
    runtime: Runtime,
    pub store: Store,
    disk: Option<Root>,
}

impl Means {
    /// # Errors
    /// The directory for the cache on disk cannot be used.
    pub(crate) fn new(place: &Place, options: &Options, runtime: Runtime) -> Result<Means> {
        let Place { objects, prefix, name, renew, seed, .. } = place.clone();
        let Options { limits, notice, .. } = *options;
        let store = Store::new(objects, prefix, name, limits, notice, (seed, renew));
        let disk = options.disk.as_ref().map(Root::open).transpose()?;
        Ok(Means { runtime, store, disk })
    }

    /// Waits for a future.
    pub(crate) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.wait(future)
    }

    /// Gives access to the objects of a volume.
    pub(crate) fn access(self, volume: u64, options: &Options) -> Access {
        let Means { runtime, store, disk } = self;
        let open = |root: Root| {
            let opened = root.of_volume(volume);
            opened.inspect_err(|error| tracing::warn!(%error, "there is no cache on disk")).ok()
        };
        let frames = Frames::new(options.cache_bytes, disk.and_then(open));
        Access {
            runtime: Arc::new(runtime),
            store: Arc::new(store),
            frames: Arc::new(frames),
            ahead_slots: Arc::new(Semaphore::new(AHEAD)),
        }
    }
}

impl Deref for Shared {
    type Target = Access;

    fn deref(&self) -> &Access {
        &self.access
    }
}

/// See the head of the file.
pub(crate) struct Shared {
    pub access: Access,
    pub id: Identity,
    pub capacity: u64,
    pub options: Options,
    pub contents: RwLock<Contents>,
    pub log: Mutex<Log>,
    pub manifests: Mutex<Manifests>,
    /// Number of the next data object.
    pub data_number: AtomicU64,
    /// Number of the next batch of sealed runs.
    pub batch: AtomicU64,
    /// Bytes of data objects that the store does not have yet.
    pub uploading: AtomicU64,
    /// A flush is under way that nobody waits for.
    pub flushing: AtomicBool,
    pub uploaded: Notify,
    pub upload_slots: Semaphore,
    /// The turn of who moves parts.
    pub moving: Arc<Semaphore>,
    /// The store has no room: nothing new is taken, and sent only by a flush or a beat.
    pub full: AtomicBool,
    failure: OnceLock<Error>,
}

/// Requests for what nobody waits for that are made at once. While so many are, no other is begun.
const AHEAD: usize = 8;
/// Longest wait for the name of a new owner. The caller gets its error later by as much.
const NAMING_MAX: Duration = Duration::from_secs(2);
/// Data objects that are uploaded at once.
const UPLOADS: usize = 8;

impl Shared {
    pub(crate) fn new(
        access: Access,
        id: Identity,
        capacity: u64,
        options: Options,
        contents: Contents,
        slots: (Log, Manifests),
    ) -> Shared {
        Shared {
            access,
            id,
            capacity,
            options,
            contents: RwLock::new(contents),
            log: Mutex::new(slots.0),
            manifests: Mutex::new(slots.1),
            data_number: AtomicU64::new(1),
            batch: AtomicU64::new(1),
            uploading: AtomicU64::new(0),
            flushing: AtomicBool::new(false),
            uploaded: Notify::new(),
            upload_slots: Semaphore::new(UPLOADS),
            moving: Arc::new(Semaphore::new(1)),
            full: AtomicBool::new(false),
            failure: OnceLock::new(),
        }
    }

    /// Returns whether this is a reader.
    pub(crate) fn is_reader(&self) -> bool {
        self.id.epoch == 0
    }

    /// Fails if nothing may be written any more.
    pub(crate) fn may_write(&self) -> Result<()> {
        match self.failure.get() {
            Some(failure) => Err(failure.clone()),
            None if self.is_reader() => {
                let message = format!("{}: is open for reading", self.store.name);
                Err(Error::refused(Code::ReadOnly, message))
            }
            None => Ok(()),
        }
    }

    /// Notes that the store has no room.
    pub(crate) fn is_out_of_room(&self, error: &Error) {
        if !self.full.swap(true, Ordering::Relaxed) {
            (self.options.notice)(&format!(
                "{error}; calls that need space fail until there is room in the store"
            ));
        }
    }

    /// Refuses all further writes, for this reason. Returns the first reason.
    pub(crate) fn fail(&self, error: Error) -> Error {
        self.failure.get_or_init(|| error).clone()
    }

    /// The error of a call after the volume was closed.
    pub(crate) fn closed(&self) -> Error {
        Error::refused(Code::ReadOnly, format!("{}: is closed", self.store.name))
    }

    /// The error of an owner that found an object of another one, `name`, in place of its own.
    pub(crate) async fn fenced(&self, epoch: u64, name: &str) -> Error {
        let store = &self.store.name;
        let by = match timeout(NAMING_MAX, self.claimant(epoch)).await {
            Ok(Some(owner)) => owner,
            Ok(None) | Err(_) => format!("opening {epoch} ({name})"),
        };
        let message = format!(
            "{store}: {by} has taken the volume over; nothing is written by this process any more. \
             What it had flushed is in the volume: unmount, and mount it again"
        );
        Error::refused(Code::ReadOnly, message)
    }

    /// Returns the process that claimed the volume with an opening, for messages.
    async fn claimant(&self, epoch: u64) -> Option<String> {
        let raw = self.store.get(&manifest_name(epoch)).await.ok()??;
        let Body::Claim(claim) = decode(&raw, epoch).ok()?.body else { return None };
        match OwnerClaim::decode(&claim) {
            ClaimBlock::Claim(claim) => Some(claim.owner_text()),
            ClaimBlock::Absent | ClaimBlock::Unreadable(_) => None,
        }
    }
}
