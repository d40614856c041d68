//! Opening a damaged volume for a repair: everything readable is collected in memory, and nothing
//! is written until [`Store::publish_salvaged`].
//!
//! | lost | replacement |
//! | --- | --- |
//! | a superblock copy | the other one |
//! | both | the backup superblock after the newest checkpoint's record, found on the device (`backup_superblock.rs`) |
//! | the newest checkpoint's record | its backup copy |
//! | that too | the checkpoint of the other superblock, and the journal after it |
//! | a copy of a root page | the other one |
//! | both | subvolumes found by `lost_pages.rs`: names in the top directory, inode blocks and leaves on the device |
//! | pages of the usage table, all of it | segments are counted again in any case |
//! | a leaf of a tree | the entries of all others, in a new tree; the engine reconstructs the lost ones as far as possible |
//! | an inner node of `extents` or `attrs` | the same, and the leaves below it that are found on the device |
//! | an inode block | none; if only `imap` has lost it, the newest one found on the device |
//! | orphan lists and blocks, open intents | none: the engine finds inodes without names |
//! | the journal from some record on | the records before it |
//!
//! The new image is one checkpoint. It overwrites nothing that the old one or its journal needs:
//! all segments with old data stay allocated until it is durable. So a crash during a repair leaves
//! the damaged volume as it was.

use crate::arrived::Arrived;
use crate::backup_superblock::with_either_record;
use crate::held::Held;
use crate::image::Image;
use crate::intents::Intents;
use crate::lost_pages::Search;
use crate::object::ObjectKind;
use crate::orphans::Orphans;
use crate::parts::Parts;
use crate::read::{read_checkpoint, read_root_page, superblock_copies};
use crate::recover::Recovered;
use crate::replay::Replay;
use crate::roots::Root;
use crate::scan::{adopt_blocks, adopt_entries};
use crate::store::{Store, StoreOptions};
use shoal_base::{Code, Error, Lsn, Result, RootId, SegNo};
use shoal_device::Device;
use shoal_format::Ptr;
use shoal_format::checkpoint::{Checkpoint, RootRecord, RootState};
use shoal_format::node::{Key, TreeId};
use shoal_format::root::{PagePtr, ROOTS};
use shoal_format::superblock::Superblock;
use shoal_format::usage::{Expected, SegKind};
use shoal_journal::{JournalPos, StartAt};
use shoal_space::Space;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// The type of an unreadable object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LostKind {
    /// A copy of the superblock.
    Superblock,
    /// The record of the newest checkpoint.
    Checkpoint,
    /// A page of the usage table, an index page, its root.
    Usage,
    /// One or both copies of a page of the root table.
    RootPage,
    /// A block of the orphan table, or a list of them.
    Orphans,
    /// The open intents.
    Intents,
    /// The journal from some record on.
    Journal,
    /// A node of a tree.
    Node(TreeId),
    /// An inode block.
    InodeBlock,
}

/// An unreadable object.
#[derive(Clone, Debug)]
pub struct LostObject {
    /// Its type.
    pub kind: LostKind,
    /// Its subvolume.
    pub root: RootId,
    /// Lowest key, or number of the inode block, that it covered.
    pub low: Key,
    /// One past the last key.
    pub high: Key,
    /// The error, with the address.
    pub error: Error,
}

impl LostObject {
    fn of_volume(kind: LostKind, error: Error) -> LostObject {
        LostObject { kind, root: RootId(0), low: Key::MIN, high: Key::MAX, error }
    }
}

/// A volume, as far as it is readable.
pub struct Salvaged {
    /// The volume; accepts changes in memory only.
    pub store: Store,
    /// The result of the replay.
    pub recovered: Recovered,
    /// The losses, in the order in which they were found.
    pub losses: Vec<LostObject>,
    /// Segments to pass to [`Store::publish_salvaged`].
    pub held: Held,
}

