//! The checkpoint: open, quiesce, sync (after ZFS's transaction groups).
//!
//! | step | action | if it fails or the machine stops here |
//! | --- | --- | --- |
//! | 1 | quiesce transactions: those in flight finish | nothing has changed |
//! | 2 | note the LSN, freeze the live counts, copy the orphans, increment the epoch; resume transactions | the old checkpoint and the journal are intact |
//! | 3 | write inode blocks, `imap`, the other trees, root pages (`root_pages.rs`), orphan blocks, open intents to new addresses | the same: nothing old was overwritten |
//! | 4 | flush the journal up to the LSN, so that the next batch begins there | the same |
//! | 5 | write the changes of the usage table (`usage_pages.rs`), the checkpoint record, and a backup superblock after it; flush the device | the same |
//! | 6 | write the superblock (the older copy); flush the device | a torn copy is invalid: the other copy points to the old checkpoint |
//! | 7 | free the segments that only the old checkpoint used | the new checkpoint is complete |
//!
//! Where the device keeps the order of writes ([`Device::keeps_order`](shoal_device::Device)),
//! steps 4 and 5 flush nothing, and what a recovery or the last checkpoint of a session writes is
//! flushed with the next flush: of the last one, by closing the device.
//!
//! A failure in steps 3 to 6 makes the volume read-only: a failed write or flush is never retried
//! as if it had succeeded.

use crate::image::Image;
use crate::orphans::disk;
use crate::pressure::{BEHIND, DUE};
use crate::root_pages::{RootDone, RootMoment};
use crate::store::{Published, Store};
use crate::usage_image::UsageImage;
use crate::usage_pages::Plan;
use crate::writer::MetaWriter;
use shoal_base::counters::Counter;
use shoal_base::planted::{self, Defect};
use shoal_base::timing::Timed;
use shoal_base::{Addr, Code, Epoch, Error, Lsn, Result};
use shoal_format::checkpoint::{Checkpoint, INTENTS_MAX};
use shoal_format::features::{COMPAT_REPLAYING, INCOMPAT_VERIFIED_TAIL};
use shoal_format::superblock::{self, Superblock, backup_copy_of, backup_superblock_at};
use shoal_format::usage::root_len;
use shoal_format::{Label, Ptr};
use shoal_journal::JournalPos;
use shoal_tree::NodeWriter;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The records that a checkpoint covers.
#[derive(Clone, Copy)]
pub(crate) enum Boundary {
    /// All staged records.
    Staged,
    /// The records before this position, all of which are replayed: the journal of a session that
    /// ended in a crash, while there is no other (`recover.rs`).
    Replayed(JournalPos),
}

/// The reason for a checkpoint.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    /// The session goes on.
    Running,
    /// A recovery: nothing depends on it yet.
    Recovery,
    /// The volume is left closed, and may be opened as the device is.
    Left,
    /// The volume is left closed, and the device is closed next.
    Closing,
}

impl Reason {
    /// Returns whether the superblock says that there is nothing to replay.
    fn is_clean(self) -> bool {
        matches!(self, Reason::Left | Reason::Closing)
    }
    /// Returns whether the checkpoint must be durable even if the device keeps the order of writes.
    fn is_awaited(self) -> bool {
        matches!(self, Reason::Running | Reason::Left)
    }
}

/// The state noted under quiesce.
struct Moment {
    epoch: Epoch,
    lsn: Lsn,
    orphans: disk::Slots,
    /// Open intents. They exist only between a recovery and their completion.
    intents: Vec<Vec<u8>>,
    prealloc: u64,
    floor: u32,
    /// The subvolumes with changes.
    roots: Vec<RootMoment>,
}

impl Moment {
    /// Notes the state. Must be called under quiesce.
    fn now(store: &Store, lsn: Lsn) -> Moment {
        Moment {
            epoch: store.epoch(),
            lsn,
            orphans: store.orphans.freeze(),
            intents: store.intents.encode(store.volume),
            prealloc: store.promises.bytes(),
            floor: store.generation_floor(),
            roots: store.root_moments(store.epoch()),
        }
    }
}

/// The checkpoints of a volume: [`Store::checkpoints`].
#[derive(Clone, Copy)]
pub struct Checkpoints<'s> {
    store: &'s Store,
}

