//! Space accounting of a checkpoint: freeze the state, account for what is written meanwhile,
//! supply the due pages of the usage table, and free the segments that the finished checkpoint no
//! longer needs. The proof that this is safe is in the crate's documentation.
//!
//! ```text
//! freeze          no transaction in flight: the state at one LSN
//!   meta_add/sub  the checkpoint writes nodes to new places; counted in both states
//! next_due        a page with a changed row: to be given an address, which changes rows
//! page, root      their contents once the checkpoint is durable, when no more page is due
//!   (the caller writes table and checkpoint, flushes, writes the superblock)
//! committed       frees segments that nothing needs any more
//! ```
//!
//! The cost of each step is proportional to the changes since the previous checkpoint, not to the
//! number of segments. The table is kept in memory from one checkpoint to the next (`shadow.rs`),
//! at 8 bytes per segment, and every change of a segment marks it (`changed.rs`).

use crate::segment::Segment;
use crate::shadow::Shadow;
use crate::space::{Open, Space};
use shoal_base::{Addr, SegNo};
use shoal_format::declare::U48;
use shoal_format::usage::{STREAMS, UsagePage, UsageRoot};
use shoal_format::usage::{SegKind, UsageEntry, UsageTable};
use std::sync::atomic::Ordering;

/// The state of all segments at one LSN, plus the changes by the checkpoint's own writes.
pub struct Frozen {
    shadow: Shadow,
    positions: [Addr; STREAMS],
    /// Number of this freeze.
    number: u64,
}

/// Space accounting of a checkpoint: [`Space::checkpointing`].
#[derive(Clone, Copy)]
pub struct Checkpointing<'s>(&'s Space);

impl Space {
    /// Returns the calls for a checkpoint.
    #[inline]
    pub fn checkpointing(&self) -> Checkpointing<'_> {
        Checkpointing(self)
    }

    fn addr_of(&self, at: Open) -> Addr {
        Addr(self.geometry.start_of(at.seg).0 + at.next)
    }
}

impl Checkpointing<'_> {
    /// Returns the current state. Must be called while no transaction is in flight, and only after
    /// the state of the previous freeze was passed to [`Checkpointing::committed`] or dropped. If
    /// it was dropped, all pages are due.
    pub fn freeze(self) -> Frozen {
        // The locks of all streams keep a segment from being seen half sealed; the free map's lock
        // keeps segments from being allocated.
        let streams: Vec<_> = self.0.streams.iter().map(|s| s.lock()).collect();
        let _kinds = self.0.free.lock();
        let mut positions = [Addr(0); STREAMS];
        for (position, stream) in positions.iter_mut().zip(&streams) {
            *position = stream.map_or(Addr(0), |at| self.0.addr_of(at));
        }
        let now = |segment: &Segment| {
            let kind = segment.kind();
            let objects = kind.holds_objects();
            UsageEntry {
                live: U48::new(if objects { segment.counted() } else { 0 }),
                kind,
                sealed: objects && segment.sealed.load(Ordering::Acquire),
            }
        };
        let known = self.0.shadow.lock().take();
        let mut shadow = match known {
            Some(mut shadow) => {
                self.0.changed.take(|seg| shadow.set(seg, now(&self.0.segments[seg as usize])));
                shadow
            }
            None => {
                self.0.changed.take(|_| {});
                Shadow::unwritten(&self.0.geometry, self.0.segments.iter().map(now).collect())
            }
        };
        let rewrites = std::mem::take(&mut *self.0.rewrites.lock());
        rewrites.into_iter().for_each(|page| shadow.rewrite(&self.0.geometry, page));
        Frozen { shadow, positions, number: self.0.freezes.fetch_add(1, Ordering::Relaxed) }
    }

    /// Makes the next checkpoint write this page of the usage table, and its index page, even if
    /// unchanged: the cleaner is emptying a segment that contains it.
    pub fn rewrite_page(self, page: u32) {
        self.0.rewrites.lock().insert(page);
    }

    /// Accounts for metadata that the checkpoint has written, in the frozen and in the current
    /// state.
    pub fn meta_add(self, frozen: &mut Frozen, addr: Addr, len: u32) {
        self.0.add_live(addr, len);
        self.0.count_meta(SegKind::Meta, i64::from(len));
        let seg = self.0.geometry.segment_of(addr).0;
        let Some(entry) = frozen.shadow.entry(seg) else { return };
        let live = U48::new(entry.live.get() + u64::from(len));
        // The segment may have been allocated since the freeze.
        frozen.shadow.set(seg, UsageEntry { kind: SegKind::Meta, live, ..entry });
    }

    /// Accounts for metadata that the checkpoint no longer points to, in the frozen and in the
    /// current state.
    pub fn meta_sub(self, frozen: &mut Frozen, addr: Addr, len: u32) {
        self.0.sub_live(addr, len);
        self.0.count_meta(SegKind::Meta, -i64::from(len));
        let seg = self.0.geometry.segment_of(addr).0;
        let Some(entry) = frozen.shadow.entry(seg) else { return };
        match entry.live.get().checked_sub(len.into()) {
            Some(live) => frozen.shadow.set(seg, UsageEntry { live: U48::new(live), ..entry }),
            None => self.0.accounting_error(),
        }
    }

    /// Frees the segments to which neither the checkpoint, which is now durable, nor a later record
    /// points. Returns their number.
    pub fn committed(self, frozen: Frozen) -> usize {
        let Frozen { mut shadow, number, .. } = frozen;
        let streams: Vec<_> = self.0.streams.iter().map(|s| s.lock()).collect();
        let open = |seg: u32| streams.iter().any(|s| s.is_some_and(|at| at.seg.0 == seg));
        let mut freed = 0;
        for (seg, then) in shadow.unneeded() {
            let now = &self.0.segments[seg as usize];
            // Read first: the last holder accounted for its writes before it released the hold.
            let held = now.held.load(Ordering::Acquire) != 0;
            // Otherwise a record since the freeze points to it.
            let untouched =
                then.kind == SegKind::Meta || now.touched.load(Ordering::Relaxed) <= number;
            let empty =
                now.live.load(Ordering::Relaxed) == 0 && now.pinned.load(Ordering::Relaxed) == 0;
            if untouched && !held && empty && now.kind() == then.kind && !open(seg) {
                self.0.release(SegNo(seg));
                freed += 1;
            }
        }
        shadow.published();
        *self.0.shadow.lock() = Some(shadow);
        freed
    }
}

