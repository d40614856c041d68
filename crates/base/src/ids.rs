//! Newtypes: the compiler keeps an inode number from being used as an address.

use std::fmt;

/// Number of a root (subvolume): the top 16 bits of every inode number in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RootId(pub u16);

/// An inode number: `root (16 bits) | index (48 bits)`. Zero is never a valid inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ino(pub u64);

impl Ino {
    /// The top directory of the volume: root 0, index 1. Also FUSE's node id for it.
    pub const ROOT: Ino = Ino(1);
    /// Bits of the index.
    pub const INDEX_BITS: u32 = 48;
    /// Mask of the index.
    pub const INDEX_MASK: u64 = (1 << Self::INDEX_BITS) - 1;

    /// Composes a number from its root and index (the index is cut to 48 bits).
    #[inline]
    pub fn new(root: RootId, index: u64) -> Ino {
        Ino(u64::from(root.0) << Self::INDEX_BITS | (index & Self::INDEX_MASK))
    }
    /// The root this inode lives in.
    #[inline]
    pub fn root(self) -> RootId {
        RootId((self.0 >> Self::INDEX_BITS) as u16)
    }
    /// The number within its root.
    #[inline]
    pub fn index(self) -> u64 {
        self.0 & Self::INDEX_MASK
    }
    /// The number as the trees and inode blocks of `root` hold it: the upper 16 bits are combined
    /// with the number of that root by exclusive or. So a number of the same root is its index and
    /// says nothing of the root: the same bytes are right in a snapshot or a clone of it.
    ///
    /// A number of another root keeps a representation, which depends on both roots. Two places
    /// have one: the volume's top directory, in root 0, names the tops of the other roots, and the
    /// top of a root names root 0 as its parent. Neither is ever shared: root 0 cannot be cloned,
    /// and the top of a clone gets a name and a parent pointer of its own when it is made.
    #[inline]
    pub fn relative_to(self, root: RootId) -> u64 {
        self.0 ^ Ino::new(root, 0).0
    }
    /// The number that is `relative` in what `root` holds; the inverse of [`Ino::relative_to`] for
    /// all numbers, damaged ones too.
    #[inline]
    pub fn from_relative(root: RootId, relative: u64) -> Ino {
        Ino(relative ^ Ino::new(root, 0).0)
    }
}

impl fmt::Debug for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.root().0 == 0 {
            write!(f, "{}", self.index())
        } else {
            write!(f, "{}:{}", self.root().0, self.index())
        }
    }
}

/// Position in the journal: the byte offset of a record's end in the endless stream of records.
/// Monotonic over the life of a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lsn(pub u64);

/// Raised each time an inode number is reused, so that stale handles are recognised.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u32);

/// Number of a checkpoint interval; transactions of one epoch reach the disk in one checkpoint.
pub type Epoch = u64;

/// Byte address on the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Addr(pub u64);

/// Number of a segment; segment `n` starts at byte `n × segment_size`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct SegNo(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_numbers_are_indices_in_their_root_and_come_back_from_anywhere() {
        let roots = [0, 1, 2, 0x8000, u16::MAX].map(RootId);
        for (of, root) in roots.into_iter().flat_map(|of| roots.map(|root| (of, root))) {
            for index in [0, 1, 31, 1 << 40, Ino::INDEX_MASK] {
                let ino = Ino::new(of, index);
                let relative = ino.relative_to(root);
                assert_eq!(Ino::from_relative(root, relative), ino);
                assert_eq!(relative & Ino::INDEX_MASK, index);
                assert_eq!(relative == index, of == root, "{ino} in root {}", root.0);
            }
        }
        // The volume's top, in a root: the number that the root's top has for root 0.
        assert_eq!(Ino::ROOT.relative_to(RootId(7)), Ino::new(RootId(7), 1).0);
    }
}
