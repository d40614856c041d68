//! The second half of a step: one transaction that changes the inodes found before, and notes how
//! far the change is.

use super::TreeChanges;
use super::gather::Event;
use super::unit::{Made, NewUnit, Unit};
use crate::attributes::Changed;
use crate::records::{self, ATTR_CHANGED, UNIT_CHANGED};
use crate::stat::attr_of;
use crate::types::{AclChange, Caller, FileKind, SetAttr, TreeChange, TreeFailure};
use crate::xattr::Pending;
use shoal_base::{Code, Error, Ino, Result, RootId, memory};
use shoal_format::inode::Core;
use shoal_format::item::size;
use shoal_format::tree_change::{self as stored, Level};
use shoal_itable::{Borrowed, Locked, Pinned};
use shoal_txn::Txn;

/// Inodes that one step changes, at most: for so long others wait for the first of them.
const STEP: usize = 256;
/// Estimated bytes of space that longer lists of so many inodes need.
const ACL_COST: u64 = 64 << 10;

/// A change, and its caller.
pub(super) struct Job {
    pub who: Caller,
    pub change: TreeChange,
}

/// Result of a step.
#[derive(Default)]
pub(super) struct Stepped {
    pub changed: u64,
    /// Those of the changed inodes that somebody holds, if there is anyone to be told.
    pub held: Vec<Ino>,
    pub failures: Vec<TreeFailure>,
    /// A new unit.
    pub spawned: Option<Unit>,
    /// The unit has ended.
    pub is_done: bool,
}

/// Result for one inode.
enum Visited<'p> {
    /// It has been removed since, or has nothing to change.
    Unchanged,
    /// Changed; it must be stamped.
    Changed(Locked<'p>),
    /// Changed, in a way that must be the last of its step.
    Last(Locked<'p>, Changed),
    /// It must be the first of its step.
    Later,
    Failed(Error),
}

/// Form of a change of one inode.
enum Done {
    /// All of it is in the inode.
    Whole,
    /// It must be the last of its step.
    With(Changed),
    /// Nothing is changed: it must be the first of its step.
    Later,
}

/// The inodes that a step has changed, and what remains to be done for them.
#[derive(Default)]
struct Applied<'p> {
    /// Events that are done.
    events: usize,
    changed: Vec<Locked<'p>>,
    /// Intents of the last one.
    pending: Vec<Pending>,
    /// Events that failed, by index.
    failures: Vec<(usize, Error)>,
}

impl<'v> TreeChanges<'v> {
    /// Makes the next step of a unit.
    ///
    /// # Errors
    /// Those that concern the whole volume, and `ESTALE` if the unit has been freed. The unit is as
    /// before. Errors of single inodes are in the result.
    pub(super) fn step(self, job: &Job, unit: &mut Unit, spawns: bool) -> Result<Stepped> {
        // What comes next is found before the transaction asks.
        memory::ready()?;
        if unit.ahead.events.is_empty() {
            self.gather(&job.who, &unit.state.levels, &mut unit.ahead, spawns);
        }
        let stepped = self.0.reading_first(|| self.try_step(job, unit))?;
        // After a failure of the device nothing of what it says counts.
        self.0.store.writable()?;
        Ok(stepped)
    }

