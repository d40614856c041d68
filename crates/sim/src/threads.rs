//! Several threads at once, each in a directory of its own with a model of its own, against one
//! volume. Nobody can say in which order operations of different threads took effect; but each
//! thread's directory must be, after a crash, in a state after some prefix of *its* operations, and
//! the prefixes must fit together: what ended before something else began comes first.
//!
//! "Before" and "after" are told by ticks: numbers drawn from one counter at the start and end of
//! each operation (or positions in a shared log, when the threads are in another process).

use crate::exec::{Lockstep, Step, is_batch_limit};
use crate::model::{State, diff};
use crate::op::{Op, Place};
use crate::workload::Workload;
use shoal::raw::{Code, Error, Ino, Volume};
use shoal_base::limits::EXTENT_MAX;
use std::collections::BTreeMap;

/// An operation of one thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Tick before it began.
    pub begin: u64,
    /// Tick after it ended; `u64::MAX`: never seen to end.
    pub end: u64,
}

/// An acknowledgement of durability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ack {
    /// Tick after the call returned: from here on it counts.
    pub at: u64,
    /// Operations of any thread that ended before this tick are durable.
    pub covers: u64,
    /// Operations of its own thread that are durable, by number.
    pub own: usize,
}

/// History of one thread.
#[derive(Clone, Debug, Default)]
pub struct Track {
    /// Its directory.
    pub dir: Ino,
    /// Its operations.
    pub spans: Vec<Span>,
    /// Digests of its directory: `digests[k]` after `k` operations.
    pub digests: Vec<u64>,
    /// Acknowledgements of durability.
    pub acks: Vec<Ack>,
    changed: BTreeMap<Ino, usize>,
    /// The states in full, and what led to each, for explaining a failure; if wanted.
    pub states: Option<Vec<(String, State)>>,
}

impl Track {
    /// The track of a thread that has done nothing yet.
    pub fn new(run: &Lockstep) -> Track {
        Track { dir: run.model.root(), digests: vec![run.model.digest()], ..Track::default() }
    }

    /// Keeps all states from here on.
    pub fn explaining(mut self, run: &Lockstep) -> Track {
        self.states = Some(vec![("start".into(), run.model.state())]);
        self
    }

    /// Returns the differences between `found` and the nearest of the states `ks`.
    fn explain(&self, found: &State, ks: std::ops::RangeInclusive<usize>) -> String {
        let Some(states) = &self.states else { return String::new() };
        let ks = *ks.start()..=(*ks.end()).min(states.len() - 1);
        let far = |k: &usize| diff(&states[*k].1, found, 1000).len();
        let Some(nearest) = ks.min_by_key(far) else { return String::new() };
        let mut text = format!("; the nearest is {nearest}, after {}", states[nearest].0);
        if let Some((next, _)) = states.get(nearest + 1) {
            text += &format!(" and before {next}");
        }
        for line in diff(&states[nearest].1, found, 12) {
            text += "\n    ";
            text += &line;
        }
        text
    }

    /// Notes an operation that has ended.
    pub fn ended(&mut self, span: Span, what: &Op, run: &Lockstep) {
        self.spans.push(span);
        self.digests.push(run.model.digest());
        let k = self.spans.len();
        self.changed.extend(run.model.touched().map(|(ino, _)| (ino, k)));
        if let Some(states) = &mut self.states {
            states.push((what.to_string(), run.model.state()));
        }
    }

    /// The acknowledgement of a `sync` or `checkpoint` that began and ended so.
    pub fn ack_all(&mut self, span: Span) {
        self.acks.push(Ack { at: span.end, covers: span.begin, own: self.spans.len() });
    }

    /// The acknowledgement of an `fsync` of `ino`: the newest change of it, and by the strict order
    /// of transactions everything that had ended when that change began.
    pub fn ack_inode(&mut self, span: Span, ino: Ino) {
        let own = self.changed.get(&ino).copied().unwrap_or(0);
        let covers = own.checked_sub(1).map_or(0, |i| self.spans[i].begin);
        self.acks.push(Ack { at: span.end, covers, own });
    }

    /// Operations that had ended before `tick`.
    fn ended_before(&self, tick: u64) -> usize {
        self.spans.partition_point(|span| span.end < tick)
    }
}

