//! Opening a volume for writing: taking it over, whether or not somebody owns it.
//!
//! | step | action | reason |
//! | --- | --- | --- |
//! | 1 | read the newest state (`load.rs`) | |
//! | 2 | look for the owner, if the volume is not closed ([`owner_ended`]) | two nodes that are started at once must not take the volume from each other for ever |
//! | 3 | create the next manifest, a claim; if its number is taken, begin again | its number is the epoch, and no other opening has it |
//! | 4 | create a fence in the first absent slot of the log; if that is taken by an earlier epoch, apply it and try the next one | from here on no earlier owner can make anything durable |
//! | 5 | look for a manifest behind the claim | somebody else may have come later: that one owns the volume |

use crate::load::{State, empty, load_from, manifest};
use crate::manifests;
use crate::requests::Request;
use crate::shared::{Contents, Identity, Log, Manifests, Options};
use crate::store::{Created, Store, random};
use bytes::Bytes;
use shoal_base::limits::SECTOR;
use shoal_base::{Code, Error, Result};
use shoal_format::bucket::manifest::{Body, ManifestKind, decode, encode};
use shoal_format::bucket::object::{ObjectKind, pack, unpack};
use shoal_format::bucket::{log_name, manifest_name};
use std::time::Duration;
use tokio::time::Instant;

/// Openings that race for a claim give up after so many attempts.
const CLAIMS_MAX: u32 = 16;
/// Pause between two looks for signs of life of the owner.
pub(crate) const LOOK: Duration = Duration::from_millis(250);

/// A volume opened for writing.
pub(crate) struct Owned {
    pub id: Identity,
    pub capacity: u64,
    pub contents: Contents,
    pub log: Log,
    pub manifests: Manifests,
}

/// Creates the volume of an empty prefix: its first manifest, a claim.
pub(crate) async fn create(
    store: &Store,
    capacity: u64,
    owner: &[u8],
    options: &Options,
) -> Result<Owned> {
    let id = Identity { volume: random()?, epoch: 1, writer: random()? };
    let header = manifests::header(&id, 1, capacity);
    let raw = encode(header, &Body::Claim(owner.to_vec()));
    match store.create(Request::PutManifest, &manifest_name(1), Bytes::from(raw)).await? {
        Created::Ours => {}
        Created::Taken(_) => return Err(occupied(store)),
    }
    // Nothing is read: whatever is in the first slot is of an opening that came later. A fence
    // behind it would be one of an earlier epoch after a later one.
    fence(store, empty(&header), id, options).await
}

/// Conduct of an opener that finds another one's claim in the place of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rival {
    /// Leaves the volume to it. Of two standbys that notice the end of an owner the slower one must
    /// not take the volume from the faster one.
    Yield,
    /// Reads the volume anew, and tries again.
    Succeed,
}

/// Takes a volume over that `state` describes; begins again if it changes meanwhile. It may get
/// another capacity.
pub(crate) async fn take(
    store: &Store,
    mut state: State,
    owner: &[u8],
    capacity: Option<u64>,
    rival: Rival,
    options: &Options,
) -> Result<Owned> {
    for _ in 0..CLAIMS_MAX {
        if let Some(capacity) = capacity {
            state = state.resized(capacity);
        }
        if !options.force && !state.closed {
            state = owner_ended(store, state, options).await?;
        }
        state.capacity = state.capacity.max(options.capacity_min.next_multiple_of(SECTOR));
        let sequence = state.newest + 1;
        let id = Identity { volume: state.volume, epoch: sequence, writer: random()? };
        let mut header = manifests::header(&id, sequence, state.capacity);
        header.base = state.map.layers.newest();
        let raw = Bytes::from(encode(header, &Body::Claim(owner.to_vec())));
        match store.create(Request::PutManifest, &manifest_name(sequence), raw).await? {
            Created::Ours => return fence(store, state, id, options).await,
            Created::Taken(raw) => {
                let found = decode(&raw, sequence)?.header;
                if found.kind == ManifestKind::Claim && rival == Rival::Yield {
                    return Err(lost(store));
                }
                if !state.learn(&found) {
                    state = load_from(store, sequence).await?.ok_or_else(|| lost(store))?;
                }
            }
        }
    }
    Err(lost(store))
}

