//! The cleaner: empties segments in which little is live by moving what lives in them (after the
//! log-structured file systems), so that the next checkpoint frees them.
//!
//! Everything on the device says what it is: a data object names its file and offset, a node its
//! tree and lowest key, an inode block its number. The cleaner reads a segment from its start, asks
//! for each thing it recognises whether the volume still points to it *here*, and if so writes it
//! elsewhere: data through an ordinary transaction, metadata by marking it dirty.

use crate::data::inline_extents;
use crate::records::{self, CLEAN_EXTENTS};
use crate::volume::Inner;
use shoal_base::counters::Counter;
use shoal_base::limits::{ALIGN, EXTENT_MAX};
use shoal_base::{Addr, Code, Error, Ino, Result, SegNo};
use shoal_format::Compression;
use shoal_format::attr::KEY_HIGH;
use shoal_format::extent::{DataHeader, Extent, HEADER};
use shoal_format::inode::{BlockHeader, Form, Inode};
use shoal_format::item::Item;
use shoal_format::node::{NodeHeader, TreeId};
use shoal_format::root::RootPage;
use shoal_format::usage::{self, SegKind};
use shoal_itable::InodeRef;
use shoal_space::{COLD, Class, Hold};
use shoal_txn::Need;
use std::sync::atomic::Ordering;

/// Segments with more than this live are left alone: moving them gains too little.
const LIVE_MAX: f64 = 0.98;
/// The same while nobody wants anything: what is moved now may soon be dead anyway.
const LIVE_MAX_IDLE: f64 = 0.6;
/// Segments considered at a time.
const CONSIDERED: usize = 256;
/// Batches that gain nothing, one after the other, before cleaning gives up.
const VAIN: u32 = 8;
/// Bytes of journal since a refusal, or a checkpoint, from which on another checkpoint may free
/// metadata.
const CHANGED: u64 = 64 << 10;
/// Bytes that a checkpoint takes beside nodes and inode blocks.
const CHECKPOINT: u64 = 128 << 10;
/// Bytes that a call takes beside its own.
const BESIDE: u64 = 4096;
/// What a call learned that found no room, for those that come after it: while nothing has been
/// freed, there is none for them either.
#[derive(Clone, Copy)]
pub(crate) struct Refusal {
    /// Bytes wanted.
    bytes: u64,
    /// Bytes in use.
    used: u64,
    lsn: u64,
    /// Bytes that the host had.
    host: Option<u64>,
}

impl Inner {
    /// Whether a call that wants `bytes` need not even try to make room: not so much is there, or
    /// nothing has been freed since somebody tried for no more than that.
    pub(crate) fn is_hopeless(&self, bytes: u64) -> bool {
        let store = &self.store;
        let changed = |since: u64| store.lsn().0.saturating_sub(since) >= CHANGED;
        if changed(store.checkpoint_lsn().0) || self.is_reaping() || self.has_deleted_roots() {
            return false;
        }
        if store.available() < bytes.saturating_add(BESIDE) {
            return true;
        }
        let refusal = *self.refusal.lock();
        refusal.is_some_and(|r| {
            let host = store.space.host_is_short() && store.device.room() > r.host;
            bytes >= r.bytes && self.used() >= r.used && !changed(r.lsn) && !host
        })
    }

    /// Bytes that only freeing something can make fewer.
    fn used(&self) -> u64 {
        let promised = self.store.prealloc.load(Ordering::Relaxed).max(0) as u64;
        self.store.space.live_bytes() + self.store.space.pinned_bytes() + promised
    }

    fn refuse(&self, bytes: u64) {
        let (used, lsn, host) = (self.used(), self.store.lsn().0, self.store.device.room());
        *self.refusal.lock() = Some(Refusal { bytes, used, lsn, host });
    }

