//! Written bytes that no log object holds yet.
//!
//! A *run* is a range of addresses within one frame. It is *dirty* until it is sealed, which makes
//! it a piece of an object that is being uploaded; it stays here, for reads, until a log object has
//! made that piece durable. Newer bytes replace older ones at once, sealed or not.

use bytes::Bytes;
use shoal_format::bucket::FRAME;
use std::collections::BTreeMap;
use std::ops::Range;

const FRAME_BYTES: u64 = FRAME as u64;
/// Bytes of the address space whose dirty runs go into one data object. Streams of the engine fill
/// segments one after the other, so that what becomes free together is mostly in one object.
pub(crate) const REGION: u64 = 8 << 20;

enum Run {
    Dirty(Vec<u8>),
    /// Part of a piece of the objects that were sealed together under a number.
    Sealed(u64, Bytes),
}

impl Run {
    fn bytes(&self) -> &[u8] {
        match self {
            Run::Dirty(bytes) => bytes,
            Run::Sealed(_, bytes) => bytes,
        }
    }

    /// Splits off what lies at `at` and behind.
    fn split_off(&mut self, at: usize) -> Run {
        match self {
            Run::Dirty(bytes) => Run::Dirty(bytes.split_off(at)),
            Run::Sealed(batch, bytes) => Run::Sealed(*batch, bytes.split_off(at)),
        }
    }
}

/// The runs, by address.
#[derive(Default)]
pub(crate) struct Staging {
    runs: BTreeMap<u64, Run>,
    dirty: u64,
}

/// Splits a range at the bounds of frames.
pub(crate) fn frames(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let end = range.end.min((at / FRAME_BYTES + 1) * FRAME_BYTES);
        let piece = at..end;
        at = end;
        (!piece.is_empty()).then_some(piece)
    })
}

impl Staging {
    /// Bytes in dirty runs.
    pub(crate) fn dirty(&self) -> u64 {
        self.dirty
    }

    /// Number of runs, the sealed ones included.
    pub(crate) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Writes bytes.
    pub(crate) fn write(&mut self, addr: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for range in frames(addr..addr + bytes.len() as u64) {
            let (part, after) = rest.split_at((range.end - range.start) as usize);
            rest = after;
            self.write_in_frame(range, part);
        }
    }

    fn write_in_frame(&mut self, range: Range<u64>, bytes: &[u8]) {
        if let Some((start, Run::Dirty(old))) = self.runs.range_mut(..=range.start).next_back() {
            let at = (range.start - start) as usize;
            if let Some(to) = old.get_mut(at..at + bytes.len()) {
                return to.copy_from_slice(bytes);
            }
        }
        self.remove(range.clone());
        self.dirty += bytes.len() as u64;
        if let Some((start, Run::Dirty(old))) = self.runs.range_mut(..range.start).next_back()
            && start + old.len() as u64 == range.start
            && start / FRAME_BYTES == range.start / FRAME_BYTES
        {
            // A run that is read for long must not hold twice its bytes.
            if old.capacity() - old.len() < bytes.len() {
                let end = (start / FRAME_BYTES + 1) * FRAME_BYTES;
                let room = old.capacity() * 2;
                let room = room.max(old.len() + bytes.len()).min((end - start) as usize);
                old.reserve_exact(room - old.len());
            }
            return old.extend_from_slice(bytes);
        }
        self.runs.insert(range.start, Run::Dirty(bytes.to_vec()));
    }

    /// Forgets what was written to a range.
    pub(crate) fn remove(&mut self, range: Range<u64>) {
        self.split(range.start);
        self.split(range.end);
        let within: Vec<u64> = self.runs.range(range).map(|(start, _)| *start).collect();
        for start in within {
            if let Some(Run::Dirty(bytes)) = self.runs.remove(&start) {
                self.dirty -= bytes.len() as u64;
            }
        }
    }

    /// Returns the range from the first to the last staged byte within `range`.
    pub(crate) fn bounds(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let end = |(start, run): (&u64, &Run)| start + run.bytes().len() as u64;
        let (last, run) = self.runs.range(..range.end).next_back()?;
        let last = end((last, run)).min(range.end);
        let before = self.runs.range(..=range.start).next_back().map(end);
        let first = match before.filter(|end| *end > range.start) {
            Some(_) => range.start,
            None => *self.runs.range(range.start..).next()?.0,
        };
        (first < last).then_some(first..last)
    }

    fn split(&mut self, at: u64) {
        let Some((start, run)) = self.runs.range_mut(..at).next_back() else { return };
        if start + run.bytes().len() as u64 > at {
            let behind = run.split_off((at - start) as usize);
            self.runs.insert(at, behind);
        }
    }

    /// Seals all dirty runs as a batch. Returns them by address.
    pub(crate) fn seal(&mut self, batch: u64) -> Vec<(u64, Bytes)> {
        self.seal_in(batch, 0..u64::MAX)
    }

    /// Seals the dirty runs of the region that has most.
    pub(crate) fn seal_region(&mut self, batch: u64) -> Vec<(u64, Bytes)> {
        let mut regions: BTreeMap<u64, u64> = BTreeMap::new();
        for (start, run) in &self.runs {
            if let Run::Dirty(bytes) = run {
                *regions.entry(start / REGION).or_default() += bytes.len() as u64;
            }
        }
        let fullest = regions.into_iter().max_by_key(|(_, bytes)| *bytes);
        fullest.map_or_else(Vec::new, |(region, _)| {
            self.seal_in(batch, region * REGION..(region + 1) * REGION)
        })
    }

