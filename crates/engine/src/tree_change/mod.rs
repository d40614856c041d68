//! Changes of all inodes below a directory: `chown -R`, `chmod -R`, `touch`.
//!
//! Problem: a program that does this itself pays for each file a lookup, a call and a record, and
//! leaves the rest undone when it is killed. After that nobody knows where it stopped, and a change
//! such as `u=g,g=o` cannot simply be made again.
//!
//! Rule: one call makes the change in steps. Each step is one transaction that changes up to 256
//! inodes and notes in the same record how far it is. So a crash between two steps, or the end of
//! the process, loses nothing and repeats nothing: the next session continues in the background.
//!
//! | part | file |
//! | --- | --- |
//! | the inode that holds the state, a *unit*: unlinked, with an orphan slot | `unit.rs` |
//! | what comes next: directories are listed, without a transaction | `gather.rs` |
//! | a step: the inodes are locked, checked and changed | `step.rs` |
//!
//! The state is the path of directories from the first to the current one, with a cookie each. It
//! has a fixed number of levels; a directory below the last one becomes a unit of its own, and so
//! do some for other threads, if they have enough below to be worth it. A unit is complete: it
//! needs no other.

mod gather;
mod step;
mod unit;

use self::step::{Job, Stepped};
use self::unit::Unit;
use crate::attributes::Attributes;
use crate::intents::Intents;
use crate::namei::Namespace;
use crate::orphans::Orphans;
use crate::permissions::Permissions;
use crate::state::{Teller, room};
use crate::types::{Caller, FileKind, TreeChange, TreeChanged, TreeStep};
use crate::xattr::Xattrs;
use shoal_base::counters::Counter;
use shoal_base::sync::crew::for_each;
use shoal_base::sync::{Condvar, Mutex, thread};
use shoal_base::{Code, Error, Ino, Result};
use shoal_format::tree_change::Level;
use shoal_txn::OrphanSlot;
use std::ops::ControlFlow;

/// Threads of a call, at most.
const THREADS_MAX: usize = 64;
/// Units that are ready for each thread, as far as there are so many.
const READY: usize = 2;
/// Times that a step is tried again because memory is short.
const MEMORY_ATTEMPTS: usize = 4096;

room! {
    /// Changes of all inodes below a directory.
    pub struct TreeChanges {
        attributes: Attributes,
        intents: Intents,
        namespace: Namespace,
        orphans: Orphans,
        permissions: Permissions,
        xattrs: Xattrs,
    }
}

/// The units of a call, shared by its threads.
#[derive(Default)]
struct Pool {
    /// The next one is last.
    ready: Vec<Unit>,
    /// Threads that make steps.
    busy: usize,
    done: TreeChanged,
    stopped: bool,
    failed: Option<Error>,
}

/// A call that makes a change.
struct Call<'c> {
    job: &'c Job,
    threads: usize,
    pool: Mutex<Pool>,
    /// A unit is ready, or the work is done.
    moved: Condvar,
    watch: &'c (dyn Fn(&TreeStep<'_>) -> ControlFlow<()> + Sync),
    leave: &'c (dyn Fn() -> bool + Sync),
}

