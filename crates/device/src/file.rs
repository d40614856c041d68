//! A volume in a file or on a block device.

use crate::backing;
use crate::claim::{self, ClaimOptions, HeldClaim};
use crate::device::{Device, failure};
use crate::discard::discard_blocks;
use crate::lock::{lock_all, unlock};
use crate::now::Now;
use crate::opening::{OpenMode, open};
use crate::signature::foreign_signature;
use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::fs::{fadvise, fallocate, fdatasync, fstat, fstatvfs, seek};
use rustix::io::{Errno, pread, pwrite, pwritev};
use shoal_base::fork::{self, Origin};
use shoal_base::{Code, Error, Result};
use shoal_format::claim::{ADDR as CLAIM_ADDR, SIZE as CLAIM_SIZE};
use std::fs::{File, Metadata};
use std::io::IoSlice;
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes at the start of a device that must be zero for `mkfs` without `--force`. `--force` wipes
/// this much at both ends, so that no old signature survives.
const WIPE: u64 = 1 << 20;

const CLAIM_END: u64 = CLAIM_ADDR + CLAIM_SIZE as u64;

/// A file or block device, locked against other processes while open. One open for writing has a
/// claim in its volume.
///
/// In a child of `fork` every operation fails, and dropping it only closes its descriptors: the
/// locks belong to the open files, which parent and child share, and the claim is the parent's.
pub struct FileDevice {
    origin: Origin,
    /// Cleared before the locks are released.
    claim: Option<HeldClaim>,
    /// A claim found by a reader.
    found: Option<String>,
    file: File,
    now: Now,
    /// Files below a block device; they hold the additional locks.
    below: Vec<File>,
    /// Another process holds the locks too, and keeps them when this one closes the device.
    is_shared: AtomicBool,
    path: PathBuf,
    capacity: u64,
    block: bool,
    read_only: bool,
}

impl FileDevice {
    /// Prepares `path` for a new volume of `size` bytes. A missing file is created, sparse; a
    /// smaller file grows to `size`; of a larger one the first `size` bytes are used. `size` 0
    /// means all of an existing file or block device.
    ///
    /// Without `force`, a device with data is refused; with it, both ends are wiped.
    pub fn create(path: &Path, size: u64, force: bool) -> Result<FileDevice> {
        FileDevice::create_with(path, size, force, &ClaimOptions::default())
    }

    /// As [`FileDevice::create`]; `options` determine the handling of another process's claim.
    pub fn create_with(
        path: &Path,
        size: u64,
        force: bool,
        options: &ClaimOptions,
    ) -> Result<FileDevice> {
        let existed = path.exists();
        let name = path.display();
        if !existed && size == 0 {
            let message = format!("{name} does not exist: give --size to create it");
            return Err(Error::refused(Code::NotFound, message));
        }
        let dev = FileDevice::locked(path, OpenMode::ReadWrite, !existed)?;
        let made = dev.prepare(size, force, existed, options);
        if made.is_err() && !existed {
            // It was empty; leaving an empty file would only confuse the next attempt.
            let _ = std::fs::remove_file(path);
        }
        made
    }

    /// Opens an existing volume. Refuses one that another process has open, by any path.
    pub fn open(path: &Path, mode: OpenMode) -> Result<FileDevice> {
        FileDevice::open_with(path, mode, &ClaimOptions::default())
    }

    /// As [`FileDevice::open`]; `options` determine the handling of another process's claim.
    pub fn open_with(path: &Path, mode: OpenMode, options: &ClaimOptions) -> Result<FileDevice> {
        let mut dev = FileDevice::locked(path, mode, false)?;
        dev.capacity = dev.length()?;
        if dev.capacity == 0 {
            let message = format!("{} is empty: make a volume with `shoal mkfs`", path.display());
            return Err(Error::refused(Code::Invalid, message));
        }
        match mode {
            OpenMode::ReadOnly => dev.found = claim::look(&dev.place(), options)?,
            OpenMode::ReadWrite => dev.claim = claim::take(&dev.place(), options)?,
        }
        Ok(dev)
    }

