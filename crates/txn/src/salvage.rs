//! Opening a damaged volume for a repair: everything that can be read is brought together in
//! memory, and nothing is written until [`Store::publish_salvaged`].
//!
//! | lost | what stands in for it |
//! | --- | --- |
//! | a superblock copy | the other one |
//! | both | the spare one behind the newest checkpoint's record, found on the device (`spare.rs`) |
//! | the newest checkpoint's record | its second copy |
//! | that too | the checkpoint that the other superblock names, and the journal behind it |
//! | a copy of a root page | the other one |
//! | both | what `lost_pages.rs` finds of its roots: names in the top directory, inode blocks and leaves on the device |
//! | pages of the usage table, all of it | segments are counted anew in any case |
//! | a leaf of a tree | the entries of all others, in a new tree; what it held is the engine's to find out |
//! | an inner node of `extents` or `attrs` | the same, and the leaves found on the device that were below it |
//! | an inode block | nothing; the newest one found on the device if only `imap` has lost it |
//! | orphan lists and blocks, open intents | nothing: the engine sees inodes without names |
//! | the journal from some record on | what is before it |
//!
//! The new image is one checkpoint. It overwrites nothing that the old one or its journal needs:
//! segments that anything old points to are taken until it is durable. So a crash in the midst of a
//! repair leaves the damaged volume as it was.

use crate::image::{Image, ObjectKind};
use crate::intents::Intents;
use crate::lost_pages::Search;
use crate::open::{Parts, Recovered, read_checkpoint};
use crate::orphans::Orphans;
use crate::replay::Replay;
use crate::root_pages;
use crate::roots::Root;
use crate::spare::with_either_record;
use crate::store::{Store, StoreOptions};
use crate::usage_pages::UsageImage;
use shoal_base::limits::EXTENT_MAX;
use shoal_base::{Code, Error, Lsn, Result, RootId, SegNo};
use shoal_device::Device;
use shoal_format::checkpoint::{Checkpoint, RootRecord, RootState};
use shoal_format::declare::U48;
use shoal_format::node::{Key, TreeId};
use shoal_format::root::{PagePtr, ROOTS};
use shoal_format::superblock::{self, COPIES, Superblock};
use shoal_format::usage::{Expected, SegKind, UsageEntry, UsageTable};
use shoal_format::{Geometry, Ptr};
use shoal_journal::{JournalPos, StartAt};
use shoal_space::Space;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// What kind of thing cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// A copy of the superblock.
    Superblock,
    /// The record of the newest checkpoint.
    Checkpoint,
    /// A page of the usage table, an index page, its root.
    Usage,
    /// One copy of a page of the root table, or both.
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

/// Something that cannot be read.
#[derive(Clone, Debug)]
pub struct Loss {
    /// What.
    pub what: Lost,
    /// Root that it is of.
    pub root: RootId,
    /// Lowest key, or number of the inode block, that it answered for.
    pub low: Key,
    /// One past the last.
    pub high: Key,
    /// What is wrong, and where.
    pub error: Error,
}

impl Loss {
    fn of_volume(what: Lost, error: Error) -> Loss {
        Loss { what, root: RootId(0), low: Key::MIN, high: Key::MAX, error }
    }
}

/// Segments of the old image, not to be written before the new one is durable.
#[derive(Default)]
pub struct Held {
    kinds: BTreeMap<u32, SegKind>,
    /// Segments of which the usage table cannot be read.
    unknown: Vec<Range<u32>>,
    journal: BTreeSet<SegNo>,
}

/// A volume as far as it could be read.
pub struct Salvaged {
    /// The volume; takes changes in memory alone.
    pub store: Store,
    /// What the journal held.
    pub recovered: Recovered,
    /// What is lost, in the order in which it was met.
    pub losses: Vec<Loss>,
    /// For [`Store::publish_salvaged`].
    pub held: Held,
}

