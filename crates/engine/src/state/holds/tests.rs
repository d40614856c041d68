//! Models of files that are opened, closed and unlinked concurrently, run under the scheduler of
//! `shuttle`. An open file must exist, and an unreachable one must be freed exactly once.
//!
//! [`Holds`], its `hold` and `release` are the real ones. The inodes, unlink and reap are the
//! model's, because a volume has locks that the scheduler does not control. They lock and decide as
//! `drop_last_link`, `take_back` and `end_detached` in `orphans.rs`, `tmpfile` in `namei/create.rs`
//! and `file_step` in `reap/file.rs`.
//!
//! Other or longer runs: `SHOAL_MODEL_SEED=7 SHOAL_MODEL_RUNS=50000 cargo test -p shoal-engine
//! --lib holds`. A failure prints its schedule. A test replays it with `SHOAL_MODEL_SCHEDULE=…` and
//! the name of the test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::{HoldLife, Holds, Inodes, Orphan, Outside};
use shoal_base::{Code, Error, Ino, Result};
use shoal_txn::{OrphanSlot, Orphans};
use shuttle::rand::{RngCore, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, ReplayScheduler};
use shuttle::sync::{Mutex, RwLock};
use shuttle::{Config, Runner, thread};
use std::sync::Arc;

/// Number of inodes in a model.
const INODES: u64 = 2;

/// One inode, behind its lock.
#[derive(Default)]
struct Slot {
    links: u32,
    in_use: bool,
    detached: bool,
    /// Number of times that its number was used, and freed.
    made: u64,
    freed: u64,
}

#[derive(Default)]
struct World {
    holds: Holds,
    slots: Vec<RwLock<Slot>>,
    table: Orphans,
}

impl Inodes for World {
    fn locked<T>(&self, ino: Ino, f: impl FnOnce(bool) -> T) -> Result<T> {
        let slot = self.slots.get(ino.0 as usize).ok_or(Error::Code(Code::Stale))?;
        let slot = slot.read().unwrap();
        Ok(f(slot.in_use))
    }
}

impl World {
    /// Makes this many inodes, each with a name.
    fn new(inodes: u64) -> World {
        let slot = || Slot { links: 1, in_use: true, made: 1, ..Slot::default() };
        World { slots: (0..inodes).map(|_| RwLock::new(slot())).collect(), ..World::default() }
    }
    fn slot(&self, ino: Ino) -> &RwLock<Slot> {
        &self.slots[ino.0 as usize]
    }

    /// The slots of the table are the real ones, in which number 0 means none.
    fn take_slot(&self, ino: Ino) -> OrphanSlot {
        self.table.take(Ino(ino.0 + 1)).unwrap()
    }
    fn free_slot(&self, slot: OrphanSlot, ino: Ino) {
        assert!(self.table.free(slot, Ino(ino.0 + 1)), "{ino} had another slot");
    }

    /// As `drop_last_link`, for small and large files.
    fn unlink(&self, ino: Ino) {
        let mut slot = self.slot(ino).write().unwrap();
        if slot.links == 0 {
            return;
        }
        slot.links -= 1;
        if slot.links > 0 {
            return;
        }
        let small = thread_rng().next_u64().is_multiple_of(2);
        match (self.holds.is_held(ino), small) {
            (true, true) => {
                slot.detached = true;
                assert!(self.holds.orphaned(ino, Orphan::Detached(0)));
            }
            (true, false) => {
                assert!(self.holds.orphaned(ino, Orphan::Slot(self.take_slot(ino))));
            }
            (false, true) => Self::free(&mut slot),
            (false, false) => {
                let place = self.take_slot(ino);
                drop(slot);
                self.reap(ino, place);
            }
        }
    }

    /// An inode in memory only outgrows its limits, as in `take_back`.
    fn grow(&self, ino: Ino) {
        let mut slot = self.slot(ino).write().unwrap();
        // Otherwise the last reference has just been released: `ESTALE`.
        if slot.detached && self.holds.orphan_of(ino) == Some(Orphan::Detached(0)) {
            assert!(self.holds.orphaned(ino, Orphan::Slot(self.take_slot(ino))));
            slot.detached = false;
        }
    }

