//! The threads that work behind the calls: one checkpoints when that is due and cleans when
//! segments run low, the other frees what was left to be freed (`reap/`).

use crate::open::DISCARD;
use crate::volume::Inner;
use shoal_base::counters::Counter;
use shoal_base::sync::{AtomicBool, Instant, Mutex, thread};
use shoal_base::{Code, Error, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often the threads look around unasked.
const LOOK: Duration = Duration::from_millis(500);
/// The same while space is being made.
const PAUSE: Duration = Duration::from_millis(5);
/// A volume on which so few transactions are committed between two looks is idle...
const BUSY: u64 = 64;
/// ...after so long.
const QUIET: Duration = Duration::from_millis(1500);
/// Dead bytes for which a checkpoint is made that nothing else asks for.
const FREED_AT_ONCE: u64 = 64 << 20;
/// Segments beyond those that must be that stay allocated in the host of a busy volume.
const KEPT_BUSY: u32 = 64;
/// While others work, freeing rests this many times as long as it worked.
const REST: u32 = 3;
/// The longest rest.
const REST_MAX: Duration = Duration::from_millis(50);

/// The running threads.
pub(crate) struct Background {
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
}

impl Background {
    pub fn start(inner: Arc<Inner>) -> Result<Background> {
        let stop = Arc::new(AtomicBool::new(false));
        let background = Background { stop: stop.clone(), threads: Mutex::default() };
        let spawn = |name: &str, run: fn(&Inner, &AtomicBool)| {
            let (inner, stop) = (inner.clone(), stop.clone());
            let thread = thread::Builder::new().name(name.into());
            thread.spawn(move || run(&inner, &stop)).map_err(|e| {
                Error::refused(Code::Again, format!("cannot start the thread {name}: {e}"))
            })
        };
        for (name, run) in [("shoal-checkpoint", checkpoints as fn(&_, &_)), ("shoal-reap", reap)] {
            match spawn(name, run) {
                Ok(thread) => background.threads.lock().push(thread),
                Err(e) => {
                    background.stop(&inner);
                    return Err(e);
                }
            }
        }
        Ok(background)
    }

    /// Stops the threads and waits for them.
    pub fn stop(&self, inner: &Inner) {
        self.stop.store(true, Ordering::Release);
        inner.store.wake_checkpointer();
        inner.wake_reaper();
        for thread in self.threads.lock().drain(..) {
            // Its panic, if any, has been reported by the panic hook; the volume is as it was.
            let _ = thread.join();
        }
    }
}

fn checkpoints(inner: &Inner, stop: &AtomicBool) {
    let _careful = inner.store.careful("a checkpoint was due");
    let (mut quiet, mut more) = (Quiet::default(), false);
    while !stop.load(Ordering::Acquire) {
        if !inner.options.checkpoint_always {
            inner.store.wait_for_work(if more { PAUSE } else { LOOK });
        }
        if stop.load(Ordering::Acquire) || inner.store.writable().is_err() {
            // Read-only: nothing to do until the volume is closed.
            if inner.store.writable().is_err() {
                thread::sleep(LOOK / 10);
            }
            continue;
        }
        let due = inner.store.checkpoint_is_due() || inner.options.checkpoint_always;
        let done = if due { inner.store.checkpoint() } else { Ok(()) };
        let done = done.and_then(|()| make_space(inner, &mut quiet));
        more = done.unwrap_or_else(|e| {
            tracing::error!(error = %e, "background checkpoint");
            false
        });
    }
}

/// What makes space beside checkpoints, a piece of each; whether there may be more at once.
fn make_space(inner: &Inner, quiet: &mut Quiet) -> Result<bool> {
    // Before a call needs it. That the host has no room is told to those who want some.
    let _ = inner.store.back();
    // Never in the small volumes that run under a scheduler, whose steps asking would use up.
    if !cfg!(shoal_shuttle) {
        quiet.free_dead(inner)?;
    }
    // While space is taken as fast as it is freed, giving it back would be for nothing.
    let keep = if quiet.is_busy(inner) { KEPT_BUSY } else { 0 };
    let mut more = inner.options.discard && inner.store.discard_run(DISCARD, keep) > 0;
    if inner.should_clean() {
        more |= inner.clean_in_background()?;
    } else if quiet.is_long(inner) && inner.should_compact() {
        more |= inner.compact()?;
        quiet.was_used(inner, more);
    }
    Ok(more)
}

/// Whether the volume has been in use lately.
#[derive(Default)]
struct Quiet {
    since: Option<Instant>,
    transactions: u64,
    /// Compacting has gained nothing: it is not tried again before something happens.
    in_vain: bool,
    /// Dead bytes when it was last looked how many of them a checkpoint would free.
    dead: u64,
    /// When it was looked last how much is written, how much had been by then, and whether that
    /// was much more than the time before.
    looked: Option<Instant>,
    written: u64,
    busy: bool,
}

impl Quiet {
    /// A checkpoint, when it frees much: else files that come and go between two of them take new
    /// space each time, and the volume grows in its host as if they had stayed. Counting what one
    /// frees goes through all segments, so it is done after as much again has died.
    fn free_dead(&mut self, inner: &Inner) -> Result<()> {
        let dead = inner.store.space.dead_bytes();
        self.dead = self.dead.min(dead);
        if dead - self.dead < FREED_AT_ONCE {
            return Ok(());
        }
        self.dead = dead;
        let ready = u64::from(inner.store.space.ready_segments());
        if ready * inner.store.geometry.segment_size >= FREED_AT_ONCE {
            inner.store.checkpoint()?;
        }
        Ok(())
    }

    /// Whether much was being written when it was looked last.
    fn is_busy(&mut self, inner: &Inner) -> bool {
        // Under a scheduler nothing may depend on the time a run takes, or it is not repeated.
        if !cfg!(shoal_shuttle) && self.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            let count = |counter| inner.store.counters.get(counter);
            let written = count(Counter::DataBytesWritten) + count(Counter::JournalBytes);
            let by = written.wrapping_sub(std::mem::replace(&mut self.written, written));
            self.busy = self.looked.is_some() && by >= 4 * inner.store.geometry.segment_size;
            self.looked = Some(Instant::now());
        }
        self.busy
    }

    fn is_long(&mut self, inner: &Inner) -> bool {
        let now = inner.store.counters.get(Counter::Transactions);
        if now.saturating_sub(self.transactions) >= BUSY || self.since.is_none() {
            (self.since, self.in_vain) = (Some(Instant::now()), false);
        }
        self.transactions = now;
        !self.in_vain && self.since.is_some_and(|since| since.elapsed() >= QUIET)
    }

    /// What has happened since was not the users'.
    fn was_used(&mut self, inner: &Inner, gained: bool) {
        self.transactions = inner.store.counters.get(Counter::Transactions);
        self.in_vain = !gained;
    }
}

