//! Which piece of which object holds which addresses, as of the log objects applied so far.

use crate::layers::{Layer, Layering, Layers};
use shoal_base::{Addr, Error, Result};
use shoal_format::Codec;
use shoal_format::bucket::manifest::{Body, Extent, Manifest, ManifestHeader, ObjectEntry};
use shoal_format::bucket::object::Piece;
use shoal_format::bucket::{Name, manifest_name};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// Parts moved at a time.
const MOVED_MAX: usize = 4096;

/// A piece in its object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The object.
    pub name: Name,
    /// Offset in it.
    pub offset: u32,
    /// Bytes as stored.
    pub stored: u32,
    /// Bytes, decoded.
    pub decoded: u32,
    pub codec: Codec,
    pub checksum: u64,
}

impl Place {
    /// The place of a piece; `name` is the object that has its bytes.
    pub(crate) fn of(piece: &Piece, name: Name) -> Place {
        let Piece { offset, stored, len, codec, checksum, .. } = *piece;
        Place { name, offset, stored, decoded: len, codec, checksum }
    }
}

/// A part of a piece, which holds a range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Part {
    pub addr: u64,
    pub len: u32,
    /// Bytes of the decoded piece before it.
    pub skip: u32,
    pub place: Place,
}

impl Part {
    pub(crate) fn end(&self) -> u64 {
        self.addr + u64::from(self.len)
    }

    /// The part of this part within a range.
    fn within(&self, range: &Range<u64>) -> Part {
        let (start, end) = (self.addr.max(range.start), self.end().min(range.end));
        let skip = self.skip + (start - self.addr) as u32;
        Part { addr: start, len: (end - start) as u32, skip, place: self.place }
    }
}

#[derive(Clone)]
struct Object {
    size: u64,
    /// Bytes of addresses that it holds.
    live: u64,
}

/// The map.
#[derive(Clone, Default)]
pub(crate) struct Map {
    parts: BTreeMap<u64, Part>,
    objects: HashMap<Name, Object>,
    /// Objects that hold nothing, and are to be deleted; slots of the log objects that made them
    /// so.
    dead: BTreeMap<Name, u64>,
    /// The manifests that have it, and what they do not have.
    pub layers: Layers,
}

/// The objects of a manifest, which its extents refer to by index.
struct Table {
    objects: Vec<ObjectEntry>,
    index: HashMap<Name, u32>,
}

impl Table {
    fn extent(&self, part: &Part) -> Extent {
        let Place { name, offset, stored, decoded, codec, checksum } = part.place;
        let (addr, len, skip, object) = (Addr(part.addr), part.len, part.skip, self.index[&name]);
        Extent { addr, len, skip, decoded, stored, object, offset, codec, checksum }
    }
}

impl Map {
    /// Applies the next layer: a complete manifest, or changes to those before.
    ///
    /// # Errors
    /// Corrupt: it is none of these, or does not fit those before.
    pub(crate) fn apply_layer(&mut self, manifest: &Manifest) -> Result<()> {
        let Manifest { header, body } = manifest;
        let object = || format!("object {}", manifest_name(header.sequence));
        let bad = |rule: String| Err(Error::corrupt(object(), None, rule));
        let (Body::Complete(objects, extents) | Body::Changes(objects, extents)) = body else {
            return bad("is no part of a map".into());
        };
        // Its changes are in it, and not in those before.
        self.layers.begin(header.log_next - 1);
        let is_gone = |entry: &&ObjectEntry| entry.size == 0;
        for entry in objects.iter().filter(|entry| !is_gone(entry)) {
            self.grow_object(entry.name(), u64::from(entry.size));
        }
        for extent in extents {
            let Extent { addr, len, skip, offset, stored, decoded, codec, checksum, .. } = *extent;
            if extent.is_cleared() {
                self.remove(addr.0..addr.0 + u64::from(len));
                continue;
            }
            // The decoder has checked the index.
            let name = objects[extent.object as usize].name();
            let place = Place { name, offset, stored, decoded, codec, checksum };
            self.insert(Part { addr: addr.0, len, skip, place });
        }
        for name in objects.iter().filter(is_gone).map(ObjectEntry::name) {
            self.forget(name);
            if self.knows(name) {
                return bad(format!("object {} was deleted, but is in use", name.text()));
            }
        }
        // That of a smaller volume that has overwritten another one.
        self.remove(header.capacity..u64::MAX);
        self.layers.begin(header.log_next);
        match self.layers.push(header) {
            Some(_) => Ok(()),
            None => bad(format!("changes manifest {}, which is not a layer", header.base)),
        }
    }

