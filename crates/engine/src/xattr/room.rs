//! Space in an inode. Data fork and attribute fork share the literal area of `inode_size - 112`
//! bytes. Both lengths are stored; the attribute fork begins after the data fork.
//!
//! The fork that is there first keeps its space, with one exception:
//!
//! 1. Data that grows uses the space that attributes leave. Inline contents that no longer fit move
//!    to the device, extent records to the `extents` tree (`objects/map.rs`).
//! 2. Attributes that grow use the space that data leaves.
//! 3. If that is not enough, and the attributes need at most their *share*, data is moved out:
//!    inline contents to the device, with one extent record; records to the tree. The share is half
//!    of the area; for a fork with only a parent pointer, all of it, so that a file with one name
//!    never needs the tree for it.
//! 4. Otherwise all attributes move to the `attrs` tree. After a removal they return if they need
//!    at most their share and fit beside the data.

use crate::objects::inline_extents;
use crate::xattr::Xattrs;
use shoal_base::{Ino, Result};
use shoal_format::attr::Attrs;
use shoal_format::extent::Extent;
use shoal_format::inode::{Form, Inode};
use shoal_format::item::Item;
use shoal_itable::Locked;
use shoal_txn::Txn;

/// Change of the data fork that makes space for attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Data {
    /// No change.
    Stays,
    /// Its contents have been written to the device, as this extent.
    Written(Box<Extent>),
    /// Its records move to the tree.
    Spreads,
}

impl Xattrs<'_> {
    /// Bytes of the area that these attributes may use at the cost of data.
    pub(crate) fn share_of(self, fork: &[u8]) -> usize {
        let mut attrs = Attrs::new(fork);
        let parent = attrs.next().flatten().is_some_and(|attr| attr.is_parent());
        let alone = parent && attrs.position() == fork.len();
        if alone { self.objects().inline_max() } else { self.objects().inline_max() / 2 }
    }

    /// Determines whether these attributes can be in this inode, and the necessary change of the
    /// data fork; `None` if they cannot. May write the contents to the device, but changes nothing.
    pub(crate) fn room_for_attrs(
        self,
        ino: Ino,
        inode: &Inode,
        fork: &[u8],
    ) -> Result<Option<Data>> {
        if fork.len() + inode.data.len() <= self.objects().inline_max() {
            return Ok(Some(Data::Stays));
        }
        if fork.len() > self.share_of(fork) {
            return Ok(None);
        }
        match inode.core.data_form {
            Form::Inline => {
                self.objects().read_records(ino, &[], &[], None)?;
                Ok(Some(Data::Written(Box::new(self.objects().write_object(
                    ino,
                    0,
                    &[&inode.data],
                )?))))
            }
            Form::Extents => {
                let records = inline_extents(ino, inode)?;
                self.objects().read_records(ino, &records, &[], None)?;
                Ok(Some(Data::Spreads))
            }
            Form::Empty | Form::Tree => Ok(None),
        }
    }

    /// Moves the data out as planned. The attribute fork must already be the new one, which
    /// determines the space left for the data's record.
    pub(crate) fn give_way(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        data: Data,
    ) -> Result<()> {
        match data {
            Data::Stays => Ok(()),
            Data::Spreads => self.objects().spread_extents(txn, locked),
            Data::Written(extent) => {
                self.objects().outgrow_inline(txn, locked)?;
                self.objects().replace_extents(txn, locked, 0, extent.end(), &[*extent])?;
                // `replace_extents` changed the core's byte count, but does not log the core.
                let (ino, core) = (locked.ino(), locked.inode().core);
                txn.log_core(locked, Item::Core { ino, core });
                Ok(())
            }
        }
    }
}
