//! System calls on any mounted directory: a kernel filesystem, or a Shoal mount.
//!
//! Works in a fresh subdirectory, which is removed at the end. A directory is opened once for all
//! the files that go to it in a row, so that the kernel is not charged for path walks that the
//! library is spared; `stat` walks the full path on both.

use crate::args::Args;
use crate::driver::{Driver, Target, Usage};
use crate::error::{BenchError, Result};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, FileType, Mode, OFlags, RawDir};
use std::ffi::{CStr, CString};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes for one getdents64: as much as glibc's readdir takes, twice.
const LIST_BUFFER: usize = 64 << 10;

/// A fresh subdirectory of the directory that was named.
pub(crate) struct DirectoryTarget {
    base: Arc<OwnedFd>,
    scratch: Scratch,
}

/// Removes the tree when dropped, also after a failure.
struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    fn remove(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.keep, true) {
            return Ok(());
        }
        std::fs::remove_dir_all(&self.path)
            .map_err(|e| BenchError::failed("removing", self.path.display(), e))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

impl DirectoryTarget {
    /// Makes the subdirectory.
    pub(crate) fn prepare(args: &Args, path: &Path) -> Result<DirectoryTarget> {
        let path = path.join(format!("shoal-bench.{}", std::process::id()));
        std::fs::create_dir(&path)
            .map_err(|e| BenchError::failed("making directory", path.display(), e))?;
        let scratch = Scratch { path, keep: args.keep };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let base = fs::open(&scratch.path, flags, Mode::empty())
            .map_err(|e| BenchError::failed("opening", scratch.path.display(), e))?;
        Ok(DirectoryTarget { base: Arc::new(base), scratch })
    }

    /// The subdirectory.
    pub(crate) fn base(&self) -> Arc<OwnedFd> {
        self.base.clone()
    }

    /// Removes a directory with all that is in it.
    pub(crate) fn remove_all(&self, path: &CStr) -> Result<()> {
        let path = self.scratch.path.join(path.to_string_lossy().as_ref());
        std::fs::remove_dir_all(&path)
            .map_err(|e| BenchError::failed("removing", path.display(), e))
    }

    /// Removes what was made, unless it shall stay.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.scratch.remove()
    }
}

impl Target for DirectoryTarget {
    type Driver = DirectoryDriver;

    fn driver(&self) -> Result<DirectoryDriver> {
        Ok(DirectoryDriver { base: self.base.clone(), list: Vec::with_capacity(LIST_BUFFER) })
    }

    fn settle(&self) -> Result<()> {
        // A filesystem without syncfs (a FUSE server that knows none) still has fsync.
        let synced = fs::syncfs(&self.base).and_then(|()| fs::fsync(&self.base));
        synced.map_err(|e| BenchError::failed("syncing", self.scratch.path.display(), e))
    }

    fn usage(&self) -> Option<Usage> {
        None
    }

    fn reused(&self) -> bool {
        false
    }
}

/// One thread's system calls.
pub(crate) struct DirectoryDriver {
    base: Arc<OwnedFd>,
    list: Vec<u8>,
}

#[cold]
fn failed(what: &str, name: &CStr, error: impl Display) -> BenchError {
    BenchError::failed(what, name.to_string_lossy(), error)
}

impl DirectoryDriver {
    fn create_open(&self, dir: &OwnedFd, name: &CStr) -> Result<OwnedFd> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
        fs::openat(dir, name, flags, Mode::from_raw_mode(0o644))
            .map_err(|e| failed("creating", name, e))
    }
}

impl Driver for DirectoryDriver {
    type Dir = OwnedFd;
    type File = OwnedFd;

    fn mkdir(&mut self, path: &CStr) -> Result<()> {
        fs::mkdirat(&self.base, path, Mode::from_raw_mode(0o755))
            .map_err(|e| failed("making directory", path, e))
    }

