//! The cleaner: moves live data out of segments with little of it (after log-structured file
//! systems), so that the next checkpoint frees them.
//!
//! Every object on the device identifies itself: a data object has its file and offset, a node its
//! tree and lowest key, an inode block its number. The cleaner reads a segment from its start. For
//! each object that it recognises, it checks whether the volume still points to it *here*, and if
//! so moves it: data with an ordinary transaction, metadata by marking it dirty.

use crate::objects::Objects;
use crate::objects::inline_extents;
use crate::records::{self, CLEAN_EXTENTS};
use crate::state::room;
use crate::xattr::Xattrs;
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
use shoal_space::{COLD, Class, Hold, Victim};
use shoal_txn::Need;

/// Live fraction above which a segment is not cleaned: this would gain too little.
pub(crate) const LIVE_MAX: f64 = 0.98;
/// The same on an idle volume: data moved now may soon be dead anyway.
const LIVE_MAX_IDLE: f64 = 0.6;
/// Segments considered at a time.
const CONSIDERED: usize = 256;
/// Consecutive batches without gain after which cleaning stops.
const FRUITLESS_MAX: u32 = 8;
/// Bytes that a checkpoint needs in addition to nodes and inode blocks.
const CHECKPOINT: u64 = 128 << 10;

room! {
    /// Moving live data and metadata.
    pub(crate) struct Cleaner { objects: Objects, xattrs: Xattrs }
}

impl<'v> Cleaner<'v> {
    /// Segments that a batch of cleaning should gain in addition to those requested. More if much
    /// is dead, because each batch costs a checkpoint; few otherwise, because a segment cleaned
    /// later has less live data.
    pub(crate) fn batch_segments(self) -> u32 {
        let dead =
            self.0.store.space().counts().dead_bytes() / self.0.store.geometry().segment_size;
        (dead / 8).clamp(1, 64) as u32
    }

    /// Number of free segments below which the background thread cleans, so that calls need not.
    fn low_water(self) -> u32 {
        self.0.store.space().counts().reserve_segments() + 1 + self.batch_segments()
    }

    /// Returns whether the background thread should clean: few segments are free, and enough is
    /// dead.
    pub(crate) fn should_clean(self) -> bool {
        let space = self.0.store.space();
        let least = 8 * self.0.store.geometry().segment_size;
        space.counts().free_segments() < self.low_water() && space.counts().dead_bytes() > least
    }

    /// Cleans one batch in the background, unless a call is cleaning. Returns whether it gained
    /// anything.
    pub(crate) fn clean_in_background(self) -> Result<bool> {
        let Some(_one) = self.0.cleaning.try_lock() else { return Ok(false) };
        let before = self.0.store.space().counts().free_segments();
        // Segments emptied by removals: a checkpoint alone frees them, and none may be due for a
        // long time.
        if self.0.store.space().counts().ready_segments() >= self.batch_segments() {
            self.0.store.checkpoints().write()?;
            return Ok(self.0.store.space().counts().free_segments() > before);
        }
        let gain = u64::from(self.batch_segments()) * self.0.store.geometry().segment_size;
        let moved = self.clean_batch(LIVE_MAX, gain)?;
        Ok(moved && self.0.store.space().counts().free_segments() > before)
    }

    /// Moves what is live in a few segments with little of it that `may` be chosen. A later
    /// checkpoint frees them. Returns them.
    pub(crate) fn move_few(
        self,
        most: usize,
        may: impl Fn(&Victim) -> bool,
    ) -> Result<Vec<Victim>> {
        let Some(_one) = self.0.cleaning.try_lock() else { return Ok(Vec::new()) };
        let victims = self.0.store.space().cleaning().victims(CONSIDERED, LIVE_MAX_IDLE);
        let mut moved = Vec::new();
        for victim in victims.into_iter().filter(may).take(most) {
            if !self.can_move(victim.live) {
                break;
            }
            self.move_out(&victim)?;
            moved.push(victim);
        }
        Ok(moved)
    }

