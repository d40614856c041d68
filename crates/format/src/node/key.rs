//! Keys of the trees.

use crate::declare::Field;
use shoal_base::{Ino, RootId};

/// A key: two 64-bit halves, ordered by the first, then the second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Key {
    /// Object: index of the directory or inode in its subvolume, or number of the inode block.
    pub hi: u64,
    /// Hash or offset.
    pub lo: u64,
}

impl Key {
    /// Smallest key.
    pub const MIN: Key = Key { hi: 0, lo: 0 };
    /// Largest key; never stored.
    pub const MAX: Key = Key { hi: u64::MAX, lo: u64::MAX };
    /// Makes a key from its halves.
    #[inline]
    pub fn new(hi: u64, lo: u64) -> Key {
        Key { hi, lo }
    }
    /// A key of `ino`, in any tree of its subvolume except `imap`.
    #[inline]
    pub fn of(ino: Ino, lo: u64) -> Key {
        Key { hi: ino.index(), lo }
    }
    /// The first key after all keys of `ino`.
    #[inline]
    pub fn behind(ino: Ino) -> Key {
        Key { hi: ino.index() + 1, lo: 0 }
    }
    /// The inode of this key, in any tree of `root` except `imap`. A key that no inode of that
    /// subvolume can have gives a number of another subvolume.
    #[inline]
    pub fn ino(self, root: RootId) -> Ino {
        Ino::from_relative(root, self.hi)
    }
    /// The next larger key (`MAX` stays).
    #[inline]
    pub fn next(self) -> Key {
        match self.lo.checked_add(1) {
            Some(lo) => Key { hi: self.hi, lo },
            None if self.hi < u64::MAX => Key { hi: self.hi + 1, lo: 0 },
            None => Key::MAX,
        }
    }
    /// The next smaller key (`MIN` stays).
    #[inline]
    pub fn before(self) -> Key {
        match self.lo.checked_sub(1) {
            Some(lo) => Key { hi: self.hi, lo },
            None if self.hi > 0 => Key { hi: self.hi - 1, lo: u64::MAX },
            None => Key::MIN,
        }
    }
}

/// The upper half, then the lower half.
impl Field for Key {
    const LEN: usize = 16;
    #[inline]
    fn put(&self, to: &mut [u8]) {
        self.hi.put(&mut to[..8]);
        self.lo.put(&mut to[8..]);
    }
    #[inline]
    fn get(from: &[u8]) -> Option<Self> {
        Some(Key { hi: u64::get(from.get(..8)?)?, lo: u64::get(from.get(8..16)?)? })
    }
    fn text(&self) -> String {
        format!("{:#x}/{:#x}", self.hi, self.lo)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_an_inode_lie_between_its_first_and_the_next_inodes() {
        let (root, index) = (RootId(3), 40);
        let ino = Ino::new(root, index);
        for lo in [0, 7, u64::MAX] {
            let key = Key::of(ino, lo);
            assert_eq!((key, key.ino(root)), (Key::new(index, lo), ino));
            assert!(Key::of(ino, 0) <= key && key < Key::behind(ino));
        }
        assert_eq!(Key::behind(ino), Key::of(Ino::new(root, index + 1), 0));
        let last = Ino::new(root, Ino::INDEX_MASK);
        assert!(Key::of(last, u64::MAX) < Key::behind(last));
        assert_ne!(Key::new(1 << 48 | index, 0).ino(root).root(), root);
    }
}