/// Failures other than damage end a salvage: a device that is gone may come back.
fn damage<T>(what: Lost, step: Result<T>, losses: &mut Vec<Loss>) -> Result<Option<T>> {
    match step {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_damage() => {
            losses.push(Loss::of_volume(what, error));
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Every copy of the superblock: what it says, or what is wrong with it. A copy that was never
/// written is neither.
pub fn superblock_copies(device: &dyn Device) -> Result<Vec<Result<Superblock>>> {
    let mut copies = Vec::new();
    let mut blank = None;
    for addr in COPIES {
        let mut raw = vec![0; 4096];
        if device.capacity() < addr + raw.len() as u64 {
            continue;
        }
        let bad = |rule: &str| Error::corrupt("superblock", Some(addr), rule);
        match device.read_at(&mut raw, addr).and_then(|()| Superblock::decode(&raw, addr)) {
            Ok(Some(_)) if raw[superblock::SIZE..].iter().any(|b| *b != 0) => {
                copies.push(Err(bad("not zero behind its end")));
            }
            Ok(Some(sb)) => copies.push(Ok(sb)),
            Ok(None) if raw.iter().all(|b| *b == 0) => blank = Some(bad("all zero")),
            Ok(None) => copies.push(Err(bad("magic"))),
            Err(e) => copies.push(Err(e)),
        }
    }
    // Only mkfs leaves one of them out: the second write is of the other.
    let written = copies.iter().flatten().any(|sb| sb.sequence > 1);
    copies.extend(blank.filter(|_| written).map(Err));
    Ok(copies)
}

/// Opens what can be opened, by the newest superblock there is, or that which has been found in its
/// stead. `options` say what holds once it has been published.
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
        superblocks.extend(damage(Lost::Superblock, copy, &mut losses)?);
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
        let what = if kind == ObjectKind::OrphanList { Lost::Orphans } else { Lost::Usage };
        losses.push(Loss::of_volume(what, e));
        Ok(())
    };
    let mut image = Image::read(&*device, &sb, checkpoint, &mut lost)?;
    let table = image.usage.salvage_table(&*device, &of, &mut lost)?;
    held.used(&image.usage, &table);
    image.for_each_object(&mut |_, ptr| held.pointer(&geometry, ptr, SegKind::Meta));
    let orphans = orphans_of(&*device, &sb, &image.orphan_blocks, &mut losses)?;
    let (journal, lsn) = (image.checkpoint.journal, image.checkpoint.lsn);
    let intents = Intents::read(&*device, &geometry, sb.volume(), &image.checkpoint.intents);
    let intents = damage(Lost::Intents, intents, &mut losses)?.unwrap_or_default();
    let start = JournalPos { addr: journal, lsn };
    image.retain(&|ptr| geometry.contains(ptr.addr, u64::from(ptr.len)));
    let pages = root_pages_of(&*device, &sb, &mut image, &mut losses)?;
    // The next superblock takes the place of the one whose checkpoint is lost, not of the other.
    let parity = newest.sequence + u64::from(newest.sequence != sb.sequence);
    let published = Superblock { sequence: parity, ..sb };
    let parts = Parts::new(device, published, StoreOptions { read_only: true, ..options });
    let mut store = parts.store(Space::uncounted(geometry), orphans, image);
    store.intents = intents;
    push_roots(&store, &pages, &mut held, &mut losses)?;
    let recovered = replay(&store, &sb, start, &mut held, &mut losses)?;
    Ok(Salvaged { store, recovered, losses, held })
}

/// The newest superblock whose checkpoint can be read, and that.
fn checkpoint_of(
    device: &dyn Device,
    superblocks: &[Superblock],
    losses: &mut Vec<Loss>,
) -> Result<(Superblock, Checkpoint)> {
    let mut error = Error::corrupt("superblock", None, "no copy can be read");
    for sb in superblocks {
        for sb in with_either_record(*sb) {
            match read_checkpoint(device, &sb) {
                Ok(checkpoint) => return Ok((sb, checkpoint)),
                Err(e) if e.is_damage() => {
                    losses.push(Loss::of_volume(Lost::Checkpoint, e.clone()));
                    error = e;
                }
                Err(e) => return Err(e),
            }
        }
    }
    Err(error)
}

/// The pages of the root table: their roots; `None`: neither copy can be read. Such a page is no
/// part of the image.
fn root_pages_of(
    device: &dyn Device,
    sb: &Superblock,
    image: &mut Image,
    losses: &mut Vec<Loss>,
) -> Result<Vec<Option<Vec<RootRecord>>>> {
    let mut pages = Vec::new();
    for (number, ptr) in image.checkpoint.pages.iter_mut().enumerate() {
        let read = root_pages::read(device, &sb.geometry, sb.volume(), number, *ptr);
        let root = RootId((number * ROOTS) as u16);
        let mut lost = |error| {
            losses.push(Loss { what: Lost::RootPage, root, low: Key::MIN, high: Key::MAX, error });
        };
        pages.push(match read {
            Ok(read) => {
                read.damage.into_iter().for_each(lost);
                Some(read.page.roots)
            }
            Err(error) if error.is_damage() => {
                lost(error);
                *ptr = PagePtr::NULL;
                None
            }
            Err(e) => return Err(e),
        });
    }
    Ok(pages)
}

/// Enters all roots.
fn push_roots(
    store: &Store,
    pages: &[Option<Vec<RootRecord>>],
    held: &mut Held,
    losses: &mut Vec<Loss>,
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
    losses: &mut Vec<Loss>,
) -> Result<Orphans> {
    let orphans = Orphans::default();
    for ptr in blocks {
        let read = orphans.read_block(device, &sb.geometry, sb.volume(), *ptr);
        damage(Lost::Orphans, read, losses)?;
    }
    Ok(orphans)
}

/// One root: its trees, then its inode blocks. `search`: its page is lost, and so its trees are.
fn push_root(
    store: &Store,
    record: &RootRecord,
    search: Option<&Search>,
    held: &mut Held,
    losses: &mut Vec<Loss>,
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
            // Names have better witnesses than leaves that nothing points to.
            let far = matches!(tree, TreeId::Extents | TreeId::Attrs);
            beheaded.extend((far && node.level != Some(0)).then_some((tree, low..high)));
            losses.push(Loss { what: Lost::Node(tree), root: id, low, high, error });
        }
    })?;
    if let Some(search) = search.filter(|_| record.state == RootState::Live) {
        adopt_root(store, root, search, held, losses)?;
        for tree in [TreeId::Extents, TreeId::Attrs] {
            beheaded.push((tree, Key::MIN..Key::MAX));
        }
    }
    for block in root.table.drop_unreadable(epoch)? {
        held.pointer(&geometry, block.ptr, SegKind::Meta);
        let (low, high) = (Key::new(block.number, 0), Key::new(block.number + 1, 0));
        losses.push(Loss { what: Lost::InodeBlock, root: id, low, high, error: block.error });
    }
    root.table.for_each_block(&mut |_, ptr, _| {
        held.pointer(&geometry, ptr, SegKind::Meta);
        Ok(true)
    })?;
    if record.state != RootState::Vacant && !lost_ranges.is_empty() {
        crate::scan::adopt_blocks(store, root, &lost_ranges, held)?;
    }
    for tree in [TreeId::Extents, TreeId::Attrs] {
        let ranges = beheaded.iter().filter(|(of, _)| *of == tree).map(|(_, r)| r.clone());
        let ranges: Vec<Range<Key>> = ranges.collect();
        if record.state == RootState::Live && !ranges.is_empty() {
            crate::scan::adopt_entries(store, root.tree(tree), &ranges, held)?;
        }
    }
    Ok(())
}