    fn try_step(self, job: &Job, unit: &mut Unit) -> Result<Stepped> {
        let (count, root) = self.run_of(unit);
        let (mut txn, has_space) = self.begin_step(job)?;
        let own_ref = self.0.inode(unit.ino)?;
        let new = self.plan_spawn(unit, count)?;
        let place = new.as_ref().map(NewUnit::place).transpose()?;
        let mut own = own_ref.write();
        let core = &own.inode().core;
        let is_ours = self.0.store.orphans().has(unit.slot, unit.ino);
        if !core.in_use() || core.nlink != 0 || !is_ours {
            return Err(Error::Code(Code::Stale));
        }
        let root = root.and_then(|id| self.0.root(Ino::new(id, 0)).ok());
        let pin = root.map(|root| root.table.pin());
        let table = root.map(|root| &*root.table).zip(pin.as_ref());
        let places = places_of(unit, count, table)?;
        self.can_put_state(&own)?;
        txn.check_memory()?;
        let mut applied = self.apply(&mut txn, job, (unit, count), &places, has_space)?;
        let levels = levels_after(&unit.state.levels, unit, applied.events);
        let is_done = levels.is_empty();
        let state = stored::TreeChange { levels, ..unit.state.clone() };
        let own_pending = match is_done {
            true => self.free_unit(&mut txn, &mut own, unit.slot).map(|()| None)?,
            false => self.put_state(&mut txn, &mut own, &state)?,
        };
        let mut made = match (new, &place) {
            (Some(new), Some(place)) if applied.events == count => {
                Some(self.make_unit(&mut txn, new, place)?)
            }
            _ => None,
        };
        self.finish_all(&mut txn, &mut applied, (&mut own, own_pending), made.as_mut())?;
        let is_held = |ino: &Ino| self.0.holds.may_be_held(*ino);
        let held = match self.0.reaping.watcher() {
            Some(_) => applied.changed.iter().map(Locked::ino).filter(is_held).collect(),
            None => Vec::new(),
        };
        applied.changed.iter_mut().try_for_each(|locked| txn.stamp(locked))?;
        txn.stamp(&mut own)?;
        made.iter_mut().try_for_each(|made| txn.stamp(&mut made.locked))?;
        let Applied { events, changed: inodes, failures, .. } = applied;
        let changed = inodes.len() as u64;
        // The record has its number, so others may change them while it is staged.
        drop(inodes);
        let lsn = txn.commit()?;
        let spawned = made.map(|made| made.unit);
        drop(own);
        self.0.step_done(lsn)?;
        if is_done {
            self.give_back(&[own_ref])?;
        }
        let failures = failures.into_iter().map(|(at, error)| failure(unit, at, error)).collect();
        unit.state = state;
        unit.ahead.events.drain(..events);
        Ok(Stepped { changed, held, failures, spawned, is_done })
    }

    /// Begins the transaction of a step. Returns also whether there is space for lists to grow.
    fn begin_step(self, job: &Job) -> Result<(Txn<'v>, bool)> {
        if job.change.acl.is_some() {
            match self.0.begin_space(ACL_COST, records::TREE_CHANGE) {
                Err(error) if error.is(Code::NoSpace) => {}
                other => return other.map(|txn| (txn, true)),
            }
        }
        self.0.begin(records::TREE_CHANGE).map(|txn| (txn, false))
    }

    /// Returns the number of events of the next step, and the subvolume of all its inodes. A new
    /// unit is its last one.
    fn run_of(self, unit: &Unit) -> (usize, Option<RootId>) {
        let most = self.0.options.lab().step_records.clamp(1, STEP);
        let (mut visits, mut root) = (0, None);
        for (at, event) in unit.ahead.events.iter().enumerate() {
            match event {
                Event::Visit { ino, .. } => {
                    if visits == most || root.is_some_and(|root| root != ino.root()) {
                        return (at, root);
                    }
                    visits += 1;
                    root = Some(ino.root());
                }
                Event::Spawn { .. } => return (at + 1, root),
                Event::Enter(_) | Event::Leave | Event::Failed { .. } => {}
            }
        }
        (unit.ahead.events.len(), root)
    }

