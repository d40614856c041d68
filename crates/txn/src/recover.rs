//! Recovery: replays the journal of a session that ended in a crash, within the memory of the
//! cache.
//!
//! | step | action | if it fails or the machine stops here |
//! | --- | --- | --- |
//! | 1 | read batches in order; collect their records in a window, up to the first whose data did not arrive (`arrived.rs`) | nothing has changed |
//! | 2 | when the window is full, read ahead the objects that its records use (`prefetch.rs`), then apply them in order | the same |
//! | 3 | if much must be written, write an *intermediate* checkpoint that covers the replayed records | the next recovery begins there |
//! | 4 | go on with the records that a killed process left in its ring, if that outlived it ([`shoal_journal::RingMemory`]) | nothing has changed |
//! | 5 | at the end, write a checkpoint of the next incarnation, and the other copy of the superblock | the next recovery replays the same records |
//! | 6 | free the segments of the journal | |
//!
//! # Intermediate checkpoints
//!
//! Problem: replay makes the same objects dirty as the crashed session, possibly more than this
//! opener's cache can hold. Dirty objects can be evicted only after a checkpoint has written them.
//!
//! Rule: a checkpoint between two batches records the old incarnation and the position of the next
//! batch. To the next recovery it is a checkpoint that the crashed session made at that moment.
//!
//! Proof, by the possible objections:
//!
//! 1. *It overwrites what later records need.* The usage table does not yet know the targets of
//!    those records: it says that their segments are free. So before the first intermediate
//!    checkpoint the rest of the journal is read to its end; all segments of the journal and all
//!    targets of its records are claimed, and held until recovery ends. A segment that is free then
//!    was free for the crashed session all the time since its last checkpoint, or holds an
//!    unfinished one.
//! 2. *It overwrites what the previous checkpoint needs.* No more than any checkpoint does: its
//!    nodes go to free segments, and segments used by the older one are freed when this one is
//!    durable.
//! 3. *Damage is found later.* Damage of the journal is found by the first reading to its end,
//!    before anything is written. Damaged metadata may be found later; what was written by then is
//!    the state that a session would have had on its device at that moment.
//! 4. *It uses space that the last checkpoint needs.* It is written only if its writes take at most
//!    a quarter of the free segments. Otherwise replay continues in memory. Dirty metadata is then
//!    bounded by what the crashed session allowed: at most half of the space that was free, or
//!    three quarters of *its* cache ([`Store::begin`]).
//! 5. *Open intents and orphans.* They are part of every checkpoint, as of the last replayed
//!    record.
//!
//! A volume opened read-only cannot be written to: its replay stays in memory, within the bound of
//! 4.

use crate::arrived::Arrived;
use crate::prefetch::{ReadMax, Wanted};
use crate::recent::Recent;
use crate::replay::{Replay, for_each_extent};
use crate::store::Store;
use shoal_base::{Ino, Lsn, Result, SegNo};
use shoal_format::superblock::Superblock;
use shoal_format::usage::SegKind;
use shoal_journal::{JournalPos, Scanner, StartAt};
use shoal_space::Hold;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Maximum bytes of records in a window.
const WINDOW_BYTES: u64 = 4 << 20;

/// The result of a replay.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recovered {
    /// The volume was not closed cleanly.
    pub needed: bool,
    /// Records replayed.
    pub records: u64,
    /// Those of them that were only in the ring of a process that was killed.
    pub kept: u64,
    /// Bytes of journal read.
    pub bytes: u64,
    /// Description of the torn tail, if there was one.
    pub torn: Option<String>,
    /// Inodes in the last records ([`StoreOptions::recent`](crate::StoreOptions::recent)), in no
    /// order.
    pub recent: Vec<Ino>,
}

/// Recovers a volume that was not closed cleanly, or whose size changes: replay, then a checkpoint
/// of the next incarnation.
pub(crate) fn recover(store: &Store, sb: &Superblock, start: JournalPos) -> Result<Recovered> {
    let scanner = |from: JournalPos| {
        let incarnation = sb.incarnation;
        Scanner::new(&*store.device, &store.geometry, store.volume, incarnation, from)
    };
    let mut scan = scanner(start)?;
    let (mut arrived, mut records) = (Arrived::new(store, sb, start), 0);
    let mut window = Window::new(store);
    let mut held = None;
    // Read to its end, also behind a record without its data: for its segments.
    while scan.step(&mut |lsn, record| match arrived.has(lsn, record)? {
        true => {
            records += 1;
            window.add(lsn, record)
        }
        false => Ok(()),
    })? {
        if arrived.missing().is_some() || !store.replay_is_large() {
            continue;
        }
        window.apply()?;
        if held.is_none() {
            held = Some(claim_rest(store, sb, &scan, scanner(scan.position())?)?);
        }
        store.checkpoint_replayed(scan.position())?;
    }
    let mut end = scan.finish();
    if let Some(missing) = arrived.missing() {
        end.end.lsn = missing.lsn;
        end.torn = Some(missing.text.clone());
    }
    let kept = store.records_kept(sb, end.end.lsn, &mut |lsn, record| window.add(lsn, record))?;
    let recent = window.finish()?;
    drop(held);
    if let Some(memory) = store.ring.get() {
        // Before anything is staged.
        memory.settle_calls(kept.end.0);
    }
    if kept.count > 0 || sb.clean {
        // The ring has the torn batch, whole; or the volume was closed, and its size changes.
        end.torn = None;
    }
    let recovered = Recovered {
        needed: !sb.clean,
        records: records + kept.count,
        kept: kept.count,
        bytes: end.bytes + (kept.end.0 - end.end.lsn.0),
        torn: end.torn,
        recent,
    };
    if store.options.read_only {
        store.replayed.store(kept.end.0, Ordering::Relaxed);
        // A checkpoint may have been under way in the crash. Objects of the records behind it were
        // born in the epoch that it had begun.
        store.epoch.fetch_add(1, Ordering::Relaxed);
        return Ok(recovered);
    }
    for seg in &end.segments {
        store.space.recovery().claim(*seg, SegKind::Journal)?;
    }
    begin_anew(store, sb, kept.end, kept.count > 0)?;
    store.space.release_journal_segments(&end.segments);
    Ok(recovered)
}