impl Frozen {
    /// Returns the next page of the usage table with a row that changed since the page was last
    /// returned. Allocating an address for the page, and freeing its old one, change rows, possibly
    /// of further pages or of this one. Must be called until it returns `None`.
    pub fn next_due(&mut self, space: &Space) -> Option<u32> {
        self.settle(space);
        self.shadow.next_due()
    }

    /// Updates the position of the metadata stream.
    fn settle(&mut self, space: &Space) {
        let open = *space.streams[0].lock();
        self.shadow.set_open(open.map(|at| at.seg.0));
    }

    /// Returns whether a page has only free segments, and need not be written.
    pub fn is_blank(&self, space: &Space, page: u32) -> bool {
        self.shadow.is_blank(&space.geometry, page)
    }

    /// Returns a page for writing. Must be called when everything that the checkpoint writes has
    /// been allocated, including the table and the checkpoint record.
    pub fn page(&mut self, space: &Space, number: u32, epoch: u64) -> UsagePage {
        self.shadow.page(&space.geometry, number, epoch)
    }

    /// Notes that a page is not written. Its pointer is null from now on.
    pub fn leave_out(&mut self, space: &Space, number: u32) {
        self.shadow.leave_out(&space.geometry, number);
    }

    /// Returns the root without pointers to index pages. Must be called when all due pages have
    /// been returned.
    pub fn root(&mut self, space: &Space, epoch: u64) -> UsageRoot {
        #[cfg(debug_assertions)]
        {
            let table = self.table(space);
            assert_eq!(table.verify(&space.geometry, &self.shadow.totals()), Ok(()));
            assert!(self.shadow.is_written(), "a row has changed on a page that was not due");
        }
        let (positions, totals) = (self.positions(space), self.shadow.totals());
        UsageRoot { epoch, positions, totals, indexes: Vec::new() }
    }

    /// The whole table as it is on the device once the checkpoint is durable.
    pub fn table(&mut self, space: &Space) -> UsageTable {
        self.settle(space);
        self.shadow.table(self.positions(space))
    }

    /// Positions of the streams: that of metadata now, those of data at the freeze; the journal has
    /// the later ones.
    fn positions(&self, space: &Space) -> [Addr; STREAMS] {
        let meta = *space.streams[0].lock();
        let mut positions = self.positions;
        positions[0] = meta.map_or(Addr(0), |at| space.addr_of(at));
        positions
    }
}
