//! A store that misbehaves as real ones do, as a seed decides: for tests alone.
//!
//! | fault | what the caller sees | what happens |
//! | --- | --- | --- |
//! | busy (500, 503) | an error | nothing |
//! | lost reply | an error | the request is carried out |
//! | late | an error | the request is carried out after later ones |
//! | conflict (409) | "exists", of a conditional request | nothing; or the request is carried out |
//! | stale list | objects of some time ago | |
//! | away | an error, for some time | nothing |
//! | [weather](Weather): refused, a quota, hung | that of a real store, for some time | mostly nothing |
//! | [changed](World::change) | an object that is shorter, or of other bytes; 416 for a range behind its end | |

mod weather;

pub use weather::{Scope, Weather};

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use weather::{Asked, Fate, Spell};

/// Faults, each in so many of a thousand requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Nothing happens, and an error is returned.
    pub busy: u32,
    /// The request is carried out, and an error is returned.
    pub lost_reply: u32,
    /// An error is returned, and a PUT is carried out later, after other requests.
    pub late: u32,
    /// A conditional PUT is refused although there is no such object.
    pub conflict: u32,
    /// A list is one of some requests ago.
    pub stale_list: u32,
    /// Longest latency of a request, in milliseconds.
    pub latency_ms: u64,
}

impl Faults {
    /// All of them, often.
    pub const MANY: Faults = Faults {
        busy: 40,
        lost_reply: 40,
        late: 20,
        conflict: 20,
        stale_list: 300,
        latency_ms: 30,
    };
}

/// Lists that are remembered, to be returned later.
const LISTS: usize = 16;

/// The objects, which all connections share.
pub struct World {
    inner: InMemory,
    random: Mutex<u64>,
    late: Mutex<Vec<(Path, Bytes, PutOptions)>>,
    lists: Mutex<VecDeque<Vec<ObjectMeta>>>,
    requests: AtomicU64,
    spell: Mutex<Spell>,
}

/// A connection to the store, which can be cut.
#[derive(Clone)]
pub struct Faulty(Arc<Connection>);

struct Connection {
    world: Arc<World>,
    faults: Faults,
    /// Requests fail.
    away: AtomicBool,
    /// The process is gone: its requests are not carried out.
    dead: AtomicBool,
    /// Requests after which the process is gone; `u64::MAX`: none.
    stops_after: AtomicU64,
    /// The spell that it has met last, by number, and its end. Each process has a clock of its own.
    met: Mutex<(u64, Option<Instant>)>,
}

impl std::fmt::Debug for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Faulty")
    }
}

impl std::fmt::Display for Faulty {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("faulty store")
    }
}

impl World {
    /// Makes an empty store. Everything that happens follows from `seed` and the requests.
    pub fn new(seed: u64) -> Arc<World> {
        Arc::new(World::of(seed))
    }

    fn of(seed: u64) -> World {
        World {
            inner: InMemory::new(),
            random: Mutex::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            late: Mutex::default(),
            lists: Mutex::default(),
            requests: AtomicU64::new(0),
            spell: Mutex::default(),
        }
    }

    /// Copies the store with its objects, and nothing that was held back.
    pub fn fork(&self, seed: u64) -> Arc<World> {
        Arc::new(World { inner: self.inner.fork(), ..World::of(seed) })
    }

