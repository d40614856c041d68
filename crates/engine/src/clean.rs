//! The cleaner: empties segments in which little is live by moving what lives in them (after the
//! log-structured file systems), so that the next checkpoint frees them.
//!
//! Everything on the device says what it is: a data object names its file and offset, a node its
//! tree and lowest key, an inode block its number. The cleaner reads a segment from its start, asks
//! for each thing it recognises whether the volume still points to it *here*, and if so writes it
//! elsewhere: data through an ordinary transaction, metadata by marking it dirty.

use crate::data::inline_extents;
use crate::records;
use crate::volume::Inner;
use shoal_base::counters::Counter;
use shoal_base::limits::{ALIGN, NODE_SIZE};
use shoal_base::{Addr, Code, Error, Ino, Result, RootId, SegNo};
use shoal_format::attr::KEY_HIGH;
use shoal_format::bytes::{u16_at, u32_at, u64_at};
use shoal_format::extent::{DataHeader, Extent, HEADER};
use shoal_format::inode::Form;
use shoal_format::node::{self, Key, TreeId};
use shoal_format::root::{self, RootPage};
use shoal_format::usage::SegKind;
use shoal_space::Class;
use shoal_txn::Need;

/// Segments with more than this live are left alone: moving them gains too little.
const LIVE_MAX: f64 = 0.97;
/// Segments looked at in one round.
const ROUND: usize = 32;

impl Inner {
    /// Makes room for a call that found none: a checkpoint frees what is dead, then segments are
    /// cleaned. Returns whether anything was gained.
    pub(crate) fn relieve(&self, bytes: u64) -> Result<bool> {
        let _one = self.cleaning.lock();
        let before = self.store.available();
        if self.store.has_room(bytes) {
            return Ok(true);
        }
        self.store.checkpoint()?;
        if self.store.has_room(bytes) {
            return Ok(true);
        }
        self.clean_round()?;
        Ok(self.store.available() > before || self.store.has_room(bytes))
    }

    /// Makes what room can be made by one checkpoint and one round of cleaning.
    #[cold]
    pub(crate) fn make_room(&self) -> Result<()> {
        let _one = self.cleaning.lock();
        self.store.checkpoint()?;
        self.clean_round()
    }

    /// Refills the reserve by checkpoints and cleaning, before a call that may use it goes on. That
    /// call may still succeed when nothing can be gained.
    #[cold]
    pub(crate) fn refill_reserve(&self) -> Result<()> {
        let _one = self.cleaning.lock();
        for round in 0..8 {
            let before = self.store.space.free_segments();
            if !self.store.is_tight() {
                break;
            }
            if round == 0 {
                self.store.checkpoint()?;
            } else {
                self.clean_round()?;
            }
            if round > 0 && self.store.space.free_segments() <= before {
                break;
            }
        }
        Ok(())
    }

    /// Whether the background thread should clean: few segments are free, and much of what is in
    /// use is dead.
    pub(crate) fn should_clean(&self) -> bool {
        let space = &self.store.space;
        let low = (self.store.geometry.segments / 8).max(space.reserve_segments() * 2);
        let used = self.store.geometry.segments - space.free_segments();
        let dead = u64::from(used) * self.store.geometry.segment_size;
        let dead = dead.saturating_sub(space.live_bytes());
        space.free_segments() < low && dead > 4 * self.store.geometry.segment_size
    }

    /// In the background: one round, unless a call is at it.
    pub(crate) fn clean_in_background(&self) -> Result<()> {
        match self.cleaning.try_lock() {
            Some(_one) => self.clean_round(),
            None => Ok(()),
        }
    }

    /// One round of cleaning, whether segments run low or not; of use to who wants to see it at
    /// work.
    pub fn clean(&self) -> Result<()> {
        let _one = self.cleaning.lock();
        self.clean_round()
    }

