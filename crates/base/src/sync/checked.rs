//! The same interfaces on top of `shuttle`, whose scheduler may go on with another thread wherever
//! one of them is used. Usable only by threads that it runs.

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

/// Two threads may meet in one.
pub const SHARDS: usize = 2;

/// The calling thread's shard: by its number in the run, so that a run can be repeated.
pub fn shard() -> usize {
    usize::from(shuttle::current::me()) % SHARDS
}

thread_local! {
    // All threads of a run are one thread of the system.
    /// A lock that the scheduler does not know is held: a thread that was let in now would wait for
    /// it for ever.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Another thread may go on here.
pub fn turn() {
    if !INSIDE.get() {
        // Which to `shuttle` is a change of threads, and nothing more.
        shuttle::thread::sleep(Duration::ZERO);
    }
}

/// Runs `f`, which uses atomics and [`Brief`] locks of this module while a lock is held that the
/// scheduler does not know: no other thread goes on meanwhile.
pub fn atomically<R>(f: impl FnOnce() -> R) -> R {
    /// Also after a panic: the next run begins on the same thread of the system.
    struct Out(bool);
    impl Drop for Out {
        fn drop(&mut self) {
            INSIDE.set(self.0);
        }
    }
    let _out = Out(INSIDE.replace(true));
    f()
}

/// Something real, before each use of which another thread may go on.
#[derive(Default)]
pub struct Step<T>(T);

/// The same, from what it is about.
pub const fn step<T>(inner: T) -> Step<T> {
    Step(inner)
}

impl<T> Step<T> {
    /// The same, from what that is made of.
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

/// As the standard library's, but that each use is a step. Sequentially consistent, whatever is
/// asked for: weaker orders are for `loom`.
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

/// A lock that is never held from one step to the next.
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
    /// As `parking_lot`'s, but that to lock twice is an error also when nobody waits.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
    /// As `parking_lot`'s.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
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

/// As `parking_lot`'s. A wait with an end ends whenever the scheduler pleases.
#[derive(Default)]
pub struct Condvar(inner::Condvar);

/// Whether a wait came to its end.
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// It did.
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
    /// As `parking_lot`'s. Woken or not, it looks again after others had their turn: who waits with
    /// an end has to bear that.
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
    /// Others go on: what is waited for is theirs to do.
    pub fn spin_loop() {
        shuttle::thread::yield_now();
    }
}

/// As the standard library's.
pub mod thread {
    pub use shuttle::thread::{Builder, JoinHandle, Scope, scope, spawn, yield_now};

    /// Others go on, for as long as they please.
    pub fn sleep(_: std::time::Duration) {
        yield_now();
    }
}

/// Processors that a run pretends to have.
fn available_parallelism() -> usize {
    3
}

/// Starts a thread in a scope.
fn spawn_in<'scope>(scope: &'scope thread::Scope<'scope, '_>, work: impl FnOnce() + Send + 'scope) {
    scope.spawn(work);
}

/// A moment on the clock of the run, which every step moves on by a microsecond: behaviour that
/// depends on time depends on the seed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Instant(Duration);

impl Instant {
    /// This moment.
    pub fn now() -> Instant {
        Instant(Duration::from_micros(shuttle::current::context_switches() as u64))
    }
    /// Since the run began.
    pub fn since_start(self) -> Duration {
        self.0
    }
    /// Time since then.
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
