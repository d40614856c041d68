//! Facts about a mount that do not come from its volume, and the state that a remount changes.
//!
//! The kernel refuses changes of a read-only mount itself, but for those that it does not see
//! (control ioctls, sessions), and for changes that the server makes on its own while it reads
//! (access times). Those are what [`About::is_read_only`] is for.

use parking_lot::{Condvar, Mutex};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for changes in progress before a mount becomes read-only.
const PATIENCE: Duration = Duration::from_secs(1);

/// Facts about a mount.
#[derive(Default)]
pub(crate) struct About {
    facts: OnceLock<Facts>,
    read_only: AtomicBool,
    noatime: AtomicBool,
    /// Changes in progress that the kernel knows nothing of.
    changes: AtomicUsize,
    /// Locked while the state changes.
    state: Mutex<()>,
    /// The last change has ended.
    ended: Condvar,
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
    pub(crate) fn begin_change(&self) -> Option<Change<'_>> {
        self.enter().then(|| Change(self))
    }

    /// The same without a guard: [`About::leave`] ends it.
    #[inline]
    pub(crate) fn enter(&self) -> bool {
        // Before the look: whoever refuses changes sees this one, or is seen here.
        self.changes.fetch_add(1, Ordering::SeqCst);
        if !self.read_only.load(Ordering::SeqCst) {
            return true;
        }
        self.leave();
        false
    }

    /// Ends a change.
    #[inline]
    pub(crate) fn leave(&self) {
        let is_last = self.changes.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && self.read_only.load(Ordering::SeqCst) {
            // Whoever waits has looked before, or waits by now.
            drop(self.state.lock());
            self.ended.notify_all();
        }
    }

    /// Refuses changes from now on, or allows them again. No change is in progress when it returns;
    /// `false`: one takes long, and nothing is different from before.
    pub(crate) fn set(&self, read_only: bool, noatime: bool) -> bool {
        let mut state = self.state.lock();
        let before = self.read_only.swap(read_only, Ordering::SeqCst);
        let end = Instant::now() + PATIENCE;
        while read_only && self.changes.load(Ordering::SeqCst) > 0 {
            if self.ended.wait_until(&mut state, end).timed_out()
                && self.changes.load(Ordering::SeqCst) > 0
            {
                self.read_only.store(before, Ordering::SeqCst);
                return false;
            }
        }
        self.noatime.store(noatime, Ordering::Release);
        true
    }
}

/// A change in progress that the kernel knows nothing of.
#[derive(Debug)]
pub(crate) struct Change<'a>(&'a About);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl std::fmt::Debug for About {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("About")
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
        assert!(about.set(false, false));
        assert!(!about.is_read_only() && !about.is_noatime() && about.begin_change().is_some());
        let change = about.begin_change();
        assert!(!about.set(true, false), "one is in progress");
        assert!(!about.is_read_only() && about.begin_change().is_some());
        drop(change);
        assert!(about.set(true, false) && about.begin_change().is_none());
    }
}
