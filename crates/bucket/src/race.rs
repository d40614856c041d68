//! A test of a store: of many writers that create the same object at once, exactly one may succeed.
//!
//! Everything else rests on that. Stores are known that ignore the condition, or check it and then
//! write in two steps.

use crate::failure::{failed, is_taken};
use bytes::Bytes;
use futures::future::join_all;
use futures::stream::{StreamExt, iter};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use shoal_base::{Code, Error, Result};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Extent of the test.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    /// Writers of each object.
    pub writers: u32,
    /// Objects.
    pub keys: u32,
    /// Objects after which the test may end, when it has taken ten seconds.
    pub keys_min: u32,
}

impl Race {
    /// A hundred objects with 32 writers each; fewer of a slow store. One that ignores the
    /// condition fails with the first object, one that looks and then writes within a few.
    pub const FULL: Race = Race { writers: 32, keys: 100, keys_min: 20 };
    /// A test that takes a second.
    pub const SHORT: Race = Race { writers: 16, keys: 20, keys_min: 20 };
}

/// Objects that are raced for at once.
const AT_ONCE: usize = 4;
/// Time after which the test ends early.
const LONG: Duration = Duration::from_secs(10);

/// Folder of the objects of tests, below the prefix of a volume. No volume has objects in it, and a
/// volume can be made where some are left.
pub(crate) const FOLDER: &str = "race";

/// Runs the test below a prefix, and removes its objects. The name of each is `stem` and its
/// number. `done` is told the number of objects tested, and of all.
///
/// # Errors
/// `NotSupported`: two writers created the same object, or one that was told it had did not.
pub(crate) async fn race(
    objects: Arc<dyn ObjectStore>,
    (prefix, stem): (&Path, &str),
    store: &str,
    extent: Race,
    done: impl Fn(u64, u64),
) -> Result<()> {
    let mut results = iter(0..extent.keys)
        .map(|key| one(&*objects, name(prefix, stem, key), store, extent))
        .buffer_unordered(AT_ONCE);
    let (mut tested, begun) = (0, Instant::now());
    while let Some(result) = results.next().await {
        result?;
        tested += 1;
        done(tested, u64::from(extent.keys));
        if tested >= u64::from(extent.keys_min) && begun.elapsed() > LONG {
            break;
        }
    }
    Ok(())
}

/// Returns the name of an object.
pub(crate) fn name(prefix: &Path, stem: &str, key: u32) -> Path {
    prefix.clone().join(FOLDER).join(format!("{stem}{key:06}"))
}

async fn one(objects: &dyn ObjectStore, path: Path, store: &str, extent: Race) -> Result<()> {
    let content = |writer: u32| Bytes::from(format!("writer {writer} of {}", extent.writers));
    let put = |writer: u32| {
        let path = &path;
        let payload = PutPayload::from_bytes(content(writer));
        async move { objects.put_opts(path, payload, PutMode::Create.into()).await }
    };
    let outcomes = join_all((0..extent.writers).map(put)).await;
    let found =
        objects.get(&path).await.map_err(|e| failed(store, "reading", path.as_ref(), &e))?;
    let found = found.bytes().await.map_err(|e| failed(store, "reading", path.as_ref(), &e))?;
    let mut winners = Vec::new();
    for (writer, outcome) in (0..extent.writers).zip(outcomes) {
        match outcome {
            Ok(_) => winners.push(writer),
            // Busy stores refuse some; the reply of a request that was carried out may be lost.
            Err(error) if is_taken(&error) || matches!(error, StoreError::Generic { .. }) => {}
            Err(error) => return Err(failed(store, "creating", path.as_ref(), &error)),
        }
    }
    objects.delete(&path).await.map_err(|e| failed(store, "deleting", path.as_ref(), &e))?;
    let right = match winners[..] {
        [] => (0..extent.writers).any(|writer| content(writer) == found),
        [winner] => content(winner) == found,
        _ => false,
    };
    if right {
        return Ok(());
    }
    let message = format!(
        "{store}: {} of {} writers were told that they alone had created {path}: this store does \
         not keep the condition If-None-Match, and a volume in it would be destroyed by the second \
         mount; use another store",
        winners.len(),
        extent.writers
    );
    Err(Error::refused(Code::NotSupported, message))
}
