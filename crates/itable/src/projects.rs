//! Use of projects: inodes and bytes of each, with their limits.
//!
//! Problem: the totals of a directory tree are wanted at any time, and a limit must hold exactly,
//! while many threads create and remove in the tree.
//!
//! Rule: each inode has the number of its project in its core. When an inode is unlocked, the
//! difference that the changes under the lock have made is added to the project, whatever call or
//! replay made them ([`Projects::changed`]). A call that needs more of a project takes it in
//! advance, before its first change ([`Projects::charge`]), and hands it to the lock.
//!
//! *Sharing.* Of the amount that a limit leaves, each thread shard keeps some in a cache line of
//! its own and takes from that. Only if that is too little, all shards' amounts are collected under
//! a lock, which gives the exact rest: a call is refused only if that is too little too. A project
//! without a limit has one that is never reached. So
//! `limit = use + rest + amounts of the shards`, and the use is what the others leave.
//!
//! *Counting.* At open the use may be unknown. Then all inodes are visited in the order of their
//! numbers ([`Projects::count_blocks`]): each is added under its lock, and the number up
//! to which inodes are counted is advanced under that lock. A change of an inode before that number
//! is added, a change of a later one is not: the visit will see it. Until the end the use is a
//! lower bound, so a limit refuses nobody wrongly.

use crate::sync::{AtomicBool, AtomicU64, Mutex, SHARDS, shard};
use crossbeam_utils::CachePadded;
use shoal_base::planted::{self, Defect};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::inode::Core;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

/// Projects of a volume, at most. Their numbers are 1 to this.
pub const PROJECTS_MAX: usize = 1024;
/// Largest limit. Larger ones are none.
pub const LIMIT_MAX: u64 = i64::MAX as u64 / 4;

/// Unit in which the bytes of an inode are counted.
const BLOCK: u64 = 512;
/// Index of an amount.
const INODES: usize = 0;
const BYTES: usize = 1;
/// Amount that a shard takes at a time, if there is enough.
const BATCH: [i64; 2] = [1024, 4 << 20];

/// Inodes and bytes of a project in use. Bytes are those of data outside of inodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProjectUse {
    /// Number of inodes.
    pub inodes: u64,
    /// Bytes of data extents, those of each inode rounded up to 512.
    pub bytes: u64,
}

impl ProjectUse {
    /// Adds an inode with this core.
    pub fn add(&mut self, core: &Core) {
        self.inodes += 1;
        self.bytes = self.bytes.saturating_add(counted_bytes(core.bytes));
    }
}

/// Returns the bytes that count for an inode with this many bytes of data extents.
#[inline]
pub(crate) fn counted_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK).saturating_mul(BLOCK)
}

/// An inode's share of its project's use. A free inode is in no project.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tally {
    pub project: u32,
    /// Units of [`BLOCK`] bytes.
    pub blocks: u64,
}

impl Tally {
    #[inline]
    pub(crate) fn of(core: &Core) -> Tally {
        match core.project {
            0 => Tally::default(),
            _ if !core.in_use() => Tally::default(),
            project => Tally { project, blocks: core.bytes.div_ceil(BLOCK) },
        }
    }
    fn amounts(self) -> [i64; 2] {
        match self.project {
            0 => [0, 0],
            _ => [1, clamped(self.blocks.saturating_mul(BLOCK))],
        }
    }
}

/// Amounts of a project that were taken in advance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Held {
    pub project: u32,
    inodes: u32,
    bytes: u64,
}

impl Held {
    pub(crate) fn add(&mut self, mut charge: Charge<'_>) {
        let more = std::mem::take(&mut charge.held);
        if more.project != 0 {
            self.project = more.project;
            self.inodes += more.inodes;
            self.bytes += more.bytes;
        }
    }
    fn amounts(self) -> [i64; 2] {
        [i64::from(self.inodes), clamped(self.bytes)]
    }
}

/// In a damaged inode the value may be anything.
fn clamped(bytes: u64) -> i64 {
    bytes.min(LIMIT_MAX) as i64
}

/// Amounts taken in advance. They are given back when this is dropped, unless an inode's lock has
/// taken them over ([`crate::Locked::pay`]).
#[must_use]
pub struct Charge<'p> {
    projects: Option<&'p Projects>,
    held: Held,
}

impl Charge<'_> {
    /// Nothing.
    #[inline]
    pub fn none() -> Charge<'static> {
        Charge { projects: None, held: Held::default() }
    }
}

