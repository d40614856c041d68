//! Sums over everything below a directory.

use super::{Attr, FileKind, Time};
use shoal_base::Ino;

/// Sums over a directory and everything below it, in which each inode counts once, however many
/// links it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    /// Regular files.
    pub files: u64,
    /// Directories, with the one that was asked for.
    pub dirs: u64,
    /// Symlinks, devices, pipes and sockets.
    pub others: u64,
    /// Inodes among `files` and `others` that have several links, not all necessarily below.
    pub linked: u64,
    /// Sizes of regular files and of the targets of symlinks, in bytes.
    pub bytes: u64,
    /// Space used, in units of 512 bytes, as `st_blocks`.
    pub blocks: u64,
    /// Last change of any of these inodes (`st_ctime`).
    pub newest_change: Time,
}

impl Totals {
    /// Returns the number of inodes.
    pub fn inodes(&self) -> u64 {
        self.files + self.dirs + self.others
    }

    /// Adds one inode.
    #[inline]
    pub(crate) fn add(&mut self, attr: &Attr) {
        let mut one = Totals { blocks: attr.blocks, ..Totals::default() };
        one.newest_change = attr.ctime;
        match attr.kind {
            FileKind::Directory => one.dirs = 1,
            FileKind::Regular => one.files = 1,
            _ => one.others = 1,
        }
        if matches!(attr.kind, FileKind::Regular | FileKind::Symlink) {
            one.bytes = attr.size;
        }
        one.linked = u64::from(attr.kind != FileKind::Directory && attr.nlink > 1);
        self.merge(&one);
    }

    /// Adds the sums over other inodes.
    #[inline]
    pub(crate) fn merge(&mut self, other: &Totals) {
        let newest = match (self.inodes(), other.inodes()) {
            (0, _) => other.newest_change,
            (_, 0) => self.newest_change,
            _ => self.newest_change.max(other.newest_change),
        };
        self.files += other.files;
        self.dirs += other.dirs;
        self.others += other.others;
        self.linked += other.linked;
        // Sparse files: a few of them can have more than fits.
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.blocks = self.blocks.saturating_add(other.blocks);
        self.newest_change = newest;
    }
}

/// Totals of an immediate subdirectory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildTotals {
    /// Name, without NUL.
    pub name: Vec<u8>,
    /// Totals of the subdirectory.
    pub totals: Totals,
}

/// A directory whose totals are wanted, and how they are found ([`crate::Bulk::totals`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TotalsScan {
    /// The directory.
    pub dir: Ino,
    /// Number of threads of a scan, at least 1.
    pub threads: usize,
    /// Counts the subvolumes below, too. There are some only below the volume's top directory.
    pub subvolumes: bool,
    /// Entries that a walk may find before a scan of all inodes begins instead: 0 for a scan at
    /// once. `None` for a bound by the size of the subvolume.
    pub walk_max: Option<u64>,
}

impl TotalsScan {
    /// All below a directory, with one thread.
    pub fn of(dir: Ino) -> TotalsScan {
        TotalsScan { dir, threads: 1, subvolumes: true, walk_max: None }
    }
}
