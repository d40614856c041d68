//! Work on the whole volume: checkpoints, discarding, freeing, cleaning, scrubbing. Background
//! threads do most of it by themselves (`background.rs`).

use crate::background::DISCARD;
use crate::check::{ScrubAt, ScrubReport};
use crate::clean::Cleaner;
use crate::passes;
use crate::reap::Reaper;
use crate::state::room;
use shoal_base::Result;
use shoal_base::timing::{Call, Timed, Timing};
use shoal_format::Label;

room! {
    /// Work on the whole volume.
    pub struct Maintenance { cleaner: Cleaner, reaper: Reaper }
}

impl Maintenance<'_> {
    /// Writes a checkpoint now.
    pub fn checkpoint(self) -> Result<()> {
        self.0.store.checkpoints().write()
    }

    /// Changes the volume's label, and writes a checkpoint, with which it becomes durable.
    ///
    /// # Errors
    /// `EROFS` if the volume accepts no changes.
    pub fn set_label(self, label: Label) -> Result<()> {
        self.0.store.checkpoints().set_label(label)
    }

    /// Discards free segments, except the few that are kept allocated: about `at_most` bytes in
    /// this call. With `begin`, first writes a checkpoint, which frees dead segments, and includes
    /// those discarded before. Returns the number of bytes, 0 if there is nothing left.
    pub fn trim(self, begin: bool, at_most: u64) -> Result<u64> {
        self.0.store.writable()?;
        if begin {
            self.0.store.checkpoints().write()?;
            self.0.store.space().host().mark_all_stale();
        }
        let mut bytes = 0;
        while bytes < at_most {
            match self.0.store.room().discard_run(DISCARD, 0) {
                0 => break,
                run => bytes += run,
            }
        }
        Ok(bytes)
    }

    /// Returns the durations of a kind since the volume was opened.
    pub fn timing(self, kind: Timed) -> Timing {
        self.0.store.counters().timing(kind)
    }

    /// Returns the calls that there have been since the volume was opened, with their durations.
    /// The numbers of a call that is not always timed ([`Call::is_always_timed`]) are estimates,
    /// but for its failures: a timed one counts for [`Call::weight`].
    pub fn calls(self) -> Vec<(Call, Timing)> {
        let all = Call::ALL.iter().map(|call| (*call, self.call(*call)));
        all.filter(|(_, timing)| !timing.is_empty()).collect()
    }

    /// As [`Maintenance::calls`], of one call.
    pub fn call(self, call: Call) -> Timing {
        self.0.store.counters().calls(call)
    }

    /// Cleans one batch, even if enough segments are free. For tests and measurements.
    pub fn clean(self) -> Result<()> {
        self.cleaner().clean()
    }

    /// Returns whether the reap queue has work, not counting deleted subvolumes.
    pub fn is_reaping(self) -> bool {
        self.0.reaping.has_work()
    }

    /// Performs a step for orphans, or else for deleted subvolumes. Waits for a step in progress in
    /// another thread. Returns `false` if there is no work.
    pub fn reap_some(self) -> Result<bool> {
        self.reaper().reap_some()
    }

    /// Frees everything in deleted subvolumes; `progress` gets the number of remaining inodes.
    /// Damaged subvolumes are left as they are.
    pub fn reap_roots(self, progress: &mut dyn FnMut(u64)) -> Result<()> {
        self.reaper().reap_roots(progress)
    }

    /// Reads about `bytes` more of the objects that the newest checkpoint points to, from `at` on,
    /// and adds the results to `report`; fewer if there is much to report. Returns the position to
    /// continue from, `None` at the end.
    ///
    /// # Errors
    /// A missing device ends the scrub. Damage, or an area that cannot be read, does not.
    pub fn scrub_step(
        self,
        at: ScrubAt,
        bytes: u64,
        report: &mut ScrubReport,
    ) -> Result<Option<ScrubAt>> {
        passes::scrub_step(self.0, at, bytes, report)
    }
}
