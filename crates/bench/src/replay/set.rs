//! Changes of attributes, from the bits of the protocol.

use super::plan::Step;

const MODE: u32 = 1 << 0;
const UID: u32 = 1 << 1;
const GID: u32 = 1 << 2;
const SIZE: u32 = 1 << 3;
/// Access time, then modification time: to be set, and to the time of the call.
const TIMES: [(u32, u32); 2] = [(1 << 4, 1 << 7), (1 << 5, 1 << 8)];

/// A time to be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    /// That of the call.
    Now,
    /// Seconds since 1970, and nanoseconds.
    At(i64, u32),
}

/// A change of attributes; `None`: it stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Set {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    /// Access and modification time.
    pub times: [Option<When>; 2],
}

impl Set {
    /// Returns the change that a step makes.
    pub(super) fn of(step: &Step) -> Set {
        let has = |bit: u32| step.flags & bit != 0;
        let id = |bit: u32, at: usize| has(bit).then_some(step.values[at] as u32);
        let second = 1_000_000_000;
        let mut times = [None; 2];
        // A trace has the owner in place of the times.
        if !has(UID) && !has(GID) {
            for ((set, now), (time, ns)) in TIMES.into_iter().zip(times.iter_mut().zip(step.values))
            {
                let at = When::At(ns.div_euclid(second), ns.rem_euclid(second) as u32);
                *time = has(set).then_some(if has(now) { When::Now } else { at });
            }
        }
        Set {
            mode: has(MODE).then_some(step.mode & 0o7777),
            uid: id(UID, 0),
            gid: id(GID, 1),
            size: has(SIZE).then_some(step.size),
            times,
        }
    }
}
