//! The gate: every transaction passes it, a checkpoint closes it for a moment. Passing writes only
//! to the thread's own cache line.
//!
//! The unit tests of this crate run it under the scheduler of `shuttle`: a test that wants a real
//! gate stands in `tests/`.

use self::sync::{AtomicBool, AtomicU32, Condvar, Mutex, Ordering, Patience, SHARDS, shard};
use crossbeam_utils::CachePadded;
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
        let patience = Patience::new(COURTESY);
        while *waiting > 0 && patience.wait(&self.admitted, &mut waiting) {}
        self.closed.store(true, Ordering::SeqCst);
        while self.inside.iter().any(|n| n.load(Ordering::SeqCst) != 0) {
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

/// What the gate is made of.
#[cfg(not(test))]
mod sync {
    pub(super) use parking_lot::{Condvar, Mutex};
    pub(super) use shoal_base::shard::{SHARDS, shard};
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use parking_lot::MutexGuard;
    use std::time::{Duration, Instant};

    /// Waiting that comes to an end.
    pub(super) struct Patience(Instant);

    impl Patience {
        pub fn new(length: Duration) -> Patience {
            Patience(Instant::now() + length)
        }
        /// Waits; `false` when patience is over.
        pub fn wait<T>(&self, condition: &Condvar, guard: &mut MutexGuard<'_, T>) -> bool {
            !condition.wait_until(guard, self.0).timed_out()
        }
    }
}

/// The same under the scheduler of `shuttle`, for models of all that may happen. It knows only
/// sequentially consistent atomics, which are the gate's; `loom` would take those for less.
#[cfg(test)]
mod sync {
    pub(super) use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use shuttle::rand::{RngCore, thread_rng};
    use shuttle::sync as inner;
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    /// Two threads may meet in one.
    pub(super) const SHARDS: usize = 2;

    pub(super) fn shard() -> usize {
        usize::from(shuttle::current::me()) % SHARDS
    }

    pub(super) struct Mutex<T>(inner::Mutex<T>);
    /// Taken apart while it waits.
    pub(super) struct MutexGuard<'m, T>(&'m inner::Mutex<T>, Option<inner::MutexGuard<'m, T>>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(inner::Mutex::new(value))
        }
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(&self.0, self.0.lock().ok())
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.1.as_ref().expect("a thread of the model panicked")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.1.as_mut().expect("a thread of the model panicked")
        }
    }

    pub(super) struct Condvar(inner::Condvar);

    impl Condvar {
        pub fn new() -> Condvar {
            Condvar(inner::Condvar::new())
        }
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            guard.1 = guard.1.take().and_then(|g| self.0.wait(g).ok());
        }
        pub fn notify_one(&self) {
            self.0.notify_one();
        }
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }

    /// Ends whenever the scheduler pleases.
    pub(super) struct Patience;

    impl Patience {
        pub fn new(_: Duration) -> Patience {
            Patience
        }
        pub fn wait<T>(&self, _: &Condvar, guard: &mut MutexGuard<'_, T>) -> bool {
            guard.1 = None;
            shuttle::thread::yield_now();
            guard.1 = guard.0.lock().ok();
            !thread_rng().next_u32().is_multiple_of(4)
        }
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
