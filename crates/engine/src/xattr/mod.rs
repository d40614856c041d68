//! Attributes of inodes: storage and changes. The calls are in `attributes/`, parent pointers in
//! `paths/`.
//!
//! | form | file | where |
//! | --- | --- | --- |
//! | inline | `inline.rs` | packed in the inode's attribute fork |
//! | tree | `tree.rs` | values of the `attrs` tree, if the fork has too little space (`room.rs`) |
//! | remote | `remote.rs` | a value of more than 1 KiB, in a data object; the attribute itself is in one of the other two |
//!
//! `change.rs` plans and applies a change.

mod change;
pub(crate) mod inline;
mod remote;
mod room;
mod tree;

pub(crate) use change::{Change, Pending, Plan};
pub(crate) use remote::Held;
pub(crate) use tree::Side;

use crate::objects::Objects;
use crate::state::room;
use shoal_base::{Ino, Result};
use shoal_format::attr::{Attr, Id};
use shoal_format::inode::{Form, Inode};

room! {
    /// Stored attributes.
    pub(crate) struct Xattrs { objects: Objects }
}

impl Xattrs<'_> {
    /// Calls `f` with an attribute of a locked inode; `None` if it does not exist.
    pub(crate) fn with_attr<R>(
        self,
        ino: Ino,
        inode: &Inode,
        id: &Id<'_>,
        f: impl FnOnce(&Attr<'_>) -> Result<R>,
    ) -> Result<Option<R>> {
        match inode.core.attr_form {
            Form::Empty => Ok(None),
            Form::Inline => {
                inline::find(ino, &inode.attr, id)?.map(|place| f(&place.attr)).transpose()
            }
            Form::Tree => match self.find_in_tree(ino, id)? {
                Some(found) => Attr::decode_whole(&found.raw).map(|attr| f(&attr)).transpose(),
                None => Ok(None),
            },
            Form::Extents => Err(inline::broken(ino, "invalid form of the fork")),
        }
    }

    /// Calls `each` with the attributes of one side until it returns `false`.
    pub(crate) fn each_attr(
        self,
        ino: Ino,
        inode: &Inode,
        side: Side,
        each: &mut dyn FnMut(Attr<'_>) -> Result<bool>,
    ) -> Result<()> {
        match inode.core.attr_form {
            Form::Empty => Ok(()),
            Form::Inline => {
                for attr in inline::all(ino, &inode.attr)? {
                    if attr.is_parent() == (side == Side::Parents) && !each(attr)? {
                        break;
                    }
                }
                Ok(())
            }
            Form::Tree => self.each_in_tree(ino, side, each),
            Form::Extents => Err(inline::broken(ino, "invalid form of the fork")),
        }
    }
}