    /// Adds a name, also to an unlinked file (`linkat` of a `tmpfile`).
    fn link(&self, ino: Ino) {
        let mut slot = self.slot(ino).write().unwrap();
        if !slot.in_use {
            return;
        }
        if slot.links == 0 {
            let Some(place) = self.holds.slot_of(ino) else { return };
            assert_eq!(self.holds.adopted(ino), Some(Orphan::Slot(place)));
            self.free_slot(place, ino);
        }
        slot.links += 1;
    }

    /// As `make` with a free number: with a name, or as `tmpfile` without one, with one reference.
    fn make(&self, ino: Ino, named: bool) -> bool {
        let mut slot = self.slot(ino).write().unwrap();
        if slot.in_use {
            return false;
        }
        (slot.in_use, slot.links) = (true, u32::from(named));
        slot.made += 1;
        if !named {
            self.holds.add(ino, 1);
            assert!(self.holds.orphaned(ino, Orphan::Slot(self.take_slot(ino))));
        }
        true
    }

    /// As `file_step`.
    fn reap(&self, ino: Ino, place: OrphanSlot) {
        let mut slot = self.slot(ino).write().unwrap();
        let gone = !slot.in_use || slot.links != 0 || !self.table.has(place, Ino(ino.0 + 1));
        if gone || self.holds.orphaned(ino, Orphan::Slot(place)) {
            return;
        }
        Self::free(&mut slot);
        self.holds.freed(ino);
        self.free_slot(place, ino);
    }

    /// As `end_detached`.
    fn end_detached(&self, ino: Ino) {
        let mut slot = self.slot(ino).write().unwrap();
        if self.holds.orphaned(ino, Orphan::Detached(0)) {
            return;
        }
        assert!(slot.detached, "{ino} ends twice");
        Self::free(&mut slot);
    }

    fn free(slot: &mut Slot) {
        assert!(slot.in_use, "freed twice");
        (slot.in_use, slot.links, slot.detached) = (false, 0, false);
        slot.freed += 1;
    }

    fn release(&self, ino: Ino, n: u64) {
        match self.holds.release(self, ino, n) {
            Some(Orphan::Detached(_)) => self.end_detached(ino),
            Some(Orphan::Slot(place)) => self.reap(ino, place),
            None => {}
        }
    }

    /// Checks that an open file exists, and is the one that was opened.
    fn assert_open(&self, ino: Ino, made: u64) {
        let slot = self.slot(ino).read().unwrap();
        assert!(slot.in_use && slot.made == made, "{ino} was freed while it was open");
        drop(slot);
        assert!(self.holds.is_held(ino));
    }

    /// Opens a file several times, and closes it in two parts.
    fn open_and_close(&self, ino: Ino) {
        let n = 1 + thread_rng().next_u64() % 3;
        if let Err(e) = self.holds.hold(self, ino, n) {
            assert!(e.is(Code::Stale), "{e}");
            return;
        }
        let made = self.slot(ino).read().unwrap().made;
        self.close(ino, made, n);
    }

    fn close(&self, ino: Ino, made: u64, n: u64) {
        self.assert_open(ino, made);
        let first = thread_rng().next_u64() % n;
        if first > 0 {
            self.release(ino, first);
            self.assert_open(ino, made);
        }
        self.release(ino, n - first);
    }

    fn step(&self) {
        let ino = Ino(thread_rng().next_u64() % self.slots.len() as u64);
        match thread_rng().next_u64() % 9 {
            0 | 1 => self.unlink(ino),
            8 => self.grow(ino),
            2 => self.link(ino),
            3 => {
                self.make(ino, true);
            }
            4 => {
                if self.make(ino, false) {
                    let made = self.slot(ino).read().unwrap().made;
                    self.close(ino, made, 1);
                }
            }
            _ => self.open_and_close(ino),
        }
    }

