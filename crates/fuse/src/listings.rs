//! Listings cached by the kernel: none is kept without the attributes of its files.
//!
//! An OPENDIR that is answered ENOSYS is the last one of a mount, RELEASEDIR is never sent, and
//! from then on the kernel keeps each directory's names in its page cache until it changes the
//! directory or is told to drop them (Linux 6.18, `fs/fuse/readdir.c`). A directory is then listed
//! again without a single request. But names are all that a kept listing has: when the kernel,
//! short of memory, drops inodes of the directory and still has the listing, `ls -l` asks for them
//! one by one, by LOOKUP, where READDIRPLUS would bring a hundred at a time.
//!
//! So the listing goes with the first of its inodes: at that inode's FORGET the kernel is told to
//! drop the pages of the directory (INVAL_INODE), and the next listing is a READDIRPLUS.
//!
//! *When no notice is needed*: when one has been sent since the directory was last listed. The
//! kernel drops inodes by the thousand, which then costs one notice for each directory. And never
//! for a file without a name, so removals send none.
//!
//! A file with names in several directories counts for one of them. In the others a kept listing
//! may be without it, which costs a LOOKUP.

use shoal::raw::Ino;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Directories share a slot by the low bits of their numbers. A shared one costs superfluous
/// notices, at most one for each inode that is dropped.
const SLOTS: usize = 16_384;

/// Directories whose cached listings the kernel has been told to drop.
pub(crate) struct Listings {
    /// The last directory that a notice was sent for; 0: none since one of this slot was listed.
    dropped: Box<[AtomicU64]>,
}

impl Default for Listings {
    fn default() -> Listings {
        Listings { dropped: (0..SLOTS).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Listings {
    /// Records that the kernel is about to be given names of `dir`, which it may keep.
    #[inline]
    pub(crate) fn is_listed(&self, dir: Ino) {
        let slot = self.slot(dir);
        // Most listings write nothing to memory that others use.
        if slot.load(Relaxed) == dir.0 {
            slot.store(0, Relaxed);
        }
    }

    /// Records that an inode with a name in `dir` has been dropped. Returns whether the listing
    /// must be.
    #[inline]
    pub(crate) fn has_lost(&self, dir: Ino) -> bool {
        let slot = self.slot(dir);
        slot.load(Relaxed) != dir.0 && slot.swap(dir.0, Relaxed) != dir.0
    }

    fn slot(&self, dir: Ino) -> &AtomicU64 {
        &self.dropped[dir.0 as usize % SLOTS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_notice_for_each_listing() {
        let (listings, dir) = (Listings::default(), Ino(77));
        assert!(listings.has_lost(dir), "listed before, for all one knows");
        assert!(!listings.has_lost(dir));
        listings.is_listed(dir);
        assert!(listings.has_lost(dir));
        assert!(!listings.has_lost(dir));
    }

    #[test]
    fn who_shares_a_slot_is_told_of() {
        let (listings, a, b) = (Listings::default(), Ino(5), Ino(5 + SLOTS as u64));
        assert!(listings.has_lost(a) && listings.has_lost(b) && listings.has_lost(a));
        listings.is_listed(b);
        assert!(listings.has_lost(b));
    }
}