/// Records damage as a loss. Other failures end a salvage: a missing device may return.
fn damage<T>(kind: LostKind, step: Result<T>, losses: &mut Vec<LostObject>) -> Result<Option<T>> {
    match step {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_damage() => {
            losses.push(LostObject::of_volume(kind, error));
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Opens everything readable, with the newest superblock, or one found in its place. `options`
/// apply once it has been published.
pub fn salvage(
    device: Arc<dyn Device>,
    newest: Superblock,
    options: StoreOptions,
) -> Result<Salvaged> {
    if !newest.may_be_written() {
        let message = "volume has features this shoal does not know: repair it with a newer shoal";
        return Err(Error::refused(Code::NotSupported, message));
    }
    let mut losses = Vec::new();
    let mut superblocks = Vec::new();
    for copy in superblock_copies(&*device)? {
        superblocks.extend(damage(LostKind::Superblock, copy, &mut losses)?);
    }
    if !superblocks.iter().any(|sb| sb.sequence == newest.sequence) {
        superblocks.push(newest);
    }
    superblocks.sort_by_key(|sb| std::cmp::Reverse(sb.sequence));
    let (sb, checkpoint) = checkpoint_of(&*device, &superblocks, &mut losses)?;
    let mut held = Held::default();
    let geometry = sb.geometry;
    let of = Expected { geometry: &geometry, volume: sb.volume(), epoch: checkpoint.epoch };
    let mut lost = |kind, e| {
        let lost = if kind == ObjectKind::OrphanList { LostKind::Orphans } else { LostKind::Usage };
        losses.push(LostObject::of_volume(lost, e));
        Ok(())
    };
    let mut image = Image::read(&*device, &sb, checkpoint, &mut lost)?;
    let table = image.usage.salvage_table(&*device, &of, &mut lost)?;
    held.used(&image.usage, &table);
    image.for_each_object(&mut |_, ptr| held.pointer(&geometry, ptr, SegKind::Meta));
    let orphans = orphans_of(&*device, &sb, &image.orphan_blocks, &mut losses)?;
    let (journal, lsn) = (image.checkpoint.journal, image.checkpoint.lsn);
    let intents = Intents::read(&*device, &geometry, sb.volume(), &image.checkpoint.intents);
    let intents = damage(LostKind::Intents, intents, &mut losses)?.unwrap_or_default();
    let start = JournalPos { addr: journal, lsn };
    image.retain(&|ptr| geometry.contains(ptr.addr, u64::from(ptr.len)));
    let pages = root_pages_of(&*device, &sb, &mut image, &mut losses)?;
    // The next superblock replaces the one whose checkpoint is lost, not the other.
    let parity = newest.sequence + u64::from(newest.sequence != sb.sequence);
    let published = Superblock { sequence: parity, ..sb };
    let parts = Parts::new(device, published, StoreOptions { read_only: true, ..options });
    let mut store = parts.store(Space::uncounted(geometry), orphans, image);
    store.intents = intents;
    push_roots(&store, &pages, &mut held, &mut losses)?;
    let recovered = replay(&store, &sb, start, &mut held, &mut losses)?;
    Ok(Salvaged { store, recovered, losses, held })
}

/// Returns the newest superblock whose checkpoint is readable, and that checkpoint.
fn checkpoint_of(
    device: &dyn Device,
    superblocks: &[Superblock],
    losses: &mut Vec<LostObject>,
) -> Result<(Superblock, Checkpoint)> {
    let mut error = Error::corrupt("superblock", None, "no copy can be read");
    for sb in superblocks {
        for sb in with_either_record(*sb) {
            match read_checkpoint(device, &sb) {
                Ok(checkpoint) => return Ok((sb, checkpoint)),
                Err(e) if e.is_damage() => {
                    losses.push(LostObject::of_volume(LostKind::Checkpoint, e.clone()));
                    error = e;
                }
                Err(e) => return Err(e),
            }
        }
    }
    Err(error)
}

/// Returns the subvolumes of each page of the root table; `None` if both copies are unreadable.
/// Such a page is removed from the image.
fn root_pages_of(
    device: &dyn Device,
    sb: &Superblock,
    image: &mut Image,
    losses: &mut Vec<LostObject>,
) -> Result<Vec<Option<Vec<RootRecord>>>> {
    let mut pages = Vec::new();
    for (number, ptr) in image.checkpoint.pages.iter_mut().enumerate() {
        let read = read_root_page(device, &sb.geometry, sb.volume(), number, *ptr);
        let root = RootId((number * ROOTS) as u16);
        // A copy that is lost, while the other is there, covered nothing.
        let mut lost = |error, high| {
            let (kind, low) = (LostKind::RootPage, Key::MIN);
            losses.push(LostObject { kind, root, low, high, error });
        };
        pages.push(match read {
            Ok(read) => {
                read.damage.into_iter().for_each(|error| lost(error, Key::MIN));
                Some(read.page.roots)
            }
            Err(error) if error.is_damage() => {
                lost(error, Key::MAX);
                *ptr = PagePtr::NULL;
                None
            }
            Err(e) => return Err(e),
        });
    }
    Ok(pages)
}

/// Adds all subvolumes.
fn push_roots(
    store: &Store,
    pages: &[Option<Vec<RootRecord>>],
    held: &mut Held,
    losses: &mut Vec<LostObject>,
) -> Result<()> {
    let lost = pages.iter().enumerate().filter(|(_, page)| page.is_none());
    let lost: BTreeSet<usize> = lost.map(|(number, _)| number).collect();
    let mut search = match lost.is_empty() {
        true => None,
        false => Some(Search::of(store, &lost, held)?),
    };
    for (number, page) in pages.iter().enumerate() {
        store.roots.pages_due.insert(number as u16);
        let ids = number * ROOTS..(number + 1) * ROOTS;
        if let Some(page) = page {
            let last = page.last().map_or(ids.start, |last| usize::from(last.id.0) + 1);
            let end = if number + 1 == pages.len() { last } else { ids.end };
            let mut records = page.iter().peekable();
            for id in ids.start..end {
                let vacant = RootRecord::vacant(RootId(id as u16));
                let record = records.next_if(|record| usize::from(record.id.0) == id);
                push_root(store, record.unwrap_or(&vacant), None, held, losses)?;
            }
        } else if let Some(search) = &search {
            let end = if number + 1 == pages.len() { search.end(number) } else { ids.end };
            for id in (ids.start..end).map(|id| RootId(id as u16)) {
                push_root(store, &search.stand_in(id), Some(search), held, losses)?;
            }
        }
        if let Some(search) = search.as_mut().filter(|_| number == 0) {
            search.name_roots(store, page.is_some())?;
        }
    }
    Ok(())
}

fn orphans_of(
    device: &dyn Device,
    sb: &Superblock,
    blocks: &[Ptr],
    losses: &mut Vec<LostObject>,
) -> Result<Orphans> {
    let orphans = Orphans::default();
    for ptr in blocks {
        let read = orphans.read_block(device, &sb.geometry, sb.volume(), *ptr);
        damage(LostKind::Orphans, read, losses)?;
    }
    Ok(orphans)
}

/// Adds one subvolume: its trees, then its inode blocks. `search`: its page is lost, and therefore
/// its trees.
fn push_root(
    store: &Store,
    record: &RootRecord,
    search: Option<&Search>,
    held: &mut Held,
    losses: &mut Vec<LostObject>,
) -> Result<()> {
    let (epoch, geometry, id) = (store.epoch(), store.geometry, record.id);
    let mut lost_ranges = Vec::new();
    let mut beheaded: Vec<(TreeId, Range<Key>)> = Vec::new();
    let root = store.roots.push_salvaged(record, epoch, &mut |tree, survey| {
        survey.nodes.iter().for_each(|ptr| held.pointer(&geometry, *ptr, SegKind::Meta));
        for node in survey.lost {
            if tree == TreeId::Imap {
                lost_ranges.push(node.low.hi..node.high.hi);
            }
            let (low, high, error) = (node.low, node.high, node.error);
            // For names there are better sources than unreferenced leaves.
            let far = matches!(tree, TreeId::Extents | TreeId::Attrs);
            beheaded.extend((far && node.level != Some(0)).then_some((tree, low..high)));
            losses.push(LostObject { kind: LostKind::Node(tree), root: id, low, high, error });
        }
    })?;
    if let Some(search) = search.filter(|_| record.state == RootState::Live) {
        adopt_root(store, root, search, held, losses)?;
        for tree in [TreeId::Extents, TreeId::Attrs] {
            beheaded.push((tree, Key::MIN..Key::MAX));
        }
    }
    for block in root.table.salvage().drop_unreadable(epoch)? {
        held.pointer(&geometry, block.ptr, SegKind::Meta);
        let (low, high) = (Key::new(block.number, 0), Key::new(block.number + 1, 0));
        losses.push(LostObject {
            kind: LostKind::InodeBlock,
            root: id,
            low,
            high,
            error: block.error,
        });
    }
    root.table.for_each_block(&mut |_, ptr, _| {
        held.pointer(&geometry, ptr, SegKind::Meta);
        Ok(true)
    })?;
    if record.state != RootState::Vacant && !lost_ranges.is_empty() {
        adopt_blocks(store, root, &lost_ranges, held)?;
    }
    for tree in [TreeId::Extents, TreeId::Attrs] {
        let ranges = beheaded.iter().filter(|(of, _)| *of == tree).map(|(_, r)| r.clone());
        let ranges: Vec<Range<Key>> = ranges.collect();
        if record.state == RootState::Live && !ranges.is_empty() {
            adopt_entries(store, root.tree(tree), &ranges, held)?;
        }
    }
    Ok(())
}

/// Recovers a subvolume whose page is lost: its trees are lost too, and it gets the inode blocks
/// that were found.
fn adopt_root(
    store: &Store,
    root: &Root,
    search: &Search,
    held: &mut Held,
    losses: &mut Vec<LostObject>,
) -> Result<()> {
    for tree in TreeId::ALL {
        let rule = format!("root node of subvolume {} is lost with its page", root.id.0);
        let error = Error::corrupt(format!("{} tree", tree.name()), None, rule);
        let (kind, low, high) = (LostKind::Node(tree), Key::MIN, Key::MAX);
        losses.push(LostObject { kind, root: root.id, low, high, error });
    }
    for (number, ptr) in search.blocks_of(root.id) {
        if root.table.salvage().adopt(number, ptr, store.epoch())? {
            held.pointer(&store.geometry, ptr, SegKind::Meta);
        }
    }
    Ok(())
}

/// Replays the journal after the checkpoint, up to its end or to the first error.
fn replay(
    store: &Store,
    sb: &Superblock,
    start: JournalPos,
    held: &mut Held,
    losses: &mut Vec<LostObject>,
) -> Result<Recovered> {
    held.journal.insert(store.geometry.segment_of(start.addr));
    store.salvaged_lsn(start.lsn);
    if sb.clean {
        return Ok(Recovered::default());
    }
    let mut replay = Replay::new(store);
    let (mut records, mut last) = (0, start.lsn);
    let mut arrived = Arrived::new(store, sb, start);
    let mut each = |lsn: Lsn, record: &[u8]| {
        if !arrived.has(lsn, record)? {
            return Ok(());
        }
        (records, last) = (records + 1, lsn);
        replay.record(lsn, record)
    };
    let (device, volume) = (&*store.device, store.volume);
    let ended =
        shoal_journal::scan(device, &store.geometry, volume, sb.incarnation, start, &mut each);
    let ended = damage(LostKind::Journal, ended, losses)?;
    replay.finish();
    store.salvaged_lsn(ended.as_ref().map_or(last, |end| end.end.lsn));
    let mut recovered = Recovered { needed: true, records, ..Recovered::default() };
    if let Some(end) = ended {
        held.journal.extend(&end.segments);
        let torn = arrived.missing().map(|missing| missing.text.clone());
        (recovered.bytes, recovered.torn) = (end.bytes, torn.or(end.torn));
    }
    Ok(recovered)
}

impl Store {
    /// Sets a lower bound for the start of the new image's journal.
    fn salvaged_lsn(&self, lsn: Lsn) {
        self.checkpoint_lsn.fetch_max(lsn.0, std::sync::atomic::Ordering::Relaxed);
        self.boundary_lsn.fetch_max(lsn.0, std::sync::atomic::Ordering::Relaxed);
    }

    /// Publishes a salvaged volume in its current state: one checkpoint, then both superblocks.
    /// `live` has, for each segment, the bytes of data and of metadata that something in the volume
    /// points to.
    pub fn publish_salvaged(&mut self, held: &Held, live: &[(u64, u64)]) -> Result<()> {
        let entries = held.entries(&self.geometry, live);
        self.space.recovery().recount(&entries);
        self.options.read_only = false;
        let incarnation = self.checkpoints().superblock().incarnation.wrapping_add(1);
        self.start_journal(incarnation, StartAt::Fresh { lsn: self.checkpoint_lsn() })?;
        {
            let superblock = &mut self.published.lock().superblock;
            superblock.incarnation = incarnation;
            superblock.clean = false;
        }
        self.checkpoints().write()?;
        self.write_other_copy()?;
        let journal = entries.iter().zip(0..).filter(|(entry, _)| entry.kind == SegKind::Journal);
        let journal: Vec<SegNo> = journal.map(|(_, n)| SegNo(n)).collect();
        self.space.release_journal_segments(&journal);
        Ok(())
    }
}
