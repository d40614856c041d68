//! Volumes that a command opens itself.
//!
//! A user who can read and write the volume's file can do everything with its contents, so calls
//! are made as already checked; they still carry the user's ids, which become the owner of new
//! files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::Mode;
use shoal::raw::{Caller, DiskCache, OpenOptions, Volume, is_bucket};

use crate::failure::{Failure, Result};
use crate::progress::eprint_line;
use crate::rings::Kept;

/// Access of a command to a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Access {
    /// Reads only.
    Read,
    /// Changes it.
    Write,
}

/// A volume that this command has opened.
pub(crate) struct Direct {
    /// The volume.
    pub volume: Arc<Volume>,
    /// Caller of the operations.
    pub who: Caller,
    /// Path of the volume, as the user wrote it.
    pub path: PathBuf,
    /// The ring of a mount that was killed.
    kept: Option<Kept>,
}

/// Returns the cache on disk for a volume in a bucket that the environment asks for
/// (`SHOAL_DISK_CACHE=DIR`, `SHOAL_DISK_CACHE_SIZE=SIZE`).
pub(crate) fn disk_cache(volume: &Path) -> Result<Option<DiskCache>> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let Some(directory) = set("SHOAL_DISK_CACHE").filter(|_| is_bucket(volume)) else {
        return Ok(None);
    };
    let bytes = match set("SHOAL_DISK_CACHE_SIZE") {
        None => DiskCache::BYTES,
        Some(size) => crate::size::parse(&size.to_string_lossy())
            .map_err(|error| Failure::usage("SHOAL_DISK_CACHE_SIZE", error))?,
    };
    Ok(Some(DiskCache { directory: directory.into(), bytes }))
}

impl Direct {
    /// Opens a volume.
    pub(crate) fn open(path: &Path, access: Access) -> Result<Direct> {
        Direct::attempt(path, access)?.map_err(|error| Failure::volume(path.display(), &error))
    }

    /// The same; the inner error is that of the volume.
    pub(crate) fn attempt(
        path: &Path,
        access: Access,
    ) -> Result<std::result::Result<Direct, shoal::raw::Error>> {
        let read_only = access == Access::Read;
        let kept = Kept::find(path)?;
        // One that only reads needs no journal writer, checkpoints or cleaner.
        let options = OpenOptions {
            read_only,
            background: !read_only,
            notice: eprint_line,
            ring: kept.as_ref().map(|kept| kept.memory.clone()),
            disk_cache: disk_cache(path)?,
            ..OpenOptions::default()
        };
        Ok(Volume::open(path, &options).map(|volume| Direct {
            volume: Arc::new(volume),
            who: Caller { checked: true, ..caller() },
            path: path.to_owned(),
            kept: kept.filter(|_| !read_only),
        }))
    }

    /// Writes to a volume the changes that a killed mount has left in its ring, and closes it.
    /// Whoever then opens it for writing need not know of the ring.
    pub(crate) fn take_ring(path: &Path) -> Result<()> {
        match Kept::find(path)?.is_some_and(|kept| kept.memory.holds_records()) {
            true => Direct::open(path, Access::Write)?.close(),
            false => Ok(()),
        }
    }

    /// Writes everything and releases the volume, unless somebody else still has it.
    pub(crate) fn close(self) -> Result<()> {
        let path = self.path;
        let failed = |error| Failure::volume(path.display(), &error);
        match Arc::try_unwrap(self.volume) {
            Ok(volume) => {
                volume.close().map_err(failed)?;
                self.kept.into_iter().for_each(Kept::remove);
                Ok(())
            }
            Err(shared) => shared.sync().map_err(failed),
        }
    }

    /// Opens a volume, works, and closes it, also after a failure. The failure of the work comes
    /// first.
    pub(crate) fn with<T>(
        path: &Path,
        access: Access,
        work: impl FnOnce(&Direct) -> Result<T>,
    ) -> Result<T> {
        let direct = Direct::open(path, access)?;
        let result = work(&direct);
        let closed = direct.close();
        let done = result?;
        closed.map(|()| done)
    }
}

/// Warns if the file of a volume is open to others: they could read, or change, the files of all
/// its users. Devices have permissions of their own.
pub(crate) fn warn_if_readable(volume: &Path, warn: fn(&str)) {
    let Ok(found) = volume.metadata() else { return };
    let mode = found.permissions().mode() & 0o7777;
    if found.is_file() && mode & 0o066 != 0 {
        let path = volume.display();
        warn(&format!(
            "{path}: its mode {mode:o} lets others at all files in the volume (chmod 600 {path})"
        ));
    }
}

/// Returns the user that runs the command, as the owner of new files.
pub(crate) fn caller() -> Caller {
    let groups = rustix::process::getgroups().unwrap_or_default();
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: groups.iter().map(|gid| gid.as_raw()).collect::<Arc<[u32]>>(),
        umask: umask(),
        checked: false,
    }
}

/// Returns the process's umask. It can only be read by setting it; no other thread makes files
/// meanwhile.
pub(crate) fn umask() -> u32 {
    let umask = rustix::process::umask(Mode::empty());
    rustix::process::umask(umask);
    umask.as_raw_mode()
}
