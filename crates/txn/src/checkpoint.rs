//! The checkpoint: open, quiesce, sync (after ZFS's transaction groups).
//!
//! | step | what | when it fails or the machine stops here |
//! | --- | --- | --- |
//! | 1 | close the gate: calls in flight finish | nothing has changed |
//! | 2 | note the LSN, freeze the live counts, copy the orphans, raise the epoch; open the gate | the old checkpoint and the journal are whole |
//! | 3 | write inode blocks, `imap`, the other trees, root pages (`root_pages.rs`), orphan blocks, open intents to new addresses | the same: nothing old was overwritten |
//! | 4 | flush the journal up to the LSN, so that the next batch begins there | the same |
//! | 5 | write what has changed of the usage table (`usage_pages.rs`), the checkpoint record, a spare superblock behind it; flush the device | the same |
//! | 6 | write the superblock (the older copy); flush the device | a torn copy is invalid: the other copy names the old checkpoint |
//! | 7 | free the segments that only the old checkpoint used | the new checkpoint is whole |
//!
//! A failure in steps 3 to 6 makes the volume read-only: a failed write or flush is never retried
//! as if it had succeeded.

use crate::begin::{BEHIND, DUE};
use crate::image::Image;
use crate::orphans::disk;
use crate::root_pages::{RootDone, RootMoment};
use crate::store::{Published, Store};
use crate::usage_pages::{Plan, UsageImage};
use crate::writer::MetaWriter;
use shoal_base::counters::Counter;
use shoal_base::planted::{self, Defect};
use shoal_base::{Addr, Code, Epoch, Error, Lsn, Result};
use shoal_format::Ptr;
use shoal_format::checkpoint::{Checkpoint, INTENTS_MAX};
use shoal_format::superblock::{self, Superblock, spare_of, twin_of};
use shoal_format::usage::root_len;
use shoal_journal::JournalPos;
use shoal_tree::NodeWriter;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Which records a checkpoint covers.
#[derive(Clone, Copy)]
pub(crate) enum Cut {
    /// All that are staged.
    Staged,
    /// Those before this place, all of which are replayed: the journal of a session that ended in a
    /// crash, while there is no other (`recover.rs`).
    Replayed(JournalPos),
}

/// What was noted while the gate was closed.
struct Moment {
    epoch: Epoch,
    lsn: Lsn,
    orphans: disk::Slots,
    /// Open intents: only between a recovery and their completion.
    intents: Vec<Vec<u8>>,
    prealloc: u64,
    floor: u32,
    /// The roots in which something has changed.
    roots: Vec<RootMoment>,
}

impl Moment {
    /// To be called with the gate closed.
    fn now(store: &Store, lsn: Lsn) -> Moment {
        Moment {
            epoch: store.epoch(),
            lsn,
            orphans: store.orphans.freeze(),
            intents: store.encode_intents(),
            prealloc: store.prealloc.load(Ordering::Relaxed).max(0) as u64,
            floor: store.floor.load(Ordering::Relaxed),
            roots: store.root_moments(store.epoch()),
        }
    }
}

impl Store {
    /// Writes a checkpoint. Other calls go on meanwhile, except for the moment of step 1.
    pub fn checkpoint(&self) -> Result<()> {
        self.checkpoint_as(false, Cut::Staged, || true)
    }

    /// Writes a checkpoint in the midst of a replay: a crash from here on replays only what is
    /// behind it.
    pub(crate) fn checkpoint_replayed(&self, replayed: JournalPos) -> Result<()> {
        self.checkpoint_as(false, Cut::Replayed(replayed), || true)
    }

    /// Writes a checkpoint if `wanted` still says so when no other is being written.
    pub(crate) fn checkpoint_if(&self, wanted: impl Fn() -> bool) -> Result<()> {
        self.checkpoint_as(false, Cut::Staged, wanted)
    }

    /// The last checkpoint before closing: the superblock says that there is nothing to replay.
    pub fn checkpoint_clean(&self) -> Result<()> {
        self.checkpoint_as(true, Cut::Staged, || true)
    }

    fn checkpoint_as(&self, clean: bool, cut: Cut, wanted: impl Fn() -> bool) -> Result<()> {
        let mut published = self.published.lock();
        self.writable()?;
        if !wanted() {
            return Ok(());
        }
        let careful = self.careful("a checkpoint was written");
        let done = self.checkpoint_steps(&mut published, clean, cut);
        drop(careful);
        if let Err(e) = &done {
            self.poison(&format!("checkpoint failed: {e}"));
        }
        *self.checkpoints.lock() += 1;
        self.checkpoint_done.notify_all();
        done
    }

