//! The objects of one volume in a store: requests with retries, counted.
//!
//! A request that fails because the store is busy, out of reach, or refuses the credentials
//! ([`failure`](crate::failure)) is sent again, with growing pauses, until [`Limits::patience`] is
//! over. Such a request may have been carried out all the same. For a GET, a DELETE, and a PUT of
//! an object that only this opening writes, that makes no difference. For [`Store::create`], the
//! object that is there is compared: it is this one's if and only if all its bytes are, because
//! each log object and manifest contains the random number of its opening.
//!
//! Many requests that fail do not become a storm: pauses are random, last as long as the store asks
//! for (`Retry-After`), grow with the number of requests that wait, and [`RETRIES`] at a time are
//! sent again. One that succeeds ends the pauses of the others.

use crate::failure::{Trouble, failed, is_denied, is_missing, is_short, is_taken, reason, trouble};
use crate::http::with_pause;
use crate::race::FOLDER;
use crate::requests::{Request, Requests};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use shoal_base::{Code, Error, Result};
use shoal_format::bucket::manifest_sequence;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout};

/// First pause before a request is sent again. Each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause, with few requests that wait.
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// Pause for each request that waits.
const PAUSE_EACH: Duration = Duration::from_millis(20);
/// Longest pause that a store may ask for.
const ASKED_MAX: Duration = Duration::from_secs(30);
/// Requests that are sent again at once, of reads and of writes each.
const RETRIES: usize = 8;

/// Pause from which on somebody who waits is told why.
const NOTICED: Duration = Duration::from_millis(800);
/// Time without an answer after which the same is done, of a request without content. A store that
/// hangs does not fail for a minute.
const SILENT: Duration = Duration::from_secs(5);
/// Bytes that a second more is given for: on a slow line they take long.
const SILENT_EACH: u64 = 512 << 10;
/// Size of an object that is read as a whole, as a rule at most.
const SIZE_LIKELY: u64 = 1 << 20;

/// Limits of requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for which a request is repeated before the call that needs it fails.
    pub patience: Duration,
    /// The same before the store has answered any request: a wrong address, or keys that are
    /// wrong, should be known at once.
    pub first: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { patience: Duration::from_secs(300), first: Duration::from_secs(5) }
    }
}

/// The outcome of creating an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Created {
    /// It is there.
    Ours,
    /// Another object is there, with these bytes.
    Taken(Bytes),
}

/// The objects of a volume.
pub(crate) struct Store {
    objects: Arc<dyn ObjectStore>,
    prefix: Path,
    /// Name for messages.
    pub name: String,
    pub requests: Requests,
    limits: Limits,
    notice: fn(&str),
    /// The store has answered a request.
    is_reached: AtomicBool,
    reads: Repeated,
    writes: Repeated,
    random: AtomicU64,
    renew: Arc<AtomicBool>,
    /// It keeps versions of objects, and the condition of a create all the same.
    is_proven: AtomicBool,
}

/// Requests that are sent again.
struct Repeated {
    waiting: AtomicU32,
    /// The user has been told that one of them waits, and none has succeeded since then.
    is_told: AtomicBool,
    /// One of them has succeeded.
    recovered: Notify,
    permits: Semaphore,
}

impl Default for Repeated {
    fn default() -> Repeated {
        let permits = Semaphore::new(RETRIES);
        let (waiting, is_told) = (AtomicU32::new(0), AtomicBool::new(false));
        Repeated { waiting, is_told, recovered: Notify::new(), permits }
    }
}

impl Store {
    /// `notice` is called when requests have failed, or have had no answer, for longer than a
    /// moment; once for all of them, until one succeeds. `seed` decides on the pauses, and `renew`
    /// is set when the store has refused the credentials.
    pub(crate) fn new(
        objects: Arc<dyn ObjectStore>,
        prefix: Path,
        name: String,
        limits: Limits,
        notice: fn(&str),
        (seed, renew): (u64, Arc<AtomicBool>),
    ) -> Store {
        Store {
            objects,
            prefix,
            name,
            requests: Requests::default(),
            limits,
            notice,
            is_reached: AtomicBool::new(false),
            reads: Repeated::default(),
            writes: Repeated::default(),
            random: AtomicU64::new(seed),
            renew,
            is_proven: AtomicBool::new(false),
        }
    }

    fn at(&self, name: &str) -> Path {
        below(&self.prefix, name)
    }

    /// Creates an object if there is none of this name.
    ///
    /// # Errors
    /// `NotSupported`: versioning of the bucket was switched on, and the store does not keep the
    /// condition any more. Those of requests.
    pub(crate) async fn create(&self, kind: Request, name: &str, bytes: Bytes) -> Result<Created> {
        let (created, has_version) = self.create_only(kind, name, bytes).await?;
        if has_version {
            self.prove().await?;
        }
        Ok(created)
    }

