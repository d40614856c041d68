//! Newtypes, so that the compiler keeps an inode number from being used as an address.

use std::fmt;

/// Number of a subvolume: the top 16 bits of every inode number in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RootId(pub u16);

/// An inode number: `subvolume (16 bits) | index (48 bits)`. Zero is never a valid inode number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ino(pub u64);

impl Ino {
    /// The top directory of the volume: subvolume 0, index 1. Also its FUSE node id.
    pub const ROOT: Ino = Ino(1);
    /// Bits of the index.
    pub const INDEX_BITS: u32 = 48;
    /// Mask of the index.
    pub const INDEX_MASK: u64 = (1 << Self::INDEX_BITS) - 1;

    /// Composes a number from subvolume and index (truncated to 48 bits).
    #[inline]
    pub fn new(root: RootId, index: u64) -> Ino {
        Ino(u64::from(root.0) << Self::INDEX_BITS | (index & Self::INDEX_MASK))
    }
    /// The subvolume that contains the inode.
    #[inline]
    pub fn root(self) -> RootId {
        RootId((self.0 >> Self::INDEX_BITS) as u16)
    }
    /// The number within its subvolume.
    #[inline]
    pub fn index(self) -> u64 {
        self.0 & Self::INDEX_MASK
    }
    /// The number as stored in the trees and inode blocks of the subvolume `root`: the upper 16
    /// bits are XORed with the number of that subvolume. A number of the same subvolume is
    /// therefore stored as its index alone, so the same bytes are valid in a snapshot or a clone of
    /// it.
    ///
    /// The stored form of a number in another subvolume depends on both subvolumes. It occurs in
    /// two places: the top directory of the volume (subvolume 0) names the top directories of the
    /// other subvolumes, and each of those names subvolume 0 as its parent. Neither is ever shared:
    /// subvolume 0 cannot be cloned, and the top directory of a clone gets its own name and parent
    /// pointer when it is made.
    #[inline]
    pub fn relative_to(self, root: RootId) -> u64 {
        self.0 ^ Ino::new(root, 0).0
    }
    /// Returns the number stored as `relative` in the subvolume `root`. The inverse of
    /// [`Ino::relative_to`] for all numbers, damaged ones too.
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

/// Log sequence number: the byte offset of a record's end in the endless stream of journal records.
/// Monotonic over the life of a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lsn(pub u64);

/// Generation of an inode number, incremented each time the number is reused, so that stale handles
/// are recognised.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Generation(pub u32);

/// Number of a checkpoint interval. All transactions of one epoch reach the disk in one checkpoint.
pub type Epoch = u64;

/// Byte address on the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Addr(pub u64);

/// Number of a segment. Segment `n` starts at byte `n × segment_size`.
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
        // The top directory of the volume as stored in a subvolume: the parent of its top
        // directory.
        assert_eq!(Ino::ROOT.relative_to(RootId(7)), Ino::new(RootId(7), 1).0);
    }
}
