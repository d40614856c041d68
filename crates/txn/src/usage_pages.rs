//! The segment usage table on the device: reading it, and what a checkpoint writes of it.
//!
//! A checkpoint writes the pages in which a row has changed, their index pages, and the root. They
//! lie in segments themselves, so giving them addresses, and giving up those of their old
//! versions, changes rows: perhaps of further pages. So addresses come first, bytes last:
//!
//! 1. The root and the checkpoint's record get their addresses: their lengths are known.
//! 2. As long as a page is due ([`Frozen::next_due`](shoal_space::Frozen::next_due)): it and its
//!    index page give up what they had on the device and get new addresses, once each. A page whose
//!    segments are all free gets none: its pointer is null.
//! 3. Pages, index pages, root and record are encoded, in this order, and written in the order of
//!    their addresses.
//!
//! *It ends*: each page and each index page gives up its old address at most once and gets a new
//! one at most once, and nothing else in step 2 changes a row. When no page is due, every row is on
//! the device as it was, or on a page that will be written: a row that changes makes its page due.
//!
//! *What it costs*: the pages that calls have changed, those of the segments that the checkpoint
//! writes to, those of the segments in which something is retired; and chains. A page that
//! checkpoint `t` has written lies in a segment of some page Q. Q was due then, so it was last
//! written by `t` or later: by `u`, into a segment of page R, and so on. As long as the metadata
//! stream stays within the 1,024 segments of one page, Q and R are the same. So a chain has at most
//! one page for each time that the stream has gone from one page's segments to another's since
//! `t`; never more than there are pages with metadata. And the checkpoint that follows a chain
//! writes all of it to one place: from then on it is one step long, as with the paths of a
//! union-find structure that are compressed when they are walked.

use crate::image::ObjectKind;
use crate::open::read_object;
use crate::store::Store;
use crate::writer::MetaWriter;
use shoal_base::{Addr, Error, Result};
use shoal_device::Device;
use shoal_format::superblock::Superblock;
use shoal_format::usage::{
    self, Expected, INDEX_PAGES, SegKind, UsageIndex, UsagePage, UsageRoot, UsageTable,
};
use shoal_format::{Geometry, Ptr};
use shoal_tree::NodeWriter;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Is told of an object that cannot be read; an error ends the reading.
pub(crate) type OnLoss<'f> = &'f mut dyn FnMut(ObjectKind, Error) -> Result<()>;

/// Where the table of a checkpoint is.
#[derive(Clone, Debug, Default)]
pub struct UsageImage {
    /// Its root.
    pub root: UsageRoot,
    /// Index pages, by number.
    indexes: Vec<IndexAt>,
    /// Segments of which nothing is known, because what says it cannot be read: none, of a volume
    /// that could be opened.
    pub(crate) lost: Vec<Range<u32>>,
}

/// An index page and the pages that it names.
#[derive(Clone, Debug)]
struct IndexAt {
    at: Ptr,
    pages: Arc<Vec<Ptr>>,
}

/// Adds what to do to the message about a damaged table.
pub fn with_remedy(error: Error) -> Error {
    match error {
        Error::Corrupt(it) => {
            let rule = format!("{}; 'shoal fsck --repair' counts the segments anew", it.rule);
            Error::corrupt(it.object, it.addr, rule)
        }
        other => other,
    }
}

/// `None` and a word to `lost` if it is damaged.
fn unless_lost<T>(kind: ObjectKind, read: Result<T>, lost: OnLoss<'_>) -> Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.is_damage() => lost(kind, with_remedy(e)).map(|()| None),
        Err(e) => Err(e),
    }
}

impl UsageImage {
    /// A volume on which there is no table yet.
    pub(crate) fn blank(geometry: &Geometry) -> UsageImage {
        let index = |number| {
            let pages = vec![Ptr::NULL; usage::pages_of_index(geometry, number).len()];
            IndexAt { at: Ptr::NULL, pages: Arc::new(pages) }
        };
        let indexes = (0..usage::indexes(geometry)).map(index).collect();
        UsageImage { indexes, ..UsageImage::default() }
    }