/// Begins a new journal at `lsn`, and writes a checkpoint of the next incarnation and the other
/// copy of the superblock. Journal batches of the old incarnation stay readable until the
/// checkpoint is published: if the machine stops before, they are replayed again. What only the
/// ring of a killed process had cannot be: with any of it, the checkpoint must be durable, because
/// the ring is used again.
pub(crate) fn begin_anew(store: &Store, sb: &Superblock, lsn: Lsn, had_kept: bool) -> Result<()> {
    let incarnation = sb.incarnation.wrapping_add(1);
    store.start_journal(incarnation, StartAt::Fresh { lsn })?;
    store.published.lock().superblock.incarnation = incarnation;
    match had_kept {
        true => store.checkpoints().write()?,
        false => store.checkpoints().write_recovered()?,
    }
    store.write_other_copy()
}

impl Store {
    /// Returns whether replay has made so much dirty that it should be written.
    fn replay_is_large(&self) -> bool {
        let large = self.dirty_held() > self.options.cache_bytes * 3 / 8;
        large && !self.options.read_only && self.room().is_ample()
    }
}

/// Records that were found in the ring of a killed process.
struct Kept {
    count: u64,
    /// End of the last one; where the device's journal ends, if there is none.
    end: Lsn,
}

impl Store {
    /// Reads the records that follow those of the device's journal, which ends at `from`.
    fn records_kept(
        &self,
        sb: &Superblock,
        from: Lsn,
        each: &mut dyn FnMut(Lsn, &[u8]) -> Result<()>,
    ) -> Result<Kept> {
        let mut count = 0;
        let mut counted = |lsn: Lsn, record: &[u8]| {
            count += 1;
            each(lsn, record)
        };
        let end = match self.ring.get() {
            Some(memory) => memory.records(self.volume, sb.incarnation, from, &mut counted)?,
            None => from,
        };
        Ok(Kept { count, end })
    }
}

/// Claims the segments of the journal, and the targets of its records from `rest` on, until the
/// result is dropped.
fn claim_rest<'s>(
    store: &'s Store,
    sb: &Superblock,
    scanned: &Scanner<'_>,
    mut rest: Scanner<'_>,
) -> Result<Vec<Hold<'s>>> {
    let mut data = BTreeMap::new();
    let mut note = |_: Lsn, record: &[u8]| {
        for_each_extent(record, &mut |_, extent| {
            // A target outside the volume is reported when the record is replayed.
            if !extent.is_prealloc() && store.geometry.contains(extent.ptr.addr, 1) {
                data.insert(store.geometry.segment_of(extent.ptr.addr), extent.ptr.addr);
            }
        });
        Ok(())
    };
    while rest.step(&mut note)? {}
    store.records_kept(sb, rest.position().lsn, &mut note)?;
    for seg in scanned.segments().iter().chain(rest.segments()) {
        store.space.recovery().claim(*seg, SegKind::Journal)?;
    }
    let hold = |(seg, addr): (SegNo, _)| {
        store.space.recovery().claim(seg, SegKind::Data)?;
        Ok(store.space.hold(addr))
    };
    data.into_iter().map(hold).collect()
}

/// Records that have been read and not applied yet.
struct Window<'s> {
    store: &'s Store,
    replay: Replay<'s>,
    read_max: ReadMax,
    wanted: Wanted,
    recent: Recent,
    bytes: Vec<u8>,
    /// For each record, the LSN just after it and its end in `bytes`.
    records: Vec<(Lsn, usize)>,
    bytes_max: usize,
}

impl<'s> Window<'s> {
    fn new(store: &'s Store) -> Window<'s> {
        Window {
            store,
            replay: Replay::new(store),
            read_max: ReadMax::of(store),
            wanted: Wanted::default(),
            recent: Recent::new(store.options.recent),
            bytes: Vec::new(),
            records: Vec::new(),
            bytes_max: WINDOW_BYTES.min(store.options.cache_bytes / 32) as usize,
        }
    }

    fn add(&mut self, lsn: Lsn, record: &[u8]) -> Result<()> {
        self.wanted.note(record);
        self.recent.note(record);
        self.bytes.extend_from_slice(record);
        self.records.push((lsn, self.bytes.len()));
        match self.bytes.len() >= self.bytes_max || self.wanted.is_full(self.read_max) {
            true => self.apply(),
            false => Ok(()),
        }
    }

    fn apply(&mut self) -> Result<()> {
        self.wanted.read(self.store, self.read_max);
        let mut start = 0;
        for (lsn, end) in self.records.drain(..) {
            self.replay.record(lsn, &self.bytes[start..end])?;
            start = end;
        }
        self.bytes.clear();
        self.read_max = ReadMax::of(self.store);
        Ok(())
    }

    /// Returns the inodes of the last records.
    fn finish(mut self) -> Result<Vec<Ino>> {
        self.apply()?;
        self.replay.finish();
        Ok(self.recent.inodes())
    }
}
