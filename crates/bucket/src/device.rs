//! The device: a volume's address space, stored in a bucket.

use crate::load::{State, load};
use crate::open::{self, Owned, Rival};
use crate::place::Place;
use crate::race::{Race, race};
use crate::requests::{Counted, Request, S3};
use crate::runtime::Runtime;
use crate::shared::{Access, Contents, Identity, Log, Manifests, Means, Options, Shared};
use crate::store::is_ours;
use crate::unsent::{Flush, Pending};
use shoal_base::error::DeviceFailure;
use shoal_base::{Code, Error, Result};
use shoal_device::{Device, Fact};
use shoal_format::bucket::object::PIECES_MAX;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Bytes of data objects on their way above which writers wait.
const UPLOADING_MAX: u64 = 64 << 20;
/// Pieces that may wait for a log object: with more, one is written before it is asked for.
const PIECES_WAITING_MAX: usize = PIECES_MAX / 4;
/// Bytes of them above which one is begun, as a multiple of [`Options::staged_max`]: they stay in
/// memory until it is there.
const BYTES_WAITING: u64 = 1;
/// The same, above which writers wait for it.
const BYTES_WAITING_MAX: u64 = 3;
/// The same of dirty bytes in a store without room, above which writers wait for some: removals and
/// checkpoints go on meanwhile.
const FULL_WAITING_MAX: u64 = 8;
/// Time after an opening when forgotten objects are looked for: programs that waited for the volume
/// come first.
const SWEEP_AFTER: Duration = Duration::from_secs(10);
/// Longest look for the volume before it is closed.
const CHECK_MAX: Duration = Duration::from_secs(10);
/// Pause between attempts to write to a store that has no room.
const FULL_PAUSE: Duration = Duration::from_secs(2);
/// Names looked at before a volume is made: any foreign object is in the way.
const FOREIGN_MAX: usize = 10;

/// A volume in a bucket, open.
pub struct BucketDevice {
    shared: Arc<Shared>,
}

/// Options of a new volume.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Bytes of its address space: the limit of its size. What is not used costs nothing.
    pub capacity: u64,
    /// Overwrite a volume that is there. Whoever uses it becomes read-only.
    pub overwrite: bool,
    /// The test of the store; `None`: it is known to be good.
    pub race: Option<Race>,
    /// Called with the objects that the test has tried, and their number.
    pub progress: fn(u64, u64),
}

impl BucketDevice {
    /// Makes an address space at an empty place, all zeros, and opens it for writing.
    ///
    /// A place is empty too if it holds no data, because a process was killed before it wrote
    /// anything: it has only that process's claim. It is taken over like a volume, so that this
    /// process can write nothing any more.
    ///
    /// # Errors
    /// Exists: a volume is there. Busy: another process is making one. Invalid: other objects are
    /// there. NotSupported: the store has failed the test. Those of requests.
    pub fn create(
        place: &Place,
        create: &CreateOptions,
        options: Options,
        runtime: Runtime,
    ) -> Result<BucketDevice> {
        let means = Means::new(place, &options, runtime)?;
        let owner = shoal_device::owner::encode(&place.name);
        let store = &means.store;
        let owned = means.wait(async {
            let found = store.list("", FOREIGN_MAX).await?;
            if let Some((foreign, _)) = found.iter().find(|(name, _)| !is_ours(name)) {
                let message = format!(
                    "{}: holds other objects, such as {foreign}; choose an empty prefix",
                    place.name
                );
                return Err(Error::refused(Code::Invalid, message));
            }
            if let Some(above) = store.volume_above().await? {
                let message = format!(
                    "{}: is inside the volume at prefix '{above}'; choose another prefix",
                    place.name
                );
                return Err(Error::refused(Code::Invalid, message));
            }
            let there = load(store).await?;
            if there.as_ref().is_some_and(|state| !state.map.is_empty()) && !create.overwrite {
                return Err(open::occupied(store));
            }
            // Last: it takes seconds.
            if let Some(extent) = create.race {
                if extent.keys > Race::SHORT.keys {
                    (options.notice)(&format!(
                        "{}: testing that the store lets only one of many writers create an object \
                         (up to {} requests)",
                        place.name,
                        extent.keys * (extent.writers + 2)
                    ));
                }
                let (objects, prefix) = (place.objects.clone(), &place.prefix);
                race(objects, (prefix, ""), &place.name, extent, create.progress).await?;
            }
            match there {
                Some(state) if !create.overwrite => {
                    open::take_empty(store, state, &owner, create.capacity, &options).await
                }
                Some(state) => {
                    let force = Options { force: true, ..options.clone() };
                    open::take(store, state, &owner, Some(create.capacity), Rival::Succeed, &force)
                        .await
                }
                None => open::create(store, create.capacity, &owner, &options).await,
            }
        })?;
        let access = means.access(owned.id.volume, &options);
        let device = BucketDevice::own(access, owned, options);
        if create.overwrite {
            // Nothing of the volume before may be read by the next one.
            device.discard(0, create.capacity)?;
            device.shared.runtime.wait(device.shared.flush(Flush::Discards))?;
        }
        Ok(device)
    }