    /// Returns the layer that the next manifest should change; `None`: it should be complete.
    pub(crate) fn base(&self, rule: Layering) -> Option<Layer> {
        match self.parts.len() + self.objects.len() <= rule.whole_max {
            true => None,
            false => self.layers.base(rule, |range| self.parts.range(range).count()),
        }
    }

    /// Returns the body of a complete manifest.
    pub(crate) fn to_complete(&self) -> Body {
        let table = self.table(self.objects.keys().copied().collect());
        let extents = self.parts.values().map(|part| table.extent(part)).collect();
        Body::Complete(table.objects, extents)
    }

    /// Returns the body of a manifest of the changes since a layer, in a volume of `capacity`
    /// bytes.
    pub(crate) fn to_changes(&self, since: &Layer, capacity: u64) -> Body {
        let within = |range: Range<u64>| range.start..range.end.min(capacity);
        let ranges = self.layers.ranges(since).into_iter().map(within);
        let changed: Vec<(Range<u64>, Vec<Part>)> = ranges
            .filter(|range| !range.is_empty())
            .map(|range| (range.clone(), self.parts(range)))
            .collect();
        let names = changed.iter().flat_map(|(_, parts)| parts).map(|part| part.place.name);
        let table = self.table(names.chain(self.layers.objects(since)).collect());
        let mut extents = Vec::new();
        for (Range { start, end }, parts) in &changed {
            extents.push(Extent::cleared(Addr(*start), (end - start) as u32));
            extents.extend(parts.iter().map(|part| table.extent(part)));
        }
        Body::Changes(table.objects, extents)
    }

    /// Returns the table of objects with these names. One that is in the map no more has no bytes.
    fn table(&self, names: BTreeSet<Name>) -> Table {
        let size = |name| self.objects.get(name).map_or(0, |object| object.size as u32);
        let objects = names.iter().map(|name| ObjectEntry::of(*name, size(name))).collect();
        let index = names.iter().enumerate().map(|(n, name)| (*name, n as u32)).collect();
        Table { objects, index }
    }

    /// Adds an object, which holds nothing yet.
    pub(crate) fn add_object(&mut self, name: Name, size: u64) {
        self.objects.entry(name).or_insert_with(|| {
            self.dead.insert(name, self.layers.slot());
            self.layers.came(name);
            Object { size, live: 0 }
        });
    }

    /// Adds an object of which a log object names a piece that ends at byte `end`, or notes that it
    /// is at least that long.
    pub(crate) fn grow_object(&mut self, name: Name, end: u64) {
        self.add_object(name, end);
        if let Some(object) = self.objects.get_mut(&name).filter(|object| object.size < end) {
            object.size = end;
            self.layers.changed_object(name, false);
        }
    }

    /// Applies a piece of an object that was added; `name` is the object that has its bytes.
    pub(crate) fn apply(&mut self, piece: &Piece, name: Name) {
        let (start, len) = (piece.addr.0, piece.len);
        self.remove(start..start + u64::from(len));
        if !piece.is_discarded() {
            let place = Place::of(piece, name);
            self.insert(Part { addr: start, len, skip: 0, place });
        }
    }

    fn insert(&mut self, part: Part) {
        if let Some(object) = self.objects.get_mut(&part.place.name) {
            object.live += u64::from(part.len);
            self.dead.remove(&part.place.name);
        }
        self.layers.changed(part.addr..part.end());
        self.parts.insert(part.addr, part);
    }

    fn release(&mut self, part: &Part) {
        self.layers.changed(part.addr..part.end());
        if let Some(object) = self.objects.get_mut(&part.place.name) {
            object.live -= u64::from(part.len);
            if object.live == 0 {
                self.dead.insert(part.place.name, self.layers.slot());
            }
        }
    }

