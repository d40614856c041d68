//! Opening a volume: the order in which a mount reads it.
//!
//! | step | action | refused if |
//! | --- | --- | --- |
//! | 1 | read both superblock copies; use the newest valid one | neither is valid; unknown incompat feature |
//! | 2 | read the checkpoint that it points to | checksum, volume id |
//! | 3 | read usage table, pages of the root table, orphan lists and blocks, open intents; a tree's root node at its first use | checksum, rules |
//! | 4 | replay the journal from the checkpoint's LSN, record by record (`recover.rs`) | a bad batch *before* a good one |
//! | 5 | write a checkpoint of a new incarnation, so that old journal batches are never replayed again | |
//!
//! The engine completes intents and frees orphans, through ordinary transactions.

use crate::checkpoint::write_superblock;
use crate::image::Image;
use crate::intents::Intents;
use crate::object::ObjectKind;
use crate::orphans::{Orphans, disk};
use crate::parts::Parts;
use crate::read::{read_checkpoint, read_root_page, read_superblock};
use crate::recover::{Recovered, begin_anew, recover};
use crate::store::{Store, StoreOptions};
use crate::usage_image::{UsageImage, open_table};
use shoal_base::{Code, Epoch, Error, Lsn, Result, limits};
use shoal_device::Device;
use shoal_format::Geometry;
use shoal_format::checkpoint::{Checkpoint, RootState};
use shoal_format::root::{ROOTS, RootPage};
use shoal_format::superblock::Superblock;
use shoal_format::usage::{self, SegKind, UsageEntry, UsageTable};
use shoal_journal::{JournalPos, RingMemory, StartAt};
use shoal_space::Space;
use std::cmp::Ordering;
use std::sync::Arc;

/// A volume whose newest checkpoint has been read.
pub struct Opened {
    /// The volume, as of that checkpoint.
    pub store: Store,
    /// Its recovery, which must come before any change.
    pub recovery: Recovery,
}

impl Opened {
    /// Keeps staged records in this memory, which outlives the process. Must be called before the
    /// recovery, which finds there what a killed process has left.
    ///
    /// # Errors
    /// The memory holds records of another volume.
    pub fn keep_ring(&self, memory: Arc<RingMemory>) -> Result<()> {
        memory.check_owner(self.store.volume)?;
        assert!(self.store.ring.set(memory).is_ok(), "a volume with two rings");
        Ok(())
    }
}

/// The second half of an open: steps 4 and 5.
#[must_use = "before it has run, the volume is that of an earlier moment, and cannot be changed"]
pub struct Recovery {
    sb: Superblock,
    start: JournalPos,
    epoch: Epoch,
    /// Number of segments until then.
    segments: u32,
}

impl Recovery {
    /// Number of the checkpoint with which the open began.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// LSN of the first record to be replayed.
    pub fn lsn(&self) -> Lsn {
        self.start.lsn
    }

    /// Replays the journal, or continues it if the volume was closed.
    ///
    /// A volume whose size changes has a new checkpoint at once, as after a replay: it is what
    /// changes the size. Until it is published the volume has its earlier size, and a crash leaves
    /// it so: nothing that is durable is in a new segment, or only in one that goes.
    pub fn run(self, store: &Store) -> Result<Recovered> {
        match (self.sb.clean, store.geometry.segments.cmp(&self.segments)) {
            (true, Ordering::Equal) => resume(store, &self.sb, self.start),
            // Closed, it has no records, and its journal may end in a segment that goes.
            (true, Ordering::Less) => {
                begin_anew(store, &self.sb, self.start.lsn, false).map(|()| Recovered::default())
            }
            _ => recover(store, &self.sb, self.start),
        }
    }
}

/// Makes a new volume in memory: empty trees, nothing on the device yet. The caller must make the
/// top directory in epoch 1 and write a checkpoint.
pub fn create(device: Arc<dyn Device>, sb: Superblock, options: StoreOptions) -> Result<Store> {
    let parts = Parts::new(device.clone(), sb, options);
    let checkpoint = Checkpoint { volume: sb.volume(), ..Checkpoint::default() };
    let space = Space::fresh(sb.geometry);
    space.host().attach(device.clone(), false);
    let usage = UsageImage::blank(&sb.geometry);
    let image = Image { checkpoint, usage, ..Image::default() };
    let store = parts.store(space, Orphans::default(), image);
    store.roots.push(None)?.set(RootState::Live, b"");
    store.start_journal(sb.incarnation, StartAt::Fresh { lsn: Lsn(1) })?;
    Ok(store)
}

