//! Opening volumes.

use crate::connect::is_served;
use crate::error::{Doing, Error, Result};
use crate::local::Local;
use crate::path::to_path_buf;
use crate::raw::{self, Caller, Code, Compression, Ino};
use shoal_session::Calls;
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

struct Shared {
    calls: Arc<dyn Calls>,
    /// The caller of calls that check no permissions.
    superuser: Caller,
    /// If this process has opened it. Last, so that `calls` no longer share it when it is dropped.
    kept: Kept,
}

/// Closed when dropped.
struct Kept(Option<Arc<raw::Volume>>);

impl Drop for Kept {
    fn drop(&mut self) {
        // Dropping it does what a child of `fork` has to do.
        if let Some(volume) = self.0.take().and_then(Arc::into_inner)
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
        let volume = raw::Volume::open(path, &self.open).map_err(|error| match error.code() {
            Code::Busy if is_served(path) => {
                let message = format!("{error}; it serves sessions: use Volume::connect");
                raw::Error::refused(Code::Busy, message)
            }
            _ => error,
        });
        Ok(Volume::opened(Arc::new(volume.doing("open volume", bytes)?)))
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
        Ok(Volume::opened(Arc::new(volume)))
    }

    /// Opens the volume on a device that the caller implements, and recovers it if it was not
    /// closed. The volume must have been made by [`raw::mkfs_on`].
    ///
    /// # Errors
    /// Those of [`VolumeOptions::open`].
    pub fn open_on(self, device: Arc<dyn raw::Device>) -> Result<Volume> {
        let volume = raw::Volume::open_on(device, &self.open).done("open volume")?;
        Ok(Volume::opened(Arc::new(volume)))
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

    /// Connects to the process that serves a volume, and so has it open: a mount, or `shoal serve`.
    /// Many processes can work on one volume at the same time like this, each as its own user, and
    /// see each other's changes at once. `place` is what the volume is in (a file, a device, a
    /// bucket), a directory in its mount, or the socket.
    ///
    /// The calls are the same and mean the same as on a volume that this process has open, and are
    /// checked for the user of this process, whatever [`Credentials`](crate::Credentials) say; only
    /// the superuser, and the user who serves the volume, may act for others.
    ///
    /// When the server ends, calls fail and open files are lost: connect anew.
    ///
    /// # Errors
    /// `NotFound` if nobody serves it; `PermissionDenied` for a user who may not enter;
    /// `Unsupported` if the server is of another version of Shoal.
    pub fn connect(place: impl AsRef<Path>) -> Result<Volume> {
        let place = place.as_ref();
        let bytes = place.as_os_str().as_encoded_bytes();
        let remote = crate::connect::connect(place).doing("connect to volume", bytes)?;
        let who = remote.0.caller().clone();
        Ok(Volume::over(Arc::new(remote), who))
    }

    /// Returns all paths of an inode, relative to the top directory, as the calls of
    /// [`Volume::root`] take them: without a slash at the start. That of the top directory itself
    /// is empty. It takes no walk, because every inode records its names. No path is returned for
    /// an inode without a name.
    ///
    /// # Errors
    /// `Unsupported` for a volume made without parent pointers; `ESTALE` when there is no such
    /// inode.
    pub fn paths_of(&self, ino: Ino) -> Result<Vec<PathBuf>> {
        let paths = self.calls().paths_of(self.superuser(), ino);
        let paths = paths.done("find the paths of an inode")?;
        let below = |path: &Vec<u8>| to_path_buf(path.strip_prefix(b"/").unwrap_or(path));
        Ok(paths.iter().map(below).collect())
    }

    /// Returns the UUID that the volume got when it was made, as 16 bytes in the order of its text.
    /// A copy of the whole volume has the same.
    ///
    /// # Errors
    /// Those of the connection to a volume that another process serves.
    pub fn uuid(&self) -> Result<[u8; 16]> {
        self.calls().volume_id(self.superuser()).done("look at volume")
    }

    /// Makes everything durable that has been done so far.
    ///
    /// # Errors
    /// Those of the device; the volume is read-only then.
    pub fn sync(&self) -> Result<()> {
        self.calls().sync(self.superuser()).done("sync volume")
    }

    /// Space and inodes.
    ///
    /// # Errors
    /// Those of the connection to a volume that another process serves.
    pub fn usage(&self) -> Result<Usage> {
        let raw::StatFs { bytes_total, bytes_available, inodes_used: inodes, .. } =
            self.calls().statfs(self.superuser()).done("look at volume")?;
        Ok(Usage { bytes_total, bytes_available, inodes })
    }

    /// The reason why the volume is read-only, if it is.
    pub fn read_only_reason(&self) -> Option<String> {
        // One that cannot be asked cannot be written.
        let reason = self.calls().read_only_reason(self.superuser());
        reason.unwrap_or_else(|e| Some(e.to_string()))
    }

    /// Writes a checkpoint, and closes the volume. Of a volume that another process serves, ends
    /// the use of it.
    ///
    /// ```
    /// # use shoal::{Credentials, Volume};
    /// # fn main() -> shoal::Result<()> {
    /// let volume = Volume::options().size(64 << 20).in_memory()?;
    /// let root = volume.root(Credentials::root());
    /// let Err(busy) = volume.close() else { panic!("root is in use") };
    /// let volume = busy.into_volume().expect("it stays open");
    /// drop(root);
    /// volume.close()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `ResourceBusy` while there are other clones of it, or [`Dir`](crate::Dir)s or
    /// [`File`](crate::File)s: the volume stays open, and is in the error. Those of the device.
    pub fn close(self) -> Result<(), CloseError> {
        let failed = |volume: Option<Volume>, why: raw::Error| CloseError {
            volume,
            error: Error::new("close volume", None, why),
        };
        let busy = |volume| {
            let message = "the volume is in use: drop its directories and files first";
            failed(Some(volume), raw::Error::refused(Code::Busy, message))
        };
        // Before others are counted: the clones of threads that only the parent has never end.
        if let Err(forked) = self.raw().map_or(Ok(()), raw::check_process) {
            return Err(failed(Some(self), forked));
        }
        let shared = Arc::try_unwrap(self.0).map_err(|shared| busy(Volume(shared)))?;
        let Shared { calls, mut kept, .. } = shared;
        drop(calls);
        let Some(volume) = kept.0.take() else { return Ok(()) };
        let volume = Arc::try_unwrap(volume).map_err(|shared| busy(Volume::opened(shared)))?;
        volume.close().map_err(|e| failed(None, e))
    }

    /// The calls by inode number, if this process has opened the volume itself.
    #[inline]
    pub fn raw(&self) -> Option<&raw::Volume> {
        self.0.kept.0.as_deref()
    }

    /// The volume and the calls on it, for a server.
    pub(crate) fn to_serve(&self) -> raw::Result<(&raw::Volume, Local)> {
        let opened = self.0.kept.0.as_ref();
        opened.map(|volume| (&**volume, Local::new(volume.clone()))).ok_or_else(|| {
            let message = "another process has this volume open: it can serve it";
            raw::Error::refused(Code::NotSupported, message)
        })
    }

    /// Returns whether both are clones of one.
    #[inline]
    pub(crate) fn is_same(&self, other: &Volume) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn opened(volume: Arc<raw::Volume>) -> Volume {
        let calls = Arc::new(Local::new(volume.clone()));
        Volume::of(calls, Some(volume))
    }

    /// A volume that another process serves. `who`: the user of calls that check no permissions.
    pub(crate) fn over(calls: Arc<dyn Calls>, who: Caller) -> Volume {
        Volume(Arc::new(Shared { calls, superuser: who, kept: Kept(None) }))
    }

    fn of(calls: Arc<dyn Calls>, kept: Option<Arc<raw::Volume>>) -> Volume {
        Volume(Arc::new(Shared { calls, superuser: Caller::root(), kept: Kept(kept) }))
    }

    #[inline]
    pub(crate) fn calls(&self) -> &dyn Calls {
        &*self.0.calls
    }

    #[inline]
    pub(crate) fn superuser(&self) -> &Caller {
        &self.0.superuser
    }
}

/// The error of [`Volume::close`], with the volume if that is still open.
pub struct CloseError {
    volume: Option<Volume>,
    error: Error,
}

impl CloseError {
    /// The volume, if it is still open because it is in use.
    pub fn into_volume(self) -> Option<Volume> {
        self.volume
    }

    /// The error.
    pub fn error(&self) -> &Error {
        &self.error
    }
}

impl std::fmt::Display for CloseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.error.fmt(f)
    }
}

impl std::fmt::Debug for CloseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CloseError({:?})", self.error)
    }
}

impl std::error::Error for CloseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

impl From<CloseError> for Error {
    fn from(error: CloseError) -> Error {
        error.error
    }
}

impl From<CloseError> for std::io::Error {
    fn from(error: CloseError) -> std::io::Error {
        error.error.into()
    }
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.raw().map(|raw| (raw, raw::check_process(raw))) {
            Some((raw, Ok(()))) => write!(f, "Volume({})", raw.info().id),
            Some((_, Err(forked))) => write!(f, "Volume({forked})"),
            None => f.write_str("Volume(served)"),
        }
    }
}
