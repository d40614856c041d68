//! Reading the newest state of a volume: its layers, then the log behind them.
//!
//! | step | action | reason |
//! | --- | --- | --- |
//! | 1 | find the newest manifest, by a list and then by number | the list may lag; numbers have no gap |
//! | 2 | read the [layers](crate::layers) that it is the newest of, or continues | |
//! | 3 | apply the log behind them, up to the first absent slot | |
//! | 4 | look for a newer manifest; if there is one, begin again | objects of that log may have been collected meanwhile |
//!
//! What is found is the volume after some flush.

use crate::map::{Map, check_piece};
use crate::store::Store;
use bytes::Bytes;
use futures::future::join_all;
use shoal_base::{Code, Error, Result};
use shoal_format::bucket::manifest::{Body, Manifest, ManifestHeader, ManifestKind, decode};
use shoal_format::bucket::object::{ObjectHeader, ObjectKind, Piece, bytes_of, unpack};
use shoal_format::bucket::{Name, log_name, manifest_name, manifest_sequence};
use std::time::Duration;

/// Log objects read at once, at most.
pub(crate) const WINDOW_MAX: u64 = 16;
/// Names of manifests listed, one page: a volume has one for each of its openings, for ever. From
/// the last of them the newest is found by number.
const LISTED: usize = 1000;
/// Most layers that are believed; writers make fewer.
const CHAIN_MAX: usize = 64;
/// A reader gives up after so many newer manifests.
const TRIES_MAX: u32 = 16;
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
    /// First slot that is not in the newest layer.
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
pub(crate) async fn newest(store: &Store, known: u64) -> Result<Option<u64>> {
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
        let rule = "is missing from the bucket, where newer ones exist";
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
    // A layer may be superseded between finding and reading it.
    for _ in 0..TRIES_MAX {
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
    let message =
        format!("{}: its manifests changed at every attempt to read them: try again", store.name);
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

pub(crate) fn empty(claim: &ManifestHeader) -> State {
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
    pub(crate) fn resized(mut self, capacity: u64) -> State {
        self.map.remove(capacity..u64::MAX);
        State { capacity, bound: self.bound.max(capacity), ..self }
    }

    /// Learns of the next manifest. Returns `false` if the state has to be read anew.
    #[must_use]
    pub(crate) fn learn(&mut self, header: &ManifestHeader) -> bool {
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

    /// Applies the object in the next slot. Returns its kind and its pieces.
    pub(crate) fn apply(&mut self, raw: &Bytes) -> Result<(ObjectKind, Vec<Piece>)> {
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
        Ok((header.kind, pieces))
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
