//! Reading and writing the claim's block so that other openers see it, whatever their path.
//!
//! A file and a loop device over it have separate page caches, and so does every host that accesses
//! the same storage. A write to one cache is not visible through another, nor is a change below a
//! cached page. Direct I/O bypasses the caches on both sides:
//!
//! - a direct write reaches the layer below at once: the backing file's cache for a loop device (or
//!   its storage), the server for a network filesystem, the disk for a file. It drops the pages of
//!   that block from its own cache;
//! - a direct read first writes back the pages of that block in its own cache, and then reads from
//!   the layer below.
//!
//! So the path by which a claim is read does not matter if owner and reader both use direct I/O.
//! Nothing is flushed to the medium: a claim must be visible to running processes only, and after a
//! power loss its owner does not run.
//!
//! Where direct I/O is not available (tmpfs before Linux 6.6, some FUSE filesystems, sectors of
//! more than 4096 bytes), the write is followed by a flush, and cached pages are dropped before a
//! read.

use rustix::fs::{Advice, OFlags, fadvise, fdatasync, fstat};
use rustix::io::{Errno, pread, pwrite};
use shoal_base::fork;
use shoal_format::claim::{ADDR, SIZE};
use std::fs::{File, OpenOptions};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The block in memory, aligned as direct I/O requires.
#[repr(align(4096))]
pub(crate) struct Page(pub [u8; SIZE]);

impl Page {
    pub(crate) fn zero() -> Box<Page> {
        Box::new(Page([0; SIZE]))
    }
}

/// The file or device through which the claim is read and written.
pub(crate) struct ClaimFile {
    direct: Option<File>,
    cached: File,
    use_direct: AtomicBool,
}

impl ClaimFile {
    /// Opens `path` again, for direct I/O, if it leads to the same file as `file`.
    pub(crate) fn open(file: &File, path: &Path, read_only: bool) -> std::io::Result<ClaimFile> {
        let cached = file.try_clone()?;
        let mut options = OpenOptions::new();
        options.read(true).write(!read_only).custom_flags(OFlags::DIRECT.bits() as i32);
        let direct = options.open(path).ok().filter(|direct| is_same(direct, file));
        let use_direct = AtomicBool::new(direct.is_some());
        Ok(ClaimFile { direct, cached, use_direct })
    }

    /// Reads the block. Bytes beyond the end of a file are zero.
    pub(crate) fn read(&self, page: &mut Page) -> Result<(), Errno> {
        let direct = self.by_direct(|file| read_all(file, &mut page.0));
        direct.unwrap_or_else(|| {
            let _ = fadvise(&self.cached, ADDR, NonZeroU64::new(SIZE as u64), Advice::DontNeed);
            read_all(&self.cached, &mut page.0)
        })
    }

    /// Writes the block. After the return a reader by any path sees it.
    pub(crate) fn write(&self, page: &Page) -> Result<(), Errno> {
        let direct = self.by_direct(|file| write_all(file, &page.0));
        direct.unwrap_or_else(|| {
            write_all(&self.cached, &page.0)?;
            fdatasync(&self.cached)
        })
    }

    /// Closes the descriptors in a child of `fork`.
    pub(crate) fn release(&self) {
        self.direct.iter().chain([&self.cached]).for_each(|file| fork::release(file.as_fd()));
    }

    /// Drops all clean pages of the device from the kernel's cache.
    pub(crate) fn forget_cache(&self) {
        // A hint. Without effect, only changes made through another path may be missed.
        let _ = fadvise(&self.cached, 0, None, Advice::DontNeed);
    }

    /// Runs `step` with direct I/O. `None` if direct I/O is not available.
    fn by_direct(
        &self,
        step: impl FnOnce(&File) -> Result<(), Errno>,
    ) -> Option<Result<(), Errno>> {
        let file = self.direct.as_ref().filter(|_| self.use_direct.load(Ordering::Relaxed))?;
        match step(file) {
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                self.use_direct.store(false, Ordering::Relaxed);
                None
            }
            done => Some(done),
        }
    }
}

/// Returns whether two open files are the same file or device.
fn is_same(one: &File, two: &File) -> bool {
    let (Ok(one), Ok(two)) = (fstat(one), fstat(two)) else { return false };
    (one.st_dev, one.st_ino, one.st_rdev) == (two.st_dev, two.st_ino, two.st_rdev)
}

/// Reads the block in one call: several could return parts of two writes.
fn read_all(file: &File, buf: &mut [u8; SIZE]) -> Result<(), Errno> {
    loop {
        match pread(file, &mut buf[..], ADDR) {
            Ok(n) => {
                buf[n..].fill(0);
                return Ok(());
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

fn write_all(file: &File, buf: &[u8; SIZE]) -> Result<(), Errno> {
    loop {
        match pwrite(file, &buf[..], ADDR) {
            Ok(SIZE) => return Ok(()),
            Ok(_) => return Err(Errno::IO),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::tests::TempDir;

    /// A block written through one open file is read through another, with direct I/O and without.
    #[test]
    fn the_block_is_seen_through_another_open_file() {
        let dir = TempDir::new("claim-block");
        let path = dir.path().join("v");
        let file = File::create_new(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let open = || {
            let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
            ClaimFile::open(&file, &path, false).unwrap()
        };
        let mut page = Page::zero();
        let (one, two) = (open(), open());
        for (byte, direct) in [(1, true), (2, false), (3, true)] {
            one.use_direct.store(direct, Ordering::Relaxed);
            one.write(&Page([byte; SIZE])).unwrap();
            for direct in [true, false] {
                two.use_direct.store(direct, Ordering::Relaxed);
                two.read(&mut page).unwrap();
                assert_eq!(page.0, [byte; SIZE]);
            }
        }
        one.forget_cache();
        file.set_len(ADDR + 10).unwrap();
        two.read(&mut page).unwrap();
        assert_eq!((page.0[9], page.0[10]), (3, 0));
        // A new file under the same name is not mistaken for it.
        std::fs::rename(&path, dir.path().join("w")).unwrap();
        std::fs::write(&path, b"x").unwrap();
        assert!(ClaimFile::open(&file, &path, true).unwrap().direct.is_none());
    }
}