    fn seal_in(&mut self, batch: u64, range: Range<u64>) -> Vec<(u64, Bytes)> {
        let mut sealed = Vec::new();
        for (start, run) in self.runs.range_mut(range) {
            if let Run::Dirty(bytes) = run {
                self.dirty -= bytes.len() as u64;
                let bytes = Bytes::from(std::mem::take(bytes));
                sealed.push((*start, bytes.clone()));
                *run = Run::Sealed(batch, bytes);
            }
        }
        sealed
    }

    /// Forgets the runs of a batch, which is durable. `pieces` are those that sealing returned.
    pub(crate) fn settle(&mut self, batch: u64, pieces: &[(u64, Bytes)]) {
        for (start, bytes) in pieces {
            let range = *start..start + bytes.len() as u64;
            let of_batch = |run: &Run| matches!(run, Run::Sealed(by, _) if *by == batch);
            let parts = self.runs.range(range).filter(|(_, run)| of_batch(run));
            let parts: Vec<u64> = parts.map(|(start, _)| *start).collect();
            parts.iter().for_each(|start| drop(self.runs.remove(start)));
        }
    }

    /// Calls `found` with the staged bytes of a range and their address, in ascending order, and
    /// `missing` with the ranges between them.
    pub(crate) fn read(
        &self,
        range: Range<u64>,
        mut found: impl FnMut(u64, &[u8]),
        mut missing: impl FnMut(Range<u64>),
    ) {
        let mut at = range.start;
        let before = self.runs.range(..range.start).next_back();
        for (start, run) in before.into_iter().chain(self.runs.range(range.clone())) {
            let end = start + run.bytes().len() as u64;
            let (from, to) = ((*start).max(at), end.min(range.end));
            if from >= to {
                continue;
            }
            if at < from {
                missing(at..from);
            }
            found(from, &run.bytes()[(from - start) as usize..(to - start) as usize]);
            at = to;
        }
        if at < range.end {
            missing(at..range.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shoal_skip::property;

    const SPACE: u64 = 3 * FRAME_BYTES;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, usize, u8),
        Remove(u64, u64),
        Seal,
        SealRegion,
        Settle,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let write = (0..SPACE, 1usize..100_000, any::<u8>());
        let step = prop_oneof![
            6 => write.prop_map(|(at, len, byte)| Step::Write(at, len, byte)),
            2 => (0..SPACE, 1..SPACE).prop_map(|(at, len)| Step::Remove(at, len)),
            1 => Just(Step::Seal),
            1 => Just(Step::SealRegion),
            2 => Just(Step::Settle),
        ];
        prop::collection::vec(step, 1..30)
    }

    /// The bytes: never written or settled, or staged.
    type Model = Vec<Option<u8>>;

    fn check(staging: &Staging, model: &Model) {
        let mut back: Model = vec![Some(0xee); SPACE as usize];
        let back_cell = std::cell::RefCell::new(&mut back);
        staging.read(
            0..SPACE,
            |at, bytes| {
                let mut back = back_cell.borrow_mut();
                for (n, byte) in bytes.iter().enumerate() {
                    back[at as usize + n] = Some(*byte);
                }
            },
            |gap| back_cell.borrow_mut()[gap.start as usize..gap.end as usize].fill(None),
        );
        assert!(back == *model, "staged bytes differ");
    }

    proptest! {
        #![proptest_config(property(64))]

        #[test]
        fn staged_bytes_are_those_written_last(steps in steps()) {
            let mut staging = Staging::default();
            let mut model: Model = vec![None; SPACE as usize];
            // The batch that sealed each byte, 0 for none.
            let mut sealed = vec![0u64; SPACE as usize];
            let mut batches = Vec::new();
            for (n, step) in steps.into_iter().enumerate() {
                let batch = n as u64 + 1;
                let before = batches.len();
                match step {
                    Step::Write(at, len, byte) => {
                        let end = (at as usize + len).min(SPACE as usize);
                        let range = at as usize..end;
                        staging.write(at, &vec![byte; range.len()]);
                        model[range.clone()].fill(Some(byte));
                        sealed[range].fill(0);
                    }
                    Step::Remove(at, len) => {
                        let range = at..(at + len).min(SPACE);
                        staging.remove(range.clone());
                        let range = range.start as usize..range.end as usize;
                        model[range.clone()].fill(None);
                        sealed[range].fill(0);
                    }
                    Step::Seal => batches.push((batch, staging.seal(batch))),
                    Step::SealRegion => batches.push((batch, staging.seal_region(batch))),
                    Step::Settle => if !batches.is_empty() {
                        let (batch, pieces) = batches.remove(0);
                        staging.settle(batch, &pieces);
                        for at in 0..SPACE as usize {
                            if sealed[at] == batch {
                                (model[at], sealed[at]) = (None, 0);
                            }
                        }
                    },
                }
                if batches.len() > before {
                    for (start, bytes) in &batches[before].1 {
                        let frame = start / FRAME_BYTES;
                        prop_assert_eq!((start + bytes.len() as u64 - 1) / FRAME_BYTES, frame);
                        sealed[*start as usize..*start as usize + bytes.len()].fill(batch);
                    }
                }
                let held = (0..SPACE as usize).filter(|at| model[*at].is_some());
                let bounds = held.clone().next().zip(held.clone().next_back());
                let bounds = bounds.map(|(first, last)| first as u64..last as u64 + 1);
                prop_assert_eq!(staging.bounds(&(0..SPACE)), bounds);
                let is_dirty = |at: &usize| model[*at].is_some() && sealed[*at] == 0;
                let dirty = (0..SPACE as usize).filter(is_dirty);
                prop_assert_eq!(staging.dirty(), dirty.count() as u64);
                check(&staging, &model);
            }
        }
    }
}