    /// Opens and locks. The caller must set the capacity.
    fn locked(path: &Path, mode: OpenMode, create: bool) -> Result<FileDevice> {
        let (file, block) = open(path, mode, create)?;
        let read_only = mode == OpenMode::ReadOnly;
        let below = lock_all(&file, path, read_only)?;
        Ok(FileDevice {
            origin: Origin::here(),
            claim: None,
            found: None,
            file,
            now: Now::default(),
            below,
            is_shared: AtomicBool::new(false),
            path: path.into(),
            capacity: 0,
            block,
            read_only,
        })
    }

    /// Opens a volume for writing through the files of a process that had it open
    /// ([`FileDevice::files`]): with its locks, which were never released meanwhile.
    pub fn inherit(path: &Path, files: Vec<File>, options: &ClaimOptions) -> Result<FileDevice> {
        let mut files = files.into_iter();
        let Some(file) = files.next() else {
            let message = format!("{}: no file was handed over", path.display());
            return Err(Error::refused(Code::Invalid, message));
        };
        let meta = file.metadata();
        let meta = meta.map_err(|e| {
            failure("stat", path.display().to_string(), 0, 0, e.raw_os_error().unwrap_or(0))
        })?;
        let mut dev = FileDevice {
            origin: Origin::here(),
            claim: None,
            found: None,
            file,
            now: Now::default(),
            below: files.collect(),
            is_shared: AtomicBool::new(true),
            path: path.into(),
            capacity: 0,
            block: meta.file_type().is_block_device(),
            read_only: false,
        };
        dev.capacity = dev.length()?;
        dev.claim = claim::take(&dev.place(), &ClaimOptions { inherited: true, ..*options })?;
        Ok(dev)
    }

    /// Returns descriptors of the open files that hold the locks, that of the device first. The
    /// locks last as long as any of them.
    pub fn files(&self) -> Result<Vec<File>> {
        self.origin.check()?;
        self.is_shared.store(true, Ordering::Relaxed);
        let files = self.open_files().map(File::try_clone);
        files
            .collect::<Result<_, _>>()
            .map_err(|e| self.failed("duplicate", 0, 0, e.raw_os_error().unwrap_or(0)))
    }

    fn open_files(&self) -> impl Iterator<Item = &File> {
        std::iter::once(&self.file).chain(&self.below)
    }

    /// Makes a file `size` bytes long, sparse, if it is shorter, and takes all of a device or file
    /// that has become larger.
    ///
    /// # Errors
    /// `NoSpace` for a block device that is smaller; those of the file system below.
    pub fn extend(&mut self, size: u64) -> Result<()> {
        self.origin.check()?;
        let length = self.length()?;
        if size > length {
            if self.block {
                let name = self.path.display();
                let message = format!("{name} has only {length} bytes: make it larger first");
                return Err(Error::refused(Code::NoSpace, message));
            }
            let grown = self.file.set_len(size).and_then(|()| self.file.sync_all());
            grown.map_err(|e| self.failed("resize", 0, size, e.raw_os_error().unwrap_or(0)))?;
        }
        self.capacity = length.max(size);
        Ok(())
    }

    /// Cuts a file that is longer than `size` bytes off there. A block device stays as it is.
    /// Nothing may be read or written behind `size` any more.
    ///
    /// # Errors
    /// Another process has taken the volume over; those of the file system below.
    pub fn cut(&self, size: u64) -> Result<()> {
        self.check_claim()?;
        if self.block || self.length()? <= size {
            return Ok(());
        }
        let cut = self.file.set_len(size).and_then(|()| self.file.sync_all());
        cut.map_err(|e| self.failed("resize", 0, size, e.raw_os_error().unwrap_or(0)))
    }

    /// Returns whether it is a block device.
    pub fn is_block(&self) -> bool {
        self.block
    }

