//! The root table on the device, and what a checkpoint does about the roots.
//!
//! A checkpoint must not cost more for each root that there is, only for each that has changed:
//!
//! | when | what | cost |
//! | --- | --- | --- |
//! | a transaction changes something in a root | the root is marked ([`TouchedRoots`](shoal_base::TouchedRoots)) | a look at a bit |
//! | the gate is closed | the marks are taken, and the moment of each marked root noted | the marked roots |
//! | the gate is open again | the trees of those are written, then the pages in which a record changed | the same |
//!
//! A page is written twice, so that damage to one place loses no root: first all pages of a batch,
//! then a gap, then all of them again. What a page was before is retired. The record names both
//! copies of each page.

use crate::open::read_object;
use crate::roots::{Root, Roots, WrittenRoot};
use crate::store::Store;
use crate::writer::MetaWriter;
use shoal_base::limits::NAME_MAX;
use shoal_base::{Addr, Epoch, Error, Result, RootId};
use shoal_device::Device;
use shoal_format::checkpoint::RootState;
use shoal_format::root::{PagePtr, ROOTS, RootPage, RootRecord};
use shoal_format::superblock::TWIN_GAP;
use shoal_format::{Geometry, Ptr};
use shoal_itable::Written;
use shoal_tree::NodeWriter;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes of pages after which their second copies are written.
const BATCH: usize = 256 << 10;

/// A page as it was read.
pub(crate) struct ReadPage {
    pub page: RootPage,
    /// What is wrong with one of its copies: the next checkpoint shall write both anew.
    pub damage: Option<Error>,
}

/// Reads page `number` of the root table, from its second copy if need be. A null page has no
/// roots.
pub(crate) fn read(
    device: &dyn Device,
    geometry: &Geometry,
    volume: u64,
    number: usize,
    ptr: PagePtr,
) -> Result<ReadPage> {
    if ptr.first.is_null() {
        return Ok(ReadPage { page: RootPage::default(), damage: None });
    }
    let read = |ptr: Ptr, what: &str| {
        let raw = read_object(device, geometry, ptr, what)?;
        let page = RootPage::decode(&raw, ptr.addr, volume)?;
        match usize::from(page.number) == number {
            true => Ok(page),
            false => {
                let rule = format!("number {}, expected {number}", page.number);
                Err(Error::corrupt(what, Some(ptr.addr.0), rule))
            }
        }
    };
    let error = match read(ptr.first, "root page") {
        Ok(page) => return Ok(ReadPage { page, damage: None }),
        Err(e) if e.is_damage() => e,
        Err(e) => return Err(e),
    };
    match read(ptr.copy(), "root page's second copy") {
        Ok(page) => Ok(ReadPage { page, damage: Some(error) }),
        Err(e) if e.is_damage() => Err(error),
        Err(e) => Err(e),
    }
}

impl Roots {
    /// Bytes that writing a page with its copy takes, about.
    pub(crate) fn page_bytes(&self) -> u64 {
        (2 * self.count().min(ROOTS) * (RootRecord::SIZE + NAME_MAX)) as u64
    }

    /// Enters the roots of a page, and vacant ones for the other numbers before `end`.
    pub(crate) fn push_page(&self, page: &RootPage, end: usize) -> Result<()> {
        let mut records = page.roots.iter().peekable();
        while self.count() < end {
            let id = self.count();
            self.push(records.next_if(|record| usize::from(record.id.0) == id))?;
        }
        Ok(())
    }
}

/// A root at the moment of a checkpoint.
pub(crate) struct RootMoment {
    id: RootId,
    state: RootState,
    name: Arc<[u8]>,
    next_block: u64,
    inodes: u64,
    /// This checkpoint is the one that sweeps a root which has become vacant.
    sweep: bool,
}

impl RootMoment {
    fn of(root: &Root) -> RootMoment {
        let (state, name) = (root.state(), root.name());
        let (next_block, inodes) = match state {
            RootState::Vacant => (0, 0),
            _ => (root.next_block(), root.inodes()),
        };
        let sweep = state == RootState::Vacant && !root.is_free();
        RootMoment { id: root.id, state, name, next_block, inodes, sweep }
    }
}

/// A root that a checkpoint has written: its inode blocks, and whether it was swept.
pub(crate) struct RootDone<'s> {
    root: &'s Root,
    blocks: Option<Written>,
    swept: bool,
}

impl RootDone<'_> {
    /// The checkpoint is durable.
    pub fn finish(self) {
        if let Some(blocks) = self.blocks {
            self.root.table.finish(blocks);
        }
        if self.swept {
            self.root.swept();
        }
    }
}

