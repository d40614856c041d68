//! The steps of the model, and the search of all states that they lead to.

use super::state::*;
use std::collections::{HashSet, VecDeque};
use std::hash::BuildHasher;
use std::time::Instant;

/// Defects to plant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Defect {
    /// Collection deletes fences too.
    FencesDeleted,
    /// An owner deletes the claims before its newest manifest.
    ClaimsDeleted,
    /// An owner deletes old manifests, and does not replace them.
    OldManifestsDeleted,
    /// An owner sends a log object before the one in the slot before is there.
    Pipelined,
    /// Each process takes "exists" for its own success.
    ExistsIsSuccess,
    /// Each process takes "exists" for a lost race.
    ExistsIsLoss,
    /// An opener writes without a fence.
    NoFence,
    /// An opener does not look for a manifest behind its claim, after its fence. Meanwhile another
    /// opener may have claimed the volume, and may have deleted the object in the fence's slot.
    NoCheck,
    /// The creator loads the volume after its claim, and creates its fence at the end of that log,
    /// behind the fence of an opener that came later.
    CreatorLoads,
    /// A load does not look for a newer manifest after it has read the log. Meanwhile an owner may
    /// have deleted an object of that log, and a late fence may be in its place.
    NoRecheck,
    /// An owner takes an earlier snapshot of its own, which was given up, for another owner's.
    OwnSnapshotForeign,
    /// An owner supersedes what its newest manifest changes.
    LayersSuperseded,
    /// An owner supersedes an earlier manifest of its own, which was given up, before the next one
    /// is there.
    EarlierSuperseded,
}

/// Bounds of a search: what each writer does, and how many requests are late and objects deleted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub flushes: [u8; READER],
    pub snapshots: [u8; READER],
    pub writers: usize,
    pub reader: bool,
    /// A manifest may be one of changes.
    pub layers: bool,
    pub lates: u8,
    pub deletes: u8,
}

/// A step, for the trace: its process, its name, and the number of its object or slot.
pub(super) type Action = (usize, &'static str, usize);

pub(super) struct Model {
    pub bounds: Bounds,
    pub defect: Option<Defect>,
    /// The only property that is checked; `None`: all but [`Broken::Needless`].
    pub only: Option<Broken>,
}

/// States reached by one step from another one.
struct Steps<'s> {
    from: &'s State,
    to: Vec<(Action, State)>,
}

impl Steps<'_> {
    fn add(&mut self, by: usize, what: &'static str, at: usize, change: impl FnOnce(&mut State)) {
        let mut next = *self.from;
        change(&mut next);
        self.to.push(((by, what, at), next));
    }
}

impl Model {
    fn is(&self, defect: Defect) -> bool {
        self.defect == Some(defect)
    }
    fn report(&self, state: &mut State, broken: Broken) {
        if self.only.map_or(broken != Broken::Needless, |only| only == broken) {
            state.broken = Some(broken);
        }
    }