    /// Removes a range of addresses.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        for part in self.find(range.clone()) {
            self.parts.remove(&part.addr);
            self.release(&part);
            for rest in [part.addr..range.start, range.end..part.end()] {
                if rest.start < rest.end {
                    self.insert(part.within(&rest));
                }
            }
        }
    }

    /// Returns the parts that overlap a range, as they are.
    fn find(&self, range: Range<u64>) -> Vec<Part> {
        let before = self.parts.range(..range.start).next_back().map(|(_, part)| *part);
        let before = before.filter(|part| part.end() > range.start && !range.is_empty());
        before.into_iter().chain(self.parts.range(range).map(|(_, part)| *part)).collect()
    }

    /// Returns the parts of a range, cut to it, in ascending order.
    pub(crate) fn parts(&self, range: Range<u64>) -> Vec<Part> {
        let parts = self.find(range.clone());
        parts.iter().map(|part| part.within(&range)).collect()
    }

    /// Returns the range from the first to the last byte within `range` that is held.
    pub(crate) fn bounds(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let last = self.parts.range(..range.end).next_back()?.1.end().min(range.end);
        let before = self.parts.range(..=range.start).next_back().map(|(_, part)| part.end());
        let first = match before.filter(|end| *end > range.start) {
            Some(_) => range.start,
            None => *self.parts.range(range.start..).next()?.0,
        };
        (first < last).then_some(first..last)
    }

    /// Returns whether exactly this part is still in the map.
    pub(crate) fn has(&self, part: &Part) -> bool {
        self.parts.get(&part.addr) == Some(part)
    }

    /// The objects that hold nothing.
    pub(crate) fn dead(&self) -> Vec<Name> {
        self.dead.keys().copied().collect()
    }

    /// Learns of a manifest that another process has written, and leaves it to that one to delete
    /// what holds nothing in it; if it ends before, the next owner finds that by its names. Returns
    /// whether the layers are known.
    #[must_use]
    pub(crate) fn learn(&mut self, header: &ManifestHeader) -> bool {
        let dead = self.dead.extract_if(.., |_, slot| *slot < header.log_next);
        for (name, _) in dead {
            self.objects.remove(&name);
            self.layers.changed_object(name, true);
        }
        self.layers.push(header).is_some()
    }

    /// Forgets an object that holds nothing, after it was deleted.
    pub(crate) fn forget(&mut self, name: Name) {
        if self.dead.remove(&name).is_some() {
            self.objects.remove(&name);
            self.layers.changed_object(name, true);
        }
    }

    /// Returns a copy for reading: without objects that hold nothing, of which a reader cannot know
    /// whether they are still there, and without what a next manifest would need.
    pub(crate) fn view(&self) -> Map {
        let held = self.objects.iter().filter(|(name, _)| !self.dead.contains_key(name));
        let objects = held.map(|(name, object)| (*name, object.clone())).collect();
        Map { parts: self.parts.clone(), objects, ..Map::default() }
    }

    /// Returns whether all addresses are holes.
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn knows(&self, name: Name) -> bool {
        self.objects.contains_key(&name)
    }

    /// Number of objects and of parts, and the bytes of the objects.
    pub(crate) fn totals(&self) -> (usize, usize, u64) {
        let bytes = self.objects.values().map(|object| object.size).sum();
        (self.objects.len(), self.parts.len(), bytes)
    }

    /// Stored bytes of the parts in each object.
    fn live_stored(&self) -> HashMap<Name, u64> {
        let mut live: HashMap<Name, u64> = HashMap::new();
        for Part { len, place, .. } in self.parts.values() {
            let share = u64::from(*len) * u64::from(place.stored) / u64::from(place.decoded);
            *live.entry(place.name).or_default() += share;
        }
        live
    }

    /// Chooses parts to move so that objects become free that hold little for their size: none
    /// while less than `spare` of all stored bytes would be won; at most `max` bytes.
    pub(crate) fn choose(&self, spare: f64, max: u64) -> Vec<Part> {
        let live = self.live_stored();
        // Those that hold nothing are about to be deleted.
        let kept = self.objects.iter().filter(|(name, _)| !self.dead.contains_key(name));
        let all: u64 = kept.map(|(_, object)| object.size).sum();
        let used: u64 = live.values().sum();
        if (all.saturating_sub(used)) as f64 <= all as f64 * spare {
            return Vec::new();
        }
        let mut poor: Vec<(Name, u64, u64)> = live
            .into_iter()
            .filter_map(|(name, live)| Some((name, live, self.objects.get(&name)?.size)))
            .filter(|(_, live, size)| (*live as f64) < *size as f64 * (1.0 - spare))
            .collect();
        poor.sort_unstable_by_key(|(name, live, size)| (live * 1000 / size.max(&1), *name));
        let mut chosen = BTreeSet::new();
        let mut bytes = 0;
        for (name, live, _) in poor {
            bytes += live;
            if bytes > max && !chosen.is_empty() {
                break;
            }
            chosen.insert(name);
        }
        let parts = self.parts.values().filter(|part| chosen.contains(&part.place.name));
        parts.take(MOVED_MAX).copied().collect()
    }
}