    /// Reads root and index pages of the table that `at`, in the checkpoint of `epoch`, leads to.
    pub(crate) fn read(
        device: &dyn Device,
        of: &Expected<'_>,
        at: Ptr,
        lost: OnLoss<'_>,
    ) -> Result<UsageImage> {
        let geometry = of.geometry;
        let mut image = UsageImage::blank(geometry);
        let root = read_object(device, geometry, at, UsageRoot::NAME)
            .and_then(|raw| UsageRoot::decode(&raw, at.addr, of));
        let Some(root) = unless_lost(ObjectKind::Usage, root, lost)? else {
            image.lost.push(0..geometry.segments);
            return Ok(image);
        };
        for (number, ptr) in (0..).zip(&root.indexes).filter(|(_, ptr)| !ptr.is_null()) {
            let index = read_object(device, geometry, *ptr, &UsageIndex::name(geometry, number))
                .and_then(|raw| UsageIndex::decode(&raw, ptr.addr, number, of));
            image.indexes[number as usize].at = *ptr;
            match unless_lost(ObjectKind::UsageIndex(number), index, lost)? {
                Some(index) => image.indexes[number as usize].pages = Arc::new(index.pages),
                None => {
                    let pages = usage::pages_of_index(geometry, number);
                    let first = usage::segments_of_page(geometry, pages.start).start;
                    let end = usage::segments_of_page(geometry, pages.end - 1).end;
                    image.lost.push(first..end);
                }
            }
        }
        image.root = root;
        Ok(image)
    }

    /// Reads all pages. Segments of pages that are lost are free in what is returned.
    pub(crate) fn read_table(
        &mut self,
        device: &dyn Device,
        of: &Expected<'_>,
        lost: OnLoss<'_>,
    ) -> Result<UsageTable> {
        let geometry = of.geometry;
        let mut table = UsageTable::blank(geometry, self.root.positions);
        let pages = || (0..).zip(self.pages()).filter(|(_, ptr)| !ptr.is_null());
        for (_, ptr) in pages() {
            device.will_read(ptr.addr.0, u64::from(ptr.len));
        }
        let mut unknown = Vec::new();
        for (number, ptr) in pages() {
            let page = read_object(device, geometry, ptr, &UsagePage::name(geometry, number))
                .and_then(|raw| UsagePage::decode(&raw, ptr.addr, number, of));
            match unless_lost(ObjectKind::UsagePage(number), page, lost)? {
                Some(page) => table.enter(&page),
                None => unknown.push(usage::segments_of_page(geometry, number)),
            }
        }
        self.lost.extend(unknown);
        Ok(table)
    }

    /// The same for a salvage: a table that breaks a rule as a whole is not believed at all.
    pub(crate) fn salvage_table(
        &mut self,
        device: &dyn Device,
        of: &Expected<'_>,
        lost: OnLoss<'_>,
    ) -> Result<UsageTable> {
        let table = self.read_table(device, of, lost)?;
        if let (true, Err(lie)) =
            (self.lost.is_empty(), table.verify(of.geometry, &self.root.totals))
        {
            lost(ObjectKind::Usage, with_remedy(lie))?;
            self.lost.push(0..of.geometry.segments);
            return Ok(UsageTable::blank(of.geometry, self.root.positions));
        }
        Ok(table)
    }

    fn pages(&self) -> impl Iterator<Item = Ptr> {
        self.indexes.iter().flat_map(|index| index.pages.iter().copied())
    }

    /// Calls `visit` with index pages and pages.
    pub(crate) fn for_each_object(&self, visit: &mut dyn FnMut(ObjectKind, Ptr)) {
        for (number, index) in (0..).zip(&self.indexes) {
            visit(ObjectKind::UsageIndex(number), index.at);
        }
        for (number, page) in (0..).zip(self.pages()) {
            visit(ObjectKind::UsagePage(number), page);
        }
    }

    fn index(&self, number: u32) -> Ptr {
        self.indexes.get(number as usize).map_or(Ptr::NULL, |index| index.at)
    }

    fn page(&self, number: u32) -> Ptr {
        let index = self.indexes.get((number / INDEX_PAGES) as usize);
        let page = index.and_then(|index| index.pages.get((number % INDEX_PAGES) as usize));
        page.copied().unwrap_or(Ptr::NULL)
    }

    fn set_page(&mut self, number: u32, ptr: Ptr) {
        let index = &mut self.indexes[(number / INDEX_PAGES) as usize];
        Arc::make_mut(&mut index.pages)[(number % INDEX_PAGES) as usize] = ptr;
    }
}

/// Reads the table of a volume that is being opened, of which nothing may be lost.
pub(crate) fn open_table(
    device: &dyn Device,
    sb: &Superblock,
    epoch: u64,
    at: Ptr,
    image: &mut UsageImage,
) -> Result<UsageTable> {
    let geometry = &sb.geometry;
    let of = Expected { geometry, volume: sb.volume(), epoch };
    let table = image.read_table(device, &of, &mut |_, e| Err(e))?;
    table.verify(geometry, &image.root.totals).map_err(with_remedy)?;
    let mut misplaced = None;
    let mut each = |kind: ObjectKind, ptr: Ptr| {
        let seg = geometry.segment_of(ptr.addr);
        let holds = table.entries.get(seg.0 as usize).map(|entry| entry.kind);
        if !ptr.is_null() && holds != Some(SegKind::Meta) && misplaced.is_none() {
            let rule = format!("segment {} is none of metadata", seg.0);
            misplaced = Some(Error::corrupt(kind.describe(geometry), Some(ptr.addr.0), rule));
        }
    };
    each(ObjectKind::Usage, at);
    image.for_each_object(&mut each);
    match misplaced {
        None => Ok(table),
        Some(error) => Err(with_remedy(error)),
    }
}