    /// Takes a step of a load, one request.
    fn load(&self, state: &State, process: &mut Process, is_reader: bool) {
        match process.step {
            Step::Gallop(low, step) => {
                process.newest = low;
                process.step = match state.has((low + step).min(NUMBERS as u8 - 1)) {
                    true => Step::Gallop(low + step, step * 2),
                    false if step > 1 => Step::Halve(low, low + step),
                    false if low == 0 => Step::Ended,
                    false => Step::Read(low),
                }
            }
            Step::Halve(low, high) => {
                let middle = low + (high - low) / 2;
                let (low, high) = if state.has(middle) { (middle, high) } else { (low, middle) };
                let found = high - low == 1;
                process.step = if found { Step::Read(low) } else { Step::Halve(low, high) };
                process.newest = low;
            }
            Step::Read(number) => {
                let found = state.objects[manifest(number)];
                process.step = match (found.kind, found.number) {
                    (Kind::Complete, log_next) => {
                        (process.log_next, process.slot) = (log_next, log_next);
                        (process.base, process.layers) = (number, 1 << number);
                        (process.log_epoch, process.chain) = (found.epoch, found.chain);
                        if found.base == 0 { Step::Replay } else { Step::Below(found.base) }
                    }
                    (Kind::Claim, 0) => Step::Replay,
                    (Kind::Claim, base) => Step::Read(base),
                    (Kind::Superseded, _) => Step::List,
                    _ => Step::Damaged,
                }
            }
            Step::Below(number) => {
                let found = state.objects[manifest(number)];
                process.layers |= 1 << number;
                process.step = match (found.kind, found.base) {
                    (Kind::Complete, 0) => Step::Replay,
                    (Kind::Complete, base) => Step::Below(base),
                    (Kind::Superseded, _) => Step::List,
                    _ => Step::Damaged,
                }
            }
            Step::Replay => {
                let found = state.objects[process.slot as usize];
                let damaged = found.kind != Kind::Absent;
                if damaged && process.apply(found) {
                    return;
                }
                // A claim is refused if there is a newer manifest: an opener needs no look.
                let rechecks = !self.is(Defect::NoRecheck) && (damaged || is_reader);
                process.step = match damaged {
                    _ if rechecks => Step::Recheck(damaged),
                    true => Step::Damaged,
                    false => Step::Loaded,
                }
            }
            Step::Recheck(damaged) => {
                process.step = match state.has(process.newest + 1) {
                    true => Step::List,
                    false if damaged => Step::Damaged,
                    false => Step::Loaded,
                }
            }
            _ => unreachable!("not a step of a load"),
        }
    }

    /// Returns the state that an opener loads if nobody else runs; its list ends at `low`.
    fn fresh(&self, state: &State, low: u8) -> Option<Chain> {
        let mut process = Process::default().listed(low);
        while !matches!(process.step, Step::Loaded | Step::Damaged | Step::Ended | Step::List) {
            self.load(state, &mut process, false);
        }
        (process.step == Step::Loaded).then_some(process.chain)
    }

    /// Continues after a load.
    fn loaded(&self, state: &mut State, by: usize) {
        let process = &mut state.processes[by];
        match process.step {
            Step::Loaded if by != READER => match process.epoch {
                0 => process.step = Step::Put(Kind::Claim),
                epoch if epoch == process.newest => process.step = Step::Put(Kind::Fence),
                _ => process.end(),
            },
            Step::Loaded | Step::Damaged => {
                let Process { step, chain, snapshot: (_, acked), .. } = *process;
                process.end();
                match self.fresh(state, 0).is_some_and(|whole| begins(chain, whole)) {
                    _ if step == Step::Damaged => self.report(state, Broken::FalseDamage),
                    false => self.report(state, Broken::NotPrefix),
                    true if !begins(acked, chain) => self.report(state, Broken::Stale),
                    true => {}
                }
            }
            _ => {}
        }
    }

    /// Continues after an object was created.
    fn created(&self, state: &mut State, by: usize, new: Kind) {
        let process = &mut state.processes[by];
        match new {
            Kind::Claim => {
                process.epoch = process.newest + 1;
                process.step = match by {
                    0 if self.is(Defect::CreatorLoads) => Step::List,
                    1.. if self.is(Defect::NoFence) => Step::Check,
                    _ => Step::Put(Kind::Fence),
                };
                if by == 0 {
                    (process.log_next, process.slot) = (1, 1);
                }
            }
            Kind::Fence => (process.slot, process.step) = (process.slot + 1, Step::Check),
            Kind::Flush => {
                process.apply(process.object(by, Kind::Flush).1);
                (process.log_epoch, process.step) = (0, Step::Own);
                process.flushes += 1;
                let chain = process.chain;
                process.failed.then(|| process.end());
                if begins(state.acked, chain) {
                    state.acked = chain;
                } else if !begins(chain, state.acked) {
                    self.report(state, Broken::Split);
                }
            }
            _ => {
                process.covered = process.snapshot.0;
                process.push(process.changes);
                if self.is(Defect::LayersSuperseded) {
                    process.old |= process.layers & !(1 << (process.next - 1));
                }
                (process.task, process.snapshot, process.changes) = (Step::Idle, (0, 0), 0);
            }
        }
    }

