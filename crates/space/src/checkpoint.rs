//! The space side of a checkpoint: freeze, account for what is written meanwhile, say which pages
//! of the usage table are due and what is in them, and free what the finished checkpoint no longer
//! needs. The argument why that is safe heads the crate.
//!
//! ```text
//! freeze          no transaction in flight: the state at one LSN
//!   meta_add/sub  the checkpoint writes nodes to new places; counted in both states
//! next_due        a page in which a row has changed: to be given an address, which changes rows
//! page, root      what they say once the checkpoint is durable, when no more page is due
//!   (the caller writes table and checkpoint, flushes, swings the superblock)
//! committed       segments that nothing needs any more become free
//! ```
//!
//! Each of these costs as much as has changed since the checkpoint before, not as much as there are
//! segments: the table is kept in memory from one to the next (`shadow.rs`), and who changes a
//! segment marks it (`changed.rs`). It is 8 bytes a segment.

use crate::shadow::Shadow;
use crate::{SegKind, Segment, Space, UsageEntry, UsageTable};
use shoal_base::{Addr, SegNo};
use shoal_format::declare::U48;
use shoal_format::usage::{STREAMS, UsagePage, UsageRoot};
use std::sync::atomic::Ordering;

/// The state of all segments at one LSN, amended by what the checkpoint itself writes.
pub struct Frozen {
    shadow: Shadow,
    positions: [Addr; STREAMS],
    /// Which freeze this was.
    number: u64,
}

impl Space {
    /// The state now. To be called while no transaction is in flight, and not before the state of
    /// the freeze before has been given to [`Space::committed`] or dropped. If it was dropped, all
    /// pages are due.
    pub fn freeze(&self) -> Frozen {
        // All streams stand still while segments are copied, so no segment is seen half sealed; and
        // the free map, so that none is taken.
        let streams: Vec<_> = self.streams.iter().map(|s| s.lock()).collect();
        let _kinds = self.free.lock();
        let mut positions = [Addr(0); STREAMS];
        for (position, stream) in positions.iter_mut().zip(&streams) {
            *position = stream.map_or(Addr(0), |at| self.addr_of(at));
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
        let known = self.shadow.lock().take();
        let mut shadow = match known {
            Some(mut shadow) => {
                self.changed.take(|seg| shadow.set(seg, now(&self.segments[seg as usize])));
                shadow
            }
            None => {
                self.changed.take(|_| {});
                Shadow::unwritten(&self.geometry, self.segments.iter().map(now).collect())
            }
        };
        let rewrites = std::mem::take(&mut *self.rewrites.lock());
        rewrites.into_iter().for_each(|page| shadow.rewrite(&self.geometry, page));
        Frozen { shadow, positions, number: self.freezes.fetch_add(1, Ordering::Relaxed) }
    }

    /// The next checkpoint writes this page of the usage table, and its index page, anew: the
    /// cleaner empties a segment in which it is.
    pub fn rewrite_page(&self, page: u32) {
        self.rewrites.lock().insert(page);
    }

    /// The checkpoint has written metadata that it points to: counted in the frozen and in the
    /// current state.
    pub fn meta_add(&self, frozen: &mut Frozen, addr: Addr, len: u32) {
        self.add_live(addr, len);
        self.count_meta(SegKind::Meta, i64::from(len));
        let seg = self.geometry.segment_of(addr).0;
        let Some(entry) = frozen.shadow.entry(seg) else { return };
        let live = U48::new(entry.live.get() + u64::from(len));
        // The segment may have been taken since the freeze.
        frozen.shadow.set(seg, UsageEntry { kind: SegKind::Meta, live, ..entry });
    }

    /// The checkpoint no longer points to this metadata: counted in the frozen and in the current
    /// state.
    pub fn meta_sub(&self, frozen: &mut Frozen, addr: Addr, len: u32) {
        self.sub_live(addr, len);
        self.count_meta(SegKind::Meta, -i64::from(len));
        let seg = self.geometry.segment_of(addr).0;
        let Some(entry) = frozen.shadow.entry(seg) else { return };
        match entry.live.get().checked_sub(len.into()) {
            Some(live) => frozen.shadow.set(seg, UsageEntry { live: U48::new(live), ..entry }),
            None => self.accounting_error(),
        }
    }

    /// The checkpoint is durable: frees what neither it nor a later record points to. Returns how
    /// many segments that were.
    pub fn committed(&self, frozen: Frozen) -> usize {
        let Frozen { mut shadow, number, .. } = frozen;
        let streams: Vec<_> = self.streams.iter().map(|s| s.lock()).collect();
        let open = |seg: u32| streams.iter().any(|s| s.is_some_and(|at| at.seg.0 == seg));
        let mut freed = 0;
        for (seg, then) in shadow.unneeded() {
            let now = &self.segments[seg as usize];
            // Before the rest: who let go of it last had counted before what it had written.
            let held = now.held.load(Ordering::Acquire) != 0;
            // Else a record since the freeze names it.
            let untouched =
                then.kind == SegKind::Meta || now.touched.load(Ordering::Relaxed) <= number;
            let empty =
                now.live.load(Ordering::Relaxed) == 0 && now.pinned.load(Ordering::Relaxed) == 0;
            if untouched && !held && empty && now.kind() == then.kind && !open(seg) {
                self.release(SegNo(seg));
                freed += 1;
            }
        }
        shadow.published();
        *self.shadow.lock() = Some(shadow);
        freed
    }

    fn addr_of(&self, at: crate::Open) -> Addr {
        Addr(self.geometry.start_of(at.seg).0 + at.next)
    }
}

impl Frozen {
    /// The next page of the usage table in which a row has changed since it was last returned here.
    /// An address that is given to it, and one that it gives up, change rows: perhaps of further
    /// pages, perhaps of this one. To be called until there is none.
    pub fn next_due(&mut self, space: &Space) -> Option<u32> {
        self.settle(space);
        self.shadow.next_due()
    }

    /// Notes where the metadata stream is now.
    fn settle(&mut self, space: &Space) {
        let open = *space.streams[0].lock();
        self.shadow.set_open(open.map(|at| at.seg.0));
    }

    /// Whether a page has nothing but free segments, and need not be written.
    pub fn is_blank(&self, space: &Space, page: u32) -> bool {
        self.shadow.is_blank(&space.geometry, page)
    }

    /// A page as it is to be written. To be called when everything that the checkpoint writes has
    /// been allocated, the table itself and the checkpoint record included.
    pub fn page(&mut self, space: &Space, number: u32, epoch: u64) -> UsagePage {
        self.shadow.page(&space.geometry, number, epoch)
    }

    /// A page that is not written: what leads to it is null from now on.
    pub fn leave_out(&mut self, space: &Space, number: u32) {
        self.shadow.leave_out(&space.geometry, number);
    }

    /// The root without pointers to index pages, when all pages that are due have been asked for.
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

    /// The whole table, as it is on the device when the checkpoint is durable.
    pub fn table(&mut self, space: &Space) -> UsageTable {
        self.settle(space);
        self.shadow.table(self.positions(space))
    }

    /// Where the streams go on: data where it did at the freeze, as the journal tells the rest.
    fn positions(&self, space: &Space) -> [Addr; STREAMS] {
        let meta = *space.streams[0].lock();
        let mut positions = self.positions;
        positions[0] = meta.map_or(Addr(0), |at| space.addr_of(at));
        positions
    }
}
