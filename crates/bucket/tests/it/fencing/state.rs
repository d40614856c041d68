//! The state of the model: what is in the store, and what each process is about to do.

use std::hash::{BuildHasherDefault, Hasher};

/// Number of processes: the creator, openers, and last the reader.
pub(super) const PROCESSES: usize = 4;
pub(super) const READER: usize = PROCESSES - 1;
pub(super) const SLOTS: usize = 13;
pub(super) const NUMBERS: usize = 10;

/// Flushes applied, the newest in the lowest four bits.
pub(super) type Chain = u32;

/// Returns whether a chain is the beginning of another one, or all of it.
pub(super) fn begins(part: Chain, whole: Chain) -> bool {
    let length = |chain: Chain| (35 - chain.leading_zeros()) / 4;
    let (part_len, whole_len) = (length(part), length(whole));
    part_len <= whole_len && u64::from(whole) >> (4 * (whole_len - part_len)) == u64::from(part)
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) enum Kind {
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
pub(super) struct Object {
    pub kind: Kind,
    /// Its writer: the random number of an opening.
    pub by: u8,
    pub epoch: u8,
    /// Flush: its number. Claim: its base. Complete manifest: the first slot that is not in it.
    pub number: u8,
    /// Complete manifest: the state.
    pub chain: Chain,
    /// Complete manifest: the one that it changes; 0: none.
    pub base: u8,
}

/// Index of an object in [`State::objects`]: that of a log object is its slot.
pub(super) type Name = usize;

/// Returns the name of a manifest.
pub(super) fn manifest(number: u8) -> Name {
    SLOTS + number as usize
}

/// Next step of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) enum Step {
    #[default]
    Idle,
    List,
    /// Manifest `.0` is there: looks for the one `.1` behind it.
    Gallop(u8, u8),
    /// Manifest `.0` is there, and `.1` is not: looks for the one in the middle.
    Halve(u8, u8),
    /// Reads a manifest: the newest one, or the one that a claim continues.
    Read(u8),
    /// Reads a layer below.
    Below(u8),
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
pub(super) struct Process {
    pub step: Step,
    /// Found by the load: the newest manifest, the newest complete one, its end of the log.
    pub newest: u8,
    pub base: u8,
    pub log_next: u8,
    pub log_epoch: u8,
    pub epoch: u8,
    /// Next slot to read or to write, and the state before it.
    pub slot: u8,
    pub chain: Chain,
    pub flushes: u8,
    /// State of its manifest: `Idle`, `Put` or `Compare`.
    pub task: Step,
    /// First slot that is not in that manifest, and the state in it. Reader: what was acknowledged
    /// when it began.
    pub snapshot: (u8, Chain),
    /// The layer that the manifest changes; 0: none.
    pub changes: u8,
    pub snapshots: u8,
    /// Number of an owner's next manifest; 0: the process is not an owner yet.
    pub next: u8,
    /// First slot that is not in its newest manifest.
    pub covered: u8,
    /// The manifests that make up the newest state, a bit each; and those to be superseded.
    pub layers: u16,
    pub old: u16,
    pub failed: bool,
}

/// A broken property: 1, 2, and 3 of the table above, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Broken {
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
pub(super) struct State {
    pub objects: [Object; SLOTS + NUMBERS],
    pub processes: [Process; PROCESSES],
    /// Requests on their way.
    pub late: [Option<(Name, Object)>; 2],
    pub lates: u8,
    pub deletes: u8,
    /// Highest slot that was ever written, and the slots whose first object was a flush.
    pub top: u8,
    pub data: u16,
    /// Longest state whose flush was acknowledged.
    pub acked: Chain,
    pub broken: Option<Broken>,
}

impl State {
    pub(super) fn write(&mut self, name: Name, object: Object) {
        self.objects[name] = object;
        if name < SLOTS && name > self.top as usize {
            self.top = name as u8;
            self.data |= u16::from(object.kind == Kind::Flush) << name;
        }
    }

    pub(super) fn has(&self, number: u8) -> bool {
        self.objects[manifest(number)].kind != Kind::Absent
    }
    pub(super) fn newest(&self) -> u8 {
        (1..NUMBERS as u8).rev().find(|number| self.has(*number)).unwrap_or(0)
    }
}

impl Process {
    /// Begins to look for the newest manifest, after a list.
    pub(super) fn listed(self, low: u8) -> Process {
        let step = Step::Gallop(low, 1);
        let found = Process { newest: 0, base: 0, layers: 0, log_epoch: 0, chain: 0, ..self };
        Process { step, log_next: 1, slot: 1, ..found }
    }

    /// Stops all but what is on its way, and forgets what no step reads any more.
    pub(super) fn end(&mut self) {
        let Process { epoch, task, snapshot, changes, .. } = *self;
        let Process { snapshots, next, covered, old, .. } = *self;
        let step = Step::Ended;
        let none = Process { failed: true, ..Process::default() };
        *self = Process { step, task, snapshots, next, covered, old, ..none };
        if task != Step::Idle {
            (self.epoch, self.snapshot, self.changes) = (epoch, snapshot, changes);
        }
    }

    /// Applies the object in the next slot. Returns whether it fits.
    pub(super) fn apply(&mut self, object: Object) -> bool {
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
    pub(super) fn object(&self, by: usize, new: Kind) -> (Name, Object) {
        let (by, epoch, slot) = (by as u8, self.epoch, self.slot as usize);
        let object = |kind, number, chain| Object { kind, by, epoch, number, chain, base: 0 };
        match new {
            Kind::Claim => {
                let epoch = self.newest + 1;
                (manifest(epoch), Object { epoch, ..object(new, self.base, 0) })
            }
            Kind::Fence => (slot, object(new, 0, 0)),
            Kind::Flush => (slot, object(new, self.flushes + 1, 0)),
            Kind::Complete => {
                let (log_next, chain) = self.snapshot;
                let complete = object(new, log_next, chain);
                (manifest(self.next), Object { base: self.changes, ..complete })
            }
            Kind::Absent | Kind::Superseded => unreachable!("not created"),
        }
    }

    /// Notes a manifest of its own that is durable, which changes a layer or, 0, is complete.
    pub(super) fn push(&mut self, base: u8) {
        let kept = if base == 0 { 0 } else { self.layers & ((2 << base) - 1) };
        self.old |= self.layers & !kept;
        self.layers = kept | 1 << self.next;
        self.next += 1;
    }

    pub(super) fn go(&mut self, new: Kind, step: Step) {
        match new {
            Kind::Complete => self.task = step,
            _ => self.step = step,
        }
    }
}

/// Hash of a state, of which the search keeps no more. Of ten million states two have the same hash
/// with a probability of one to 300 000. The standard library's hasher takes ten times as long.
#[derive(Default)]
pub(super) struct Mix(u64);
pub(super) type Mixes = BuildHasherDefault<Mix>;

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