impl Drop for Charge<'_> {
    #[inline]
    fn drop(&mut self) {
        if let (Some(projects), 1..) = (self.projects, self.held.project) {
            projects.add(self.held.project, self.held.amounts().map(|amount| -amount));
        }
    }
}

/// A project.
struct Project {
    /// Limits, and what they leave beside the use and the amounts of the shards.
    rest: Mutex<Rest>,
    /// Amounts that the threads of a shard may use; negative if they used more.
    shards: Box<[CachePadded<[AtomicU64; 2]>]>,
    /// The amounts of the shards may be more than the limits leave: a limit was lowered, or the use
    /// grew unasked.
    is_over: AtomicBool,
    /// Number of the directory; 0 if it is not declared any more.
    dir: AtomicU64,
}

struct Rest {
    limits: [i64; 2],
    amounts: [i64; 2],
}

impl Default for Project {
    fn default() -> Project {
        let none = [LIMIT_MAX as i64; 2];
        Project {
            rest: Mutex::new(Rest { limits: none, amounts: none }),
            shards: (0..SHARDS).map(|_| CachePadded::default()).collect(),
            is_over: AtomicBool::new(false),
            dir: AtomicU64::new(0),
        }
    }
}

impl Project {
    /// Takes an amount, if the limit leaves it.
    fn take(&self, which: usize, amount: i64) -> bool {
        if amount == 0 {
            return true;
        }
        let mine = &self.shards[shard()][which];
        let order = Ordering::Relaxed;
        let mut now = mine.load(order);
        while now as i64 >= amount && !self.is_over.load(order) {
            match mine.compare_exchange(now, (now as i64 - amount) as u64, order, order) {
                Ok(_) => return true,
                Err(other) => now = other,
            }
        }
        self.collect(which, amount)
    }

    /// Takes an amount from what all shards have together.
    #[cold]
    fn collect(&self, which: usize, amount: i64) -> bool {
        let mut rest = self.rest.lock();
        // Before the amounts are read: whoever changes one later sets it again.
        self.is_over.store(false, Ordering::SeqCst);
        for which in [INODES, BYTES] {
            let shards = self.shards.iter();
            let amounts = shards.map(|shard| shard[which].swap(0, Ordering::Relaxed) as i64);
            rest.amounts[which] += amounts.sum::<i64>();
        }
        if rest.amounts.iter().any(|rest| *rest < 0) {
            self.is_over.store(true, Ordering::SeqCst);
        }
        let rest = &mut rest.amounts[which];
        if *rest < amount {
            return false;
        }
        // Near the limit less, so that other threads need not collect it at once.
        let more = BATCH[which].min((*rest - amount) / 4);
        *rest -= amount + more;
        self.shards[shard()][which].fetch_add(more as u64, Ordering::Relaxed);
        true
    }

    /// Adds to the use, whatever the limit.
    fn add(&self, which: usize, amount: i64) {
        if amount == 0 {
            return;
        }
        let mine = &self.shards[shard()][which];
        let before = mine.fetch_sub(amount as u64, Ordering::Relaxed) as i64;
        if before < amount {
            self.is_over.store(true, Ordering::SeqCst);
        }
        if (before - amount).abs() > 4 * BATCH[which] {
            let mut rest = self.rest.lock();
            rest.amounts[which] += mine.swap(0, Ordering::Relaxed) as i64;
        }
    }

    fn used(&self, which: usize) -> i64 {
        let rest = self.rest.lock();
        let shards = self.shards.iter().map(|shard| shard[which].load(Ordering::Relaxed) as i64);
        rest.limits[which] - rest.amounts[which] - shards.sum::<i64>()
    }

    fn set_limit(&self, which: usize, limit: Option<u64>) {
        let limit = limit.unwrap_or(LIMIT_MAX).min(LIMIT_MAX) as i64;
        let mut rest = self.rest.lock();
        rest.amounts[which] += limit - rest.limits[which];
        rest.limits[which] = limit;
        self.is_over.store(true, Ordering::SeqCst);
    }
}

/// The projects of a volume, by number.
pub struct Projects {
    projects: Box<[OnceLock<Box<Project>>]>,
    /// Inodes with smaller numbers are counted.
    counted_to: AtomicU64,
}

impl Default for Projects {
    fn default() -> Projects {
        let projects = (0..PROJECTS_MAX).map(|_| OnceLock::new()).collect();
        Projects { projects, counted_to: AtomicU64::new(u64::MAX) }
    }
}