    fn place(&self) -> claim::ClaimPlace<'_> {
        claim::ClaimPlace {
            file: &self.file,
            path: &self.path,
            device: self,
            is_local_file: !self.block && backing::is_local(&self.file),
            clock: claim::Clock::Machine,
        }
    }

    /// Sets the function that is called with the reason when another process has taken the volume
    /// over. Writes fail from then on in any case.
    pub fn on_claim_loss(&self, on_loss: impl Fn(&str) + Send + 'static) {
        if let Some(claim) = &self.claim {
            claim.on_loss(Box::new(on_loss));
        }
    }

    /// Fails if another process has taken the volume over, or has opened it before a fork.
    #[inline]
    fn check_claim(&self) -> Result<()> {
        self.origin.check()?;
        self.claim.as_ref().map_or(Ok(()), HeldClaim::check)
    }

    fn prepare(
        mut self,
        size: u64,
        force: bool,
        existed: bool,
        options: &ClaimOptions,
    ) -> Result<FileDevice> {
        let length = self.length()?;
        self.capacity = length;
        if existed {
            claim::look(&self.place(), options)?;
        }
        if existed && !force {
            self.refuse_if_used()?;
        }
        if existed && force {
            self.wipe(0, length)?;
            self.wipe(length.saturating_sub(WIPE), length)?;
        }
        let name = self.path.display();
        if size > length {
            if self.block {
                let message = format!("{name} has only {length} bytes: give a smaller --size");
                return Err(Error::refused(Code::NoSpace, message));
            }
            let grown = self.file.set_len(size);
            grown.map_err(|e| self.failed("resize", 0, size, e.raw_os_error().unwrap_or(0)))?;
        }
        self.capacity = if size == 0 { length } else { size };
        if self.capacity == 0 {
            let message = format!("{name} is empty: give --size");
            return Err(Error::refused(Code::Invalid, message));
        }
        if self.capacity >= CLAIM_END {
            // Removes the claim of an earlier volume. Also allocates the block in a sparse file, so
            // that the volume can be opened when its host has no space left.
            self.write_at(&[0; CLAIM_SIZE], CLAIM_ADDR)?;
        }
        Ok(self)
    }

    fn refuse_if_used(&self) -> Result<()> {
        let found = match foreign_signature(self)? {
            Some(name) => format!("the signature of {name}"),
            None if self.block || !self.starts_with_data()? => return Ok(()),
            None => "data".into(),
        };
        let path = self.path.display();
        let message = format!("{path} holds {found}: --force overwrites it");
        Err(Error::refused(Code::Exists, message))
    }

    fn starts_with_data(&self) -> Result<bool> {
        let mut start = vec![0; self.capacity.min(WIPE) as usize];
        self.read_at(&mut start, 0)?;
        Ok(start.iter().any(|b| *b != 0))
    }

    /// Zeroes up to [`WIPE`] bytes from `from`.
    fn wipe(&self, from: u64, length: u64) -> Result<()> {
        let zeros = vec![0; (length - from).min(WIPE) as usize];
        self.write_at(&zeros, from)
    }

    fn length(&self) -> Result<u64> {
        seek(&self.file, SeekFrom::End(0))
            .map_err(|errno| self.failed("seek to the end", 0, 0, errno.raw_os_error()))
    }

    fn failed(&self, operation: &'static str, offset: u64, len: u64, errno: i32) -> Error {
        failure(operation, self.describe(), offset, len, errno)
    }

    /// Refuses an access outside of the device, or in a child of `fork`, before any part of it is
    /// done.
    fn check(&self, operation: &'static str, offset: u64, len: u64) -> Result<()> {
        self.origin.check()?;
        match offset.checked_add(len) {
            Some(end) if end <= self.capacity => Ok(()),
            _ => Err(self.failed(operation, offset, len, 0)),
        }
    }
}

/// Calls `step(done)` until `len` bytes are done. `step` returns the number of bytes it processed.
fn until_done(
    len: usize,
    mut step: impl FnMut(usize) -> std::result::Result<usize, Errno>,
) -> std::result::Result<(), i32> {
    let mut done = 0;
    while done < len {
        match step(done) {
            Ok(0) => return Err(0),
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.raw_os_error()),
        }
    }
    Ok(())
}

impl Drop for FileDevice {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // The thread that renews the claim is the parent's, and so is the claim.
            if let Some(claim) = self.claim.take() {
                claim.abandon();
            }
            return;
        }
        self.claim = None;
        if !self.is_shared.load(Ordering::Relaxed) {
            // Closing the files would not release the locks while a forked child has them open.
            self.open_files().for_each(unlock);
        }
    }
}

/// Returns the place of a file or device, as [`Device::place`] has it.
pub fn place_of_file(found: &Metadata) -> String {
    match found.file_type().is_block_device() {
        true => format!("device {}", found.rdev()),
        false => format!("file {} of {}", found.ino(), found.dev()),
    }
}