    /// Returns whether an idle volume has many dead bytes for its size, so that its sparse file
    /// could be smaller.
    pub(crate) fn should_compact(self) -> bool {
        let space = self.0.store.space();
        space.counts().dead_bytes()
            > (8 * self.0.store.geometry().segment_size).max(space.counts().live_bytes() / 8)
    }

    /// Cleans a few segments with little live data. Returns whether it gained anything.
    pub(crate) fn compact(self) -> Result<bool> {
        let Some(_one) = self.0.cleaning.try_lock() else { return Ok(false) };
        let before = self.0.store.space().counts().free_segments();
        self.0.store.checkpoints().write()?;
        let size = self.0.store.geometry().segment_size;
        let moved = self.clean_batch(LIVE_MAX_IDLE, 16 * size)?;
        Ok(moved && self.0.store.space().counts().free_segments() > before)
    }

    /// Cleans one batch, even if enough segments are free. For tests and measurements.
    pub(crate) fn clean(self) -> Result<()> {
        let _one = self.0.cleaning.lock();
        let gain = u64::from(self.batch_segments()) * self.0.store.geometry().segment_size;
        self.clean_batch(LIVE_MAX, gain)?;
        self.0.store.checkpoints().write()
    }

    /// Cleans in batches, each with a checkpoint, until there is enough space or nothing is gained.
    pub(crate) fn clean_until(
        self,
        live_max: f64,
        extra: u64,
        enough: impl Fn() -> bool,
    ) -> Result<()> {
        let gain = extra.max(self.0.store.geometry().segment_size);
        let (mut best, mut fruitless) = (self.unused(), 0);
        while !enough() && fruitless < FRUITLESS_MAX && self.clean_batch(live_max, gain)? {
            // A batch may gain less than its own checkpoint writes. The previous checkpoint's
            // objects are partly dead then, and are gained by the next batch.
            let now = self.unused();
            // The reserve is risked only for a few attempts.
            fruitless += if self.0.store.room().is_tight() { FRUITLESS_MAX / 2 } else { 1 };
            fruitless = if now > best { 0 } else { fruitless };
            best = best.max(now);
        }
        Ok(())
    }

    /// Bytes of free segments and the unused rest of open ones.
    fn unused(self) -> u64 {
        let rest = self.0.store.space().counts().open_rest();
        let free = u64::from(self.0.store.space().counts().free_segments());
        free * self.0.store.geometry().segment_size + rest.meta + rest.data
    }

    /// Moves the live data of the most profitable segments until `gain` bytes in them are dead, or
    /// as much as the free segments can hold. Then writes a checkpoint. Returns `false` if nothing
    /// could be moved.
    pub(crate) fn clean_batch(self, live_max: f64, gain: u64) -> Result<bool> {
        let space = self.0.store.space();
        let size = self.0.store.geometry().segment_size;
        let (mut gained, mut moved) = (0, 0);
        for victim in space.cleaning().victims(CONSIDERED, live_max) {
            if gained >= gain || !self.can_move(victim.live) {
                break;
            }
            self.move_out(&victim)?;
            gained += size - u64::from(victim.live);
            moved += u64::from(victim.live);
        }
        if moved == 0 {
            return Ok(false);
        }
        self.0.store.checkpoints().write()?;
        Ok(true)
    }

    /// Moves what is live in a segment. The next checkpoint frees it.
    pub(crate) fn move_out(self, victim: &Victim) -> Result<()> {
        self.0.store.space().cleaning().stamp_moved(victim.stamp);
        match victim.kind {
            SegKind::Data => self.clean_data(victim.seg)?,
            SegKind::Meta => self.clean_meta(victim.seg)?,
            _ => return Ok(()),
        }
        self.0.store.counters().add(Counter::SegmentsCleaned, 1);
        self.0.store.counters().add(Counter::BytesMoved, u64::from(victim.live));
        Ok(())
    }

