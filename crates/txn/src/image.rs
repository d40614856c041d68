//! The image of the volume that the newest checkpoint made: its record, and what that leads to
//! beside the trees. One list of those objects, by which checks and repairs count and read them.

use crate::open::read_object;
use crate::orphans;
use crate::root_pages;
use crate::usage_pages::{OnLoss, UsageImage};
use shoal_base::{Addr, Result};
use shoal_device::Device;
use shoal_format::checkpoint::{Checkpoint, RootRecord};
use shoal_format::root::{PagePtr, ROOTS, RootPage};
use shoal_format::superblock::Superblock;
use shoal_format::usage::{Expected, UsageIndex, UsagePage, UsageRoot};
use shoal_format::{Geometry, Ptr, intent, orphan};

/// What an object of a checkpoint is, other than a node of a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// The record itself.
    Record,
    /// The root of the segment usage table.
    Usage,
    /// An index page of it, by number.
    UsageIndex(u32),
    /// A page of it, by number.
    UsagePage(u32),
    /// A page of the root table.
    RootPage,
    /// The second copy of a page.
    RootPageCopy,
    /// A list of orphan blocks.
    OrphanList,
    /// A block of the orphan table.
    OrphanBlock,
    /// Open intents.
    Intents,
}

impl ObjectKind {
    /// For messages.
    pub fn name(self) -> &'static str {
        match self {
            ObjectKind::Record => "checkpoint",
            ObjectKind::Usage => UsageRoot::NAME,
            ObjectKind::UsageIndex(_) => "usage index",
            ObjectKind::UsagePage(_) => "usage page",
            ObjectKind::RootPage => "root page",
            ObjectKind::RootPageCopy => "root page's second copy",
            ObjectKind::OrphanList => "orphan list",
            ObjectKind::OrphanBlock => "orphan block",
            ObjectKind::Intents => "open intents",
        }
    }

    /// For messages: which one of its kind, too, as far as it has a number.
    pub fn describe(self, geometry: &Geometry) -> String {
        match self {
            ObjectKind::UsageIndex(number) => UsageIndex::name(geometry, number),
            ObjectKind::UsagePage(number) => UsagePage::name(geometry, number),
            _ => self.name().to_owned(),
        }
    }

    /// Whether `raw`, whose checksum has been verified, is one; of the checkpoint of that epoch.
    pub fn verify(self, raw: &[u8], ptr: Ptr, of: &Expected<'_>) -> Result<()> {
        let (addr, volume) = (ptr.addr, of.volume);
        match self {
            ObjectKind::Record => Ok(()),
            ObjectKind::Usage => UsageRoot::decode(raw, addr, of).map(drop),
            ObjectKind::UsageIndex(n) => UsageIndex::decode(raw, addr, n, of).map(drop),
            ObjectKind::UsagePage(n) => UsagePage::decode(raw, addr, n, of).map(drop),
            ObjectKind::RootPage | ObjectKind::RootPageCopy => {
                RootPage::decode(raw, addr, volume).map(drop)
            }
            ObjectKind::OrphanList => orphan::decode_list(raw, addr, volume).map(drop),
            ObjectKind::OrphanBlock => orphan::decode(raw, addr, volume).map(drop),
            ObjectKind::Intents => intent::decode_open(raw, addr, volume).map(drop),
        }
    }
}

/// A checkpoint and what its record leads to beside the trees.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Its record.
    pub checkpoint: Checkpoint,
    /// Where the record is.
    pub at: Ptr,
    /// The blocks of the orphan table.
    pub orphan_blocks: Vec<Ptr>,
    /// The usage table.
    pub usage: UsageImage,
}

impl Image {
    /// Reads the orphan lists of a checkpoint, and root and index pages of its usage table; `lost`
    /// is told of each that cannot be read.
    pub fn read(
        device: &dyn Device,
        sb: &Superblock,
        checkpoint: Checkpoint,
        lost: OnLoss<'_>,
    ) -> Result<Image> {
        let (geometry, volume) = (&sb.geometry, sb.volume());
        let of = Expected { geometry, volume, epoch: checkpoint.epoch };
        let usage = UsageImage::read(device, &of, checkpoint.usage, lost)?;
        let mut image = Image { checkpoint, at: sb.checkpoint, orphan_blocks: Vec::new(), usage };
        for ptr in &image.checkpoint.orphan_lists {
            let raw = read_object(device, geometry, *ptr, "orphan list");
            match raw.and_then(|raw| orphan::decode_list(&raw, ptr.addr, volume)) {
                Ok(blocks) => image.orphan_blocks.extend(blocks),
                Err(e) if e.is_damage() => lost(ObjectKind::OrphanList, e)?,
                Err(e) => return Err(e),
            }
        }
        Ok(image)
    }

    /// Calls `visit` with everything on the device that is part of the checkpoint, but for the
    /// nodes of trees and what they lead to. Null pointers are left out.
    pub fn for_each_object(&self, visit: &mut dyn FnMut(ObjectKind, Ptr)) {
        let mut visit = |kind: ObjectKind, ptr: Ptr| {
            if !ptr.is_null() {
                visit(kind, ptr);
            }
        };
        self.for_each_own(&mut visit);
        self.usage.for_each_object(&mut visit);
        for page in &self.checkpoint.pages {
            visit(ObjectKind::RootPage, page.first);
            visit(ObjectKind::RootPageCopy, page.copy());
        }
    }

    /// The same, but only what each checkpoint writes anew: not the pages of its tables. Null
    /// pointers too.
    pub(crate) fn for_each_own(&self, visit: &mut dyn FnMut(ObjectKind, Ptr)) {
        let c = &self.checkpoint;
        visit(ObjectKind::Record, self.at);
        visit(ObjectKind::Usage, c.usage);
        c.orphan_lists.iter().for_each(|ptr| visit(ObjectKind::OrphanList, *ptr));
        self.orphan_blocks.iter().for_each(|ptr| visit(ObjectKind::OrphanBlock, *ptr));
        c.intents.iter().for_each(|ptr| visit(ObjectKind::Intents, *ptr));
    }

    /// Numbers below this may have a root.
    pub fn roots(&self) -> usize {
        self.checkpoint.pages.len() * ROOTS
    }

    /// Reads the records of up to [`ROOTS`] roots, from number `page * ROOTS` on, without those of
    /// which nothing is left. Of a damaged page the second copy is taken.
    pub fn read_roots(
        &self,
        device: &dyn Device,
        geometry: &Geometry,
        page: usize,
    ) -> Result<Vec<RootRecord>> {
        let ptr = self.checkpoint.pages.get(page).copied().unwrap_or(PagePtr::NULL);
        let read = root_pages::read(device, geometry, self.checkpoint.volume, page, ptr)?;
        Ok(read.page.roots)
    }

    /// Drops pointers that cannot be right: what is not there is not given back by the next
    /// checkpoint.
    pub(crate) fn retain(&mut self, may_be: &dyn Fn(Ptr) -> bool) {
        self.orphan_blocks.retain(|ptr| orphans::disk::is_block(*ptr) && may_be(*ptr));
        self.checkpoint.orphan_lists.retain(|ptr| may_be(*ptr));
        self.checkpoint.intents.retain(|ptr| may_be(*ptr));
        if !may_be(self.checkpoint.usage) {
            self.checkpoint.usage = Ptr::NULL;
        }
        for page in &mut self.checkpoint.pages {
            if !may_be(page.copy()) {
                page.second = Addr(0);
            }
            if !page.first.is_null() && !may_be(page.first) && page.second != Addr(0) {
                (page.first.addr, page.second) = (page.second, Addr(0));
            }
        }
    }
}
