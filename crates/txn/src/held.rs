//! The segments of the old image, while a repair makes a new one.

use crate::usage_image::UsageImage;
use shoal_base::SegNo;
use shoal_base::limits::EXTENT_MAX;
use shoal_format::declare::U48;
use shoal_format::usage::{SegKind, UsageEntry, UsageTable};
use shoal_format::{Geometry, Ptr};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Segments of the old image, which must not be written before the new one is durable.
#[derive(Default)]
pub struct Held {
    kinds: BTreeMap<u32, SegKind>,
    /// Segments whose part of the usage table is unreadable.
    unknown: Vec<Range<u32>>,
    pub(crate) journal: BTreeSet<SegNo>,
}

impl Held {
    /// Adds the segments in use according to the old usage table, as far as it is readable.
    pub(crate) fn used(&mut self, usage: &UsageImage, table: &UsageTable) {
        self.unknown.clone_from(&usage.lost);
        for (n, entry) in table.entries.iter().enumerate() {
            if entry.kind.holds_objects() {
                self.kinds.insert(n as u32, entry.kind);
            } else if entry.kind == SegKind::Journal {
                self.journal.insert(SegNo(n as u32));
            }
        }
    }
    /// Adds the segment of an old object.
    pub(crate) fn pointer(&mut self, geometry: &Geometry, ptr: Ptr, kind: SegKind) {
        if !ptr.is_null() && geometry.contains(ptr.addr, u64::from(ptr.len)) {
            self.kinds.entry(geometry.segment_of(ptr.addr).0).or_insert(kind);
        }
    }
    /// Returns whether a segment may hold metadata.
    pub(crate) fn may_hold_metadata(&self, seg: u32) -> bool {
        match self.kinds.get(&seg) {
            Some(kind) => *kind == SegKind::Meta,
            None => {
                let unknown = self.unknown.iter().any(|segments| segments.contains(&seg));
                unknown && !self.journal.contains(&SegNo(seg))
            }
        }
    }

    /// Returns the segments of the new image. `live` has the bytes of data and of metadata in use
    /// in each.
    pub(crate) fn entries(&self, geometry: &Geometry, live: &[(u64, u64)]) -> Vec<UsageEntry> {
        let most = geometry.segment_size * EXTENT_MAX as u64;
        let entry = |(n, (data, meta)): (u32, &(u64, u64))| {
            let before = self.kinds.get(&n).copied();
            let kind = match (data, meta) {
                _ if n == 0 => return UsageEntry { kind: SegKind::Super, ..Default::default() },
                (0, 0) if self.journal.contains(&SegNo(n)) => SegKind::Journal,
                (0, 0) => before.unwrap_or_default(),
                (0, _) => SegKind::Meta,
                (_, 0) => SegKind::Data,
                // A segment has one kind of object: one of the pointers is wrong.
                _ => before.unwrap_or(SegKind::Meta),
            };
            let objects = matches!(kind, SegKind::Meta | SegKind::Data);
            let live = if objects { (data + meta).min(most) } else { 0 };
            UsageEntry { live: U48::new(live), kind, sealed: objects }
        };
        (0..).zip(live).map(entry).collect()
    }
}
