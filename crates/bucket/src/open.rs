//! Opening a volume: finding the newest manifest, replaying the log, and taking the volume over.
//!
//! | step | action | reason |
//! | --- | --- | --- |
//! | 1 | find the newest manifest, by a list and then by number | the list may lag; numbers have no gap |
//! | 2 | read the [layers](crate::layers) that it is the newest of, or continues, then the log behind it, up to the first absent slot | |
//! | 3 | to write: look for the owner, if the volume is not closed ([`owner_ended`]) | two nodes that are started at once must not take the volume from each other for ever |
//! | 4 | create the next manifest, a claim; if its number is taken, begin again | its number is the epoch, and no other opening has it |
//! | 5 | create a fence in the first absent slot of the log; if that is taken by an earlier epoch, apply it and try the next one | from here on no earlier owner can make anything durable |
//! | 6 | look for a manifest behind the claim | somebody else may have come later: that one owns the volume |
//!
//! A reader does steps 1 and 2. What it sees is the volume after some flush.

use crate::manifests;
use crate::map::{Map, check_piece};
use crate::requests::Request;
use crate::shared::{Contents, Identity, Log, Manifests, Options};
use crate::store::{Created, Store};
use bytes::Bytes;
use futures::future::join_all;
use shoal_base::limits::SECTOR;
use shoal_base::{Code, Error, Result};
use shoal_format::bucket::manifest::{
    Body, Manifest, ManifestHeader, ManifestKind, decode, encode,
};
use shoal_format::bucket::object::{ObjectHeader, ObjectKind, Piece, bytes_of, pack, unpack};
use shoal_format::bucket::{Name, log_name, manifest_name, manifest_sequence};
use std::time::Duration;
use tokio::time::Instant;

/// Log objects read at once, at most.
pub(crate) const WINDOW_MAX: u64 = 16;
/// Names of manifests listed, one page: a volume has one for each of its openings, for ever. From
/// the last of them the newest is found by number.
const LISTED: usize = 1000;
/// Most layers that are believed; writers make fewer.
const CHAIN_MAX: usize = 64;
/// Openings that race for a claim give up after so many attempts.
const CLAIMS_MAX: u32 = 16;
/// Pause between two looks for signs of life of the owner.
pub(crate) const LOOK: Duration = Duration::from_millis(250);
/// Longest lease that is believed.
const LEASE_MAX: Duration = Duration::from_secs(300);
/// The lease of an owner that has written no log object yet, or of whom none is left.
const LEASE_UNKNOWN: Duration = Duration::from_secs(60);

/// The state of a volume, as far as its manifests and its log tell.
#[derive(Clone)]
pub(crate) struct State {
    /// Random number of the volume.
    pub volume: u64,
    pub capacity: u64,
    /// No piece in the log ends behind it.
    bound: u64,
    pub map: Map,
    /// Number of the newest manifest.
    pub newest: u64,
    /// First slot that is not in that one.
    pub log_next: u64,
    /// First absent slot.
    pub slot: u64,
    /// The newest opening that wrote a claim.
    pub epoch: u64,
    /// The opening that wrote the last log object.
    log_epoch: u64,
    /// The owner has closed the volume.
    pub closed: bool,
    /// Lease in the last log object.
    pub lease: Duration,
}

/// Returns the number of the newest manifest; `None`: there is none. `known`: one that is or was
/// there, or 0, and then a list says where to begin.
async fn newest(store: &Store, known: u64) -> Result<Option<u64>> {
    let mut low = known;
    if low == 0 {
        let listed = store.list("manifest", LISTED).await?;
        low = listed.iter().filter_map(|(name, _)| manifest_sequence(name)).max().unwrap_or(0);
    }
    let there = async |sequence: u64| {
        store.get_range(&manifest_name(sequence), 0..1).await.map(|found| found.is_some())
    };
    // Everything up to `low` is there; look further in growing steps, then halve.
    let mut step = 1;
    while there(low + step).await? {
        low += step;
        step *= 2;
    }
    let mut high = low + step;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match there(middle).await? {
            true => low = middle,
            false => high = middle,
        }
    }
    Ok((low > 0).then_some(low))
}

pub(crate) async fn manifest(store: &Store, sequence: u64) -> Result<Manifest> {
    let name = manifest_name(sequence);
    let Some(raw) = store.get(&name).await? else {
        let rule = "is not in the bucket, and newer ones are";
        return Err(Error::corrupt(format!("object {name}"), None, rule));
    };
    decode(&raw, sequence)
}

