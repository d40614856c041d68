//! Transaction quiesce: a checkpoint waits until no transaction is in flight, and holds new ones
//! back for that moment. Beginning a transaction writes only to the thread's own cache line.
//!
//! The unit tests of this crate run it under the scheduler of `shuttle`. Tests with real threads
//! are in `tests/`.

use self::sync::{AtomicBool, AtomicU32, Condvar, Instant, Mutex, SHARDS, shard};
use crossbeam_utils::CachePadded;
use shoal_base::phase::{self, Phase};
use shoal_base::planted::{self, Defect};
#[cfg(not(test))]
use shoal_base::sync;
// `shuttle` knows only sequentially consistent atomics, as used here; `loom` would model them as
// weaker.
#[cfg(test)]
use shoal_base::sync::checked as sync;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A reader-writer lock whose readers do not share a cache line.
pub struct Quiesce {
    active: AtomicBool,
    in_flight: Box<[CachePadded<AtomicU32>]>,
    /// Number of threads waiting for the end of the quiesce.
    lock: Mutex<usize>,
    ended: Condvar,
    left: Condvar,
    admitted: Condvar,
}

/// Longest time for which waiting threads are let in before the next quiesce: checkpoints without
/// pause must not starve calls.
const ADMIT_MAX: Duration = Duration::from_millis(5);

impl Default for Quiesce {
    fn default() -> Self {
        Quiesce {
            active: AtomicBool::new(false),
            in_flight: (0..SHARDS).map(|_| CachePadded::new(AtomicU32::new(0))).collect(),
            lock: Mutex::new(0),
            ended: Condvar::new(),
            left: Condvar::new(),
            admitted: Condvar::new(),
        }
    }
}

impl Quiesce {
    /// Enters; waits during a quiesce. A thread must not enter twice.
    #[inline]
    pub fn enter(&self) -> InFlight<'_> {
        let mine = shard();
        self.in_flight[mine].fetch_add(1, Ordering::SeqCst);
        // Either the quiescing thread sees our count, or we see its flag.
        if self.active.load(Ordering::SeqCst) {
            self.leave(mine);
            self.enter_afterwards(mine);
        }
        InFlight { quiesce: self, shard: mine }
    }

    #[cold]
    fn enter_afterwards(&self, mine: usize) {
        let _waiting = phase::waiting(Phase::Quiesce);
        let mut waiting = self.lock.lock();
        *waiting += 1;
        while self.active.load(Ordering::SeqCst) {
            self.ended.wait(&mut waiting);
        }
        // Under the lock, which `begin` takes too: it cannot begin between the check and the
        // count.
        self.in_flight[mine].fetch_add(1, Ordering::SeqCst);
        *waiting -= 1;
        if *waiting == 0 {
            self.admitted.notify_all();
        }
    }

    /// Returns whether no transaction is in flight.
    pub fn is_quiet(&self) -> bool {
        self.in_flight.iter().all(|count| count.load(Ordering::SeqCst) == 0)
    }

    #[inline]
    fn leave(&self, shard: usize) {
        self.in_flight[shard].fetch_sub(1, Ordering::SeqCst);
        if self.active.load(Ordering::SeqCst) {
            drop(self.lock.lock());
            self.left.notify_one();
        }
    }

    /// Begins a quiesce and returns when every transaction has ended. Only one thread at a time may
    /// call it. The quiesce ends when the result is dropped, also by a panic, so nobody waits
    /// forever.
    #[must_use]
    pub fn begin(&self) -> Quiesced<'_> {
        let mut waiting = self.lock.lock();
        let end = Instant::now() + ADMIT_MAX;
        while *waiting > 0 && !self.admitted.wait_until(&mut waiting, end).timed_out() {}
        self.active.store(true, Ordering::SeqCst);
        while !self.is_quiet() && !planted::is(Defect::QuiesceIgnored) {
            self.left.wait(&mut waiting);
        }
        Quiesced(self)
    }
}

/// A quiesce in progress, which ends when this is dropped.
pub struct Quiesced<'g>(&'g Quiesce);

impl Drop for Quiesced<'_> {
    fn drop(&mut self) {
        let _guard = self.0.lock.lock();
        self.0.active.store(false, Ordering::SeqCst);
        self.0.ended.notify_all();
    }
}

/// Permission for one transaction, which ends when dropped.
pub struct InFlight<'g> {
    quiesce: &'g Quiesce,
    shard: usize,
}

impl Drop for InFlight<'_> {
    #[inline]
    fn drop(&mut self) {
        self.quiesce.leave(self.shard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
    use shuttle::{Config, Runner, thread};
    use std::sync::Arc;

    /// Work of the threads, none of which may be visible during a quiesce. At both numbers the
    /// scheduler may switch threads.
    #[derive(Default)]
    struct World {
        quiesce: Quiesce,
        in_flight: AtomicU32,
        quiescing: shuttle::sync::Mutex<()>,
    }

    fn model(threads: usize, entries: usize, checkpoints: usize, rounds: usize) {
        let world = Arc::new(World::default());
        let mut all = Vec::new();
        for _ in 0..threads {
            let world = world.clone();
            all.push(thread::spawn(move || {
                for _ in 0..entries {
                    let _here = world.quiesce.enter();
                    world.in_flight.fetch_add(1, Ordering::SeqCst);
                    world.in_flight.fetch_sub(1, Ordering::SeqCst);
                }
            }));
        }
        for _ in 0..checkpoints {
            let world = world.clone();
            all.push(thread::spawn(move || {
                for _ in 0..rounds {
                    let _one = world.quiescing.lock().expect("no thread panics");
                    let _quiesced = world.quiesce.begin();
                    for _ in 0..3 {
                        assert_eq!(
                            world.in_flight.load(Ordering::SeqCst),
                            0,
                            "in flight under quiesce"
                        );
                    }
                }
            }));
        }
        all.into_iter().for_each(|t| t.join().expect("no thread panics"));
        assert!(world.quiesce.in_flight.iter().all(|n| n.load(Ordering::SeqCst) == 0));
    }

    fn check(scheduler: impl Scheduler + 'static, model: impl Fn() + Send + Sync + 'static) {
        Runner::new(scheduler, Config::new()).run(model);
    }

    /// A thread that sleeps forever fails a model too, as a deadlock.
    #[test]
    fn nothing_is_in_flight_under_quiesce_and_nobody_is_forgotten() {
        check(RandomScheduler::new_from_seed(1, 5_000), || model(2, 2, 1, 2));
        check(RandomScheduler::new_from_seed(2, 5_000), || model(3, 3, 2, 2));
        // Few thread switches, at arbitrary places, which random choice hardly ever produces.
        check(PctScheduler::new_from_seed(3, 3, 10_000), || model(3, 2, 1, 2));
    }
}
