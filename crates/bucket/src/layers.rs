//! The manifests that together say what the volume is, and what has changed since each of them.
//!
//! A manifest of a hundred million files is several megabytes, and few frames of the address space
//! change between two manifests. So most manifests have the changed frames alone, and name the one
//! that they change, their *base*. The manifests from one without a base to the newest are the
//! *layers*. They are like the levels of an LSM tree (O'Neil et al., *The log-structured
//! merge-tree*, 1996): a new manifest takes the place of all layers that are not several times
//! larger than it, so there are few, and each change is written again once for each of them.

use shoal_format::bucket::manifest::{ManifestHeader, ManifestKind};
use shoal_format::bucket::{FRAME, Name};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// Most layers: each is a request of whoever reads the volume, one after another.
const LAYERS_MAX: usize = 8;
/// Longest range of frames that is cleared at once.
const CLEARED_MAX: u64 = 1 << 30;

/// The rule by which a manifest has changes alone.
#[derive(Clone, Copy, Debug)]
pub struct Layering {
    /// A layer is left as it is while what has changed since it is not larger than one part in so
    /// many of it.
    pub parts: usize,
    /// Objects and extents of a map that is written whole in any case: a request costs more than
    /// its bytes.
    pub whole_max: usize,
}

impl Default for Layering {
    fn default() -> Layering {
        Layering { parts: 8, whole_max: 2048 }
    }
}

/// A manifest that the newest state consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Layer {
    pub sequence: u64,
    /// First slot of the log whose changes are neither in it nor in those before it.
    pub log_next: u64,
    /// Its objects and extents.
    entries: usize,
}

/// Slots of log objects that have changed an object's entry.
#[derive(Clone, Copy)]
struct Change {
    /// It came with this one; 0: before the first layer.
    came: u64,
    last: u64,
    is_gone: bool,
}

/// See the head of the file.
#[derive(Clone, Default)]
pub(crate) struct Layers {
    /// The oldest first, which has no base.
    layers: Vec<Layer>,
    /// Slot of the log object that is being applied, or will be next.
    slot: u64,
    /// Frames that have changed since the first layer, and the slots of the log objects that did it
    /// last.
    frames: BTreeMap<u64, u64>,
    /// Objects that came, grew or went since then.
    objects: HashMap<Name, Change>,
}

impl Layers {
    /// Notes that the log object of this slot makes the changes from now on.
    pub(crate) fn begin(&mut self, slot: u64) {
        self.slot = slot;
    }

    /// Slot of the log object that is being applied, or will be next.
    pub(crate) fn slot(&self) -> u64 {
        self.slot
    }

    /// Notes that what a range holds has changed.
    pub(crate) fn changed(&mut self, range: Range<u64>) {
        for frame in range.start / u64::from(FRAME)..range.end.div_ceil(u64::from(FRAME)) {
            self.frames.insert(frame, self.slot);
        }
    }

    /// Notes that there is a new object.
    pub(crate) fn came(&mut self, name: Name) {
        let new = Change { came: self.slot, last: self.slot, is_gone: false };
        self.objects.insert(name, new);
    }

    /// Notes that an object grew or went.
    pub(crate) fn changed_object(&mut self, name: Name, is_gone: bool) {
        let old = Change { came: 0, last: 0, is_gone };
        let change = self.objects.entry(name).or_insert(old);
        (change.last, change.is_gone) = (self.slot, is_gone);
    }

    /// Returns what has changed since a layer, as ranges of addresses.
    pub(crate) fn ranges(&self, since: &Layer) -> Vec<Range<u64>> {
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for frame in self.frames(since) {
            match ranges.last_mut() {
                Some(last) if last.end == frame.start && frame.end - last.start <= CLEARED_MAX => {
                    last.end = frame.end;
                }
                _ => ranges.push(frame),
            }
        }
        ranges
    }

    fn frames(&self, since: &Layer) -> impl Iterator<Item = Range<u64>> {
        let from = since.log_next;
        let changed = self.frames.iter().filter(move |(_, slot)| **slot >= from);
        changed.map(|(frame, _)| frame * u64::from(FRAME)..(frame + 1) * u64::from(FRAME))
    }

    /// Returns the objects whose entries differ from those in a layer and before. An object that
    /// came and went since then has none.
    pub(crate) fn objects(&self, since: &Layer) -> impl Iterator<Item = Name> {
        let from = since.log_next;
        let differs =
            move |change: &Change| change.last >= from && !(change.is_gone && change.came >= from);
        self.objects.iter().filter(move |(_, change)| differs(change)).map(|(name, _)| *name)
    }

