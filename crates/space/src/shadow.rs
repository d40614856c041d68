//! The usage table as the newest checkpoint has it, or the one that is being written: kept from one
//! to the next, so that a checkpoint changes only the rows that have changed, and knows by that the
//! pages to be written and the totals.

use shoal_base::Addr;
use shoal_format::Geometry;
use shoal_format::usage::{
    self, STREAMS, SegKind, Totals, UsageEntry, UsagePage, UsageTable, page_of,
};
use std::collections::BTreeSet;

/// The table.
pub(crate) struct Shadow {
    /// The segments as they were at the freeze, amended by what the checkpoint writes. Metadata is
    /// sealed here: `open` says which is not.
    entries: Vec<UsageEntry>,
    /// The segment in which the metadata stream goes on.
    open: Option<u32>,
    /// Sums over all rows.
    totals: Totals,
    /// Sealed segments without live bytes: free in the table, and soon in memory too.
    unneeded: BTreeSet<u32>,
    /// Pages in which a row has changed.
    due: BTreeSet<u32>,
    /// Pages that were written with nothing in them: null in the next checkpoint.
    blank: BTreeSet<u32>,
    /// The rows on the device, to be compared with when everything is written.
    #[cfg(debug_assertions)]
    written: Vec<UsageEntry>,
}

impl Shadow {
    /// The table of a volume on which nothing has been written.
    pub fn fresh(geometry: &Geometry) -> Shadow {
        let mut entries = vec![UsageEntry::default(); geometry.segments as usize];
        entries[0].kind = SegKind::Super;
        let mut shadow = Shadow::unwritten(geometry, entries);
        // All others are of free segments, and so it is said that they are: by null pointers.
        shadow.due = BTreeSet::from([0]);
        shadow
    }

    /// A table of which nobody knows what is on the device: every page is due.
    pub fn unwritten(geometry: &Geometry, entries: Vec<UsageEntry>) -> Shadow {
        let mut shadow = Shadow::of(entries, None);
        shadow.due = (0..usage::pages(geometry)).collect();
        #[cfg(debug_assertions)]
        shadow.written.fill(UsageEntry::default());
        shadow
    }

    /// The table that is on the device.
    pub fn loaded(geometry: &Geometry, table: UsageTable) -> Shadow {
        let open = Some(table.positions[0]).filter(|at| *at != Addr(0));
        Shadow::of(table.entries, open.map(|at| geometry.segment_of(at).0))
    }

    fn of(mut entries: Vec<UsageEntry>, open: Option<u32>) -> Shadow {
        entries.iter_mut().for_each(|entry| entry.sealed |= entry.kind == SegKind::Meta);
        let rows = (0..).zip(&entries).filter(|(_, entry)| is_unneeded(entry));
        let unneeded = rows.map(|(seg, _)| seg).collect();
        let mut shadow = Shadow {
            entries,
            open,
            totals: Totals::default(),
            unneeded,
            due: BTreeSet::new(),
            blank: BTreeSet::new(),
            #[cfg(debug_assertions)]
            written: Vec::new(),
        };
        let rows: Vec<UsageEntry> = shadow.rows(0..shadow.entries.len() as u32).collect();
        rows.iter().for_each(|row| shadow.totals.add(row));
        #[cfg(debug_assertions)]
        (shadow.written = rows);
        shadow
    }

    /// The segment as it was at the freeze, or has become by what the checkpoint writes.
    pub fn entry(&self, seg: u32) -> Option<UsageEntry> {
        self.entries.get(seg as usize).copied()
    }

    /// Changes a segment of the volume.
    pub fn set(&mut self, seg: u32, mut entry: UsageEntry) {
        entry.sealed |= entry.kind == SegKind::Meta;
        if self.entries[seg as usize] == entry {
            return;
        }
        self.change(seg, |shadow| shadow.entries[seg as usize] = entry);
        match is_unneeded(&entry) {
            true => self.unneeded.insert(seg),
            false => self.unneeded.remove(&seg),
        };
    }

