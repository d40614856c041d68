//! Pieces of objects in memory: each is fetched once, however many threads want it, and pieces that
//! lie side by side in an object are fetched with one request. Before that, they are looked for on
//! the local disk, if there is a cache.

use crate::ahead::Ahead;
use crate::disk::Disk;
use crate::map::{Part, Place};
use crate::store::Store;
use bytes::Bytes;
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{OptionsBuilder, Weighter};
use shoal_base::{Error, Result};
use shoal_format::bucket::Name;
use shoal_format::bucket::object::{Piece, bytes_of};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;
use tokio::task::spawn_blocking;

/// Largest request for several pieces, in bytes as stored.
const FETCH_MAX: u64 = 8 << 20;
/// Largest number of bytes that are fetched although nobody wants them, to save a request.
const GAP_MAX: u64 = 64 << 10;
/// Share of the memory for pieces that were written and not read since, one in so many. Programs
/// rarely read at once what they wrote, and the kernel has it in memory if they use a mount.
const WRITTEN: u64 = 8;
/// Share of the memory for pieces that were used twice. quick_cache's default is 0.97, which leaves
/// 8 of 256 MiB for pieces that wait for their first use.
const HOT: f64 = 0.5;

type Key = (Name, u32);
/// The same in each process, so that a seed of a test always drops the same pieces. Nobody chooses
/// keys.
type Hash = BuildHasherDefault<DefaultHasher>;
type Flight = watch::Receiver<Option<Result<Bytes>>>;
type Sender = watch::Sender<Option<Result<Bytes>>>;

#[derive(Clone)]
struct ByBytes;

impl Weighter<Key, Held> for ByBytes {
    fn weight(&self, _: &Key, held: &Held) -> u64 {
        weight(&held.bytes)
    }
}

/// Bytes that a piece takes in memory, with what keeps it.
fn weight(bytes: &Bytes) -> u64 {
    bytes.len() as u64 + 64
}

/// A decoded piece.
#[derive(Clone)]
struct Held {
    bytes: Bytes,
    /// It was fetched ahead.
    is_ahead: bool,
    is_used: Arc<AtomicBool>,
}

impl Held {
    fn new(bytes: Bytes, is_ahead: bool) -> Held {
        Held { bytes, is_ahead, is_used: Arc::default() }
    }
}

/// Pieces that were added because they were written, in this order.
#[derive(Default)]
struct Written {
    pieces: VecDeque<(Key, u64)>,
    bytes: u64,
}

/// The cache.
pub(crate) struct Frames {
    cache: Cache<Key, Held, ByBytes, Hash>,
    written: Mutex<Written>,
    written_max: u64,
    ahead: Ahead,
    disk: Option<Arc<Disk>>,
    flights: Mutex<HashMap<Key, Flight>>,
}

/// The work to be done for pieces that were asked for.
#[derive(Default)]
pub(crate) struct Wanted {
    /// Requests to be made, by the caller.
    pub requests: Vec<Request>,
    /// Pieces to wait for.
    waits: Vec<(Place, Flight)>,
}

/// A request for pieces of one object, in ascending order of their places.
pub(crate) struct Request {
    name: Name,
    places: Vec<(Place, Sender)>,
    is_ahead: bool,
}

impl Frames {
    /// Makes a cache of so many bytes in memory.
    pub(crate) fn new(bytes: u64, disk: Option<Disk>) -> Frames {
        let pieces = (bytes / u64::from(shoal_format::bucket::FRAME)).max(64) as usize;
        let mut options = OptionsBuilder::new();
        options.estimated_items_capacity(pieces).weight_capacity(bytes).hot_allocation(HOT);
        // All that must be set is.
        let options = options.build().unwrap_or_else(|e| unreachable!("{e}"));
        let cache = Cache::with_options(options, ByBytes, Hash::default(), Default::default());
        let ahead = Ahead::new(bytes);
        let (disk, written_max) = (disk.map(Arc::new), bytes / WRITTEN);
        Frames {
            cache,
            written: Mutex::default(),
            written_max,
            ahead,
            disk,
            flights: Mutex::default(),
        }
    }

    /// The cache on disk.
    pub(crate) fn disk(&self) -> Option<&Disk> {
        self.disk.as_deref()
    }

