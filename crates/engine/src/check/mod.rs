//! The check behind `shoal fsck`: every invariant of the design that exists so far, over the whole
//! volume, changing nothing.
//!
//! Memory: a few bytes for each inode (`census.rs`), directories more; what is sorted goes to a
//! temporary file when it is much (`spill.rs`). Names and parent pointers are compared by sums, and
//! one by one only when these differ (`cross.rs`).
//!
//! The passes stand in `passes.rs`, beside what a scrub and a repair do for each. Damage is a
//! problem found, not the end: a walk goes on behind what cannot be read.

mod attrs;
mod census;
mod cross;
mod extents;
mod inodes;
mod names;
mod paths;
pub(crate) mod scrub;
mod space;
mod spill;
mod tables;

pub use scrub::{ScrubAt, ScrubReport};

use self::census::Census;
use self::cross::Cross;
use self::spill::Spill;
use crate::types::{CheckReport, Problem};
use crate::volume::Inner;
use shoal_base::{Addr, Error, Ino, Result, RootId};
use shoal_format::Ptr;
use shoal_format::extent::Extent;
use shoal_format::node::{Key, TreeId};
use shoal_format::superblock::Superblock;
use shoal_txn::{Image, Root};

/// Problems after which a check stops counting details.
const PROBLEMS_MAX: usize = 10_000;

/// A check under way.
pub(crate) struct Check<'v> {
    volume: &'v Inner,
    /// The newest checkpoint.
    image: &'v Image,
    superblock: Superblock,
    report: CheckReport,
    census: Census,
    /// Names against parent pointers.
    cross: Cross,
    /// Blocks of inodes that cannot be read: root, the first, one past the last.
    lost: Vec<(RootId, u64, u64)>,
    /// Some block of metadata cannot be read: sums cannot be compared.
    broken: bool,
    /// Values of attributes that lie in data objects.
    values: Vec<(Ino, Extent)>,
    /// Where file data is, for the space pass.
    data: Spill,
    /// What points into each segment: bytes of data, bytes of metadata.
    sums: Vec<(u64, u64)>,
    prealloc: u64,
    /// Where the next entry of the same hash has to be, if the last one says that there is one.
    chained: Option<Key>,
    progress: &'v mut dyn FnMut(u64, u64),
    done: u64,
    total: u64,
}

/// Adds metadata to the sums of the segments.
fn add_meta(volume: &Inner, sums: &mut [(u64, u64)], ptr: Ptr) {
    let seg = volume.store.geometry.segment_of(ptr.addr).0 as usize;
    if let Some((_, meta)) = sums.get_mut(seg) {
        *meta += u64::from(ptr.len);
    }
}

impl<'v> Check<'v> {
    /// Of a volume that nothing changes meanwhile. `progress` gets the work done and in all.
    pub(crate) fn new(
        volume: &'v Inner,
        superblock: Superblock,
        image: &'v Image,
        progress: &'v mut dyn FnMut(u64, u64),
    ) -> Check<'v> {
        Check {
            volume,
            image,
            superblock,
            report: CheckReport::default(),
            census: Census::default(),
            cross: Cross::new(),
            lost: Vec::new(),
            broken: false,
            values: Vec::new(),
            data: Spill::default(),
            sums: vec![(0, 0); volume.store.geometry.segments as usize],
            prealloc: 0,
            chained: None,
            progress,
            done: 0,
            total: volume.store.inodes().saturating_mul(4),
        }
    }

    pub(crate) fn finish(self) -> CheckReport {
        self.report
    }
}

impl Check<'_> {
    fn problem(&mut self, rule: &'static str, message: String) {
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(Problem { rule, message });
        }
    }

    /// A node of a tree cannot be read.
    fn lost_node(&mut self, root: &Root, tree: TreeId, node: (Error, Key, Key)) {
        let ((error, low, high), volume) = (node, self.volume);
        let whose = volume.whose(root.id, tree, low, high);
        self.broken = true;
        self.problem(tree.name(), format!("{error}{whose}"));
        volume.affected(root, tree, low, high, &mut |_, rule, text| self.problem(rule, text));
    }

    /// A step that may find damage of an inode's data or attributes: that is a problem of the files
    /// that it names, not the end of the check. That the device is gone is its end.
    fn damage_of<T>(&mut self, ino: Ino, rule: &'static str, step: Result<T>) -> Result<Option<T>> {
        match step {
            Err(e) if e.is_damage() || matches!(e, Error::Code(_)) => {
                let message = format!("{e}: {}", self.who(ino));
                self.problem(rule, message);
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// An inode and its paths.
    fn who(&self, ino: Ino) -> String {
        format!("inode {ino}{}", self.volume.path_hint(ino))
    }

    /// Something points to this data.
    fn add_data(&mut self, addr: u64, len: u32) -> Result<()> {
        let seg = self.volume.store.geometry.segment_of(Addr(addr)).0 as usize;
        if let Some((data, _)) = self.sums.get_mut(seg) {
            *data += u64::from(len);
        }
        self.data.push(addr, len)
    }

    fn step(&mut self) {
        self.done += 1;
        if self.done.is_multiple_of(1024) {
            (self.progress)(self.done, self.total.max(self.done));
        }
    }
}
