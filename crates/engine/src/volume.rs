//! STUB being replaced by the lead: the signatures are the contract for front ends.
#![allow(unused_variables, missing_docs)]
use crate::types::*;
use shoal_base::{Ino, Lsn, Result};
use shoal_device::Device;
use std::path::Path;
use std::sync::Arc;

pub struct Volume {}

/// Makes a volume. `progress`-free: it writes a few MiB at most.
pub fn mkfs(path: &Path, options: &MkfsOptions) -> Result<VolumeInfo> { todo!() }
pub fn mkfs_on(device: Arc<dyn Device>, options: &MkfsOptions) -> Result<()> { todo!() }

impl Volume {
    pub fn open(path: &Path, options: &OpenOptions) -> Result<Volume> { todo!() }
    pub fn open_on(device: Arc<dyn Device>, options: &OpenOptions) -> Result<Volume> { todo!() }
    /// Checkpoints, marks clean, stops threads. Dropping without close is a crash (nothing acknowledged by fsync is lost).
    pub fn close(self) -> Result<()> { todo!() }
    /// Everything acknowledged so far is durable on return.
    pub fn sync(&self) -> Result<()> { todo!() }
    /// Writes a checkpoint now.
    pub fn checkpoint(&self) -> Result<()> { todo!() }
    pub fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> { todo!() }
    pub fn info(&self) -> VolumeInfo { todo!() }
    pub fn statfs(&self) -> StatFs { todo!() }
    /// Why the volume is read-only, if it is.
    pub fn read_only_reason(&self) -> Option<Arc<str>> { todo!() }
    pub fn staged_lsn(&self) -> Lsn { todo!() }
    pub fn durable_lsn(&self) -> Lsn { todo!() }
    /// Full check of a volume opened read-only (or quiesced); `progress(done, total)` is called now and then.
    pub fn check(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<CheckReport> { todo!() }

    // ---- namespace, by inode
    pub fn lookup(&self, who: &Caller, dir: Ino, name: &[u8]) -> Result<Entry> { todo!() }
    /// Parent of a directory ("..").
    pub fn parent_of(&self, dir: Ino) -> Result<Ino> { todo!() }
    pub fn getattr(&self, ino: Ino) -> Result<Attr> { todo!() }
    pub fn setattr(&self, who: &Caller, ino: Ino, set: &SetAttr) -> Result<Attr> { todo!() }
    /// mask: 4 read, 2 write, 1 execute/search.
    pub fn access(&self, who: &Caller, ino: Ino, mask: u32) -> Result<()> { todo!() }
    /// Creates a regular file; EEXIST when the name exists (callers implement O_CREAT without O_EXCL by lookup).
    pub fn create(&self, who: &Caller, dir: Ino, name: &[u8], mode: u32) -> Result<Entry> { todo!() }
    pub fn mkdir(&self, who: &Caller, dir: Ino, name: &[u8], mode: u32) -> Result<Entry> { todo!() }
    /// mode with S_IFMT bits: regular, fifo, socket, char, block.
    pub fn mknod(&self, who: &Caller, dir: Ino, name: &[u8], mode: u32, rdev: u32) -> Result<Entry> { todo!() }
    pub fn symlink(&self, who: &Caller, dir: Ino, name: &[u8], target: &[u8]) -> Result<Entry> { todo!() }
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> { todo!() }
    pub fn link(&self, who: &Caller, ino: Ino, dir: Ino, name: &[u8]) -> Result<Entry> { todo!() }
    pub fn unlink(&self, who: &Caller, dir: Ino, name: &[u8]) -> Result<()> { todo!() }
    pub fn rmdir(&self, who: &Caller, dir: Ino, name: &[u8]) -> Result<()> { todo!() }
    pub fn rename(&self, who: &Caller, dir: Ino, name: &[u8], new_dir: Ino, new_name: &[u8], flags: RenameFlags) -> Result<()> { todo!() }
    /// O_TMPFILE: a file without a name, held once (as by `hold`); `link` gives it a name.
    pub fn tmpfile(&self, who: &Caller, dir: Ino, mode: u32) -> Result<Entry> { todo!() }
    /// Entries after `cookie` (0: from the start, "." and ".." included first). `each` returns false to stop
    /// (that entry then counts as not consumed). Needs read permission checked at opendir: use `access`.
    pub fn readdir(&self, dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> Result<()> { todo!() }
    /// The same with attributes (for "." and ".." too).
    pub fn readdirplus(&self, dir: Ino, cookie: u64, each: &mut dyn FnMut(DirEntry<'_>, &Attr) -> bool) -> Result<()> { todo!() }

    // ---- references: what is held survives its last unlink until released
    /// Adds `n` references (open handles, kernel lookups). ESTALE when the inode is free.
    pub fn hold(&self, ino: Ino, n: u64) -> Result<()> { todo!() }
    /// Drops `n`; at zero an unlinked inode is freed.
    pub fn release(&self, ino: Ino, n: u64) { todo!() }
    /// Resolves a handle: ESTALE when the inode is gone or its number was reused.
    pub fn by_handle(&self, handle: Handle) -> Result<Attr> { todo!() }

    // ---- data (permission is checked at open: use `access`, O_TRUNC by setattr size 0)
    pub fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> { todo!() }
    /// `kill_priv`: clear set-id bits as for an unprivileged writer.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], kill_priv: bool) -> Result<usize> { todo!() }
    /// At the end of the file, atomically (O_APPEND); returns the offset written at.
    pub fn append(&self, ino: Ino, data: &[u8], kill_priv: bool) -> Result<u64> { todo!() }
    pub fn fallocate(&self, ino: Ino, mode: Fallocate, offset: u64, len: u64) -> Result<()> { todo!() }
    /// ENXIO past the end.
    pub fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> { todo!() }
    pub fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> { todo!() }
}
// Path walking (will live in engine/namei/lookup.rs):
impl Volume {
    /// Walks `path` (absolute, or relative to `start`), following symlinks in the middle always and in the last
    /// component if `follow`. Checks search permission. ELOOP after 40 links.
    pub fn resolve(&self, who: &Caller, start: Ino, path: &[u8], follow: bool) -> Result<Entry> { todo!() }
}
