//! Background threads: one writes checkpoints when they are due and cleans when few segments are
//! free, the other reaps (`reap/`).

use crate::clean::Cleaner;
use crate::quotas::Quotas;
use crate::reap::Reaper;
use crate::state::State;
use crate::tree_change::TreeChanges;
use crate::waste::Waste;
use shoal_base::counters::Counter;
use shoal_base::sample;
use shoal_base::sync::{AtomicBool, Instant, Mutex, thread};
use shoal_base::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Interval at which the threads check for work.
const LOOK: Duration = Duration::from_millis(500);
/// The same while there is more space to free.
const PAUSE: Duration = Duration::from_millis(5);
/// Transactions between two checks below which a volume counts as idle...
const BUSY: u64 = 64;
/// ...after this time.
const QUIET: Duration = Duration::from_millis(1500);
/// Bytes discarded at a time.
pub(crate) const DISCARD: u64 = 64 << 20;
/// Dead bytes that cause a checkpoint if nothing else requests one.
const FREED_AT_ONCE: u64 = 64 << 20;
/// Segments that stay allocated on the host for a busy volume, in addition to the required ones.
const KEPT_BUSY: u32 = 64;
/// While calls commit transactions, reaping pauses this many times as long as it worked.
const REST: u32 = 3;
/// The longest pause.
const REST_MAX: Duration = Duration::from_millis(50);

/// The running background threads.
pub(crate) struct Background {
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Background {
    pub(crate) fn start(state: Arc<State>) -> Result<Background> {
        let stop = Arc::new(AtomicBool::new(false));
        let background = Background { stop: stop.clone(), threads: Mutex::default() };
        let spawn = |name: &str, run: fn(&State, &AtomicBool)| {
            let (state, stop) = (state.clone(), stop.clone());
            let thread = thread::Builder::new().name(name.into());
            let work = move || {
                // What it does is no call of anybody.
                let _apart = sample::apart();
                run(&state, &stop);
            };
            thread.spawn(work).map_err(|e| {
                Error::refused(Code::Again, format!("cannot start the thread {name}: {e}"))
            })
        };
        let mut threads =
            vec![("shoal-checkpoint", checkpoints as fn(&_, &_)), ("shoal-reap", reap)];
        if Quotas(&state).is_incomplete() {
            threads.push(("shoal-quota", |state, stop| {
                let _careful = state.store.careful("the use of quotas was counted");
                Quotas(state).complete(&|| stop.load(Ordering::Acquire));
            }));
        }
        for (name, run) in threads {
            match spawn(name, run) {
                Ok(thread) => background.threads.lock().push(thread),
                Err(e) => {
                    background.stop(&state);
                    return Err(e);
                }
            }
        }
        Ok(background)
    }

    /// Stops the threads and waits for them.
    pub(crate) fn stop(&self, state: &State) {
        self.stop.store(true, Ordering::Release);
        state.store.checkpoints().request();
        state.reaping.wake();
        for thread in self.threads.lock().drain(..) {
            // A panic was reported by the panic hook and has made the volume read-only.
            let _ = thread.join();
        }
    }
}

fn checkpoints(state: &State, stop: &AtomicBool) {
    let _careful = state.store.careful("a checkpoint was due");
    let (mut quiet, mut waste, mut more) = (Quiet::default(), Waste::default(), false);
    while !stop.load(Ordering::Acquire) {
        if !state.options.lab().checkpoint_always {
            state.store.checkpoints().wait_for_request(if more { PAUSE } else { LOOK });
        }
        if stop.load(Ordering::Acquire) || state.store.writable().is_err() {
            // Read-only: there is nothing to do until the volume is closed.
            if state.store.writable().is_err() {
                thread::sleep(LOOK / 10);
            }
            continue;
        }
        let due = state.store.checkpoints().is_due() || state.options.lab().checkpoint_always;
        let done = if due { state.store.checkpoints().write() } else { Ok(()) };
        let done = done.and_then(|()| make_space(state, &mut quiet, &mut waste));
        more = done.unwrap_or_else(|e| {
            tracing::error!(error = %e, "background checkpoint");
            false
        });
    }
}

/// Frees space other than by due checkpoints, a part of each kind. Returns whether there may be
/// more.
fn make_space(state: &State, quiet: &mut Quiet, waste: &mut Waste) -> Result<bool> {
    // In advance of calls. If the host has no space, the calls that need it return the error.
    let _ = state.store.room().back();
    // Never under a scheduler: its volumes are small, and the check would use up its steps.
    if !cfg!(feature = "scheduled") {
        quiet.free_dead(state)?;
    }
    // While space is used as fast as it is freed, discarding it would be useless.
    let keep = if quiet.is_busy(state) { KEPT_BUSY } else { 0 };
    let mut more = state.options.discard && state.store.room().discard_run(DISCARD, keep) > 0;
    if Cleaner(state).should_clean() {
        more |= Cleaner(state).clean_in_background()?;
    } else if waste.reduce(state)? {
        more = true;
    } else if quiet.is_long(state) && Cleaner(state).should_compact() {
        more |= Cleaner(state).compact()?;
        quiet.was_used(state, more);
    }
    Ok(more)
}

/// Tracks how busy the volume has been lately.
#[derive(Default)]
struct Quiet {
    since: Option<Instant>,
    transactions: u64,
    /// Compacting has gained nothing: it is not tried again before the volume is used.
    no_gain: bool,
    /// Dead bytes at the last count of those that a checkpoint would free.
    dead: u64,
    /// Time of the last measurement of written bytes, their number at that time, and whether that
    /// was a large increase.
    looked: Option<Instant>,
    written: u64,
    busy: bool,
}

impl Quiet {
    /// Writes a checkpoint if it frees much. Otherwise short-lived files would use new space each
    /// time, and the volume would grow on the host. Counting what a checkpoint frees visits all
    /// segments, so it is only done after as many bytes again have died.
    fn free_dead(&mut self, state: &State) -> Result<()> {
        let dead = state.store.space().counts().dead_bytes();
        self.dead = self.dead.min(dead);
        if dead - self.dead < FREED_AT_ONCE {
            return Ok(());
        }
        self.dead = dead;
        let ready = u64::from(state.store.space().counts().ready_segments());
        if ready * state.store.geometry().segment_size >= FREED_AT_ONCE {
            state.store.checkpoints().write()?;
        }
        Ok(())
    }

