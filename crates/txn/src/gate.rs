//! The gate: every transaction passes it, a checkpoint closes it for a moment. Passing writes only
//! to the thread's own cache line.
//!
//! The unit tests of this crate run it under the scheduler of `shuttle`: a test that wants a real
//! gate stands in `tests/`.

use self::sync::{AtomicBool, AtomicU32, Condvar, Instant, Mutex, SHARDS, shard};
use crossbeam_utils::CachePadded;
use shoal_base::planted::{self, Defect};
#[cfg(not(test))]
use shoal_base::sync;
// It knows only sequentially consistent atomics, which are the gate's; `loom` would take those for
// less.
#[cfg(test)]
use shoal_base::sync::checked as sync;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A reader-writer lock whose readers do not share a cache line.
pub struct Gate {
    closed: AtomicBool,
    inside: Box<[CachePadded<AtomicU32>]>,
    /// Threads that wait for the gate to open.
    lock: Mutex<usize>,
    opened: Condvar,
    left: Condvar,
    admitted: Condvar,
}

/// Who has waited for the gate gets in before it closes again, for at most this long: checkpoints
/// without pause must not starve calls.
const COURTESY: Duration = Duration::from_millis(5);

impl Default for Gate {
    fn default() -> Self {
        Gate {
            closed: AtomicBool::new(false),
            inside: (0..SHARDS).map(|_| CachePadded::new(AtomicU32::new(0))).collect(),
            lock: Mutex::new(0),
            opened: Condvar::new(),
            left: Condvar::new(),
            admitted: Condvar::new(),
        }
    }
}

impl Gate {
    /// Enters; waits while the gate is closed. A thread must not enter twice.
    #[inline]
    pub fn enter(&self) -> Inside<'_> {
        let mine = shard();
        self.inside[mine].fetch_add(1, Ordering::SeqCst);
        // Either the closer sees our count, or we see that it has closed.
        if self.closed.load(Ordering::SeqCst) {
            self.leave(mine);
            self.enter_when_open(mine);
        }
        Inside { gate: self, shard: mine }
    }

    #[cold]
    fn enter_when_open(&self, mine: usize) {
        let mut waiting = self.lock.lock();
        *waiting += 1;
        while self.closed.load(Ordering::SeqCst) {
            self.opened.wait(&mut waiting);
        }
        // Under the lock, which closing takes too: it cannot close between the look and the step.
        self.inside[mine].fetch_add(1, Ordering::SeqCst);
        *waiting -= 1;
        if *waiting == 0 {
            self.admitted.notify_all();
        }
    }

    #[inline]
    fn leave(&self, shard: usize) {
        self.inside[shard].fetch_sub(1, Ordering::SeqCst);
        if self.closed.load(Ordering::SeqCst) {
            drop(self.lock.lock());
            self.left.notify_one();
        }
    }

    /// Closes the gate and returns when everybody has left. One thread at a time may do this. It
    /// opens when what is returned is dropped, also by a panic: nobody waits for ever.
    #[must_use]
    pub fn close(&self) -> Closed<'_> {
        let mut waiting = self.lock.lock();
        let end = Instant::now() + COURTESY;
        while *waiting > 0 && !self.admitted.wait_until(&mut waiting, end).timed_out() {}
        self.closed.store(true, Ordering::SeqCst);
        let inside = || self.inside.iter().any(|n| n.load(Ordering::SeqCst) != 0);
        while inside() && !planted::is(Defect::GateNotAwaited) {
            self.left.wait(&mut waiting);
        }
        Closed(self)
    }
}

/// The gate is closed; it opens when this is dropped.
pub struct Closed<'g>(&'g Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let _guard = self.0.lock.lock();
        self.0.closed.store(false, Ordering::SeqCst);
        self.0.opened.notify_all();
    }
}

/// Being inside; leaves when dropped.
pub struct Inside<'g> {
    gate: &'g Gate,
    shard: usize,
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave(self.shard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    use shuttle::{Config, Runner, thread};
    use std::sync::Arc;

    /// What threads do inside: nothing may be seen of it while the gate is closed. Both numbers are
    /// points where the scheduler may go on with another thread.
    #[derive(Default)]
    struct World {
        gate: Gate,
        inside: AtomicU32,
        closing: shuttle::sync::Mutex<()>,
    }

    fn model(threads: usize, entries: usize, closers: usize, closings: usize) {
        let world = Arc::new(World::default());
        let mut all = Vec::new();
        for _ in 0..threads {
            let world = world.clone();
            all.push(thread::spawn(move || {
                for _ in 0..entries {
                    let _here = world.gate.enter();
                    world.inside.fetch_add(1, Ordering::SeqCst);
                    world.inside.fetch_sub(1, Ordering::SeqCst);
                }
            }));
        }
        for _ in 0..closers {
            let world = world.clone();
            all.push(thread::spawn(move || {
                for _ in 0..closings {
                    let _one = world.closing.lock().expect("no thread panics");
                    let _closed = world.gate.close();
                    for _ in 0..3 {
                        assert_eq!(world.inside.load(Ordering::SeqCst), 0, "inside a closed gate");
                    }
                }
            }));
        }
        all.into_iter().for_each(|t| t.join().expect("no thread panics"));
        assert!(world.gate.inside.iter().all(|n| n.load(Ordering::SeqCst) == 0));
    }

    fn check(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
        Runner::new(scheduler, Config::new()).run(model);
    }

    /// A thread that sleeps for ever ends a model too: as a deadlock.
    #[test]
    fn nobody_is_inside_a_closed_gate_and_nobody_is_forgotten() {
        check(RandomScheduler::new_from_seed(1, 5_000), || model(2, 2, 1, 2));
        check(RandomScheduler::new_from_seed(2, 5_000), || model(3, 3, 2, 2));
        // Few changes of thread, at any place: what random choice hardly ever does.
        check(PctScheduler::new_from_seed(3, 3, 10_000), || model(3, 2, 1, 2));
    }
}
