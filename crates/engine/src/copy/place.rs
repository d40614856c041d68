//! The places of the two volumes: files, block devices and buckets by their names, and devices that
//! are open.

use crate::storage::{self, is_bucket, make_bucket};
use crate::types::{MkfsOptions, OpenOptions};
use crate::volume::Volume;
use shoal_base::{Code, Error, Result};
use shoal_device::{Device, FileDevice, OpenMode};
use shoal_format::claim::{ADDR as CLAIM, SIZE as CLAIM_SIZE};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

/// A place where a volume is, or will be.
pub(super) trait Place {
    /// Name for messages.
    fn name(&self) -> String;
    /// Returns whether nothing is there. Of a bucket, [`Place::read`] says it.
    fn is_missing(&self) -> bool;
    /// Opens it for reading.
    fn read(&self) -> Result<Arc<dyn Device>>;
    /// Opens its volume for writing.
    fn volume(&self) -> Result<Volume>;
    /// Makes a device for a volume of `size` bytes, of nothing, or of what is there: without
    /// `force`, only if it has no data. Returns whether something was there.
    fn create(&self, size: u64, force: bool) -> Result<(Arc<dyn Device>, bool)>;
    /// Opens for writing what has a volume, or a part of one, and makes it at least so large.
    fn reopen(&self, size: u64) -> Result<Arc<dyn Device>>;
}

/// Returns whether two names are of one file, block device or place in a bucket.
pub(super) fn is_same(a: &Path, b: &Path) -> bool {
    if is_bucket(a) || is_bucket(b) {
        let trimmed = |path: &Path| path.to_string_lossy().trim_end_matches('/').to_owned();
        return trimmed(a) == trimmed(b);
    }
    let (Ok(a), Ok(b)) = (a.metadata(), b.metadata()) else { return false };
    let is_block = a.file_type().is_block_device() && b.file_type().is_block_device();
    (a.dev(), a.ino()) == (b.dev(), b.ino()) || is_block && a.rdev() == b.rdev()
}

/// A place by its name.
pub(super) struct Named<'a> {
    pub path: &'a Path,
    pub options: &'a OpenOptions,
}

impl Place for Named<'_> {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn is_missing(&self) -> bool {
        let is_empty = |meta: std::fs::Metadata| meta.is_file() && meta.len() == 0;
        !is_bucket(self.path) && self.path.metadata().map_or(true, is_empty)
    }

    fn read(&self) -> Result<Arc<dyn Device>> {
        storage::open(self.path, OpenMode::ReadOnly, self.options)
    }

    fn volume(&self) -> Result<Volume> {
        Volume::open(self.path, &writer(self.options))
    }

    fn create(&self, size: u64, force: bool) -> Result<(Arc<dyn Device>, bool)> {
        if is_bucket(self.path) {
            let notice = self.options.notice;
            let made = MkfsOptions { size, force, notice, ..MkfsOptions::default() };
            return Ok((make_bucket(self.path, &made)?, false));
        }
        let existed = self.path.exists();
        let device = FileDevice::create_with(self.path, size, force, &self.options.claim())?;
        Ok((Arc::new(device), existed))
    }

    fn reopen(&self, size: u64) -> Result<Arc<dyn Device>> {
        if is_bucket(self.path) {
            let options = OpenOptions { grow: Some(size), ..self.options.clone() };
            return storage::open(self.path, OpenMode::ReadWrite, &options);
        }
        let claim = self.options.claim();
        let mut device = FileDevice::open_with(self.path, OpenMode::ReadWrite, &claim)?;
        device.extend(size)?;
        if device.claim().is_none() {
            // Left by a copy that was interrupted; without a superblock there is no claim.
            device.write_at(&[0; CLAIM_SIZE], CLAIM)?;
        }
        Ok(Arc::new(device))
    }
}

/// A device that is open: for simulation.
pub(super) struct Open<'a> {
    pub device: &'a Arc<dyn Device>,
    pub options: &'a OpenOptions,
}

impl Place for Open<'_> {
    fn name(&self) -> String {
        self.device.describe()
    }

    fn is_missing(&self) -> bool {
        false
    }

    fn read(&self) -> Result<Arc<dyn Device>> {
        Ok(Arc::clone(self.device))
    }

    fn volume(&self) -> Result<Volume> {
        Volume::open_on(Arc::clone(self.device), &writer(self.options))
    }

    fn create(&self, size: u64, force: bool) -> Result<(Arc<dyn Device>, bool)> {
        let mut start = vec![0; size.min(1 << 20) as usize];
        self.device.read_at(&mut start, 0)?;
        if !force && start.iter().any(|byte| *byte != 0) {
            let message = format!("{} holds data: --force overwrites it", self.name());
            return Err(Error::refused(Code::Exists, message));
        }
        Ok((self.reopen(size)?, true))
    }

    fn reopen(&self, size: u64) -> Result<Arc<dyn Device>> {
        match self.device.capacity() >= size {
            true => Ok(Arc::clone(self.device)),
            false => Err(Error::Code(Code::NoSpace)),
        }
    }
}

/// A volume is stamped without threads, which would write checkpoints of their own.
fn writer(options: &OpenOptions) -> OpenOptions {
    OpenOptions { background: false, read_only: false, ..options.clone() }
}