    /// Returns whether `live` more bytes can be moved before a checkpoint must free the emptied
    /// segments.
    pub(crate) fn can_move(self, live: u32) -> bool {
        u64::from(self.0.store.room().sure_segments()) > self.segments_for(live)
    }

    /// Number of free segments that a move of `live` bytes takes until a checkpoint has freed the
    /// emptied ones. The checkpoint needs space for the metadata that the moves made dirty, and the
    /// journal needs some.
    pub(crate) fn segments_for(self, live: u32) -> u64 {
        let space = self.0.store.space();
        let (live, rest) = (u64::from(live), space.counts().open_rest());
        let segments = |bytes: u64| bytes.div_ceil(self.0.store.geometry().segment_size);
        // A separate part of a compressed object may take more than its share of the whole.
        let coded = self.0.store.compression() != Compression::NONE;
        let data = live + if coded { live / 4 } else { 0 };
        let data = data.saturating_sub(space.counts().rest_of(COLD));
        let metadata = self.0.store.room().likely_to_write() + live / 2 + CHECKPOINT;
        let metadata = metadata.saturating_sub(rest.meta);
        segments(data) + segments(metadata)
    }

    fn read_segment(self, seg: SegNo) -> Result<(u64, Vec<u8>)> {
        let start = self.0.store.geometry().start_of(seg).0;
        let mut raw = vec![0; self.0.store.geometry().segment_size as usize];
        self.0.store.device().read_at(&mut raw, start)?;
        Ok((start, raw))
    }

    fn clean_data(self, seg: SegNo) -> Result<()> {
        let (start, raw) = self.read_segment(seg)?;
        let mut at = 0;
        while at + HEADER < raw.len() {
            let Some(header) = DataHeader::decode(&raw[at..], self.0.store.volume()) else {
                at += ALIGN;
                continue;
            };
            let payload = Addr(start + (at + HEADER) as u64);
            let moved = match header.offset & KEY_HIGH {
                0 => self.move_object(&header, payload, &raw[at + HEADER..]),
                _ => self.xattrs().move_value(&header, payload),
            };
            let passed = match moved {
                Ok(len) => len,
                // It belongs to a deleted subvolume, or to a number that was never used.
                Err(Error::Code(Code::Stale)) => 0,
                // Unreadable: it is not moved, and fsck reports it.
                Err(Error::Corrupt(e)) => {
                    tracing::warn!(error = %Error::Corrupt(e), "damaged object is not cleaned");
                    0
                }
                Err(other) => return Err(other),
            };
            // User data may look like a header. Only a live object is skipped as a whole, so that
            // nothing after such data is missed.
            at += match passed {
                0 => ALIGN,
                len => (HEADER + len as usize).next_multiple_of(ALIGN),
            };
        }
        Ok(())
    }

    /// Moves the parts of an object that a file still uses, some in each transaction. `raw` is the
    /// segment from the payload on. Returns the object's length, 0 if no extent points to it.
    fn move_object(self, header: &DataHeader, payload: Addr, raw: &[u8]) -> Result<u32> {
        let mut len = 0;
        while let Some((moved, more)) = self.move_pieces(header, payload, raw)? {
            len = len.max(moved);
            if !more {
                break;
            }
        }
        Ok(len)
    }

