//! The space side of a checkpoint: freeze, account for what is written meanwhile, encode, and free
//! what the finished checkpoint no longer needs. The argument why that is safe heads the crate.
//!
//! ```text
//! freeze          no transaction in flight: the state at one LSN
//!   meta_add/sub  the checkpoint writes nodes to new places; counted in both states
//! encode          the table that describes the checkpoint once it is durable
//!   (the caller writes table and checkpoint, flushes, swings the superblock)
//! committed       segments that nothing needs any more become free
//! ```

use crate::{SegKind, Segment, Space, UsageEntry, UsageTable};
use shoal_base::{Addr, SegNo};
use shoal_format::Geometry;
use shoal_format::usage::STREAMS;
use std::sync::atomic::Ordering;

/// The state of all segments at one LSN, amended by what the checkpoint itself writes.
pub struct Frozen {
    /// `sealed` is as at the freeze; for metadata it is decided anew when encoding.
    entries: Vec<UsageEntry>,
    positions: [Addr; STREAMS],
    /// Which freeze this was.
    number: u64,
}

/// Bytes of the usage table of a volume, known before it is written.
pub fn encoded_len(geometry: &Geometry) -> usize {
    UsageTable::encoded_len(geometry.segments)
}

impl Space {
    /// The state now. To be called while no transaction is in flight.
    pub fn freeze(&self) -> Frozen {
        // All streams stand still while segments are copied, so no segment is seen half sealed.
        let streams: Vec<_> = self.streams.iter().map(|s| s.lock()).collect();
        let mut positions = [Addr(0); STREAMS];
        for (position, stream) in positions.iter_mut().zip(&streams) {
            *position = stream.map_or(Addr(0), |at| self.addr_of(at));
        }
        let copy = |segment: &Segment| {
            let kind = segment.kind();
            let objects = matches!(kind, SegKind::Meta | SegKind::Data);
            UsageEntry {
                live: if objects { segment.live(&self.geometry) } else { 0 },
                kind,
                sealed: objects && segment.sealed.load(Ordering::Acquire),
            }
        };
        let entries = self.segments.iter().map(copy).collect();
        Frozen { entries, positions, number: self.freezes.fetch_add(1, Ordering::Relaxed) }
    }

    /// The checkpoint has written metadata that it points to: counted in the frozen and in the
    /// current state.
    pub fn meta_add(&self, frozen: &mut Frozen, addr: Addr, len: u32) {
        self.add_live(addr, len);
        self.count_meta(SegKind::Meta, i64::from(len));
        let seg = self.geometry.segment_of(addr).0 as usize;
        let Some(entry) = frozen.entries.get_mut(seg) else { return };
        // The segment may have been taken since the freeze.
        entry.kind = SegKind::Meta;
        match entry.live.checked_add(len) {
            Some(live) => entry.live = live,
            None => self.accounting_error(),
        }
    }

    /// The checkpoint no longer points to this metadata: counted in the frozen and in the current
    /// state.
    pub fn meta_sub(&self, frozen: &mut Frozen, addr: Addr, len: u32) {
        self.sub_live(addr, len);
        self.count_meta(SegKind::Meta, -i64::from(len));
        let seg = self.geometry.segment_of(addr).0 as usize;
        let Some(entry) = frozen.entries.get_mut(seg) else { return };
        match entry.live.checked_sub(len) {
            Some(live) => entry.live = live,
            None => self.accounting_error(),
        }
    }

    /// The checkpoint is durable: frees what neither it nor a later record points to. Returns how
    /// many segments that were.
    pub fn committed(&self, frozen: Frozen) -> usize {
        let streams: Vec<_> = self.streams.iter().map(|s| s.lock()).collect();
        let open = |seg: SegNo| streams.iter().any(|s| s.is_some_and(|at| at.seg == seg));
        let mut freed = 0;
        for (n, (then, now)) in frozen.entries.iter().zip(&self.segments).enumerate() {
            let seg = SegNo(n as u32);
            // Before the rest: who let go of it last had counted before what it had written.
            let held = now.held.load(Ordering::Acquire) != 0;
            let unneeded = match then.kind {
                // Else a record since the freeze names it.
                SegKind::Data => {
                    then.sealed && now.touched.load(Ordering::Relaxed) <= frozen.number
                }
                SegKind::Meta => true,
                SegKind::Free | SegKind::Super | SegKind::Journal => false,
            };
            let empty = then.live == 0
                && now.live.load(Ordering::Relaxed) == 0
                && now.pinned.load(Ordering::Relaxed) == 0;
            if unneeded && !held && empty && now.kind() == then.kind && !open(seg) {
                self.release(seg);
                freed += 1;
            }
        }
        freed
    }

    fn addr_of(&self, at: crate::Open) -> Addr {
        Addr(self.geometry.start_of(at.seg).0 + at.next)
    }
}

impl Frozen {
    /// The usage table on disk. To be called when everything that the checkpoint writes has been
    /// allocated, the table itself and the checkpoint record included.
    pub fn encode(&self, space: &Space) -> Vec<u8> {
        let table = self.table(space);
        debug_assert_eq!(table.verify(&space.geometry), Ok(()));
        table.encode()
    }

    fn table(&self, space: &Space) -> UsageTable {
        let meta = *space.streams[0].lock();
        let mut table = UsageTable { positions: self.positions, entries: self.entries.clone() };
        table.positions[0] = meta.map_or(Addr(0), |at| space.addr_of(at));
        for (n, entry) in table.entries.iter_mut().enumerate() {
            let open_meta = meta.is_some_and(|at| at.seg.0 as usize == n);
            if open_meta {
                // Taken since the freeze, perhaps, with nothing in it that counts.
                *entry = UsageEntry { kind: SegKind::Meta, sealed: false, ..*entry };
            } else if entry.kind == SegKind::Meta {
                entry.sealed = true;
            }
            if entry.sealed && entry.live == 0 {
                *entry = UsageEntry::default();
            }
        }
        table
    }
}
