//! Changes, as the feed tells them.

use super::FileKind;
use shoal_base::{Generation, Ino};
use std::sync::Arc;

/// Kind of a change of an inode or of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum ChangeKind {
    /// The inode was made since the mark.
    Created = 1,
    /// The inode has changed: contents, attributes or names; of a directory also entries. An access
    /// time counts as a change.
    Changed = 2,
    /// The inode has another name, and may have changed as well. Told once, whatever is below.
    Renamed = 3,
    /// The name is gone, or another inode has it.
    Removed = 4,
}

/// A name, and the path of its directory.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct ChangedName {
    /// The directory.
    pub dir: Ino,
    /// Path of the directory, from the one that was asked for; empty for that one itself.
    pub dir_path: Arc<[u8]>,
    /// The name; `.` of the directory that was asked for.
    pub name: Vec<u8>,
}

impl ChangedName {
    /// Returns the path, from the directory that was asked for.
    pub fn path(&self) -> Vec<u8> {
        match self.dir_path.is_empty() {
            true => self.name.clone(),
            false => [&self.dir_path[..], b"/", &self.name].concat(),
        }
    }
}

/// A change, as the feed tells it: what is there now, or what is gone.
#[derive(Clone, PartialEq, Eq, Debug, Hash)]
pub struct Change {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// The inode; of a removed name, the one that had it.
    pub ino: Ino,
    /// Its generation; 0 if not known.
    pub generation: Generation,
    /// Its type; `None` for a removed name.
    pub file: Option<FileKind>,
    /// All names that the inode has below the directory that was asked for, or the removed name.
    pub names: Vec<ChangedName>,
    /// Of a renamed inode: the earlier name. `None` if it was not below the directory, or in a
    /// directory that has been removed: what is renamed is then new, with all that is below it.
    pub from: Option<ChangedName>,
    /// More names of the inode follow in the next change.
    pub more: bool,
}
