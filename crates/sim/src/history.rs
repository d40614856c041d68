//! The states a run has been through since the device was last known to be in one of them, and
//! which of them a crash at a given moment may leave behind.
//!
//! State `k` is the state after `k` operations. Recovery must yield a state between the *floor*,
//! the newest one whose durability had been acknowledged when the power went, and the *ceiling*,
//! the last operation that had begun to touch the device.
//!
//! Removing a tree counts as done from its first record on. The rest of it takes links off files
//! with names elsewhere; when the power goes in between, recovery does that, and the files' change
//! times are those of recovery.
//!
//! A hole or a range of zeros that concerns thousands of extents is made in steps, and so is a
//! write or a copy, MiB by MiB: when the power goes in between, the beginning of the range is done.

use crate::exec::Lockstep;
use crate::model::{Body, Content, Model, NodeState, State, diff, node_hash};
use crate::op::Op;
use shoal::raw::{FileKind, Ino};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// States by number.
pub struct History {
    /// Digest of state `k`.
    digests: Vec<u64>,
    /// Device position when operation `k + 1` began.
    starts: Vec<u64>,
    /// (device position, k): from there on, state `k` is acknowledged.
    acknowledged: Vec<(u64, usize)>,
    /// The newest operation that changed an inode.
    changed: BTreeMap<Ino, usize>,
    /// States after removals of trees: the files that lost links in it, and the digest without
    /// their change times.
    unfinished: BTreeMap<usize, (Vec<Ino>, u64)>,
    /// States that are left by calls which are made in steps.
    steps: BTreeMap<usize, Steps>,
    /// The states in full, for explaining a failure; too slow for every run.
    states: Option<Vec<State>>,
}

impl History {
    /// A history that starts with the present state, known to be durable at `position`.
    pub fn new(position: u64, model: &Model, keep_states: bool) -> History {
        History {
            digests: vec![model.digest()],
            starts: Vec::new(),
            acknowledged: vec![(position, 0)],
            changed: BTreeMap::new(),
            unfinished: BTreeMap::new(),
            steps: BTreeMap::new(),
            states: keep_states.then(|| vec![model.state()]),
        }
    }

    /// The device position at which the history starts.
    pub fn first_position(&self) -> u64 {
        self.acknowledged[0].0
    }

    /// Number of operations so far.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns whether nothing happened yet.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// An operation begins with the device at `position`.
    pub fn begin(&mut self, position: u64) {
        assert_eq!(self.digests.len(), self.starts.len() + 1, "the previous one has ended");
        self.starts.push(position);
    }

    /// The operation that begins is `op`, on this.
    pub fn begin_of(&mut self, op: &Op, run: &Lockstep, position: u64) {
        self.begin(position);
        if let Some(steps) = Steps::of(op, run) {
            self.steps.insert(self.len(), steps);
        }
    }

    /// It has ended, and left this.
    pub fn end(&mut self, model: &Model) {
        self.digests.push(model.digest());
        let k = self.len();
        self.changed.extend(model.touched().map(|(ino, _)| (ino, k)));
        if let Some(states) = &mut self.states {
            states.push(model.state());
        }
    }

    /// The same, when it was `op`.
    pub fn end_of(&mut self, op: &Op, model: &Model) {
        self.end(model);
        let changes = matches!(op, Op::ChangeTree { .. });
        if changes || matches!(op, Op::RemoveTree { .. }) {
            let files = model.touched().map(|(ino, _)| ino).filter(|ino| {
                let node = model.node(*ino);
                let counts = |kind| changes || kind != FileKind::Directory;
                node.is_some_and(|node| node.nlink > 0 && counts(node.kind))
            });
            let files: Vec<Ino> = files.collect();
            if !files.is_empty() {
                let digest = model.digest_without_ctimes(&files);
                self.unfinished.insert(self.len(), (files, digest));
            }
        }
    }

    /// Everything so far is acknowledged to be durable.
    pub fn acknowledge_all(&mut self, position: u64) {
        self.acknowledged.push((position, self.len()));
    }

    /// Everything up to the newest change of `ino` is.
    pub fn acknowledge(&mut self, position: u64, ino: Ino) {
        let newest = self.acknowledged.last().map_or(0, |(_, k)| *k);
        let k = self.changed.get(&ino).copied().unwrap_or(0);
        self.acknowledged.push((position, newest.max(k)));
    }

    /// The states that a crash at `position` may leave.
    pub fn permitted(&self, position: u64) -> RangeInclusive<usize> {
        let acknowledged = self.acknowledged.iter().take_while(|(at, _)| *at <= position);
        let floor = acknowledged.map(|(_, k)| *k).max().unwrap_or(0);
        let ceiling = self.starts.partition_point(|start| *start < position);
        // An acknowledgement may need no device operation of its own.
        floor..=ceiling.max(floor)
    }

    /// The newest permitted state with this digest.
    pub fn find_digest(&self, digest: u64, permitted: RangeInclusive<usize>) -> Option<usize> {
        permitted.rev().find(|k| self.digests[*k] == digest)
    }

    /// The newest permitted state that is `found`.
    pub fn find(&self, found: &State, permitted: RangeInclusive<usize>) -> Option<usize> {
        self.find_all(found, permitted).next()
    }