impl Store {
    /// For the cleaner: if `raw`, found at `addr`, begins like a page or an index page of the usage
    /// table, and that is still there, then the next checkpoint writes it elsewhere.
    pub fn rewrite_usage_page(&self, raw: &[u8], addr: Addr) {
        let image = self.newest_checkpoint();
        let here = |ptr: Ptr| !ptr.is_null() && ptr.addr == addr;
        match usage::number_at(raw, self.volume) {
            Some((usage::PAGE_MAGIC, page)) if here(image.usage.page(page)) => {
                self.space.rewrite_page(page);
            }
            // It is written with any of its pages.
            Some((usage::INDEX_MAGIC, index)) if here(image.usage.index(index)) => {
                self.space.rewrite_page(index * INDEX_PAGES);
            }
            _ => {}
        }
    }
}

/// Which pages and index pages a checkpoint writes, and where to. `None`: to nowhere, the pointer
/// to it is null.
#[derive(Default)]
pub(crate) struct Plan {
    pages: BTreeMap<u32, Option<Addr>>,
    indexes: BTreeMap<u32, Option<Addr>>,
}

impl Plan {
    /// Step 2.
    pub fn make(before: &UsageImage, writer: &mut MetaWriter<'_>) -> Result<Plan> {
        let mut plan = Plan::default();
        while let Some(number) = writer.frozen.next_due(&writer.store.space) {
            plan.page(number, before, writer)?;
            plan.index(number / INDEX_PAGES, before, writer)?;
        }
        Ok(plan)
    }

    fn page(
        &mut self,
        number: u32,
        before: &UsageImage,
        writer: &mut MetaWriter<'_>,
    ) -> Result<()> {
        let place = self.pages.entry(number).or_insert_with(|| {
            writer.retire(before.page(number));
            None
        });
        if place.is_none() && !writer.frozen.is_blank(&writer.store.space, number) {
            *place = Some(writer.alloc(usage::page_len(&writer.store.geometry, number))?);
        }
        Ok(())
    }

    fn index(
        &mut self,
        number: u32,
        before: &UsageImage,
        writer: &mut MetaWriter<'_>,
    ) -> Result<()> {
        let place = self.indexes.entry(number).or_insert_with(|| {
            writer.retire(before.index(number));
            None
        });
        let named = |page: u32| match self.pages.get(&page) {
            Some(place) => place.is_some(),
            None => !before.page(page).is_null(),
        };
        let geometry = &writer.store.geometry;
        if place.is_none() && usage::pages_of_index(geometry, number).any(named) {
            *place = Some(writer.alloc(usage::index_len(geometry, number))?);
        }
        Ok(())
    }

    /// Step 3: everything but the record. Returns where the table is, the pointer to its root, and
    /// the bytes to be written with their addresses.
    pub fn encode(
        self,
        before: &UsageImage,
        writer: &mut MetaWriter<'_>,
        root: Addr,
        epoch: u64,
    ) -> (UsageImage, Ptr, Vec<(Addr, Vec<u8>)>) {
        let (store, frozen) = (writer.store, &mut writer.frozen);
        let (space, volume) = (&store.space, store.volume);
        let mut objects = Vec::with_capacity(self.pages.len() + self.indexes.len() + 2);
        let mut put = |addr: Addr, raw: Vec<u8>| {
            let ptr = Ptr::to(addr, epoch, &raw);
            objects.push((addr, raw));
            ptr
        };
        let mut image = UsageImage { root: UsageRoot::default(), ..before.clone() };
        for (number, place) in self.pages {
            let ptr = match place {
                Some(addr) => put(addr, frozen.page(space, number, epoch).encode(volume)),
                None => {
                    frozen.leave_out(space, number);
                    Ptr::NULL
                }
            };
            image.set_page(number, ptr);
        }
        for (number, place) in self.indexes {
            let index = &mut image.indexes[number as usize];
            let encode = || {
                let pages = index.pages.as_ref().clone();
                UsageIndex { number, epoch, pages }.encode(volume)
            };
            index.at = place.map_or(Ptr::NULL, |addr| put(addr, encode()));
        }
        image.root = frozen.root(space, epoch);
        image.root.indexes = image.indexes.iter().map(|index| index.at).collect();
        let ptr = put(root, image.root.encode(volume, store.geometry.segments));
        (image, ptr, objects)
    }
}
