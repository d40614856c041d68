//! Resources: processor time of this process, the wall clock, allocated space of a folder.

use crate::error::{PeerError, Result};
use rustix::time::{ClockId, clock_gettime};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Bytes of the unit in which the kernel counts allocated space.
const SECTOR_BYTES: u64 = 512;

/// User and system time of all threads so far, in seconds, of those that have ended too.
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Time of day in nanoseconds, up to 4 ms late: the clock from which a kernel takes its mtimes.
pub(crate) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::RealtimeCoarse);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec) as u64
}

/// Allocated bytes of all files in a folder and below it. Holes of a sparse file do not count.
pub(crate) fn folder_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let meta = entry.metadata()?;
        bytes += match meta.is_dir() {
            true => folder_bytes(&entry.path())?,
            false => meta.blocks() * SECTOR_BYTES,
        };
    }
    Ok(bytes)
}

/// A fresh folder, removed with all that is in it when dropped.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes the folder `name` in `parent`, which is made too if it is missing.
    ///
    /// # Errors
    /// There is something of that name.
    pub(crate) fn new(parent: &Path, name: &str) -> Result<Scratch> {
        let path = parent.join(name);
        std::fs::create_dir_all(parent)
            .and_then(|()| std::fs::create_dir(&path))
            .map_err(|e| PeerError::from(e).about(path.display()))?;
        Ok(Scratch(path))
    }

    /// Path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing else can be done about an error, and the result does not depend on it.
        let _removed = std::fs::remove_dir_all(&self.0);
    }
}
