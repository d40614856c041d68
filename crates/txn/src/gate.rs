//! The gate: every transaction passes it, a checkpoint closes it for a moment. Passing writes only
//! to the thread's own cache line.

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex};
use shoal_base::shard::{SHARDS, shard};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

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

    /// Closes the gate and returns when everybody has left. One thread at a time may do this.
    pub fn close(&self) {
        let mut waiting = self.lock.lock();
        let patience = Instant::now() + COURTESY;
        while *waiting > 0 && !self.admitted.wait_until(&mut waiting, patience).timed_out() {}
        self.closed.store(true, Ordering::SeqCst);
        while self.inside.iter().any(|n| n.load(Ordering::SeqCst) != 0) {
            self.left.wait(&mut waiting);
        }
    }

    /// Opens it again.
    pub fn open(&self) {
        let _guard = self.lock.lock();
        self.closed.store(false, Ordering::SeqCst);
        self.opened.notify_all();
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
    use std::sync::atomic::AtomicU64;

    #[test]
    fn nobody_is_inside_a_closed_gate() {
        let (gate, inside, stop) = (Gate::default(), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        let _here = gate.enter();
                        inside.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..2000 {
                gate.close();
                assert_eq!(inside.load(Ordering::SeqCst), 0);
                gate.open();
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
