//! The checkpoint's writes to the segment usage table on the device. Reading it: `usage_image.rs`.
//!
//! Problem: a checkpoint writes the pages with a changed row, their index pages, and the root.
//! These are in segments themselves, so allocating addresses for them, and freeing those of their
//! old versions, changes rows, possibly of further pages.
//!
//! Rule: addresses first, contents last:
//!
//! 1. The root and the checkpoint's record get their addresses: their lengths are known.
//! 2. While a page is due ([`Frozen::next_due`](shoal_space::Frozen::next_due)): it and its index
//!    page free their old addresses and get new ones, once each. A page whose segments are all free
//!    gets none: its pointer is null.
//! 3. Pages, index pages, root and record are encoded, in this order, and written in the order of
//!    their addresses.
//!
//! Proof that it ends: each page and each index page frees its old address at most once and gets a
//! new one at most once, and nothing else in step 2 changes a row. When no page is due, every row
//! is unchanged on the device, or on a page that will be written: a row that changes makes its page
//! due.
//!
//! Cost: the pages changed by calls, those of the segments that the checkpoint writes to, those of
//! the segments in which something is freed; and chains. A page written by checkpoint `t` is in a
//! segment of some page Q. Q was due then, so it was last written by `t` or later: by `u`, into a
//! segment of page R, and so on. While the metadata stream stays within the 1,024 segments of one
//! page, Q and R are the same. So a chain has at most one page for each time that the stream has
//! moved from one page's segments to another's since `t`, and never more than there are pages with
//! metadata. The checkpoint that follows a chain writes all of it to one place: from then on it is
//! one step long, like the compressed paths of a union-find structure.

use crate::store::Store;
use crate::usage_image::UsageImage;
use crate::writer::MetaWriter;
use shoal_base::{Addr, Result};
use shoal_format::Ptr;
use shoal_format::usage::{self, INDEX_PAGES, UsageIndex, UsageRoot};
use shoal_tree::NodeWriter;
use std::collections::BTreeMap;

impl Store {
    /// See [`Checkpoints::rewrite_usage_page`](crate::Checkpoints::rewrite_usage_page).
    pub(crate) fn rewrite_usage_page(&self, raw: &[u8], addr: Addr) {
        let image = self.newest_checkpoint();
        let here = |ptr: Ptr| !ptr.is_null() && ptr.addr == addr;
        match usage::number_at(raw, self.volume) {
            Some((usage::PAGE_MAGIC, page)) if here(image.usage.page(page)) => {
                self.space.checkpointing().rewrite_page(page);
            }
            // It is written with any of its pages.
            Some((usage::INDEX_MAGIC, index)) if here(image.usage.index(index)) => {
                self.space.checkpointing().rewrite_page(index * INDEX_PAGES);
            }
            _ => {}
        }
    }
}

/// The pages and index pages that a checkpoint writes, with their addresses. `None`: not written,
/// the pointer is null.
#[derive(Default)]
pub(crate) struct Plan {
    pages: BTreeMap<u32, Option<Addr>>,
    indexes: BTreeMap<u32, Option<Addr>>,
}

impl Plan {
    /// Step 2.
    pub(crate) fn make(before: &UsageImage, writer: &mut MetaWriter<'_>) -> Result<Plan> {
        let mut plan = Plan::default();
        before.gone.iter().for_each(|ptr| writer.retire(*ptr));
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

    /// Step 3, except the record. Returns the location of the table, the pointer to its root, and
    /// the bytes to write with their addresses.
    pub(crate) fn encode(
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
        let mut image =
            UsageImage { root: UsageRoot::default(), gone: Vec::new(), ..before.clone() };
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