    /// Plans the new unit that is the last event of a step.
    fn plan_spawn(self, unit: &Unit, count: usize) -> Result<Option<NewUnit<'v>>> {
        match count.checked_sub(1).and_then(|last| unit.ahead.events.get(last)) {
            Some(Event::Spawn { level, path }) => {
                let state = stored::TreeChange { levels: vec![*level], ..unit.state.clone() };
                let path = unit.ahead.paths[path.clone()].to_vec();
                self.plan_unit(state, path).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// Changes inodes in the order of the events, as many as can be locked without waiting. Only
    /// for the first one it waits, because other calls that hold an inode may wait for those that
    /// this step holds.
    fn apply<'p>(
        self,
        txn: &mut Txn<'_>,
        job: &Job,
        (unit, count): (&Unit, usize),
        places: &'p [Option<Result<Borrowed<'p>>>],
        has_space: bool,
    ) -> Result<Applied<'p>> {
        let mut applied = Applied::default();
        for (at, (event, place)) in unit.ahead.events.iter().zip(places).take(count).enumerate() {
            let is_first = applied.changed.is_empty();
            match (event, place) {
                (Event::Visit { generation, .. }, Some(Ok(place))) => {
                    match self.visit(txn, job, place, *generation, (is_first, has_space))? {
                        Visited::Unchanged => {}
                        Visited::Changed(locked) => applied.changed.push(locked),
                        Visited::Failed(error) => applied.failures.push((at, error)),
                        Visited::Later => break,
                        Visited::Last(locked, pending) => {
                            applied.changed.push(locked);
                            applied.pending = pending.into_iter().flatten().collect();
                            // The contents of a directory begin in the same record: whoever goes
                            // on from there looks only at what follows the directory.
                            let next = unit.ahead.events.get(at + 1).filter(|_| at + 1 < count);
                            let begins =
                                matches!(next, Some(Event::Enter(_) | Event::Spawn { .. }));
                            applied.events = at + 1 + usize::from(begins);
                            break;
                        }
                    }
                }
                (Event::Visit { .. }, Some(Err(error))) if !error.is(Code::Stale) => {
                    applied.failures.push((at, error.clone()));
                }
                (Event::Failed { error, .. }, _) => applied.failures.push((at, error.clone())),
                _ => {}
            }
            applied.events = at + 1;
        }
        Ok(applied)
    }

    /// Changes one inode. `is_first`: the transaction has changed nothing yet. `has_space`: a list
    /// may grow.
    fn visit<'p>(
        self,
        txn: &mut Txn<'_>,
        job: &Job,
        place: &'p Borrowed<'p>,
        generation: u32,
        (is_first, has_space): (bool, bool),
    ) -> Result<Visited<'p>> {
        if !is_first && txn.room() < UNIT_CHANGED + job.least_room() {
            return Ok(Visited::Later);
        }
        let mut locked = match place.try_write() {
            Some(locked) => locked,
            None if is_first => place.write(),
            None => return Ok(Visited::Later),
        };
        let (ino, core) = (locked.ino(), locked.inode().core);
        if !core.in_use() || core.generation != generation || core.nlink == 0 {
            return Ok(Visited::Unchanged);
        }
        if let Err(error) = attr_of(ino, locked.inode()) {
            return Ok(Visited::Failed(error));
        }
        let changed = match (&job.change.acl, job.set_of(&core)) {
            (Some(_), _) if !job.has_list(&core) => return Ok(Visited::Unchanged),
            (Some(_), _) if !has_space => Err(Error::Code(Code::NoSpace)),
            (Some(acl), _) => self.visit_list(txn, &mut locked, &job.who, acl, is_first),
            (None, Some(set)) => self.visit_core(txn, &mut locked, &job.who, &set, is_first),
            (None, None) => return Ok(Visited::Unchanged),
        };
        match changed {
            Ok(Done::Whole) => Ok(Visited::Changed(locked)),
            Ok(Done::With(pending)) => Ok(Visited::Last(locked, pending)),
            Ok(Done::Later) => Ok(Visited::Later),
            Err(error @ (Error::Cold(_) | Error::Code(Code::NoMemory))) => Err(error),
            Err(error) => Ok(Visited::Failed(error)),
        }
    }

    fn visit_core(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        who: &Caller,
        set: &SetAttr,
        is_first: bool,
    ) -> Result<Done> {
        if self.attributes().is_of_core(locked, set) {
            let core = self.attributes().changed_core(who, locked.ino(), locked.inode(), set)?;
            self.0.put_core(txn, locked, core).map(|()| Done::Whole)
        } else if is_first {
            self.attributes().change_locked(txn, locked, who, set).map(Done::With)
        } else {
            Ok(Done::Later)
        }
    }

    fn visit_list(
        self,
        txn: &mut Txn<'_>,
        locked: &mut Locked<'_>,
        who: &Caller,
        change: &AclChange,
        is_first: bool,
    ) -> Result<Done> {
        let ino = locked.ino();
        let (plan, core) = self.attributes().plan_acl_change(who, ino, locked.inode(), change)?;
        if plan.is_within() && !locked.is_detached() {
            self.attributes().apply_with(txn, locked, plan, core).map(|_| Done::Whole)
        } else if is_first {
            self.orphans().before_change(txn, locked, plan.is_within())?;
            let pending = self.attributes().apply_with(txn, locked, plan, core)?;
            Ok(Done::With([pending, None]))
        } else {
            Ok(Done::Later)
        }
    }

    /// Finishes all intents, when the record is complete.
    fn finish_all(
        self,
        txn: &mut Txn<'_>,
        applied: &mut Applied<'_>,
        (own, own_pending): (&mut Locked<'_>, Option<Pending>),
        made: Option<&mut Made<'_>>,
    ) -> Result<()> {
        let pending = std::mem::take(&mut applied.pending);
        if let Some(last) = applied.changed.last_mut() {
            self.namespace().finish_all(txn, last, pending)?;
        }
        self.intents().finish(txn, own, own_pending)?;
        match made {
            None => Ok(()),
            Some(made) => {
                let pending = std::mem::take(&mut made.pending);
                self.namespace().finish_all(txn, &mut made.locked, pending)
            }
        }
    }
}

