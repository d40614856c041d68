//! The check of `shoal fsck`: all invariants of the design, for the whole volume, without changes.
//!
//! Memory: a word for each inode (`census.rs`), more for directories. Large amounts of data to be
//! sorted go to a temporary file (`spill.rs`). Names and parent pointers are compared by sums, and
//! one by one only if these differ (`cross.rs`).
//!
//! Threads: passes over trees are partitioned (`work.rs`).
//!
//! The passes are in `passes.rs`, with the functions of a scrub and a repair for each. Damage is
//! reported as a problem, and the check continues after it.

mod attrs;
mod census;
mod cross;
mod extents;
mod inodes;
mod names;
mod object;
mod objects;
mod paths;
mod pointers;
mod quotas;
pub(crate) mod scrub;
mod sets;
mod space;
mod spill;
mod sum;
mod tables;
mod work;

pub use scrub::{ScrubAt, ScrubReport};

use self::census::Census;
use self::sets::Seed;
use self::sum::Sum;
use self::work::Worker;
use crate::directories::Directories;
use crate::objects::Objects;
use crate::paths::Paths;
use crate::state::room;
use crate::types::{CheckReport, Progress};
use crate::xattr::Xattrs;
use shoal_base::{Ino, Result, sync};
use shoal_format::checkpoint::RootState;
use shoal_format::superblock::Superblock;
use shoal_txn::Image;

/// Maximum number of problems that a check reports.
const PROBLEMS_MAX: usize = 10_000;

room! {
    /// Reading everything, and finding what is wrong.
    pub(crate) struct Inspection {
        directories: Directories,
        objects: Objects,
        paths: Paths,
        xattrs: Xattrs,
    }
}

/// Returns whether an inode is in a deleted subvolume. Its names, or the names in it, may have been
/// removed already.
fn is_dying(volume: Inspection<'_>, ino: Ino) -> bool {
    volume.0.store.root(ino).is_ok_and(|root| root.state() != RootState::Live)
}

/// Returns whether a directory may have an entry for this inode: both are in one subvolume, or the
/// inode is the top of another one.
fn may_name(volume: Inspection<'_>, dir: Ino, child: Ino) -> bool {
    let is_top = || child.index() == Ino::ROOT.index() && !is_dying(volume, child);
    child.root() == dir.root() || dir == Ino::ROOT && is_top()
}

/// A check in progress.
pub(crate) struct Check<'v> {
    volume: Inspection<'v>,
    /// The newest checkpoint.
    image: &'v Image,
    superblock: Superblock,
    seed: Seed,
    census: Census,
    /// Merged results of the pieces.
    sum: Sum<'v>,
}

impl<'v> Check<'v> {
    /// Begins a check. Nothing may change the volume meanwhile.
    pub(crate) fn new(
        volume: Inspection<'v>,
        superblock: Superblock,
        image: &'v Image,
        progress: Progress<'v>,
    ) -> Check<'v> {
        let (seed, census) = (Seed::new(), Census::default());
        let sum = Sum::new(volume, seed.is_random(), progress);
        Check { volume, image, superblock, seed, census, sum }
    }

    /// Sets the name of the pass that begins, for progress.
    pub(crate) fn begin(&mut self, stage: String) {
        self.sum.stage = stage;
    }

    pub(crate) fn finish(self) -> CheckReport {
        self.sum.report
    }

    /// Returns a worker for work that is not partitioned.
    fn worker(&self) -> Worker<'v> {
        Worker::new(self.volume, self.seed)
    }

    fn problem(&mut self, rule: &'static str, message: String) {
        self.sum.problem(rule, message);
    }
}

impl Check<'_> {
    /// Runs `work` for each piece, with a separate worker, and merges the results.
    fn spread<P: Send>(
        &mut self,
        pieces: impl Iterator<Item = Result<P>> + Send,
        work: impl Fn(&mut Worker<'_>, &Census, P) -> Result<()> + Sync,
    ) -> Result<()> {
        let (volume, seed, census) = (self.volume, self.seed, &self.census);
        let piece = |piece: P| {
            let mut worker = Worker::new(volume, seed);
            work(&mut worker, census, piece)?;
            worker.finish()
        };
        work::spread(volume.0.options.threads, pieces, piece, |found| self.sum.add(found))
    }
}

/// The census with the locks and atomics of `shuttle`, for its tests.
#[cfg(test)]
#[path = "."]
mod modelled {
    use shoal_base::sync::checked as sync;

    #[allow(dead_code, clippy::duplicate_mod, reason = "its tests are what is wanted of it")]
    #[path = "census.rs"]
    mod census;
}