    /// The metadata stream goes on in this segment.
    pub fn set_open(&mut self, open: Option<u32>) {
        if self.open == open {
            return;
        }
        if let Some(seg) = self.open {
            self.change(seg, |shadow| shadow.open = None);
        }
        if let Some(seg) = open {
            self.change(seg, |shadow| shadow.open = open);
        }
    }

    fn change(&mut self, seg: u32, change: impl FnOnce(&mut Shadow)) {
        let before = self.row(seg);
        change(self);
        let after = self.row(seg);
        if before != after {
            self.totals.sub(&before);
            self.totals.add(&after);
            self.due.insert(page_of(seg));
        }
    }

    /// What the table says of a segment: how it is once the checkpoint is durable.
    fn row(&self, seg: u32) -> UsageEntry {
        let entry = self.entries[seg as usize];
        if self.open == Some(seg) {
            // Taken since the freeze, perhaps, with nothing in it that counts.
            UsageEntry { kind: SegKind::Meta, sealed: false, ..entry }
        } else if is_unneeded(&entry) {
            UsageEntry::default()
        } else {
            entry
        }
    }

    fn rows(&self, segments: std::ops::Range<u32>) -> impl Iterator<Item = UsageEntry> {
        segments.map(|seg| self.row(seg))
    }

    /// The page is due, though no row has changed.
    pub fn rewrite(&mut self, geometry: &Geometry, page: u32) {
        if page < usage::pages(geometry) {
            self.due.insert(page);
        }
    }

    /// Takes out the lowest page in which a row has changed since it was last taken.
    pub fn next_due(&mut self) -> Option<u32> {
        self.due.pop_first()
    }

    /// Whether all segments of a page are free.
    pub fn is_blank(&self, geometry: &Geometry, page: u32) -> bool {
        let mut rows = self.rows(usage::segments_of_page(geometry, page));
        rows.all(|row| row == UsageEntry::default())
    }

    /// A page, to be written.
    pub fn page(&mut self, geometry: &Geometry, number: u32, epoch: u64) -> UsagePage {
        let segments = usage::segments_of_page(geometry, number);
        let entries: Vec<UsageEntry> = self.rows(segments).collect();
        if entries.iter().all(|row| *row == UsageEntry::default()) {
            self.blank.insert(number);
        }
        let page = UsagePage { number, epoch, entries };
        self.note_written(&page);
        page
    }

    /// A page that is null from now on.
    pub fn leave_out(&mut self, geometry: &Geometry, number: u32) {
        let rows = usage::segments_of_page(geometry, number).len();
        let entries = vec![UsageEntry::default(); rows];
        self.note_written(&UsagePage { number, epoch: 0, entries });
    }

    #[cfg(debug_assertions)]
    fn note_written(&mut self, page: &UsagePage) {
        let start = (page.number * usage::PAGE_SEGMENTS) as usize;
        self.written[start..start + page.entries.len()].copy_from_slice(&page.entries);
    }

    #[cfg(not(debug_assertions))]
    fn note_written(&mut self, _: &UsagePage) {}

    /// Sums over all rows.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Segments that the table calls free, and which may be given out when it is durable.
    pub fn unneeded(&self) -> impl Iterator<Item = (u32, UsageEntry)> {
        self.unneeded.iter().map(|seg| (*seg, self.entries[*seg as usize]))
    }

    /// The checkpoint is durable.
    pub fn published(&mut self) {
        self.due = std::mem::take(&mut self.blank);
    }

    /// All rows.
    pub fn table(&self, positions: [Addr; STREAMS]) -> UsageTable {
        let entries = self.rows(0..self.entries.len() as u32).collect();
        UsageTable { positions, entries }
    }

    /// Whether what is on the device, once all that is due has been written, is the whole table.
    #[cfg(debug_assertions)]
    pub fn is_written(&self) -> bool {
        self.due.is_empty()
            && self.rows(0..self.entries.len() as u32).eq(self.written.iter().copied())
    }
}

/// Whether a segment is one that the checkpoint leaves behind.
fn is_unneeded(entry: &UsageEntry) -> bool {
    entry.kind.holds_objects() && entry.sealed && entry.live.get() == 0
}
