//! An exhaustive search of the protocol that decides who owns a volume in a bucket.
//!
//! The model has a store, a creator, two openers, and a reader. Each step is one request, which the
//! store carries out at once or not at all; the processes take steps in every order. The search
//! visits each state within its bounds, breadth first, and checks in each one:
//!
//! | | property |
//! | --- | --- |
//! | 1 | an opener that begins now finds the volume, and each acknowledged flush in it |
//! | 2 | of two acknowledged flushes, one's state contains the other's |
//! | 3 | a reader loads a prefix of the volume, with each flush acknowledged before it began; it is told of no damage |
//!
//! So no acknowledgement is false, two owners never diverge, and there is no state in which the
//! volume cannot be opened any more.
//!
//! | event | in the model |
//! | --- | --- |
//! | the reply of a request is lost, or the request lands late | the object lands at any later time, or never. Its writer sends it again; it may also have ended |
//! | "exists" although nothing is there | a possible answer to each create |
//! | an old list | each opener's list ends at any manifest, or is empty |
//! | a process stalls, or crashes | the others take steps, and property 1 needs no step of any process |
//! | the patience for a manifest is over | its owner goes on without it; the object may still land |
//! | collection | deletes any log object with data that a manifest of an owner covers, at any time: the request may be late, and its owner gone |
//!
//! A flush is a number, and the volume's state is the sequence of flushes applied. The model has no
//! data objects (they are written before the log object that names them), no leases (an opener does
//! not wait, as with `force`), no closed volumes, and a load reads one slot at a time.
//!
//! Each [`Defect`] is planted, and must be found. `SHOAL_MODEL_LARGE=1` raises the bounds.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::time::Instant;

/// Number of processes: the creator, openers, and last the reader.
const PROCESSES: usize = 4;
const READER: usize = PROCESSES - 1;
const SLOTS: usize = 13;
const NUMBERS: usize = 10;

/// Flushes applied, the newest in the lowest four bits.
type Chain = u32;

/// Returns whether a chain is the beginning of another one, or all of it.
fn begins(part: Chain, whole: Chain) -> bool {
    let length = |chain: Chain| (35 - chain.leading_zeros()) / 4;
    let (part_len, whole_len) = (length(part), length(whole));
    part_len <= whole_len && u64::from(whole) >> (4 * (whole_len - part_len)) == u64::from(part)
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
enum Kind {
    #[default]
    Absent,
    Fence,
    Flush,
    Claim,
    Complete,
    Superseded,
}

/// An object in the store.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Object {
    kind: Kind,
    /// Its writer: the random number of an opening.
    by: u8,
    epoch: u8,
    /// Flush: its number. Claim: its base. Complete manifest: the first slot that is not in it.
    number: u8,
    /// Complete manifest: the state.
    chain: Chain,
}

/// Index of an object in [`State::objects`]: that of a log object is its slot.
type Name = usize;

/// Returns the name of a manifest.
fn manifest(number: u8) -> Name {
    SLOTS + number as usize
}

/// Next step of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
enum Step {
    #[default]
    Idle,
    List,
    /// Manifest `.0` is there: looks for the one `.1` behind it.
    Gallop(u8, u8),
    /// Manifest `.0` is there, and `.1` is not: looks for the one in the middle.
    Halve(u8, u8),
    /// Reads a manifest: the newest one, or its base.
    Read(u8),
    Replay,
    /// Looks for a manifest behind the one that was the newest; `true`: the log does not fit.
    Recheck(bool),
    Loaded,
    Damaged,
    /// Sends an object that is created if it is absent.
    Put(Kind),
    /// Reads an object that exists, to compare it.
    Compare(Kind),
    /// Looks for a manifest behind the claim.
    Check,
    Own,
    Ended,
}

/// An opening.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct Process {
    step: Step,
    /// Found by the load: the newest manifest, the newest complete one, its end of the log.
    newest: u8,
    base: u8,
    log_next: u8,
    log_epoch: u8,
    epoch: u8,
    /// Next slot to read or to write, and the state before it.
    slot: u8,
    chain: Chain,
    flushes: u8,
    /// State of its manifest: `Idle`, `Put` or `Compare`.
    task: Step,
    /// First slot that is not in that manifest, and the state in it. Reader: what was acknowledged
    /// when it began.
    snapshot: (u8, Chain),
    snapshots: u8,
    /// Number of an owner's next manifest; 0: the process is not an owner yet.
    next: u8,
    /// First slot that is not in its newest manifest.
    covered: u8,
    /// Its complete manifests, a bit each: all but the newest are to be superseded.
    old: u16,
    failed: bool,
}

/// A broken property: 1, 2, and 3 of the table above, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Broken {
    Lost,
    Unopenable,
    Split,
    /// A reader sees a state that the volume never had.
    NotPrefix,
    Stale,
    FalseDamage,
    /// An owner stops because of its own object: the volume is safe, but its user must mount again.
    Needless,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
