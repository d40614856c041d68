//! The image of the volume made by the newest checkpoint: its record, and the objects that it
//! points to, except the trees. One list of those objects, by which checks and repairs count and
//! read them.

use crate::object::ObjectKind;
use crate::orphans;
use crate::read::{read_object, read_root_page};
use crate::usage_image::{OnLoss, UsageImage};
use shoal_base::{Addr, Result};
use shoal_device::Device;
use shoal_format::checkpoint::{Checkpoint, RootRecord};
use shoal_format::root::{PagePtr, ROOTS};
use shoal_format::superblock::Superblock;
use shoal_format::usage::Expected;
use shoal_format::{Geometry, Ptr, orphan};

/// A checkpoint and the objects that its record points to, except the trees.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Its record.
    pub checkpoint: Checkpoint,
    /// Pointer to the record.
    pub at: Ptr,
    /// The blocks of the orphan table.
    pub orphan_blocks: Vec<Ptr>,
    /// The usage table.
    pub usage: UsageImage,
}

impl Image {
    /// Reads the orphan lists of a checkpoint, and root and index pages of its usage table. `lost`
    /// is called for each unreadable one.
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

    /// Calls `visit` with every object on the device that belongs to the checkpoint, except nodes
    /// of trees and what they point to. Null pointers are skipped.
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

    /// As [`Image::for_each_object`], but only the objects that each checkpoint writes again, not
    /// the pages of its tables. Includes null pointers.
    pub(crate) fn for_each_own(&self, visit: &mut dyn FnMut(ObjectKind, Ptr)) {
        let c = &self.checkpoint;
        visit(ObjectKind::Record, self.at);
        visit(ObjectKind::Usage, c.usage);
        c.orphan_lists.iter().for_each(|ptr| visit(ObjectKind::OrphanList, *ptr));
        self.orphan_blocks.iter().for_each(|ptr| visit(ObjectKind::OrphanBlock, *ptr));
        c.intents.iter().for_each(|ptr| visit(ObjectKind::Intents, *ptr));
    }

    /// One past the largest number that a subvolume may have.
    pub fn roots(&self) -> usize {
        self.checkpoint.pages.len() * ROOTS
    }

    /// Reads the records of up to [`ROOTS`] subvolumes, from number `page * ROOTS` on, except
    /// vacant ones without trees. Uses the backup copy of a damaged page.
    pub fn read_roots(
        &self,
        device: &dyn Device,
        geometry: &Geometry,
        page: usize,
    ) -> Result<Vec<RootRecord>> {
        let ptr = self.checkpoint.pages.get(page).copied().unwrap_or(PagePtr::NULL);
        let read = read_root_page(device, geometry, self.checkpoint.volume, page, ptr)?;
        Ok(read.page.roots)
    }

    /// Drops impossible pointers: the next checkpoint must not free what is not there.
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