impl TreeChanges<'_> {
    /// Changes a directory and everything below it, subvolumes included, each directory before its
    /// contents; symlinks are not followed. `watch` is called after each step, by up to `threads`
    /// threads; if it breaks, the change is cancelled.
    ///
    /// Each inode is checked and changed as by [`Attributes::setattr`], under its name at the time
    /// of the listing: an inode with several names below is changed for each of them. An ordinary
    /// user must be able to list and search each directory, after its own change. What cannot be
    /// changed is reported, and the rest is changed. What is made, moved in or moved out meanwhile
    /// is changed or not.
    ///
    /// After a crash, or when the call fails, the change is continued in the background by the next
    /// session that can write, with the rights of `who` and without reports. A call first completes
    /// the changes that earlier sessions have left.
    ///
    /// # Errors
    /// `ESTALE`; `EINVAL` for an invalid time; `E2BIG` for a mode of too many clauses, or a caller
    /// in too many groups; `EBUSY` if too many such calls are in progress; `ENOSPC` if there is no
    /// space to begin. Afterwards only those that concern the whole volume, and `ENOMEM`.
    pub fn change_tree(
        self,
        who: &Caller,
        dir: Ino,
        change: &TreeChange,
        threads: usize,
        watch: &(dyn Fn(&TreeStep<'_>) -> ControlFlow<()> + Sync),
    ) -> Result<TreeChanged> {
        self.change_tree_until(who, dir, change, threads, watch, &|| false)
    }

    /// As [`TreeChanges::change_tree`]. After each step `leave` is asked; if it returns true, the
    /// call ends with `EAGAIN`, and the change is continued in the background, by this session or
    /// the next one.
    ///
    /// # Errors
    /// `EAGAIN`: as above. Those of [`TreeChanges::change_tree`].
    pub fn change_tree_until(
        self,
        who: &Caller,
        dir: Ino,
        change: &TreeChange,
        threads: usize,
        watch: &(dyn Fn(&TreeStep<'_>) -> ControlFlow<()> + Sync),
        leave: &(dyn Fn() -> bool + Sync),
    ) -> Result<TreeChanged> {
        use shoal_base::timing::Call::ChangeTree;
        let run = || self.change_all(who, dir, change, threads, watch, leave);
        self.0.measured(ChangeTree, run)
    }

    fn change_all(
        self,
        who: &Caller,
        dir: Ino,
        change: &TreeChange,
        threads: usize,
        watch: &(dyn Fn(&TreeStep<'_>) -> ControlFlow<()> + Sync),
        leave: &(dyn Fn() -> bool + Sync),
    ) -> Result<TreeChanged> {
        self.0.store.writable()?;
        let attr = self.0.attr(dir)?;
        while !leave() && self.continue_some()? {}
        if leave() {
            return Err(Error::Code(Code::Again));
        }
        let Some(_call) = self.0.changing.begin() else {
            let message = "too many changes of trees in progress; try again";
            return Err(Error::refused(Code::Busy, message));
        };
        let is_dir = attr.kind == FileKind::Directory;
        let top = Level { dir, generation: attr.generation.0, cookie: 0 };
        let state = change.to_state(who, top)?;
        let unit = self.begin_unit(&state)?;
        let job = Job { who: who.clone(), change: change.clone() };
        let pool = Pool { ready: vec![unit], ..Pool::default() };
        let call = Call {
            job: &job,
            // A file has nothing below it.
            threads: if is_dir { threads.clamp(1, THREADS_MAX) } else { 1 },
            pool: Mutex::new(pool),
            moved: Condvar::new(),
            watch,
            leave,
        };
        let threads: Vec<usize> = (0..call.threads).collect();
        for_each(threads.len(), &threads, |_| self.work(&call));
        let mut pool = call.pool.lock();
        let units = std::mem::take(&mut pool.ready);
        match pool.failed.take() {
            None => self.end_units(&units).map(|()| pool.done).inspect_err(|_| {
                units.iter().for_each(|unit| self.0.changing.push(unit.ino, unit.slot));
            }),
            Some(error) => {
                units.iter().for_each(|unit| self.0.changing.push(unit.ino, unit.slot));
                Err(error)
            }
        }
    }

    /// Makes steps of ready units until all are done.
    fn work(self, call: &Call<'_>) {
        let _end = EndOnPanic(call);
        while let Some((mut unit, mut spawns)) = call.take() {
            loop {
                let stepped = self.step_with_memory(call, &mut unit, spawns);
                if let Ok(stepped) = &stepped {
                    self.tell(&stepped.held, Teller::Call);
                }
                match call.stepped(stepped) {
                    Next::Same { spawns: now } => spawns = now,
                    Next::Put => {
                        call.put(Some(unit), None);
                        break;
                    }
                    Next::Below(below) => {
                        unit.ahead.keep_levels(&unit.state.levels);
                        call.put(Some(unit), Some(*below));
                        break;
                    }
                    Next::Done => {
                        call.put(None, None);
                        break;
                    }
                }
            }
        }
    }

    /// Tells who caches attributes which inodes have changed.
    fn tell(self, held: &[Ino], teller: Teller) {
        if let Some(told) = self.0.reaping.watcher().filter(|_| !held.is_empty()) {
            told(held, teller);
        }
    }

    /// Makes a step. A change that has begun is only given up after several attempts if memory is
    /// short.
    fn step_with_memory(self, call: &Call<'_>, unit: &mut Unit, spawns: bool) -> Result<Stepped> {
        for _ in 0..MEMORY_ATTEMPTS {
            match self.step(call.job, unit, spawns) {
                Err(error) if error.is(Code::NoMemory) => thread::yield_now(),
                other => return other,
            }
        }
        self.step(call.job, unit, spawns)
    }
}

/// Ends the threads of a call when one of them panics, so that none waits for it forever.
struct EndOnPanic<'c>(&'c Call<'c>);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.pool.lock().stopped = true;
            self.0.moved.notify_all();
        }
    }
}

/// Action of a thread after a step.
enum Next {
    /// Make the next step of the same unit.
    Same { spawns: bool },
    /// Leave the unit to others: the work was stopped.
    Put,
    /// The unit must wait: the stack is full, and another unit is to be done first.
    Below(Box<Unit>),
    /// The unit has ended.
    Done,
}

impl Call<'_> {
    /// Takes the newest unit, and whether another thread waits for one. Waits while there is none;
    /// returns `None` when the work is done or stopped.
    fn take(&self) -> Option<(Unit, bool)> {
        let mut pool = self.pool.lock();
        loop {
            if pool.stopped {
                return None;
            }
            if let Some(unit) = pool.ready.pop() {
                pool.busy += 1;
                return Some((unit, self.is_hungry(&pool)));
            }
            if pool.busy == 0 {
                return None;
            }
            self.moved.wait(&mut pool);
        }
    }

    /// Returns whether there should be more units for the other threads. One that waits until it
    /// has nothing to do would get the next only when another has done what it has found already.
    fn is_hungry(&self, pool: &Pool) -> bool {
        self.threads > 1 && pool.ready.len() < READY * self.threads
    }

    /// Returns units, the one to be done first last.
    fn put(&self, unit: Option<Unit>, first: Option<Unit>) {
        let mut pool = self.pool.lock();
        pool.busy -= 1;
        pool.ready.extend(unit);
        pool.ready.extend(first);
        drop(pool);
        self.moved.notify_all();
    }

    /// Counts and reports a step.
    fn stepped(&self, stepped: Result<Stepped>) -> Next {
        let stepped = match stepped {
            Ok(stepped) => stepped,
            Err(error) => {
                let mut pool = self.pool.lock();
                pool.stopped = true;
                pool.failed.get_or_insert(error);
                return Next::Put;
            }
        };
        let Stepped { changed, held: _, failures, spawned, is_done } = stepped;
        let inodes = {
            let done = &mut self.pool.lock().done;
            done.inodes += changed;
            done.failures += failures.len() as u64;
            done.inodes
        };
        let goes_on = (self.watch)(&TreeStep { inodes, failures: &failures });
        let leaves = (self.leave)();
        let mut pool = self.pool.lock();
        if leaves && !is_done {
            pool.stopped = true;
            pool.failed.get_or_insert(Error::Code(Code::Again));
        } else if goes_on.is_break() && !is_done {
            pool.stopped = true;
            pool.done.cancelled = true;
        }
        if is_done {
            return Next::Done;
        }
        let is_hungry = self.is_hungry(&pool);
        match spawned {
            Some(below) if is_hungry && !pool.stopped => {
                pool.ready.push(below);
                let spawns = self.is_hungry(&pool);
                drop(pool);
                self.moved.notify_all();
                Next::Same { spawns }
            }
            Some(below) => Next::Below(Box::new(below)),
            None if pool.stopped => Next::Put,
            None => Next::Same { spawns: is_hungry },
        }
    }
}

/// Changes that no call is making.
impl TreeChanges<'_> {
    /// After recovery: notes a unit, so that its change is continued. Returns `false` for another
    /// inode.
    pub(crate) fn adopt(self, ino: Ino, slot: OrphanSlot) -> bool {
        let is_unit = self.0.reading_first(|| {
            let inode = self.0.inode(ino)?;
            let slot = inode.read();
            self.is_unit(ino, &slot.inode)
        });
        // One that cannot be read is left to the reaper, which reports it.
        let is_unit = is_unit.unwrap_or(false);
        if is_unit {
            self.0.changing.push(ino, slot);
        }
        is_unit
    }

    /// Makes a step of a change that no call is making. Returns `false` if there is none.
    pub(crate) fn continue_some(self) -> Result<bool> {
        if self.0.changing.waiting() == 0 {
            return Ok(false);
        }
        let _not_the_callers = shoal_journal::housekeeping();
        let mut waiting = self.0.changing.waiting.lock();
        let Some((ino, slot)) = waiting.pop() else { return Ok(false) };
        let stepped = self.continue_unit(ino, slot);
        match &stepped {
            Ok(Some(Stepped { is_done, spawned, .. })) => {
                waiting.extend((!is_done).then_some((ino, slot)));
                waiting.extend(spawned.as_ref().map(|unit| (unit.ino, unit.slot)));
            }
            Ok(None) => {}
            Err(_) => waiting.push((ino, slot)),
        }
        self.0.changing.note(waiting.len());
        stepped.map(|_| true)
    }

    /// Makes a step of a unit. Returns `None` if it is damaged, or freed.
    fn continue_unit(self, ino: Ino, slot: OrphanSlot) -> Result<Option<Stepped>> {
        let stepped = self.load(ino, slot).and_then(|mut unit| {
            let (change, who) = TreeChange::of_state(&unit.state);
            self.step(&Job { who, change }, &mut unit, false)
        });
        match stepped {
            Ok(stepped) => {
                self.tell(&stepped.held, Teller::Volume);
                self.0.store.counters().add(Counter::ReapSteps, 1);
                // One line for each step: a user can make as many failures as there are inodes.
                if let Some(failure) = stepped.failures.first() {
                    let (ino, error) = (failure.ino, &failure.error);
                    let others = stepped.failures.len() - 1;
                    let message = "not changed by an interrupted change of a tree";
                    tracing::warn!(%ino, %error, others, message);
                }
                Ok(Some(stepped))
            }
            Err(error @ (Error::Corrupt(_) | Error::Code(Code::Stale))) => {
                tracing::error!(%ino, %error, "an interrupted change of a tree is given up");
                // As every other unlinked inode.
                self.0.reaping.push(ino, slot);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}