/// Frees what waits to be freed, a piece at a time, after the calls: a piece in every session at
/// least, however short, or a volume that only ever sees single commands would never be rid of it.
fn reap(inner: &Inner, stop: &AtomicBool) {
    let _careful = inner.store.careful("space was freed");
    loop {
        let (begun, seen) = (Instant::now(), inner.others());
        let more = inner.store.writable().is_ok() && freed(inner);
        if stop.load(Ordering::Acquire) {
            return;
        }
        if !more {
            inner.wait_for_reaping(LOOK);
        } else if inner.others() != seen && !inner.is_short_of_space() {
            let rest = (begun.elapsed() * REST).min(REST_MAX);
            inner.rest_from_reaping(rest, stop);
        }
    }
}

/// Frees a piece; whether there may be more.
fn freed(inner: &Inner) -> bool {
    inner.reap_some().unwrap_or_else(|e| {
        tracing::error!(error = %e, "freeing behind the calls");
        false
    })
}

impl Inner {
    /// Transactions so far that were not about freeing behind the calls.
    fn others(&self) -> u64 {
        let count = |counter| self.store.counters.get(counter);
        // Compared, not counted with: one may be read before and the other after a step ends.
        count(Counter::Transactions).wrapping_sub(count(Counter::ReapSteps))
    }
}