impl Store {
    /// Returns the calls for checkpoints.
    #[inline]
    pub fn checkpoints(&self) -> Checkpoints<'_> {
        Checkpoints { store: self }
    }
}

impl Checkpoints<'_> {
    /// Writes a checkpoint. Other calls continue meanwhile, except during the quiesce.
    pub fn write(self) -> Result<()> {
        self.store.checkpoint_as(Reason::Running, Boundary::Staged, || true)
    }
    /// Writes the last checkpoint of a session. Its superblock says that there is nothing to
    /// replay.
    pub fn write_clean(self) -> Result<()> {
        self.store.checkpoint_as(Reason::Left, Boundary::Staged, || true)
    }
    /// The same, before [`Device::close`](shoal_device::Device::close), which makes it durable
    /// where the device keeps the order of writes. The journal's thread must not flush after that.
    pub fn write_last(self) -> Result<()> {
        self.store.checkpoint_as(Reason::Closing, Boundary::Staged, || true)
    }
    /// Writes the first checkpoint after a recovery from the journal alone.
    pub(crate) fn write_recovered(self) -> Result<()> {
        self.store.checkpoint_as(Reason::Recovery, Boundary::Staged, || true)
    }
    /// Returns whether a checkpoint is due.
    pub fn is_due(self) -> bool {
        self.store.checkpoint_is_due()
    }
    /// Requests a checkpoint from the background thread.
    pub fn request(self) {
        self.store.request_checkpoint();
    }
    /// For the background thread: waits, at most `at_most`, until a checkpoint is requested.
    /// Returns whether it was.
    pub fn wait_for_request(self, at_most: Duration) -> bool {
        self.store.wait_for_request(at_most)
    }
    /// Metadata bytes that the next checkpoints must write, an upper estimate.
    pub fn dirty_bytes(self) -> u64 {
        self.store.dirty_bytes()
    }
    /// The newest checkpoint.
    pub fn newest(self) -> Arc<Image> {
        self.store.newest_checkpoint()
    }
    /// LSN of the newest checkpoint.
    pub fn newest_lsn(self) -> Lsn {
        self.store.checkpoint_lsn()
    }
    /// Time since the newest checkpoint was written; `None`: before the volume was opened.
    pub fn newest_age(self) -> Option<Duration> {
        self.store.published.lock().written.map(|written| written.elapsed())
    }
    /// Number of the newest checkpoint.
    pub fn newest_epoch(self) -> Epoch {
        self.store.published.lock().image.checkpoint.epoch
    }
    /// Returns an epoch that has ended, and an LSN: records from this LSN on are of later epochs.
    pub fn ended(self) -> (Epoch, Lsn) {
        // In this order. It synchronizes with the checkpoint that has begun the current epoch.
        let ended = self.store.epoch.load(Ordering::Acquire).saturating_sub(1);
        (ended, self.store.lsn())
    }
    /// Sets the label, which becomes durable with a checkpoint, written now.
    pub fn set_label(self, label: Label) -> Result<()> {
        self.store.writable()?;
        self.store.published.lock().superblock.label = label;
        self.write()
    }
    /// The superblock as last written; the label may be newer.
    pub fn superblock(self) -> Superblock {
        self.store.published.lock().superblock
    }
    /// Runs `f` with the newest checkpoint. Everything that it points to stays unchanged meanwhile.
    /// Calls continue, but the next checkpoint waits before it frees space, so `f` must be short.
    pub fn with_newest<R>(self, f: impl FnOnce(&Image) -> R) -> R {
        let published = self.store.published.lock();
        let _stays = self.store.images.read();
        let image = published.image.clone();
        drop(published);
        f(&image)
    }
    /// Runs `f` with the newest checkpoint, while no transaction and no checkpoint is in flight.
    /// `f` must not begin any.
    pub fn quiesced<R>(self, f: impl FnOnce(&Image) -> R) -> R {
        let published = self.store.published.lock();
        let _quiesced = self.store.quiesce.begin();
        f(&published.image)
    }
    /// Unpins bytes after the checkpoint of this epoch. Records of this epoch point to them again,
    /// so their segment must not be reused before that checkpoint is durable.
    pub fn unpin_after(self, epoch: Epoch, addr: Addr, len: u32) {
        self.store.unpins.lock().push((epoch, addr, len));
    }
    /// For the cleaner: makes the next checkpoint write page `number` of the root table elsewhere,
    /// if one of its copies is still at `addr`.
    pub fn rewrite_root_page(self, number: u16, addr: Addr) {
        self.store.rewrite_root_page(number, addr);
    }
    /// For the cleaner: if `raw`, found at `addr`, begins like a page or an index page of the usage
    /// table, and that is still there, makes the next checkpoint write it elsewhere.
    pub fn rewrite_usage_page(self, raw: &[u8], addr: Addr) {
        self.store.rewrite_usage_page(raw, addr);
    }
}