/// Takes over a place at which nothing was ever written, if its owner has ended.
///
/// # Errors
/// Busy: the owner works, or another process was faster. Exists: something has been written
/// meanwhile, which stays.
pub(crate) async fn take_empty(
    store: &Store,
    state: State,
    owner: &[u8],
    capacity: u64,
    options: &Options,
) -> Result<Owned> {
    let gentle = Options { force: false, ..options.clone() };
    let owned = take(store, state, owner, Some(capacity), Rival::Yield, &gentle).await?;
    // By the former owner, before the fence: it was slow, and had not ended.
    if owned.contents.map.is_empty() { Ok(owned) } else { Err(occupied(store)) }
}

async fn fence(store: &Store, mut state: State, id: Identity, options: &Options) -> Result<Owned> {
    loop {
        let header = id.object_header(ObjectKind::Fence, state.slot, options.lease_min);
        let (raw, _) = pack(header, &[]);
        let name = log_name(state.slot);
        match store.create(Request::PutLog, &name, Bytes::from(raw)).await? {
            Created::Ours => break,
            Created::Taken(raw) => {
                let (by, _) = unpack(&raw, &name, id.volume)?;
                if by.epoch > id.epoch {
                    return Err(lost(store));
                }
                state.apply(&raw)?;
            }
        }
    }
    // Numbers have no gap: a later claim would be the next one.
    if store.get_range(&manifest_name(id.epoch + 1), 0..1).await?.is_some() {
        return Err(lost(store));
    }
    let log_next = state.log_next;
    state.map.layers.begin(state.slot + 1);
    Ok(Owned {
        id,
        capacity: state.capacity,
        contents: Contents { map: state.map, ..Contents::default() },
        log: Log {
            slot: state.slot + 1,
            objects: state.slot + 1 - log_next,
            bytes: 0,
            last: Instant::now(),
            checked: Instant::now(),
            lease: options.lease_min,
            unsent: None,
            closed: false,
            slowest: Duration::ZERO,
        },
        manifests: Manifests { next: id.epoch + 1, log_next, old: Vec::new(), closed: false },
    })
}

/// Waits until it is known whether the owner of a volume that was not closed still works. Returns
/// the state as it is then.
///
/// # Errors
/// Busy: it does.
async fn owner_ended(store: &Store, state: State, options: &Options) -> Result<State> {
    let Ok(claim) = manifest(store, state.epoch).await else { return Ok(state) };
    let Body::Claim(raw) = &claim.body else { return Ok(state) };
    let owner = shoal_device::owner::describe(raw);
    let busy = || {
        let (store, owner) = (&store.name, &owner);
        let message = format!(
            "{store}: is in use by {owner}; unmount it there, or take it over with --force, which \
             makes that process read-only"
        );
        Err(Error::refused(Code::Busy, message))
    };
    match shoal_device::owner::runs(raw) {
        Some(false) => return Ok(state),
        Some(true) => return busy(),
        None => {}
    }
    let wait = state.lease + state.lease / 4 + LOOK;
    (options.notice)(&format!(
        "{}: was not closed by {owner}; waiting {} s for signs of life",
        store.name,
        wait.as_secs() + 1
    ));
    let begun = Instant::now();
    while begun.elapsed() < wait {
        tokio::time::sleep(LOOK).await;
        let log = store.get_range(&log_name(state.slot), 0..1).await?;
        let next = store.get_range(&manifest_name(state.newest + 1), 0..1).await?;
        if log.is_some() || next.is_some() {
            return busy();
        }
    }
    Ok(state)
}

/// The error of who would make a volume where there is one.
pub(crate) fn occupied(store: &Store) -> Error {
    let message = format!(
        "{}: a volume is there; --force overwrites it, another prefix keeps it",
        store.name
    );
    Error::refused(Code::Exists, message)
}

fn lost(store: &Store) -> Error {
    let message = format!("{}: another process opened the volume at the same time", store.name);
    Error::refused(Code::Busy, message)
}
