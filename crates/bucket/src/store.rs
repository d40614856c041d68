//! The objects of one volume in a store: requests with retries, counted.
//!
//! A request that fails because the store is busy or out of reach is sent again, with growing
//! pauses, until [`Limits::patience`] is over. Such a request may have been carried out all the
//! same. For a GET, a DELETE, and a PUT of an object that only this opening writes, that makes no
//! difference. For [`Store::create`], the object that is there is compared: it is this one's if and
//! only if all its bytes are, because each log object and manifest contains the random number of
//! its opening.

use crate::failure::{failed, is_taken, may_pass, reason};
use crate::requests::{Request, Requests};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use shoal_base::{Code, Error, Result};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// First pause before a request is sent again. Each further one is twice as long.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Pause from which on somebody who waits is told why.
const NOTICED: Duration = Duration::from_millis(800);

/// Limits of requests.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Time for which a request is repeated before the call that needs it fails.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { patience: Duration::from_secs(300) }
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
}

impl Store {
    /// `notice` is called once for a request that must be repeated for longer than a moment.
    pub(crate) fn new(
        objects: Arc<dyn ObjectStore>,
        prefix: Path,
        name: String,
        limits: Limits,
        notice: fn(&str),
    ) -> Store {
        Store { objects, prefix, name, requests: Requests::default(), limits, notice }
    }

    fn at(&self, name: &str) -> Path {
        let parts = name.split('/').filter(|part| !part.is_empty());
        parts.fold(self.prefix.clone(), |path, part| path.join(part))
    }

    /// Creates an object if there is none of this name.
    pub(crate) async fn create(&self, kind: Request, name: &str, bytes: Bytes) -> Result<Created> {
        let mut attempts = Attempts::begin(self, "creating", name);
        let path = self.at(name);
        loop {
            self.requests.add(kind, bytes.len() as u64);
            let options = PutMode::Create.into();
            let payload = PutPayload::from_bytes(bytes.clone());
            match self.objects.put_opts(&path, payload, options).await {
                Ok(_) => return Ok(Created::Ours),
                Err(error) if is_taken(&error) => match self.get(name).await? {
                    Some(found) if found == bytes => return Ok(Created::Ours),
                    Some(found) => return Ok(Created::Taken(found)),
                    // Refused because another request for it was under way, and that one failed.
                    None => attempts.pause(&error).await?,
                },
                Err(error) => attempts.pause(&error).await?,
            }
        }
    }

    /// Writes an object, in place of an older one of this name if there is one.
    pub(crate) async fn put(&self, kind: Request, name: &str, bytes: Bytes) -> Result<()> {
        let mut attempts = Attempts::begin(self, "writing", name);
        let path = self.at(name);
        loop {
            self.requests.add(kind, bytes.len() as u64);
            match self.objects.put(&path, PutPayload::from_bytes(bytes.clone())).await {
                Ok(_) => return Ok(()),
                Err(error) => attempts.pause(&error).await?,
            }
        }
    }

    /// Reads an object; `None` if there is none.
    pub(crate) async fn get(&self, name: &str) -> Result<Option<Bytes>> {
        let mut attempts = Attempts::begin(self, "reading", name);
        let path = self.at(name);
        loop {
            self.requests.add(Request::Get, 0);
            let read = async { self.objects.get(&path).await?.bytes().await };
            match read.await {
                Ok(bytes) => {
                    self.requests.received(bytes.len() as u64);
                    return Ok(Some(bytes));
                }
                Err(StoreError::NotFound { .. }) => return Ok(None),
                Err(error) => attempts.pause(&error).await?,
            }
        }
    }

    /// Reads a part of an object; `None` if there is no such object. Less than the range if the
    /// object ends before.
    pub(crate) async fn get_range(&self, name: &str, range: Range<u64>) -> Result<Option<Bytes>> {
        let mut attempts = Attempts::begin(self, "reading", name);
        let path = self.at(name);
        loop {
            self.requests.add(Request::Get, 0);
            match self.objects.get_range(&path, range.clone()).await {
                Ok(bytes) => {
                    self.requests.received(bytes.len() as u64);
                    return Ok(Some(bytes));
                }
                Err(StoreError::NotFound { .. }) => return Ok(None),
                Err(error) => attempts.pause(&error).await?,
            }
        }
    }

    /// Deletes an object. It need not be there.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        let mut attempts = Attempts::begin(self, "deleting", name);
        let path = self.at(name);
        loop {
            self.requests.add(Request::Delete, 0);
            match self.objects.delete(&path).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => return Ok(()),
                Err(error) => attempts.pause(&error).await?,
            }
        }
    }

    /// Lists the names below `folder`, relative to the volume's prefix, with the objects' sizes, at
    /// most `max` of them. The list may lag behind what was written and deleted.
    pub(crate) async fn list(&self, folder: &str, max: usize) -> Result<Vec<(String, u64)>> {
        let mut attempts = Attempts::begin(self, "listing", folder);
        let path = self.at(folder);
        loop {
            self.requests.add(Request::List, 0);
            match self.list_once(&path, max).await {
                Ok(found) => {
                    // A page of a list has a thousand names.
                    (0..found.len() / 1000).for_each(|_| self.requests.add(Request::List, 0));
                    return Ok(found);
                }
                Err(StoreError::NotFound { .. }) => return Ok(Vec::new()),
                Err(error) => attempts.pause(&error).await?,
            }
        }
    }

    async fn list_once(&self, path: &Path, max: usize) -> Result<Vec<(String, u64)>, StoreError> {
        let mut found = Vec::new();
        let mut list = self.objects.list(Some(path));
        while let Some(object) = list.try_next().await? {
            let Some(parts) = object.location.prefix_match(&self.prefix) else { continue };
            let parts: Vec<_> = parts.map(|part| part.as_ref().to_owned()).collect();
            found.push((parts.join("/"), object.size));
            if found.len() >= max {
                break;
            }
        }
        Ok(found)
    }
}

/// Attempts of one request.
struct Attempts<'s> {
    store: &'s Store,
    doing: &'static str,
    name: &'s str,
    begun: Instant,
    pause: Duration,
}

impl<'s> Attempts<'s> {
    fn begin(store: &'s Store, doing: &'static str, name: &'s str) -> Attempts<'s> {
        Attempts { store, doing, name, begun: Instant::now(), pause: PAUSE_MIN }
    }

    /// Waits before the next attempt.
    ///
    /// # Errors
    /// Another attempt is useless, or the patience is over.
    async fn pause(&mut self, error: &StoreError) -> Result<()> {
        let Attempts { store, doing, name, .. } = *self;
        store.requests.failed();
        if !may_pass(error) && !is_taken(error) {
            return Err(failed(&store.name, doing, name, error));
        }
        let spent = self.begun.elapsed();
        if spent + self.pause > store.limits.patience {
            let (store, why, seconds) = (&store.name, reason(error), spent.as_secs());
            let message = format!("{store}: {doing} {name} failed for {seconds} s: {why}");
            return Err(Error::refused(Code::Io, message));
        }
        // Once: the pauses double.
        if (NOTICED..NOTICED * 2).contains(&self.pause) {
            let (at, why, seconds) = (&store.name, reason(error), store.limits.patience.as_secs());
            (store.notice)(&format!(
                "{at}: {doing} {name} has failed ({why}); trying again for {seconds} s"
            ));
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }
}