impl Store {
    /// Writes a checkpoint during a replay: after a later crash only the records after it are
    /// replayed.
    pub(crate) fn checkpoint_replayed(&self, replayed: JournalPos) -> Result<()> {
        self.checkpoint_as(Reason::Recovery, Boundary::Replayed(replayed), || true)
    }

    /// Writes a checkpoint if `wanted` still returns `true` when no other is in progress.
    pub(crate) fn checkpoint_if(&self, wanted: impl Fn() -> bool) -> Result<()> {
        self.checkpoint_as(Reason::Running, Boundary::Staged, wanted)
    }

    fn checkpoint_as(
        &self,
        reason: Reason,
        boundary: Boundary,
        wanted: impl Fn() -> bool,
    ) -> Result<()> {
        let mut published = self.published.lock();
        self.writable()?;
        if !wanted() {
            return Ok(());
        }
        let careful = self.careful("a checkpoint was written");
        let begun = Instant::now();
        let done = self.checkpoint_steps(&mut published, reason, boundary);
        self.counters.took(Timed::Checkpoint, begun.elapsed(), done.is_err(), 0);
        drop(careful);
        // Where the device keeps the order of writes, the checkpoint is complete before.
        let flushes = reason.is_awaited() && self.device.keeps_order();
        let done = done.and_then(|()| match flushes && !planted::is(Defect::SuperblockFlush) {
            true => self.flush(),
            false => Ok(()),
        });
        match &done {
            // The device keeps what it has no room for: only the caller's wait is in vain.
            Err(e) if self.device.keeps_order() && e.code() == Code::NoSpace => {}
            Err(e) => self.poison(&format!("checkpoint failed: {e}")),
            Ok(()) => {}
        }
        *self.checkpoints.lock() += 1;
        self.checkpoint_done.notify_all();
        done
    }

    fn checkpoint_steps(
        &self,
        published: &mut Published,
        reason: Reason,
        boundary: Boundary,
    ) -> Result<()> {
        let begun = Instant::now();
        let quiesced = self.quiesce.begin();
        let lsn = match boundary {
            Boundary::Staged => self.journal()?.mark_boundary(),
            Boundary::Replayed(pos) => pos.lsn,
        };
        let moment = Moment::now(self, lsn);
        let frozen = self.space.checkpointing().freeze();
        self.epoch.store(moment.epoch + 1, Ordering::Release);
        self.boundary_lsn.store(moment.lsn.0, Ordering::Relaxed);
        self.pressure.fetch_and(!DUE, Ordering::Relaxed);
        drop(quiesced);
        self.counters.took(Timed::Quiesce, begun.elapsed(), false, 0);

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
            disk::write(self.volume, &moment.orphans, &mut |raw| writer.place(raw))?;
        for open in &moment.intents {
            next.intents.push(writer.place(open)?);
        }
        if next.intents.len() > INTENTS_MAX {
            let message = "more changes are open than a checkpoint can hold: 'shoal fsck --repair'";
            return Err(Error::refused(Code::NoSpace, message));
        }
        let pos = match boundary {
            Boundary::Staged => self.journal()?.flush_boundary(moment.lsn)?,
            Boundary::Replayed(pos) => pos,
        };
        next.journal = pos.addr;
        let (superblock, usage) = self.write_record(&mut writer, &mut next, published, reason)?;
        let ptr = superblock.checkpoint;
        if !self.device.keeps_order() && !planted::is(Defect::CheckpointFlush) {
            self.flush()?;
        }
        write_superblock(self, &superblock)?;
        let image = Image { checkpoint: next, at: ptr, orphan_blocks, usage };
        *published = Published::now(superblock, image);
        self.cache.written();
        written.into_iter().for_each(RootDone::finish);
        let _none = self.images.write();
        self.space.checkpointing().committed(writer.frozen);
        self.unpin(moment.epoch);
        if let Boundary::Staged = boundary {
            self.space.release_journal_segments(&self.journal()?.segments_before(pos));
        }
        self.discard_here();
        self.checkpoint_lsn.store(moment.lsn.0, Ordering::Release);
        self.pressure.fetch_and(!BEHIND, Ordering::Relaxed);
        self.counters.add(Counter::Checkpoints, 1);
        Ok(())
    }