impl Device for FileDevice {
    fn capacity(&self) -> u64 {
        self.capacity
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let len = buf.len();
        self.check("read", offset, len as u64)?;
        let mut end_of_file = None;
        let _waiting = self.now.waiting();
        let read = until_done(len, |done| {
            let n = pread(&self.file, &mut buf[done..], offset + done as u64)?;
            if n == 0 {
                end_of_file = Some(done);
            }
            Ok(n)
        });
        match (read, end_of_file) {
            // The file is shorter than the volume: bytes never written read as zero.
            (Err(0), Some(done)) if !self.block => {
                buf[done..].fill(0);
                Ok(())
            }
            (read, _) => read.map_err(|e| self.failed("read", offset, len as u64, e)),
        }
    }

    fn read_now(&self, buf: &mut [u8], offset: u64) -> Result<bool> {
        self.check("read", offset, buf.len() as u64)?;
        let mut done = 0;
        while done < buf.len() {
            match self.now.read(&self.file, &mut buf[done..], offset + done as u64) {
                None => return Ok(false),
                // As in `read_at`. A device ends earlier only when it fails.
                Some(0) if self.block => return Ok(false),
                Some(0) => {
                    buf[done..].fill(0);
                    break;
                }
                Some(n) => done += n,
            }
        }
        Ok(true)
    }

    fn will_read(&self, offset: u64, len: u64) {
        // If this fails, the later read fails too and reports the reason.
        if let Some(len) = NonZeroU64::new(len) {
            let _ = fadvise(&self.file, offset, Some(len), Advice::WillNeed);
        }
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        let len = buf.len();
        self.check("write", offset, len as u64)?;
        self.check_claim()?;
        let write =
            || until_done(len, |done| pwrite(&self.file, &buf[done..], offset + done as u64));
        self.now.timed(write).map_err(|e| self.failed("write", offset, len as u64, e))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<()> {
        let len = bufs.iter().map(|b| b.len()).sum();
        self.check("write", offset, len as u64)?;
        self.check_claim()?;
        let mut slices: Vec<IoSlice<'_>> = bufs.iter().map(|b| IoSlice::new(b)).collect();
        let mut rest = &mut slices[..];
        let mut counted = 0;
        let step = |done: usize| {
            IoSlice::advance_slices(&mut rest, done - counted);
            counted = done;
            pwritev(&self.file, &rest[..rest.len().min(MAX_SLICES)], offset + done as u64)
        };
        let written = self.now.timed(|| until_done(len, step));
        written.map_err(|e| self.failed("write", offset, len as u64, e))
    }

    fn write_now(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<bool> {
        let len: usize = bufs.iter().map(|b| b.len()).sum();
        self.check("write", offset, len as u64)?;
        self.check_claim()?;
        let write = || self.write_vectored_at(bufs, offset);
        self.now.write(&self.file, bufs, offset, write)
    }

    fn writes_wait(&self) -> bool {
        self.now.writes_wait()
    }

    fn flush(&self) -> Result<()> {
        self.check_claim()?;
        // Never repeated after a failure: the kernel may have dropped the pages it could not write.
        fdatasync(&self.file).map_err(|e| self.failed("flush", 0, 0, e.raw_os_error()))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check("discard", offset, len)?;
        self.check_claim()?;
        if len == 0 {
            return Ok(());
        }
        if self.block {
            return discard_blocks(&self.file, offset, len)
                .map_err(|errno| self.failed("discard", offset, len, errno.raw_os_error()));
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(&self.file, mode, offset, len) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INTR) => Ok(()),
            Err(errno) => Err(self.failed("discard", offset, len, errno.raw_os_error())),
        }
    }

    /// Guarantees nothing on a block device, or if the underlying filesystem cannot allocate.
    fn reserve(&self, offset: u64, len: u64) -> Result<()> {
        self.check("reserve", offset, len)?;
        if self.block {
            return Ok(());
        }
        loop {
            match fallocate(&self.file, FallocateFlags::KEEP_SIZE, offset, len) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::NOSPC | Errno::DQUOT) => return Err(Error::Code(Code::NoSpace)),
                Err(errno) => {
                    return Err(self.failed("reserve", offset, len, errno.raw_os_error()));
                }
            }
        }
    }

    fn room(&self) -> Option<u64> {
        let host = (!self.block).then(|| fstatvfs(&self.file).ok()).flatten()?;
        Some(host.f_bavail.saturating_mul(host.f_frsize))
    }

    fn is_sparse(&self) -> bool {
        !self.block
    }

    fn place(&self) -> Option<String> {
        self.file.metadata().ok().map(|found| place_of_file(&found))
    }
    fn is_unlinked(&self) -> bool {
        !self.block && fstat(&self.file).is_ok_and(|found| found.st_nlink == 0)
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn abandon(&self) {
        self.open_files().for_each(|file| fork::release(file.as_fd()));
        if let Some(claim) = &self.claim {
            claim.release();
        }
    }

    fn claim(&self) -> Option<String> {
        self.claim.as_ref().map(HeldClaim::text).or_else(|| self.found.clone())
    }
}

