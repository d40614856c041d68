//! The same interfaces on top of `shuttle`, whose scheduler may switch threads at every use. Usable
//! only in threads that `shuttle` runs.

#[allow(clippy::duplicate_mod, reason = "its locks are those of the module it is part of")]
#[path = "crew.rs"]
pub mod crew;

use shuttle::rand::{RngCore, thread_rng};
use shuttle::sync as inner;
use std::cell::Cell;
use std::ops::{Add, Deref, DerefMut, Sub};
use std::sync::PoisonError;
use std::sync::atomic;
use std::time::Duration;

pub use inner::{RwLockReadGuard, RwLockWriteGuard};
pub use std::sync::atomic::fence;

/// Number of shards. Two, so that threads also meet in one shard.
pub const SHARDS: usize = 2;

/// The calling thread's shard, derived from its number in the run, so that a run can be repeated.
pub fn shard() -> usize {
    usize::from(shuttle::current::me()) % SHARDS
}

/// Does nothing: under the scheduler the shard is always the same in the same run.
pub fn set_shard(_shard: usize) {}

thread_local! {
    // All threads of a run are one thread of the system.
    /// A lock unknown to the scheduler is held. A switch to another thread now could deadlock.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A point at which the scheduler may switch threads.
pub fn turn() {
    if !INSIDE.get() {
        // For `shuttle` this is a thread switch and nothing more.
        shuttle::thread::sleep(Duration::ZERO);
    }
}

/// Runs `f` without thread switches. For code that uses atomics and [`Brief`] locks of this module
/// while it holds a lock unknown to the scheduler.
pub fn atomically<R>(f: impl FnOnce() -> R) -> R {
    /// Restores the flag, also after a panic: the next run uses the same system thread.
    struct Out(bool);
    impl Drop for Out {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let _out = Out(INSIDE.replace(true));
    f()
}

/// A real object, before each use of which the scheduler may switch threads.
#[derive(Default)]
pub struct Step<T>(T);

/// Wraps `inner`.
pub const fn step<T>(inner: T) -> Step<T> {
    Step(inner)
}

impl<T> Step<T> {
    /// Wraps a value converted to `T`.
    pub fn new<V>(value: V) -> Step<T>
    where
        T: From<V>,
    {
        Step(T::from(value))
    }
}

impl<T> Deref for Step<T> {
    type Target = T;
    fn deref(&self) -> &T {
        turn();
        &self.0
    }
}

/// As the standard library's, with a thread switch possible before each use. Always sequentially
/// consistent; weaker orderings are checked by `loom`.
pub type AtomicBool = Step<atomic::AtomicBool>;
/// As [`AtomicBool`].
pub type AtomicI64 = Step<atomic::AtomicI64>;
/// As [`AtomicBool`].
pub type AtomicU8 = Step<atomic::AtomicU8>;
/// As [`AtomicBool`].
pub type AtomicU32 = Step<atomic::AtomicU32>;
/// As [`AtomicBool`].
pub type AtomicU64 = Step<atomic::AtomicU64>;
/// As [`AtomicBool`].
pub type AtomicUsize = Step<atomic::AtomicUsize>;

/// A lock that is never held across a possible thread switch.
pub type Brief<T> = Step<parking_lot::Mutex<T>>;

/// As `parking_lot`'s: never poisoned.
#[derive(Default)]
pub struct Mutex<T>(inner::Mutex<T>);

/// A locked [`Mutex`]; taken apart while it waits for a [`Condvar`].
pub struct MutexGuard<'m, T>(&'m Mutex<T>, Option<inner::MutexGuard<'m, T>>);

impl<T> Mutex<T> {
    /// As `parking_lot`'s.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(inner::Mutex::new(value))
    }
    /// As `parking_lot`'s.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self, Some(self.take()))
    }
    /// As `parking_lot`'s.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(MutexGuard(self, Some(guard))),
            Err(std::sync::TryLockError::Poisoned(e)) => {
                Some(MutexGuard(self, Some(e.into_inner())))
            }
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
    /// As `parking_lot`'s.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
    fn take(&self) -> inner::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.1.as_ref().expect("it does not wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.1.as_mut().expect("it does not wait")
    }
}

/// As `parking_lot`'s: never poisoned.
#[derive(Default)]
pub struct RwLock<T>(inner::RwLock<T>);

impl<T> RwLock<T> {
    /// As `parking_lot`'s.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock(inner::RwLock::new(value))
    }
    /// As `parking_lot`'s, except that locking twice is always an error.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
    /// As `parking_lot`'s.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
    /// As `parking_lot`'s.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.0.try_read() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
    /// As `parking_lot`'s.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        match self.0.try_write() {
            Ok(guard) => Some(guard),
            Err(std::sync::TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

/// As `parking_lot`'s. A wait with a timeout ends whenever the scheduler chooses.
#[derive(Default)]
pub struct Condvar(inner::Condvar);

/// As [`idle::Mutex`](super::idle::Mutex).
pub type IdleMutex<T> = Mutex<T>;
/// As [`idle::Condvar`](super::idle::Condvar).
pub type IdleCondvar = Condvar;

/// The result of a wait with a timeout.
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns whether the wait timed out.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// As `parking_lot`'s.
    pub const fn new() -> Condvar {
        Condvar(inner::Condvar::new())
    }
    /// As `parking_lot`'s.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.1.take().expect("it does not wait");
        guard.1 = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
    }
    /// As `parking_lot`'s. Returns after other threads had their turn, notified or not: callers of
    /// a wait with a timeout must tolerate that.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _: Duration) -> WaitTimeoutResult {
        guard.1 = None;
        shuttle::thread::yield_now();
        guard.1 = Some(guard.0.take());
        WaitTimeoutResult(thread_rng().next_u64().is_multiple_of(4))
    }
    /// As `parking_lot`'s; as [`Condvar::wait_for`].
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> WaitTimeoutResult {
        self.wait_for(guard, Duration::ZERO)
    }
    /// As `parking_lot`'s.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }
    /// As `parking_lot`'s.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As the standard library's.
pub mod hint {
    /// Switches threads: the condition that the caller spins on is another thread's to change.
    pub fn spin_loop() {
        shuttle::thread::yield_now();
    }
}

/// As the standard library's.
pub mod thread {
    pub use shuttle::thread::{Builder, JoinHandle, Scope, scope, spawn, yield_now};

    /// Switches threads; the duration is ignored.
    pub fn sleep(_: std::time::Duration) {
        yield_now();
    }
}

/// Number of processors that a run pretends to have.
fn available_parallelism() -> usize {
    3
}

/// Starts a thread in a scope.
fn spawn_in<'scope>(scope: &'scope thread::Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) {
    scope.spawn(work);
}

/// A moment on the clock of the run, which advances by a microsecond with every step. Behaviour
/// that depends on time therefore depends on the seed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Instant(Duration);

impl Instant {
    /// The current moment.
    pub fn now() -> Instant {
        Instant(Duration::from_micros(shuttle::current::context_switches() as u64))
    }
    /// Time since the run began.
    pub fn since_start(self) -> Duration {
        self.0
    }
    /// Time since this moment.
    pub fn elapsed(self) -> Duration {
        Instant::now() - self
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, length: Duration) -> Instant {
        Instant(self.0 + length)
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}
