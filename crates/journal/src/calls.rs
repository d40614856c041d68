//! Calls that a killed process has not answered: which of them it had made.
//!
//! Problem: a server answers requests, and is killed between a request's record and its answer. The
//! request is then given to the next server, which must neither make the change twice (a `link`
//! would fail with `EEXIST`) nor leave it out.
//!
//! Rule: each thread of a server has a cell beside the ring ([`crate::RingMemory`]). It holds the
//! number of the request in work, and the end of the first record that was staged for it. The
//! record is complete only after its end has been stored there. So after a crash:
//!
//! | cell | record | the call |
//! | --- | --- | --- |
//! | no number | | was answered, or none was in work |
//! | number, no end | | was not made |
//! | number, end | beyond the end of the recovered journal | was not made |
//! | number, end | replayed | was made |
//!
//! *The first record decides*: what follows it in the same call is completed by recovery (an
//! intent, an orphan slot). Records that a call stages for others, such as a step of the reaper on
//! a full volume, are not its own ([`housekeeping`]).
//!
//! [`CallTable::settle`] applies the table as soon as recovery knows where the journal ends, and
//! before it stages anything: the cells of the dead process are then *done* or *undone*, whatever
//! happens to the next one. They stay so until the request has been answered ([`Left::answered`]).
//! A process that is killed between an answer and that note leaves a cell that nobody asks for. If
//! no other is free, the oldest of these is used again.

#[cfg(test)]
use crate::call_cell::CALLS_MAX;
use crate::call_cell::CallCell;
use crate::memory::RingMemory;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Deaths of the process after which a call that was in work each time is believed to cause them.
const DEATHS_MAX: u64 = 16;

const FREE: u64 = 0;
/// A thread of the process that has the ring open uses it.
const CLAIMED: u64 = 1;
const DONE: u64 = 2;
const UNDONE: u64 = 3;
/// The thread has panicked in this call.
const PANICKED: u64 = 4;

/// Outcome of a call that a dead process has not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It was made: it must be answered, and not be made again.
    Done,
    /// It was not made.
    Undone,
    /// It seems to end the processes that try it: it must be refused.
    Deadly,
}

/// A call that a dead process has not answered.
#[derive(Debug)]
pub struct Left {
    /// Number of the request.
    pub unique: u64,
    /// Its outcome.
    pub outcome: Outcome,
    deaths: u64,
    cell: usize,
    memory: Arc<RingMemory>,
}

impl Left {
    /// Records that the call has been answered, or taken over by a thread's own cell.
    pub fn answered(self) {
        self.memory.calls()[self.cell].state.store(FREE, Ordering::Release);
    }
}

/// The cells of a ring's memory.
impl RingMemory {
    /// Forgets all calls: their requests were those of another server.
    pub fn forget_calls(&self) {
        for cell in self.calls() {
            cell.state.store(FREE, Ordering::Release);
        }
    }

    /// Determines which calls of the process before were made. `end`: of the recovered journal.
    /// Nobody may have staged anything since.
    pub fn settle_calls(&self, end: u64) {
        for cell in self.calls() {
            if cell.state.load(Ordering::Acquire) != CLAIMED {
                continue;
            }
            let first = cell.end.load(Ordering::Acquire);
            let state = match cell.unique.load(Ordering::Acquire) {
                0 => FREE,
                _ if first != 0 && first <= end => DONE,
                _ => UNDONE,
            };
            // Only this store counts: a process killed before it finds everything as it was.
            cell.state.store(state, Ordering::Release);
        }
    }

    /// Returns the calls that dead processes have left, and that have not been answered yet.
    pub fn calls_left(self: &Arc<Self>) -> Vec<Left> {
        let left = |(number, cell): (usize, &CallCell)| {
            let deaths = cell.deaths.load(Ordering::Acquire) + 1;
            let outcome = match cell.state.load(Ordering::Acquire) {
                DONE => Outcome::Done,
                UNDONE if deaths < DEATHS_MAX => Outcome::Undone,
                UNDONE | PANICKED => Outcome::Deadly,
                _ => return None,
            };
            let (unique, memory) = (cell.unique.load(Ordering::Acquire), self.clone());
            Some(Left { unique, outcome, deaths, cell: number, memory })
        };
        self.calls().iter().enumerate().filter_map(left).collect()
    }

