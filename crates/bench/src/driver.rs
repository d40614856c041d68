//! Calls that a workload makes: the same few operations from system calls and the library.
//!
//! Paths are relative to the target's root. Names and paths come as C strings because system calls
//! want the NUL and the library can do without it; nobody then pays for a conversion.

use crate::error::Result;
use std::ffi::{CStr, CString};

/// Something that holds files.
pub(crate) trait Target: Sync {
    /// A thread's handle.
    type Driver: Driver + Send;

    /// A handle for one more thread.
    fn driver(&self) -> Result<Self::Driver>;
    /// Makes everything durable and, on a volume, writes a checkpoint, so that what was written
    /// can be counted. Not timed as part of the workload.
    fn settle(&self) -> Result<()>;
    /// Returns the bytes that the volume holds and has written so far; `None` if they cannot be
    /// known.
    fn usage(&self) -> Option<Usage>;
    /// Returns whether files of an earlier run may be there.
    fn reused(&self) -> bool;
}

/// Bytes that a volume holds and has written since it was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Usage {
    /// Live bytes of metadata and data.
    pub volume_bytes: u64,
    /// Bytes of journal written.
    pub journal_bytes: u64,
    /// Bytes that checkpoints wrote.
    pub checkpoint_bytes: u64,
    /// Bytes of file data written.
    pub data_bytes: u64,
}

/// One thread's way to a target.
pub(crate) trait Driver {
    /// A directory that is open.
    type Dir;
    /// A file that is open.
    type File;

    /// Makes a directory.
    fn mkdir(&mut self, path: &CStr) -> Result<()>;
    /// Opens a directory, to work in it by name.
    fn open_dir(&mut self, path: &CStr) -> Result<Self::Dir>;
    /// Makes an empty file that must not exist; makes it durable if `sync`.
    fn create(&mut self, dir: &Self::Dir, name: &CStr, sync: bool) -> Result<()>;
    /// Makes a file with these contents.
    fn write_new(&mut self, dir: &Self::Dir, name: &CStr, data: &[u8]) -> Result<()>;
    /// Reads a file from its start; returns the bytes read.
    fn read(&mut self, dir: &Self::Dir, name: &CStr, buf: &mut [u8]) -> Result<usize>;
    /// Gives a file another name in its directory.
    fn rename(&mut self, dir: &Self::Dir, from: &CStr, to: &CStr) -> Result<()>;
    /// Removes a file.
    fn unlink(&mut self, dir: &Self::Dir, name: &CStr) -> Result<()>;
    /// Makes a file with these contents, and leaves it open.
    fn open_new(&mut self, dir: &Self::Dir, name: &CStr, data: &[u8]) -> Result<Self::File>;
    /// Writes to an open file, from byte `at` on.
    fn write_at(&mut self, file: &Self::File, at: u64, data: &[u8]) -> Result<()>;
    /// Opens a file that is there.
    fn open_file(&mut self, dir: &Self::Dir, name: &CStr) -> Result<Self::File>;
    /// Reads from an open file, from byte `at` on; returns the bytes read.
    fn read_at(&mut self, file: &Self::File, at: u64, buf: &mut [u8]) -> Result<usize>;
    /// Sets the size of an open file.
    fn cut(&mut self, file: &Self::File, size: u64) -> Result<()>;
    /// Closes it.
    fn close(&mut self, file: Self::File) -> Result<()>;
    /// Attributes by path; returns whether there is such a file.
    fn stat(&mut self, path: &CStr) -> Result<bool>;
    /// Lists a directory with all attributes, without `.` and `..`; pushes the names of its
    /// subdirectories and returns the number of entries.
    fn list(&mut self, path: &CStr, subdirs: &mut Vec<CString>) -> Result<u64>;
    /// Returns the number of inode blocks in which the files of a directory lie; `None` when there
    /// is no way to know.
    fn inode_blocks(&mut self, path: &CStr) -> Result<Option<u64>>;
}