impl Projects {
    fn get(&self, project: u32) -> Option<&Project> {
        self.projects.get((project as usize).wrapping_sub(1))?.get().map(|found| &**found)
    }

    /// Declares a project, or changes its directory and limits. `dir` is 0 for one whose directory
    /// is gone. A number outside the range is ignored.
    pub fn declare(&self, project: u32, dir: Ino, inodes: Option<u64>, bytes: Option<u64>) {
        let Some(place) = self.projects.get((project as usize).wrapping_sub(1)) else { return };
        let project = place.get_or_init(Box::default);
        project.dir.store(dir.0, Ordering::Relaxed);
        project.set_limit(INODES, inodes);
        project.set_limit(BYTES, bytes);
    }

    /// Returns whether the inode is the directory of this project.
    pub fn is_top(&self, project: u32, ino: Ino) -> bool {
        let dir = |project: &Project| project.dir.load(Ordering::Relaxed);
        project != 0 && self.get(project).is_some_and(|project| dir(project) == ino.0)
    }

    /// Returns the use of a project; zero if it is not declared. Exact while nothing changes and
    /// all inodes are counted.
    pub fn used(&self, project: u32) -> ProjectUse {
        let Some(project) = self.get(project) else { return ProjectUse::default() };
        let used = |which| project.used(which).max(0) as u64;
        ProjectUse { inodes: used(INODES), bytes: used(BYTES) }
    }

    /// Returns the limits of a project: inodes, bytes; `None` if it is not declared.
    pub fn limits(&self, project: u32) -> Option<[Option<u64>; 2]> {
        let limits = self.get(project)?.rest.lock().limits;
        Some(limits.map(|limit| Some(limit as u64).filter(|limit| *limit != LIMIT_MAX)))
    }

