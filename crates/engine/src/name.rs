//! A name in a directory: what an entry and a parent pointer have in common.

use shoal_base::{Ino, RootId};
use shoal_format::attr::{HEADER, Id, Link, Namespace, PARENT_SIZE};
use shoal_format::inode::{Core, Inode};

/// A name in a directory, in the form of a parent pointer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameIn<'a> {
    pub link: Link,
    pub name: &'a [u8],
}

impl<'a> NameIn<'a> {
    /// Must be called while the directory is locked, so that its generation cannot change.
    #[inline]
    pub(crate) fn new(dir: Ino, core: &Core, name: &'a [u8]) -> NameIn<'a> {
        NameIn { link: Link { dir, generation: core.generation }, name }
    }

    pub(crate) fn id(&self) -> Id<'a> {
        Id::parent(self.link, self.name)
    }

    /// Returns whether the pointer of this name is the whole attribute fork of an inode of `root`.
    #[inline]
    pub(crate) fn is_all_of(&self, root: RootId, inode: &Inode) -> bool {
        let (fork, end) = (&inode.attr[..], HEADER + self.name.len());
        fork.len() == end + PARENT_SIZE
            && fork[..2] == [Namespace::Parent as u8, self.name.len() as u8]
            && fork[HEADER..end] == *self.name
            && fork[end..] == self.link.encode(root)
    }
}