    /// Makes room for a call that found none: a checkpoint frees what is dead, then segments are
    /// cleaned. Returns whether there was room at the end.
    pub(crate) fn relieve(&self, bytes: u64) -> Result<bool> {
        let _one = self.cleaning.lock();
        if self.store.has_room(bytes) {
            return Ok(true);
        }
        // Somebody may have found out while this one waited.
        if self.is_hopeless(bytes) {
            return Ok(false);
        }
        let extra = u64::from(self.batch()) * self.store.geometry.segment_size;
        let ready = u64::from(self.store.space.ready_segments());
        if ready * self.store.geometry.segment_size < bytes.saturating_add(extra) / 2 {
            // What is wholly dead is too little: its checkpoint comes with that of the cleaning.
            self.clean_batch(LIVE_MAX, extra)?;
        }
        if !self.has_plenty(bytes, extra) {
            self.store.checkpoint()?;
        }
        if self.store.available() >= bytes.saturating_add(BESIDE) {
            self.clean_until(LIVE_MAX, extra, || self.has_plenty(bytes, extra))?;
        }
        let made = self.store.has_room(bytes);
        if !made {
            self.refuse(bytes);
        }
        Ok(made)
    }

    /// Whether there is room for a call, and for a while after it: each checkpoint for the last
    /// bytes of a segment would make less than the one before. When not so much is there, what
    /// there is.
    fn has_plenty(&self, bytes: u64, extra: u64) -> bool {
        let there = self.store.available().saturating_sub(bytes.saturating_add(BESIDE));
        self.store.has_room(bytes.saturating_add(extra.min(there / 2) / 2))
    }

    /// Makes room for a call that had been let in and then met others that took it. `false`: there
    /// is none.
    #[cold]
    pub(crate) fn make_room(&self, bytes: u64) -> Result<bool> {
        // What waits to be freed is no reason for a refusal.
        let reaped = self.reap_for(bytes)?;
        let _one = self.cleaning.lock();
        if !reaped && self.is_hopeless(bytes) {
            return Ok(false);
        }
        let before = self.store.space.free_segments();
        self.store.checkpoint()?;
        if self.store.space.free_segments() <= before {
            self.clean_batch(LIVE_MAX, self.store.geometry.segment_size)?;
        }
        let made = reaped || self.store.space.free_segments() > before;
        if !made {
            self.refuse(bytes);
        }
        Ok(made)
    }

    /// Refills the reserve by checkpoints and cleaning, before a call that may use it goes on. That
    /// call may still succeed when nothing can be gained.
    #[cold]
    pub(crate) fn refill_reserve(&self) -> Result<()> {
        let _one = self.cleaning.lock();
        if !self.store.is_tight() {
            return Ok(());
        }
        self.store.checkpoint()?;
        // More segments allocated on the host are of use, too; without them it goes on as it can.
        let _ = self.store.back();
        self.clean_until(LIVE_MAX, 0, || !self.store.is_tight())
    }

    /// Segments that cleaning gains at a time, beyond what is wanted: the more are dead the more,
    /// as each batch costs a checkpoint, and those that stay free are not there to grow emptier.
    fn batch(&self) -> u32 {
        let dead = self.store.space.dead_bytes() / self.store.geometry.segment_size;
        (dead / 8).clamp(1, 64) as u32
    }

    /// Free segments below which the background thread cleans, so that calls need not.
    fn low_water(&self) -> u32 {
        self.store.space.reserve_segments() + 1 + self.batch()
    }

    /// Whether the background thread should clean: few segments are free, and enough is dead.
    pub(crate) fn should_clean(&self) -> bool {
        let space = &self.store.space;
        let least = 8 * self.store.geometry.segment_size;
        space.free_segments() < self.low_water() && space.dead_bytes() > least
    }