/// Reads the newest state; `None`: there is no volume.
pub(crate) async fn load(store: &Store) -> Result<Option<State>> {
    load_from(store, 0).await
}

/// The same, if a manifest is `known`.
pub(crate) async fn load_from(store: &Store, known: u64) -> Result<Option<State>> {
    // A complete manifest may be superseded between finding and reading it.
    for _ in 0..CLAIMS_MAX {
        let Some(number) = newest(store, known).await? else { return Ok(None) };
        let found = manifest(store, number).await?;
        let layer = match &found.body {
            Body::Complete(..) | Body::Changes(..) => found.clone(),
            Body::Claim(_) if found.header.base == 0 => {
                match settled(store, empty(&found.header)).await? {
                    Some(state) => return Ok(Some(state)),
                    None => continue,
                }
            }
            Body::Claim(_) => manifest(store, found.header.base).await?,
            Body::Superseded => continue,
        };
        let (at, by) = (layer.header, &found.header);
        let Some(mut map) = map_of(store, layer).await? else { continue };
        // A claim may come with another size: that of a volume that overwrites this one.
        map.remove(by.capacity..u64::MAX);
        let state = State {
            volume: at.volume,
            capacity: by.capacity,
            bound: at.capacity.max(by.capacity),
            map,
            newest: number,
            log_next: at.log_next,
            slot: at.log_next,
            epoch: at.epoch.max(by.epoch),
            log_epoch: at.epoch,
            closed: at.closed == 1 && at.sequence == number,
            lease: LEASE_UNKNOWN,
        };
        if let Some(state) = settled(store, state).await? {
            return Ok(Some(state));
        }
    }
    let message = format!("{}: its manifests change all the time", store.name);
    Err(Error::refused(Code::Busy, message))
}

/// Reads the map of a layer and those before it; `None`: one of them is no layer any more, because
/// there is a newer one.
async fn map_of(store: &Store, newest: Manifest) -> Result<Option<Map>> {
    let mut layers = vec![newest];
    loop {
        let last = &layers[layers.len() - 1].header;
        match last.kind {
            ManifestKind::Superseded => return Ok(None),
            ManifestKind::Changes if layers.len() < CHAIN_MAX => {
                layers.push(manifest(store, last.base).await?);
            }
            ManifestKind::Changes => {
                let object = format!("object {}", manifest_name(layers[0].header.sequence));
                let rule = format!("is the newest of more than {CHAIN_MAX} layers");
                return Err(Error::corrupt(object, None, rule));
            }
            // A claim is refused when it is applied.
            ManifestKind::Complete | ManifestKind::Claim => break,
        }
    }
    let mut map = Map::default();
    for layer in layers.iter().rev() {
        map.apply_layer(layer)?;
    }
    Ok(Some(map))
}

fn empty(claim: &ManifestHeader) -> State {
    State {
        volume: claim.volume,
        capacity: claim.capacity,
        bound: claim.capacity,
        map: Map::default(),
        newest: claim.sequence,
        log_next: 1,
        slot: 1,
        epoch: claim.epoch,
        log_epoch: 0,
        closed: false,
        lease: LEASE_UNKNOWN,
    }
}

/// Applies the log up to the first absent slot; `None`: meanwhile there is a newer manifest.
///
/// Then objects of the log may have been deleted while they were read, because that manifest covers
/// them: the end that was found may be no end, and a late fence of an opener that lost its race may
/// be in a slot that has become free. What looks like damage then is none.
async fn settled(store: &Store, state: State) -> Result<Option<State>> {
    let next = manifest_name(state.newest + 1);
    let replayed = replay(store, state).await;
    match store.get_range(&next, 0..1).await? {
        Some(_) => Ok(None),
        None => replayed.map(Some),
    }
}

/// Applies the log up to the first absent slot.
async fn replay(store: &Store, mut state: State) -> Result<State> {
    let mut window = 1;
    loop {
        let names: Vec<String> = (state.slot..state.slot + window).map(log_name).collect();
        for found in join_all(names.iter().map(|name| store.get(name))).await {
            let Some(raw) = found? else {
                promised(store, &mut state).await?;
                return Ok(state);
            };
            state.apply(&raw)?;
        }
        window = (window * 2).min(WINDOW_MAX);
    }
}