    /// Adds a decoded piece that was written, and not asked for. Of too many that nobody has used
    /// since, the oldest leave.
    pub(crate) fn insert(&self, name: Name, offset: u32, bytes: Bytes) {
        let (key, weight) = ((name, offset), weight(&bytes));
        self.cache.insert(key, Held::new(bytes, false));
        let mut written = self.written.lock();
        written.pieces.push_back((key, weight));
        written.bytes += weight;
        while written.bytes > self.written_max
            && let Some((key, weight)) = written.pieces.pop_front()
        {
            written.bytes -= weight;
            self.cache.remove_if(&key, |held| !held.is_used.load(Ordering::Relaxed));
        }
    }

    /// Adds a piece of an object that was read for another reason: it is likely to be wanted.
    pub(crate) fn keep(&self, place: &Place, raw: &Bytes) {
        if let Ok(bytes) = decode(place, raw, 0, "") {
            self.insert(place.name, place.offset, bytes);
        }
    }

    /// Returns a piece if it is in memory.
    pub(crate) fn get(&self, place: &Place) -> Option<Bytes> {
        let Held { bytes, is_ahead, is_used } = self.cache.get(&(place.name, place.offset))?;
        if !is_used.swap(true, Ordering::Relaxed) && is_ahead {
            self.ahead.used(bytes.len() as u64);
        }
        Some(bytes)
    }

    /// Returns whether a piece is in memory. Does not use it.
    pub(crate) fn has(&self, place: &Place) -> bool {
        self.cache.peek(&(place.name, place.offset)).is_some()
    }

    /// Notes that a part of a piece was not in memory. Returns what to fetch besides it.
    pub(crate) fn miss(&self, part: &Part) -> Option<Range<u64>> {
        self.ahead.miss(part.addr, part.place.decoded)
    }

    /// Registers the wish for pieces that are not in memory. `is_ahead`: it is a guess.
    pub(crate) fn want(&self, places: &mut Vec<Place>, is_ahead: bool) -> Wanted {
        places.sort_unstable_by_key(|place| (place.name, place.offset));
        places.dedup_by_key(|place| (place.name, place.offset));
        let mut wanted = Wanted::default();
        let mut flights = self.flights.lock();
        for place in places {
            let key = (place.name, place.offset);
            if let Some(flight) = flights.get(&key) {
                wanted.waits.push((*place, flight.clone()));
                continue;
            }
            if self.has(place) {
                continue;
            }
            if is_ahead {
                self.ahead.fetched(place.decoded.into());
            }
            let (sender, flight) = watch::channel(None);
            flights.insert(key, flight.clone());
            wanted.waits.push((*place, flight));
            add(&mut wanted.requests, (place.name, is_ahead), *place, sender);
        }
        wanted
    }

    /// Fetches pieces, and hands them to everybody who waits for them.
    pub(crate) async fn fetch(&self, store: &Store, request: Request) {
        for request in self.read_disk(request).await {
            self.request(store, request).await;
        }
    }

    /// Hands over the pieces that are on the disk. Returns the requests for the others.
    async fn read_disk(&self, request: Request) -> Vec<Request> {
        let Some(disk) = self.disk.clone() else { return vec![request] };
        let (name, is_ahead) = (request.name, request.is_ahead);
        let places: Vec<Place> = request.places.iter().map(|(place, _)| *place).collect();
        let read = spawn_blocking(move || {
            let ranges: Vec<_> = places.iter().map(|place| (place.offset, place.stored)).collect();
            let found = disk.read(name, &ranges);
            let valid = |(place, raw): (&Place, Option<Bytes>)| {
                decode(place, &raw?, u64::from(place.offset), "").ok()
            };
            let found: Vec<_> = places.iter().zip(found).map(valid).collect();
            let stored = |(place, found): (&Place, &Option<_>)| {
                found.as_ref().map_or(0, |_| u64::from(place.stored))
            };
            let bytes = places.iter().zip(&found).map(stored).sum();
            disk.hit(found.iter().flatten().count(), bytes);
            found
        });
        // The runtime ends: nobody waits.
        let Ok(found) = read.await else { return Vec::new() };
        let mut rest = Vec::new();
        for ((place, sender), found) in request.places.into_iter().zip(found) {
            match found {
                Some(bytes) => self.arrived(&place, &sender, Ok(bytes), is_ahead),
                None => add(&mut rest, (name, is_ahead), place, sender),
            }
        }
        rest
    }