    /// Moves what lives in the emptiest segments, as much as half the reserve can take, and
    /// checkpoints.
    fn clean_round(&self) -> Result<()> {
        let space = &self.store.space;
        let spare = space.free_segments().min(space.reserve_segments()) / 2;
        let mut budget = u64::from(spare) * self.store.geometry.segment_size;
        for seg in space.victims(ROUND, LIVE_MAX) {
            let usage = space.usage();
            let Some((_, kind, live, _)) = usage.get(seg.0 as usize) else { continue };
            if u64::from(*live) > budget {
                break;
            }
            budget -= u64::from(*live);
            match kind {
                SegKind::Data => self.clean_data(seg)?,
                SegKind::Meta => self.clean_meta(seg)?,
                _ => continue,
            }
            // What the moves have dirtied must stay small against what is left.
            if self.store.checkpoint_is_due() {
                self.store.checkpoint()?;
            }
            self.store.counters.add(Counter::SegmentsCleaned, 1);
            self.store.counters.add(Counter::BytesMoved, u64::from(*live));
        }
        self.store.checkpoint()
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
                0 => self.move_object(&header, payload),
                _ => self.move_value(&header, payload),
            };
            match moved {
                // Another root's, or a number that was never used: a leftover.
                Err(Error::Code(Code::Stale)) => {}
                // Unreadable: it stays where it is, for fsck to report.
                Err(Error::Corrupt(e)) => {
                    tracing::warn!(error = %Error::Corrupt(e), "the cleaner leaves an object");
                }
                other => other?,
            }
            at += (HEADER + header.len as usize).next_multiple_of(ALIGN);
        }
        Ok(())
    }

    /// Writes what a file still uses of an object elsewhere.
    fn move_object(&self, header: &DataHeader, payload: Addr) -> Result<()> {
        let ino = header.ino;
        let mut txn = self.store.begin(Need::Release, records::CLEAN)?;
        let inode = self.place_of(ino)?;
        let mut locked = inode.write();
        let core = locked.inode().core;
        let has_objects = matches!(core.data_form, Form::Extents | Form::Tree);
        if !core.in_use() || !has_objects || locked.is_detached() {
            return Ok(());
        }
        let end = header.offset.saturating_add(u64::from(header.len));
        let mut here = match core.data_form {
            Form::Extents => inline_extents(ino, locked.inode())?,
            _ => self.extents_in(ino, locked.inode(), header.offset, end)?,
        };
        here.retain(|e| e.ptr.addr == payload && !e.is_prealloc());
        for old in here {
            let mut bytes = vec![0; old.len as usize];
            self.read_extent(ino, &old, 0, &mut bytes)?;
            let new = self.write_object_as(ino, old.offset, &[&bytes], Class::Reserved)?;
            let new: [Extent; 1] = [new];
            self.replace_extents(&mut txn, &mut locked, old.offset, old.end(), &new)?;
        }
        txn.commit().map(|_| ())
    }

    fn clean_meta(&self, seg: SegNo) -> Result<()> {
        let (start, raw) = self.read_segment(seg)?;
        for at in (0..raw.len() - node::HEADER).step_by(ALIGN) {
            let (bytes, addr) = (&raw[at..], Addr(start + at as u64));
            let magic = u32_at(bytes, 0);
            let volume = u64_at(bytes, 8) == self.store.volume;
            if magic == node::MAGIC && volume && at + NODE_SIZE <= raw.len() {
                self.move_node(bytes, addr)?;
            } else if magic == root::MAGIC && volume {
                self.store.rewrite_root_page(RootPage::number_at(bytes), addr);
            } else if magic == shoal_format::inode::MAGIC && volume {
                let txn = self.store.begin(Need::Release, records::CLEAN)?;
                let root = RootId(u16_at(bytes, 6));
                if let Ok(table) = self.table(Ino::new(root, 0)) {
                    table.rewrite_block(u64_at(bytes, 16), addr, txn.epoch)?;
                }
            }
        }
        Ok(())
    }

    /// Marks a node dirty if it is still here.
    fn move_node(&self, bytes: &[u8], addr: Addr) -> Result<()> {
        let (tree, level) = (TreeId::from_u8(bytes[4]), bytes[5]);
        let low = Key::new(u64_at(bytes, 40), u64_at(bytes, 48));
        let (Some(tree), Ok(root)) = (tree, self.store.root(Ino::new(RootId(u16_at(bytes, 6)), 0)))
        else {
            return Ok(());
        };
        if tree == TreeId::Imap {
            root.table.rewrite_imap_node(low, level, addr);
            return Ok(());
        }
        let txn = self.store.begin(Need::Release, records::CLEAN)?;
        root.tree(tree).rewrite(low, level, addr, txn.epoch)
    }
}
