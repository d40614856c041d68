//! Facts about a mount that do not come from its volume, and the state that a remount changes.
//!
//! The kernel refuses changes of a read-only mount itself, but for requests that it does not
//! interpret (control ioctls, control files), and for changes that the server makes on its own
//! while it reads (access times). Those are what [`About::is_read_only`] is for.

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Facts about a mount.
#[derive(Default)]
pub(crate) struct About {
    facts: OnceLock<Facts>,
    read_only: AtomicBool,
    noatime: AtomicBool,
    /// Held shared by a change that is not the kernel's, alone while the state changes.
    gate: RwLock<()>,
    /// End of the last scrub that was asked for here.
    scrubbed: Mutex<Option<Instant>>,
}

/// Facts that are known when a mount begins.
pub(crate) struct Facts {
    /// Source in the list of mounts.
    pub source: String,
    /// Options, as a list for `-o`.
    pub options: String,
    /// The volume was opened read-only, so the mount cannot become writable.
    pub read_only: bool,
    /// The mount is read-only when it begins.
    pub is_read_only: bool,
    /// Access times do not change.
    pub noatime: bool,
    /// Moment at which it began.
    pub since: Instant,
}

impl About {
    /// Records the facts, once.
    pub(crate) fn begin(&self, facts: Facts) {
        self.set(facts.is_read_only, facts.noatime);
        // A second call has nothing to say.
        let _ = self.facts.set(facts);
    }

    /// Returns the facts; `None` before [`About::begin`].
    pub(crate) fn facts(&self) -> Option<&Facts> {
        self.facts.get()
    }

    /// Records that a scrub has ended.
    pub(crate) fn scrubbed(&self) {
        *self.scrubbed.lock() = Some(Instant::now());
    }

    /// Returns the end of the last scrub; `None`: none has ended.
    pub(crate) fn last_scrub(&self) -> Option<Instant> {
        *self.scrubbed.lock()
    }

    /// Returns whether changes are refused.
    #[inline]
    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    /// Returns whether access times do not change while the mount is writable.
    pub(crate) fn is_noatime(&self) -> bool {
        self.noatime.load(Ordering::Acquire)
    }

    /// Begins a change that the kernel knows nothing of. It is in progress until the guard is
    /// dropped; `None` if changes are refused.
    pub(crate) fn begin_change(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let guard = self.gate.read_recursive();
        (!self.is_read_only()).then_some(guard)
    }

    /// Refuses changes from now on, or allows them again. No change is in progress when it returns.
    pub(crate) fn set(&self, read_only: bool, noatime: bool) {
        let _alone = self.gate.write();
        self.noatime.store(noatime, Ordering::Release);
        self.read_only.store(read_only, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_of_a_volume_opened_read_only_begins_so() {
        let about = About::default();
        assert!(about.facts().is_none() && !about.is_read_only());
        let facts = || Facts {
            source: "v".into(),
            options: "ro,noatime".into(),
            read_only: true,
            is_read_only: true,
            noatime: true,
            since: Instant::now(),
        };
        about.begin(facts());
        about.begin(Facts { options: "other".into(), ..facts() });
        assert!(about.is_read_only() && about.is_noatime() && about.begin_change().is_none());
        assert!(about.facts().is_some_and(|facts| facts.options == "ro,noatime"));
        about.set(false, false);
        assert!(!about.is_read_only() && !about.is_noatime() && about.begin_change().is_some());
    }
}