    /// Claims a cell for the calls of this thread, until the result is dropped. `None`: all are in
    /// use, and a crash may have this thread's call made twice.
    pub fn claim_call(self: &Arc<Self>) -> Option<CallNote> {
        let cell = self.claim_cell(FREE).or_else(|| self.claim_cell(DONE))?;
        let place = &self.calls()[cell];
        place.unique.store(0, Ordering::Release);
        CURRENT.set(Some(Place { memory: self.clone(), cell }));
        HAS_CELL.set(true);
        Some(CallNote { memory: self.clone(), cell })
    }

    /// Claims a cell in this state. Of those that are done, the one with the lowest number: numbers
    /// only grow, so its request was answered long ago.
    fn claim_cell(&self, from: u64) -> Option<usize> {
        let cells = self.calls();
        let is_free = |number: &usize| cells[*number].state.load(Ordering::Relaxed) == from;
        let claim = |number: &usize| {
            let state = &cells[*number].state;
            state.compare_exchange(from, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let mut free: Vec<usize> = (0..cells.len()).filter(is_free).collect();
        if from == DONE {
            free.sort_by_key(|number| cells[*number].unique.load(Ordering::Relaxed));
        }
        free.into_iter().find(claim)
    }
}

/// The cell of a thread.
#[derive(Debug)]
pub struct CallNote {
    memory: Arc<RingMemory>,
    cell: usize,
}

impl CallNote {
    fn cell(&self) -> &CallCell {
        &self.memory.calls()[self.cell]
    }

    /// Records that request `unique` is in work. `left`: what a dead process has left of it.
    #[inline]
    pub fn begin(&self, unique: u64, left: Option<Left>) {
        let cell = self.cell();
        cell.end.store(0, Ordering::Release);
        cell.deaths.store(left.as_ref().map_or(0, |left| left.deaths), Ordering::Release);
        cell.unique.store(unique, Ordering::Release);
        if let Some(left) = left {
            left.answered();
        }
    }

    /// Records that it has been answered.
    #[inline]
    pub fn end(&self) {
        self.cell().unique.store(0, Ordering::Release);
    }
}

impl Drop for CallNote {
    fn drop(&mut self) {
        // A thread that panics leaves its request to the next process.
        if !std::thread::panicking() {
            self.cell().state.store(FREE, Ordering::Release);
        }
        HAS_CELL.set(false);
        let _ = CURRENT.try_with(|current| current.borrow_mut().take());
    }
}

struct Place {
    memory: Arc<RingMemory>,
    cell: usize,
}

thread_local! {
    static CURRENT: RefCell<Option<Place>> = const { RefCell::new(None) };
    static HOUSEKEEPING: Cell<u32> = const { Cell::new(0) };
    /// `CURRENT` is set. Without a destructor, so that threads of a library, which have no cells,
    /// learn it by one load.
    static HAS_CELL: Cell<bool> = const { Cell::new(false) };
}

/// Records that the call of this thread has a record that ends at `end`, and is not complete yet.
#[inline]
pub(crate) fn numbered(memory: &Arc<RingMemory>, end: u64) {
    if HAS_CELL.get() {
        note_end(memory, end);
    }
}

#[inline(never)]
fn note_end(memory: &Arc<RingMemory>, end: u64) {
    CURRENT.with_borrow(|current| {
        let Some(place) = current else { return };
        let cell = &memory.calls()[place.cell];
        if cell.end.load(Ordering::Relaxed) == 0
            && HOUSEKEEPING.get() == 0
            && Arc::ptr_eq(memory, &place.memory)
        {
            cell.end.store(end, Ordering::Release);
        }
    });
}

/// Marks the call of this thread as one that must not be tried again: the thread is panicking.
pub fn call_panicked() {
    let _ = CURRENT.try_with(|current| {
        if let Ok(current) = current.try_borrow()
            && let Some(Place { memory, cell }) = &*current
            && memory.calls()[*cell].unique.load(Ordering::Acquire) != 0
        {
            memory.calls()[*cell].state.store(PANICKED, Ordering::Release);
        }
    });
}

/// Until it is dropped, records that this thread stages are not those of its call.
#[must_use]
pub struct Housekeeping(());

/// Begins work of this thread that is not part of its call.
#[inline]
pub fn housekeeping() -> Housekeeping {
    HOUSEKEEPING.set(HOUSEKEEPING.get() + 1);
    Housekeeping(())
}

impl Drop for Housekeeping {
    #[inline]
    fn drop(&mut self) {
        HOUSEKEEPING.set(HOUSEKEEPING.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(memory: &Arc<RingMemory>) -> Vec<(u64, Outcome)> {
        let mut all: Vec<_> =
            memory.calls_left().iter().map(|left| (left.unique, left.outcome)).collect();
        all.sort_by_key(|(unique, _)| *unique);
        all
    }

    /// A thread that is killed: its cell stays as it is.
    fn killed(memory: &Arc<RingMemory>, unique: u64, ends: &[u64]) {
        let memory = memory.clone();
        let ends = ends.to_vec();
        let life = move || {
            let note = memory.claim_call().unwrap();
            note.begin(unique, None);
            for end in ends {
                numbered(&memory, end);
            }
            std::mem::forget(note);
        };
        std::thread::spawn(life).join().unwrap();
    }

    #[test]
    fn the_first_record_decides_and_the_outcome_outlives_further_deaths() {
        let memory = Arc::new(RingMemory::without_name().unwrap());
        killed(&memory, 2, &[]);
        killed(&memory, 4, &[100]);
        killed(&memory, 6, &[101]);
        killed(&memory, 8, &[100, 500]);
        killed(&memory, 0, &[100]);
        memory.settle_calls(100);
        let expected =
            [(2, Outcome::Undone), (4, Outcome::Done), (6, Outcome::Undone), (8, Outcome::Done)];
        assert_eq!(outcomes(&memory), expected);
        // The next process reuses the LSNs that were never replayed, and dies before it has
        // answered anything.
        killed(&memory, 10, &[300]);
        memory.settle_calls(1000);
        let expected = [&expected[..], &[(10, Outcome::Done)]].concat();
        assert_eq!(outcomes(&memory), expected);
        for left in memory.calls_left() {
            left.answered();
        }
        assert_eq!(outcomes(&memory), []);
    }

    #[test]
    fn work_for_others_is_not_the_calls() {
        let memory = Arc::new(RingMemory::without_name().unwrap());
        let note = memory.claim_call().unwrap();
        note.begin(2, None);
        {
            let _work = housekeeping();
            numbered(&memory, 50);
        }
        let other = Arc::new(RingMemory::without_name().unwrap());
        numbered(&other, 60);
        assert_eq!(note.cell().end.load(Ordering::Relaxed), 0);
        numbered(&memory, 70);
        assert_eq!(note.cell().end.load(Ordering::Relaxed), 70);
        note.end();
        drop(note);
        memory.settle_calls(1000);
        assert_eq!(outcomes(&memory), []);
    }

    #[test]
    fn a_call_that_ends_processes_is_refused_in_the_end() {
        let memory = Arc::new(RingMemory::without_name().unwrap());
        for death in 1..DEATHS_MAX {
            let left = memory.calls_left().pop();
            assert_eq!(left.is_some(), death > 1);
            let memory = memory.clone();
            let life = move || {
                let note = memory.claim_call().unwrap();
                note.begin(2, left);
                std::mem::forget(note);
                memory.settle_calls(0);
                assert_eq!(memory.calls_left().len(), 1);
            };
            std::thread::spawn(life).join().unwrap();
        }
        assert_eq!(outcomes(&memory), [(2, Outcome::Undone)]);
        let left = memory.calls_left().pop();
        let note = memory.claim_call().unwrap();
        note.begin(2, left);
        std::mem::forget(note);
        memory.settle_calls(0);
        assert_eq!(outcomes(&memory), [(2, Outcome::Deadly)]);
    }

    #[test]
    fn a_panic_is_enough() {
        let memory = Arc::new(RingMemory::without_name().unwrap());
        let theirs = memory.clone();
        let life = move || {
            let note = theirs.claim_call().unwrap();
            note.begin(2, None);
            call_panicked();
            std::mem::forget(note);
        };
        std::thread::spawn(life).join().unwrap();
        memory.settle_calls(0);
        assert_eq!(outcomes(&memory), [(2, Outcome::Deadly)]);
        memory.forget_calls();
        assert_eq!(outcomes(&memory), []);
    }

    #[test]
    fn cells_that_nobody_asks_for_are_used_again_the_oldest_first() {
        let memory = Arc::new(RingMemory::without_name().unwrap());
        for unique in (1..=CALLS_MAX as u64).rev() {
            killed(&memory, 2 * unique, &[1]);
        }
        memory.settle_calls(1);
        assert!(memory.claim_cell(FREE).is_none());
        let note = memory.claim_call().unwrap();
        assert!(!outcomes(&memory).contains(&(2, Outcome::Done)));
        assert_eq!(outcomes(&memory).len(), CALLS_MAX - 1);
        drop(note);
    }
}
