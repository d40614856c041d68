//! Options of an open volume.

use super::lab::Lab;
use shoal_device::ClaimOptions;
use shoal_journal::RingMemory;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options for opening a volume.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Refuse every change and write nothing.
    pub read_only: bool,
    /// Open also if another process has a claim on the volume ([`ClaimOptions::force`]).
    pub force: bool,
    /// Called with messages for the user while the open waits for another process.
    pub notice: fn(&str),
    /// Time for which this process may be stalled before another host takes the volume over
    /// ([`ClaimOptions::grace`]); of a volume in a bucket, the shortest time that it promises to
    /// write within. `None`: the defaults, 2 s and 1.5 s, which slow storage makes longer.
    pub grace: Option<Duration>,
    /// Bytes for tree nodes and inode blocks; 0 for a quarter of the machine's memory.
    pub cache_bytes: u64,
    /// Maximum time in milliseconds for which an acknowledged call is only in memory.
    pub commit_interval_ms: u64,
    /// Journal bytes after which a checkpoint starts; 0 to choose by the volume's size.
    pub checkpoint_bytes: u64,
    /// Run the background threads (journal writer, checkpoints, cleaner). Without them, the calls
    /// that need this work do it themselves, deterministically: for simulation.
    pub background: bool,
    /// Never update access times.
    pub noatime: bool,
    /// Discard free segments: a volume in a sparse file shrinks, and a solid-state disk need not
    /// preserve them. See [`crate::Maintenance::trim`].
    pub discard: bool,
    /// Limit in bytes for the estimated memory of a repair; 0 for none.
    pub memory_bytes: u64,
    /// Threads of a check, 1 by default. The report does not depend on it. With more than one, the
    /// order of reads is not deterministic, so simulation must use one.
    pub threads: usize,
    /// Memory for staged records that outlives the process: if the process is killed, the next open
    /// with the same memory finds all calls that had returned, synced or not. `None`: they are lost
    /// up to the commit interval.
    pub ring: Option<Arc<RingMemory>>,
    /// Life of references to inodes from outside.
    pub holds: HoldLife,
    /// Files of a process that had the volume open, with its locks ([`crate::lock_files`]);
    /// empty: the volume is opened by its path.
    pub files: Vec<Arc<File>>,
    /// Make the volume so many bytes large, or, 0, as large as its device; in whole segments. A
    /// file becomes longer. `None`: the volume stays as it is.
    pub grow: Option<u64>,
    /// Of a volume in a bucket: time for which a request to a store that does not answer is
    /// repeated before the call fails that needs it.
    pub patience: Duration,
    /// Of a volume in a bucket: a cache on a local disk for what is read of it. `None`: there is
    /// none.
    pub disk_cache: Option<DiskCache>,
    /// Switches for measurements and tests.
    #[cfg(feature = "lab")]
    pub lab: Lab,
}

/// A directory that has read parts of volumes in buckets. It outlives the process, and may serve
/// several processes and volumes at once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DiskCache {
    /// The directory, which is made if it is missing. Only this user may write in it.
    pub directory: PathBuf,
    /// Bytes that all files in it may take, 64 MiB at least. Those used longest ago are removed.
    pub bytes: u64,
}

impl DiskCache {
    /// Bytes where nobody has said how many, 10 GiB.
    pub const BYTES: u64 = 10 << 30;
}

/// Life of references to inodes from outside ([`crate::References`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HoldLife {
    /// They end with the process. An unlinked inode that is in use may be in memory only.
    #[default]
    Process,
    /// They outlive it: a kernel keeps them until another process serves it. An unlinked inode that
    /// is in use has an orphan slot.
    Lasting,
    /// As [`HoldLife::Lasting`], and there may be some of an earlier process, which nobody has
    /// counted: each unlinked inode is kept until it is known whether it is in use
    /// ([`crate::References::watch_unconfirmed`]).
    Inherited,
}

impl OpenOptions {
    pub(crate) fn claim(&self) -> ClaimOptions {
        let (force, notice, all) = (self.force, self.notice, ClaimOptions::default());
        ClaimOptions { force, notice, grace: self.grace.unwrap_or(all.grace), ..all }
    }

    /// Returns the switches for measurements and tests, which are constants in a release.
    #[inline(always)]
    pub(crate) const fn lab(&self) -> Lab {
        #[cfg(feature = "lab")]
        let lab = self.lab;
        #[cfg(not(feature = "lab"))]
        let lab = Lab::RELEASE;
        lab
    }
}

impl Default for OpenOptions {
    fn default() -> Self {
        OpenOptions {
            read_only: false,
            force: false,
            notice: ClaimOptions::default().notice,
            grace: None,
            cache_bytes: 0,
            commit_interval_ms: 5000,
            checkpoint_bytes: 0,
            background: true,
            memory_bytes: 0,
            threads: 1,
            noatime: false,
            discard: true,
            ring: None,
            holds: HoldLife::Process,
            files: Vec::new(),
            grow: None,
            patience: Duration::from_secs(300),
            disk_cache: None,
            #[cfg(feature = "lab")]
            lab: Lab::default(),
        }
    }
}
