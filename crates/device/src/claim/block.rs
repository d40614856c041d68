//! Reading and writing the claim's block so that others see it, whatever their path.
//!
//! A file and a loop device over it have a page cache each, and so has every host that reaches the
//! same storage. A write to one cache is not seen through another, nor is a change below a cached
//! page. Direct I/O passes the cache on both sides:
//!
//! - a direct write reaches what lies below at once: the backing file's cache for a loop device (or
//!   its storage), the server for a network filesystem, the disk for a file. It drops the pages of
//!   that block which its own side has cached;
//! - a direct read first writes back what its own side has cached of that block, and then asks
//!   below.
//!
//! So the path by which a claim is read does not matter, if owner and reader both use direct I/O.
//! Nothing is flushed to the medium: a claim has to be seen by others that run, and after a loss of
//! power its owner does not.
//!
//! Where there is no direct I/O (tmpfs before Linux 6.6, some FUSE filesystems, sectors of more
//! than 4096 bytes), the write is followed by a flush, and cached pages are dropped before a read.

use rustix::fs::{Advice, OFlags, fadvise, fdatasync, fstat};
use rustix::io::{Errno, pread, pwrite};
use shoal_format::claim::{ADDR, SIZE};
use std::fs::{File, OpenOptions};
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// The block in memory, aligned as direct I/O demands.
#[repr(align(4096))]
pub(crate) struct Page(pub [u8; SIZE]);

impl Page {
    pub fn zero() -> Box<Page> {
        Box::new(Page([0; SIZE]))
    }
}

/// The device as the claim reaches it.
pub(crate) struct ClaimFile {
    direct: Option<File>,
    cached: File,
    use_direct: AtomicBool,
}

impl ClaimFile {
    /// Opens `path` once more, for direct I/O, if that leads to what `file` is.
    pub fn open(file: &File, path: &Path, read_only: bool) -> std::io::Result<ClaimFile> {
        let cached = file.try_clone()?;
        let mut options = OpenOptions::new();
        options.read(true).write(!read_only).custom_flags(OFlags::DIRECT.bits() as i32);
        let direct = options.open(path).ok().filter(|direct| is_same(direct, file));
        let use_direct = AtomicBool::new(direct.is_some());
        Ok(ClaimFile { direct, cached, use_direct })
    }

    /// Reads the block. What lies beyond the end of a file is zero.
    pub fn read(&self, page: &mut Page) -> Result<(), Errno> {
        let direct = self.by_direct(|file| read_all(file, &mut page.0));
        direct.unwrap_or_else(|| {
            let _ = fadvise(&self.cached, ADDR, NonZeroU64::new(SIZE as u64), Advice::DontNeed);
            read_all(&self.cached, &mut page.0)
        })
    }

    /// Writes the block. When this returns, a reader by any path sees it.
    pub fn write(&self, page: &Page) -> Result<(), Errno> {
        let direct = self.by_direct(|file| write_all(file, &page.0));
        direct.unwrap_or_else(|| {
            write_all(&self.cached, &page.0)?;
            fdatasync(&self.cached)
        })
    }

    /// Drops what the kernel has cached of the whole device and not to write.
    pub fn forget_cache(&self) {
        // A hint: where it does nothing, nothing is lost but what the path of the other lacks.
        let _ = fadvise(&self.cached, 0, None, Advice::DontNeed);
    }

    /// `None`: there is no direct I/O here.
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

/// Whether two open files are the same file or device.
fn is_same(one: &File, two: &File) -> bool {
    let (Ok(one), Ok(two)) = (fstat(one), fstat(two)) else { return false };
    (one.st_dev, one.st_ino, one.st_rdev) == (two.st_dev, two.st_ino, two.st_rdev)
}

/// One call for the whole block: read in parts it could be that of two writes.
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

    /// What one writes, another open file reads, with direct I/O and without.
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
        // Another file under the same name is not taken for it.
        std::fs::rename(&path, dir.path().join("w")).unwrap();
        std::fs::write(&path, b"x").unwrap();
        assert!(ClaimFile::open(&file, &path, true).unwrap().direct.is_none());
    }
}