/// A root whose page is lost: its trees are too, and the inode blocks that were found are its.
fn adopt_root(
    store: &Store,
    root: &Root,
    search: &Search,
    held: &mut Held,
    losses: &mut Vec<Loss>,
) -> Result<()> {
    for tree in TreeId::ALL {
        let rule = format!("root node of root {} is lost with its page", root.id.0);
        let error = Error::corrupt(format!("{} tree", tree.name()), None, rule);
        let (what, low, high) = (Lost::Node(tree), Key::MIN, Key::MAX);
        losses.push(Loss { what, root: root.id, low, high, error });
    }
    for (number, ptr) in search.blocks_of(root.id) {
        if root.table.adopt(number, ptr, store.epoch())? {
            held.pointer(&store.geometry, ptr, SegKind::Meta);
        }
    }
    Ok(())
}

/// The journal behind the checkpoint, up to its end or to what is wrong with it.
fn replay(
    store: &Store,
    sb: &Superblock,
    start: JournalPos,
    held: &mut Held,
    losses: &mut Vec<Loss>,
) -> Result<Recovered> {
    held.journal.insert(store.geometry.segment_of(start.addr));
    store.salvaged_lsn(start.lsn);
    if sb.clean {
        return Ok(Recovered::default());
    }
    let mut replay = Replay::new(store);
    let (mut records, mut last) = (0, start.lsn);
    let mut each = |lsn: Lsn, record: &[u8]| {
        (records, last) = (records + 1, lsn);
        replay.record(lsn, record)
    };
    let (device, volume) = (&*store.device, store.volume);
    let ended =
        shoal_journal::scan(device, &store.geometry, volume, sb.incarnation, start, &mut each);
    let ended = damage(Lost::Journal, ended, losses)?;
    replay.finish();
    store.salvaged_lsn(ended.as_ref().map_or(last, |end| end.end.lsn));
    let mut recovered = Recovered { needed: true, records, ..Recovered::default() };
    if let Some(end) = ended {
        held.journal.extend(&end.segments);
        (recovered.bytes, recovered.torn) = (end.bytes, end.torn);
    }
    Ok(recovered)
}