/// Checks that a piece fits a volume.
pub(crate) fn check_piece(piece: &Piece, capacity: u64, name: &str) -> Result<()> {
    let end = piece.addr.0 + u64::from(piece.len);
    if end > capacity {
        let rule = format!("a piece ends at byte {end} of {capacity}");
        return Err(shoal_base::Error::corrupt(format!("object {name}"), None, rule));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests::header;
    use crate::shared::Identity;
    use proptest::prelude::*;
    use shoal_skip::property;

    const SPACE: u64 = 4096;

    fn piece(addr: u64, len: u32, tag: u64) -> Piece {
        Piece { stored: len, checksum: tag, ..Piece::discarded(Addr(addr), len) }
    }

    #[test]
    fn an_object_is_dead_when_its_last_byte_is_replaced() {
        let (one, two) = (Name::Log(1), Name::Data(1, 2));
        let mut map = Map::default();
        map.add_object(one, 100);
        assert_eq!(map.dead(), [one], "nothing is in it yet");
        map.apply(&piece(0, 50, 1), one);
        map.apply(&piece(50, 50, 2), one);
        assert_eq!(map.dead(), []);
        map.add_object(two, 100);
        map.apply(&piece(10, 80, 3), two);
        assert_eq!(map.parts(0..100).len(), 3);
        map.apply(&Piece::discarded(Addr(0), 10), one);
        assert_eq!(map.dead(), []);
        map.apply(&piece(90, 10, 4), two);
        assert_eq!(map.dead(), [one]);
        assert!(map.has(&map.parts(10..90)[0]) && !map.has(&map.parts(11..90)[0]));
        map.forget(two);
        map.forget(one);
        assert!(map.knows(two) && !map.knows(one));
    }

    #[test]
    fn poor_objects_are_chosen_when_enough_is_won() {
        let mut map = Map::default();
        for n in 0..10 {
            map.add_object(Name::Log(n + 1), 100);
            map.apply(&piece(n * 100, 100, 0), Name::Log(n + 1));
        }
        assert_eq!(map.choose(0.3, 1 << 20), []);
        for n in 0..5 {
            map.remove(n * 100..n * 100 + 80);
        }
        let chosen = map.choose(0.3, 1 << 20);
        assert_eq!(chosen.len(), 5);
        assert!(chosen.iter().all(|part| part.len == 20 && part.skip == 80));
        assert_eq!(map.choose(0.3, 45).len(), 2);
        assert_eq!(map.choose(0.5, 1 << 20), []);
    }

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn the_newest_piece_is_found_and_comes_back_from_a_manifest(
            pieces in prop::collection::vec((0..SPACE, 1u32..600, any::<bool>()), 1..60),
        ) {
            let mut map = Map::default();
            let mut model = vec![None; SPACE as usize];
            for (n, (at, len, gone)) in pieces.into_iter().enumerate() {
                let len = len.min((SPACE - at) as u32);
                let name = Name::Log(n as u64 + 1);
                map.add_object(name, u64::from(len));
                let discarded = Piece::discarded(Addr(at), len);
                map.apply(&if gone { discarded } else { piece(at, len, n as u64) }, name);
                for byte in 0..u64::from(len) {
                    model[(at + byte) as usize] = (!gone).then_some((n as u64, byte as u32));
                }
            }
            for range in [0..SPACE, 100..200, 1000..1001, 2000..4000] {
                let held = (range.start..range.end).filter(|at| model[*at as usize].is_some());
                let bounds = held.clone().next().zip(held.clone().next_back());
                prop_assert_eq!(map.bounds(&range), bounds.map(|(first, last)| first..last + 1));
            }
            let body = map.to_complete();
            let mut again = Map::default();
            let header = ManifestHeader { log_next: 1, ..header(&Identity::default(), 2, SPACE) };
            again.apply_layer(&Manifest { header, body: body.clone() }).unwrap();
            let Body::Complete(objects, _) = &body else { unreachable!() };
            for map in [&map, &again] {
                let mut found = vec![None; SPACE as usize];
                for part in map.parts(0..SPACE) {
                    for byte in 0..part.len {
                        let at = (part.addr + u64::from(byte)) as usize;
                        found[at] = Some((part.place.checksum, part.skip + byte));
                    }
                }
                prop_assert_eq!(&found, &model);
                let live: BTreeSet<u64> = model.iter().flatten().map(|(tag, _)| tag + 1).collect();
                for object in objects {
                    let dead = map.dead().contains(&object.name());
                    prop_assert_eq!(dead, !live.contains(&object.number));
                }
            }
            prop_assert_eq!(again.to_complete(), body);
        }
    }
}