    /// Opens a volume for writing: takes it over from an owner that has closed it or has ended.
    ///
    /// # Errors
    /// NotFound: there is none. Busy: another process uses it. Those of requests, and of damage.
    pub fn open(place: &Place, options: Options, runtime: Runtime) -> Result<BucketDevice> {
        let means = Means::new(place, &options, runtime)?;
        let owner = shoal_device::owner::encode(&place.name);
        let store = &means.store;
        let owned = means.wait(async {
            let state = load(store).await?.ok_or_else(|| no_volume(&place.name))?;
            open::take(store, state, &owner, None, Rival::Succeed, &options).await
        })?;
        Ok(BucketDevice::own(means.access(owned.id.volume, &options), owned, options))
    }

    /// Opens a volume for reading, as it is after some flush of its owner, who need not know.
    ///
    /// # Errors
    /// As of [`BucketDevice::open`], but for Busy.
    pub fn read_only(place: &Place, options: Options, runtime: Runtime) -> Result<BucketDevice> {
        let means = Means::new(place, &options, runtime)?;
        let state = means.wait(load(&means.store))?;
        let state = state.ok_or_else(|| no_volume(&place.name))?;
        Ok(BucketDevice::look(means.access(state.volume, &options), &state, options))
    }

    /// Shows a state for reading.
    pub(crate) fn look(access: Access, state: &State, options: Options) -> BucketDevice {
        let id = Identity { volume: state.volume, ..Identity::default() };
        let contents = Contents { map: state.map.view(), ..Contents::default() };
        let (slot, last, lease) = (state.slot, Instant::now(), options.lease_max);
        let (objects, bytes, closed, slowest) = (0, 0, true, Duration::ZERO);
        let unsent = None;
        let checked = last;
        let log = Log { slot, objects, bytes, last, checked, lease, unsent, closed, slowest };
        let (next, log_next) = (state.newest + 1, state.log_next);
        let manifests = Manifests { next, log_next, old: Vec::new(), closed: true };
        let slots = (log, manifests);
        let shared = Shared::new(access, id, state.capacity, options, contents, slots);
        BucketDevice { shared: Arc::new(shared) }
    }

    /// Begins to write what was taken over.
    pub(crate) fn own(access: Access, owned: Owned, options: Options) -> BucketDevice {
        let Owned { id, capacity, contents, log, manifests } = owned;
        let slots = (log, manifests);
        let shared = Arc::new(Shared::new(access, id, capacity, options, contents, slots));
        let weak = Arc::downgrade(&shared);
        let sweeping = weak.clone();
        shared.runtime.spawn(async move {
            tokio::time::sleep(SWEEP_AFTER).await;
            if let Some(shared) = sweeping.upgrade().filter(|shared| shared.may_write().is_ok())
                && let Err(error) = shared.sweep().await
            {
                tracing::warn!(%error, "searching for objects of earlier mounts failed");
            }
        });
        shared.runtime.spawn(async move {
            while let Some(shared) = weak.upgrade().filter(|shared| shared.may_write().is_ok()) {
                let mut pause = shared.until_beat().await;
                if pause.is_zero() {
                    match shared.beat().await {
                        Ok(true) => continue,
                        // Of a store without room, which may have some soon.
                        Ok(false) => pause = FULL_PAUSE,
                        Err(error) => return tracing::error!(%error, "the lease is not renewed"),
                    }
                }
                drop(shared);
                tokio::time::sleep(pause).await;
            }
        });
        BucketDevice { shared }
    }