/// Largest number of slices of one `pwritev` (`IOV_MAX`).
const MAX_SLICES: usize = 1024;

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A directory that is removed when dropped.
    pub(crate) struct TempDir(PathBuf);

    impl TempDir {
        pub(crate) fn new(name: &str) -> TempDir {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let leaf = format!("shoal-device-{name}-{}-{n}", std::process::id());
            let path = std::env::temp_dir().join(leaf);
            std::fs::create_dir_all(&path).unwrap();
            TempDir(path)
        }
        pub(crate) fn path(&self) -> &Path {
            &self.0
        }
    }

    impl Drop for TempDir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn message(result: Result<FileDevice>) -> (Code, String) {
        match result {
            Err(e) => (e.code(), e.to_string()),
            Ok(_) => panic!("must be refused"),
        }
    }

    #[test]
    fn what_is_written_is_read_back_after_reopening() {
        let dir = TempDir::new("rw");
        let path = dir.path().join("v");
        let dev = FileDevice::create(&path, 8 << 20, false).unwrap();
        assert_eq!(dev.capacity(), 8 << 20);
        dev.write_at(b"one", 4095).unwrap();
        let many: Vec<Vec<u8>> = (0..3000).map(|i| vec![i as u8; 7]).collect();
        let slices: Vec<_> = many.iter().map(|v| IoSlice::new(v)).collect();
        dev.write_vectored_at(&slices, 100_000).unwrap();
        dev.flush().unwrap();
        drop(dev);
        let dev = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
        let mut back = [0; 3];
        dev.read_at(&mut back, 4095).unwrap();
        assert_eq!(&back, b"one");
        let mut back = vec![0; 21_000];
        dev.read_at(&mut back, 100_000).unwrap();
        assert_eq!(back, many.concat());
        assert!(dev.read_only() && dev.write_at(b"x", 0).is_err());
    }

    #[test]
    fn a_file_is_cut_and_never_made_longer() {
        let dir = TempDir::new("cut");
        let path = dir.path().join("v");
        let dev = FileDevice::create(&path, 4 << 20, false).unwrap();
        dev.cut(5 << 20).unwrap();
        assert_eq!(dev.length().unwrap(), 4 << 20);
        dev.cut(3 << 20).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().len(), 3 << 20);
        drop(dev);
        let reader = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
        assert!(reader.cut(1 << 20).is_err() && !reader.is_block());
        assert_eq!(reader.length().unwrap(), 3 << 20);
    }

    #[test]
    fn discard_reads_zero_and_past_the_end_is_an_error() {
        let dir = TempDir::new("discard");
        let dev = FileDevice::create(&dir.path().join("v"), 1 << 20, false).unwrap();
        dev.write_at(&[9; 8192], 0).unwrap();
        dev.discard(4096, 4096).unwrap();
        let mut back = [1; 8192];
        dev.read_at(&mut back, 0).unwrap();
        assert!(back[..4096].iter().all(|b| *b == 9));
        assert!(back[4096..].iter().all(|b| *b == 0 || *b == 9));
        assert!(dev.read_at(&mut back, (1 << 20) - 100).is_err());
        assert!(dev.write_at(&back, (1 << 20) - 100).is_err());
    }

    #[test]
    fn a_file_cut_short_reads_zeros() {
        let dir = TempDir::new("short");
        let path = dir.path().join("v");
        let dev = FileDevice::create(&path, 1 << 20, false).unwrap();
        dev.write_at(&[5; 100], 0).unwrap();
        dev.file.set_len(50).unwrap();
        let mut back = [1; 100];
        dev.read_at(&mut back, 0).unwrap();
        assert_eq!((back[49], back[50], back[99]), (5, 0, 0));
    }

    #[test]
    fn create_refuses_what_holds_data_and_force_wipes_it() {
        let dir = TempDir::new("force");
        let path = dir.path().join("v");
        let mut bytes = vec![0; 3 << 20];
        bytes[70_000] = 1;
        std::fs::write(&path, &bytes).unwrap();
        let (code, text) = message(FileDevice::create(&path, 0, false));
        assert_eq!(code, Code::Exists);
        assert!(text.contains("holds data: --force"), "{text}");
        bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
        std::fs::write(&path, &bytes).unwrap();
        let (_, text) = message(FileDevice::create(&path, 0, false));
        assert!(text.contains("the signature of ext2/ext3/ext4"), "{text}");
        let dev = FileDevice::create(&path, 0, true).unwrap();
        assert_eq!(dev.capacity(), 3 << 20);
        assert!(!dev.starts_with_data().unwrap());
        drop(dev);
        let dev = FileDevice::create(&path, 4 << 20, false).unwrap();
        assert_eq!((dev.capacity(), dev.length().unwrap()), (4 << 20, 4 << 20));
        drop(dev);
        let dev = FileDevice::create(&path, 2 << 20, false).unwrap();
        assert_eq!((dev.capacity(), dev.length().unwrap()), (2 << 20, 4 << 20));
    }

    #[test]
    fn refusals_name_path_and_remedy() {
        let dir = TempDir::new("refuse");
        let path = dir.path().join("v");
        let (code, text) = message(FileDevice::open(&path, OpenMode::ReadWrite));
        assert!(code == Code::NotFound && text.contains("does not exist"), "{text}");
        let (code, text) = message(FileDevice::create(&path, 0, false));
        assert!(code == Code::NotFound && text.contains("--size"), "{text}");
        assert!(!path.exists());
        let (code, text) = message(FileDevice::open(dir.path(), OpenMode::ReadOnly));
        assert!(code == Code::IsDirectory && text.contains("directory"), "{text}");
        std::fs::write(&path, b"").unwrap();
        let (code, text) = message(FileDevice::open(&path, OpenMode::ReadWrite));
        assert!(code == Code::Invalid && text.contains("empty"), "{text}");
        let (_, text) = message(FileDevice::open(Path::new("/dev/null"), OpenMode::ReadOnly));
        assert!(text.contains("not a file"), "{text}");
    }

    #[test]
    fn one_writer_or_many_readers_and_the_holder_is_named() {
        let dir = TempDir::new("lock");
        let path = dir.path().join("v");
        let writer = FileDevice::create(&path, 1 << 20, false).unwrap();
        for mode in [OpenMode::ReadWrite, OpenMode::ReadOnly] {
            let (code, text) = message(FileDevice::open(&path, mode));
            assert_eq!(code, Code::Busy);
            assert!(text.contains("this process") && text.contains("unmount"), "{text}");
        }
        drop(writer);
        let one = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
        let two = FileDevice::open(&path, OpenMode::ReadOnly).unwrap();
        assert_eq!(message(FileDevice::open(&path, OpenMode::ReadWrite)).0, Code::Busy);
        drop((one, two));
        FileDevice::open(&path, OpenMode::ReadWrite).unwrap();
    }

    #[test]
    fn another_process_that_holds_it_is_named_with_its_command() {
        use std::process::{Command, Stdio};
        let dir = TempDir::new("holder");
        let path = dir.path().join("v");
        drop(FileDevice::create(&path, 1 << 20, false).unwrap());
        let spawned = Command::new("flock")
            .args(["-x", "--no-fork"])
            .arg(&path)
            .args(["sleep", "3000"])
            .stdout(Stdio::null())
            .spawn();
        let Ok(mut child) = spawned else { return shoal_skip::skipped("no `flock` command") };
        let seen = shoal_skip::wait_for("the other process is named", || {
            let refused = FileDevice::open(&path, OpenMode::ReadWrite).err()?.to_string();
            refused.contains("sleep").then_some(refused)
        });
        child.kill().unwrap();
        child.wait().unwrap();
        let process = format!("process {} (", child.id());
        assert!(seen.contains(&process) && seen.contains("sleep 3000)"), "{seen}");
    }
}