    /// Flushes the device. No later write touches the sectors of what was written before.
    fn flush(&self) -> Result<()> {
        self.space.sectors().close();
        self.counters.add(Counter::Flushes, 1);
        self.device.flush()
    }

    /// Step 5: frees the previous record and the objects that only it points to, then writes the
    /// changes of the usage table, which account for the table and the record themselves, and the
    /// record. Returns the table's location and the superblock for the record. A backup superblock
    /// follows the record, and then a backup copy of the record, all in one segment, so that they
    /// live as long as the record does, although they do not count as live.
    fn write_record(
        &self,
        writer: &mut MetaWriter<'_>,
        next: &mut Checkpoint,
        before: &Published,
        reason: Reason,
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
            clean: reason.is_clean(),
            ..self.with_features(before.superblock, reason.is_clean())
        };
        let mut raw = record.clone();
        raw.resize((backup_superblock_at(at) - at.addr.0) as usize, 0);
        raw.extend_from_slice(&superblock.encode());
        if let Some(backup) = backup_copy_of(at) {
            raw.resize((backup.addr.0 - at.addr.0) as usize, 0);
            raw.extend_from_slice(&record);
        }
        objects.push((at.addr, raw));
        // Adjacent objects are written together; first the one that continues the last write.
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

/// Returns a record of `len` bytes at address 0, and its length with the backup superblock and the
/// backup copy.
fn extent_of(len: usize) -> (Ptr, usize) {
    let at = Ptr::place(Addr(0), len as u32);
    let backup = backup_copy_of(at).map(|backup| backup.addr.0 + u64::from(backup.len));
    (at, backup.unwrap_or(backup_superblock_at(at) + superblock::SIZE as u64) as usize)
}

impl Store {
    /// The feature of a volume whose journal is written without waiting for data; 0 where the
    /// device keeps the order of writes.
    pub(crate) fn tail_feature(&self) -> u64 {
        if self.device.keeps_order() { 0 } else { INCOMPAT_VERIFIED_TAIL }
    }

    /// Sets the features of a superblock: that the end of the journal must be verified, if the
    /// journal has records of this session. A volume that was closed is for every Shoal.
    fn with_features(&self, mut sb: Superblock, clean: bool) -> Superblock {
        if self.journal.get().is_some() {
            sb.compat &= !COMPAT_REPLAYING;
            sb.incompat &= !INCOMPAT_VERIFIED_TAIL;
            if !clean {
                sb.incompat |= self.tail_feature();
            }
        } else if sb.incompat & INCOMPAT_VERIFIED_TAIL != 0 {
            // A replay goes on: the journal is that of the session before.
            sb.compat |= COMPAT_REPLAYING;
        }
        sb
    }

    /// Writes the other copy of the superblock too: neither may point to the time before this
    /// mount.
    pub(crate) fn write_other_copy(&self) -> Result<()> {
        let mut published = self.published.lock();
        let sequence = published.superblock.sequence + 1;
        let next = Superblock { sequence, ..published.superblock };
        write_superblock(self, &next)?;
        published.superblock = next;
        Ok(())
    }
}

/// Writes the copy whose turn it is, and flushes, unless the device keeps the order of writes.
pub(crate) fn write_superblock(store: &Store, superblock: &Superblock) -> Result<()> {
    let mut raw = superblock.encode();
    raw.resize(superblock::BLOCK, 0);
    let copy = superblock::COPIES[(superblock.sequence % 2) as usize];
    store.device.write_at(&raw, copy)?;
    if !store.device.keeps_order() && !planted::is(Defect::SuperblockFlush) {
        store.flush()?;
    }
    Ok(())
}