    /// Creates an object if there is none of this name. Also returns whether the store has given a
    /// version to it.
    async fn create_only(
        &self,
        kind: Request,
        name: &str,
        bytes: Bytes,
    ) -> Result<(Created, bool)> {
        let mut attempts = Attempts::begin(self, &self.writes, "creating", name);
        attempts.moves(bytes.len() as u64);
        let path = self.at(name);
        loop {
            self.requests.add(kind, bytes.len() as u64);
            let options = PutMode::Create.into();
            let payload = PutPayload::from_bytes(bytes.clone());
            let put = self.objects.put_opts(&path, payload, options);
            match attempts.run(put).await {
                Ok(put) => return Ok((Created::Ours, put.version.is_some())),
                Err(error) if is_taken(&error) => match self.get(name).await? {
                    Some(found) if found == bytes => return Ok((Created::Ours, false)),
                    Some(found) => return Ok((Created::Taken(found), false)),
                    // Refused because another request for it was under way, and that one failed.
                    None => attempts.pause(&error).await?,
                },
                Err(error) => attempts.pause(&error).await?,
            }
        }
    }

    /// Tests, once, that an object is not created in place of another one though the bucket keeps
    /// versions: a Ceph of version 16 writes one more version, and nobody would be cut off.
    async fn prove(&self) -> Result<()> {
        if self.is_proven.load(Ordering::Acquire) {
            return Ok(());
        }
        let name = format!("{FOLDER}/versions-{:016x}", random()?);
        let bytes = Bytes::from_static;
        self.put(Request::PutLog, &name, bytes(b"first")).await?;
        let (second, _) = self.create_only(Request::PutLog, &name, bytes(b"second")).await?;
        let deleted = self.delete(&name).await;
        if matches!(second, Created::Ours) {
            let message = format!(
                "{}: the bucket keeps versions of its objects, and this store then overwrites an \
                 object that was to be created only if there is none: two mounts would destroy \
                 the volume. Suspend the bucket's versioning, then mount again",
                self.name
            );
            return Err(Error::refused(Code::NotSupported, message));
        }
        deleted?;
        self.is_proven.store(true, Ordering::Release);
        Ok(())
    }

    /// Writes an object, in place of an older one of this name if there is one.
    pub(crate) async fn put(&self, kind: Request, name: &str, bytes: Bytes) -> Result<()> {
        let mut attempts = Attempts::begin(self, &self.writes, "writing", name);
        attempts.moves(bytes.len() as u64);
        let path = self.at(name);
        loop {
            self.requests.add(kind, bytes.len() as u64);
            let put = self.objects.put(&path, PutPayload::from_bytes(bytes.clone()));
            match attempts.run(put).await {
                Ok(_) => return Ok(()),
                Err(error) => attempts.pause(&error).await?,
            }
        }
    }

    /// Reads an object; `None` if there is none.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        let path = self.at(name);
        let get = || async { self.objects.get(&path).await?.bytes().await };
        self.read(name, SIZE_LIKELY, get).await
    }

    /// Reads a part of an object; `None` if there is no such object. Less than the range if the
    /// object ends before.
    pub(crate) async fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let path = self.at(name);
        let size = range.end.saturating_sub(range.start);
        self.read(name, size, || self.objects.get_range(&path, range.clone())).await
    }

    async fn read<F>(&self, name: &str, size: u64, get: impl Fn() -> F) -> Result<Option<Bytes>>
    where
        F: Future<Output = Result<Bytes, StoreError>>,
    {
        let mut attempts = Attempts::begin(self, &self.reads, "reading", name);
        attempts.moves(size);
        loop {
            self.requests.add(Request::Get, 0);
            match attempts.run(get()).await {
                Ok(bytes) => {
                    self.requests.received(bytes.len() as u64);
                    return Ok(Some(bytes));
                }
                Err(error) if is_missing(&error) => return Ok(None),
                Err(error) if is_short(&error) => return Ok(Some(Bytes::new())),
                Err(error) => attempts.pause(&error).await?,
            }
        }
    }

    /// Deletes an object. It need not be there.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        let mut attempts = Attempts::begin(self, &self.writes, "deleting", name);
        let path = self.at(name);
        loop {
            self.requests.add(Request::Delete, 0);
            match attempts.run(self.objects.delete(&path)).await {
                Ok(()) => return Ok(()),
                Err(error) if is_missing(&error) => return Ok(()),
                Err(error) => attempts.pause(&error).await?,
            }
        }
    }

    /// Lists the names below `folder`, relative to the volume's prefix, with the objects' sizes, at
    /// most `max` of them. The list may lag behind what was written and deleted.
    pub(crate) async fn list(&self, folder: &str, max: usize) -> Result<Vec<(String, u64)>> {
        self.list_below(&self.prefix, folder, max).await
    }

    /// Returns the prefix above this one that holds a volume, if there is one that these keys may
    /// see.
    pub(crate) async fn volume_above(&self) -> Result<Option<Path>> {
        for above in above(&self.prefix) {
            self.requests.add(Request::List, 0);
            let found = match list_once(&*self.objects, &above, "manifest", 1).await {
                Ok(found) => found,
                // Keys of one prefix are usual. A volume above would not be harmed: it ignores
                // names that it did not give.
                Err(error) if is_denied(&error) => {
                    let (at, why) = (&self.name, "these keys may not list the prefixes above it");
                    (self.notice)(&format!("{at}: may be inside another volume: {why}"));
                    return Ok(None);
                }
                Err(_) => self.list_below(&above, "manifest", 1).await?,
            };
            if has_volume(&found) {
                return Ok(Some(above));
            }
        }
        Ok(None)
    }

    async fn list_below(
        &self,
        prefix: &Path,
        folder: &str,
        max: usize,
    ) -> Result<Vec<(String, u64)>> {
        let shown = if folder.is_empty() { "its objects" } else { folder };
        let mut attempts = Attempts::begin(self, &self.reads, "listing", shown);
        loop {
            self.requests.add(Request::List, 0);
            match attempts.run(list_once(&*self.objects, prefix, folder, max)).await {
                Ok(found) => {
                    // A page of a list has a thousand names.
                    (0..found.len() / 1000).for_each(|_| self.requests.add(Request::List, 0));
                    return Ok(found);
                }
                Err(error) if is_missing(&error) => return Ok(Vec::new()),
                Err(error) => attempts.pause(&error).await?,
            }
        }
    }
}

