//! Opening volumes.

use crate::error::{Doing, Error, Result};
use crate::path::to_path_buf;
use crate::raw::{self, Compression, Ino};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// An open volume. Cheap to clone: all clones, and all [`Dir`](crate::Dir)s and
/// [`File`](crate::File)s in it, share it.
///
/// When the last of them is dropped the volume is closed, as by [`Volume::close`], which reports
/// errors. A process that ends without that leaves the volume as a crash does: the next open
/// recovers it, with everything that was made durable.
#[derive(Clone)]
pub struct Volume(Arc<Shared>);

/// Closed when dropped.
struct Shared(Option<raw::Volume>);

impl Drop for Shared {
    fn drop(&mut self) {
        // Dropping it does what a child of `fork` has to do.
        if let Some(volume) = self.0.take()
            && raw::check_process(&volume).is_ok()
            && let Err(e) = volume.close()
        {
            tracing::warn!(error = %e, "volume was not closed cleanly");
        }
    }
}

/// Options with which a volume is opened; see [`Volume::options`].
#[derive(Clone, Debug, Default)]
#[must_use = "options do nothing until `open`"]
pub struct VolumeOptions {
    open: raw::OpenOptions,
    make: raw::MkfsOptions,
    create: bool,
    ring: Option<PathBuf>,
}

impl VolumeOptions {
    /// Sets the memory for tree nodes and inode blocks in bytes; 0, the default, is a quarter of
    /// the machine's.
    pub fn cache(mut self, bytes: u64) -> Self {
        self.open.cache_bytes = bytes;
        self
    }
    /// Creates the volume if there is no file at the path.
    pub fn create(mut self, create: bool) -> Self {
        self.create = create;
        self
    }
    /// Sets the size in bytes of a volume that is made; 0, the default, is 8 GiB. The file is
    /// sparse and takes the space that is used.
    pub fn size(mut self, bytes: u64) -> Self {
        self.make.size = bytes;
        self
    }
    /// Sets the codec of a volume that is made; none by default.
    pub fn compression(mut self, compression: Compression) -> Self {
        self.make.compression = compression;
        self
    }
    /// Refuses every change, and writes nothing.
    pub fn read_only(mut self, read_only: bool) -> Self {
        self.open.read_only = read_only;
        self
    }
    /// Never updates access times.
    pub fn noatime(mut self, noatime: bool) -> Self {
        self.open.noatime = noatime;
        self
    }
    /// Sets the longest time that a change stays in memory only; 5 s by default.
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.open.commit_interval_ms = interval.as_millis() as u64;
        self
    }
    /// Returns freed space to the filesystem or device below; on by default.
    pub fn discard(mut self, discard: bool) -> Self {
        self.open.discard = discard;
        self
    }
    /// Keeps changes that are not durable yet in this file, which is made if it is missing: when
    /// the process is killed, the next open with the same file finds every call that had returned.
    /// Without it, the changes of the last [`VolumeOptions::commit_interval`] are lost. Takes 48
    /// MiB, and is best in memory (below `/run` or `/dev/shm`): after a crash of the machine its
    /// content is ignored.
    pub fn journal_ring(mut self, file: impl Into<PathBuf>) -> Self {
        self.ring = Some(file.into());
        self
    }
    /// Caches data of a volume in a bucket in this directory, on a local disk, up to so many bytes
    /// (64 MiB at least). The cache outlives the process, and several processes and volumes may
    /// share it. Only this user may have write permission to it.
    pub fn disk_cache(mut self, directory: impl Into<PathBuf>, bytes: u64) -> Self {
        self.open.disk_cache = Some(raw::DiskCache { directory: directory.into(), bytes });
        self
    }
    /// Opens a volume although another process has a claim on it. Use it only if that process has
    /// certainly ended: two writers destroy a volume.
    pub fn force(mut self, force: bool) -> Self {
        self.open.force = force;
        self
    }

    /// Opens the volume in a file or on a block device, and recovers it if it was not closed.
    ///
    /// # Errors
    /// `NotFound` without [`VolumeOptions::create`]; `ResourceBusy` when another process has it
    /// open, or has the file of [`VolumeOptions::journal_ring`], or when that file holds changes
    /// of another volume; `InvalidInput` for what is no volume or has features that this version
    /// does not know; `InvalidData` for a damaged one.
    pub fn open(mut self, path: impl AsRef<Path>) -> Result<Volume> {
        let path = path.as_ref();
        if let Some(ring) = &self.ring {
            let name = ring.as_os_str().as_encoded_bytes();
            self.open.ring = Some(Arc::new(raw::RingMemory::open(ring).doing("open ring", name)?));
        }
        let bytes = path.as_os_str().as_encoded_bytes();
        if self.create && !path.exists() {
            raw::mkfs(path, &self.owned()).map(drop).doing("make volume", bytes)?;
        }
        let volume = raw::Volume::open(path, &self.open).doing("open volume", bytes)?;
        Ok(Volume(Arc::new(Shared(Some(volume)))))
    }

    /// Makes a volume in memory, for tests and short-lived trees. It is gone when it is closed.
    ///
    /// # Errors
    /// `InvalidInput` when [`VolumeOptions::size`] is too small, `OutOfMemory`.
    pub fn in_memory(self) -> Result<Volume> {
        let size = if self.make.size == 0 { 256 << 20 } else { self.make.size };
        let device = Arc::new(raw::MemDevice::new(size));
        raw::mkfs_on(device.clone(), &self.owned()).done("make volume in memory")?;
        let volume = raw::Volume::open_on(device, &self.open).done("open volume in memory")?;
        Ok(Volume(Arc::new(Shared(Some(volume)))))
    }

    /// Opens the volume on a device that the caller implements, and recovers it if it was not
    /// closed. The volume must have been made by [`raw::mkfs_on`].
    ///
    /// # Errors
    /// Those of [`VolumeOptions::open`].
    pub fn open_on(self, device: Arc<dyn raw::Device>) -> Result<Volume> {
        let volume = raw::Volume::open_on(device, &self.open).done("open volume")?;
        Ok(Volume(Arc::new(Shared(Some(volume)))))
    }

    /// The top directory of a new volume belongs to this process's user.
    fn owned(&self) -> raw::MkfsOptions {
        let (root_uid, root_gid) =
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        raw::MkfsOptions { root_uid, root_gid, ..self.make.clone() }
    }
}