    /// Takes amounts of a project in advance: inodes, and the bytes of the data extents of a new
    /// one.
    ///
    /// # Errors
    /// `EDQUOT` if the limits do not leave as much.
    #[inline]
    pub fn charge(&self, project: u32, inodes: u32, bytes: u64) -> Result<Charge<'_>> {
        match project {
            0 => Ok(Charge::none()),
            _ => self.charge_declared(project, inodes, bytes),
        }
    }

    #[inline(never)]
    fn charge_declared(&self, number: u32, inodes: u32, bytes: u64) -> Result<Charge<'_>> {
        let Some(project) = self.get(number) else { return Ok(Charge::none()) };
        let held = Held { project: number, inodes, bytes: counted_bytes(bytes) };
        let [of_inodes, of_bytes] = held.amounts();
        if !project.take(INODES, of_inodes) {
            return Err(Error::Code(Code::Quota));
        }
        if !project.take(BYTES, of_bytes) {
            project.add(INODES, -of_inodes);
            return Err(Error::Code(Code::Quota));
        }
        Ok(Charge { projects: Some(self), held })
    }

    fn add(&self, project: u32, amounts: [i64; 2]) {
        if let Some(project) = self.get(project) {
            project.add(INODES, amounts[INODES]);
            project.add(BYTES, amounts[BYTES]);
        }
    }

    /// Adds the difference that changes of an inode have made. Must be called under its lock.
    /// `held` was taken for them in advance.
    #[inline(never)]
    pub(crate) fn changed(&self, ino: Ino, was: Tally, now: Tally, held: Held) {
        let is_counted = ino.0 < self.counted_to.load(Ordering::Relaxed);
        let is_new = was.project == 0 && held.project == now.project;
        if is_counted && is_new && held.amounts() == now.amounts() {
            return;
        }
        let sum = |project: u32| {
            let mut sum = [0; 2];
            let mut add = |of: u32, amounts: [i64; 2], sign: i64| {
                if of == project {
                    sum.iter_mut().zip(amounts).for_each(|(sum, amount)| *sum += sign * amount);
                }
            };
            let forgotten = planted::is(Defect::QuotaForgotten) && now.project == 0;
            if is_counted && !forgotten {
                add(now.project, now.amounts(), 1);
                add(was.project, was.amounts(), -1);
            }
            add(held.project, held.amounts(), -1);
            sum
        };
        // One sum for each, so that what was taken in advance is never counted twice.
        self.add(now.project, sum(now.project));
        if was.project != now.project {
            self.add(was.project, sum(was.project));
        }
        if held.project != now.project && held.project != was.project {
            self.add(held.project, sum(held.project));
        }
    }

    /// Sets a use that is known. No inode may be in use meanwhile.
    pub fn set_used(&self, project: u32, used: ProjectUse) {
        let now = self.used(project);
        let by = |now: u64, used: u64| clamped(used) - clamped(now);
        self.add(project, [by(now.inodes, used.inodes), by(now.bytes, used.bytes)]);
    }

    /// Forgets the use of all projects: they are counted again. No inode may be in use meanwhile.
    pub fn forget(&self) {
        self.counted_to.store(0, Ordering::Relaxed);
        (1..=PROJECTS_MAX as u32).for_each(|at| self.set_used(at, ProjectUse::default()));
    }

    /// Returns whether all inodes are counted.
    pub fn is_counted(&self) -> bool {
        self.counted_to.load(Ordering::Acquire) == u64::MAX
    }

    /// Counts an inode that has this share. Must be called under its lock, in the order of numbers.
    pub(crate) fn count(&self, ino: Ino, tally: Tally) {
        self.add(tally.project, tally.amounts());
        self.counted_to.store(ino.0 + 1, Ordering::Relaxed);
    }

    /// Notes that the inodes before this number are counted; `None`: all. Must be called while no
    /// inode is allocated.
    pub fn counted(&self, to: Option<Ino>) {
        self.counted_to.store(to.map_or(u64::MAX, |ino| ino.0), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_exact_and_what_is_not_used_comes_back() {
        let check = || {
            let projects = Projects::default();
            projects.declare(3, Ino(7), Some(10), Some(10 * BLOCK));
            let charges: Vec<_> = (0..10)
                .map(|_| projects.charge(3, 1, 100 + BLOCK / 2).expect("within the limit"))
                .collect();
            assert_eq!(projects.used(3), ProjectUse { inodes: 10, bytes: 10 * BLOCK });
            assert!(projects.charge(3, 1, 0).is_err() && projects.charge(3, 0, 1).is_err());
            drop(charges);
            assert_eq!(projects.used(3), ProjectUse::default());
            assert!(projects.charge(3, 1, 10 * BLOCK + 1).is_err());
            assert_eq!(projects.used(3), ProjectUse::default());
            let whole = projects.charge(3, 10, 10 * BLOCK).expect("all of it");
            // Lowered below the use.
            projects.declare(3, Ino(7), Some(1), None);
            drop(whole);
            assert!(projects.charge(3, 2, 0).is_err());
            drop(projects.charge(3, 1, u64::from(u32::MAX)).expect("no limit of bytes"));
            assert!(projects.is_top(3, Ino(7)) && !projects.is_top(3, Ino(8)));
            assert!(!projects.is_top(0, Ino(0)) && projects.limits(4).is_none());
            assert_eq!(projects.limits(3), Some([Some(1), None]));
        };
        shuttle::check_random(check, 1);
    }

    #[test]
    fn threads_together_get_exactly_the_limit() {
        let check = || {
            let projects = std::sync::Arc::new(Projects::default());
            projects.declare(1, Ino(7), Some(5), None);
            let work = |projects: std::sync::Arc<Projects>| {
                move || {
                    let take = |_| projects.charge(1, 1, 0).ok();
                    let taken: Vec<_> = (0..4).filter_map(take).collect();
                    let count = taken.len();
                    taken.into_iter().for_each(std::mem::forget);
                    count
                }
            };
            let threads: Vec<_> =
                (0..2).map(|_| shuttle::thread::spawn(work(projects.clone()))).collect();
            let taken: usize = threads.into_iter().map(|t| t.join().expect("no panic")).sum();
            assert_eq!(taken, 5);
            assert_eq!(projects.used(1).inodes, 5);
        };
        shuttle::check_random(check, 500);
    }

    #[test]
    fn changes_before_and_after_the_visit_count_once() {
        let check = || {
            let projects = Projects::default();
            projects.declare(1, Ino(7), None, None);
            projects.forget();
            let (none, held) = (Tally::default(), Held::default());
            let of = |blocks| Tally { project: 1, blocks };
            projects.changed(Ino(40), none, of(5), held);
            assert_eq!(projects.used(1), ProjectUse::default());
            projects.count(Ino(40), of(5));
            projects.changed(Ino(40), of(5), of(9), held);
            projects.changed(Ino(41), none, of(9), held);
            assert_eq!(projects.used(1), ProjectUse { inodes: 1, bytes: 9 * BLOCK });
            assert!(!projects.is_counted());
            projects.counted(None);
            projects.changed(Ino(40), of(9), none, held);
            assert_eq!(projects.used(1), ProjectUse::default());
            assert!(projects.is_counted());
        };
        shuttle::check_random(check, 1);
    }
}