    /// Moves some parts of an object. Returns its length and whether there are more parts; `None`
    /// if no extent points to it.
    fn move_pieces(
        self,
        header: &DataHeader,
        payload: Addr,
        raw: &[u8],
    ) -> Result<Option<(u32, bool)>> {
        let ino = header.ino();
        let inode = self.0.place_of(ino)?;
        if !self.may_live(header, &inode, payload)? {
            return Ok(None);
        }
        let mut txn = self.0.store.begin(Need::Release, records::CLEAN)?;
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
            self.objects().replace_extents(&mut txn, &mut locked, old.offset, old.end(), &[new])?;
        }
        // A separate part of a compressed object may take more or less space.
        let bytes = locked.inode().core.bytes;
        if bytes != before {
            txn.log(Item::Moved { ino, bytes });
        }
        txn.commit()?;
        Ok(Some((len, more)))
    }

    /// Copies an extent's part of an object with this payload.
    fn move_extent(self, ino: Ino, old: &Extent, payload: &[u8]) -> Result<(Extent, Hold<'v>)> {
        let object = format_args!("data of inode {ino}");
        old.ptr.verify_payload(payload, object)?;
        if old.ptr.is_coded() && old.len == old.ptr.logical.get() {
            return self.objects().copy_coded(COLD, ino, old, payload);
        }
        let bytes = self.objects().decode(&old.ptr, payload, object)?;
        let mine = &bytes[old.skip as usize..(old.skip + old.len) as usize];
        self.objects().write_object_to(COLD, ino, old.offset, &[mine], Class::Reserved)
    }

    /// Returns whether any part of an object is live. Checked before a transaction begins: dead
    /// objects, the most frequent case, need none.
    fn may_live(self, header: &DataHeader, inode: &InodeRef, payload: Addr) -> Result<bool> {
        let slot = inode.read();
        Ok(!self.pieces_at(header, &slot.inode, payload)?.is_empty())
    }

    /// Returns the extents of the file that point to the object at `payload`.
    fn pieces_at(self, header: &DataHeader, inode: &Inode, payload: Addr) -> Result<Vec<Extent>> {
        let ino = header.ino();
        if !inode.core.in_use() {
            return Ok(Vec::new());
        }
        // The object may have grown since its header was written.
        let end = header.offset.saturating_add(EXTENT_MAX as u64);
        let mut here = match inode.core.data_form {
            Form::Extents => inline_extents(ino, inode)?,
            Form::Tree => self.objects().extents_in(ino, inode, header.offset, end)?,
            Form::Empty | Form::Inline => Vec::new(),
        };
        here.retain(|e| e.ptr.addr == payload && !e.is_prealloc());
        Ok(here)
    }

    fn clean_meta(self, seg: SegNo) -> Result<()> {
        let (start, raw) = self.read_segment(seg)?;
        for at in (0..raw.len() - NodeHeader::SIZE).step_by(ALIGN) {
            let (bytes, addr) = (&raw[at..], Addr(start + at as u64));
            if let Ok(node) = NodeHeader::read(bytes) {
                if node.volume == self.0.store.volume() {
                    self.move_node(&node, addr)?;
                }
            } else if RootPage::len_at(bytes, self.0.store.volume()).is_some() {
                self.0.store.checkpoints().rewrite_root_page(RootPage::number_at(bytes), addr);
            } else if usage::number_at(bytes, self.0.store.volume()).is_some() {
                self.0.store.checkpoints().rewrite_usage_page(bytes, addr);
            } else if let Ok(block) = BlockHeader::read(bytes)
                && block.volume == self.0.store.volume()
            {
                let txn = self.0.store.begin(Need::Release, records::CLEAN)?;
                if let Ok(table) = self.0.table(Ino::new(block.root, 0)) {
                    table.rewrite_block(block.number, addr, txn.epoch())?;
                }
            }
        }
        Ok(())
    }

    /// Marks a node dirty if it is still at this address.
    fn move_node(self, head: &NodeHeader, addr: Addr) -> Result<()> {
        let NodeHeader { tree, level, low, .. } = *head;
        let Ok(root) = self.0.store.root(Ino::new(head.root, 0)) else { return Ok(()) };
        if tree == TreeId::Imap {
            root.table.rewrite_imap_node(low, level, addr);
            return Ok(());
        }
        let txn = self.0.store.begin(Need::Release, records::CLEAN)?;
        root.tree(tree).rewrite(low, level, addr, txn.epoch())
    }
}