    /// In the background: one batch, unless a call is at it. Whether that gained anything.
    pub(crate) fn clean_in_background(&self) -> Result<bool> {
        let Some(_one) = self.cleaning.try_lock() else { return Ok(false) };
        let before = self.store.space.free_segments();
        // Emptied by removals: a checkpoint alone frees them, and no other may be due for long.
        if self.store.space.ready_segments() >= self.batch() {
            self.store.checkpoint()?;
            return Ok(self.store.space.free_segments() > before);
        }
        let gain = u64::from(self.batch()) * self.store.geometry.segment_size;
        let moved = self.clean_batch(LIVE_MAX, gain)?;
        Ok(moved && self.store.space.free_segments() > before)
    }

    /// Whether an idle volume has much that is dead, for its size: a sparse file could be smaller.
    pub(crate) fn should_compact(&self) -> bool {
        let space = &self.store.space;
        space.dead_bytes() > (8 * self.store.geometry.segment_size).max(space.live_bytes() / 8)
    }

    /// On an idle volume: empties a few segments in which little lives. Whether that gained
    /// anything.
    pub(crate) fn compact(&self) -> Result<bool> {
        let Some(_one) = self.cleaning.try_lock() else { return Ok(false) };
        let before = self.store.space.free_segments();
        self.store.checkpoint()?;
        let size = self.store.geometry.segment_size;
        let moved = self.clean_batch(LIVE_MAX_IDLE, 16 * size)?;
        Ok(moved && self.store.space.free_segments() > before)
    }

    /// One batch of cleaning, whether segments run low or not; of use to who wants to see it at
    /// work.
    pub fn clean(&self) -> Result<()> {
        let _one = self.cleaning.lock();
        let gain = u64::from(self.batch()) * self.store.geometry.segment_size;
        self.clean_batch(LIVE_MAX, gain)?;
        self.store.checkpoint()
    }

    /// Cleans, a batch and a checkpoint at a time, until there is enough, or a batch gains nothing.
    fn clean_until(&self, live_max: f64, extra: u64, enough: impl Fn() -> bool) -> Result<()> {
        let gain = extra.max(self.store.geometry.segment_size);
        let (mut best, mut vain) = (self.unused(), 0);
        while !enough() && vain < VAIN && self.clean_batch(live_max, gain)? {
            // A batch may gain less than its own checkpoint takes: what that wrote before is dead
            // in part, and is gained by the next.
            let now = self.unused();
            // Out of the reserve little is risked.
            vain += if self.store.is_tight() { VAIN / 2 } else { 1 };
            vain = if now > best { 0 } else { vain };
            best = best.max(now);
        }
        Ok(())
    }

    /// Bytes of free segments and the rest of open ones.
    fn unused(&self) -> u64 {
        let rest = self.store.space.open_rest();
        let free = u64::from(self.store.space.free_segments());
        free * self.store.geometry.segment_size + rest.meta + rest.data
    }

    /// Moves what lives in the segments worth it most until `gain` bytes in them are dead, or as
    /// much as the free segments can take, then checkpoints. `false`: nothing could be moved.
    fn clean_batch(&self, live_max: f64, gain: u64) -> Result<bool> {
        let space = &self.store.space;
        let size = self.store.geometry.segment_size;
        let (mut gained, mut moved) = (0, 0);
        for victim in space.victims(CONSIDERED, live_max) {
            if gained >= gain || !self.can_move(victim.live) {
                break;
            }
            space.stamp_moved(victim.stamp);
            match victim.kind {
                SegKind::Data => self.clean_data(victim.seg)?,
                SegKind::Meta => self.clean_meta(victim.seg)?,
                _ => continue,
            }
            gained += size - u64::from(victim.live);
            moved += u64::from(victim.live);
            self.store.counters.add(Counter::SegmentsCleaned, 1);
        }
        if moved == 0 {
            return Ok(false);
        }
        self.store.counters.add(Counter::BytesMoved, moved);
        self.store.checkpoint()?;
        Ok(true)
    }

