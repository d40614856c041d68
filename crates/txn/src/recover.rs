//! Recovery: the journal of a session that ended in a crash is replayed, in the memory that the
//! cache may take.
//!
//! | step | what | when it fails or the machine stops here |
//! | --- | --- | --- |
//! | 1 | batches are read in order; their records gather in a window | nothing has changed |
//! | 2 | the window is full: what its records touch is read ahead (`prefetch.rs`), then they are applied in order | the same |
//! | 3 | much has still to be written: a checkpoint *on the way* covers what is replayed | the next recovery begins there |
//! | 4 | the end: a checkpoint of the next incarnation, the other copy of the superblock | the next recovery replays the same again |
//! | 5 | the segments of the journal are free | |
//!
//! # A checkpoint on the way
//!
//! Replay makes dirty what the crashed session had made dirty, which may be more than this opener's
//! cache. What is dirty can leave memory only when a checkpoint has written it. One between two
//! batches names the old incarnation and the place of the next batch, so to the next recovery it is
//! a checkpoint of the crashed session, made at that moment. What could be wrong with that, and why
//! it is not:
//!
//! 1. *It overwrites what records behind it need.* The usage table does not know yet what they
//!    point to: to it, those segments are free. So before the first one the rest of the journal is
//!    read to its end; all segments of the journal and all that a record points into are claimed,
//!    and held until recovery ends. What is free then was free for the crashed session all the time
//!    since its last checkpoint, or holds an unfinished one.
//! 2. *It overwrites what the checkpoint before it needs.* No more than any checkpoint does: its
//!    nodes go to free segments, and what the older one used is freed when this one is durable.
//! 3. *Damage that is found later.* Damage of the journal is found by that first reading to its
//!    end, before anything is written. Damaged metadata may be met later; what was written by then
//!    is the state that a session would have had on its device at that moment.
//! 4. *It takes room that the last checkpoint needs.* It is written only while what it writes is a
//!    quarter of the free segments at most. Without that much, replay goes on in memory: then dirty
//!    metadata is bounded by what the crashed session let gather, which is at most half of the
//!    space that was free, or three quarters of *its* cache ([`Store::begin`]).
//! 5. *Open intents and orphans.* They are part of every checkpoint, as of the last record
//!    replayed.
//!
//! A volume that is opened read-only cannot be written to: its replay stays in memory, within the
//! bound of 4.

use crate::open::Recovered;
use crate::prefetch::{Room, Wanted};
use crate::replay::{Replay, for_each_extent};
use crate::store::Store;
use shoal_base::{Lsn, Result, SegNo};
use shoal_format::superblock::Superblock;
use shoal_format::usage::SegKind;
use shoal_journal::{JournalPos, Scanner, StartAt};
use shoal_space::Hold;
use std::collections::BTreeMap;

/// Bytes of records in a window, at most.
const WINDOW_BYTES: u64 = 4 << 20;

/// A volume that was not closed: replay, then a checkpoint of the next incarnation.
pub(crate) fn recover(store: &Store, sb: &Superblock, start: JournalPos) -> Result<Recovered> {
    let scanner = |from: JournalPos| {
        let incarnation = sb.incarnation;
        Scanner::new(&*store.device, &store.geometry, store.volume, incarnation, from)
    };
    let mut scan = scanner(start)?;
    let mut window = Window::new(store);
    let mut held = None;
    while scan.step(&mut |lsn, record| window.add(lsn, record))? {
        if !store.replay_is_large() {
            continue;
        }
        window.apply()?;
        if held.is_none() {
            held = Some(claim_rest(store, &scan, scanner(scan.position())?)?);
        }
        store.checkpoint_replayed(scan.position())?;
    }
    window.finish()?;
    drop(held);
    let end = scan.finish();
    let recovered =
        Recovered { needed: true, records: end.records, bytes: end.bytes, torn: end.torn };
    if store.options.read_only {
        return Ok(recovered);
    }
    for seg in &end.segments {
        store.space.claim(*seg, SegKind::Journal)?;
    }
    // Journal batches of the old incarnation stay readable until the new checkpoint is published:
    // should the machine stop before, they are replayed again.
    let incarnation = sb.incarnation.wrapping_add(1);
    store.start_journal(incarnation, StartAt::Fresh { lsn: end.end.lsn })?;
    store.published.lock().superblock.incarnation = incarnation;
    store.checkpoint()?;
    store.write_other_copy()?;
    store.space.release_journal_segments(&end.segments);
    Ok(recovered)
}

impl Store {
    /// Whether replay has made so much dirty that it should be written.
    fn replay_is_large(&self) -> bool {
        let large = self.dirty_held() > self.options.cache_bytes * 3 / 8;
        large && !self.options.read_only && self.has_ample_room()
    }
}

/// Claims the segments of the journal, and what its records from `rest` on point into, for as long
/// as what is returned exists.
fn claim_rest<'s>(
    store: &'s Store,
    scanned: &Scanner<'_>,
    mut rest: Scanner<'_>,
) -> Result<Vec<Hold<'s>>> {
    let mut data = BTreeMap::new();
    let mut note = |_: Lsn, record: &[u8]| {
        for_each_extent(record, &mut |extent| {
            // What is nowhere on the volume is found when it is replayed.
            if !extent.is_prealloc() && store.geometry.contains(extent.ptr.addr, 1) {
                data.insert(store.geometry.segment_of(extent.ptr.addr), extent.ptr.addr);
            }
        });
        Ok(())
    };
    while rest.step(&mut note)? {}
    for seg in scanned.segments().iter().chain(rest.segments()) {
        store.space.claim(*seg, SegKind::Journal)?;
    }
    let hold = |(seg, addr): (SegNo, _)| {
        store.space.claim(seg, SegKind::Data)?;
        Ok(store.space.hold(addr))
    };
    data.into_iter().map(hold).collect()
}

/// Records that have been read and not yet applied.
struct Window<'s> {
    store: &'s Store,
    replay: Replay<'s>,
    room: Room,
    wanted: Wanted,
    bytes: Vec<u8>,
    /// The number just past each record, and where it ends in `bytes`.
    records: Vec<(Lsn, usize)>,
    bytes_max: usize,
}

impl<'s> Window<'s> {
    fn new(store: &'s Store) -> Window<'s> {
        Window {
            store,
            replay: Replay::new(store),
            room: Room::of(store),
            wanted: Wanted::default(),
            bytes: Vec::new(),
            records: Vec::new(),
            bytes_max: WINDOW_BYTES.min(store.options.cache_bytes / 32) as usize,
        }
    }

    fn add(&mut self, lsn: Lsn, record: &[u8]) -> Result<()> {
        self.wanted.note(record);
        self.bytes.extend_from_slice(record);
        self.records.push((lsn, self.bytes.len()));
        match self.bytes.len() >= self.bytes_max || self.wanted.is_full(self.room) {
            true => self.apply(),
            false => Ok(()),
        }
    }

    fn apply(&mut self) -> Result<()> {
        self.wanted.read(self.store, self.room);
        let mut start = 0;
        for (lsn, end) in self.records.drain(..) {
            self.replay.record(lsn, &self.bytes[start..end])?;
            start = end;
        }
        self.bytes.clear();
        self.room = Room::of(self.store);
        Ok(())
    }

    fn finish(mut self) -> Result<()> {
        self.apply()?;
        self.replay.finish();
        Ok(())
    }
}