/// Returns a number that no other process has.
pub(crate) fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(8) => Ok(u64::from_le_bytes(bytes)),
        _ => Err(Error::refused(Code::Io, "the system has no random numbers")),
    }
}

/// Lists the names below `folder`, relative to the prefix, with the objects' sizes, at most `max`
/// of them.
pub(crate) async fn list_once(
    objects: &dyn ObjectStore,
    prefix: &Path,
    folder: &str,
    max: usize,
) -> Result<Vec<(String, u64)>, StoreError> {
    let mut found = Vec::new();
    let mut list = objects.list(Some(&below(prefix, folder)));
    while let Some(object) = list.try_next().await? {
        let Some(parts) = object.location.prefix_match(prefix) else { continue };
        let parts: Vec<_> = parts.map(|part| part.as_ref().to_owned()).collect();
        found.push((parts.join("/"), object.size));
        if found.len() >= max {
            break;
        }
    }
    Ok(found)
}

/// Returns the prefixes above one, the shortest first.
pub(crate) fn above(prefix: &Path) -> Vec<Path> {
    let parts: Vec<_> = prefix.parts().collect();
    (0..parts.len()).map(|depth| parts[..depth].iter().cloned().collect()).collect()
}

/// Returns whether these objects of a prefix are those of a volume.
pub(crate) fn has_volume(found: &[(String, u64)]) -> bool {
    found.iter().any(|(name, _)| manifest_sequence(name).is_some())
}

/// Returns whether a name, below a volume's prefix, is one that Shoal gives.
pub(crate) fn is_ours(name: &str) -> bool {
    let folder = name.split('/').next().unwrap_or_default();
    ["manifest", "log", "data", FOLDER].contains(&folder) && folder != name
}

/// Returns the place of a name below a prefix.
pub(crate) fn below(prefix: &Path, name: &str) -> Path {
    let parts = name.split('/').filter(|part| !part.is_empty());
    parts.fold(prefix.clone(), |path, part| path.join(part))
}

/// Attempts of one request.
struct Attempts<'s> {
    store: &'s Store,
    /// The requests that it is repeated with.
    repeated: &'s Repeated,
    doing: &'static str,
    name: &'s str,
    begun: Instant,
    pause: Duration,
    /// Pause that the store has asked for.
    asked: Option<Duration>,
    /// Held by one that is sent again.
    permit: Option<SemaphorePermit<'s>>,
    is_waiting: bool,
    /// Time without success after which the user is told, unless that was done.
    silent_max: Duration,
    is_noticed: bool,
}