impl Job {
    /// Bytes of a record that the next inode needs at least.
    fn least_room(&self) -> usize {
        if self.change.acl.is_some() { ATTR_CHANGED + size::CORE } else { size::CORE }
    }

    /// Returns whether an inode with this core can have the list that is changed.
    fn has_list(&self, core: &Core) -> bool {
        let default = self.change.acl.as_ref().is_some_and(|acl| acl.edits().default);
        if default { core.is_dir() } else { core.kind() != FileKind::Symlink as u8 }
    }

    /// Returns the change of an inode with this core; `None` if it has nothing to change.
    fn set_of(&self, core: &Core) -> Option<SetAttr> {
        let TreeChange { uid, gid, mode, acl: _, atime, mtime } = &self.change;
        let kind = FileKind::from_mode(core.mode);
        let is_dir = kind == Some(FileKind::Directory);
        let mode = mode.as_ref().filter(|_| kind != Some(FileKind::Symlink));
        let mode = mode.map(|mode| mode.apply(core.mode, is_dir, self.who.umask));
        let set = SetAttr {
            mode,
            uid: *uid,
            gid: *gid,
            atime: *atime,
            mtime: *mtime,
            ..SetAttr::default()
        };
        let of_ids = uid.is_some() || gid.is_some();
        (mode.is_some() || of_ids || atime.is_some() || mtime.is_some()).then_some(set)
    }
}

/// Returns the places of the inodes of the first events; `None` for other events.
fn places_of<'p>(
    unit: &Unit,
    count: usize,
    table: Option<(&shoal_itable::InodeTable, &'p Pinned<'_>)>,
) -> Result<Vec<Option<Result<Borrowed<'p>>>>> {
    let place = |event: &Event| match (event, table) {
        (Event::Visit { ino, .. }, Some((table, pin))) => match table.borrow(pin, *ino) {
            Err(cold @ Error::Cold(_)) => Err(cold),
            other => Ok(Some(other)),
        },
        _ => Ok(None),
    };
    unit.ahead.events.iter().take(count).map(place).collect()
}

/// Returns the levels after so many events.
fn levels_after(levels: &[Level], unit: &Unit, count: usize) -> Vec<Level> {
    let mut levels = levels.to_vec();
    for event in unit.ahead.events.iter().take(count) {
        match event {
            Event::Visit { cookie, .. } => {
                if let Some(level) = levels.last_mut() {
                    level.cookie = *cookie;
                }
            }
            Event::Enter(level) => levels.push(*level),
            Event::Leave => {
                levels.pop();
            }
            Event::Spawn { .. } | Event::Failed { .. } => {}
        }
    }
    levels
}

fn failure(unit: &Unit, at: usize, error: Error) -> TreeFailure {
    let (ino, path) = match unit.ahead.events.get(at) {
        Some(Event::Visit { ino, path, .. }) => (*ino, path.clone()),
        Some(Event::Failed { dir, path, .. }) => (*dir, path.clone()),
        _ => (unit.ino, 0..0),
    };
    let path = unit.ahead.paths.get(path).unwrap_or_default().to_vec();
    TreeFailure { path, ino, error }
}