    /// Whether so much more can be moved before a checkpoint has to free what was emptied: the
    /// checkpoint itself needs room for what the moves have made dirty, and the journal some.
    fn can_move(&self, live: u32) -> bool {
        let space = &self.store.space;
        let (live, rest) = (u64::from(live), space.open_rest());
        let segments = |bytes: u64| bytes.div_ceil(self.store.geometry.segment_size);
        // By itself, a part of a compressed object may take more than its share of the whole.
        let coded = self.store.compression != Compression::NONE;
        let data = live + if coded { live / 4 } else { 0 };
        let data = data.saturating_sub(space.rest_of(COLD));
        let metadata = self.store.likely_to_write() + live / 2 + CHECKPOINT;
        let metadata = metadata.saturating_sub(rest.meta);
        u64::from(self.store.sure_segments()) > segments(data) + segments(metadata)
    }

    fn read_segment(&self, seg: SegNo) -> Result<(u64, Vec<u8>)> {
        let start = self.store.geometry.start_of(seg).0;
        let mut raw = vec![0; self.store.geometry.segment_size as usize];
        self.store.device.read_at(&mut raw, start)?;
        Ok((start, raw))
    }

    fn clean_data(&self, seg: SegNo) -> Result<()> {
        let (start, raw) = self.read_segment(seg)?;
        let mut at = 0;
        while at + HEADER < raw.len() {
            let Some(header) = DataHeader::decode(&raw[at..], self.store.volume) else {
                at += ALIGN;
                continue;
            };
            let payload = Addr(start + (at + HEADER) as u64);
            let moved = match header.offset & KEY_HIGH {
                0 => self.move_object(&header, payload, &raw[at + HEADER..]),
                _ => self.move_value(&header, payload),
            };
            let passed = match moved {
                Ok(len) => len,
                // Another root's, or a number that was never used: a leftover.
                Err(Error::Code(Code::Stale)) => 0,
                // Unreadable: it stays where it is, for fsck to report.
                Err(Error::Corrupt(e)) => {
                    tracing::warn!(error = %Error::Corrupt(e), "the cleaner leaves an object");
                    0
                }
                Err(other) => return Err(other),
            };
            // A user's data may look like a header. Only a live object is skipped as a whole, so
            // that nothing behind such data is overlooked.
            at += match passed {
                0 => ALIGN,
                len => (HEADER + len as usize).next_multiple_of(ALIGN),
            };
        }
        Ok(())
    }

    /// Writes what a file still uses of an object elsewhere, some pieces in each transaction. `raw`
    /// is what was read of the segment from the payload on. Returns the object's length, 0 if no
    /// extent points to it.
    fn move_object(&self, header: &DataHeader, payload: Addr, raw: &[u8]) -> Result<u32> {
        let mut len = 0;
        while let Some((moved, more)) = self.move_pieces(header, payload, raw)? {
            len = len.max(moved);
            if !more {
                break;
            }
        }
        Ok(len)
    }

    /// Moves some pieces of an object. Returns its length and whether there are more pieces, `None`
    /// if no extent points to it.
    fn move_pieces(
        &self,
        header: &DataHeader,
        payload: Addr,
        raw: &[u8],
    ) -> Result<Option<(u32, bool)>> {
        let ino = header.ino();
        let inode = self.place_of(ino)?;
        if !self.may_live(header, &inode, payload)? {
            return Ok(None);
        }
        let mut txn = self.store.begin(Need::Release, records::CLEAN)?;
        let mut locked = inode.write();
        let mut here = self.pieces_at(header, locked.inode(), payload)?;
        if locked.is_detached() {
            return Ok(None);
        }
        let (more, before) = (here.len() > CLEAN_EXTENTS, locked.inode().core.bytes);
        let len = here.iter().map(|e| e.ptr.len).max().unwrap_or(0);
        here.truncate(CLEAN_EXTENTS);
        for old in here {
            let Some(object) = raw.get(..old.ptr.len as usize) else {
                return Err(Error::corrupt("data object", Some(payload.0), "too long"));
            };
            let (new, _hold) = self.move_extent(ino, &old, object)?;
            self.replace_extents(&mut txn, &mut locked, old.offset, old.end(), &[new])?;
        }
        // A part of a compressed object may take more or less by itself.
        let bytes = locked.inode().core.bytes;
        if bytes != before {
            txn.log(Item::Moved { ino, bytes });
        }
        txn.commit()?;
        Ok(Some((len, more)))
    }

