//! The root table on the device, and the checkpoint's work for subvolumes.
//!
//! The cost of a checkpoint must depend on the number of changed subvolumes, not on that of all:
//!
//! | when | action | cost |
//! | --- | --- | --- |
//! | a transaction changes a subvolume | mark the subvolume ([`TouchedRoots`](shoal_base::TouchedRoots)) | a test of a bit |
//! | quiesce | take the marks, and note the state of each marked subvolume | the marked subvolumes |
//! | after the quiesce | write their trees, then the pages with a changed record | the same |
//!
//! A page is written twice, so that damage to one place loses no subvolume: first all pages of a
//! batch, then a gap, then all of them again. The previous copies are freed. The record points to
//! both copies of each page.

use crate::roots::{Root, Roots, WrittenRoot};
use crate::store::Store;
use crate::writer::MetaWriter;
use shoal_base::{Addr, Epoch, Result, RootId};
use shoal_format::Ptr;
use shoal_format::checkpoint::RootState;
use shoal_format::root::{PagePtr, ROOTS, RootPage};
use shoal_format::superblock::BACKUP_GAP;
use shoal_itable::Written;
use shoal_tree::NodeWriter;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Bytes of pages after which their backup copies are written.
const BATCH: usize = 256 << 10;

impl Roots {
    /// Adds the subvolumes of a page, and vacant ones for the other numbers before `end`.
    pub(crate) fn push_page(&self, page: &RootPage, end: usize) -> Result<()> {
        let mut records = page.roots.iter().peekable();
        while self.count() < end {
            let id = self.count();
            self.push(records.next_if(|record| usize::from(record.id.0) == id))?;
        }
        Ok(())
    }
}

/// The state of a subvolume at the moment of a checkpoint.
pub(crate) struct RootMoment {
    id: RootId,
    state: RootState,
    name: Arc<[u8]>,
    next_block: u64,
    inodes: u64,
    /// This checkpoint sweeps the subvolume, which has become vacant.
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

/// A subvolume written by a checkpoint: its inode blocks, and whether it was swept.
pub(crate) struct RootDone<'s> {
    root: &'s Root,
    blocks: Option<Written>,
    swept: bool,
}

impl RootDone<'_> {
    /// Notes that the checkpoint is durable.
    pub(crate) fn finish(self) {
        if let Some(blocks) = self.blocks {
            self.root.table.finish(blocks);
        }
        if self.swept {
            self.root.swept();
        }
    }
}

impl Store {
    /// Returns the current state of the subvolumes that this checkpoint must visit. Must be called
    /// under quiesce.
    pub(crate) fn root_moments(&self, epoch: Epoch) -> Vec<RootMoment> {
        let touched = self.cache.touched_roots().take(epoch);
        touched.into_iter().filter_map(|id| self.roots.get(id)).map(RootMoment::of).collect()
    }

    /// Step 3 of a checkpoint: writes the trees of these subvolumes, then the pages that change
    /// thereby, and enters their addresses in `pages`.
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
        // The marks made by the writing itself, all of which is written.
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

/// Writes the backup copies of the pages written last, after a gap.
fn write_copies(
    batch: &mut Vec<(usize, Vec<u8>)>,
    writer: &mut MetaWriter<'_>,
    pages: &mut [PagePtr],
) -> Result<()> {
    if !batch.is_empty() {
        writer.gap(BACKUP_GAP)?;
    }
    for (number, raw) in batch.drain(..) {
        pages[number].second = writer.place(&raw)?.addr;
    }
    Ok(())
}

/// Step 3 for one subvolume: its inode blocks and its trees.
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
    /// See [`Checkpoints::rewrite_root_page`](crate::Checkpoints::rewrite_root_page).
    pub(crate) fn rewrite_root_page(&self, number: u16, addr: Addr) {
        let image = self.newest_checkpoint();
        let page = image.checkpoint.pages.get(usize::from(number)).copied().unwrap_or_default();
        if !page.first.is_null() && (page.first.addr == addr || page.second == addr) {
            self.roots.pages_due.insert(number);
        }
    }
}