impl<'s> Attempts<'s> {
    fn begin(
        store: &'s Store,
        repeated: &'s Repeated,
        doing: &'static str,
        name: &'s str,
    ) -> Attempts<'s> {
        Attempts {
            store,
            repeated,
            doing,
            name,
            begun: Instant::now(),
            pause: PAUSE_MIN,
            asked: None,
            permit: None,
            is_waiting: false,
            silent_max: SILENT,
            is_noticed: false,
        }
    }

    /// Notes the size of the request or its answer.
    fn moves(&mut self, bytes: u64) {
        self.silent_max = SILENT + Duration::from_secs(bytes / SILENT_EACH);
    }

    /// Time for which the request is repeated.
    fn limit(&self) -> Duration {
        let Limits { patience, first } = self.store.limits;
        match self.store.is_reached.load(Ordering::Relaxed) {
            true => patience,
            false => first.min(patience),
        }
    }

    /// Makes an attempt. It has a time of its own, which the transport limits; of a store that has
    /// never answered, nobody waits for longer than [`Limits::first`].
    async fn run<T>(
        &mut self,
        request: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let store = self.store;
        let request = with_pause(request);
        let (done, asked) = match store.is_reached.load(Ordering::Relaxed) {
            true => self.watched(request).await,
            false => {
                let left = self.limit().saturating_sub(self.begun.elapsed());
                timeout(left, request).await.unwrap_or_else(|_| (Err(silent(left)), None))
            }
        };
        self.asked = asked;
        let answered = match &done {
            Ok(_) => true,
            Err(error) => is_missing(error) || is_taken(error) || is_short(error),
        };
        if answered {
            store.is_reached.store(true, Ordering::Relaxed);
            self.repeated.is_told.store(false, Ordering::Relaxed);
            if self.is_waiting {
                self.repeated.recovered.notify_waiters();
            }
        }
        self.permit = None;
        done
    }

    /// Waits for a request. Tells the user when it takes long.
    async fn watched<T>(&mut self, request: impl Future<Output = T>) -> T {
        let mut request = pin!(request);
        if !self.is_noticed {
            let left = self.silent_max.saturating_sub(self.begun.elapsed());
            match timeout(left, request.as_mut()).await {
                Ok(done) => return done,
                Err(_) => {
                    let seconds = self.begun.elapsed().as_secs();
                    self.notice(&format!("has not been answered for {seconds} s; trying"));
                }
            }
        }
        request.await
    }

    /// Tells the user that this request waits, unless that has been said of another one.
    fn notice(&mut self, what: &str) {
        if self.is_noticed || self.repeated.is_told.swap(true, Ordering::Relaxed) {
            return;
        }
        self.is_noticed = true;
        let Attempts { store, doing, name, .. } = *self;
        let (at, seconds) = (&store.name, self.limit().as_secs());
        (store.notice)(&format!("{at}: {doing} {name} {what} for {seconds} s"));
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// Another attempt is useless, or the patience is over.
    async fn pause(&mut self, error: &StoreError) -> Result<()> {
        let Attempts { store, repeated, doing, name, .. } = *self;
        store.requests.failed();
        let is_reached = store.is_reached.load(Ordering::Relaxed);
        match trouble(error) {
            _ if is_taken(error) => {}
            Trouble::Passing => {}
            // Perhaps there are others by now.
            Trouble::Refused if is_reached => store.renew.store(true, Ordering::Relaxed),
            Trouble::Refused | Trouble::Full | Trouble::Final => {
                return Err(failed(&store.name, doing, name, error));
            }
        }
        let (spent, limit) = (self.begun.elapsed(), self.limit());
        if !self.is_waiting {
            self.is_waiting = true;
            repeated.waiting.fetch_add(1, Ordering::Relaxed);
        }
        let pause = self.next_pause();
        if spent + pause > limit {
            if !is_reached {
                return Err(failed(&store.name, doing, name, error));
            }
            let (store, why, seconds) = (&store.name, reason(error), spent.as_secs());
            let message = format!("{store}: {doing} {name} failed for {seconds} s: {why}");
            return Err(Error::refused(Code::Io, message));
        }
        if self.pause >= NOTICED || spent + pause >= self.silent_max {
            self.notice(&format!("has failed ({}); trying again", reason(error)));
        }
        let recovered = repeated.recovered.notified();
        // Another one has succeeded: the store is back.
        let _ = timeout(pause, recovered).await;
        self.permit = repeated.permits.acquire().await.ok();
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }

    /// The next pause: half to all of what is due.
    fn next_pause(&self) -> Duration {
        let waiting = self.repeated.waiting.load(Ordering::Relaxed);
        let due = self.pause.max(PAUSE_EACH * waiting);
        let asked = self.asked.unwrap_or_default().min(ASKED_MAX);
        let step = 0x9e37_79b9_7f4a_7c15;
        let random = self.store.random.fetch_add(step, Ordering::Relaxed).wrapping_mul(step) >> 32;
        asked.max(due / 2 + due / 2 * (random as u32 % 1024) / 1024)
    }
}

impl Drop for Attempts<'_> {
    fn drop(&mut self) {
        if self.is_waiting {
            self.repeated.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The error of a store that does not answer.
#[cold]
pub(crate) fn silent(after: Duration) -> StoreError {
    let source = format!("it has not answered within {:.1} s", after.as_secs_f64()).into();
    StoreError::Generic { store: "store", source }
}