impl Store {
    /// The roots that this checkpoint has to visit, as they are now. To be called with the gate
    /// closed.
    pub(crate) fn root_moments(&self, epoch: Epoch) -> Vec<RootMoment> {
        let touched = self.cache.touched_roots().take(epoch);
        touched.into_iter().filter_map(|id| self.roots.get(id)).map(RootMoment::of).collect()
    }

    /// Step 3 of a checkpoint: writes the trees of these roots, then the pages that change by it,
    /// and enters where they are in `pages`.
    pub(crate) fn write_roots<'s>(
        &'s self,
        moments: Vec<RootMoment>,
        epoch: Epoch,
        writer: &mut MetaWriter<'_>,
        pages: &mut Vec<PagePtr>,
    ) -> Result<Vec<RootDone<'s>>> {
        let mut due: BTreeSet<usize> =
            self.roots.pages_due.take().into_iter().map(usize::from).collect();
        let mut done = Vec::with_capacity(moments.len());
        for moment in moments {
            let Some(root) = self.roots.get(moment.id) else { continue };
            let RootMoment { state, name, next_block, inodes, sweep, .. } = moment;
            if sweep {
                root.table.vacate(epoch, writer)?;
            }
            let (trees, blocks) = match root.used() {
                None => (root.written_trees(), None),
                Some(_) => {
                    let (trees, blocks) = write_trees(root, epoch, writer)?;
                    (trees, Some(blocks))
                }
            };
            if root.note_written(WrittenRoot { state, name, trees, next_block, inodes }) {
                due.insert(usize::from(root.id.0) / ROOTS);
            }
            done.push(RootDone { root, blocks, swept: sweep });
        }
        // What writing itself has marked: nothing that it has not written.
        let _own = self.cache.touched_roots().take(epoch);
        self.write_pages(&due, epoch, writer, pages)?;
        Ok(done)
    }

    fn write_pages(
        &self,
        due: &BTreeSet<usize>,
        epoch: Epoch,
        writer: &mut MetaWriter<'_>,
        pages: &mut Vec<PagePtr>,
    ) -> Result<()> {
        let mut batch: Vec<(usize, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        for number in due.iter().copied().filter(|number| number * ROOTS < self.roots.count()) {
            pages.resize(pages.len().max(number + 1), PagePtr::NULL);
            let old = std::mem::take(&mut pages[number]);
            writer.retire(old.first);
            writer.retire(old.copy());
            let ids = number * ROOTS..(number + 1) * ROOTS;
            let roots = ids.filter_map(|id| self.roots.get(RootId(id as u16))?.record());
            let page = RootPage {
                volume: self.volume,
                number: number as u16,
                epoch,
                roots: roots.collect(),
            };
            if page.roots.is_empty() {
                continue;
            }
            let raw = page.encode();
            pages[number].first = writer.place(&raw)?;
            bytes += raw.len();
            batch.push((number, raw));
            if bytes >= BATCH {
                bytes = 0;
                write_copies(&mut batch, writer, pages)?;
            }
        }
        write_copies(&mut batch, writer, pages)?;
        while pages.last().is_some_and(|page| page.first.is_null()) {
            pages.pop();
        }
        Ok(())
    }
}

/// Writes the second copies of the pages that were written last, behind a gap.
fn write_copies(
    batch: &mut Vec<(usize, Vec<u8>)>,
    writer: &mut MetaWriter<'_>,
    pages: &mut [PagePtr],
) -> Result<()> {
    if !batch.is_empty() {
        writer.gap(TWIN_GAP)?;
    }
    for (number, raw) in batch.drain(..) {
        pages[number].second = writer.place(&raw)?.addr;
    }
    Ok(())
}

/// Step 3 for one root: its inode blocks and its trees.
fn write_trees(
    root: &Root,
    epoch: Epoch,
    writer: &mut MetaWriter<'_>,
) -> Result<([Ptr; 4], Written)> {
    let (imap, blocks) = root.table.checkpoint(epoch, writer)?;
    let trees = [
        imap,
        root.dirents.checkpoint(epoch, writer)?,
        root.attrs.checkpoint(epoch, writer)?,
        root.extents.checkpoint(epoch, writer)?,
    ];
    Ok((trees, blocks))
}

impl Store {
    /// For the cleaner: page `number` of the root table, if one of its copies is still at `addr`,
    /// is written elsewhere by the next checkpoint.
    pub fn rewrite_root_page(&self, number: u16, addr: Addr) {
        let image = self.newest_checkpoint();
        let page = image.checkpoint.pages.get(usize::from(number)).copied().unwrap_or_default();
        if !page.first.is_null() && (page.first.addr == addr || page.second == addr) {
            self.roots.pages_due.insert(number);
        }
    }
}