/// Space and inodes of a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// Size in bytes.
    pub bytes_total: u64,
    /// Bytes that can still be written.
    pub bytes_available: u64,
    /// Inodes in use.
    pub inodes: u64,
}

impl Volume {
    /// Options, and then [`VolumeOptions::open`].
    pub fn options() -> VolumeOptions {
        VolumeOptions::default()
    }

    /// Opens an existing volume with the default options.
    ///
    /// # Errors
    /// Those of [`VolumeOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Volume> {
        Volume::options().open(path)
    }

    /// Returns all paths of an inode, from the top of the volume. It takes no walk, because every
    /// inode records its names. Empty for an inode without a name.
    ///
    /// # Errors
    /// `Unsupported` for a volume made without parent pointers; `ESTALE` when there is no such
    /// inode.
    pub fn paths_of(&self, ino: Ino) -> Result<Vec<PathBuf>> {
        let paths = self.raw().paths().paths_of(ino).done("find the paths of an inode")?;
        Ok(paths.iter().map(|path| to_path_buf(path)).collect())
    }

    /// Makes everything durable that has been done so far.
    ///
    /// # Errors
    /// Those of the device; the volume is read-only then.
    pub fn sync(&self) -> Result<()> {
        self.raw().sync().done("sync volume")
    }

    /// Space and inodes.
    pub fn usage(&self) -> Usage {
        let raw::StatFs { bytes_total, bytes_available, inodes_used: inodes, .. } =
            self.raw().statfs();
        Usage { bytes_total, bytes_available, inodes }
    }

    /// The reason why the volume is read-only, if it is.
    pub fn read_only_reason(&self) -> Option<String> {
        self.raw().read_only_reason().map(|why| why.to_string())
    }

    /// Writes a checkpoint, and closes the volume.
    ///
    /// # Errors
    /// `ResourceBusy`, and the volume stays open, while there are other clones of it, or
    /// [`Dir`](crate::Dir)s or [`File`](crate::File)s; those of the device.
    pub fn close(self) -> Result<()> {
        // Before others are counted: the clones of threads that only the parent has never end.
        raw::check_process(self.raw()).done("close volume")?;
        let busy = |_| {
            let message = "the volume is in use: drop its directories and files first";
            Error::new("close volume", None, raw::Error::refused(raw::Code::Busy, message))
        };
        let mut shared = Arc::try_unwrap(self.0).map_err(busy)?;
        shared.0.take().map_or(Ok(()), raw::Volume::close).done("close volume")
    }

    /// The calls by inode number.
    #[inline]
    pub fn raw(&self) -> &raw::Volume {
        match &self.0.0 {
            Some(volume) => volume,
            None => unreachable!("a volume is closed when nobody can use it"),
        }
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match raw::check_process(self.raw()) {
            Ok(()) => write!(f, "Volume({})", self.raw().info().id),
            Err(forked) => write!(f, "Volume({forked})"),
        }
    }
}