    /// Requests since the volume was opened.
    pub fn counted(&self) -> Counted {
        self.shared.store.requests.read()
    }

    /// Waits, so that background tasks run: for tests, whose runtimes run only while a call waits.
    #[cfg(feature = "faulty")]
    pub fn idle(&self, time: Duration) {
        self.shared.runtime.wait(async { tokio::time::sleep(time).await });
    }

    fn check(&self, operation: &'static str, offset: u64, len: u64) -> Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.shared.capacity) {
            return Ok(());
        }
        let device = self.describe();
        Err(Error::Device(Box::new(DeviceFailure { operation, device, offset, len, errno: 0 })))
    }

    /// Waits while too much is in memory that the store has no room for: removals, and checkpoints
    /// of them.
    fn wait_for_room(&self) -> Result<()> {
        let shared = &self.shared;
        let most = shared.options.staged_max * FULL_WAITING_MAX;
        while self.is_full() && shared.contents.read().staging.dirty() > most {
            shared.may_write()?;
            // Begun inside: a sleep needs the clock of its runtime.
            shared.runtime.wait(async { tokio::time::sleep(FULL_PAUSE / 2).await });
        }
        Ok(())
    }

    /// Turns dirty runs into data objects while there are too many bytes of them, and into a log
    /// object when there are too many runs.
    fn make_objects(&self) -> Result<()> {
        let shared = &self.shared;
        let staged_max = shared.options.staged_max;
        if self.is_full() {
            return self.wait_for_room();
        }
        let (dirty, runs, mut waiting) = {
            let contents = shared.contents.read();
            (contents.staging.dirty(), contents.staging.runs(), contents.waiting)
        };
        if dirty > staged_max {
            let mut contents = shared.contents.write();
            while contents.staging.dirty() > staged_max / 2 {
                let batch = shared.batch.fetch_add(1, Ordering::Relaxed);
                let runs = contents.staging.seal_region(batch);
                contents.waiting.pieces += runs.len();
                contents.waiting.bytes += runs.iter().map(|(_, run)| run.len() as u64).sum::<u64>();
                waiting = contents.waiting;
                let upload = shared.upload(batch, runs);
                contents.pending.push(Pending::Data(upload));
            }
        }
        let too_many = runs + waiting.pieces > PIECES_WAITING_MAX;
        if too_many || waiting.bytes > staged_max * BYTES_WAITING_MAX {
            match shared.runtime.wait(shared.flush(Flush::Writes)) {
                // Kept; whoever flushes is told.
                Err(error) if error.code() == Code::NoSpace => return self.wait_for_room(),
                flushed => flushed?,
            }
        } else if waiting.bytes > staged_max * BYTES_WAITING {
            shared.begin_flush();
        }
        if shared.uploading.load(Ordering::Acquire) > UPLOADING_MAX {
            shared.runtime.wait(async {
                loop {
                    let done = shared.uploaded.notified();
                    if shared.uploading.load(Ordering::Acquire) <= UPLOADING_MAX {
                        return;
                    }
                    done.await;
                }
            });
        }
        Ok(())
    }
}

pub(crate) fn no_volume(name: &str) -> Error {
    Error::refused(Code::NotFound, format!("{name}: there is no volume; make one with shoal mkfs"))
}

impl Device for BucketDevice {
    fn capacity(&self) -> u64 {
        self.shared.capacity
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.check("read", offset, buf.len() as u64)?;
        self.shared.read(buf, offset)
    }

    fn read_now(&self, buf: &mut [u8], offset: u64) -> Result<bool> {
        self.check("read", offset, buf.len() as u64)?;
        Ok(self.shared.read_memory(buf, offset).is_empty())
    }

