//! A check of a place before, or while, a volume is in it: can one live there, and if not, which
//! single thing is missing?
//!
//! | step | action | if it fails |
//! | --- | --- | --- |
//! | 1 | get the keys | the check ends |
//! | 2 | list the prefix, and look above it for a volume | the check ends, unless only the right to list is missing |
//! | 3 | try each operation, on an object of a name that no other process uses | the others are tried all the same, if they can be |
//! | 4 | create objects with several writers at once | |
//! | 5 | measure PUT and GET | |
//! | 6 | read the owner of the volume that is there | |
//! | 7 | delete what was written | its names are returned |
//!
//! It reads what a volume has, and writes only in the folder of the test of a store (`race.rs`),
//! nothing at all where the prefix is inside a volume. Whatever the store does, the check ends
//! after `CHECK_MAX` and `CLEAN_MAX`.

use crate::about::Provider;
pub use crate::about::{Keys, Operation, Versioning};
use crate::failure::{Trouble, failed, is_denied, is_missing, is_taken, reason, remedy, trouble};
use crate::http::with_headers;
use crate::load::{manifest, newest};
pub use crate::place::Place;
use crate::race::{self, FOLDER, Race, race};
use crate::runtime::Runtime;
use crate::store::{Limits, Store, above, below, has_volume, is_ours, list_once, random, silent};
use bytes::Bytes;
use futures::future::{Either, join_all, select};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt, PutMode, PutPayload};
use shoal_base::{Code, Error, Result};
use shoal_format::bucket::manifest::{Body, ManifestHeader, decode_header};
use shoal_format::bucket::{manifest_name, manifest_sequence};
use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Longest time of all steps but the last.
const CHECK_MAX: Duration = Duration::from_secs(12);
/// Longest time of the last step.
const CLEAN_MAX: Duration = Duration::from_secs(2);
/// Longest time of measuring PUT, and of measuring GET.
const MEASURE_MAX: Duration = Duration::from_millis(1500);
/// Pause before a request is sent again. Each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);
/// Time between two looks for an interruption.
const TICK: Duration = Duration::from_millis(50);
/// Time that an interruption leaves to a request: one that is given up may be carried out later.
const LAST_MAX: Duration = Duration::from_secs(1);
/// Requests of each kind that are measured.
const MEASURED: u32 = 10;
/// Bytes of the objects: about those of an `fsync` of a small file.
const OBJECT: usize = 4096;
/// Names listed: one page.
const LISTED: usize = 1000;
/// The test of the condition: a store that looks, and then writes, is likely to fail it.
const RACE: Race = Race { writers: 8, keys: 4, keys_min: 4 };
/// Requests of a check of a good store, for progress.
const REQUESTS: u64 = 12 + 2 * MEASURED as u64;

/// The outcome of trying an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It works.
    Works,
    /// It does not: the reason, and the remedy.
    Fails(String),
    /// It was not tried, for this reason.
    NotTried(String),
}

/// Latencies of one kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Latency {
    /// Requests measured.
    pub count: u32,
    /// Their median.
    pub median: Duration,
    /// The longest.
    pub max: Duration,
}

/// A volume that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VolumeThere {
    /// Its random number in the bucket.
    pub number: u64,
    /// Bytes of its address space.
    pub capacity: u64,
    /// Its owner has closed it.
    pub is_closed: bool,
    /// The process that opened it for writing last.
    pub owner: Option<String>,
    /// That process is alive; `None`: it cannot be seen from here.
    pub is_alive: Option<bool>,
}