    /// All permitted states that are `found`, the newest first.
    pub fn find_all<'a>(
        &'a self,
        found: &'a State,
        permitted: RangeInclusive<usize>,
    ) -> impl Iterator<Item = usize> + 'a {
        let digest = found.digest();
        let cut_short = move |k: &usize| {
            let known = self.unfinished.get(k);
            known.is_some_and(|(files, known)| found.digest_without_ctimes(files) == *known)
        };
        let in_steps =
            move |k: &usize| self.steps.get(k).is_some_and(|steps| steps.may_leave(found));
        let is = move |k: &usize| self.digests[*k] == digest || cut_short(k) || in_steps(k);
        permitted.rev().filter(is)
    }

    /// Why `found` is none of the permitted states.
    pub fn explain(&self, found: &State, permitted: RangeInclusive<usize>) -> String {
        let mut text = format!("recovered state is none of {permitted:?}");
        if let Some(k) = self.find(found, 0..=self.len()) {
            return format!("{text}: it is state {k}");
        }
        let Some(states) = &self.states else { return text };
        let nearest = permitted
            .map(|k| (diff(&states[k], found, 1000).len(), k))
            .min()
            .expect("a range holds at least one state");
        text += &format!("; the nearest is {}:", nearest.1);
        for line in diff(&states[nearest.1], found, 12) {
            text += "\n    ";
            text += &line;
        }
        text
    }
}

/// Bytes of a write or a copy that are one transaction.
const WRITE_STEP: usize = 1 << 20;

/// A file that changes in steps.
struct Steps {
    ino: Ino,
    how: How,
    /// Digest of the state before without this file.
    others: u64,
}

enum How {
    /// A range is made zero: the file as it was before.
    Zeroed { node: NodeState, content: Content, range: (u64, u64) },
    /// It is written to: as it is after each step but the last.
    Written(Vec<NodeState>),
}

impl Steps {
    /// `None`: the operation is not made in steps.
    fn of(op: &Op, run: &Lockstep) -> Option<Steps> {
        let (ino, how) = match op {
            Op::Fallocate { file, offset, len, .. } => {
                let ino = run.resolve(file)?;
                let node = run.model.node(ino)?;
                let Body::File(content) = &node.body else { return None };
                let range = (*offset, offset.checked_add(*len)?);
                (ino, How::Zeroed { node: node.state(ino), content: content.clone(), range })
            }
            Op::Write { file, offset, data, kill_priv } if data.len as usize > WRITE_STEP => {
                let ino = run.resolve(file)?;
                (ino, How::written(run, ino, *offset, &data.bytes(), *kill_priv))
            }
            Op::Append { file, data, kill_priv } if data.len as usize > WRITE_STEP => {
                let ino = run.resolve(file)?;
                let end = run.model.node(ino)?.state(ino).size;
                (ino, How::written(run, ino, end, &data.bytes(), *kill_priv))
            }
            Op::CopyRange { from, from_offset, to, to_offset, len } if *len > WRITE_STEP as u64 => {
                let (from, to) = (run.resolve(from)?, run.resolve(to)?);
                let Body::File(source) = &run.model.node(from)?.body else { return None };
                (to, How::written(run, to, *to_offset, &source.read(*from_offset, *len), false))
            }
            _ => return None,
        };
        let node = run.model.node(ino)?.state(ino);
        let others = run.model.digest().wrapping_sub(node_hash(&node));
        Some(Steps { ino, how, others })
    }

    /// Returns whether a crash between two steps may leave this: all other files as they were, of
    /// this one the times new and a beginning of the range done. (An allocation shows in the times
    /// alone.)
    fn may_leave(&self, found: &State) -> bool {
        let Some(node) = found.nodes.get(&self.ino) else { return false };
        if found.digest().wrapping_sub(node_hash(node)) != self.others {
            return false;
        }
        let with_times = |of: &NodeState| NodeState { times: node.times, ..of.clone() };
        match &self.how {
            How::Written(steps) => steps.iter().any(|step| with_times(step) == *node),
            How::Zeroed { node: before, content, range: (from, to) } => {
                let hash = before.content;
                with_times(before) == NodeState { content: hash, ..node.clone() }
                    && content.zeroed_gradually(*from, *to).any(|(_, hash)| hash == node.content)
            }
        }
    }
}

impl How {
    fn written(run: &Lockstep, ino: Ino, offset: u64, bytes: &[u8], kill_priv: bool) -> How {
        let after = |end: usize| {
            let mut model = run.model.clone();
            model.begin();
            model.write(ino, offset, &bytes[..end], kill_priv).ok()?;
            Some(model.node(ino)?.state(ino))
        };
        How::Written((WRITE_STEP..bytes.len()).step_by(WRITE_STEP).filter_map(after).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shoal::raw::Caller;

    #[test]
    fn floor_and_ceiling_follow_the_device() {
        let mut model = Model::new(Ino(1), 0o755, 0, 0);
        let mut history = History::new(10, &model, true);
        let mut made = Vec::new();
        for (i, position) in [10, 10, 12, 15].into_iter().enumerate() {
            history.begin(position);
            model.begin();
            let name = [b'a' + i as u8];
            made.push(model.create(&Caller::root(), (Ino(1), &name), 0o644, None).unwrap());
            model.settle();
            history.end(&model);
        }
        history.acknowledge(18, made[1]);
        assert_eq!(history.permitted(10), 0..=0);
        assert_eq!(history.permitted(11), 0..=2);
        assert_eq!(history.permitted(17), 0..=4);
        assert_eq!(history.permitted(18), 2..=4);
        history.acknowledge_all(18);
        assert_eq!(history.permitted(18), 4..=4);
        assert_eq!(history.find(&model.state(), 0..=4), Some(4));
        assert_eq!(history.find(&model.state(), 0..=3), None);
        assert!(history.explain(&model.state(), 0..=3).contains("it is state 4"));
    }
}