    async fn request(&self, store: &Store, request: Request) {
        let name = request.name.text();
        let range = request.range();
        let got = store.get_range(&name, range.clone()).await;
        let mut valid = true;
        for (place, sender) in request.places {
            let decoded = match &got {
                Ok(Some(raw)) => decode(&place, raw, range.start, &name),
                Ok(None) => Err(missing(&place, &name)),
                Err(error) => Err(error.clone()),
            };
            valid &= decoded.is_ok();
            self.arrived(&place, &sender, decoded, request.is_ahead);
        }
        if let Ok(Some(raw)) = got
            && valid
        {
            self.write_disk(request.name, range.start, raw);
        }
    }

    fn arrived(&self, place: &Place, sender: &Sender, decoded: Result<Bytes>, is_ahead: bool) {
        let key = (place.name, place.offset);
        if let Ok(bytes) = &decoded {
            self.cache.insert(key, Held::new(bytes.clone(), is_ahead));
        }
        // In this order, so that nobody finds it neither here nor there.
        self.flights.lock().remove(&key);
        // Nobody may wait any more.
        let _ = sender.send(Some(decoded));
    }

    /// Starts to write bytes of an object to the disk.
    pub(crate) fn write_disk(&self, name: Name, offset: u64, raw: Bytes) {
        let Some(disk) = self.disk.clone() else { return };
        if disk.will_write(raw.len() as u64) {
            drop(spawn_blocking(move || disk.write(name, offset, &raw)));
        }
    }

    /// Removes an object that was deleted from the disk.
    pub(crate) fn forget_disk(&self, name: Name) {
        if let Some(disk) = &self.disk {
            disk.remove(name);
        }
    }
}

/// Adds a piece to the last request, or to a new one.
fn add(requests: &mut Vec<Request>, (name, is_ahead): (Name, bool), place: Place, sender: Sender) {
    match requests.last_mut() {
        Some(request) if request.takes(&place) => request.places.push((place, sender)),
        _ => requests.push(Request { name, places: vec![(place, sender)], is_ahead }),
    }
}

impl Request {
    fn range(&self) -> Range<u64> {
        let place = |at: usize| &self.places[at].0;
        let last = place(self.places.len() - 1);
        u64::from(place(0).offset)..u64::from(last.offset) + u64::from(last.stored)
    }

    /// Returns whether the piece is near enough to go into the same request.
    fn takes(&self, next: &Place) -> bool {
        let range = self.range();
        let end = u64::from(next.offset) + u64::from(next.stored);
        next.name == self.name
            && u64::from(next.offset) <= range.end + GAP_MAX
            && end - range.start <= FETCH_MAX
    }
}

impl Wanted {
    /// Waits for the pieces.
    pub(crate) async fn arrive(self) -> Result<HashMap<(Name, u32), Bytes>> {
        let mut arrived = HashMap::new();
        for (place, mut flight) in self.waits {
            let found = flight.wait_for(Option::is_some).await;
            // The sender is dropped without a word only when the runtime ends.
            let found = found.ok().and_then(|found| found.clone());
            let ended = || Err(Error::from(shoal_base::Code::Io));
            arrived.insert((place.name, place.offset), found.unwrap_or_else(ended)?);
        }
        Ok(arrived)
    }
}

fn missing(place: &Place, name: &str) -> Error {
    let rule =
        format!("is missing from the bucket; it holds {} bytes of the volume", place.decoded);
    Error::corrupt(format!("object {name}"), None, rule)
}

fn decode(place: &Place, raw: &Bytes, base: u64, name: &str) -> Result<Bytes> {
    let Place { offset, stored, decoded, codec, checksum, .. } = *place;
    let discarded = Piece::discarded(shoal_base::Addr(0), decoded);
    let piece = Piece { offset: offset - base as u32, stored, codec, checksum, ..discarded };
    let bytes = bytes_of(&piece, raw, name)?;
    if codec == shoal_format::Codec::None {
        // A part of what was fetched would keep all of it in memory.
        return Ok(match raw.len() > 2 * bytes.len() {
            true => Bytes::copy_from_slice(bytes),
            false => raw.slice_ref(bytes),
        });
    }
    let mut plain = vec![0; decoded as usize];
    codec
        .decode(bytes, &mut plain)
        .map_err(|rule| Error::corrupt(format!("object {name}"), None, rule))?;
    Ok(Bytes::from(plain))
}