impl Held {
    /// What the old usage table says is in use, as far as it can be read.
    fn used(&mut self, usage: &UsageImage, table: &UsageTable) {
        self.unknown.clone_from(&usage.lost);
        for (n, entry) in table.entries.iter().enumerate() {
            if entry.kind.holds_objects() {
                self.kinds.insert(n as u32, entry.kind);
            } else if entry.kind == SegKind::Journal {
                self.journal.insert(SegNo(n as u32));
            }
        }
    }
    /// Something old is there.
    pub(crate) fn pointer(&mut self, geometry: &Geometry, ptr: Ptr, kind: SegKind) {
        if !ptr.is_null() && geometry.contains(ptr.addr, u64::from(ptr.len)) {
            self.kinds.entry(geometry.segment_of(ptr.addr).0).or_insert(kind);
        }
    }
    /// Whether a segment may hold metadata.
    pub(crate) fn may_hold_metadata(&self, seg: u32) -> bool {
        match self.kinds.get(&seg) {
            Some(kind) => *kind == SegKind::Meta,
            None => {
                let unknown = self.unknown.iter().any(|segments| segments.contains(&seg));
                unknown && !self.journal.contains(&SegNo(seg))
            }
        }
    }

    /// The segments of the new image, of which `live` says what points into each: bytes of data,
    /// bytes of metadata.
    fn entries(&self, geometry: &Geometry, live: &[(u64, u64)]) -> Vec<UsageEntry> {
        let most = geometry.segment_size * EXTENT_MAX as u64;
        let entry = |(n, (data, meta)): (u32, &(u64, u64))| {
            let before = self.kinds.get(&n).copied();
            let kind = match (data, meta) {
                _ if n == 0 => return UsageEntry { kind: SegKind::Super, ..Default::default() },
                (0, 0) if self.journal.contains(&SegNo(n)) => SegKind::Journal,
                (0, 0) => before.unwrap_or_default(),
                (0, _) => SegKind::Meta,
                (_, 0) => SegKind::Data,
                // Two things cannot live in one segment: one of the pointers is wrong.
                _ => before.unwrap_or(SegKind::Meta),
            };
            let objects = matches!(kind, SegKind::Meta | SegKind::Data);
            let live = if objects { (data + meta).min(most) } else { 0 };
            UsageEntry { live: U48::new(live), kind, sealed: objects }
        };
        (0..).zip(live).map(entry).collect()
    }
}

impl Store {
    /// The journal of the new image begins here or later.
    fn salvaged_lsn(&self, lsn: Lsn) {
        self.checkpoint_lsn.fetch_max(lsn.0, std::sync::atomic::Ordering::Relaxed);
        self.cut_lsn.fetch_max(lsn.0, std::sync::atomic::Ordering::Relaxed);
    }

    /// Publishes a salvaged volume as it is now in memory: one checkpoint, then both superblocks.
    /// `live` says, for each segment, how many bytes of data and of metadata something in the
    /// volume points to.
    pub fn publish_salvaged(&mut self, held: &Held, live: &[(u64, u64)]) -> Result<()> {
        let entries = held.entries(&self.geometry, live);
        self.space.recount(&entries);
        self.options.read_only = false;
        let incarnation = self.superblock().incarnation.wrapping_add(1);
        self.start_journal(incarnation, StartAt::Fresh { lsn: self.checkpoint_lsn() })?;
        {
            let superblock = &mut self.published.lock().superblock;
            superblock.incarnation = incarnation;
            superblock.clean = false;
        }
        self.checkpoint()?;
        self.write_other_copy()?;
        let journal = entries.iter().zip(0..).filter(|(entry, _)| entry.kind == SegKind::Journal);
        let journal: Vec<SegNo> = journal.map(|(_, n)| SegNo(n)).collect();
        self.space.release_journal_segments(&journal);
        Ok(())
    }
}