    /// Returns the layer that is to be the base of the next manifest: the newest one that is large
    /// enough. `None`: it needs none. `count` counts the extents in a range.
    pub(crate) fn base(
        &self,
        rule: Layering,
        count: impl Fn(Range<u64>) -> usize,
    ) -> Option<Layer> {
        let candidates = &self.layers[..self.layers.len().min(LAYERS_MAX - 1)];
        let is_large_enough = |layer: &&Layer| {
            let mut room =
                (layer.entries / rule.parts.max(1)).checked_sub(self.objects(layer).count());
            for frame in self.frames(layer) {
                // An object that an extent refers to is in the table too.
                room = room.and_then(|room| room.checked_sub(1 + 2 * count(frame)));
                if room.is_none() {
                    break;
                }
            }
            room.is_some()
        };
        candidates.iter().rev().find(is_large_enough).copied()
    }

    /// Notes a manifest that is durable. Returns those that are no layers any more, or `None` if
    /// its base is none.
    pub(crate) fn push(&mut self, header: &ManifestHeader) -> Option<Vec<u64>> {
        let ManifestHeader { sequence, base, log_next, .. } = *header;
        let kept = match header.kind {
            ManifestKind::Changes => {
                1 + self.layers.iter().position(|layer| layer.sequence == base)?
            }
            _ => 0,
        };
        let replaced = self.layers.drain(kept..).map(|layer| layer.sequence).collect();
        let entries = header.objects as usize + header.extents as usize;
        self.layers.push(Layer { sequence, log_next, entries });
        if kept == 0 {
            self.frames.retain(|_, slot| *slot >= log_next);
            self.objects.retain(|_, change| change.last >= log_next);
        }
        Some(replaced)
    }

    /// Returns whether a manifest is one of them.
    pub(crate) fn contains(&self, sequence: u64) -> bool {
        self.layers.iter().any(|layer| layer.sequence == sequence)
    }