    fn checkpoint_steps(&self, published: &mut Published, clean: bool, cut: Cut) -> Result<()> {
        let closed = self.gate.close();
        let lsn = match cut {
            Cut::Staged => self.journal()?.cut(),
            Cut::Replayed(pos) => pos.lsn,
        };
        let moment = Moment::now(self, lsn);
        let frozen = self.space.freeze();
        self.epoch.store(moment.epoch + 1, Ordering::Relaxed);
        self.cut_lsn.store(moment.lsn.0, Ordering::Relaxed);
        self.pressure.fetch_and(!DUE, Ordering::Relaxed);
        drop(closed);

        self.cache.writing(moment.epoch);
        let mut writer = MetaWriter::new(self, frozen, moment.epoch);
        let mut next = Checkpoint {
            volume: self.volume,
            epoch: moment.epoch,
            lsn: moment.lsn,
            prealloc: moment.prealloc,
            floor: moment.floor,
            pages: published.image.checkpoint.pages.clone(),
            ..Checkpoint::default()
        };
        let written = self.write_roots(moment.roots, moment.epoch, &mut writer, &mut next.pages)?;
        let orphan_blocks;
        (next.orphan_lists, orphan_blocks) =
            disk::write(self.volume, &moment.orphans, &mut writer)?;
        for open in &moment.intents {
            next.intents.push(writer.place(open)?);
        }
        if next.intents.len() > INTENTS_MAX {
            let message = "more changes are open than a checkpoint can hold: 'shoal fsck --repair'";
            return Err(Error::refused(Code::NoSpace, message));
        }
        let pos = match cut {
            Cut::Staged => self.journal()?.flush_cut(moment.lsn)?,
            Cut::Replayed(pos) => pos,
        };
        next.journal = pos.addr;
        let (superblock, usage) = self.write_record(&mut writer, &mut next, published, clean)?;
        let ptr = superblock.checkpoint;
        if !planted::is(Defect::CheckpointFlush) {
            self.space.close_sectors();
            self.device.flush()?;
        }
        write_superblock(self, &superblock)?;
        let image = Image { checkpoint: next, at: ptr, orphan_blocks, usage };
        *published = Published { superblock, image: Arc::new(image) };

        self.cache.written();
        written.into_iter().for_each(RootDone::finish);
        let _none = self.images.write();
        self.space.committed(writer.frozen);
        self.unpin(moment.epoch);
        if let Cut::Staged = cut {
            self.space.release_journal_segments(&self.journal()?.segments_before(pos));
        }
        self.discard_here();
        self.checkpoint_lsn.store(moment.lsn.0, Ordering::Release);
        self.pressure.fetch_and(!BEHIND, Ordering::Relaxed);
        self.counters.add(Counter::Checkpoints, 1);
        Ok(())
    }

    /// Step 5: retires the previous record and what only it named, then writes what has changed of
    /// the usage table, whose own bytes and those of the record are counted in it, and the record.
    /// Returns where the table is, and the superblock that names the record, of which a spare copy
    /// lies behind it, and then a second copy of the record; in the same segment, so that they stay
    /// as long as the record does, though nothing counts them.
    fn write_record(
        &self,
        writer: &mut MetaWriter<'_>,
        next: &mut Checkpoint,
        before: &Published,
        clean: bool,
    ) -> Result<(Superblock, UsageImage)> {
        let image = &*before.image;
        image.for_each_own(&mut |_, ptr| writer.retire(ptr));
        let root = writer.alloc(root_len(&self.geometry))?;
        let (mut at, whole) = extent_of(next.encoded_len());
        at.addr = writer.alloc(whole)?;
        let behind = Addr(at.addr.0 + u64::from(at.len));
        writer.retire(Ptr::place(behind, whole as u32 - at.len));
        let plan = Plan::make(&image.usage, writer)?;
        let (usage, ptr, mut objects) = plan.encode(&image.usage, writer, root, next.epoch);
        next.usage = ptr;
        let record = next.encode();
        let superblock = Superblock {
            sequence: before.superblock.sequence + 1,
            checkpoint: Ptr::to(at.addr, writer.epoch, &record),
            clean,
            ..before.superblock
        };
        let mut raw = record.clone();
        raw.resize((spare_of(at) - at.addr.0) as usize, 0);
        raw.extend_from_slice(&superblock.encode());
        if let Some(twin) = twin_of(at) {
            raw.resize((twin.addr.0 - at.addr.0) as usize, 0);
            raw.extend_from_slice(&record);
        }
        objects.push((at.addr, raw));
        // What lies together is written together; first what goes on where the last write ended.
        let here = self.geometry.segment_of(writer.at());
        let place = |addr: Addr| (self.geometry.segment_of(addr) != here, addr);
        objects.sort_unstable_by_key(|(addr, _)| place(*addr));
        for (addr, raw) in &objects {
            writer.write(*addr, raw)?;
        }
        writer.flush()?;
        Ok((superblock, usage))
    }
}

/// A record of `len` bytes at address 0, and the bytes that it takes with what lies behind it.
fn extent_of(len: usize) -> (Ptr, usize) {
    let at = Ptr::place(Addr(0), len as u32);
    let twin = twin_of(at).map(|twin| twin.addr.0 + u64::from(twin.len));
    (at, twin.unwrap_or(spare_of(at) + superblock::SIZE as u64) as usize)
}

impl Store {
    /// Writes the other copy of the superblock too: neither may name what came before this mount.
    pub(crate) fn write_other_copy(&self) -> Result<()> {
        let mut published = self.published.lock();
        let sequence = published.superblock.sequence + 1;
        let next = Superblock { sequence, ..published.superblock };
        write_superblock(self, &next)?;
        published.superblock = next;
        Ok(())
    }
}

/// Writes the copy whose turn it is, and flushes.
pub(crate) fn write_superblock(store: &Store, superblock: &Superblock) -> Result<()> {
    let mut raw = superblock.encode();
    raw.resize(superblock::BLOCK, 0);
    let copy = superblock::COPIES[(superblock.sequence % 2) as usize];
    store.device.write_at(&raw, copy)?;
    if !planted::is(Defect::SuperblockFlush) {
        store.space.close_sectors();
        store.device.flush()?;
    }
    store.counters.add(Counter::Flushes, 2);
    Ok(())
}

impl Store {
    /// Runs `f` with the newest checkpoint, while no transaction and no checkpoint is in flight.
    /// `f` must begin none.
    pub fn quiesced<R>(&self, f: impl FnOnce(&Image) -> R) -> R {
        let published = self.published.lock();
        let _closed = self.gate.close();
        f(&published.image)
    }
}