/// Learns the lease of an owner that has written nothing behind the manifest, from the last object
/// that the manifest covers. If that one has been collected, so much time has passed that an owner
/// has written more, or is gone.
async fn promised(store: &Store, state: &mut State) -> Result<()> {
    if state.closed || state.slot != state.log_next || state.slot <= 1 {
        return Ok(());
    }
    let name = log_name(state.slot - 1);
    let Some(raw) = store.get(&name).await? else { return Ok(()) };
    // Nothing depends on it: if it is damaged, whoever needs its pieces says so.
    if let Ok((header, _)) = unpack(&raw, &name, state.volume) {
        state.lease = lease_of(&header);
    }
    Ok(())
}

fn lease_of(header: &ObjectHeader) -> Duration {
    Duration::from_millis(u64::from(header.lease_ms)).min(LEASE_MAX)
}

impl State {
    /// Returns the state for a volume of another size that overwrites this one. Its first flush
    /// discards what is left.
    pub fn resized(mut self, capacity: u64) -> State {
        self.map.remove(capacity..u64::MAX);
        State { capacity, bound: self.bound.max(capacity), ..self }
    }

    /// Learns of the next manifest. Returns `false` if the state has to be read anew.
    #[must_use]
    pub fn learn(&mut self, header: &ManifestHeader) -> bool {
        match header.kind {
            // A new owner, perhaps with another size.
            ManifestKind::Claim => return false,
            ManifestKind::Complete | ManifestKind::Changes => {
                if header.log_next > self.slot || !self.map.learn(header) {
                    return false;
                }
                self.log_next = header.log_next;
                self.closed |= header.closed == 1;
            }
            // A newer one is there.
            ManifestKind::Superseded => {}
        }
        self.newest = header.sequence;
        true
    }

    /// Applies the object in the next slot. Returns its pieces.
    pub fn apply(&mut self, raw: &Bytes) -> Result<Vec<Piece>> {
        let text = log_name(self.slot);
        self.map.layers.begin(self.slot);
        let (header, pieces) = unpack(raw, &text, self.volume)?;
        let bad = |rule: String| Err(Error::corrupt(format!("object {text}"), None, rule));
        if header.sequence != self.slot || header.kind == ObjectKind::Data {
            return bad(format!("is {:?} of slot {}", header.kind, header.sequence));
        }
        if header.epoch < self.log_epoch {
            return bad(format!("is of opening {}, after {}", header.epoch, self.log_epoch));
        }
        // Not if somebody has claimed it since, whose fence is on its way.
        self.closed = header.kind == ObjectKind::Close && header.epoch >= self.epoch;
        self.log_epoch = header.epoch;
        self.epoch = self.epoch.max(header.epoch);
        self.lease = lease_of(&header);
        if header.kind != ObjectKind::Fence {
            self.map.add_object(Name::Log(self.slot), header.length);
        }
        for piece in &pieces {
            check_piece(piece, self.bound, &text)?;
            let name = self.object_of(&header, piece, raw, &text)?;
            self.map.apply(piece, name);
        }
        self.slot += 1;
        self.map.layers.begin(self.slot);
        Ok(pieces)
    }

    /// Returns the object that has the bytes of a piece.
    fn object_of(
        &mut self,
        header: &ObjectHeader,
        piece: &Piece,
        raw: &Bytes,
        text: &str,
    ) -> Result<Name> {
        if piece.is_discarded() {
            return Ok(Name::Log(self.slot));
        }
        if piece.object == 0 {
            bytes_of(piece, raw, text)?;
            return Ok(Name::Log(self.slot));
        }
        let name = Name::Data(header.epoch, piece.object);
        let end = u64::from(piece.offset) + u64::from(piece.stored);
        self.map.grow_object(name, end);
        Ok(name)
    }
}

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
    Ok(Owned {
        id,
        capacity: state.capacity,
        contents: Contents { map: state.map, ..Contents::default() },
        log: Log {
            slot: state.slot + 1,
            objects: state.slot + 1 - log_next,
            bytes: 0,
            last: Instant::now(),
            lease: options.lease_min,
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

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match got {
        Ok(8) => Ok(u64::from_le_bytes(bytes)),
        _ => Err(Error::refused(Code::Io, "the system has no random numbers")),
    }
}