/// The contents of a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contents {
    /// Nothing.
    Empty,
    /// A volume; why no more is known of it.
    Volume(Result<VolumeThere, String>),
    /// Other objects, such as this one; the prefix, below this one, of a volume among them.
    Others(String, Option<String>),
    /// It is inside the volume at this prefix.
    Inside(String),
    /// Not known, for this reason.
    Unknown(String),
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The place, as a URL.
    pub place: String,
    /// Address of the store; `None`: it has none.
    pub endpoint: Option<String>,
    /// The region that requests are signed for.
    pub region: Option<String>,
    /// The region of the bucket, if the store says it.
    pub region_of_bucket: Option<String>,
    /// The name of the bucket is a part of that of the host; `None`: not of S3.
    pub is_virtual_hosted: Option<bool>,
    /// The keys; `None`: there are none (a directory).
    pub keys: Option<Keys>,
    /// Seconds by which the clock of this machine is ahead of the store's.
    pub ahead: Option<i64>,
    /// Outcomes in the order of [`Operation::ALL`]. Empty if the store cannot be used at all.
    pub tried: Vec<(Operation, Outcome)>,
    /// State of versioning; `None`: such a store has none.
    pub versioning: Option<Versioning>,
    /// Latency of writing a small object.
    pub put: Option<Latency>,
    /// Latency of reading a small object, or a part of one.
    pub get: Option<Latency>,
    /// The contents of the prefix.
    pub contents: Contents,
    /// Reason why it is not known whether the prefix is inside a volume.
    pub above: Option<String>,
    /// Names that the check has written, and that could not be deleted.
    pub left: Vec<String>,
    /// The reason why the store cannot be used at all.
    pub error: Option<Error>,
}

impl Checked {
    /// Returns whether a volume in this place could be read.
    pub fn is_readable(&self) -> bool {
        !self.tried.is_empty() && self.works(Operation::is_of_readers)
    }

    /// Returns whether a volume can be made here, or the one that is here be written.
    pub fn is_writable(&self) -> bool {
        let is_free = matches!(self.contents, Contents::Empty | Contents::Volume(_));
        !self.tried.is_empty() && self.works(|_| true) && is_free
    }

    fn works(&self, needed: impl Fn(Operation) -> bool) -> bool {
        let mut needed = self.tried.iter().filter(|(operation, _)| needed(*operation));
        needed.all(|(_, outcome)| *outcome == Outcome::Works)
    }
}

/// Checks a place. `stop` is asked whether to end early; what was written is removed then, too.
/// `step` is told the requests that have been made, and their likely number.
///
/// # Errors
/// The system has no threads or random numbers left. What is wrong with the store is in the result.
pub fn check(
    place: &Place,
    stop: &dyn Fn() -> bool,
    step: &mut dyn FnMut(u64, u64),
) -> Result<Checked> {
    let runtime = Runtime::start()?;
    let check = Check {
        place,
        stem: format!("check-{:016x}-", random()?),
        stop,
        end: Instant::now() + CHECK_MAX,
        step: RefCell::new(step),
        requests: Cell::new(0),
        written: RefCell::default(),
        tried: RefCell::default(),
    };
    Ok(runtime.wait(check.run()))
}

/// Failure of a request.
enum Failed {
    /// The store's answer, or none.
    Store(StoreError),
    /// It was not sent: the time is over, or the user has interrupted the check.
    NotSent(&'static str),
}

type Asked<T> = Result<T, Failed>;

struct Check<'c> {
    place: &'c Place,
    /// Beginning of the names of its objects, in the folder of tests.
    stem: String,
    stop: &'c dyn Fn() -> bool,
    /// Time after which no request is sent.
    end: Instant,
    step: RefCell<&'c mut dyn FnMut(u64, u64)>,
    requests: Cell<u64>,
    /// Objects to be deleted.
    written: RefCell<Vec<Path>>,
    tried: RefCell<Vec<(Operation, Outcome)>>,
}