    /// After all threads have ended, nothing is open, so inodes without a name must be free.
    fn finish(&self) {
        for (i, slot) in self.slots.iter().enumerate() {
            let slot = slot.read().unwrap();
            assert!(!self.holds.is_held(Ino(i as u64)), "inode {i} is held by nobody");
            assert_eq!(slot.in_use, slot.links > 0, "inode {i} has {} names", slot.links);
            assert_eq!(slot.made - slot.freed, u64::from(slot.in_use), "inode {i}");
        }
        assert!(self.table.is_empty(), "an orphan that nobody will reap");
        assert!(self.holds.roots().is_empty());
    }
}

fn from_env(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

/// Runs a model with randomly chosen threads, and with few thread switches.
fn check(runs: u64, model: impl Fn() + Clone + Send + Sync + 'static) {
    if let Ok(schedule) = std::env::var("SHOAL_MODEL_SCHEDULE") {
        let scheduler = ReplayScheduler::new_from_encoded(&schedule);
        Runner::new(scheduler, Config::new()).run(model);
        return;
    }
    let runs = from_env("SHOAL_MODEL_RUNS", runs) as usize / 2;
    let seed = from_env("SHOAL_MODEL_SEED", 1);
    let scheduler = RandomScheduler::new_from_seed(seed, runs);
    Runner::new(scheduler, Config::new()).run(model.clone());
    Runner::new(PctScheduler::new_from_seed(seed, 3, runs), Config::new()).run(model);
}

type Job = fn(&World);

fn run(inodes: u64, jobs: &[Job]) {
    let world = Arc::new(World::new(inodes));
    let spawn = |job: &Job| {
        let (world, job) = (world.clone(), *job);
        thread::spawn(move || job(&world))
    };
    let threads: Vec<_> = jobs.iter().map(spawn).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    world.finish();
}

const FILE: Ino = Ino(0);
const OPEN: Job = |world| world.open_and_close(FILE);
const UNLINK: Job = |world| world.unlink(FILE);
/// The number is reused at once.
const MAKE: Job = |world| {
    if world.make(FILE, true) {
        world.unlink(FILE);
    }
};
const TMPFILE: Job = |world| {
    world.unlink(FILE);
    if world.make(FILE, false) {
        let made = world.slot(FILE).read().unwrap().made;
        world.close(FILE, made, 1);
    }
};
const LINK: Job = |world| {
    world.link(FILE);
    world.unlink(FILE);
};
const GROW: Job = |world| {
    if world.holds.hold(world, FILE, 1).is_ok() {
        let made = world.slot(FILE).read().unwrap().made;
        world.grow(FILE);
        world.close(FILE, made, 1);
    }
};
const ANYTHING: Job = |world| (0..12).for_each(|_| world.step());

#[test]
fn the_last_name_goes_while_the_file_is_open() {
    check(4000, || run(1, &[OPEN, OPEN, UNLINK]));
}

#[test]
fn a_file_without_a_name_outgrows_its_inode() {
    check(4000, || run(1, &[GROW, OPEN, UNLINK]));
}

#[test]
fn the_number_is_used_again() {
    check(4000, || run(1, &[OPEN, OPEN, UNLINK, MAKE]));
}

#[test]
fn files_without_a_name_are_freed_once() {
    check(4000, || run(1, &[TMPFILE, OPEN, OPEN]));
}

#[test]
fn files_without_a_name_get_one() {
    check(4000, || run(1, &[TMPFILE, OPEN, LINK]));
}

#[test]
fn anything_at_once() {
    check(3000, || run(INODES, &[ANYTHING; 3]));
}

/// Whoever has references to the inodes of a model.
struct Kernel(std::sync::Weak<Inherited>);

impl Outside for Kernel {
    fn ask(&self, ino: Ino) {
        self.0.upgrade().unwrap().asked.lock().unwrap().push(ino);
    }
    fn knows(&self, ino: Ino) -> bool {
        self.0.upgrade().unwrap().lookups[ino.0 as usize].read().unwrap().is_some()
    }
}

/// A model with references of an earlier process, which nobody has counted.
struct Inherited {
    world: World,
    /// How often the kernel has looked an inode up; `None`: it does not know it.
    lookups: Vec<RwLock<Option<u64>>>,
    /// Inodes that somebody must ask about.
    asked: Mutex<Vec<Ino>>,
}

impl Inherited {
    /// Two inodes, both known outside; the second has no name any more.
    fn new() -> Arc<Inherited> {
        let mut world = World::new(INODES);
        world.holds = Holds::new(HoldLife::Inherited);
        let gone = Ino(1);
        world.slot(gone).write().unwrap().links = 0;
        world.holds.inherit(gone, Orphan::Slot(world.take_slot(gone)));
        let lookups = (0..INODES).map(|_| RwLock::new(Some(3))).collect();
        let model = Arc::new(Inherited { world, lookups, asked: Mutex::default() });
        model.world.holds.unconfirmed(Arc::new(Kernel(Arc::downgrade(&model))));
        model
    }

    /// As `drop_last_link`, where nothing is detached.
    fn unlink(&self, ino: Ino) {
        if thread_rng().next_u64().is_multiple_of(2) {
            // As for the children of a removed tree.
            self.world.holds.find_out(ino);
        }
        let mut slot = self.world.slot(ino).write().unwrap();
        if slot.links == 0 {
            return;
        }
        slot.links -= 1;
        match slot.links {
            0 if self.world.holds.may_be_held(ino) => {
                assert!(self.world.holds.keep(ino, Orphan::Slot(self.world.take_slot(ino))));
            }
            0 => {
                World::free(&mut slot);
                self.world.holds.freed(ino);
            }
            _ => {}
        }
    }

    /// The kernel finds an inode by a name, and has one more reference.
    fn look_up(&self, ino: Ino) {
        let mut lookups = self.lookups[ino.0 as usize].write().unwrap();
        let has_name = self.world.slot(ino).read().unwrap().links > 0;
        if has_name && self.world.holds.hold(&self.world, ino, 1).is_ok() {
            *lookups = Some(lookups.unwrap_or(0) + 1);
        }
    }

    /// The kernel uses an inode, and drops all its references: those that the earlier process has
    /// given too.
    fn forget(&self, ino: Ino) {
        let mut lookups = self.lookups[ino.0 as usize].write().unwrap();
        let Some(n) = lookups.take() else { return };
        let slot = self.world.slot(ino).read().unwrap();
        assert!(slot.in_use && slot.made == 1, "{ino} was freed while it was in use");
        drop((slot, lookups));
        self.world.release(ino, n);
    }

    /// Asks about the inodes that are due.
    fn ask(&self) {
        loop {
            // The guard must not live on in the loop's body.
            let next = self.asked.lock().unwrap().pop();
            let Some(ino) = next else { return };
            if self.lookups[ino.0 as usize].read().unwrap().is_some() {
                continue;
            }
            match self.world.holds.unknown(&self.world, ino) {
                Some(Orphan::Slot(place)) => self.world.reap(ino, place),
                Some(Orphan::Detached(_)) => panic!("nothing is detached"),
                None => {}
            }
        }
    }
}

type Inheriting = fn(&Inherited);

fn run_inherited(jobs: &[Inheriting]) {
    let model = Inherited::new();
    let spawn = |job: &Inheriting| {
        let (model, job) = (model.clone(), *job);
        thread::spawn(move || job(&model))
    };
    let threads: Vec<_> = jobs.iter().map(spawn).collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    (0..INODES).for_each(|ino| model.forget(Ino(ino)));
    model.ask();
    model.world.finish();
}

const BOTH: [Ino; 2] = [Ino(0), Ino(1)];

/// Nothing that an earlier process has left in use is freed, and nothing else is kept.
#[test]
fn references_that_nobody_has_counted() {
    let ask: Inheriting = |model| model.ask();
    let forget: Inheriting = |model| BOTH.iter().for_each(|ino| model.forget(*ino));
    let unlink: Inheriting = |model| model.unlink(FILE);
    let look_up: Inheriting = |model| BOTH.iter().for_each(|ino| model.look_up(*ino));
    check(4000, move || run_inherited(&[ask, forget, unlink, look_up]));
    check(2000, move || run_inherited(&[ask, look_up, forget, unlink, look_up, forget]));
}