    fn is_behind(&self) -> bool {
        let shared = &self.shared;
        let (runs, waiting) = {
            let contents = shared.contents.read();
            (contents.staging.runs(), contents.waiting)
        };
        // Less than `make_objects` lets wait, so that the next writes need not.
        runs + waiting.pieces > PIECES_WAITING_MAX / 2
            || waiting.bytes > shared.options.staged_max * (BYTES_WAITING_MAX - 1)
            || shared.uploading.load(Ordering::Relaxed) > UPLOADING_MAX / 2
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.check("write", offset, buf.len() as u64)?;
        self.shared.may_write()?;
        self.shared.contents.write().staging.write(offset, buf);
        self.make_objects()
    }

    fn flush(&self) -> Result<()> {
        self.shared.runtime.wait(self.shared.flush(Flush::Writes))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check("discard", offset, len)?;
        self.shared.may_write()?;
        self.shared.contents.write().discard(offset..offset + len);
        Ok(())
    }

    fn will_read(&self, offset: u64, len: u64) {
        if self.check("read", offset, len).is_ok() {
            self.shared.will_read(offset..offset + len);
        }
    }

    fn is_sparse(&self) -> bool {
        true
    }

    fn never_full(&self) -> bool {
        true
    }

    fn is_full(&self) -> bool {
        self.shared.full.load(Ordering::Relaxed)
    }

    fn room(&self) -> Option<u64> {
        self.is_full().then_some(0)
    }

    /// A log object has all that was written since the one before, and is there as a whole.
    fn keeps_order(&self) -> bool {
        true
    }

    fn read_only(&self) -> bool {
        self.shared.is_reader()
    }

    fn place(&self) -> Option<String> {
        Some(self.shared.store.name.trim_end_matches('/').to_owned())
    }

    fn describe(&self) -> String {
        self.shared.store.name.clone()
    }

    fn close(&self) -> Result<()> {
        self.shared.runtime.wait(async {
            // Of a reader always. A repair closes a volume, and then its device once more.
            if self.shared.manifests.lock().await.closed {
                return Ok(());
            }
            // Nobody knows while the store does not answer.
            timeout(CHECK_MAX, self.shared.check_there()).await.unwrap_or(Ok(()))?;
            let begun = Instant::now();
            loop {
                match self.shared.flush(Flush::Closing).await {
                    Err(error) if error.code() == Code::NoSpace => {
                        if begun.elapsed() > self.shared.options.limits.patience {
                            return Err(error);
                        }
                        self.shared.make_room().await;
                        tokio::time::sleep(FULL_PAUSE).await;
                    }
                    flushed => break flushed?,
                }
            }
            self.shared.publish_closed().await
        })
    }

    fn facts(&self) -> Vec<Fact> {
        let counted = self.counted();
        let (objects, pieces, bytes) = self.shared.contents.read().map.totals();
        let fact = |gauge| move |(name, value, what)| Fact { name, value, what, gauge };
        let kind = |kind: &Request| (kind.name(), counted.of(*kind), kind.what());
        let micro = (counted.price(&S3) * 1e6) as u64;
        let counters = [
            ("repeated", counted.failed, "requests that failed and were sent again"),
            ("sent_bytes", counted.sent, "bytes of objects sent to the store"),
            ("received_bytes", counted.received, "bytes of objects received from the store"),
            ("cost_microdollars", micro, "price of the requests in S3 Standard, in millionths"),
        ];
        let gauges = [
            ("objects", objects as u64, "objects that the volume has in the store now"),
            ("pieces", pieces as u64, "pieces of objects that hold the volume now"),
            ("stored_bytes", bytes, "bytes of the objects now"),
        ];
        let (mut hits, mut on_disk) = (Vec::new(), Vec::new());
        if let Some(disk) = self.shared.frames.disk() {
            let [pieces, bytes, used] = disk.counted();
            hits.push(("disk_hits", pieces, "pieces of objects found in the cache on disk"));
            hits.push(("disk_hit_bytes", bytes, "bytes of these pieces, as stored"));
            on_disk.push(("disk_bytes", used, "bytes of the cache on disk"));
        }
        let counters = Request::ALL.iter().map(kind).chain(counters).chain(hits);
        let gauges = gauges.into_iter().chain(on_disk);
        counters.map(fact(false)).chain(gauges.map(fact(true))).collect()
    }
}