/// Opens a volume: steps 1 to 3.
pub fn open(device: Arc<dyn Device>, options: StoreOptions) -> Result<Opened> {
    let mut sb = read_superblock(&*device)?;
    let writable = sb.may_be_written();
    let read_only = options.read_only || !writable || device.read_only();
    let checkpoint = read_checkpoint(&*device, &sb)?;
    let mut damage = Vec::new();
    let (epoch, at) = (checkpoint.epoch, checkpoint.usage);
    let mut image = Image::read(&*device, &sb, checkpoint, &mut |kind, e| match kind {
        ObjectKind::OrphanList => {
            damage.push(e.to_string());
            Ok(())
        }
        _ => Err(e),
    })?;
    let mut table = open_table(&*device, &sb, epoch, at, &mut image.usage)?;
    let (before, segments) = (sb.geometry, options.segments);
    let resized = segments != 0 && segments != before.segments;
    if resized {
        match segments > before.segments {
            true => may_grow(&*device, &sb, segments, read_only)?,
            false => may_shrink(&*device, &sb, segments, read_only, &table)?,
        }
        sb.geometry.segments = segments;
        image.usage.resize(&sb.geometry);
        table.entries.resize(segments as usize, UsageEntry::default());
    }
    let space = Space::load(sb.geometry, table);
    if resized {
        // The last page that is in both has another number of rows, and its index page another
        // number of pointers.
        let last = usage::pages(&before).min(usage::pages(&sb.geometry)).saturating_sub(1);
        space.checkpointing().rewrite_page(last);
    }
    if !read_only {
        // A session that closed cleanly has left nothing to discard.
        space.host().attach(device.clone(), !sb.clean && options.discard);
    }
    let blocks = &image.orphan_blocks;
    let orphans = Orphans::read(&*device, &sb.geometry, sb.volume(), blocks, damage)?;
    let intents = Intents::read(&*device, &sb.geometry, sb.volume(), &image.checkpoint.intents)?;
    // The next checkpoint must not free what is not there.
    image.retain(&|ptr| disk::may_be_metadata(&sb.geometry, &space, ptr));
    let (journal, lsn) = (image.checkpoint.journal, image.checkpoint.lsn);
    let parts = Parts::new(device, sb, StoreOptions { read_only, ..options });
    let start = JournalPos { addr: journal, lsn };
    let mut store = parts.store(space, orphans, image);
    store.intents = intents;
    read_roots(&store)?;
    Ok(Opened { store, recovery: Recovery { sb, start, epoch, segments: before.segments } })
}

/// Fails if a volume cannot grow to so many segments.
fn may_grow(device: &dyn Device, sb: &Superblock, segments: u32, read_only: bool) -> Result<()> {
    let name = device.describe();
    let larger = Geometry { segments, ..sb.geometry };
    if read_only {
        let message = format!("{name} cannot grow: it is opened read-only");
        return Err(Error::refused(Code::ReadOnly, message));
    }
    if segments > limits::SEGMENTS_MAX {
        let most = sb.geometry.segment_size * u64::from(limits::SEGMENTS_MAX);
        let message = format!("{name} cannot grow so much: its segments allow {most} bytes");
        return Err(Error::refused(Code::Invalid, message));
    }
    if device.capacity() < larger.bytes() {
        let (has, wants) = (device.capacity(), larger.bytes());
        let message = format!("{name} has {has} bytes: too few for a volume of {wants}");
        return Err(Error::refused(Code::NoSpace, message));
    }
    Ok(())
}

/// Fails if a volume cannot become smaller, to so many segments: nothing may be in those that go.
/// After a crash the journal, and what its records point to, would have to be read to know it.
fn may_shrink(
    device: &dyn Device,
    sb: &Superblock,
    segments: u32,
    read_only: bool,
    table: &UsageTable,
) -> Result<()> {
    let name = device.describe();
    let refused = |code, why: String| {
        Err(Error::refused(code, format!("{name} cannot become smaller: {why}")))
    };
    if read_only {
        return refused(Code::ReadOnly, "it is opened read-only".into());
    }
    if u64::from(segments) < limits::SEGMENTS_MIN {
        let least = sb.geometry.segment_size * limits::SEGMENTS_MIN;
        return refused(Code::Invalid, format!("no volume has less than {least} bytes"));
    }
    if !sb.clean {
        return refused(Code::Invalid, "it was not closed".into());
    }
    let rows = (0u32..).zip(&table.entries).skip(segments as usize);
    let holding = |(_, entry): &(u32, &UsageEntry)| entry.kind.holds_objects();
    match rows.into_iter().find(holding) {
        None => Ok(()),
        Some((seg, _)) => refused(Code::Invalid, format!("segment {seg} is in use")),
    }
}

/// Adds the subvolumes of the checkpoint. A page with one damaged copy is written again by the next
/// checkpoint.
fn read_roots(store: &Store) -> Result<()> {
    let image = store.newest_checkpoint();
    let count = image.checkpoint.pages.len();
    for (number, ptr) in image.checkpoint.pages.iter().enumerate() {
        let device = &*store.device;
        let read = read_root_page(device, &store.geometry, store.volume, number, *ptr)?;
        if read.damage.is_some() {
            store.roots.pages_due.insert(number as u16);
        }
        store.roots.push_page(&read.page, page_end(&read.page, number, count))?;
    }
    Ok(())
}

/// One past the last subvolume that page `number` of `count` covers; for the last page, one past
/// the last one in use.
fn page_end(page: &RootPage, number: usize, count: usize) -> usize {
    match page.roots.last() {
        Some(last) if number + 1 == count => usize::from(last.id.0) + 1,
        _ => (number + 1) * ROOTS,
    }
}

/// Continues the journal of a volume that was closed cleanly, under a new incarnation.
fn resume(store: &Store, sb: &Superblock, start: JournalPos) -> Result<Recovered> {
    if store.options.read_only {
        return Ok(Recovered::default());
    }
    store.space.recovery().claim(store.geometry.segment_of(start.addr), SegKind::Journal)?;
    if let Some(memory) = store.ring.get() {
        memory.settle_calls(start.lsn.0);
    }
    let mut published = store.published.lock();
    let next = Superblock {
        sequence: sb.sequence + 1,
        incarnation: sb.incarnation.wrapping_add(1),
        clean: false,
        incompat: sb.incompat | store.tail_feature(),
        ..*sb
    };
    write_superblock(store, &next)?;
    published.superblock = next;
    drop(published);
    // Both copies: the older one must not say "clean" once there are records to replay.
    store.write_other_copy()?;
    store.start_journal(next.incarnation, StartAt::At(start))?;
    Ok(Recovered::default())
}