    /// Continues after another object was found in place of one that was to be created.
    fn taken(&self, state: &mut State, by: usize, new: Kind, found: Object) {
        let process = &mut state.processes[by];
        let is_own = usize::from(found.by) == by;
        match new {
            Kind::Claim if by == 0 => process.end(),
            Kind::Claim => process.step = Step::List,
            Kind::Fence => {
                process.step = Step::Put(Kind::Fence);
                let is_lost = found.epoch > process.epoch || !process.apply(found);
                is_lost.then(|| process.end());
            }
            Kind::Complete if is_own && !self.is(Defect::OwnSnapshotForeign) => {
                (process.snapshot.0, process.changes) = (found.number, found.base);
                self.created(state, by, new);
                if self.is(Defect::EarlierSuperseded) {
                    let process = &mut state.processes[by];
                    process.old |= 1 << (process.next - 1);
                }
            }
            _ => {
                if new == Kind::Complete {
                    (process.task, process.snapshot, process.changes) = (Step::Idle, (0, 0), 0);
                }
                process.failed = true;
                (new == Kind::Flush || process.step == Step::Own).then(|| process.end());
                is_own.then(|| self.report(state, Broken::Needless));
            }
        }
    }

    /// Returns all states that the next step of any process leads to.
    fn steps<'s>(&self, from: &'s State) -> Steps<'s> {
        let mut steps = Steps { from, to: Vec::new() };
        for by in 0..PROCESSES {
            for at in [from.processes[by].step, from.processes[by].task] {
                match at {
                    Step::Put(new) => self.create(&mut steps, by, new, false),
                    Step::Compare(new) => self.create(&mut steps, by, new, true),
                    _ => {}
                }
            }
            self.step(&mut steps, by);
            self.task(&mut steps, by);
            self.collect(&mut steps, by);
        }
        self.delete(&mut steps);
        for (n, late) in from.late.iter().enumerate() {
            let Some((name, object)) = *late else { continue };
            steps.add(object.by as usize, "late", name, |next| {
                next.late[n] = None;
                next.late.sort_unstable_by_key(|late| late.is_none());
                let free = next.objects[name].kind == Kind::Absent;
                free.then(|| next.write(name, object));
            });
        }
        steps
    }

    fn step(&self, steps: &mut Steps, by: usize) {
        let state = steps.from;
        let process = state.processes[by];
        let slot = process.slot as usize;
        match process.step {
            Step::Idle | Step::List => {
                let starts = match by {
                    _ if process.step == Step::List => true,
                    READER => self.bounds.reader && state.has(1),
                    1 => state.has(1),
                    // Openers are alike: they start in the order of their numbers.
                    _ => by < self.bounds.writers && state.processes[by - 1].step != Step::Idle,
                };
                let newest = state.newest();
                // An old list only delays the answer. Openers have it, the reader does not.
                let oldest = if by == READER { newest } else { 0 };
                let snapshot = if by == READER { (0, state.acked) } else { process.snapshot };
                for low in (oldest..=newest).filter(|_| starts) {
                    let listed = Process { snapshot, ..process.listed(low) };
                    steps.add(by, "list", low as usize, |next| next.processes[by] = listed);
                }
            }
            Step::Check => {
                let ended = !self.is(Defect::NoCheck) && state.has(process.epoch + 1);
                // The sweep finds manifests of earlier owners that are no layers.
                let is_old = |number: &u8| {
                    let is_layer = process.layers & 1 << number != 0;
                    state.objects[manifest(*number)].kind == Kind::Complete && !is_layer
                };
                let old = (1..process.epoch).filter(is_old).fold(0, |old, it| old | 1 << it);
                steps.add(by, "check", process.epoch as usize + 1, |next| {
                    let process = &mut next.processes[by];
                    if ended {
                        return process.end();
                    }
                    process.old = old;
                    (process.next, process.covered) = (process.epoch + 1, process.log_next);
                    (process.newest, process.base, process.log_next) = (0, 0, 0);
                    (process.log_epoch, process.step) = (0, Step::Own);
                });
            }
            Step::Own if process.flushes < self.bounds.flushes[by] => {
                let begin = Step::Put(Kind::Flush);
                steps.add(by, "flush", slot, |next| next.processes[by].step = begin);
            }
            Step::Put(_) | Step::Compare(_) | Step::Own | Step::Ended => {}
            step => {
                let what = if step == Step::Replay { "read log" } else { "read manifest" };
                steps.add(by, what, slot, |next| {
                    self.load(state, &mut next.processes[by], by == READER);
                    self.loaded(next, by);
                });
            }
        }
    }

    /// Begins or gives up a manifest, for which no flush waits.
    fn task(&self, steps: &mut Steps, by: usize) {
        let process = steps.from.processes[by];
        let limit = self.bounds.snapshots.get(by).copied().unwrap_or(0);
        let may_begin = process.step == Step::Own && process.slot > process.covered;
        if process.task == Step::Put(Kind::Complete) {
            steps.add(by, "give up", process.next as usize, |next| {
                let process = &mut next.processes[by];
                (process.task, process.snapshot, process.changes) = (Step::Idle, (0, 0), 0);
            });
        } else if process.task == Step::Idle && may_begin && process.snapshots < limit {
            let bases = if self.bounds.layers { process.layers | 1 } else { 1 };
            for base in (0..NUMBERS as u8).filter(|base| bases & 1 << base != 0) {
                steps.add(by, "snapshot on", base as usize, |next| {
                    let process = &mut next.processes[by];
                    process.snapshot = (process.slot, process.chain);
                    process.changes = base;
                    process.snapshots += 1;
                    process.task = Step::Put(Kind::Complete);
                });
            }
        }
    }

    /// Sends an object that is created if there is none; or reads what exists, to compare it.
    fn create(&self, steps: &mut Steps, by: usize, new: Kind, compares: bool) {
        let state = steps.from;
        let (name, object) = state.processes[by].object(by, new);
        if compares {
            let found = state.objects[name];
            let is_same = found == object && !self.is(Defect::ExistsIsLoss);
            return steps.add(by, "compare", name, |next| match found.kind {
                Kind::Absent => next.processes[by].go(new, Step::Put(new)),
                _ if is_same => self.created(next, by, new),
                _ => self.taken(next, by, new, found),
            });
        }
        let what = ["", "put fence", "put flush", "put claim", "put manifest"][new as usize];
        if state.objects[name].kind == Kind::Absent {
            steps.add(by, what, name, |next| {
                next.write(name, object);
                self.created(next, by, new);
            });
        }
        // The object is there; or another request for it is under way, and fails later.
        steps.add(by, "exists", name, |next| match self.is(Defect::ExistsIsSuccess) {
            true => self.created(next, by, new),
            false => next.processes[by].go(new, Step::Compare(new)),
        });
        if state.lates < self.bounds.lates && !state.late.contains(&Some((name, object))) {
            let Some(free) = state.late.iter().position(|late| late.is_none()) else { return };
            steps.add(by, "delay", name, |next| {
                next.late[free] = Some((name, object));
                next.lates += 1;
            });
        }
        if self.is(Defect::Pipelined) && new == Kind::Flush {
            let Process { slot, flushes, .. } = state.processes[by];
            let ahead = Process { slot: slot + 1, flushes: flushes + 1, ..state.processes[by] };
            let (name, object) = ahead.object(by, new);
            let free = state.objects[name].kind == Kind::Absent;
            if free && ahead.flushes < self.bounds.flushes[by] {
                steps.add(by, "put next flush", name, |next| next.write(name, object));
            }
        }
    }

    /// Replaces old manifests, also of an owner that was replaced or has ended.
    fn collect(&self, steps: &mut Steps, by: usize) {
        let process = steps.from.processes[by];
        if process.old != 0 {
            let old = process.old.trailing_zeros() as u8;
            let deleted = self.is(Defect::OldManifestsDeleted);
            let kind = if deleted { Kind::Absent } else { Kind::Superseded };
            steps.add(by, "supersede", old as usize, |next| {
                let superseded = Object { kind, by: by as u8, ..Object::default() };
                next.write(manifest(old), superseded);
                next.processes[by].old &= !(1 << old);
            });
        }
        if self.is(Defect::ClaimsDeleted) && process.layers != 0 {
            let newest = 15 - process.layers.leading_zeros() as u8;
            let mut names = (1..newest).map(manifest);
            let claim = names.find(|name| steps.from.objects[*name].kind == Kind::Claim);
            let Some(name) = claim else { return };
            steps.add(by, "delete", name, |next| next.objects[name] = Object::default());
        }
    }

    /// Deletes a log object that a manifest of an owner covers.
    fn delete(&self, steps: &mut Steps) {
        let state = steps.from;
        let owners = state.processes.iter().enumerate().filter(|(_, owner)| owner.next > 0);
        let Some((by, owner)) = owners.max_by_key(|(_, owner)| owner.covered) else { return };
        for slot in 1..owner.covered as usize {
            let is_data = state.data & 1 << slot != 0 || self.is(Defect::FencesDeleted);
            let is_there = state.objects[slot].kind != Kind::Absent;
            if is_data && is_there && state.deletes < self.bounds.deletes {
                steps.add(by, "delete", slot, |next| {
                    next.objects[slot] = Object::default();
                    next.deletes += 1;
                });
            }
        }
    }

    /// Opens the volume, and reports what is wrong.
    fn open(&self, state: &mut State) {
        let newest = state.newest();
        let gap = (1..newest).any(|number| !state.has(number));
        // A list may have names that are deleted.
        for low in (0..newest).filter(|low| gap || *low == 0) {
            match self.fresh(state, low) {
                None => self.report(state, Broken::Unopenable),
                Some(chain) if !begins(state.acked, chain) => self.report(state, Broken::Lost),
                Some(_) => {}
            }
        }
    }

    /// Visits all states, or those up to the first violation.
    fn search(&self) -> (usize, Option<(Broken, Vec<Action>)>) {
        let mut seen = HashSet::<u64, Mixes>::default();
        let mut from: Vec<(u32, Action)> = Vec::new();
        let mut first = State::default();
        first.processes[0].step = Step::Put(Kind::Claim);
        let mut queue = VecDeque::from([(first, u32::MAX)]);
        while let Some((state, number)) = queue.pop_front() {
            for (action, mut next) in self.steps(&state).to {
                if !seen.insert(Mixes::default().hash_one(next)) {
                    continue;
                }
                let reached = from.len() as u32;
                from.push((number, action));
                self.open(&mut next);
                if let Some(broken) = next.broken {
                    let before = |at: &u32| Some(from[*at as usize].0).filter(|at| *at != u32::MAX);
                    let backwards = std::iter::successors(Some(reached), before);
                    let trace = backwards.map(|at| from[at as usize].1).collect();
                    return (seen.len(), Some((broken, trace)));
                }
                queue.push_back((next, reached));
            }
        }
        (seen.len() + 1, None)
    }

    /// Searches, and prints the result. Returns the number of states, and the violation.
    pub(super) fn run(&self) -> (usize, Option<Broken>) {
        let begun = Instant::now();
        let (states, broken) = self.search();
        let short = broken.as_ref().map(|(broken, trace)| (*broken, trace.len()));
        let (defect, time) = (self.defect, begun.elapsed());
        println!("defect {defect:?}: {states} states in {time:.1?}, violation {short:?}");
        if self.defect.is_none() || std::env::var_os("SHOAL_MODEL_TRACE").is_some() {
            for (by, what, at) in broken.iter().flat_map(|(_, trace)| trace.iter().rev()) {
                let name = if *at > SLOTS { ("manifest", at - SLOTS) } else { ("", *at) };
                println!("    {by} {what} {} {}", name.0, name.1);
            }
        }
        (states, broken.map(|(broken, _)| broken))
    }
}