    /// Makes a connection.
    pub fn connect(self: &Arc<World>, faults: Faults) -> Faulty {
        Faulty(Arc::new(Connection {
            world: self.clone(),
            faults,
            away: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            stops_after: AtomicU64::new(u64::MAX),
            met: Mutex::default(),
        }))
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Changes the weather. Each connection has it for `lasts` from its next request on.
    pub fn set_weather(&self, weather: Weather, lasts: Duration) {
        let mut spell = self.spell.lock();
        *spell = Spell { number: spell.number + 1, weather, lasts };
    }

    /// Names of the objects, with their sizes.
    pub fn objects(&self) -> Vec<(String, u64)> {
        let all = self.inner.list(None).filter_map(async |found| found.ok()).collect::<Vec<_>>();
        let all = at_once(all).into_iter();
        all.map(|found| (found.location.to_string(), found.size)).collect()
    }

    /// Bytes of all objects.
    pub fn bytes(&self) -> u64 {
        self.objects().iter().map(|(_, size)| size).sum()
    }

    /// Changes an object behind the back of its owner; `None` removes it. Does nothing if there is
    /// no such object.
    pub fn change(&self, name: &str, change: impl FnOnce(Bytes) -> Option<Vec<u8>>) {
        let path = Path::from(name);
        let got = at_once(async { self.inner.get(&path).await?.bytes().await });
        let Ok(bytes) = got else { return };
        // A store in memory does not fail.
        let _ = match change(bytes) {
            Some(bytes) => at_once(self.inner.put(&path, bytes.into())).map(drop),
            None => at_once(self.inner.delete(&path)),
        };
    }

    fn random(&self, below: u64) -> u64 {
        let mut state = self.random.lock();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        (*state >> 16) % below.max(1)
    }

    /// Carries out a PUT, if there is room for it.
    async fn put(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
        quota: Option<u64>,
    ) -> Result<PutResult> {
        if let Some(quota) = quota {
            let (name, size) = (location.to_string(), payload.content_length() as u64);
            let objects = self.objects();
            let before = objects.iter().find(|(other, _)| *other == name).map_or(0, |it| it.1);
            let all: u64 = objects.iter().map(|(_, size)| size).sum();
            if size > before && all - before + size > quota {
                return Err(weather::quota(&name, self.random(2)));
            }
        }
        self.inner.put_opts(location, payload, options).await
    }

    /// Carries out some PUTs that were held back.
    async fn settle(&self, all: bool, quota: Option<u64>) {
        loop {
            let held = {
                let mut late = self.late.lock();
                let due = !late.is_empty() && (all || self.random(4) == 0);
                due.then(|| late.remove(0))
            };
            let Some((path, bytes, options)) = held else { return };
            // Nobody waits for the outcome any more.
            let _ = self.put(&path, PutPayload::from_bytes(bytes), options, quota).await;
        }
    }
}

/// The error that a process gets for which nothing is carried out any more: it cannot tell anybody.
fn gone() -> Error {
    Error::NotSupported { source: "the process is gone".into() }
}

fn busy(why: &str) -> Error {
    Error::Generic { store: "faulty", source: why.to_owned().into() }
}

/// The result of a request to a store in memory, which never waits.
fn at_once<T>(request: impl Future<Output = T>) -> T {
    request.now_or_never().unwrap_or_else(|| unreachable!("a store in memory does not wait"))
}

impl Faulty {
    /// Cuts the connection, or mends it.
    pub fn set_away(&self, away: bool) {
        self.0.away.store(away, Ordering::Relaxed);
    }

    /// Ends the process: no request of it is carried out any more.
    pub fn kill(&self) {
        self.0.kill();
    }

    /// Ends the process when it has made so many more requests: the last one is carried out, but
    /// its reply is not seen.
    pub fn kill_after(&self, requests: u64) {
        self.0.stops_after.store(requests, Ordering::Relaxed);
    }

    /// Returns whether the process has ended.
    pub fn is_dead(&self) -> bool {
        self.0.dead.load(Ordering::Relaxed)
    }
}

impl Connection {
    fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    fn chance(&self, of_thousand: u32) -> bool {
        of_thousand > 0 && self.world.random(1000) < u64::from(of_thousand)
    }

    /// The weather, and its end, as this connection meets it.
    fn weather(&self) -> (Weather, Instant) {
        let Spell { number, weather, lasts } = *self.world.spell.lock();
        let now = Instant::now();
        let mut met = self.met.lock();
        let end = match *met {
            (known, Some(end)) if known == number => end,
            _ => now + lasts,
        };
        *met = (number, Some(end));
        (if now < end { weather } else { Weather::Fair }, end)
    }

