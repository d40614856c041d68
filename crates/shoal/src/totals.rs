//! Sums over everything below a directory.

use crate::Dir;
use crate::error::Result;
use crate::raw;
use std::time::SystemTime;

/// Sums over a directory and everything below it; see [`Totals::of`]. Each inode counts once,
/// however many names it has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Totals(raw::Totals);

impl Totals {
    /// Number, sizes and last change of everything below a directory, as `du -s` counts,
    /// subvolumes below included.
    ///
    /// If the directory was opened with credentials of the superuser, it is walked only if it is
    /// small. Otherwise all inodes of the subvolume are scanned, on all processors: each inode
    /// records which directory it is in. With other credentials all directories below are walked,
    /// and the user must be able to list and search each.
    ///
    /// A file that stays in place is counted once, as it was at some moment of the call. One that
    /// is created, removed, or moved in or out during the call may be missing. Unlinked files that
    /// are open do not count.
    ///
    /// ```
    /// # use shoal::{Credentials, Volume};
    /// use shoal::Totals;
    ///
    /// # fn main() -> shoal::Result<()> {
    /// let volume = Volume::options().size(64 << 20).in_memory()?;
    /// let root = volume.root(Credentials::root());
    /// let photos = root.create_dir("photos")?;
    /// photos.write("a", vec![1; 1000])?;
    /// photos.create_dir("old")?.write("b", vec![1; 500])?;
    /// root.write("c", vec![1; 20])?;
    /// let totals = Totals::of(&photos)?;
    /// assert_eq!((totals.files(), totals.dirs(), totals.bytes()), (2, 2, 1500));
    /// assert_eq!(Totals::of(&root)?.bytes(), 1520);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `NotFound` when the directory has been removed, `PermissionDenied`, `InvalidData` when an
    /// inode or a directory is damaged, those of the device. For an ordinary user
    /// `ArgumentListTooLong` (`E2BIG`) if there are more than a million directories and files with
    /// several links, `ResourceBusy` while several large trees are added up.
    pub fn of(dir: &Dir) -> Result<Totals> {
        let totals = dir.calls().totals(dir.who(), dir.node(), false);
        dir.done(totals.map(Totals), "sum up directory")
    }

    /// Number of regular files.
    pub fn files(&self) -> u64 {
        self.0.files
    }
    /// Number of directories, including the one of [`Totals::of`].
    pub fn dirs(&self) -> u64 {
        self.0.dirs
    }
    /// Number of symlinks, devices, pipes and sockets.
    pub fn others(&self) -> u64 {
        self.0.others
    }
    /// Sizes of regular files and of the targets of symlinks, in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }
    /// Space used, in units of 512 bytes, after compression.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }
    /// Time of the last change of any of the inodes, as of
    /// [`Metadata::changed`](crate::Metadata::changed).
    pub fn changed(&self) -> SystemTime {
        self.0.newest_change.into()
    }
}