    /// Returns whether much was being written at the last measurement.
    fn is_busy(&mut self, state: &State) -> bool {
        // Under a scheduler nothing may depend on real time, or the run is not repeatable.
        if !cfg!(feature = "scheduled") && self.looked.is_none_or(|looked| looked.elapsed() >= LOOK)
        {
            let count = |counter| state.store.counters().get(counter);
            let written = count(Counter::DataBytesWritten) + count(Counter::JournalBytes);
            let by = written.wrapping_sub(std::mem::replace(&mut self.written, written));
            self.busy = self.looked.is_some() && by >= 4 * state.store.geometry().segment_size;
            self.looked = Some(Instant::now());
        }
        self.busy
    }

    fn is_long(&mut self, state: &State) -> bool {
        let now = state.store.counters().get(Counter::Transactions);
        if now.saturating_sub(self.transactions) >= BUSY || self.since.is_none() {
            (self.since, self.no_gain) = (Some(Instant::now()), false);
        }
        self.transactions = now;
        !self.no_gain && self.since.is_some_and(|since| since.elapsed() >= QUIET)
    }

    /// Excludes the background thread's own transactions, and notes whether compacting gained
    /// anything.
    fn was_used(&mut self, state: &State, gained: bool) {
        self.transactions = state.store.counters().get(Counter::Transactions);
        self.no_gain = !gained;
    }
}

/// Reaps in steps. Performs at least one in each session, however short: otherwise a volume that is
/// only used by single commands would never free anything.
fn reap(state: &State, stop: &AtomicBool) {
    let _careful = state.store.careful("space was freed");
    loop {
        let (begun, seen) = (Instant::now(), others(state));
        let more = state.store.writable().is_ok() && freed(state);
        if stop.load(Ordering::Acquire) {
            return;
        }
        if !more {
            state.reaping.wait_for_work(LOOK);
        } else if others(state) != seen && !Reaper(state).is_short_of_space() {
            let rest = (begun.elapsed() * REST).min(REST_MAX);
            state.reaping.rest(rest, stop);
        }
    }
}

/// Performs a step of freeing or, if there is nothing to free, of an interrupted change of a tree.
/// Returns whether there may be more.
fn freed(state: &State) -> bool {
    let freed = Reaper(state).reap_some().and_then(|more| match more {
        true => Ok(true),
        false => TreeChanges(state).continue_some(),
    });
    freed.unwrap_or_else(|e| {
        tracing::error!(error = %e, "freeing in the background");
        false
    })
}

/// Number of transactions so far other than steps of reaping.
fn others(state: &State) -> u64 {
    let count = |counter| state.store.counters().get(counter);
    // Only compared for equality: a step may end between the two reads.
    count(Counter::Transactions).wrapping_sub(count(Counter::ReapSteps))
}
