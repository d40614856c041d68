//! State of the segments on the host, which `host.rs` explains.

use shoal_base::sync::{AtomicBool, AtomicU32, Condvar};
use shoal_device::Device;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

/// State of the segments on the host.
pub(crate) struct HostState {
    pub(crate) device: OnceLock<Arc<dyn Device>>,
    /// By segment. Changed under the lock of the free map.
    pub(crate) backed: Box<[AtomicBool]>,
    pub(crate) stale: Box<[AtomicBool]>,
    /// Number of free and backed segments.
    pub(crate) backed_free: AtomicU32,
    /// Number of free and stale segments.
    pub(crate) stale_free: AtomicU32,
    /// The host refused the last request.
    pub(crate) short: AtomicBool,
    /// The host refused all requests of the last attempt.
    pub(crate) tried: AtomicBool,
    pub(crate) returned: Condvar,
}

impl HostState {
    /// All segments are backed until a device is set.
    pub(crate) fn new(segments: u32) -> HostState {
        HostState {
            device: OnceLock::new(),
            backed: (0..segments).map(|_| AtomicBool::new(true)).collect(),
            stale: (0..segments).map(|_| AtomicBool::new(false)).collect(),
            backed_free: AtomicU32::new(0),
            stale_free: AtomicU32::new(0),
            short: AtomicBool::new(false),
            tried: AtomicBool::new(false),
            returned: Condvar::new(),
        }
    }

    /// Accounts for a segment that was added to or removed from the free set. Under its lock.
    pub(crate) fn moved(&self, seg: u32, is_free: bool) {
        let count = |flags: &[AtomicBool], sum: &AtomicU32| {
            if flags[seg as usize].load(Ordering::Relaxed) {
                match is_free {
                    true => sum.fetch_add(1, Ordering::Relaxed),
                    false => sum.fetch_sub(1, Ordering::Relaxed),
                };
            }
        };
        count(&self.backed, &self.backed_free);
        count(&self.stale, &self.stale_free);
    }

    /// Counts again, under the lock of the free map.
    pub(crate) fn recount(&self, free: impl Fn(u32) -> bool) {
        let count = |flags: &[AtomicBool]| {
            let set = flags.iter().enumerate();
            set.filter(|(n, flag)| flag.load(Ordering::Relaxed) && free(*n as u32)).count() as u32
        };
        self.backed_free.store(count(&self.backed), Ordering::Relaxed);
        self.stale_free.store(count(&self.stale), Ordering::Relaxed);
    }

    /// Marks a segment stale that is being freed, before it is added to the free set.
    pub(crate) fn freed(&self, seg: u32) {
        self.stale[seg as usize].store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_backed(&self, seg: u32) -> bool {
        self.backed[seg as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn is_stale(&self, seg: u32) -> bool {
        self.stale[seg as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn tried(&self) -> bool {
        self.tried.load(Ordering::Relaxed)
    }

    /// Signals callers that wait for a run that is being discarded.
    pub(crate) fn returned(&self) -> &Condvar {
        &self.returned
    }
}