    /// Number of the newest one; 0: there is none.
    pub(crate) fn newest(&self) -> u64 {
        self.layers.last().map_or(0, |layer| layer.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifests::header;
    use crate::map::Map;
    use crate::shared::Identity;
    use proptest::prelude::*;
    use shoal_base::Addr;
    use shoal_format::bucket::manifest::{Body, Manifest, decode, encode};
    use shoal_format::bucket::object::Piece;
    use shoal_skip::property;

    const SPACE: u64 = 40 * (FRAME as u64) + 4096;

    /// Manifests by number, as they are in the store, and log objects of one piece by slot.
    #[derive(Default)]
    struct Written {
        manifests: BTreeMap<u64, Manifest>,
        log: BTreeMap<u64, Piece>,
    }

    impl Written {
        /// Writes the next manifest, as [`crate::manifests`] does, if it covers more of the log
        /// than the last one. Returns its body.
        fn publish(&mut self, map: &mut Map, slot: u64, rule: Layering) -> Option<Body> {
            let last = self.manifests.last_key_value();
            if last.is_some_and(|(_, last)| last.header.log_next >= slot) {
                return None;
            }
            let sequence = last.map_or(1, |(last, _)| last + 1);
            let base = map.base(rule);
            let body = base.map_or_else(|| map.to_complete(), |base| map.to_changes(&base, SPACE));
            let id = Identity { volume: 1, epoch: 1, writer: 1 };
            let mut header = header(&id, sequence, SPACE);
            (header.base, header.log_next) = (base.map_or(0, |base| base.sequence), slot);
            let manifest = decode(&encode(header, &body), sequence).expect("it follows the rules");
            for replaced in map.layers.push(&manifest.header).expect("its base is a layer") {
                assert!(self.manifests.remove(&replaced).is_some());
            }
            self.manifests.insert(sequence, manifest);
            Some(body)
        }

        /// Reads the layers. Returns their number too.
        fn load(&self) -> (Map, usize) {
            let mut chain = vec![self.manifests.last_key_value().expect("there is one").1];
            while let Some(base) = chain.last().map(|it| it.header.base).filter(|base| *base > 0) {
                chain.push(&self.manifests[&base]);
            }
            let mut map = Map::default();
            chain.iter().rev().for_each(|layer| map.apply_layer(layer).expect("it fits"));
            (map, chain.len())
        }
    }

    fn apply(map: &mut Map, slot: u64, piece: &Piece) {
        map.layers.begin(slot);
        map.add_object(Name::Log(slot), 1 << 20);
        map.apply(piece, Name::Log(slot));
        map.layers.begin(slot + 1);
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, u32),
        Discard(u64, u32),
        /// Writes a manifest.
        Publish,
        /// Forgets what holds nothing.
        Collect,
        /// Another process loads the volume, and goes on; one that follows has learned of the last
        /// manifest after it had read more of the log.
        TakeOver(bool),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let place = (0..SPACE / 512, 1u32..512);
        let step = prop_oneof![
            12 => place.clone().prop_map(|(at, len)| Step::Write(at * 512, len * 512)),
            2 => place.prop_map(|(at, len)| Step::Discard(at * 512, len * 2048)),
            4 => Just(Step::Publish),
            2 => Just(Step::Collect),
            1 => any::<bool>().prop_map(Step::TakeOver),
        ];
        prop::collection::vec(step, 1..120)
    }

    /// Plays steps, with layers of at most so many parts.
    fn play(steps: Vec<Step>, parts: usize) {
        let (mut written, mut map) = (Written::default(), Map::default());
        let (mut slot, rule) = (1, Layering { parts, whole_max: 0 });
        written.publish(&mut map, slot, rule);
        for step in steps {
            let piece = match step {
                Step::Write(at, len) => {
                    let frame_end = (at / u64::from(FRAME) + 1) * u64::from(FRAME);
                    let len = u64::from(len).min(frame_end - at).min(SPACE - at) as u32;
                    let discarded = Piece::discarded(Addr(at), len);
                    Some(Piece { stored: len, checksum: slot, ..discarded })
                }
                Step::Discard(at, len) => {
                    Some(Piece::discarded(Addr(at), u64::from(len).min(SPACE - at) as u32))
                }
                Step::Publish if written.publish(&mut map, slot, rule).is_none() => None,
                Step::Publish => {
                    let (again, layers) = written.load();
                    assert!(layers <= LAYERS_MAX);
                    assert_eq!(again.to_complete(), map.to_complete());
                    assert_eq!(again.dead(), map.dead());
                    None
                }
                Step::Collect => {
                    map.dead().into_iter().for_each(|name| map.forget(name));
                    None
                }
                Step::TakeOver(follows) => {
                    let (mut other, _) = written.load();
                    if follows {
                        written.publish(&mut map, slot, rule);
                    }
                    let (_, newest) = written.manifests.last_key_value().expect("it is there");
                    let from = other.layers.layers.last().expect("it has one").log_next;
                    for (slot, piece) in written.log.range(from..) {
                        apply(&mut other, *slot, piece);
                    }
                    if follows {
                        assert!(other.learn(&newest.header));
                    }
                    assert_eq!(other.parts(0..SPACE), map.parts(0..SPACE));
                    map = other;
                    None
                }
            };
            if let Some(piece) = piece {
                apply(&mut map, slot, &piece);
                written.log.insert(slot, piece);
                slot += 1;
            }
        }
    }

    proptest! {
        #![proptest_config(property(256))]

        #[test]
        fn layers_are_together_what_the_map_was(steps in steps(), parts in 1usize..6) {
            play(steps, parts);
        }
    }

    /// Found by a search: a layer may replace exactly what the one before it has written.
    #[test]
    fn a_layer_that_replaces_all_of_the_last_one() {
        use Step::{Publish, Write};
        play(vec![Write(0, 512), Publish, Write(0, 512), Publish], 1);
    }

    #[test]
    fn few_changes_are_a_small_manifest_and_layers_stay_few() {
        let (mut written, mut map) = (Written::default(), Map::default());
        let piece = |slot: u64, at: u64| {
            let discarded = Piece::discarded(Addr(at * 4096), 4096);
            Piece { stored: 4096, checksum: slot, ..discarded }
        };
        let mut slot = 1;
        for at in 0..SPACE / 4096 {
            apply(&mut map, slot, &piece(slot, at));
            slot += 1;
        }
        let rule = Layering { parts: 4, whole_max: 16 };
        let entries = |body: Option<Body>| match body {
            Some(Body::Complete(objects, extents)) => (true, objects.len() + extents.len()),
            Some(Body::Changes(objects, extents)) => (false, objects.len() + extents.len()),
            _ => unreachable!("it has tables"),
        };
        let whole = entries(written.publish(&mut map, slot, rule)).1;
        let (mut follower, _) = written.load();
        let (mut sum, mut complete, mut most) = (0, 0, 0);
        for round in 0..400 {
            apply(&mut map, slot, &piece(slot, round % 300));
            apply(&mut follower, slot, &piece(slot, round % 300));
            slot += 1;
            let (is_complete, size) = entries(written.publish(&mut map, slot, rule));
            (sum, complete) = (sum + size, complete + usize::from(is_complete));
            most = most.max(written.load().1);
            let (_, newest) = written.manifests.last_key_value().expect("it was just written");
            assert!(follower.learn(&newest.header));
            map.dead().into_iter().for_each(|name| map.forget(name));
        }
        assert!(complete < 40 && most <= 4, "{complete} complete ones, {most} layers");
        assert!(sum < 400 * whole / 4, "{sum} entries, of {whole} each time");
        assert_eq!(follower.totals(), map.totals(), "a follower forgets what its owner deletes");
    }
}
