//! Changes below a directory since a mark.

use crate::error::{Doing, Error, Result};
use crate::raw::{self, ChangedName};
use crate::{Dir, FileKind, Generation, Ino, Volume};
use shoal_session::ChangeFeed;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::iter::FusedIterator;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

pub use raw::ChangeKind;

/// Changes that are read at a time.
const BATCH: usize = 1024;
/// First pause of a wait.
const WAIT_FIRST: Duration = Duration::from_millis(1);
/// Longest pause of a wait.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// A moment in the history of a subvolume: [`Changes::since`] returns what has changed after it.
///
/// As text it is 76 letters, digits, `-` and `_`. Everything before the mark is durable when the
/// mark is returned. A mark holds nothing secret, and the volume keeps nothing for it: there may be
/// any number of marks, of any age.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Mark(raw::ChangeMark);

impl Mark {
    /// Returns a mark of the present moment, for the subvolume of a directory.
    ///
    /// # Errors
    /// Those of a sync; `Unsupported` for a volume without parent pointers.
    pub fn now(dir: &Dir) -> Result<Mark> {
        dir.calls().mark(dir.who(), dir.node()).map(Mark).done("make a mark")
    }

    /// Waits until something in the volume may have changed since the mark, at most this long.
    /// Returns `false` if the time has passed. After `true`, [`Changes::since`] returns what has
    /// changed below the directory, which may be nothing.
    ///
    /// It compares two numbers at intervals that grow from 1 to 50 milliseconds; no writer has to
    /// signal anything.
    ///
    /// ```
    /// # use shoal::{Credentials, Volume};
    /// use shoal::{Changes, Mark};
    /// use std::time::Duration;
    ///
    /// # fn main() -> shoal::Result<()> {
    /// # let volume = Volume::options().size(64 << 20).in_memory()?;
    /// let root = volume.root(Credentials::root());
    /// let mut mark = Mark::now(&root)?;
    /// assert!(!mark.wait(&root, Duration::ZERO));
    /// root.write("file", b"new")?;
    /// while mark.wait(&root, Duration::from_secs(1)) {
    ///     let mut changes = Changes::since(&root, Some(&mark))?;
    ///     for change in &mut changes {
    ///         println!("{:?}", change?.paths().collect::<Vec<_>>());
    ///     }
    ///     mark = changes.mark();
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait(&self, dir: &Dir, at_most: Duration) -> bool {
        let (end, mut pause) = (Instant::now().checked_add(at_most), WAIT_FIRST);
        loop {
            if dir.calls().is_newer(dir.who(), self.0).unwrap_or(true) {
                return true;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            match left {
                Some(Duration::ZERO) => return false,
                Some(left) => thread::sleep(pause.min(left)),
                None => thread::sleep(pause),
            }
            pause = (2 * pause).min(WAIT_MAX);
        }
    }

    /// The mark as bytes.
    pub fn to_bytes(&self) -> [u8; 57] {
        self.0.to_bytes()
    }

    /// A mark from its bytes.
    ///
    /// # Errors
    /// `InvalidInput` for bytes that no mark has.
    pub fn from_bytes(bytes: &[u8]) -> Result<Mark> {
        raw::ChangeMark::from_bytes(bytes).map(Mark).done("read mark")
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Mark {
    type Err = Error;

    fn from_str(text: &str) -> Result<Mark> {
        text.parse().map(Mark).done("read mark")
    }
}

/// A change: an inode as it is now, or a removed name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change(raw::Change);

impl Change {
    /// Kind of the change.
    pub fn kind(&self) -> ChangeKind {
        self.0.kind
    }
    /// The inode; for a removed name, the inode that had it.
    pub fn ino(&self) -> Ino {
        self.0.ino
    }
    /// Generation of the inode number. Number and generation together are never reused. 0 for a
    /// removed name if it is not known.
    pub fn generation(&self) -> Generation {
        self.0.generation
    }
    /// The type; `None` for a removed name.
    pub fn file_kind(&self) -> Option<FileKind> {
        self.0.file
    }
    /// Paths relative to the directory of [`Changes::since`]: all paths of the inode below it, or
    /// the removed path. The directory itself is `.`.
    pub fn paths(&self) -> impl Iterator<Item = PathBuf> {
        self.0.names.iter().map(path)
    }
    /// Directories and names of [`Change::paths`].
    pub fn names(&self) -> impl Iterator<Item = (Ino, &[u8])> {
        self.0.names.iter().map(|name| (name.dir, &name.name[..]))
    }
    /// The path before a rename, in which the names of the directories are the present ones. `None`
    /// if it was not below the directory, or its directory has been removed.
    pub fn from(&self) -> Option<PathBuf> {
        self.0.from.as_ref().map(path)
    }
    /// Returns whether the next change has further names of the same inode.
    pub fn more(&self) -> bool {
        self.0.more
    }
}

fn path(name: &ChangedName) -> PathBuf {
    OsString::from_vec(name.path()).into()
}

/// An iterator over the changes below a directory; see [`Changes::since`]. It ends after an error.
pub struct Changes {
    dir: Dir,
    feed: ChangeFeed,
    batch: VecDeque<raw::Change>,
    ended: bool,
}

impl Changes {
    /// Returns the changes below a directory since a mark of its subvolume; without a mark,
    /// everything, as created. Only changed inodes are read. Other subvolumes are not entered.
    ///
    /// An inode is returned once, with all its names below the directory, if it was created or if
    /// its contents, attributes, names or access time have changed. A directory has changed when an
    /// entry was added or removed. Files below a renamed directory are not returned for that. The
    /// order is: renames, removed names, everything else.
    ///
    /// *Removed names* are returned as far as the volume keeps them, which
    /// [`Volume::keep_removed_names`] switches on. If [`Changes::has_all_removed`] returns `false`,
    /// some are missing: then list each returned directory and compare it with your copy, and read
    /// subdirectories that your copy lacks as a whole. Every missing name was removed from one of
    /// the returned directories. A name that was created and removed since the mark may be returned
    /// as removed.
    ///
    /// *A copy by inode number* deletes the removed names, replaces the names of each returned
    /// inode by the new ones, and drops inodes without a name. *A copy by paths* first deletes all
    /// removed paths and the earlier paths of renames. Then it copies what is returned, and renamed
    /// directories with everything below. Both copies are then equal to the tree, but for changes
    /// made meanwhile, which the next call returns.
    ///
    /// If the directory was opened with a user's credentials, files that the user could not find by
    /// listing are left out.
    ///
    /// ```
    /// # use shoal::{Credentials, Volume};
    /// use shoal::{ChangeKind, Changes, Mark};
    ///
    /// # fn main() -> shoal::Result<()> {
    /// let volume = Volume::options().size(64 << 20).in_memory()?;
    /// volume.keep_removed_names(true)?;
    /// let root = volume.root(Credentials::root());
    /// let inbox = root.create_dir("inbox")?;
    /// inbox.write("one", b"1")?;
    /// root.create_dir("drafts")?.write("two", b"2")?;
    /// let mark = Mark::now(&root)?;
    ///
    /// inbox.remove_file("one")?;
    /// root.rename("drafts", "inbox/read")?;
    /// let mut changes = Changes::since(&root, Some(&mark))?;
    /// let mut told = Vec::new();
    /// for change in &mut changes {
    ///     let change = change?;
    ///     told.extend(change.paths().map(|path| (change.kind(), path)));
    /// }
    /// assert!(told.contains(&(ChangeKind::Renamed, "inbox/read".into())));
    /// assert!(told.contains(&(ChangeKind::Removed, "inbox/one".into())));
    /// assert!(changes.has_all_removed());
    /// // For the next time.
    /// let mark: String = changes.mark().to_string();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors `NotFound` when the directory has been removed, `PermissionDenied`.
    /// `CrossesDevices` for a mark of another volume or subvolume, `StaleNetworkFileHandle` for one
    /// from the future or from before a repair: call it again without a mark. `Unsupported` for a
    /// volume without parent pointers; those of the device, and of a sync.
    pub fn since(dir: &Dir, mark: Option<&Mark>) -> Result<Changes> {
        let feed = dir.calls().changes(dir.who(), dir.node(), mark.map(|mark| mark.0));
        let feed = feed.done("read the changes of directory")?;
        Ok(Changes { dir: dir.clone(), feed, batch: VecDeque::new(), ended: false })
    }

    /// The mark for the next call. Use it only after the iterator has ended without an error.
    pub fn mark(&self) -> Mark {
        Mark(self.feed.mark)
    }

    /// Returns whether all removed names and all paths before renames are returned.
    pub fn has_all_removed(&self) -> bool {
        self.feed.has_all_removed
    }
}

impl Iterator for Changes {
    type Item = Result<Change>;

    fn next(&mut self) -> Option<Result<Change>> {
        if self.batch.is_empty() && !self.ended {
            match self.dir.calls().next_changes(self.dir.who(), &mut self.feed, BATCH) {
                Ok(batch) => {
                    self.ended = batch.is_empty();
                    self.batch = batch.into();
                }
                Err(e) => {
                    self.ended = true;
                    return Some(Err(e).done("read the changes of directory"));
                }
            }
        }
        self.batch.pop_front().map(|change| Ok(Change(change)))
    }
}

impl FusedIterator for Changes {}

impl Drop for Changes {
    fn drop(&mut self) {
        // A session that has ended has ended it.
        let _ = self.dir.calls().end_changes(self.dir.who(), &self.feed);
    }
}

impl Volume {
    /// Keeps the names of removed files for [`Changes`], or stops that. The newest are kept, at
    /// most 3 MiB, some ten thousand. They survive a clean close; after a crash, those since the
    /// last checkpoint are there. Off in a new volume. While it is on, a removal costs a little
    /// more. Checks no permissions: the caller must.
    ///
    /// # Errors
    /// `ReadOnlyFilesystem`, `StorageFull`, those of the device.
    pub fn keep_removed_names(&self, keep: bool) -> Result<()> {
        self.calls().keep_removed(self.superuser(), keep).done("keep removed names")
    }
}