    fn open_dir(&mut self, path: &CStr) -> Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        fs::openat(&self.base, path, flags, Mode::empty())
            .map_err(|e| failed("opening directory", path, e))
    }

    #[inline]
    fn create(&mut self, dir: &OwnedFd, name: &CStr, sync: bool) -> Result<()> {
        let file = self.create_open(dir, name)?;
        if sync {
            fs::fsync(&file).map_err(|e| failed("syncing", name, e))?;
        }
        Ok(())
    }

    #[inline]
    fn write_new(&mut self, dir: &OwnedFd, name: &CStr, data: &[u8]) -> Result<()> {
        let file = self.create_open(dir, name)?;
        match rustix::io::write(&file, data) {
            Ok(n) if n == data.len() => Ok(()),
            Ok(n) => Err(failed("writing", name, format_args!("only {n} bytes taken"))),
            Err(e) => Err(failed("writing", name, e)),
        }
    }

    #[inline]
    fn read(&mut self, dir: &OwnedFd, name: &CStr, buf: &mut [u8]) -> Result<usize> {
        let file = fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| failed("opening", name, e))?;
        rustix::io::read(&file, buf).map_err(|e| failed("reading", name, e))
    }

    #[inline]
    fn rename(&mut self, dir: &OwnedFd, from: &CStr, to: &CStr) -> Result<()> {
        fs::renameat(dir, from, dir, to).map_err(|e| failed("renaming", from, e))
    }

    #[inline]
    fn unlink(&mut self, dir: &OwnedFd, name: &CStr) -> Result<()> {
        fs::unlinkat(dir, name, AtFlags::empty()).map_err(|e| failed("removing", name, e))
    }

    #[inline]
    fn open_new(&mut self, dir: &OwnedFd, name: &CStr, data: &[u8]) -> Result<OwnedFd> {
        let file = self.create_open(dir, name)?;
        if !data.is_empty() {
            self.write_at(&file, 0, data)?;
        }
        Ok(file)
    }

    #[inline]
    fn write_at(&mut self, file: &OwnedFd, at: u64, data: &[u8]) -> Result<()> {
        let failed = |e: &dyn Display| BenchError::failed("writing", "an open file", e);
        match rustix::io::pwrite(file, data, at) {
            Ok(n) if n == data.len() => Ok(()),
            Ok(n) => Err(failed(&format_args!("only {n} bytes taken"))),
            Err(e) => Err(failed(&e)),
        }
    }

    fn open_file(&mut self, dir: &OwnedFd, name: &CStr) -> Result<OwnedFd> {
        fs::openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|e| failed("opening", name, e))
    }

    #[inline]
    fn read_at(&mut self, file: &OwnedFd, at: u64, buf: &mut [u8]) -> Result<usize> {
        rustix::io::pread(file, buf, at)
            .map_err(|e| BenchError::failed("reading", "an open file", e))
    }

    #[inline]
    fn cut(&mut self, file: &OwnedFd, size: u64) -> Result<()> {
        fs::ftruncate(file, size).map_err(|e| BenchError::failed("cutting", "an open file", e))
    }

    #[inline]
    fn close(&mut self, file: OwnedFd) -> Result<()> {
        drop(file);
        Ok(())
    }

    #[inline]
    fn stat(&mut self, path: &CStr) -> Result<bool> {
        match fs::statat(&self.base, path, AtFlags::empty()) {
            Ok(stat) => {
                std::hint::black_box(&stat);
                Ok(true)
            }
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(e) => Err(failed("attributes of", path, e)),
        }
    }

    fn list(&mut self, path: &CStr, subdirs: &mut Vec<CString>) -> Result<u64> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = fs::openat(&self.base, path, flags, Mode::empty())
            .map_err(|e| failed("opening directory", path, e))?;
        let mut entries = 0;
        let mut list = RawDir::new(dir.as_fd(), self.list.spare_capacity_mut());
        while let Some(entry) = list.next() {
            let entry = entry.map_err(|e| failed("listing", path, e))?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let stat = fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|e| failed("attributes of", name, e))?;
            entries += 1;
            if FileType::from_raw_mode(std::hint::black_box(&stat).st_mode) == FileType::Directory {
                subdirs.push(name.to_owned());
            }
        }
        Ok(entries)
    }

    fn inode_blocks(&mut self, _: &CStr) -> Result<Option<u64>> {
        Ok(None)
    }
}