impl Check<'_> {
    async fn run(&self) -> Checked {
        let about = &*self.place.about;
        let has_keys = about.endpoint.is_some();
        let mut checked = Checked {
            place: self.place.name.clone(),
            endpoint: about.endpoint.clone(),
            region: about.region.clone(),
            region_of_bucket: None,
            is_virtual_hosted: about.is_virtual_hosted,
            keys: has_keys.then(|| about.keys.clone()),
            ahead: None,
            tried: Vec::new(),
            versioning: None,
            put: None,
            get: None,
            contents: Contents::Unknown("not looked at".into()),
            above: None,
            left: Vec::new(),
            error: None,
        };
        let (done, heard) = with_headers(async {
            let done = self.all(&mut checked).await;
            checked.left = self.clean().await;
            done
        })
        .await;
        (checked.ahead, checked.region_of_bucket) = (heard.ahead, heard.region);
        checked.error = done.err();
        let mut tried = self.tried.take();
        tried.sort_by_key(|(operation, _)| Operation::ALL.iter().position(|it| it == operation));
        checked.tried = tried;
        checked
    }

    /// All steps but the last.
    ///
    /// # Errors
    /// The store cannot be used at all.
    async fn all(&self, checked: &mut Checked) -> Result<()> {
        if checked.keys.is_some() {
            checked.keys = Some(self.keys().await?);
        }
        let names = self.list().await?;
        let is_listed = names.is_some();
        let mut inside = None;
        if is_listed {
            match self.volume_above().await {
                Ok(found) => inside = found,
                Err(error) => checked.above = Some(self.why(Operation::List, &error)),
            }
        }
        let there = match is_listed {
            true => self.ask(|| self.list_below(&self.place.prefix, "manifest", 1)).await.ok(),
            false => None,
        };
        let is_volume = |name: &String| manifest_sequence(name).is_some();
        let there = there.and_then(|names| names.into_iter().find(is_volume));
        // Others may be gone at once: those of another check.
        let stays = |name: &&String| !name.starts_with(FOLDER);
        let sample = there.clone().or_else(|| names.as_ref()?.iter().find(stays).cloned());
        let sample = sample.map(|name| below(&self.place.prefix, &name));
        let is_written = match &inside {
            None => self.try_writes().await,
            Some(_) => self.skip_writes("the prefix is inside a volume"),
        };
        self.try_reads(is_written, sample.as_ref()).await;
        self.try_deletes(inside.is_some(), is_written).await;
        self.try_race().await;
        checked.versioning = self.versioning().await;
        self.measure(checked, sample.as_ref()).await;
        checked.contents = match (inside, names) {
            (Some(at), _) => Contents::Inside(at),
            (None, None) => Contents::Unknown("the prefix cannot be listed".into()),
            (None, Some(_)) if there.is_some() => Contents::Volume(self.volume().await),
            (None, Some(names)) => others(&names).unwrap_or(Contents::Empty),
        };
        Ok(())
    }

    async fn keys(&self) -> Result<Keys> {
        let (place, about) = (&self.place.name, &self.place.about);
        let most = Limits::default().first;
        // The answers to it are of another service.
        match self.within(most, with_headers(about.keys())).await {
            Ok((Ok(keys), _)) => Ok(keys),
            Ok((Err(error), _)) => Err(failed(place, "getting", "the credentials", &error)),
            Err(error) => {
                let why = format!("{}: does it answer?", self.text(&error));
                let from = &about.keys.source;
                let message = format!("{place}: getting the credentials from {from} failed: {why}");
                Err(Error::refused(Code::Access, message))
            }
        }
    }

    /// Lists the prefix; `None`: that does not work, and other requests may.
    async fn list(&self) -> Result<Option<Vec<String>>> {
        let prefix = &self.place.prefix;
        match self.ask(|| self.list_below(prefix, "", LISTED)).await {
            Ok(names) => {
                self.note(Operation::List, Outcome::Works);
                Ok(Some(names))
            }
            // A directory that is not there.
            Err(Failed::Store(error)) if is_missing(&error) => {
                self.note(Operation::List, Outcome::Works);
                Ok(Some(Vec::new()))
            }
            Err(Failed::Store(error)) if !is_denied(&error) => {
                Err(failed(&self.place.name, "listing", "its objects", &error))
            }
            Err(error) => {
                self.note(Operation::List, self.fails(Operation::List, &error));
                Ok(None)
            }
        }
    }

    async fn list_below(
        &self,
        prefix: &Path,
        folder: &str,
        max: usize,
    ) -> Result<Vec<String>, StoreError> {
        let found = list_once(&*self.place.objects, prefix, folder, max).await?;
        Ok(found.into_iter().map(|(name, _)| name).collect())
    }

    /// Returns the prefix above that holds a volume, if there is one.
    async fn volume_above(&self) -> Asked<Option<String>> {
        let objects = &*self.place.objects;
        for above in above(&self.place.prefix) {
            if has_volume(&self.ask(|| list_once(objects, &above, "manifest", 1)).await?) {
                return Ok(Some(above.to_string()));
            }
        }
        Ok(None)
    }

    fn path(&self, number: u32) -> Path {
        race::name(&self.place.prefix, &self.stem, number)
    }

    /// The object that operations are tried on.
    fn object(&self) -> Path {
        self.path(0)
    }

    async fn put(&self, path: &Path, letter: u8, mode: PutMode) -> Asked<()> {
        if !self.written.borrow().contains(path) {
            self.written.borrow_mut().push(path.clone());
        }
        let payload = PutPayload::from_bytes(content(letter));
        let objects = &self.place.objects;
        let put = || objects.put_opts(path, payload.clone(), mode.clone().into());
        self.ask(put).await.map(|_| ())
    }

    /// Tries to write. Returns whether the object is there.
    async fn try_writes(&self) -> bool {
        let object = self.object();
        let mut lacks = None;
        let put = match self.put(&object, b'a', PutMode::Create).await {
            // Its first answer was lost.
            Err(Failed::Store(error)) if is_taken(&error) => Ok(()),
            Err(Failed::Store(error)) if trouble(&error) == Trouble::Final => {
                lacks = Some(self.why(Operation::Create, &Failed::Store(error)));
                self.put(&object, b'a', PutMode::Overwrite).await
            }
            put => put,
        };
        if let Err(error) = put {
            self.note(Operation::Put, self.fails(Operation::Put, &error));
            return self.skip_writes("put does not work");
        }
        self.note(Operation::Put, Outcome::Works);
        let created = match lacks {
            Some(why) => Outcome::Fails(why),
            None => self.try_create(&object).await,
        };
        self.note(Operation::Create, created);
        let overwritten = self.put(&object, b'a', PutMode::Overwrite).await;
        self.note(Operation::Overwrite, self.outcome(Operation::Overwrite, overwritten));
        true
    }

    /// Tries whether an object that is there is left alone.
    async fn try_create(&self, object: &Path) -> Outcome {
        match self.put(object, b'b', PutMode::Create).await {
            Err(Failed::Store(error)) if is_taken(&error) => Outcome::Works,
            Err(error) => self.fails(Operation::Create, &error),
            Ok(()) => {
                let why = "a second PUT of an object that was there succeeded: the store does not \
                           keep the condition, and two mounts would destroy the volume; use \
                           another store";
                Outcome::Fails(why.into())
            }
        }
    }

    /// Tries the condition with many writers at once, if what they write can be removed.
    async fn try_race(&self) {
        if ![Operation::Create, Operation::Get, Operation::Delete].iter().all(|it| self.works(*it))
        {
            return;
        }
        let Place { objects, prefix, name, .. } = self.place;
        // Names of their own.
        let stem = format!("{}race-", self.stem);
        let paths: Vec<Path> = (0..RACE.keys).map(|key| race::name(prefix, &stem, key)).collect();
        self.written.borrow_mut().extend(paths.iter().cloned());
        let most = Limits::default().first;
        let racing = race(objects.clone(), (prefix, &stem), name, RACE, |_, _| {});
        let outcome = match self.within(most, racing).await {
            Ok(Ok(())) => {
                self.written.borrow_mut().retain(|path| !paths.contains(path));
                Outcome::Works
            }
            Ok(Err(error)) => {
                let text = error.to_string();
                let why = text.strip_prefix(&format!("{name}: ")).unwrap_or(&text);
                Outcome::Fails(why.to_owned())
            }
            Err(error) => self.fails(Operation::Create, &error),
        };
        self.tried.borrow_mut().retain(|(operation, _)| *operation != Operation::Create);
        self.note(Operation::Create, outcome);
    }

    /// Notes that nothing is written.
    fn skip_writes(&self, why: &str) -> bool {
        let tried = |operation| self.tried.borrow().iter().any(|(it, _)| *it == operation);
        for operation in [Operation::Put, Operation::Create, Operation::Overwrite] {
            if !tried(operation) {
                self.note(operation, Outcome::NotTried(why.to_owned()));
            }
        }
        false
    }

    /// Tries to read: the object that was written, else `sample`, else one that is not there.
    async fn try_reads(&self, is_written: bool, sample: Option<&Path>) {
        let objects = &self.place.objects;
        let own = self.object();
        let (path, whole) = match (is_written, sample) {
            (true, _) | (false, None) => (&own, is_written.then(|| content(b'a'))),
            (false, Some(sample)) => (sample, None),
        };
        let is_there = is_written || sample.is_some();
        let other = || Outcome::Fails("the store returns other bytes than were written".into());
        let read = match is_written {
            true => self.ask(|| async { objects.get(path).await?.bytes().await }).await,
            // It may be large.
            false => self.ask(|| objects.get_range(path, 0..1)).await,
        };
        let mut got = match read {
            Ok(bytes) if whole.as_ref().is_some_and(|whole| *whole != bytes) => other(),
            Ok(_) => Outcome::Works,
            Err(Failed::Store(error)) if !is_there && is_missing(&error) => Outcome::Works,
            Err(error) => self.fails(Operation::Get, &error),
        };
        // Readers look for the next object of the log until it is there.
        if got == Outcome::Works {
            let missing = self.path(1);
            got = match self.ask(|| objects.get_range(&missing, 0..1)).await {
                Err(Failed::Store(error)) if is_missing(&error) => Outcome::Works,
                Err(Failed::Store(error)) if is_denied(&error) => {
                    let (right, why) = (self.place.about.right(Operation::List), reason(&error));
                    Outcome::Fails(format!("of an object that is missing {why}: needs {right}"))
                }
                Err(error) => self.fails(Operation::Get, &error),
                Ok(_) => Outcome::Fails("an object that is missing is said to be there".into()),
            };
        }
        let range = match (&got, &whole) {
            (Outcome::Works, Some(whole)) => {
                match self.ask(|| objects.get_range(path, 8..24)).await {
                    Ok(bytes) if bytes != whole.slice(8..24) => other(),
                    Ok(_) => Outcome::Works,
                    Err(error) => self.fails(Operation::GetRange, &error),
                }
            }
            (Outcome::Works, None) => Outcome::Works,
            _ => Outcome::NotTried("get does not work".into()),
        };
        self.note(Operation::Get, got);
        self.note(Operation::GetRange, range);
    }

    /// Tries to delete the object; a store says of one that is missing, too, whether it may be.
    async fn try_deletes(&self, is_inside: bool, is_written: bool) {
        if is_inside {
            let why = "the prefix is inside a volume".to_owned();
            return self.note(Operation::Delete, Outcome::NotTried(why));
        }
        let object = self.object();
        let mut outcome = self.outcome(Operation::Delete, self.delete(&object).await);
        if outcome == Outcome::Works && is_written {
            let objects = &self.place.objects;
            if self.ask(|| objects.get_range(&object, 0..1)).await.is_ok() {
                outcome = Outcome::Fails("an object that was deleted is still there".into());
            }
        }
        self.note(Operation::Delete, outcome);
    }

    async fn delete(&self, path: &Path) -> Asked<()> {
        let objects = &self.place.objects;
        match self.ask(|| objects.delete(path)).await {
            Err(Failed::Store(error)) if is_missing(&error) => {}
            done => done?,
        }
        self.written.borrow_mut().retain(|written| written != path);
        Ok(())
    }

    async fn versioning(&self) -> Option<Versioning> {
        match self.within(Limits::default().first, self.place.about.versioning()).await {
            Ok(versioning) => versioning,
            Err(error) => Some(Versioning::Unknown(self.text(&error))),
        }
    }

    /// Measures PUT, if what is written can be removed, and GET of that or of `sample`.
    async fn measure(&self, checked: &mut Checked, sample: Option<&Path>) {
        if self.works(Operation::Put) && self.works(Operation::Delete) {
            let mode = match self.works(Operation::Create) {
                true => PutMode::Create,
                false => PutMode::Overwrite,
            };
            let put = async |n: u32| self.put(&self.path(10 + n), b'a', mode.clone()).await;
            checked.put = measured(put).await;
        }
        let own = self.path(10);
        let path = if checked.put.is_some() { Some(&own) } else { sample };
        if let Some(path) = path.filter(|_| self.works(Operation::Get)) {
            let (objects, range) = (&self.place.objects, 0..OBJECT as u64);
            let get = async |_| self.ask(|| objects.get_range(path, range.clone())).await;
            checked.get = measured(async |n| get(n).await.map(|_| ())).await;
        }
    }

    /// Reads who has the volume that is there.
    async fn volume(&self) -> Result<VolumeThere, String> {
        if !self.works(Operation::Get) {
            return Err("its manifests cannot be read".into());
        }
        let Place { objects, prefix, name, renew, seed, .. } = self.place.clone();
        let first = Limits::default().first;
        let limits = Limits { patience: first, first };
        let store = Store::new(objects, prefix, name, limits, |_| {}, (seed, renew));
        let read = async {
            let number = newest(&store, 0).await?.unwrap_or(1);
            let range = 0..ManifestHeader::SIZE as u64;
            let raw = store.get_range(&manifest_name(number), range).await?;
            let header = decode_header(&raw.unwrap_or_default(), number)?;
            let claim = match manifest(&store, header.epoch).await?.body {
                Body::Claim(raw) => Some(raw),
                _ => None,
            };
            Ok::<_, Error>(VolumeThere {
                number: header.volume,
                capacity: header.capacity,
                is_closed: header.closed == 1,
                owner: claim.as_ref().map(|raw| shoal_device::owner::describe(raw)),
                is_alive: claim.and_then(|raw| shoal_device::owner::runs(&raw)),
            })
        };
        match self.within(first, read).await {
            Ok(read) => read.map_err(|error| error.to_string()),
            Err(error) => Err(self.text(&error)),
        }
    }

    /// Deletes what was written. Returns what could not be.
    async fn clean(&self) -> Vec<String> {
        let written = self.written.take();
        let objects = &self.place.objects;
        let delete = async |path: Path| match timeout(CLEAN_MAX, objects.delete(&path)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) if is_missing(&error) => None,
            _ => Some(path.to_string()),
        };
        let left: Vec<String> =
            join_all(written.into_iter().map(delete)).await.into_iter().flatten().collect();
        if let Provider::Directory(directory) = &self.place.about.provider {
            // Only if it is empty.
            let _ = std::fs::remove_dir(directory.join(FOLDER));
        }
        left
    }

    /// Sends a request, again if its failure may pass.
    async fn ask<T, F>(&self, request: impl Fn() -> F) -> Asked<T>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let (begun, most, mut pause) = (Instant::now(), Limits::default().first, PAUSE);
        self.requests.set(self.requests.get() + 1);
        let done = self.requests.get();
        (self.step.borrow_mut())(done, REQUESTS.max(done));
        loop {
            let left = most.saturating_sub(begun.elapsed());
            let error = match self.within(left, request()).await? {
                Ok(done) => return Ok(done),
                Err(error) => error,
            };
            let passes = trouble(&error) == Trouble::Passing && !is_taken(&error);
            if !passes || begun.elapsed() + pause > most {
                return Err(Failed::Store(error));
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Waits for something, but not longer than `most`, the rest of the check, and a moment after
    /// an interruption.
    async fn within<T>(&self, most: Duration, it: impl Future<Output = T>) -> Asked<T> {
        let rest = self.end.duration_since(Instant::now());
        if rest.is_zero() {
            return Err(Failed::NotSent("the time of the check was over"));
        }
        if (self.stop)() {
            return Err(Failed::NotSent("the check was interrupted"));
        }
        let most = most.min(rest);
        let stopped = async {
            while !(self.stop)() {
                sleep(TICK).await;
            }
            sleep(LAST_MAX).await;
        };
        match select(pin!(timeout(most, it)), pin!(stopped)).await {
            Either::Left((Ok(done), _)) => Ok(done),
            Either::Left((Err(_), _)) => Err(Failed::Store(silent(most))),
            Either::Right(_) => Err(Failed::NotSent("the check was interrupted")),
        }
    }

    fn works(&self, operation: Operation) -> bool {
        self.tried.borrow().contains(&(operation, Outcome::Works))
    }

    fn note(&self, operation: Operation, outcome: Outcome) {
        self.tried.borrow_mut().push((operation, outcome));
    }

    fn outcome(&self, operation: Operation, asked: Asked<()>) -> Outcome {
        asked.map_or_else(|error| self.fails(operation, &error), |()| Outcome::Works)
    }

    fn fails(&self, operation: Operation, error: &Failed) -> Outcome {
        match error {
            Failed::NotSent(why) => Outcome::NotTried((*why).to_owned()),
            Failed::Store(_) => Outcome::Fails(self.why(operation, error)),
        }
    }

    /// Returns why an operation failed, and the remedy.
    fn why(&self, operation: Operation, error: &Failed) -> String {
        let why = self.text(error);
        match error {
            Failed::NotSent(_) => why,
            Failed::Store(error) if is_denied(error) => {
                format!("{why}: needs {}", self.place.about.right(operation))
            }
            Failed::Store(error) => format!("{why}: {}", remedy(error).1),
        }
    }

    fn text(&self, error: &Failed) -> String {
        match error {
            Failed::NotSent(why) => (*why).to_owned(),
            Failed::Store(error) => reason(error),
        }
    }
}

/// The bytes of an object of the check.
fn content(letter: u8) -> Bytes {
    (0..OBJECT).map(|at| letter + (at / 7 % 13) as u8).collect()
}

/// Returns what other programs have in a prefix; `None`: nothing.
fn others(names: &[String]) -> Option<Contents> {
    let other = names.iter().find(|name| !is_ours(name))?;
    let inner = names.iter().find_map(|name| {
        let (at, _) = name.rsplit_once("/manifest/")?;
        manifest_sequence(&name[at.len() + 1..]).map(|_| at.to_owned())
    });
    Some(Contents::Others(other.clone(), inner))
}

/// Measures a request several times, one after another.
async fn measured(request: impl AsyncFn(u32) -> Asked<()>) -> Option<Latency> {
    let (begun, mut all) = (Instant::now(), Vec::new());
    for n in 0..MEASURED {
        let sent = Instant::now();
        if request(n).await.is_err() {
            break;
        }
        all.push(sent.elapsed());
        if begun.elapsed() > MEASURE_MAX {
            break;
        }
    }
    all.sort();
    Some(Latency { count: all.len() as u32, median: *all.get(all.len() / 2)?, max: *all.last()? })
}