/// Which states of each thread a crash may leave: acknowledged before tick `from`, begun before
/// tick `to` (the crash lies between the two).
pub fn permitted(tracks: &[Track], from: u64, to: u64) -> Vec<(usize, usize)> {
    let acks = |track: &Track| track.acks.iter().copied().filter(|a| a.at <= from).collect();
    let all: Vec<Vec<Ack>> = tracks.iter().map(acks).collect();
    let covers = all.iter().flatten().map(|ack| ack.covers).max().unwrap_or(0);
    let bounds = tracks.iter().zip(&all).map(|(track, own)| {
        let own = own.iter().map(|ack| ack.own).max().unwrap_or(0);
        let floor = own.max(track.ended_before(covers));
        let ceiling = track.spans.partition_point(|span| span.begin < to);
        (floor, ceiling.max(floor))
    });
    bounds.collect()
}

/// Finds each thread's state among those permitted, and checks that they fit together.
pub fn judge(tracks: &[Track], found: &State, from: u64, to: u64) -> Result<(), String> {
    let mut matching = Vec::new();
    for (i, (track, (floor, ceiling))) in tracks.iter().zip(permitted(tracks, from, to)).enumerate()
    {
        let found = found.below(track.dir);
        let digest = found.digest();
        let ks = floor..=ceiling.min(track.digests.len() - 1);
        let oldest = ks.clone().find(|k| track.digests[*k] == digest);
        let newest = ks.rev().find(|k| track.digests[*k] == digest);
        match oldest.zip(newest) {
            Some(range) => matching.push(range),
            None => {
                let any = track.digests.iter().position(|d| *d == digest);
                let why = track.explain(&found, floor..=ceiling);
                return Err(format!(
                    "thread {i}: its directory is in none of its states {floor}..={ceiling} \
                     (of all its states: {any:?}){why}"
                ));
            }
        }
    }
    for (i, (oldest, _)) in matching.iter().enumerate() {
        // The operation without which thread i's directory could not look like this.
        let Some(needed) = oldest.checked_sub(1).map(|k| tracks[i].spans[k]) else { continue };
        for (j, (_, newest)) in matching.iter().enumerate().filter(|(j, _)| *j != i) {
            let before = tracks[j].ended_before(needed.begin);
            if before > *newest {
                return Err(format!(
                    "operation {oldest} of thread {i} survived, but of thread {j} only {newest} of \
                     the {before} operations that had ended before it began"
                ));
            }
        }
    }
    Ok(())
}

/// Draws the next operation that makes sense for a thread in a directory of its own: no crashes,
/// and no walks and paths, which lead out of the directory. Copies are cut to one window of the
/// target, because longer ones are several transactions, and a crash may come between them. Of
/// trees, those whose removal shows nowhere but at the top: what else it changes it changes behind
/// the call.
pub fn draw(workload: &mut Workload, run: &Lockstep) -> Op {
    loop {
        match workload.next(run) {
            Op::Crash { .. }
            | Op::Reopen { .. }
            | Op::Resolve { .. }
            | Op::Paths { .. }
            | Op::ChangeTree { .. } => {}
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                let room = EXTENT_MAX as u64 - to_offset % EXTENT_MAX as u64;
                return Op::CopyRange { from, from_offset, to, to_offset, len: len.min(room) };
            }
            // Handles of what was in a tree are stale when it has been freed, not before.
            Op::Stale { .. } if run.model.trees_removed() => {}
            Op::RemoveTree { ref at, .. } if !vanishes_whole(run, at) => {}
            op => return op,
        }
    }
}

fn vanishes_whole(run: &Lockstep, at: &Place) -> bool {
    let Some(dir) = run.resolve(&at.dir) else { return true };
    let Some(top) = run.model.entries(dir).ok().and_then(|e| e.get(&at.name)) else { return true };
    run.model.below(*top).all(|node| node.held == 0 && node.nlink == 1)
}

/// A thread at work.
pub struct Worker<'v> {
    volume: &'v Volume,
    workload: Workload,
    /// Its model.
    pub run: Lockstep,
    /// Its history.
    pub track: Track,
}