struct State {
    objects: [Object; SLOTS + NUMBERS],
    processes: [Process; PROCESSES],
    /// Requests on their way.
    late: [Option<(Name, Object)>; 2],
    lates: u8,
    deletes: u8,
    /// Highest slot that was ever written, and the slots whose first object was a flush.
    top: u8,
    data: u16,
    /// Longest state whose flush was acknowledged.
    acked: Chain,
    broken: Option<Broken>,
}

/// Defects to plant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Defect {
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
}

/// Bounds of a search: what each writer does, and how many requests are late and objects deleted.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    flushes: [u8; READER],
    snapshots: [u8; READER],
    writers: usize,
    reader: bool,
    lates: u8,
    deletes: u8,
}

/// A step, for the trace: its process, its name, and the number of its object or slot.
type Action = (usize, &'static str, usize);

struct Model {
    bounds: Bounds,
    defect: Option<Defect>,
    /// The only property that is checked; `None`: all but [`Broken::Needless`].
    only: Option<Broken>,
}

impl State {
    fn write(&mut self, name: Name, object: Object) {
        self.objects[name] = object;
        if name < SLOTS && name > self.top as usize {
            self.top = name as u8;
            self.data |= u16::from(object.kind == Kind::Flush) << name;
        }
    }

    fn has(&self, number: u8) -> bool {
        self.objects[manifest(number)].kind != Kind::Absent
    }
    fn newest(&self) -> u8 {
        (1..NUMBERS as u8).rev().find(|number| self.has(*number)).unwrap_or(0)
    }
}

impl Process {
    /// Begins to look for the newest manifest, after a list.
    fn listed(self, low: u8) -> Process {
        let step = Step::Gallop(low, 1);
        Process { step, newest: 0, base: 0, log_next: 1, log_epoch: 0, slot: 1, chain: 0, ..self }
    }

    /// Stops all but what is on its way, and forgets what no step reads any more.
    fn end(&mut self) {
        let Process { epoch, task, snapshot, snapshots, next, covered, old, .. } = *self;
        let step = Step::Ended;
        let none = Process { failed: true, ..Process::default() };
        *self = Process { step, task, snapshots, next, covered, old, ..none };
        if task != Step::Idle {
            (self.epoch, self.snapshot) = (epoch, snapshot);
        }
    }

    /// Applies the object in the next slot. Returns whether it fits.
    fn apply(&mut self, object: Object) -> bool {
        if object.epoch < self.log_epoch {
            return false;
        }
        self.log_epoch = object.epoch;
        if object.kind == Kind::Flush {
            self.chain = self.chain << 4 | Chain::from(object.by * 4 + object.number);
        }
        self.slot += 1;
        true
    }

    /// Returns the object to create, with its name.
    fn object(&self, by: usize, new: Kind) -> (Name, Object) {
        let (by, epoch, slot) = (by as u8, self.epoch, self.slot as usize);
        let object = |kind, number, chain| Object { kind, by, epoch, number, chain };
        match new {
            Kind::Claim => {
                let epoch = self.newest + 1;
                (manifest(epoch), Object { epoch, ..object(new, self.base, 0) })
            }
            Kind::Fence => (slot, object(new, 0, 0)),
            Kind::Flush => (slot, object(new, self.flushes + 1, 0)),
            Kind::Complete => (manifest(self.next), object(new, self.snapshot.0, self.snapshot.1)),
            Kind::Absent | Kind::Superseded => unreachable!("not created"),
        }
    }

    fn go(&mut self, new: Kind, step: Step) {
        match new {
            Kind::Complete => self.task = step,
            _ => self.step = step,
        }
    }
}

/// Hash of a state, of which the search keeps no more. Of ten million states two have the same hash
/// with a probability of one to 300 000. The standard library's hasher takes ten times as long.
#[derive(Default)]
struct Mix(u64);
type Mixes = BuildHasherDefault<Mix>;

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            let product = (self.0 ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            self.0 = (product ^ product >> 29).wrapping_add(0x1234_5678_9abc_def1);
        }
    }
    /// Hashes the number of an enum's variant.
    fn write_isize(&mut self, value: isize) {
        self.write(&[value as u8]);
    }
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
                        process.base = number;
                        (process.log_epoch, process.chain) = (found.epoch, found.chain);
                        Step::Replay
                    }
                    (Kind::Claim, 0) => Step::Replay,
                    (Kind::Claim, base) => Step::Read(base),
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
                process.old |= 1 << process.next;
                (process.next, process.covered) = (process.next + 1, process.snapshot.0);
                (process.task, process.snapshot) = (Step::Idle, (0, 0));
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
                process.snapshot.0 = found.number;
                self.created(state, by, new);
            }
            _ => {
                if new == Kind::Complete {
                    (process.task, process.snapshot) = (Step::Idle, (0, 0));
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
                steps.add(by, "check", process.epoch as usize + 1, |next| {
                    let process = &mut next.processes[by];
                    if ended {
                        return process.end();
                    }
                    process.old = if process.base > 0 { 1 << process.base } else { 0 };
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
                (process.task, process.snapshot) = (Step::Idle, (0, 0));
            });
        } else if process.task == Step::Idle && may_begin && process.snapshots < limit {
            steps.add(by, "snapshot", process.slot as usize, |next| {
                let process = &mut next.processes[by];
                process.snapshot = (process.slot, process.chain);
                process.snapshots += 1;
                process.task = Step::Put(Kind::Complete);
            });
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
        if process.old.count_ones() > 1 {
            let old = process.old.trailing_zeros() as u8;
            let deleted = self.is(Defect::OldManifestsDeleted);
            let kind = if deleted { Kind::Absent } else { Kind::Superseded };
            steps.add(by, "supersede", old as usize, |next| {
                let superseded = Object { kind, by: by as u8, ..Object::default() };
                next.write(manifest(old), superseded);
                next.processes[by].old &= !(1 << old);
            });
        }
        if self.is(Defect::ClaimsDeleted) && process.old != 0 {
            let newest = 15 - process.old.leading_zeros() as u8;
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
    fn run(&self) -> (usize, Option<Broken>) {
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

/// Bounds of the smallest search; the others add to it.
const SMALL: Bounds = Bounds {
    flushes: [1, 0, 0],
    snapshots: [0, 1, 0],
    writers: 2,
    reader: false,
    lates: 0,
    deletes: 1,
};
/// Bounds for three writers, of which the last one collects.
const THREE: Bounds = Bounds { writers: 3, snapshots: [0, 0, 1], ..SMALL };

#[test]
fn no_acknowledged_flush_is_lost_and_no_two_owners_diverge() {
    let late = Bounds { lates: 1, ..THREE };
    let two = Bounds { writers: 2, flushes: [1, 1, 0], snapshots: [1, 1, 0], ..late };
    let searches = [
        Bounds { flushes: [2, 1, 1], deletes: 2, ..late },
        Bounds { flushes: [1, 0, 1], reader: true, ..THREE },
        Bounds { reader: true, ..two },
        // Only if they are to be large:
        Bounds { flushes: [2, 1, 1], snapshots: [1, 0, 1], deletes: 2, ..late },
        Bounds { flushes: [1, 0, 1], reader: true, ..late },
        Bounds { flushes: [2, 2, 0], snapshots: [2, 1, 0], lates: 2, ..two },
    ];
    let count = if std::env::var_os("SHOAL_MODEL_LARGE").is_some() { searches.len() } else { 3 };
    let mut states = 0;
    for bounds in searches.into_iter().take(count) {
        println!("{bounds:?}");
        let (visited, broken) = Model { bounds, defect: None, only: None }.run();
        assert_eq!(broken, None, "the steps are printed above");
        states += visited;
    }
    println!("{states} states, no false acknowledgement");
    assert!(states > 1_000_000);
}

#[test]
fn each_planted_defect_is_found() {
    let reader = Bounds { reader: true, ..THREE };
    let manifests = Bounds { snapshots: [1, 1, 0], ..SMALL };
    for (defect, bounds, expected) in [
        (Defect::FencesDeleted, SMALL, Broken::Lost),
        (Defect::ClaimsDeleted, manifests, Broken::Unopenable),
        (Defect::OldManifestsDeleted, manifests, Broken::Lost),
        (Defect::Pipelined, Bounds { flushes: [2, 0, 0], ..SMALL }, Broken::Unopenable),
        (Defect::ExistsIsSuccess, SMALL, Broken::Lost),
        (Defect::NoFence, SMALL, Broken::Unopenable),
        (Defect::NoFence, Bounds { flushes: [1, 1, 0], ..SMALL }, Broken::Split),
        (Defect::NoCheck, Bounds { flushes: [2, 1, 0], deletes: 2, ..THREE }, Broken::Split),
        (Defect::CreatorLoads, SMALL, Broken::Unopenable),
        (Defect::NoRecheck, Bounds { flushes: [1, 0, 1], ..reader }, Broken::NotPrefix),
        (Defect::NoRecheck, Bounds { flushes: [2, 0, 0], ..reader }, Broken::FalseDamage),
        (Defect::NoRecheck, Bounds { reader: true, ..manifests }, Broken::Stale),
    ] {
        let (_, broken) = Model { bounds, defect: Some(defect), only: Some(expected) }.run();
        assert_eq!(broken, Some(expected), "{defect:?}");
    }
}

/// Defects that end an owner that nobody has replaced, and do no other harm.
#[test]
fn defects_of_liveness_are_found_as_such() {
    let bounds = Bounds { flushes: [1, 1, 0], snapshots: [2, 0, 0], lates: 1, ..SMALL };
    let only = Some(Broken::Needless);
    assert_eq!(Model { bounds, defect: None, only }.run().1, None);
    for defect in [Defect::ExistsIsLoss, Defect::OwnSnapshotForeign].map(Some) {
        assert_eq!(Model { bounds, defect, only: None }.run().1, None, "{defect:?}");
        assert_eq!(Model { bounds, defect, only }.run().1, only, "{defect:?}");
    }
}
