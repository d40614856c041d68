//! The check behind `shoal fsck`: every invariant of the design that exists so far, over the whole
//! volume, changing nothing.
//!
//! Memory: a word for each inode (`census.rs`), directories more; what is sorted goes to a
//! temporary file when it is much (`spill.rs`). Names and parent pointers are compared by sums, and
//! one by one only when these differ (`cross.rs`).
//!
//! Threads: passes over trees are partitioned (`work.rs`).
//!
//! The passes stand in `passes.rs`, beside what a scrub and a repair do for each. Damage is a
//! problem found, not the end: a walk goes on behind what cannot be read.

mod attrs;
mod census;
mod cross;
mod extents;
mod inodes;
mod names;
mod objects;
mod paths;
mod pointers;
pub(crate) mod scrub;
mod space;
mod spill;
mod sum;
mod tables;
mod work;

pub use scrub::{ScrubAt, ScrubReport};

use self::census::Census;
use self::cross::Seed;
use self::sum::Sum;
use self::work::Worker;
use crate::types::{CheckReport, Progress};
use crate::volume::Inner;
use shoal_base::{Result, sync};
use shoal_format::superblock::Superblock;
use shoal_txn::Image;

/// Problems after which a check stops counting details.
const PROBLEMS_MAX: usize = 10_000;

/// A check under way.
pub(crate) struct Check<'v> {
    volume: &'v Inner,
    /// The newest checkpoint.
    image: &'v Image,
    superblock: Superblock,
    seed: Seed,
    census: Census,
    /// Merged results of the pieces.
    sum: Sum<'v>,
}

impl<'v> Check<'v> {
    /// Of a volume that nothing changes meanwhile.
    pub(crate) fn new(
        volume: &'v Inner,
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
    /// Runs `work` for each piece, with a worker of its own, and merges the results.
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
        work::spread(volume.options.threads, pieces, piece, |found| self.sum.add(found))
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
