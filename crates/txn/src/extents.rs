//! Extents that come into use and go out of use: in forks, and in the accounting of space.

use crate::store::Store;
use shoal_format::attr::{Attrs, has_remote};
use shoal_format::bytes::Reader;
use shoal_format::extent::{Extent, INLINE_MIN};

/// The change of an extent record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExtentChange {
    /// It is in use from now on.
    Appears,
    /// It is no longer in use.
    Goes,
}

/// Decodes the extent records in a data fork of form
/// [`Form::Extents`](shoal_format::inode::Form::Extents); `None` if they are broken.
pub fn fork_extents(fork: &[u8]) -> Option<Vec<Extent>> {
    let mut r = Reader::new(fork);
    let mut extents = Vec::with_capacity(fork.len() / INLINE_MIN);
    while !r.is_empty() {
        extents.push(Extent::decode_inline(&mut r)?);
    }
    Some(extents)
}

/// The data objects of the values in an attribute fork.
pub fn remote_extents(fork: &[u8]) -> impl Iterator<Item = Extent> {
    let fork = if has_remote(fork) { fork } else { &[] };
    Attrs::new(fork).filter_map(|attr| attr?.value.extent())
}

impl Store {
    /// Accounts for an extent that comes into use or goes out of use.
    #[inline]
    pub fn account(&self, extent: &Extent, change: ExtentChange) {
        let len = extent.len;
        match (extent.is_prealloc(), change) {
            (true, ExtentChange::Appears) => {
                self.promises.promise(len);
            }
            (true, ExtentChange::Goes) => {
                self.promises.fulfil(len);
            }
            (false, ExtentChange::Appears) => {
                self.space.add_live(extent.data_addr(), extent.stored_len());
            }
            (false, ExtentChange::Goes) => {
                self.space.sub_live(extent.data_addr(), extent.stored_len());
            }
        }
    }
}