    /// The quota that holds now.
    fn quota(&self) -> Option<u64> {
        match self.weather().0 {
            Weather::Quota(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Lets a request meet the weather. Returns when it is to be carried out; `hold` is called if
    /// the store does so later, although it never answers.
    async fn meet(&self, asked: Asked, name: &str, hold: impl FnOnce()) -> Result<()> {
        let (weather, end) = self.weather();
        match weather.fate(asked, end - Instant::now(), &|below| self.world.random(below)) {
            Fate::CarriedOut => Ok(()),
            Fate::Refused(code) => Err(code.error(asked, name)),
            Fate::Late(after) => {
                tokio::time::sleep(after).await;
                match self.dead.load(Ordering::Relaxed) {
                    true => Err(gone()),
                    false => Ok(()),
                }
            }
            Fate::Silent { is_held, after } => {
                if is_held {
                    hold();
                }
                tokio::time::sleep(after).await;
                Err(busy("operation timed out"))
            }
        }
    }

    /// Everything that may happen before a request. Returns whether the process ends with it.
    async fn begin(&self) -> Result<bool> {
        self.world.requests.fetch_add(1, Ordering::Relaxed);
        if self.faults.latency_ms > 0 {
            let latency = self.world.random(self.faults.latency_ms);
            tokio::time::sleep(Duration::from_millis(latency)).await;
        }
        if self.dead.load(Ordering::Relaxed) {
            return Err(gone());
        }
        self.world.settle(false, self.quota()).await;
        let left = self.stops_after.load(Ordering::Relaxed);
        if left != u64::MAX {
            self.stops_after.store(left.saturating_sub(1), Ordering::Relaxed);
        }
        if left <= 1 {
            self.kill();
            return Ok(true);
        }
        if self.away.load(Ordering::Relaxed) {
            return Err(busy("the connection is cut"));
        }
        match self.chance(self.faults.busy) {
            true => Err(busy("503 slow down")),
            false => Ok(false),
        }
    }

    /// Everything that may happen after a request that was carried out.
    async fn end(&self, dies: bool) -> Result<()> {
        if dies {
            return Err(gone());
        }
        match self.chance(self.faults.lost_reply) {
            true => Err(busy("the connection was closed before the reply")),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let dies = self.0.begin().await?;
        let hold = || {
            let bytes = Bytes::from(payload.clone());
            self.0.world.late.lock().push((location.clone(), bytes, options.clone()));
        };
        self.0.meet(Asked::Write, location.as_ref(), hold).await?;
        let conditional = matches!(options.mode, PutMode::Create);
        if !dies && self.0.chance(self.0.faults.late) {
            let bytes = Bytes::from(payload);
            self.0.world.late.lock().push((location.clone(), bytes, options));
            return Err(busy("time-out"));
        }
        if !dies && conditional && self.0.chance(self.0.faults.conflict) {
            if self.0.chance(500) {
                let _ = self.0.world.put(location, payload, options, self.0.quota()).await;
            }
            let (path, source) = (location.to_string(), "409 conflict".into());
            return Err(Error::AlreadyExists { path, source });
        }
        let done = self.0.world.put(location, payload, options, self.0.quota()).await;
        self.0.end(dies).await?;
        done
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.world.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let dies = self.0.begin().await?;
        self.0.meet(Asked::Read, location.as_ref(), || {}).await?;
        let found = self.0.world.inner.get_opts(location, options).await;
        self.0.end(dies).await?;
        // Of a store in memory: the range begins behind the end.
        found.map_err(|error| match error {
            Error::Generic { .. } => weather::short(),
            other => other,
        })
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let by = self.0.clone();
        locations
            .then(move |location| {
                let by = by.clone();
                async move {
                    let location = location?;
                    let dies = by.begin().await?;
                    by.meet(Asked::Write, location.as_ref(), || {}).await?;
                    by.world.inner.delete(&location).await?;
                    by.end(dies).await?;
                    Ok(location)
                }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (by, prefix) = (self.0.clone(), prefix.cloned());
        let stale = self.0.chance(self.0.faults.stale_list);
        let all = async move {
            let world = &by.world;
            if let Err(error) = by.meet(Asked::List, "", || {}).await {
                return futures::stream::iter(vec![Err(error)]);
            }
            let now: Vec<ObjectMeta> =
                world.inner.list(None).filter_map(async |found| found.ok()).collect().await;
            let mut lists = world.lists.lock();
            lists.push_back(now.clone());
            if lists.len() > LISTS {
                lists.pop_front();
            }
            let list = match stale {
                true => lists[world.random(lists.len() as u64) as usize].clone(),
                false => now,
            };
            let within = |found: &ObjectMeta| {
                prefix.as_ref().is_none_or(|prefix| found.location.prefix_matches(prefix))
            };
            futures::stream::iter(list.into_iter().filter(within).map(Ok).collect::<Vec<_>>())
        };
        futures::stream::once(all).flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.world.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.world.inner.copy_opts(from, to, options).await
    }
}
