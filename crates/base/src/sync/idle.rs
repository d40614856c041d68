//! Locks on which a background thread waits for work: those of the standard library, with the calls
//! of `parking_lot`.
//!
//! Why: `parking_lot` keeps all waiting threads of a process in one table. A child of `fork`
//! inherits the entries of threads that it does not have. The C library gives their memory to the
//! child's next threads, and the table is broken: a volume that the child opens may hang. Shoal's
//! own threads wait nearly always, so there would be such entries at every fork. A lock of the
//! standard library is a word of its own.

use std::ops::{Deref, DerefMut};
use std::sync::{self, PoisonError, WaitTimeoutResult};
use std::time::{Duration, Instant};

/// A mutex. A panic of its holder does not poison it.
#[derive(Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// A locked [`Mutex`]. Without the inner guard only while it waits.
pub struct MutexGuard<'m, T>(Option<sync::MutexGuard<'m, T>>);

impl<T> Mutex<T> {
    /// Makes one.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(sync::Mutex::new(value))
    }
    /// Locks it.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().expect("it does not wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it does not wait")
    }
}

/// A condition variable.
#[derive(Default)]
pub struct Condvar(sync::Condvar);

impl Condvar {
    /// Makes one.
    pub const fn new() -> Condvar {
        Condvar(sync::Condvar::new())
    }
    /// Waits until it is notified.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("it does not wait");
        guard.0 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }
    /// Waits until it is notified, at most this long.
    pub fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        at_most: Duration,
    ) -> WaitTimeoutResult {
        let held = guard.0.take().expect("it does not wait");
        let waited = self.0.wait_timeout(held, at_most);
        let (held, result) = waited.unwrap_or_else(PoisonError::into_inner);
        guard.0 = Some(held);
        result
    }
    /// Waits until it is notified, at most until this moment.
    pub fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        deadline: Instant,
    ) -> WaitTimeoutResult {
        self.wait_for(guard, deadline.saturating_duration_since(Instant::now()))
    }
    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiting_thread_is_woken_and_a_wait_ends() {
        let (state, changed) = (Mutex::new(0), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *state.lock() = 1;
                changed.notify_all();
            });
            let mut held = state.lock();
            while *held == 0 {
                changed.wait(&mut held);
            }
            assert_eq!(*held, 1);
        });
        let mut held = state.lock();
        assert!(changed.wait_until(&mut held, Instant::now()).timed_out());
        *held = 2;
        assert!(changed.wait_for(&mut held, Duration::ZERO).timed_out());
        assert_eq!(*held, 2);
    }
}
