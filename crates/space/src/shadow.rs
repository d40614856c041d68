//! The usage table of the newest checkpoint, or of the one being written. Kept in memory from one
//! to the next, so that a checkpoint changes only the rows that have changed, and knows from that
//! the pages to write and the totals.

use shoal_base::Addr;
use shoal_format::Geometry;
use shoal_format::usage::{
    self, STREAMS, SegKind, Totals, UsageEntry, UsagePage, UsageTable, page_of,
};
use std::collections::BTreeSet;

/// The table.
pub(crate) struct Shadow {
    /// The segments at the freeze, plus the changes by the checkpoint's own writes. Metadata
    /// segments are always sealed here; `open` has the exception.
    entries: Vec<UsageEntry>,
    /// The segment in which the metadata stream continues.
    open: Option<u32>,
    /// Sums over all rows.
    totals: Totals,
    /// Sealed segments without live bytes: free in the table, and soon in memory too.
    unneeded: BTreeSet<u32>,
    /// Pages with a changed row.
    due: BTreeSet<u32>,
    /// Pages that were written without contents: null in the next checkpoint.
    blank: BTreeSet<u32>,
    /// The rows on the device, for a comparison when everything is written.
    #[cfg(debug_assertions)]
    written: Vec<UsageEntry>,
}

impl Shadow {
    /// The table of a volume to which nothing has been written.
    pub(crate) fn fresh(geometry: &Geometry) -> Shadow {
        let mut entries = vec![UsageEntry::default(); geometry.segments as usize];
        entries[0].kind = SegKind::Super;
        let mut shadow = Shadow::unwritten(geometry, entries);
        // All other pages have only free segments, which null pointers express.
        shadow.due = BTreeSet::from([0]);
        shadow
    }

    /// A table whose on-disk version is unknown: every page is due.
    pub(crate) fn unwritten(geometry: &Geometry, entries: Vec<UsageEntry>) -> Shadow {
        let mut shadow = Shadow::of(entries, None);
        shadow.due = (0..usage::pages(geometry)).collect();
        #[cfg(debug_assertions)]
        shadow.written.fill(UsageEntry::default());
        shadow
    }

    /// The table on the device.
    pub(crate) fn loaded(geometry: &Geometry, table: UsageTable) -> Shadow {
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

    /// The segment at the freeze, plus the changes by the checkpoint's own writes.
    pub(crate) fn entry(&self, seg: u32) -> Option<UsageEntry> {
        self.entries.get(seg as usize).copied()
    }

    /// Changes a segment of the volume.
    pub(crate) fn set(&mut self, seg: u32, mut entry: UsageEntry) {
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

    /// Sets the segment in which the metadata stream continues.
    pub(crate) fn set_open(&mut self, open: Option<u32>) {
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

    /// The row of a segment: its state once the checkpoint is durable.
    fn row(&self, seg: u32) -> UsageEntry {
        let entry = self.entries[seg as usize];
        if self.open == Some(seg) {
            // Possibly allocated since the freeze, without live bytes.
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

    /// Makes a page due although no row has changed.
    pub(crate) fn rewrite(&mut self, geometry: &Geometry, page: u32) {
        if page < usage::pages(geometry) {
            self.due.insert(page);
        }
    }

    /// Removes and returns the lowest page with a row that changed since it was last returned.
    pub(crate) fn next_due(&mut self) -> Option<u32> {
        self.due.pop_first()
    }

    /// Returns whether all segments of a page are free.
    pub(crate) fn is_blank(&self, geometry: &Geometry, page: u32) -> bool {
        let mut rows = self.rows(usage::segments_of_page(geometry, page));
        rows.all(|row| row == UsageEntry::default())
    }

    /// Returns a page for writing.
    pub(crate) fn page(&mut self, geometry: &Geometry, number: u32, epoch: u64) -> UsagePage {
        let segments = usage::segments_of_page(geometry, number);
        let entries: Vec<UsageEntry> = self.rows(segments).collect();
        if entries.iter().all(|row| *row == UsageEntry::default()) {
            self.blank.insert(number);
        }
        let page = UsagePage { number, epoch, entries };
        self.note_written(&page);
        page
    }

    /// Notes that a page is null from now on.
    pub(crate) fn leave_out(&mut self, geometry: &Geometry, number: u32) {
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
    pub(crate) fn totals(&self) -> Totals {
        self.totals
    }

    /// Segments that are free in the table, and can be reused when it is durable.
    pub(crate) fn unneeded(&self) -> impl Iterator<Item = (u32, UsageEntry)> {
        self.unneeded.iter().map(|seg| (*seg, self.entries[*seg as usize]))
    }

    /// Notes that the checkpoint is durable.
    pub(crate) fn published(&mut self) {
        self.due = std::mem::take(&mut self.blank);
    }

    /// All rows.
    pub(crate) fn table(&self, positions: [Addr; STREAMS]) -> UsageTable {
        let entries = self.rows(0..self.entries.len() as u32).collect();
        UsageTable { positions, entries }
    }

    /// Returns whether the device has the whole table once all due pages are written.
    #[cfg(debug_assertions)]
    pub(crate) fn is_written(&self) -> bool {
        self.due.is_empty()
            && self.rows(0..self.entries.len() as u32).eq(self.written.iter().copied())
    }
}

/// Returns whether the checkpoint no longer needs a segment.
fn is_unneeded(entry: &UsageEntry) -> bool {
    entry.kind.holds_objects() && entry.sealed && entry.live.get() == 0
}
