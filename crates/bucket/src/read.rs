//! Reading: staged bytes first, then pieces of objects, from memory or from the store.

use crate::frames::Wanted;
use crate::map::{Part, Place};
use crate::shared::Shared;
use bytes::Bytes;
use futures::future::join_all;
use shoal_base::Result;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

/// Objects that a miss has read besides its own, at most. A volume that was flushed often has its
/// newest bytes in hundreds of small ones, a request each, and nobody may want them.
const AHEAD_OBJECTS: usize = 8;

impl Shared {
    /// Fills `buf` from byte `offset`. Bytes never written read as zero.
    pub(crate) fn read(self: &Arc<Shared>, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut missing = self.read_memory(buf, offset);
        while !missing.is_empty() {
            match self.read_parts(&missing, buf, offset) {
                // An object that was collected since the map was asked: its bytes are elsewhere.
                Err(error) if error.is_damage() => {
                    let now = self.read_memory(buf, offset);
                    if now == missing {
                        return Err(error);
                    }
                    missing = now;
                }
                done => return done,
            }
        }
        Ok(())
    }

    /// Fills the parts of `buf` that are not in memory.
    fn read_parts(self: &Arc<Shared>, missing: &[Part], buf: &mut [u8], offset: u64) -> Result<()> {
        let places: Vec<Place> = missing.iter().map(|part| part.place).collect();
        for part in missing {
            if let Some(range) = self.frames.miss(part) {
                self.fetch_ahead(range, Some(&places));
            }
        }
        let pieces = self.runtime.wait(self.pieces(missing))?;
        for (part, bytes) in missing.iter().zip(pieces) {
            let at = (part.addr - offset) as usize;
            buf[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }

    /// Copies what is in memory. Returns the parts that are not.
    pub(crate) fn read_memory(&self, buf: &mut [u8], offset: u64) -> Vec<Part> {
        let mut parts = self.copy_staged(buf, offset);
        parts.retain(|part| match self.frames.get(&part.place) {
            Some(piece) => {
                copy(part, &piece, buf, offset);
                false
            }
            None => true,
        });
        parts
    }

    /// Copies what is staged, zeroes the rest, and returns the parts that hold it.
    fn copy_staged(&self, buf: &mut [u8], offset: u64) -> Vec<Part> {
        buf.fill(0);
        let range = offset..offset + buf.len() as u64;
        let contents = self.contents.read();
        let mut gaps = Vec::new();
        let found = |addr: u64, bytes: &[u8]| {
            let at = (addr - offset) as usize;
            buf[at..at + bytes.len()].copy_from_slice(bytes);
        };
        contents.staging.read(range, found, |gap| gaps.push(gap));
        gaps.into_iter().flat_map(|gap| contents.map.parts(gap)).collect()
    }

    /// Returns the bytes of parts, from memory or from the store.
    pub(crate) async fn pieces(self: &Arc<Shared>, parts: &[Part]) -> Result<Vec<Bytes>> {
        let mut have: HashMap<_, Bytes> = HashMap::new();
        loop {
            let key = |place: &Place| (place.name, place.offset);
            let mut places: Vec<Place> = Vec::new();
            for Part { place, .. } in parts {
                if have.contains_key(&key(place)) {
                    continue;
                }
                match self.frames.get(place) {
                    Some(bytes) => drop(have.insert(key(place), bytes)),
                    None => places.push(*place),
                }
            }
            if places.is_empty() {
                break;
            }
            let arrived = self.start(self.frames.want(&mut places, false)).await.arrive().await?;
            // Counts the use of those that were already being fetched ahead.
            places.iter().for_each(|place| drop(self.frames.get(place)));
            have.extend(arrived);
        }
        let slice = |part: &Part| {
            let from = part.skip as usize;
            have[&(part.place.name, part.place.offset)].slice(from..from + part.len as usize)
        };
        Ok(parts.iter().map(slice).collect())
    }

    /// Starts the requests for wanted pieces.
    async fn start(self: &Arc<Shared>, mut wanted: Wanted) -> Wanted {
        let requests = std::mem::take(&mut wanted.requests);
        let fetch = |request| {
            let shared = self.clone();
            self.runtime.spawn(async move { shared.frames.fetch(&shared.store, request).await })
        };
        let tasks: Vec<_> = requests.into_iter().map(fetch).collect();
        join_all(tasks).await;
        wanted
    }

    /// Starts to read a range that will be wanted.
    pub(crate) fn will_read(self: &Arc<Shared>, range: Range<u64>) {
        self.fetch_ahead(range, None);
    }

    /// Starts to read a range. `but`: the range is a guess, made when these pieces were missed.
    /// They are left out, because a request of their own brings them sooner.
    fn fetch_ahead(self: &Arc<Shared>, range: Range<u64>, but: Option<&[Place]>) {
        let range = range.start..range.end.min(self.capacity);
        let mut places: Vec<Place> =
            self.contents.read().map.parts(range).iter().map(|part| part.place).collect();
        places.retain(|place| !self.frames.has(place));
        if let Some(but) = but {
            let mut names = HashSet::new();
            places.retain(|place| {
                !but.contains(place)
                    && (names.contains(&place.name)
                        || (names.len() < AHEAD_OBJECTS && names.insert(place.name)))
            });
        }
        if places.is_empty() || self.ahead_slots.available_permits() == 0 {
            return;
        }
        let wanted = self.frames.want(&mut places, but.is_some());
        for request in wanted.requests {
            let shared = self.clone();
            self.runtime.spawn(async move {
                let _slot = shared.ahead_slots.acquire().await;
                shared.frames.fetch(&shared.store, request).await;
            });
        }
    }
}

fn copy(part: &Part, piece: &Bytes, buf: &mut [u8], offset: u64) {
    let (at, from, len) = ((part.addr - offset) as usize, part.skip as usize, part.len as usize);
    buf[at..at + len].copy_from_slice(&piece[from..from + len]);
}