impl<'v> Worker<'v> {
    /// A worker in directory `dir`, doing what a seed says.
    pub fn new(volume: &'v Volume, dir: Ino, seed: u64) -> Result<Worker<'v>, String> {
        let run = Lockstep::new(volume, dir)?;
        let track = Track::new(&run).explaining(&run);
        let workload = Workload::new(seed).without_crashes().with_batches(seed);
        Ok(Worker { volume, workload, run, track })
    }

    /// Does one operation; `tick` draws ticks.
    pub fn step(&mut self, tick: &dyn Fn() -> u64) -> Result<(), String> {
        let op = draw(&mut self.workload, &self.run);
        let begin = tick();
        match self.run.step(self.volume, &op)? {
            Step::Refused(error) if !is_full(&op, &error) => return Err(format!("{op}: {error}")),
            _ => {}
        }
        let synced = sync(self.volume, &self.run, &op).map_err(|e| format!("{op}: {e}"))?;
        let span = Span { begin, end: tick() };
        self.track.ended(span, &op, &self.run);
        match synced {
            Synced::No => {}
            Synced::All => self.track.ack_all(span),
            Synced::Inode(ino) => self.track.ack_inode(span, ino),
        }
        Ok(())
    }
}

/// Returns whether a call was refused for lack of space, or a batch for its limits.
pub fn is_full(op: &Op, error: &Error) -> bool {
    error.code() == Code::NoSpace || is_batch_limit(op, error)
}

/// Changes that a call made durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Synced {
    /// Nothing.
    No,
    /// All that had ended before.
    All,
    /// One inode, and what came before its newest change.
    Inode(Ino),
}

/// Does what `op` says about durability.
pub fn sync(volume: &Volume, run: &Lockstep, op: &Op) -> shoal::raw::Result<Synced> {
    match op {
        Op::Fsync { file, datasync } => match run.resolve(file) {
            None => Ok(Synced::No),
            Some(ino) => volume.files().fsync(ino, *datasync).map(|()| Synced::Inode(ino)),
        },
        Op::Sync => volume.sync().map(|()| Synced::All),
        Op::Checkpoint => volume.maintenance().checkpoint().map(|()| Synced::All),
        _ => Ok(Synced::No),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal::raw::{Caller, Generation};

    /// Two threads, each making files a, b, c in its directory; thread 1 after thread 0.
    fn tracks() -> (Vec<Track>, Vec<State>, Vec<State>) {
        let mut tracks = Vec::new();
        let mut states = Vec::new();
        for t in 0..2_u64 {
            let model = crate::model::Model::new(Ino(10 + 100 * t), 0o777, 0, 0);
            let mut run = Lockstep::of(model);
            let mut track = Track::new(&run);
            let mut history = vec![run.model.state()];
            for k in 0..3_u64 {
                run.model.begin();
                let at = (track.dir, &[b'a' + k as u8][..]);
                run.model.create(&Caller::root(), at, 0o644, None).unwrap();
                run.model.settle();
                let begin = 100 * t + 10 * k;
                track.ended(Span { begin, end: begin + 5 }, &Op::Sync, &run);
                history.push(run.model.state());
            }
            tracks.push(track);
            states.push(history);
        }
        let second = states.pop().unwrap();
        (tracks, states.pop().unwrap(), second)
    }

    fn join(a: &State, b: &State) -> State {
        let mut state = a.clone();
        state.nodes.extend(b.nodes.clone());
        state.entries.extend(b.entries.clone());
        state
    }

    #[test]
    fn prefixes_must_fit_together() {
        let (mut tracks, a, b) = tracks();
        assert_eq!(a[0].nodes[&Ino(10)].generation, Generation(0));
        judge(&tracks, &join(&a[2], &b[0]), 0, 300).unwrap();
        judge(&tracks, &join(&a[3], &b[2]), 0, 300).unwrap();
        let wrong = judge(&tracks, &join(&a[2], &b[1]), 0, 300).unwrap_err();
        assert!(wrong.contains("operation 1 of thread 1 survived"), "{wrong}");
        // Begun only after the crash.
        assert!(judge(&tracks, &join(&a[3], &b[1]), 0, 100).is_err());
        // An acknowledged sync by thread 1 covers thread 0 as well.
        tracks[1].ack_all(Span { begin: 17, end: 30 });
        tracks[1].acks[0].own = 0;
        judge(&tracks, &join(&a[1], &b[0]), 29, 300).unwrap();
        assert!(judge(&tracks, &join(&a[1], &b[0]), 30, 300).is_err());
        judge(&tracks, &join(&a[2], &b[0]), 30, 300).unwrap();
    }
}
