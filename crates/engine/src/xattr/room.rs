//! Who gets the room in an inode. Data fork and attribute fork share the literal area, of
//! `inode_size - 112` bytes; both lengths are stored, and the fork offset is the data fork's.
//!
//! Who is there first stays, with one exception:
//!
//! 1. Data that grows takes what attributes leave. Inline contents that do not fit any more go to
//!    the device, extent records that do not fit to the `extents` tree (`data/map.rs`).
//! 2. Attributes that grow take what data leaves.
//! 3. If that is not enough, and the attributes would take no more than their *share*, data gives
//!    way: inline contents go to the device, behind one extent record; records go to the tree. The
//!    share is half of the area; of a single parent pointer and nothing else, all of it, so that a
//!    file with one name never needs the tree for it.
//! 4. Otherwise the attributes go to the `attrs` tree, all of them. They come back when, after a
//!    removal, they take no more than their share and fit beside the data.

use crate::data::inline_extents;
use crate::volume::Inner;
use shoal_base::{Ino, Result};
use shoal_format::attr::Attrs;
use shoal_format::extent::Extent;
use shoal_format::inode::{Form, Inode};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::Txn;

/// What becomes of the data fork so that attributes fit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Data {
    /// Nothing.
    Stays,
    /// Its contents have been written to the device; this is their extent.
    Written(Box<Extent>),
    /// Its records go to the tree.
    Spreads,
}

impl Inner {
    /// Bytes of the area that these attributes may claim against data.
    pub(crate) fn share_of(&self, fork: &[u8]) -> usize {
        let mut attrs = Attrs::new(fork);
        let parent = attrs.next().flatten().is_some_and(|attr| attr.is_parent());
        let alone = parent && attrs.position() == fork.len();
        if alone { self.inline_max() } else { self.inline_max() / 2 }
    }

    /// Whether these attributes can stand in this inode, and what that asks of the data. May write
    /// the contents to the device; changes nothing.
    pub(crate) fn room_for_attrs(
        &self,
        ino: Ino,
        inode: &Inode,
        fork: &[u8],
    ) -> Result<Option<Data>> {
        if fork.len() + inode.data.len() <= self.inline_max() {
            return Ok(Some(Data::Stays));
        }
        if fork.len() > self.share_of(fork) {
            return Ok(None);
        }
        match inode.core.data_form {
            Form::Inline => {
                self.read_records(ino, &[], &[], None)?;
                Ok(Some(Data::Written(Box::new(self.write_object(ino, 0, &[&inode.data])?))))
            }
            Form::Extents => {
                let records = inline_extents(ino, inode)?;
                self.read_records(ino, &records, &[], None)?;
                Ok(Some(Data::Spreads))
            }
            Form::Empty | Form::Tree => Ok(None),
        }
    }

    /// Makes the data give way as planned. The attribute fork is already as it is to be, so that
    /// the data sees what room is left for its record.
    pub(crate) fn give_way(
        &self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        data: Data,
    ) -> Result<()> {
        match data {
            Data::Stays => Ok(()),
            Data::Spreads => self.spread_extents(txn, locked),
            Data::Written(extent) => {
                self.outgrow_inline(txn, locked)?;
                self.replace_extents(txn, locked, 0, extent.end(), &[*extent])?;
                // The bytes of its extents are the core's.
                let (ino, core) = (locked.ino(), locked.inode().core);
                txn.log_core(locked, Item::Core { ino, core });
                Ok(())
            }
        }
    }
}
