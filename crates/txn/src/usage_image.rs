//! The segment usage table on the device: where its pages are, and reading it. Writing it:
//! `usage_pages.rs`.

use crate::object::ObjectKind;
use crate::read::read_object;
use shoal_base::{Error, Result};
use shoal_device::Device;
use shoal_format::superblock::Superblock;
use shoal_format::usage::{
    self, Expected, INDEX_PAGES, SegKind, UsageIndex, UsagePage, UsageRoot, UsageTable,
};
use shoal_format::{Geometry, Ptr};
use std::ops::Range;
use std::sync::Arc;

/// Called with each unreadable object. An error ends the reading.
pub(crate) type OnLoss<'f> = &'f mut dyn FnMut(ObjectKind, Error) -> Result<()>;

/// The location of a checkpoint's usage table.
#[derive(Clone, Debug, Default)]
pub struct UsageImage {
    /// Its root.
    pub root: UsageRoot,
    /// Index pages, by number.
    pub(crate) indexes: Vec<IndexAt>,
    /// Pages and index pages of segments that the volume no longer has. The next checkpoint frees
    /// them.
    pub(crate) gone: Vec<Ptr>,
    /// Segments of unknown state, because their part of the table is unreadable. Always empty for a
    /// volume that could be opened.
    pub(crate) lost: Vec<Range<u32>>,
}

/// An index page, and the pointers in it.
#[derive(Clone, Debug)]
pub(crate) struct IndexAt {
    pub at: Ptr,
    pub pages: Arc<Vec<Ptr>>,
}

/// Adds the remedy to the message about a damaged table.
pub fn with_remedy(error: Error) -> Error {
    match error {
        Error::Corrupt(it) => {
            let rule = format!("{}; 'shoal fsck --repair' counts the segments anew", it.rule);
            Error::corrupt(it.object, it.addr, rule)
        }
        other => other,
    }
}

/// Reports damage to `lost` and returns `None`.
fn unless_lost<T>(kind: ObjectKind, read: Result<T>, lost: OnLoss<'_>) -> Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(e) if e.is_damage() => lost(kind, with_remedy(e)).map(|()| None),
        Err(e) => Err(e),
    }
}

impl UsageImage {
    /// Makes the image of a volume without a table.
    pub(crate) fn blank(geometry: &Geometry) -> UsageImage {
        let index = |number| {
            let pages = vec![Ptr::NULL; usage::pages_of_index(geometry, number).len()];
            IndexAt { at: Ptr::NULL, pages: Arc::new(pages) }
        };
        let indexes = (0..usage::indexes(geometry)).map(index).collect();
        UsageImage { indexes, ..UsageImage::default() }
    }

    /// Has places for the segments of another geometry. The last page and the last index page that
    /// are in both have another length, unless they are full in both: the next checkpoint must
    /// write them.
    pub(crate) fn resize(&mut self, geometry: &Geometry) {
        let wanted = UsageImage::blank(geometry);
        for index in self.indexes.drain(wanted.indexes.len().min(self.indexes.len())..) {
            self.gone.push(index.at);
            self.gone.extend(index.pages.iter());
        }
        for (number, index) in wanted.indexes.into_iter().enumerate() {
            let Some(known) = self.indexes.get_mut(number) else {
                self.indexes.push(index);
                continue;
            };
            let (pages, count) = (Arc::make_mut(&mut known.pages), index.pages.len());
            self.gone.extend(pages.drain(count.min(pages.len())..));
            pages.resize(count, Ptr::NULL);
        }
        self.gone.retain(|ptr| !ptr.is_null());
    }

    /// Reads the root and the index pages of the table at `at`.
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

    /// Reads all pages. Segments of lost pages are free in the result.
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

    /// As [`UsageImage::read_table`], for a salvage: a table that breaks a rule as a whole is
    /// ignored.
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

    /// Calls `visit` with all index pages and pages.
    pub(crate) fn for_each_object(&self, visit: &mut dyn FnMut(ObjectKind, Ptr)) {
        for (number, index) in (0..).zip(&self.indexes) {
            visit(ObjectKind::UsageIndex(number), index.at);
        }
        for (number, page) in (0..).zip(self.pages()) {
            visit(ObjectKind::UsagePage(number), page);
        }
    }

    /// Pointer to an index page.
    pub(crate) fn index(&self, number: u32) -> Ptr {
        self.indexes.get(number as usize).map_or(Ptr::NULL, |index| index.at)
    }

    /// Pointer to a page.
    pub(crate) fn page(&self, number: u32) -> Ptr {
        let index = self.indexes.get((number / INDEX_PAGES) as usize);
        let page = index.and_then(|index| index.pages.get((number % INDEX_PAGES) as usize));
        page.copied().unwrap_or(Ptr::NULL)
    }

    pub(crate) fn set_page(&mut self, number: u32, ptr: Ptr) {
        let index = &mut self.indexes[(number / INDEX_PAGES) as usize];
        Arc::make_mut(&mut index.pages)[(number % INDEX_PAGES) as usize] = ptr;
    }
}

/// Reads the table of a volume that is being opened, where every loss is an error.
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

#[cfg(test)]
mod tests {
    use super::*;
    use shoal_base::{Addr, limits};

    #[test]
    fn pages_and_index_pages_of_segments_that_go_are_to_be_freed() {
        let of = |segments| Geometry {
            segment_size: limits::SEGMENT_SIZE_MIN,
            segments,
            inode_size: 512,
        };
        let whole = usage::PAGE_SEGMENTS * usage::INDEX_PAGES;
        let at = |n: u64| Ptr::place(Addr((1 << 20) + n * 8), 8);
        let mut image = UsageImage::blank(&of(3 * whole));
        image.set_page(0, at(0));
        image.set_page(9, at(1));
        image.set_page(10, at(2));
        image.set_page(2 * INDEX_PAGES + 7, at(3));
        (image.indexes[0].at, image.indexes[2].at) = (at(4), at(5));
        // Nine pages and one row of the tenth.
        image.resize(&of(9 * usage::PAGE_SEGMENTS + 1));
        assert_eq!(image.gone, [at(5), at(3), at(2)]);
        assert_eq!((image.indexes.len(), image.indexes[0].pages.len()), (1, 10));
        assert_eq!((image.index(0), image.page(0), image.page(9)), (at(4), at(0), at(1)));
        assert_eq!((image.page(10), image.index(2)), (Ptr::NULL, Ptr::NULL));
        image.gone.clear();
        image.resize(&of(3 * whole));
        assert!(image.gone.is_empty() && image.indexes.len() == 3);
        assert_eq!((image.page(9), image.page(10)), (at(1), Ptr::NULL));
    }
}