    /// Writes what an extent has of an object, of which this is the payload, elsewhere.
    fn move_extent(&self, ino: Ino, old: &Extent, payload: &[u8]) -> Result<(Extent, Hold<'_>)> {
        let object = format_args!("data of inode {ino}");
        old.ptr.verify_payload(payload, object)?;
        if old.ptr.is_coded() && old.len == old.ptr.logical.get() {
            return self.copy_coded(COLD, ino, old, payload);
        }
        let bytes = self.decode(&old.ptr, payload, object)?;
        let mine = &bytes[old.skip as usize..(old.skip + old.len) as usize];
        self.write_object_to(COLD, ino, old.offset, &[mine], Class::Reserved)
    }

    /// Whether something of an object lives, asked before a transaction is begun: most of what is
    /// dead needs none.
    fn may_live(&self, header: &DataHeader, inode: &InodeRef, payload: Addr) -> Result<bool> {
        let slot = inode.read();
        Ok(!self.pieces_at(header, &slot.inode, payload)?.is_empty())
    }

    /// The extents of the file that refer to the object at `payload`.
    fn pieces_at(&self, header: &DataHeader, inode: &Inode, payload: Addr) -> Result<Vec<Extent>> {
        let ino = header.ino();
        if !inode.core.in_use() {
            return Ok(Vec::new());
        }
        // It may have grown since its header was written.
        let end = header.offset.saturating_add(EXTENT_MAX as u64);
        let mut here = match inode.core.data_form {
            Form::Extents => inline_extents(ino, inode)?,
            Form::Tree => self.extents_in(ino, inode, header.offset, end)?,
            Form::Empty | Form::Inline => Vec::new(),
        };
        here.retain(|e| e.ptr.addr == payload && !e.is_prealloc());
        Ok(here)
    }

    fn clean_meta(&self, seg: SegNo) -> Result<()> {
        let (start, raw) = self.read_segment(seg)?;
        for at in (0..raw.len() - NodeHeader::SIZE).step_by(ALIGN) {
            let (bytes, addr) = (&raw[at..], Addr(start + at as u64));
            if let Ok(node) = NodeHeader::read(bytes) {
                if node.volume == self.store.volume {
                    self.move_node(&node, addr)?;
                }
            } else if RootPage::len_at(bytes, self.store.volume).is_some() {
                self.store.rewrite_root_page(RootPage::number_at(bytes), addr);
            } else if usage::number_at(bytes, self.store.volume).is_some() {
                self.store.rewrite_usage_page(bytes, addr);
            } else if let Ok(block) = BlockHeader::read(bytes)
                && block.volume == self.store.volume
            {
                let txn = self.store.begin(Need::Release, records::CLEAN)?;
                if let Ok(table) = self.table(Ino::new(block.root, 0)) {
                    table.rewrite_block(block.number, addr, txn.epoch)?;
                }
            }
        }
        Ok(())
    }

    /// Marks a node dirty if it is still here.
    fn move_node(&self, head: &NodeHeader, addr: Addr) -> Result<()> {
        let NodeHeader { tree, level, low, .. } = *head;
        let Ok(root) = self.store.root(Ino::new(head.root, 0)) else { return Ok(()) };
        if tree == TreeId::Imap {
            root.table.rewrite_imap_node(low, level, addr);
            return Ok(());
        }
        let txn = self.store.begin(Need::Release, records::CLEAN)?;
        root.tree(tree).rewrite(low, level, addr, txn.epoch)
    }
}
