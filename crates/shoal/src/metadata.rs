//! Attributes of files.

use crate::raw::{self, FileKind, Generation, Ino, SetAttr, SetTime};
use std::time::SystemTime;

/// Attributes of a file or directory, as they were at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Metadata(pub(crate) raw::Attr);

impl Metadata {
    /// Inode number. It stays the same as long as the file exists;
    /// [`Volume::paths_of`](crate::Volume::paths_of) finds the file's paths by it.
    pub fn ino(&self) -> Ino {
        self.0.ino
    }
    /// Generation of the inode number: it changes when the number is reused.
    pub fn generation(&self) -> Generation {
        self.0.generation
    }
    /// Type.
    pub fn kind(&self) -> FileKind {
        self.0.kind
    }
    /// Returns whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.kind == FileKind::Regular
    }
    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.kind == FileKind::Directory
    }
    /// Returns whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.kind == FileKind::Symlink
    }
    /// Size in bytes; of a directory, its number of entries.
    pub fn len(&self) -> u64 {
        self.0.size
    }
    /// Returns whether the size is 0.
    pub fn is_empty(&self) -> bool {
        self.0.size == 0
    }
    /// Space used, in units of 512 bytes, after compression. Contents in the inode count, rounded
    /// up.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }
    /// Permission bits, with set-id and sticky bits.
    pub fn permissions(&self) -> u32 {
        self.0.mode & 0o7777
    }
    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }
    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }
    /// Number of names (hard links).
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }
    /// Device number of a device file.
    pub fn rdev(&self) -> u32 {
        self.0.rdev
    }
    /// Time of the last change of the contents.
    pub fn modified(&self) -> SystemTime {
        self.0.mtime.into()
    }
    /// Time of the last access, renewed as with `relatime`.
    pub fn accessed(&self) -> SystemTime {
        self.0.atime.into()
    }
    /// Time of the last change of the inode.
    pub fn changed(&self) -> SystemTime {
        self.0.ctime.into()
    }
    /// Time of creation.
    pub fn created(&self) -> SystemTime {
        self.0.btime.into()
    }
    /// Number that is larger after each change of the file, of its attributes or of its access
    /// time: with two equal numbers nothing has changed in between, where times may be equal. With
    /// the inode number it makes an `ETag`. On a mount it is the extended attribute
    /// `shoal.version`.
    ///
    /// If the machine crashes, changes that were not durable are undone, and other ones may get
    /// their numbers: a number that is kept outside the volume is one of a state that was synced.
    pub fn version(&self) -> u64 {
        self.0.version
    }
}

/// Returns the change that sets these times.
pub(crate) fn times(accessed: SystemTime, modified: SystemTime) -> SetAttr {
    let to = |time: SystemTime| Some(SetTime::To(time.into()));
    SetAttr { atime: to(accessed), mtime: to(modified), ..SetAttr::default() }
}
