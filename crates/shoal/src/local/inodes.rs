//! Attributes and listings.

use super::Local;
use shoal_engine::{
    Attr, Caller, Fields, Freshness, Ino, InodeScan, Listing, Result, SetAttr, Stat, StatItem,
};
use shoal_session::EachEntry;
use std::ops::ControlFlow;
use std::sync::{Mutex, PoisonError};

/// Permissions to list a directory, and to search it.
pub(super) const LIST: u32 = 4;
pub(super) const SEARCH: u32 = 1;

impl Local {
    pub(super) fn set_attributes(
        &self,
        who: &Caller,
        dir: Ino,
        path: &[u8],
        follow: bool,
        set: &SetAttr,
    ) -> Result<Attr> {
        self.on_found(who, dir, path, follow, |attr| {
            if set.size.is_some() || set.mtime.is_some() {
                self.before_data(attr.ino)?;
            }
            let done = self.volume.attributes().setattr(who, attr.ino, set)?;
            self.tell(|told| match set.size {
                Some(size) => told.data(attr.ino, size, 0),
                None => told.attributes(attr.ino),
            });
            Ok(done)
        })
    }

    pub(super) fn list_part(
        &self,
        who: &Caller,
        ino: Ino,
        listing: &Listing,
        each: &mut EachEntry<'_>,
    ) -> Result<()> {
        let search = if listing.is_in_entries() { 0 } else { SEARCH };
        self.volume.attributes().access(who, ino, LIST | search)?;
        self.volume.directories().list(ino, listing, &mut |entry, stat| each(&entry, stat))
    }

    pub(super) fn attributes_of_names(
        &self,
        who: &Caller,
        dir: Ino,
        names: &[&[u8]],
        want: Fields,
        freshness: Freshness,
    ) -> Vec<Result<Stat>> {
        let items: Vec<StatItem<'_>> = names.iter().map(|name| StatItem::Name(dir, name)).collect();
        let mut found = Vec::with_capacity(names.len());
        let each = &mut |_, answer| found.push(answer);
        self.volume.bulk().stat_many(who, &items, want, freshness, each);
        found
    }

    pub(super) fn scan(&self, who: &Caller, after: Ino, at_most: usize) -> Result<Vec<Attr>> {
        let page = Mutex::new(Vec::new());
        let scan = InodeScan { after, threads: 1 };
        let take = |batch: &[Attr]| {
            let mut page = page.lock().unwrap_or_else(PoisonError::into_inner);
            let wanted = at_most - page.len();
            page.extend_from_slice(&batch[..wanted.min(batch.len())]);
            match page.len() < at_most {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        self.volume.bulk().bulkstat(who, scan, |attr| attr, take)?;
        Ok(page.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}
